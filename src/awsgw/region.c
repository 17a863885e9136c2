#include "awsgw/region.h"

#include "base/buf.h"

/* "ap-southeast-2": the first part whole, of the second its first letter and that of its second
 * word, then the number. */
struct str zone_id(const struct gw *gw, struct arena *a)
{
    static const char *const words[] = {"north", "south", "east", "west", "central"};
    struct str rest = region_name(gw), area = STR_NONE, direction = STR_NONE, number = STR_NONE;
    AUTO_BUF b;
    buf_init(&b, 64);
    if (str_next(&rest, '-', &area) && str_next(&rest, '-', &direction)) {
        buf_add(&b, area);
        while (direction.n > 0) {
            buf_add(&b, str_n(direction.p, 1));
            size_t skip = direction.n;
            for (size_t i = 0; i < ARRAY_LEN(words); i++) {
                if (str_has_prefixc(direction, words[i])) {
                    skip = strlen(words[i]);
                }
            }
            direction = str_skip(direction, skip);
        }
        if (str_next(&rest, '-', &number)) {
            buf_add(&b, number);
        }
    } else {
        buf_add(&b, area);
    }
    struct str zone = zone_name(gw);
    char letter = zone.n > 0 ? zone.p[zone.n - 1] : 'a';
    int index = letter >= 'a' && letter <= 'z' ? letter - 'a' + 1 : 1;
    return arena_fmt(a, "%.*s-az%d", STR_ARG(buf_str(&b)), index);
}
