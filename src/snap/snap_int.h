/* snap_int.h — the store of snapshots as its own files see it.
 * Not here: the door (snap.h).
 * Threads:  lock order: collect_mu, roots_mu, upload.mu, log.mu, mu, cache.mu. roots_mu: held
 *           while what is visible, kept or under way changes, and while a collection looks
 *           which those are. No lock but these two is held over a request.
 * Memory:   see each.
 * Errors:   snap.h. */
#pragma once
#include "base/omap.h"
#include "snap/snap.h"
#include "snap/snap_block.h"
#include "snap/snap_cache.h"
#include "snap/snap_log.h"
#include "snap/snap_manifest.h"
#include "snap/snap_names.h"
#include "snap/snap_page.h"
#include "snap/snap_s3.h"

#define SNAP_SCRATCH 16u

/* A name that somebody is about to store or to log: a collection leaves it alone. */
struct snap_hold {
    struct str account;
    const uint8_t *name;
    struct snap_hold *next, **prev;
};

struct snap_upload {
    struct snap_manifest base; /* what it began from: the pages of the parent */
    struct snap_log log;
    unsigned refs;   /* under store.mu */
    bool is_damaged; /* the log cannot be read: only abort is left; base may be empty */
    pthread_mutex_t mu;
    pthread_cond_t idle;
    unsigned n_puts;
    bool is_ending; /* commits or aborts: no more puts */
};

struct snap_store {
    struct snap_opts o;
    int dir; /* of the logs */
    struct snap_s3 *s3;
    struct snap_cache cache;

    pthread_mutex_t collect_mu, roots_mu;
    uint64_t n_begun; /* under roots_mu: counts what began to need a parent's pages */

    pthread_mutex_t mu;
    pthread_cond_t deleted;
    struct omap *uploads; /* id -> struct snap_upload */
    struct snap_hold *holds;
    void *scratch[SNAP_SCRATCH];
    unsigned n_scratch;
    struct omap *keys; /* account -> struct snap_keys_pair */
    /* a collection that runs: */
    bool is_collecting, is_touched_full;
    struct str account;                 /* whose */
    struct snap_names touched;          /* what was stored since it looked */
    const uint8_t (*doomed)[SNAP_NAME]; /* being deleted, in order */
    size_t n_doomed;
};

/* ---- snap_keys.c ---- */
/* The keys of an account; is_made: made when there are none. "Locked". */
MUST_CHECK int snap_keys_get(struct snap_store *s, struct str account, bool is_made,
                             struct snap_keys_pair *ret, struct err *err);
void snap_keys_done(struct snap_store *s);

/* ---- snap_load.c ---- */
/* References of the cache: release them. */
MUST_CHECK int snap_load_manifest(struct snap_store *s, struct str account, struct str id,
                                  struct snap_cached **ret, struct err *err);
MUST_CHECK int snap_load_page(struct snap_store *s, struct str account,
                              const uint8_t name[SNAP_NAME], struct snap_cached **ret,
                              struct err *err);
/* Past the cache. 'kind' 'm' or 'r'. -ENOENT "NoSuchSnapshot", -EBADMSG "ManifestDamaged". */
MUST_CHECK int snap_read_manifest(struct snap_store *s, char kind, struct str account,
                                  struct str id, struct snap_manifest *ret, struct err *err);
/* 'raw' holds SNAP_PAGE_MAX bytes. */
MUST_CHECK int snap_read_page(struct snap_store *s, struct str account,
                              const uint8_t name[SNAP_NAME], void *raw, snap_page_names ret,
                              struct err *err);
/* Is there 'm' or 'r'? 0, 1 or negative. */
MUST_CHECK int snap_is_there(struct snap_store *s, char kind, struct str account, struct str id,
                             struct err *err);
void snap_forget(struct snap_store *s, struct str account, struct str id);
MUST_CHECK int snap_write_manifest(struct snap_store *s, char kind,
                                   const struct snap_manifest *m, struct err *err);
static inline const struct snap_manifest *snap_manifest_of(const struct snap_cached *e)
{
    return e->p;
}

/* ---- snap_hold.c ---- */
/* Waits while the name is being deleted; then it is not until it is let go. 'h' and what it
 * points to live until then. */
void snap_hold(struct snap_store *s, struct snap_hold *h, struct str account,
               const uint8_t name[SNAP_NAME]);
void snap_let_go(struct snap_store *s, struct snap_hold *h);
void snap_touch(struct snap_store *s, struct str account, const uint8_t name[SNAP_NAME]);
/* SNAP_SEALED bytes, aligned; NULL when memory is out. */
void *snap_scratch_take(struct snap_store *s);
void snap_scratch_give(struct snap_store *s, void *p);

/* ---- snap_upload.c ---- */
int snap_uploads_open(struct snap_store *s, struct err *err);
void snap_uploads_close(struct snap_store *s);
/* A reference, or NULL. */
struct snap_upload *snap_upload_get(struct snap_store *s, struct str id);
void snap_upload_unref(struct snap_store *s, struct snap_upload *u);
/* No more puts, and those that run have ended; one at a time. */
MUST_CHECK int snap_upload_end(struct snap_upload *u, struct err *err);
void snap_upload_go_on(struct snap_upload *u);
/* Under roots_mu, after the end: out of the folder and the map. */
MUST_CHECK int snap_upload_remove(struct snap_store *s, struct snap_upload *u, struct err *err);
/* Stores a block whose name is known. */
MUST_CHECK int snap_store_block(struct snap_store *s, const struct snap_keys_pair *keys,
                                struct str account, const uint8_t name[SNAP_NAME],
                                const void *data, struct err *err);
/* ---- snap_read.c ---- */
/* Reads and checks the block 'name'; keys NULL: plain. */
MUST_CHECK int snap_fetch(struct snap_store *s, const struct snap_keys_pair *keys,
                          struct str account, const uint8_t name[SNAP_NAME], void *buf,
                          struct err *err);
