/* index_tx.h — changes of the index by records: the same at commit and at replay.
 * Not here: whether a change is allowed (commit_eval.c), keys and values (index.h).
 * Threads:  a struct itx belongs to one thread (replay, then the committer); struct icounts is read
 *           by others under its lock.
 * Memory:   itx_init() + itx_done(). What was read lives until itx_reset().
 * Errors:   those of oindex.h. After one, itx_reset() and nothing has happened.
 *
 * Changes are gathered in an overlay that reads see at once, and go to the index as one batch. A
 * record that is not in the log yet has the place ITX_PENDING + its number in the batch; the true
 * place is put in when it is known. In a replay of everything (is_blind) a change that needs no
 * knowledge goes straight to the batch, counts are made afterwards (index_rebuild.c). */
#pragma once
#include "base/omap.h"
#include "base/vec.h"
#include "ostore/index.h"
#include "ostore/oindex.h"
#include <pthread.h>

#define ITX_PENDING UINT64_MAX

struct inum { /* numbers of a segment (a: live bytes) or a bucket (a: objects, b: bytes) */
    uint64_t key;
    int64_t a, b;
    bool has_ids; /* bucket: versions with ids may be there */
};
struct inums {
    VEC(struct inum) v; /* in the order of keys */
};
struct inum *inums_find(struct inums *m, uint64_t key); /* NULL: none */
struct inum *inums_get(struct inums *m, uint64_t key) __attribute__((returns_nonnull));
void inums_drop(struct inums *m, uint64_t key);

struct icounts {
    pthread_mutex_t lock; /* readers, and who changes */
    struct inums segments, buckets;
    struct istate state;
};
void icounts_init(struct icounts *c);
void icounts_done(struct icounts *c);
/* Reads all counts from the index. -EBADMSG: made by another version, or not whole: make it
 * anew. */
MUST_CHECK int icounts_load(struct icounts *c, struct oindex *x, struct err *err);

/* Files that nothing names any more, once the change is durable. */
struct ideath {
    struct orec_body body;
    uint8_t pin[OREC_ID_SIZE]; /* what readers hold: the body's id, or the upload's */
};

struct itx_rec { /* a record of this batch */
    bool is_live;
    uint32_t size;
    struct olog_place at; /* once it is known */
};
struct itx {
    struct oindex *x;
    struct icounts *counts;
    struct oindex_batch *batch;
    struct omap *over;
    struct arena *a;
    VEC(struct itx_rec) recs;
    VEC(struct ideath) deaths;
    struct inums segments, buckets; /* what is to be added */
    struct istate sum;
    size_t n_changes; /* in overlay and batch, about */
    bool is_blind;
    uint64_t *seen;     /* blind: a filter of the keys that came (index_apply.c) */
    struct obulk *bulk; /* blind: where changes go while nothing is read; NULL: to the batch */
    unsigned n_direct;  /* changes that go to the batch, after something was read */
    bool is_direct;     /* some went there */
    int rc;             /* of what could not say so */
    struct err err;
};
void itx_init(struct itx *t, struct oindex *x, struct icounts *counts);
void itx_done(struct itx *t);
void itx_reset(struct itx *t);
/* After a blind replay: everything is in the index. */
MUST_CHECK int itx_end_bulk(struct itx *t, struct err *err);

MUST_CHECK int itx_get(struct itx *t, const struct ikey *k, struct ival *ret, struct err *err);
MUST_CHECK int itx_get_raw(struct itx *t, const struct ikey *k, struct str *ret,
                           struct err *err);
void itx_put(struct itx *t, const struct ikey *k, const struct ival *v);
void itx_put_raw(struct itx *t, const struct ikey *k, struct str first, struct str second);
void itx_del(struct itx *t, const struct ikey *k);

/* Keys that begin with 'prefix', in order, as they are with the changes. */
struct itx_iter {
    struct itx *t;
    struct oindex_iter *it;
    struct omap_node *node;
    struct ikey prefix;
    bool is_begun, is_it;
    struct str key, value; /* borrowed until the next move */
};
MUST_CHECK int itx_iter_open(struct itx *t, const struct ikey *prefix, struct itx_iter *ret,
                             struct err *err);
bool itx_iter_next(struct itx_iter *it);
MUST_CHECK int itx_iter_close(struct itx_iter *it,
                              struct err *err); /* says whether it failed */

/* One record of the log. 'size' of frame, head and body; place ITX_PENDING: off counts records. */
struct irec {
    enum orec_kind kind;
    bool is_moved;
    uint64_t lsn, time_ns, segment;
    uint32_t off, size;
    struct str head;
    struct ipeek peek;
};
MUST_CHECK int itx_apply(struct itx *t, const struct irec *r, struct err *err);
/* The place of record 'idx' of the batch. */
void itx_place(struct itx *t, size_t idx, struct olog_place at);
/* Writes everything to the index; records up to 'lsn' are applied then. May be called again after a
 * failure. On success the changes are forgotten, deaths are left for the caller. */
MUST_CHECK int itx_commit(struct itx *t, uint64_t lsn, struct err *err);
/* A segment was removed: its count goes with the next commit. */
void itx_drop_segment(struct itx *t, uint64_t segment);

/* The version of a key. 'version' NULL: the latest; *ret_key: where it is. -ENOENT. */
MUST_CHECK int itx_find(struct itx *t, uint64_t bucket, struct str key, const uint8_t *version,
                        struct ival *ret, struct ikey *ret_key, struct err *err);

/* index_rebuild.c: after a blind replay: what nothing refers to goes, and everything is counted. */
MUST_CHECK int index_recount(struct oindex *x, struct icounts *c, struct err *err);
