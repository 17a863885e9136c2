/* data.h — records of the store as arrays, for commands that show them.
 * Not here: the records (model/).
 * Threads:  one.
 * Memory:   in the command's arena.
 * Errors:   of kv.h; a record that does not parse is an error that names its key. */
#pragma once
#include "codec/rec.h"
#include "spx/cmd.h"

struct recs {
    char *v; /* n records of desc->size bytes */
    struct str *keys;
    size_t n, cap;
    size_t size;
};
#define recs_at(r, type, i) ((const type *)(const void *)((r)->v + (i) * (r)->size))

/* Every item below the prefix, in order of keys; pages behind the scenes. */
typedef int (*data_each_fn)(void *ctx, const struct kv_item *item, struct err *err);
MUST_CHECK int data_each(struct kv *kv, struct str prefix, data_each_fn fn, void *ctx,
                         struct err *err);
/* Loads all records below the prefix. */
MUST_CHECK int data_load(struct spx *s, const char *prefix, const struct rec_desc *d,
                         struct recs *ret, struct err *err);
/* The record whose key ends in '/' and 'tail', or NULL. */
const void *data_find(const struct recs *r, struct str tail);
