#include "aws/arn.h"

#include <errno.h>

int arn_parse(struct str s, struct arn *ret)
{
    struct str rest = s, field[5];
    for (size_t i = 0; i < ARRAY_LEN(field); i++) {
        if (!str_is_set(rest) || !str_next(&rest, ':', &field[i])) {
            return -EINVAL;
        }
    }
    if (!str_is_set(rest) || rest.n == 0 || !str_eqc(field[0], "arn") || field[1].n == 0 ||
        field[2].n == 0) {
        return -EINVAL;
    }
    *ret = (struct arn){.partition = field[1],
                        .service = field[2],
                        .region = field[3],
                        .account = field[4],
                        .resource = rest};
    return 0;
}

/* Joins in memory that arena_xalloc() gives: aborts past the arena's limit, as the header says.
 */
static struct str join(struct arena *a, const struct str *parts, size_t n)
{
    size_t size = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        size += parts[i].n;
    }
    char *p = arena_xalloc(a, size + 1);
    for (size_t i = 0; i < n; i++) {
        if (parts[i].n) {
            memcpy(p + at, parts[i].p, parts[i].n);
        }
        at += parts[i].n;
    }
    return str_n(p, size);
}

struct str arn_make(struct arena *a, struct str service, struct str region, struct str account,
                    struct str resource)
{
    const struct str parts[] = {STR("arn:aws:"), service, STR(":"), region,
                                STR(":"),        account, STR(":"), resource};
    return join(a, parts, ARRAY_LEN(parts));
}

struct str arn_ec2(struct arena *a, struct str region, struct str account, const char *kind,
                   struct str id)
{
    const struct str parts[] = {STR("arn:aws:ec2:"), region,   STR(":"), account, STR(":"),
                                str_c(kind),         STR("/"), id};
    return join(a, parts, ARRAY_LEN(parts));
}
