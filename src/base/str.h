/* str.h — slices of bytes that somebody else owns.
 * Not here: growing buffers (buf.h), allocation (arena.h), numbers (num.h).
 * Threads:  plain values.
 * Memory:   a struct str borrows; p == NULL means "absent", n == 0 with p != NULL means
 *           "empty". Slices need not end in NUL; arena_str_dup() and STR() give slices that do.
 * Errors:   none. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

/* A slice of a string literal. */
#define STR(lit)   ((struct str){"" lit, sizeof(lit) - 1})
#define STR_NONE   ((struct str){NULL, 0})

/* printf helper: "%.*s" with STR_ARG(s). */
#define STR_ARG(s) (int)(s).n, (s).p ? (s).p : ""

static inline struct str str_n(const char *p, size_t n)
{
    return (struct str){p, n};
}
static inline struct str str_c(const char *c)
{
    return (struct str){c, c ? strlen(c) : 0};
}
static inline bool str_is_set(struct str s)
{
    return s.p != NULL;
}
static inline bool str_is_empty(struct str s)
{
    return s.n == 0;
}

bool str_eq(struct str a, struct str b);
bool str_eqc(struct str a, const char *c);
bool str_ieq(struct str a, struct str b); /* ASCII case ignored */
bool str_ieqc(struct str a, const char *c);
int str_cmp(struct str a, struct str b); /* byte order; a prefix sorts first */
bool str_has_prefix(struct str s, struct str prefix);
bool str_has_suffix(struct str s, struct str suffix);
bool str_has_prefixc(struct str s, const char *prefix);

/* Index of the first 'c' at or after 'from', or -1. */
ptrdiff_t str_find(struct str s, char c, size_t from);
/* Index of the first occurrence of 'needle', or -1. */
ptrdiff_t str_find_str(struct str s, struct str needle);

/* The part before the first 'c' (all of it when there is none). */
struct str str_cut(struct str s, char c);
/* Takes the next field up to 'sep' off the front of *rest; false when *rest is used up.
 * "a,,b" gives "a", "", "b"; "" gives one empty field. Start with rest->p != NULL. */
bool str_next(struct str *rest, char sep, struct str *ret_field);
struct str str_skip(struct str s, size_t n); /* drops n bytes (at most all) from the front */
struct str str_trim(struct str s);           /* drops spaces, tabs, CR and LF at both ends */

/* True when s matches the pattern: '*' any run, '?' one byte. */
enum {
    STR_GLOB_QUOTES = 1,       /* '\\' quotes the next byte */
    STR_GLOB_IGNORES_CASE = 2, /* of ASCII letters */
};
bool str_glob(struct str pattern, struct str s, unsigned flags);

/* Number of Unicode code points; SIZE_MAX when s is not UTF-8. */
size_t str_utf8_len(struct str s);

/* Comparison whose time depends only on the lengths. */
bool str_eq_consttime(struct str a, struct str b);
