/* shape.h — the C types that generated input and output structures are made of.
 * Not here: the structures (generated: aws/api/<service>.h), the tables' layout (aws/table.h).
 * Threads:  plain values.
 * Memory:   everything a structure points to lives in the arena of the call.
 * Errors:   none. "Absent is not empty": a str is absent when p == NULL, a number when !is_set,
 *           a structure when NULL, a list when !is_set; a list that is set with n == 0 is
 *           written as an empty element. */
#pragma once
#include "base/arena.h"
#include "base/str.h"
#include <stdint.h>

struct opt_bool {
    bool v, is_set;
};
struct opt_i64 { /* integer and long */
    int64_t v;
    bool is_set;
};
struct opt_f64 { /* float and double */
    double v;
    bool is_set;
};
struct opt_time { /* nanoseconds since 1970 */
    uint64_t ns;
    bool is_set;
};

/* Generated code declares one list type per element type: struct { T *v; size_t n; bool is_set;
 * }. Lists of strings, everywhere: */
struct aws_str_list {
    struct str *v;
    size_t n;
    bool is_set;
};

static inline struct opt_bool some_bool(bool v)
{
    return (struct opt_bool){v, true};
}
static inline struct opt_i64 some_i64(int64_t v)
{
    return (struct opt_i64){v, true};
}
static inline struct opt_f64 some_f64(double v)
{
    return (struct opt_f64){v, true};
}
static inline struct opt_time some_time(uint64_t ns)
{
    return (struct opt_time){ns, true};
}

/* AWS_LIST_MAKE(arena, &out->reservations, n): n zeroed elements, is_set. Aborts past the
 * arena's limit. */
#define AWS_LIST_MAKE(arena, list, count)                                                    \
    do {                                                                                     \
        (list)->n = (count);                                                                 \
        (list)->is_set = true;                                                               \
        (list)->v = arena_xalloc((arena), ((list)->n ? (list)->n : 1) * sizeof(*(list)->v)); \
    } while (0)
