#include "awsgw/region.h"

static void put(char *id, size_t size, size_t *n, struct str s)
{
    size_t k = MIN(s.n, size - 1 - *n);
    memcpy(id + *n, s.p, k);
    *n += k;
}

/* "ap-southeast-2": the first part whole, of the second its first letter and that of its second
 * word, then the number. */
struct str zone_id(const struct gw *gw, struct arena *a)
{
    static const char *const words[] = {"north", "south", "east", "west", "central"};
    struct str rest = region_name(gw), area = STR_NONE, direction = STR_NONE, number = STR_NONE;
    char id[64];
    size_t n = 0;
    if (str_next(&rest, '-', &area)) {
        put(id, sizeof(id), &n, area);
    }
    if (rest.p && str_next(&rest, '-', &direction)) {
        while (direction.n > 0) {
            put(id, sizeof(id), &n, str_n(direction.p, 1));
            size_t skip = direction.n;
            for (size_t i = 0; i < ARRAY_LEN(words); i++) {
                if (str_has_prefixc(direction, words[i])) {
                    skip = strlen(words[i]);
                }
            }
            direction = str_skip(direction, skip);
        }
        if (str_next(&rest, '-', &number)) {
            put(id, sizeof(id), &n, number);
        }
    }
    struct str zone = zone_name(gw);
    char letter = zone.n > 0 ? zone.p[zone.n - 1] : 'a';
    int index = letter >= 'a' && letter <= 'z' ? letter - 'a' + 1 : 1;
    return arena_fmt(a, "%.*s-az%d", (int)n, id, index);
}
