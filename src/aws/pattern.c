#include "aws/pattern.h"

#include "base/num.h"
#include <stdint.h>
#include <stdlib.h>

enum { MAX_RANGES = 48, MAX_ATOMS = 16, MAX_TEXT = 1 << 18, MAX_WORK = 1 << 22 };

struct atom { /* one class and how often it comes */
    struct {
        uint32_t lo, hi;
    } range[MAX_RANGES];
    size_t n_ranges;
    bool is_negated;
    uint64_t min, max;
};

struct pat { /* the rest of the pattern */
    const char *p;
    bool is_bad;
};

static uint32_t next_char(const char **p, const char *end)
{
    unsigned char c = (unsigned char)**p;
    size_t len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t v = len == 1 ? c : (uint32_t)(c & (0xff >> (len + 1)));
    for (size_t i = 1; i < len && *p + i < end; i++) {
        v = v << 6 | ((unsigned char)(*p)[i] & 0x3f);
    }
    *p += MIN(len, (size_t)(end - *p));
    return v;
}

static void add(struct pat *t, struct atom *a, uint32_t lo, uint32_t hi)
{
    if (a->n_ranges == MAX_RANGES) {
        t->is_bad = true;
        return;
    }
    a->range[a->n_ranges].lo = lo;
    a->range[a->n_ranges++].hi = hi;
}

/* One character, escaped or not. A class escape (\w) is added whole and gives false. */
static bool one(struct pat *t, struct atom *a, uint32_t *ret)
{
    const char *end = t->p + strlen(t->p);
    if (*t->p != '\\') {
        *ret = next_char(&t->p, end);
        return true;
    }
    char c = t->p[1];
    t->p += c ? 2 : 1;
    if (c == 'w') {
        add(t, a, 'a', 'z');
        add(t, a, 'A', 'Z');
        add(t, a, '_', '_');
    }
    if (c == 'w' || c == 'd') {
        add(t, a, '0', '9');
        return false;
    }
    uint64_t v = 0;
    if (c == 'u') {
        t->is_bad =
            t->is_bad || strlen(t->p) < 4 || num_hex_u64(str_n(t->p, 4), 0xffff, &v) < 0;
        t->p += t->is_bad ? 0 : 4;
        *ret = (uint32_t)v;
        return true;
    }
    t->is_bad = t->is_bad || c == '\0' || strchr("sSWDbBpP0123456789", c);
    *ret = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : (uint32_t)(unsigned char)c;
    return true;
}

static void read_class(struct pat *t, struct atom *a)
{
    a->is_negated = *t->p == '^';
    t->p += a->is_negated ? 1 : 0;
    while (*t->p && *t->p != ']' && !t->is_bad) {
        uint32_t lo, hi;
        if (*t->p == '[') { /* sets in sets */
            t->is_bad = true;
        } else if (one(t, a, &lo)) {
            hi = lo;
            if (*t->p == '-' && t->p[1] && t->p[1] != ']') {
                t->p++;
                t->is_bad = t->is_bad || !one(t, a, &hi);
            }
            add(t, a, lo, hi);
        }
    }
    t->is_bad = t->is_bad || *t->p != ']';
    t->p += t->is_bad ? 0 : 1;
}

static void read_count(struct pat *t, struct atom *a)
{
    a->min = a->max = 1;
    switch (*t->p) {
    case '*':
        a->min = 0;
        a->max = UINT64_MAX;
        t->p++;
        break;
    case '+':
        a->max = UINT64_MAX;
        t->p++;
        break;
    case '?':
        a->min = 0;
        t->p++;
        break;
    case '{': {
        struct str in = str_cut(str_c(t->p + 1), '}'), lo = str_cut(in, ','),
                   hi = str_skip(in, lo.n + 1);
        t->is_bad = t->is_bad || num_u64(lo, UINT32_MAX, &a->min) < 0;
        a->max = lo.n == in.n ? a->min : UINT64_MAX;
        t->is_bad = t->is_bad || (hi.n > 0 && num_u64(hi, UINT32_MAX, &a->max) < 0) ||
                    t->p[in.n + 1] != '}';
        t->p += t->is_bad ? 0 : in.n + 2;
        break;
    }
    default: break;
    }
    t->is_bad = t->is_bad || (*t->p && strchr("*+?{", *t->p)); /* lazy and possessive forms */
}

static bool in_class(const struct atom *a, uint32_t c)
{
    for (size_t i = 0; i < a->n_ranges; i++) {
        if (c >= a->range[i].lo && c <= a->range[i].hi) {
            return !a->is_negated;
        }
    }
    return a->is_negated;
}

/* Where a match of the atom may end, given where it may begin. Gives the work it took. */
static size_t advance(const struct atom *a, const uint32_t *text, size_t n, const uint8_t *from,
                      uint8_t *to)
{
    size_t work = 0;
    memset(to, 0, n + 1);
    for (size_t i = 0; i <= n && work < MAX_WORK; i++) {
        if (!from[i]) {
            continue;
        }
        for (size_t k = 0;; k++, work++) {
            if (k >= a->min) {
                to[i + k] = 1;
            }
            if (k == a->max || i + k == n || !in_class(a, text[i + k])) {
                break;
            }
        }
    }
    return work;
}

static bool read_atom(struct pat *t, struct atom *a)
{
    memset(a, 0, sizeof(*a));
    if (*t->p == '\0' || (*t->p == '$' && t->p[1] == '\0') || t->is_bad) {
        return false;
    }
    if (strchr("()|^$", *t->p)) {
        t->is_bad = true;
        return false;
    }
    uint32_t c;
    if (*t->p == '[') {
        t->p++;
        read_class(t, a);
    } else if (*t->p == '.') {
        t->p++;
        a->is_negated = true;
        add(t, a, '\n', '\n');
    } else if (one(t, a, &c)) {
        add(t, a, c, c);
    }
    read_count(t, a);
    return !t->is_bad;
}

enum pattern_verdict pattern_match(const char *pattern, struct str s)
{
    struct pat t = {.p = pattern + (*pattern == '^' ? 1 : 0)};
    if (s.n > MAX_TEXT) {
        return PATTERN_UNKNOWN;
    }
    AUTO_FREE uint32_t *text = calloc(s.n + 1, sizeof(*text));
    AUTO_FREE uint8_t *from = calloc(1, s.n + 1), *to = calloc(1, s.n + 1);
    if (!text || !from || !to) {
        return PATTERN_UNKNOWN;
    }
    size_t n = 0, n_atoms = 0, work = 0;
    for (const char *p = s.p; s.n && p < s.p + s.n;) {
        text[n++] = next_char(&p, s.p + s.n);
    }
    from[0] = 1;
    struct atom a;
    while (read_atom(&t, &a)) {
        work += advance(&a, text, n, from, to);
        if (++n_atoms > MAX_ATOMS || work >= MAX_WORK) {
            return PATTERN_UNKNOWN;
        }
        uint8_t *tmp = from;
        from = to;
        to = tmp;
    }
    if (t.is_bad) {
        return PATTERN_UNKNOWN;
    }
    return from[n] ? PATTERN_MATCHES : PATTERN_DIFFERS;
}
