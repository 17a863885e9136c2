/* shard_int.h — shared inside the room by the files of shard.h: threads of drives, buffers,
 *               files.
 * Not here: the door (shard.h), the format (shard_form.h).
 * Threads:  lock order: struct shards, then a lane or a waiter; never two of a kind.
 * Memory:   what a thread of a drive may still use when its drive hangs is counted: jobs,
 *           files, waiters, lanes. Nothing of it points to a struct shards.
 * Errors:   negative errno. */
#pragma once
#include "base/time.h"
#include "erasure/layout.h"
#include "erasure/rs.h"
#include "ostore/shard.h"
#include "ostore/shard_form.h"
#include <pthread.h>
#include <stdatomic.h>

/* --- threads of a drive (shard_io.c) --- */

enum shard_class { SHARD_READS, SHARD_WRITES, SHARD_UNLINKS, SHARD_CLASS_N };

struct shard_lane;
struct shard_job {
    void (*run)(struct shard_job *j); /* on a thread of the drive; owns the job from then on */
    struct shard_job *next;           /* of the lane */
    struct shard_lane *lane;
    uint64_t posted_ns;
    atomic_uint_fast64_t started_ns; /* 0: waits in line */
};

struct shards {
    struct drives *drives;
    struct fault_fs *fs;
    uint64_t stall_ns, slow_ns;
    void (*on_bad)(void *ctx, const struct orec_body *body, uint32_t shards);
    void *ctx;
    struct shard_lane *lanes[DRIVES_MAX][SHARD_CLASS_N];
    atomic_uint_fast64_t slow_until_ns[DRIVES_MAX]; /* readers ask others first */
    pthread_mutex_t repair; /* one at a time: two would write the same files; before 'lock' */
    pthread_mutex_t lock;   /* guards what follows */
    struct shard_writer *writers; /* alive: sweep leaves their bodies alone */
    struct shard_buf *bufs;       /* kept for the next writer */
    unsigned n_bufs;
    atomic_uint_fast64_t n_hedged, n_recovered, n_lost, n_failed;
};

void shard_post(struct shards *s, unsigned drive, enum shard_class c, struct shard_job *j);
/* The drive does not answer: this job, or those before it, run longer than stall_ns. */
bool shard_job_is_stalled(const struct shards *s, const struct shard_job *j, uint64_t now_ns);

/* Signals from jobs to the one thread that waits for them. */
struct shard_waiter {
    atomic_uint refs;
    pthread_mutex_t lock;
    pthread_cond_t cond;
};
struct shard_waiter *shard_waiter_new(void) __attribute__((returns_nonnull));
struct shard_waiter *shard_waiter_ref(struct shard_waiter *w) __attribute__((returns_nonnull));
void shard_waiter_unref(struct shard_waiter *w); /* NULL is fine */
/* With the lock held. */
void shard_waiter_wait(struct shard_waiter *w, uint64_t until_ns);

/* Buffers for a stripe of data and parity: page-aligned, kept for reuse. */
struct shard_buf {
    struct shard_buf *next;
    size_t size;
    uint8_t *p;
};
struct shard_buf *shard_buf_get(struct shards *s, size_t size); /* NULL: no memory */
void shard_buf_put(struct shards *s, struct shard_buf *b);      /* s NULL: frees */

/* An open file, closed with its last reference. */
struct shard_file {
    atomic_uint refs;
    int fd;
};
struct shard_file *shard_file_new(int fd) __attribute__((returns_nonnull)); /* takes fd */
struct shard_file *shard_file_ref(struct shard_file *f);                    /* NULL is fine */
void shard_file_unref(struct shard_file *f);                                /* NULL is fine */

/* --- reading one range of one shard (shard_fetch.c) --- */

/* What a fetch is asked, and what it found. Whoever posted it looks when is_done (under the
 * waiter's lock) and then owns the results. */
struct shard_fetch {
    struct shard_job job;
    struct shard_waiter *waiter;
    bool is_done, is_abandoned; /* under the waiter's lock */
    struct drives *drives;      /* used while not abandoned by shards_close(): see the .c */
    struct fault_fs *fs;
    unsigned drive, shard;
    struct shard_head want;
    uint64_t stored_size;
    bool is_table_wanted, is_head_wanted; /* read and check footer and table; the header too */
    bool is_unit_checked; /* off is a unit's, n its size: compare with the table */
    uint64_t off;         /* in the units, without the header */
    size_t n;
    struct shard_file *file; /* NULL: opened first */
    uint32_t *table;         /* NULL: not read yet */
    /* results */
    int rc;           /* of opening and reading; -EBADMSG: not what was written */
    bool is_verified; /* the unit is what its table says */
    int meta_rc;      /* header, footer, table */
    uint64_t took_ns;
    uint8_t *p; /* n bytes; NULL before it runs */
};
/* Borrows nothing but what is counted; a file is referenced, a table copied. */
struct shard_fetch *shard_fetch_new(struct shards *s, struct shard_waiter *w,
                                    const struct orec_body *body, unsigned shard,
                                    struct shard_file *file, uint64_t off, size_t n);
void shard_fetch_post(struct shards *s, struct shard_fetch *f);
/* Done: frees it. Not done: its thread frees it. */
void shard_fetch_drop(struct shard_fetch *f); /* NULL is fine */

/* --- stripes, without any key (shard_reader.c, shard_recover.c) --- */

/* Whole stripe 'idx' as stored (layout's 'size' bytes, zeros behind them up to k * unit_size),
 * made of what is good. *ret_p is borrowed until the next call. -EIO "BodyLost". */
MUST_CHECK int shard_stripe(struct shard_reader *r, uint64_t idx, const uint8_t **ret_p,
                            struct err *err);

/* --- writing stored bytes, for repair (shard_writer.c) --- */

/* Files of the shards in 'mask' only, under names of their own until finish renames them. */
MUST_CHECK int shard_writer_repair(struct shards *s, const struct orec_body *body,
                                   uint32_t mask, struct shard_writer **ret, struct err *err);
MUST_CHECK int shard_writer_stored(struct shard_writer *w, const void *p, size_t n,
                                   struct err *err);
bool shard_is_being_written(struct shards *s, const uint8_t id[OREC_ID_SIZE]);

/* Removes files of a body, those of the shards in 'mask'; not being there is fine. On threads of
 * the drives: one that does not answer is not waited for, and its file is left to the sweep. */
void shard_unlink(struct shards *s, const struct orec_body *body, uint32_t mask, bool is_tmp);

struct shard_head shard_head_of(const struct shards *s, const struct orec_body *body,
                                unsigned shard);
MUST_CHECK int shard_body_check(const struct orec_body *body, struct layout *ret,
                                struct err *err);
