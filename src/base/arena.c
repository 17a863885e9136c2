#include "base/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#define CHUNK_MIN 4096u

struct chunk {
    struct chunk *next;
    size_t size, used;
    alignas(max_align_t) char data[];
};

struct deferred {
    struct deferred *next;
    void (*fn)(void *);
    void *p;
};

struct arena {
    struct chunk *head;
    struct deferred *deferred;
    size_t used, max;
};

struct arena *arena_new(size_t max_size)
{
    struct arena *a = calloc(1, sizeof(*a));
    if (!a) {
        abort();
    }
    a->max = max_size;
    return a;
}

static void run_deferred(struct arena *a)
{
    while (a->deferred) {
        struct deferred *d = a->deferred;
        a->deferred = d->next;
        d->fn(d->p);
    }
}

void arena_free(struct arena *a)
{
    if (!a) {
        return;
    }
    run_deferred(a);
    while (a->head) {
        struct chunk *c = a->head;
        a->head = c->next;
        free(c);
    }
    free(a);
}

void arena_reset(struct arena *a)
{
    run_deferred(a);
    while (a->head && a->head->next) {
        struct chunk *c = a->head;
        a->head = c->next;
        free(c);
    }
    if (a->head) {
        a->head->used = 0;
    }
    a->used = 0;
}

void *arena_alloc(struct arena *a, size_t size)
{
    size_t al = alignof(max_align_t);
    if (size > a->max) {
        return NULL;
    }
    size_t need = (size + al - 1) & ~(al - 1);
    if (need == 0) {
        need = al;
    }
    if (need > a->max - a->used) {
        return NULL;
    }
    if (!a->head || a->head->size - a->head->used < need) {
        size_t data = MAX((size_t)CHUNK_MIN, need);
        if (a->head && a->head->size < (256u << 10) && data < a->head->size * 2) {
            data = a->head->size * 2;
        }
        struct chunk *c = malloc(sizeof(*c) + data);
        if (!c) {
            return NULL;
        }
        c->next = a->head;
        c->size = data;
        c->used = 0;
        a->head = c;
    }
    void *p = a->head->data + a->head->used;
    a->head->used += need;
    a->used += need;
    memset(p, 0, need);
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t el_size)
{
    size_t size = 0;
    if (__builtin_mul_overflow(n, el_size, &size)) {
        return NULL;
    }
    return arena_alloc(a, size);
}

void *arena_xalloc(struct arena *a, size_t size)
{
    void *p = arena_alloc(a, size);
    if (!p) {
        abort();
    }
    return p;
}

struct str arena_str_dup(struct arena *a, struct str s)
{
    if (!s.p) {
        return STR_NONE;
    }
    char *p = s.n < SIZE_MAX ? arena_alloc(a, s.n + 1) : NULL;
    if (!p) {
        return STR_NONE;
    }
    if (s.n) {
        memcpy(p, s.p, s.n);
    }
    return str_n(p, s.n);
}

const char *arena_cstr(struct arena *a, struct str s)
{
    char *p = arena_xalloc(a, s.n + 1);
    if (s.n) {
        memcpy(p, s.p, s.n);
    }
    return p;
}

struct str arena_fmt(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    char *p = arena_alloc(a, (size_t)n + 1);
    if (!p) {
        return STR_NONE;
    }
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return str_n(p, (size_t)n);
}

int arena_defer(struct arena *a, void (*fn)(void *), void *p)
{
    struct deferred *d = arena_alloc(a, sizeof(*d));
    if (!d) {
        return -ENOMEM;
    }
    *d = (struct deferred){a->deferred, fn, p};
    a->deferred = d;
    return 0;
}

size_t arena_used(const struct arena *a)
{
    return a->used;
}
