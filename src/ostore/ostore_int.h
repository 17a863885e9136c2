/* ostore_int.h — what the parts of the store share.
 * Not here: what other rooms see (ostore.h).
 * Threads:  order of locks: commit queue; buckets; counts; pins. None is held during I/O.
 * Memory:   struct ostore owns everything below.
 * Errors:   as in ostore.h. */
#pragma once
#include "base/share.h"
#include "keys/keys.h"
#include "loop/ticker.h"
#include "ostore/body.h"
#include "ostore/index_tx.h"
#include "ostore/olog.h"
#include "ostore/ostore.h"
#include "ostore/ostore_pin.h"
#include "ostore/shard.h"
#include <stdatomic.h>

/* --- buckets --- */

struct blob { /* bytes that snapshots of buckets share */
    atomic_uint refs;
    size_t n;
    char p[];
};
struct bucket_snap {
    struct obucket pub;
    atomic_uint refs;
    struct blob *text, *conf[OCONF_MAX];
};
struct bucket {
    uint64_t number, origin;
    struct bucket_snap *snap; /* the newest */
    uint64_t conf_origin[OCONF_MAX];
};
struct buckets {
    pthread_mutex_t lock;
    struct omap *by_name, *by_number; /* struct bucket */
};
void buckets_init(struct buckets *b);
void buckets_done(struct buckets *b);
/* A record of kinds BUCKET, BUCKET_CONF, BUCKET_GONE that is durable; others are ignored. */
MUST_CHECK int buckets_apply(struct ostore *s, const struct irec *r, struct err *err);
/* All buckets of the index, at the start. */
MUST_CHECK int buckets_load(struct ostore *s, struct err *err);
/* A reference to the newest snapshot, or NULL. */
const struct obucket *buckets_now(struct ostore *s, uint64_t number);
const struct obucket *buckets_named(struct ostore *s, struct str name);

/* --- commits --- */

enum cop_kind { COP_CHANGE, COP_BUCKET, COP_MOVE };
/* One thing that the committer is asked for. */
struct cop {
    struct cop *next;
    enum cop_kind kind;
    struct ochange *c; /* CHANGE */
    struct orec rec;   /* BUCKET: all but its number and lsn */
    /* MOVE: a record that is copied forward if it lives (or is a tombstone that is needed) */
    const struct olog_rec *src;
    bool is_tombstone_needed;
    const struct orec_body *new_body; /* MOVE: the same bytes elsewhere; may be NULL */
    void (*done)(struct cop *op);
    void *ctx;
    int rc;
    struct err err;
    bool has_record, is_tried;
};
struct commit;
struct commit *commit_start(struct ostore *s) __attribute__((returns_nonnull));
void commit_stop(struct commit *m); /* what is queued is done first */
/* -EAGAIN "SlowDown" when the queue is full. The op is the caller's until done(). */
MUST_CHECK int commit_push(struct commit *m, struct cop *op, struct err *err);
/* Queues it (waiting for room) and waits for the answer. */
int commit_wait(struct commit *m, struct cop *op);
/* Runs 'fn' on the committer's thread between two batches, and waits. */
int commit_call(struct commit *m, int (*fn)(void *ctx, struct err *err), void *ctx,
                struct err *err);
bool commit_is_stuck(const struct commit *m);

/* A batch that is being built (commit.c, commit_eval.c). */
struct crec {
    struct olog_new n;
    size_t head_off, head_size; /* in 'bytes' */
    struct iovec body;
};
struct cbatch {
    struct ostore *s;
    struct itx tx;
    VEC(struct crec) recs;
    VEC(struct irec) bucket_recs;
    struct buf bytes;
    struct arena *a; /* reset with the batch */
    uint64_t first_lsn, body_bytes;
    bool is_exclusive; /* a bucket's record: alone */
    bool is_broken;    /* the index failed in the middle of a change */
};
/* Decides about one op and adds its records. -EINPROGRESS: it has to wait for the next batch. */
int commit_eval(struct cbatch *b, struct cop *op, struct err *err);
int commit_eval_upload(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                       struct err *err);
int commit_eval_move(struct cbatch *b, struct cop *op, struct err *err);
/* Adds a record: head encoded, index changed. 'body' may be NULL. Sets r->lsn. */
int cbatch_add(struct cbatch *b, struct orec *r, unsigned flags, struct str body,
               struct err *err);
int commit_check_cond(const struct ival *present, const struct ochange_if *cond, bool is_delete,
                      struct err *err);
/* The bytes of the body of a record, when it lies in the log: read into the batch's arena. */
int cbatch_body(struct cbatch *b, const struct ival *v, struct str *ret, struct err *err);

/* --- bodies on their way in --- */

const struct orec_body *oput_body(const struct oput *p);
struct str oput_inline(const struct oput *p); /* as stored; "" for files */
void oput_taken(struct oput *p);              /* its record is durable: frees it */
struct iopool;
struct iopool *iopool_start(unsigned n_threads) __attribute__((returns_nonnull));
void iopool_stop(struct iopool *p);

/* --- the store --- */

#define PUT_MEM ((uint64_t)512 << 20)

struct ostore {
    struct fault_fs *fs;
    struct drives *drives;
    struct olog *log;
    struct shards *shards;
    pthread_rwlock_t keys_lock; /* body_keys may come later */
    struct body_keys *body_keys;
    struct keys *keys;
    bool is_sealing;
    struct oindex *index;
    struct icounts counts;
    struct buckets buckets;
    struct pins *pins;
    struct commit *commit;
    struct iopool *io;
    struct shard_code code;
    uint32_t inline_max, segment_size;
    uint64_t min_part;
    uint64_t (*now_ns)(void *ctx);
    void *now_ctx;
    char *index_path;
    struct compact *compact;
    struct scrub *scrub;
    struct heal *_Atomic heal;
    atomic_bool is_readonly, is_closing;
    pthread_mutex_t sweep_lock;
    struct omap *sweep_new;        /* ids committed while a sweep runs; else NULL */
    uint8_t at_work[OREC_ID_SIZE]; /* under sweep_lock: the body that healing has at hand */
    bool is_loss_settled;          /* what the start found is dealt with */
    atomic_bool has_weak; /* bodies may be there with a weaker code than new ones (recode.h) */
    pthread_mutex_t why_lock;
    char why[160];
    atomic_uint_fast64_t n_put, n_get, n_delete, n_list, n_syncs, n_commits;
    struct shares *put_mem; /* bytes that running uploads may hold */
};
uint64_t ostore_now(struct ostore *s);
/* The store takes no more changes, and says why. */
void ostore_fail(struct ostore *s, const char *why);
/* -EROFS "ReadOnly", -ENOSPC, -EAGAIN "SlowDown". */
MUST_CHECK int ostore_may_grow(struct ostore *s, bool is_new_body, struct err *err);
/* What compaction needs beside the log: readers' keys. Under keys_lock (read). */
MUST_CHECK int ostore_codec(struct ostore *s, const struct orec_body *body,
                            struct body_codec *ret, struct err *err);

/* What keeps a version that ostore_get() gave readable. */
struct opin {
    struct ostore *s;
    uint64_t epoch;
    bool is_in;
};
void opin_leave(struct opin *p);
/* The version of a key as the index shows it; the value lives in the arena. 'version' NULL: the
 * latest. -ENOENT without a message. */
MUST_CHECK int ostore_find(struct ostore *s, uint64_t bucket, struct str key,
                           const uint8_t *version, bool is_nowait, struct arena *a,
                           struct ival *ret, bool *ret_is_latest, struct err *err);
MUST_CHECK int oversion_fill(const struct ival *v, bool is_latest, struct arena *a,
                             struct oversion *ret, struct err *err);

/* Many at once: they share syncs. Each has its own rc; ctx and done are used. Blocks. */
void ochange_wait_all(struct ostore *s, struct ochange *v, size_t n);

/* compact.c, scrub.c */
struct compact *compact_start(struct ostore *s) __attribute__((returns_nonnull));
void compact_run(struct compact *c); /* from now on by itself */
void compact_stop(struct compact *c);
void compact_poke(struct compact *c);
MUST_CHECK int compact_turn(struct compact *c, uint64_t *ret_freed, struct err *err);
/* What can be read of this segment and lives is copied forward, then it is removed. */
MUST_CHECK int compact_give_up(struct compact *c, uint64_t segment, struct err *err);
/* loss.c: after a start that accepted damage: the segments concerned go, and it is written down
 * on the drives and in the log of the service who wanted it. */
MUST_CHECK int loss_settle(struct ostore *s, const char *who, struct err *err);
struct scrub *scrub_start(struct ostore *s) __attribute__((returns_nonnull));
void scrub_stop(struct scrub *c); /* ends healing too */
MUST_CHECK int scrub_heal_start(struct ostore *s, const struct ostore_opts *o, struct err *err);
