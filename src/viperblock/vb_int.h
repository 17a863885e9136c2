/* vb_int.h — what the parts of the service share.
 * Not here: files (folder.h).
 * Threads:  'jobs' and 'calls' belong to the loop thread; the rest is constant or safe from any
 *           thread.
 * Memory:   struct vb owns all of it.
 * Errors:   a reconciler answers 0 (done), -EAGAIN (come back later), or another errno: it was
 *           logged, and is tried again later. */
#pragma once
#include "base/vec.h"
#include "codec/json.h"
#include "codec/rec.h"
#include "keys/keys.h"
#include "kv/view.h"
#include "loop/pool.h"
#include "viperblock/folder.h"
#include "viperblock/vb.h"
#include <pthread.h>
#include <stdatomic.h>

#define VB_ARENA_MAX  (1u << 20)
/* In the folder of an image that is gone and whose base is still read through. */
#define IMAGE_REMOVED "removed"

struct vb_job { /* the reconciling of one key */
    struct vb *vb;
    char *key;
    bool is_running, is_dirty;
    int result;
    uint64_t retry_ns; /* monotonic; 0 = no retry is due */
    unsigned n_retries;
};

struct vb_call { /* one request that is worked on */
    struct vb *vb;
    struct rpc_req *req;
    struct rpc_conn *conn; /* ref */
    struct json *args;
    int fd; /* passed with it, or -1 */
    void (*work)(struct vb_call *c);
    atomic_bool is_cancelled;
    uint64_t told_ns; /* when progress was last pushed */
};

struct vb {
    struct vb_opts o;
    struct folder *folder;
    struct view *view;
    struct pool *pool, *import_pool;
    struct pool *fetch_pool, *upload_pool; /* what guests wait for, and what they do not */
    struct keys *keys;                     /* NULL: no root key was ever configured */
    struct vols *vols;
    struct bases *bases;
    struct store *store;
    struct longs *longs;
    struct pool *long_pool;
    uint64_t snap_tick_ns;
    struct rpc_server *rpc;
    atomic_bool is_stopping;
    bool is_idle_ended; /* at the end: processes that serve nobody go too */

    struct omap *jobs; /* key -> struct vb_job */
    struct loop_timer *retry_timer, *room_timer, *tick_timer;
    bool is_low, is_locked; /* on room, without root key: as last told by health */
    VEC(struct vb_call *) calls;

    pthread_mutex_t mu;
    VEC(char *) touched; /* GUARDED_BY(mu): keys that changed and have not been looked at */
};

/* Any thread: look at this key ("spec/volume/..." or "spec/image/...") soon. */
void vb_touch(struct vb *vb, struct str key);

/* A copy of the record under the key, or NULL when it is absent or bad; release with
 * view_unref(). */
const struct view_entry *vb_get(struct vb *vb, struct str key);
bool vb_get_exists(struct vb *vb, struct str key);
/* Looks again at whatever waits for this snapshot to be completed. */
void vb_touch_waiting(struct vb *vb, struct str snapshot_id);
/* Writes the record under the key when it differs from what the view shows. */
MUST_CHECK int vb_put_rec(struct vb *vb, struct str key, const struct rec_desc *d,
                          const void *rec, struct err *err);

/* One for each kind of key: pool threads. */
int volume_reconcile(struct vb *vb, struct arena *a, struct str key);
int image_reconcile(struct vb *vb, struct arena *a, struct str key);
int snapshot_reconcile(struct vb *vb, struct arena *a, struct str key);
int proc_reconcile(struct vb *vb, struct arena *a, struct str key);
int gc_reconcile(struct vb *vb, struct arena *a, struct str key);
/* volume_rpc.c, volume_check.c, block_rpc.c, image.c. */
void call_volume_open(struct vb_call *c);
void call_volume_close(struct vb_call *c);
void call_volume_nbd(struct vb_call *c);
void call_volume_nbd_end(struct vb_call *c);
void call_volume_list(struct vb_call *c);
void call_volume_check(struct vb_call *c);
void call_volume_orphans(struct vb_call *c);
void call_block_list(struct vb_call *c);
void call_block_changed(struct vb_call *c);
void call_block_get(struct vb_call *c);
void call_block_put(struct vb_call *c);
void call_image_import(struct vb_call *c);
void call_image_remove(struct vb_call *c);
/* Looks again at what is being read of the volume. */
void snapshot_touch_of_volume(struct vb *vb, struct str account, struct str volume_id);
/* Says in the log which volumes have bytes and no record: a person decides about them. */
MUST_CHECK int volume_report_orphans(struct vb *vb, struct err *err);
/* True when spec/<kind>/<any account>/<id> is there. */
bool vb_is_in_store(struct vb *vb, const char *prefix, struct str id);
/* Before anything runs: what a kill between files and store left behind. */
MUST_CHECK int image_settle(struct vb *vb, struct err *err);

/* rpc.c */
MUST_CHECK int calls_start(struct vb *vb, struct err *err);
void call_fail(struct vb_call *c, const struct err *err);
void call_reply(struct vb_call *c, struct str payload, const int *fds, size_t n_fds);
bool call_is_cancelled(void *call);
