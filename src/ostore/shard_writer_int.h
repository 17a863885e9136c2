/* shard_writer_int.h — a writer of shards in two halves: stripes (shard_writer.c), and how they
 *                      reach the drives (shard_put.c). Inside the room only.
 * Not here: the door (shard.h).
 * Threads:  the owner's thread and those of the drives. Under waiter->lock: what is said so.
 * Memory:   counted: by its owner and by each file that has jobs, as a drive may hang.
 * Errors:   negative errno. */
#pragma once
#include "ostore/shard_int.h"
#include <sys/uio.h>

#define WSTRIPES_MAX 3

struct wstripe;
/* One unit on its way to one file. Those of one file follow each other without a gap. */
struct wjob {
    struct wstripe *stripe;
    struct wjob *next; /* of the file, in order */
    struct iovec unit;
    uint64_t off; /* of the unit in the shard, without the header */
    bool is_last; /* table, footer and syncs follow */
};

struct wstripe {
    struct shard_buf *buf; /* k units of data, m of parity */
    unsigned n_pending;    /* jobs; under waiter->lock */
    bool is_held;          /* filled, not posted yet: the owner's thread */
    bool is_left;          /* its drives hang: the last job frees it; under waiter->lock */
    struct wjob jobs[RS_UNITS_MAX];
};

/* The file of one shard. Its jobs run one after the other, so that 'file', marks and syncs
 * need no lock; 'first' and the rest below it are under waiter->lock. */
struct wfile {
    struct shard_job job;
    struct shard_writer *w;
    struct shard_file *file;
    uint8_t head[SHARD_HEAD_USED], foot[SHARD_FOOT_SIZE];
    uint8_t *table; /* filled by the owner's thread; read by the last job */
    uint32_t n_units, cap;
    uint64_t flushed;   /* write-back was begun up to here */
    bool is_past_cache; /* O_DIRECT is on */
    bool is_cached;     /* it cannot be */
    struct wjob *first, *last;
    bool is_running, is_failed, is_left;
    int rc;
};

struct shard_writer {
    atomic_uint refs;
    struct shards *s;
    struct shard_writer *next, **prev_next; /* under s->lock */
    struct drives *drives;
    struct fault_fs *fs;
    struct shard_waiter *waiter;
    struct body_codec *codec;
    struct rs *rs; /* NULL: no parity */
    struct orec_body body;
    uint32_t mask;                      /* the shards that are written */
    uint32_t stripe_max, fill, partial; /* stored bytes; plain bytes of the block at hand */
    uint64_t done, block;
    bool is_direct; /* one shard: written by the caller's thread */
    bool is_repair; /* files get their names at the end */
    bool is_begun;  /* something was posted */
    bool is_finished;
    uint32_t reported; /* shards whose drives were faulted */
    int rc;
    struct wstripe *cur, *stripes[WSTRIPES_MAX], *held[WSTRIPES_MAX];
    unsigned n_held;
    struct wfile files[RS_UNITS_MAX];
};

void shard_writer_unref(struct shard_writer *w);

/* An empty stripe; waits for one when all are on their way. */
MUST_CHECK int shard_writer_stripe(struct shard_writer *w, struct wstripe **ret,
                                   struct err *err);
/* The held stripes to the drives. Says what has failed so far, when that is too much. */
MUST_CHECK int shard_writer_post(struct shard_writer *w, struct err *err);
/* Until everything is there, or given up. */
MUST_CHECK int shard_writer_wait(struct shard_writer *w, struct err *err);
/* No more writes; without a finish the files are removed. */
void shard_writer_stop(struct shard_writer *w);
