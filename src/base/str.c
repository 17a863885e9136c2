#include "base/str.h"

#include <stdint.h>

static char lower(char c)
{
    return (c >= 'A' && c <= 'Z') ? (char)(c + 32) : c;
}

bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_eqc(struct str a, const char *c)
{
    return str_eq(a, str_c(c));
}

bool str_ieq(struct str a, struct str b)
{
    if (a.n != b.n) {
        return false;
    }
    for (size_t i = 0; i < a.n; i++) {
        if (lower(a.p[i]) != lower(b.p[i])) {
            return false;
        }
    }
    return true;
}

bool str_ieqc(struct str a, const char *c)
{
    return str_ieq(a, str_c(c));
}

int str_cmp(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int r = n ? memcmp(a.p, b.p, n) : 0;
    if (r != 0) {
        return r < 0 ? -1 : 1;
    }
    return a.n == b.n ? 0 : (a.n < b.n ? -1 : 1);
}

bool str_has_prefix(struct str s, struct str prefix)
{
    return s.n >= prefix.n && str_eq(str_n(s.p, prefix.n), prefix);
}

bool str_has_suffix(struct str s, struct str suffix)
{
    return s.n >= suffix.n && str_eq(str_n(s.p + (s.n - suffix.n), suffix.n), suffix);
}

bool str_has_prefixc(struct str s, const char *prefix)
{
    return str_has_prefix(s, str_c(prefix));
}

ptrdiff_t str_find(struct str s, char c, size_t from)
{
    if (from >= s.n) {
        return -1;
    }
    const char *hit = memchr(s.p + from, c, s.n - from);
    return hit ? hit - s.p : -1;
}

ptrdiff_t str_find_str(struct str s, struct str needle)
{
    if (needle.n == 0) {
        return 0;
    }
    const char *hit = s.n ? memmem(s.p, s.n, needle.p, needle.n) : NULL;
    return hit ? hit - s.p : -1;
}

struct str str_cut(struct str s, char c)
{
    ptrdiff_t i = str_find(s, c, 0);
    return i < 0 ? s : str_n(s.p, (size_t)i);
}

bool str_next(struct str *rest, char sep, struct str *ret_field)
{
    if (!rest->p) {
        return false;
    }
    ptrdiff_t i = str_find(*rest, sep, 0);
    if (i < 0) {
        *ret_field = *rest;
        *rest = STR_NONE;
        return true;
    }
    *ret_field = str_n(rest->p, (size_t)i);
    *rest = str_skip(*rest, (size_t)i + 1);
    return true;
}

struct str str_skip(struct str s, size_t n)
{
    if (n > s.n) {
        n = s.n;
    }
    return n == 0 ? s : str_n(s.p + n, s.n - n);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct str str_trim(struct str s)
{
    while (s.n > 0 && is_space(s.p[0])) {
        s = str_skip(s, 1);
    }
    while (s.n > 0 && is_space(s.p[s.n - 1])) {
        s.n--;
    }
    return s;
}

/* Never exponential: only the last '*' has to be retried. */
bool str_glob(struct str pat, struct str s, unsigned flags)
{
    bool has_quotes = flags & STR_GLOB_QUOTES, ignores_case = flags & STR_GLOB_IGNORES_CASE;
    size_t p = 0, i = 0, star = SIZE_MAX, mark = 0;
    while (i < s.n) {
        if (p < pat.n && pat.p[p] == '*') {
            star = p++;
            mark = i;
            continue;
        }
        bool is_quoted = has_quotes && p + 1 < pat.n && pat.p[p] == '\\';
        char want = p < pat.n ? pat.p[is_quoted ? p + 1 : p] : '\0';
        bool is_any = !is_quoted && want == '?';
        bool is_same = want == s.p[i] || (ignores_case && lower(want) == lower(s.p[i]));
        if (p < pat.n && (is_any || is_same)) {
            p += is_quoted ? 2 : 1;
            i++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            i = ++mark;
        } else {
            return false;
        }
    }
    while (p < pat.n && pat.p[p] == '*') {
        p++;
    }
    return p == pat.n;
}

size_t str_utf8_len(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; n++) {
        unsigned char c = (unsigned char)s.p[i];
        size_t len = c < 0x80                  ? 1
                     : (c >= 0xc2 && c < 0xe0) ? 2
                     : (c >= 0xe0 && c < 0xf0) ? 3
                     : (c >= 0xf0 && c < 0xf5) ? 4
                                               : 0;
        if (len == 0 || i + len > s.n) {
            return SIZE_MAX;
        }
        for (size_t k = 1; k < len; k++) {
            if (((unsigned char)s.p[i + k] & 0xc0) != 0x80) {
                return SIZE_MAX;
            }
        }
        unsigned char c1 = len > 1 ? (unsigned char)s.p[i + 1] : 0;
        if ((c == 0xe0 && c1 < 0xa0) || (c == 0xed && c1 >= 0xa0) || (c == 0xf0 && c1 < 0x90) ||
            (c == 0xf4 && c1 >= 0x90)) {
            return SIZE_MAX; /* overlong, surrogate, beyond U+10FFFF */
        }
        i += len;
    }
    return n;
}

bool str_eq_consttime(struct str a, struct str b)
{
    if (a.n != b.n) {
        return false;
    }
    volatile unsigned char diff = 0;
    for (size_t i = 0; i < a.n; i++) {
        diff = (unsigned char)(diff | (a.p[i] ^ b.p[i]));
    }
    return diff == 0;
}
