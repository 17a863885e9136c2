/* heal.h — gives drives back what they lack: one that was replaced, or was away for a while;
 *          and single shards that readers found bad.
 * Not here: finding bad shards that nobody reads (shard_verify(), called by the scrub), drives
 *           (drive.h), copies of the log (olog_verify(), reached through heal_opts.base).
 * Threads:  one thread of its own, throttled. The calls below come from any thread; what
 *           heal_opts names is called on its thread and may block.
 * Memory:   heal_start() gives, heal_stop() takes. The queue of bad bodies is bounded; what
 *           does not fit is left to the next scrub.
 * Errors:   a pass that fails is begun again later where it was; bodies that cannot be made
 *           any more are told to 'lost' and left as they are.
 *
 * Where a pass is, is kept in a file on the drive that is healed
 * (docs/formats/object-shard.md), so that a restart goes on there, and a drive that is
 * replaced once more begins anew. */
#pragma once
#include "base/arena.h"
#include "ostore/shard.h"

#define HEAL_CURSOR_MAX 2048

struct heal;
/* Opaque bytes of the caller's: n == 0 before the first body. */
struct heal_cursor {
    size_t n;
    uint8_t p[HEAL_CURSOR_MAX];
};
struct heal_body {
    struct orec_body body;
    uint64_t lsn;    /* of the record that names the body */
    struct str name; /* "bucket/key", for people */
};

struct heal_opts {
    struct shards *shards;
    uint64_t bytes_per_s; /* 0 = 64 MiB */
    uint64_t retry_ns;    /* after a pass that failed; 0 = 10 s */
    uint64_t
        move_after_ns; /* a drive is away for so long: its shards are made on others; 0: never */
    void *ctx;
    /* Everything but bodies onto the drives in 'which' (bits): copies of the log, the key ring
     * (body_keys_spread()). Before the bodies, and again after them. NULL: nothing. */
    int (*base)(void *ctx, uint32_t which, struct err *err);
    /* The next body in files behind the cursor, in an order that stays the same over restarts
     * (of keys, say); moves the cursor. 1: *ret is set, its strings are in the arena; 0: no
     * more. Bodies that are committed after the pass began need not be seen. */
    int (*next)(void *ctx, struct heal_cursor *io, struct arena *a, struct heal_body *ret,
                struct err *err);
    /* The pass is over, for now: what next() gave last is let go. May be NULL. */
    void (*over)(void *ctx);
    /* b->body.drive has changed: commit OREC_FILE_MOVED (durably) if the body is still there.
     * -ENOENT: it is not, and the new files are removed. */
    int (*moved)(void *ctx, const struct heal_body *b, struct err *err);
    /* Bodies with a weaker code than new ones have (drives were away when they were written):
     * all are looked at when has_weak() says so and all drives are well; recode() writes one anew
     * ('pace' as in struct shard_verify; -ENOENT: it is well, or gone; -EAGAIN: not now).
     * has_weak() forgets; still_weak(): it was not done. NULL: never. */
    bool (*has_weak)(void *ctx);
    void (*still_weak)(void *ctx);
    int (*recode)(void *ctx, const struct heal_body *b,
                  bool (*pace)(void *ctx, uint64_t n_bytes), void *pace_ctx, struct err *err);
    /* Too few shards of it are left. May be NULL. */
    void (*lost)(void *ctx, const struct heal_body *b, const struct err *err);
};
MUST_CHECK int heal_start(const struct heal_opts *o, struct heal **ret, struct err *err);
/* Ends what runs soon (after the body at hand); NULL is fine. Before shards_close(). */
void heal_stop(struct heal *h);
/* Something has changed: a drive was replaced. Otherwise it looks every few seconds. */
void heal_wake(struct heal *h);
/* As shards_opts.on_bad wants it: the body is repaired soon. Does not block. */
void heal_note_bad(struct heal *h, const struct orec_body *body, uint32_t shards);

struct heal_status {
    uint32_t healing;  /* bits of drives */
    unsigned drive;    /* of the pass at hand; DRIVES_MAX: none */
    uint64_t n_bodies; /* seen in this pass, since this start */
    uint64_t n_rebuilt, n_moved, n_bytes, n_lost,
        n_recoded;     /* shards, shards, bytes, bodies, bodies: since start */
    uint64_t n_queued; /* bad bodies that wait */
    uint64_t n_dropped;
    char why[200]; /* what the last pass failed with; "" when it did not */
};
void heal_status(struct heal *h, struct heal_status *ret);
