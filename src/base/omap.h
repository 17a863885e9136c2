/* omap.h — an ordered map from byte strings to pointers: point look-ups, ordered walks, prefix
 * ranges.
 * Not here: the values' life: the map owns the keys and borrows the values.
 * Threads:  belongs to one thread at a time, or readers under the owner's lock.
 * Memory:   omap_new() / omap_free(); removing a key does not touch the value.
 * Errors:   aborts when memory is out: the owner bounds the number of keys. */
#pragma once
#include "base/macro.h"
#include "base/str.h"

struct omap;
struct omap_node;

struct omap *omap_new(void);
/* 'free_value' (may be NULL) is called for every value that is left. */
void omap_free(struct omap *m, void (*free_value)(void *));
size_t omap_len(const struct omap *m);

void *omap_get(const struct omap *m, struct str key); /* NULL when absent */
/* Sets the value (not NULL); returns the value that was there before, or NULL. */
void *omap_put(struct omap *m, struct str key, void *value);
/* Removes the key; returns its value, or NULL. */
void *omap_remove(struct omap *m, struct str key);

/* Ordered walk: the first node whose key is >= 'key'; NULL at the end. Nodes stay valid until
 * removed. */
struct omap_node *omap_seek(const struct omap *m, struct str key);
struct omap_node *omap_next(const struct omap_node *n);
struct str omap_key(const struct omap_node *n);
void *omap_value(const struct omap_node *n);

/* omap_foreach_prefix(n, m, prefix) { ... } walks all keys that begin with 'prefix'; do not
 * remove in it. */
#define omap_foreach_prefix(n, m, prefix)                \
    for (struct omap_node *n = omap_seek((m), (prefix)); \
         n && str_has_prefix(omap_key(n), (prefix)); n = omap_next(n))
