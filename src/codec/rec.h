/* rec.h — records of the store: a C struct, a table of its fields, and JSON between them.
 * Not here: the records themselves (model/).
 * Threads:  no state.
 * Memory:   loaded strings and lists live in the arena given. Saving keeps members of the old
 *           JSON ('raw') that the table does not name: an older binary loses nothing of a
 *           newer.
 * Errors:   -EINVAL "BadRecord" names the member; -ENOMEM "RecordTooLarge". Missing members are
 *           zero; a struct begins with struct rec_head. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

struct rec_head {
    struct str raw; /* the JSON this was loaded from, or STR_NONE */
};

struct str_list {
    struct str *v;
    size_t n;
};

enum rec_type {
    REC_STR,      /* struct str; absent <-> p == NULL */
    REC_U64,      /* uint64_t; 0 is written too */
    REC_I64,      /* int64_t */
    REC_BOOL,     /* bool */
    REC_STR_LIST, /* struct str_list */
    REC_OBJ,      /* a struct in line, described by 'sub' (begins with struct rec_head) */
    REC_OBJ_LIST, /* struct { T *v; size_t n; }, described by 'sub' */
};

struct rec_desc;
struct rec_field {
    const char *name;
    enum rec_type type;
    size_t off;
    const struct rec_desc *sub;
};
struct rec_desc {
    const char *name; /* "instance": for messages */
    uint32_t version; /* written as "v"; a record with a larger v is still read (unknown members
                         are kept) */
    size_t size;
    const struct rec_field *fields;
    size_t n_fields;
};

#define REC_FIELD(strct, rtype, member)                                  \
    {                                                                    \
        .name = #member, .type = (rtype), .off = offsetof(strct, member) \
    }
#define REC_FIELD_SUB(strct, rtype, member, sub_desc)                                       \
    {                                                                                       \
        .name = #member, .type = (rtype), .off = offsetof(strct, member), .sub = (sub_desc) \
    }
#define REC_DESC(var, strct, nm, ver, flds)             \
    const struct rec_desc var = {.name = (nm),          \
                                 .version = (ver),      \
                                 .size = sizeof(strct), \
                                 .fields = (flds),      \
                                 .n_fields = ARRAY_LEN(flds)}

/* Fills *out (desc->size bytes, zeroed first). 'json' is copied into the arena. */
MUST_CHECK int rec_load(const struct rec_desc *d, struct arena *a, struct str json, void *out,
                        struct err *err);
/* Appends compact JSON, members in table order, then the unknown ones. */
MUST_CHECK int rec_save(const struct rec_desc *d, const void *in, struct buf *out,
                        struct err *err);
