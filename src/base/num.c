#include "base/num.h"

#include <errno.h>

int num_u64(struct str s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    if (s.n == 0) {
        return -EINVAL;
    }
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            return -EINVAL;
        }
    }
    for (size_t i = 0; i < s.n; i++) {
        uint64_t d = (uint64_t)(s.p[i] - '0');
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, d, &v)) {
            return -ERANGE;
        }
    }
    if (v > max) {
        return -ERANGE;
    }
    *ret = v;
    return 0;
}

int num_i64(struct str s, int64_t min, int64_t max, int64_t *ret)
{
    bool is_negative = s.n > 0 && s.p[0] == '-';
    uint64_t v = 0;
    uint64_t limit = is_negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    int r = num_u64(is_negative ? str_skip(s, 1) : s, limit, &v);
    if (r < 0) {
        return r;
    }
    int64_t sv = is_negative ? (int64_t)(0 - v) : (int64_t)v;
    if (sv < min || sv > max) {
        return -ERANGE;
    }
    *ret = sv;
    return 0;
}

int num_hex_u64(struct str s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    if (s.n == 0) {
        return -EINVAL;
    }
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        uint64_t d = c >= '0' && c <= '9'   ? (uint64_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint64_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint64_t)(c - 'A' + 10)
                                            : 16;
        if (d == 16) {
            return -EINVAL;
        }
        if (v >> 60) {
            return -ERANGE;
        }
        v = v << 4 | d;
    }
    if (v > max) {
        return -ERANGE;
    }
    *ret = v;
    return 0;
}
