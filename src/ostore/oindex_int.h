/* oindex_int.h — more of the index for this room: values in two pieces, and a replay of everything.
 * Not here: what is for all (oindex.h).
 * Threads:  as in oindex.h.
 * Memory:   nothing is kept.
 * Errors:   as in oindex.h. */
#pragma once
#include "ostore/oindex.h"
#include <stdint.h>

/* A value in two pieces, so that a head need not be copied. */
void oindex_put2(struct oindex_batch *b, struct str key, struct str first, struct str second);
/* Larger buffers and no compaction while millions of records come; back to usual after. */
MUST_CHECK int oindex_bulk(struct oindex *x, bool is_bulk, struct err *err);
/* Several walks at one moment. */
struct oindex_snap;
MUST_CHECK int oindex_snap_open(struct oindex *x, struct oindex_snap **ret);
void oindex_snap_close(struct oindex_snap *s); /* after its iterators */
MUST_CHECK int oindex_iter_open_at(struct oindex_snap *s, struct str end,
                                   struct oindex_iter **ret);

/* Very many puts and deletes, in the order in which they count: sorted in memory by a thread of its
 * own and taken in as whole tables. Nothing is seen before obulk_flush(). One thread puts. */
struct obulk;
struct obulk *obulk_new(struct oindex *x) __attribute__((returns_nonnull));
void obulk_free(struct obulk *b); /* what was not flushed is lost; NULL is fine */
void obulk_put(struct obulk *b, struct str key, struct str first, struct str second);
void obulk_del(struct obulk *b, struct str key);
bool obulk_is_empty(const struct obulk *b);
MUST_CHECK int obulk_flush(struct obulk *b, struct err *err); /* also says what failed before */
