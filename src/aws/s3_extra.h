/* s3_extra.h — what an S3 error says beside code and message: <Region>, <StringToSign>,
 * <ActualObjectSize>, <Condition> ...
 * Not here: the error body itself (rest.[ch]).
 * Threads:  plain values.
 * Memory:   names are static, values live in the arena of the request.
 * Errors:   none: what does not fit is left out; it only helps people. */
#pragma once
#include "base/arena.h"
#include "base/str.h"

#define S3_EXTRA_MAX 8

struct s3_extra {
    struct {
        const char *name; /* of the XML element */
        struct str value;
    } v[S3_EXTRA_MAX];
    size_t n;
};

/* 'x' may be NULL. The value is borrowed. */
static inline void s3_extra_add(struct s3_extra *x, const char *name, struct str value)
{
    if (x && x->n < S3_EXTRA_MAX && value.p) {
        x->v[x->n].name = name;
        x->v[x->n++].value = value;
    }
}
/* Copies the value into the arena. */
static inline void s3_extra_dup(struct s3_extra *x, struct arena *a, const char *name,
                                struct str value)
{
    if (x && x->n < S3_EXTRA_MAX) {
        s3_extra_add(x, name, arena_str_dup(a, value));
    }
}
