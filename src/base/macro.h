/* macro.h — attributes and scope-bound cleanup used by every room.
 * Not here: anything with behaviour.
 * Threads:  no state.
 * Memory:   AUTO(fn) runs fn(&var) when the variable leaves its scope; steal(&p) hands
 *           ownership over.
 * Errors:   none. */
#pragma once
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST_CHECK                    __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a)             __attribute__((format(printf, f, a)))
#define UNUSED                        __attribute__((unused))
#define ARRAY_LEN(a)                  (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))
#define MIN(a, b)                     ((a) < (b) ? (a) : (b))
#define MAX(a, b)                     ((a) > (b) ? (a) : (b))

/* AUTO(fn): 'fn' takes a pointer to the variable. */
#define AUTO(fn)                      __attribute__((cleanup(fn)))

/* DEFINE_CLEANUP(struct x *, x_free) defines x_freep() for use with AUTO(x_freep). */
#define DEFINE_CLEANUP(type, fn)      \
    static inline void fn##p(type *p) \
    {                                 \
        if (*p) {                     \
            fn(*p);                   \
        }                             \
    }                                 \
    struct fn##_cleanup_wants_a_semicolon

static inline void auto_freep(void *p)
{
    free(*(void **)p);
}
static inline void auto_closep(const int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
}
#define AUTO_FREE AUTO(auto_freep)
#define AUTO_FD   AUTO(auto_closep) int

/* Hands over ownership of a pointer or a descriptor: the variable is left empty. */
#define steal(p)                            \
    ({                                      \
        __typeof__(*(p)) steal_tmp_ = *(p); \
        *(p) = NULL;                        \
        steal_tmp_;                         \
    })
static inline int steal_fd(int *fd)
{
    int r = *fd;
    *fd = -1;
    return r;
}
