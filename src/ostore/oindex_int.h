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
