/* buf.h — a growing byte buffer that cannot grow past the size it was made with.
 * Not here: slices (str.h), files.
 * Threads:  a struct buf belongs to one thread at a time.
 * Memory:   buf_init() + buf_done(); buf_take() hands the bytes to the caller (free()).
 * Errors:   an append that would pass 'max' (or fails to allocate) appends nothing and sets
 *           is_failed; check it once at the end with buf_ok(). */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdbool.h>

struct buf {
    char *p;
    size_t n, cap, max;
    bool is_failed;
};

void buf_init(struct buf *b, size_t max_size);
void buf_done(struct buf *b);
#define AUTO_BUF AUTO(buf_done) struct buf

void buf_add(struct buf *b, struct str s);
void buf_addc(struct buf *b, const char *c);
void buf_add_char(struct buf *b, char c);
void buf_fmt(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Room for n more bytes at p + n, or NULL; add what was written with buf_commit(). */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);
void buf_drop(struct buf *b, size_t n); /* removes n bytes from the front */
void buf_clear(struct buf *b);          /* keeps the memory, clears is_failed */

static inline bool buf_ok(const struct buf *b)
{
    return !b->is_failed;
}
static inline struct str buf_str(const struct buf *b)
{
    return (struct str){b->p ? b->p : "", b->n};
}
/* NUL-terminated view, borrowed until the next change; "" when appending failed. */
const char *buf_cstr(struct buf *b);
/* Gives the bytes (NUL-terminated) to the caller; NULL when appending failed. */
char *buf_take(struct buf *b);
