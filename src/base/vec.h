/* vec.h — a typed growable array.
 * Not here: arrays whose size a client decides (use arena_array() or a limit before
 *           vec_push()).
 * Threads:  belongs to one thread at a time.
 * Memory:   VEC(type) x = {0}; vec_free(&x). Elements are plain values.
 * Errors:   aborts when memory is out: only for sizes the program bounds. */
#pragma once
#include <stdlib.h>
#include <string.h>

#define VEC(type)      \
    struct {           \
        type *v;       \
        size_t n, cap; \
    }

static inline void vec_grow_(void **v, size_t n, size_t *cap, size_t el_size)
{
    if (n < *cap) {
        return;
    }
    size_t want = *cap ? *cap * 2 : 8;
    void *p = reallocarray(*v, want, el_size);
    if (!p) {
        abort();
    }
    *v = p;
    *cap = want;
}

#define vec_push(vec, ...)                                            \
    do {                                                              \
        void *vec_p_ = (vec)->v;                                      \
        vec_grow_(&vec_p_, (vec)->n, &(vec)->cap, sizeof(*(vec)->v)); \
        (vec)->v = vec_p_;                                            \
        (vec)->v[(vec)->n++] = (__VA_ARGS__);                         \
    } while (0)

#define vec_remove(vec, idx)                                  \
    do {                                                      \
        size_t vec_i_ = (idx);                                \
        memmove(&(vec)->v[vec_i_], &(vec)->v[vec_i_ + 1],     \
                ((vec)->n - vec_i_ - 1) * sizeof(*(vec)->v)); \
        (vec)->n--;                                           \
    } while (0)

#define vec_free(vec)              \
    do {                           \
        free((vec)->v);            \
        (vec)->v = NULL;           \
        (vec)->n = (vec)->cap = 0; \
    } while (0)
