/* scrub.h — the bodies that lie in files, one after the other: for the scrub, healing, the sweep.
 * Not here: what a scrub says (ostore.h), rebuilding (shard.h, heal.h).
 * Threads:  any; a cursor belongs to one.
 * Memory:   strings live in the arena given.
 * Errors:   as in ostore.h. */
#pragma once
#include "ostore/heal.h"
#include "ostore/ostore_int.h"

struct file_place {
    bool is_set;
    struct orec_body body;
    enum orec_kind kind;
    uint64_t lsn, segment; /* of the record that names it */
    uint32_t off;
    uint8_t pin[OREC_ID_SIZE]; /* what keeps it: pins_hold() */
    struct str name;           /* "bucket/key" */
};

/* The next one behind the cursor, which moves. 1: there is one; 0: no more. The caller is in an
 * epoch (pins_enter()). */
MUST_CHECK int files_next(struct ostore *s, struct heal_cursor *io, struct arena *a,
                          struct file_place *ret, struct err *err);
/* f->body is where the body is now: commits that, if the record is still where it was (-ENOENT). */
MUST_CHECK int files_moved(struct ostore *s, const struct file_place *f, struct err *err);
/* Removes files that no record names there, and notes in s->has_weak what it has seen; *ret_n: how
 * many. */
MUST_CHECK int files_sweep(struct ostore *s, uint64_t min_age_ns, uint64_t *ret_n,
                           struct err *err);
/* This body's files are being written elsewhere, until another is named; NULL: none is. */
void files_at_work(struct ostore *s, const uint8_t id[OREC_ID_SIZE]);
/* A body was committed: a sweep under way must know of it. */
void files_note(struct ostore *s, const uint8_t id[OREC_ID_SIZE]);
