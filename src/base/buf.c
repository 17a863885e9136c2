#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>

void buf_init(struct buf *b, size_t max_size)
{
    *b = (struct buf){.max = max_size};
}

void buf_done(struct buf *b)
{
    free(b->p);
    *b = (struct buf){.max = b->max};
}

char *buf_reserve(struct buf *b, size_t n)
{
    if (b->is_failed || n > b->max || b->n > b->max - n) {
        b->is_failed = true;
        return NULL;
    }
    size_t need = b->n + n + 1; /* one more for the NUL of buf_cstr() */
    if (need > b->cap) {
        size_t cap = MAX(need, b->cap < 64 ? (size_t)128 : b->cap * 2);
        char *p = realloc(b->p, cap);
        if (!p) {
            b->is_failed = true;
            return NULL;
        }
        b->p = p;
        b->cap = cap;
    }
    return b->p + b->n;
}

void buf_commit(struct buf *b, size_t n)
{
    b->n += n;
}

void buf_add(struct buf *b, struct str s)
{
    char *p = buf_reserve(b, s.n);
    if (p && s.n) {
        memcpy(p, s.p, s.n);
        b->n += s.n;
    }
}

void buf_addc(struct buf *b, const char *c)
{
    buf_add(b, str_c(c));
}

void buf_add_char(struct buf *b, char c)
{
    buf_add(b, str_n(&c, 1));
}

void buf_fmt(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n >= 0 ? buf_reserve(b, (size_t)n) : NULL;
    if (!p) {
        b->is_failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

void buf_drop(struct buf *b, size_t n)
{
    n = MIN(n, b->n);
    if (n > 0) {
        memmove(b->p, b->p + n, b->n - n);
        b->n -= n;
    }
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    b->is_failed = false;
}

const char *buf_cstr(struct buf *b)
{
    if (b->is_failed || !b->p) {
        return "";
    }
    b->p[b->n] = '\0';
    return b->p;
}

char *buf_take(struct buf *b)
{
    if (b->is_failed || !buf_reserve(b, 0)) {
        return NULL;
    }
    b->p[b->n] = '\0';
    char *p = b->p;
    b->p = NULL;
    b->n = b->cap = 0;
    return p;
}
