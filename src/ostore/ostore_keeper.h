/* ostore_keeper.h — what an operator asks of the store (ostore.h): figures, scrub, drives,
 *                space, losses.
 * Not here: objects.
 * Threads:  as in ostore.h.
 * Memory:   results live in the arena given.
 * Errors:   as in ostore.h. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct ostore;
struct drives;

struct ostore_stats {
    uint64_t n_buckets, n_objects, n_versions, n_uploads, n_bytes;
    uint64_t n_put, n_get, n_delete, n_list;
    uint64_t n_syncs, n_commits; /* commits / syncs: how many share one */
    uint64_t log_bytes, log_dead_bytes, n_segments;
    uint64_t file_bytes;
    uint64_t next_lsn;
    bool is_readonly, is_locked;
    char why[160]; /* read-only because */
};
void ostore_stats(struct ostore *s, struct ostore_stats *ret);
struct drives *ostore_drives(struct ostore *s);

/* Scrub: every block of every copy. One at a time; also runs by itself, throttled. */
struct ostore_scrub {
    bool is_running;
    uint64_t started_ns, ended_ns;
    uint64_t n_objects, n_bytes, n_bad, n_repaired, n_lost, n_orphans;
    char last_lost[200]; /* "bucket/key" of the last one that could not be repaired */
};
MUST_CHECK int ostore_scrub_start(struct ostore *s, bool is_repair, struct err *err);
void ostore_scrub_status(struct ostore *s, struct ostore_scrub *ret);
/* Puts the (empty) folder into the place of a lost drive and heals in the background. */
MUST_CHECK int ostore_drive_replace(struct ostore *s, unsigned idx, struct err *err);
/* One turn of compaction, now; for tests and for operators. *ret_freed: bytes given back.
 * Blocks. */
MUST_CHECK int ostore_compact(struct ostore *s, uint64_t *ret_freed, struct err *err);
/* What is lost for good of the log, found by reading all of it: before somebody accepts that. */
struct ostore_loss {
    struct str *what; /* "lsn 17 and 2 more of segment 3 are lost" */
    size_t n_what;
    /* Objects, versions and parts whose records are lost; known only when the index is of before
     * that. Names: the first OSTORE_LOSS_NAMES of them. */
    uint64_t n_objects;
    struct str *names; /* "bucket/key" */
    size_t n_names;
};
#define OSTORE_LOSS_NAMES 1000u
/* Blocks, for as long as it takes to read the log. */
MUST_CHECK int ostore_loss(struct ostore *s, struct arena *a, struct ostore_loss *ret,
                           struct err *err);
/* Asks the root key again (a service that started locked). */
MUST_CHECK int ostore_unlock(struct ostore *s, struct err *err);
