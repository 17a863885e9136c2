/* ostore.h — the object store: buckets, versions, uploads; what S3 is built on.
 * Not here: HTTP, XML, signatures, checksums that clients ask for (predastore/). The parts, all
 *           included here: ostore_bucket.h, ostore_object.h, ostore_change.h, ostore_list.h,
 *           ostore_keeper.h.
 * Threads:  any thread may call anything. Calls that say "blocks" belong on a pool. Call-backs
 *           ('done', on_ready) run on threads of the store and must be short: post to your loop.
 * Memory:   results live in the arena given; handles are freed by the function named with them.
 * Errors:   err->name is S3's code where S3 has one: "NoSuchBucket", "NoSuchKey", "NoSuchVersion",
 *           "NoSuchUpload", "PreconditionFailed", "BucketNotEmpty", "BucketAlreadyExists",
 *           "BucketAlreadyOwnedByYou", "InvalidPart", "InvalidPartOrder", "EntityTooSmall",
 *           "ConditionalRequestConflict", "SlowDown" (-EAGAIN: nearly full, too busy),
 *           "InsufficientStorage" (-ENOSPC), "Locked" (-EACCES), "ReadOnly" (-EROFS: damage).
 *
 * Every version is immutable. A change is one record in the log (a group of two for a rename);
 * it is acknowledged when that is durable on all drives of the log and the index shows it.
 * Changes of one key happen one after the other: conditions are checked against what is durable. */
#pragma once
#include "base/time.h"
#include "ostore/drive.h"
#include "ostore/ostore_change.h"
#include "ostore/ostore_keeper.h"
#include "ostore/ostore_list.h"

struct ostore;
struct keys;

struct ostore_opts {
    struct fault_fs *fs; /* NULL: the system's */
    const char *const *drives;
    unsigned n_drives;
    unsigned k, m;          /* of large bodies; the log has m + 1 copies */
    uint32_t unit;          /* 0 = 128 KiB */
    const char *index_path; /* NULL: <first drive that is there>/index */
    struct keys *keys;      /* for sealing; NULL: only unsealed bodies can be read */
    bool is_sealing;        /* new bodies are sealed */
    uint32_t inline_max;    /* 0 = 128 KiB: larger bodies become files */
    uint32_t segment_size;  /* 0 = 64 MiB */
    uint64_t min_part_size; /* of all parts of an upload but the last; 0 = 5 MiB, 1 = any */
    unsigned near_full_pct, full_pct;
    unsigned n_io_threads;         /* of large writes; 0 = 4 */
    uint64_t (*now_ns)(void *ctx); /* wall clock; NULL: time_wall_ns() */
    void *now_ctx;
    uint64_t
        move_after_ns;     /* a drive is away for so long: its shards go elsewhere; 0 = a day */
    uint64_t heal_look_ns; /* how often healing looks for work, at most 5 s; 0 = that */
    bool makes_folders;    /* folders of bodies are made ahead, in the background */
    bool is_sync_off;      /* measurements only */
    bool is_index_discarded; /* delete the index and replay everything */
    /* Somebody, by name, accepts that what is damaged in the log is lost (ostore_loss()). The
     * index is made anew. NULL: nobody does, and with damage the store is read-only. */
    const char *accept_loss;
};
MUST_CHECK int ostore_open(const struct ostore_opts *o, struct ostore **ret, struct err *err);
/* The end is near: changes that wait for an index that cannot be written (its drive is full) fail
 * now; the next start finds them in the log. Any thread, before ostore_close(). */
void ostore_hurry(struct ostore *s); /* NULL is fine */
/* Waits for what runs; the index is flushed, so that the next start is quick. */
void ostore_close(struct ostore *s); /* NULL is fine */
