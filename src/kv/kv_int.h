/* kv_int.h — what the back ends of kv.h share: the table of functions, watches, their thread.
 * Not here: anything a user of the store needs (kv.h, kv_admin.h).
 * Threads:  a watch set has one dispatcher thread; its list is guarded by 'mu'.
 * Memory:   watches belong to their set; one that stops itself inside its call-back is freed
 *           by the dispatcher.
 * Errors:   as kv.h. Arguments have been checked by kv.c before a back end sees them. */
#pragma once
#include "kv/kv.h"
#include "kv/kv_admin.h"

#include <pthread.h>

struct kv_backend {
    void (*close)(struct kv *kv);
    int (*get)(struct kv *kv, struct arena *a, struct str key, struct kv_item *ret,
               struct err *err);
    int (*list)(struct kv *kv, struct arena *a, struct str prefix, struct str after,
                size_t limit, struct kv_list *ret, struct err *err);
    int (*txn)(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp, const struct kv_op *op,
               size_t n_op, uint64_t *ret_rev, struct err *err);
    uint64_t (*revision)(struct kv *kv);
    int (*watch_start)(struct kv *kv, struct kv_watch *w, struct err *err);
    void (*watch_stop)(struct kv *kv, struct kv_watch *w);
    int (*lease_grant)(struct kv *kv, uint8_t tag, uint32_t ttl_s, uint64_t *ret,
                       struct err *err);
    int (*lease_keepalive)(struct kv *kv, uint64_t lease, struct err *err);
    int (*lease_revoke)(struct kv *kv, uint64_t lease, struct err *err);
    /* kv_admin.h; all NULL in a back end that is only a client */
    int (*txn_start)(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp,
                     const struct kv_op *op, size_t n_op, kv_txn_fn fn, void *ctx,
                     struct err *err);
    void (*watch_resume)(struct kv *kv, struct kv_watch *w);
    void (*stats)(struct kv *kv, struct kv_stats *ret);
    int (*compact)(struct kv *kv, uint64_t keep, struct err *err);
    int (*snapshot_open)(struct kv *kv, struct kv_snapshot **ret, struct err *err);
    int (*snapshot_list)(struct kv_snapshot *s, struct arena *a, struct str after,
                         struct kv_list *ret, struct err *err);
    void (*snapshot_close)(struct kv_snapshot *s);
    int (*replace)(struct kv *kv, bool is_forced, kv_next_fn next, void *ctx, struct err *err);
};

struct kv { /* first member of each back end's struct */
    const struct kv_backend *backend;
};

struct kv_snapshot { /* first member of each back end's struct */
    struct kv *kv;
};

/* A page of a list, a step of a watch: about this many bytes of keys and values, then it is
 * cut. */
#define KV_PAGE_SIZE (1u << 20)

enum watch_phase { WATCH_NEW, WATCH_LISTING, WATCH_LIVE };

struct kv_watch {
    struct kv *kv;
    struct kv_watch *next;
    struct str prefix; /* owned */
    kv_watch_fn fn;
    void *ctx;
    bool is_stopped; /* atomic: read by the dispatcher between call-backs */
    bool is_paused;  /* atomic */
    bool is_orphan;  /* stopped inside its own call-back: the dispatcher frees it */
    uint64_t pos; /* everything up to this revision has been delivered (of keys <= cursor while
                     listing) */
    enum watch_phase phase;
    bool is_reset_due, is_synced;
    char *cursor; /* owned; last key listed, NULL = none yet */
    size_t cursor_n;
    uint32_t id;        /* remote: number on the wire */
    uint64_t session;   /* remote: session that knows it, 0 = none */
    struct err refusal; /* remote: why the far side does not want it */
    uint64_t retry_ns;  /* remote: when a refused one is tried again */
};

struct watch_set {
    pthread_mutex_t mu;
    pthread_cond_t cv; /* monotonic clock */
    struct kv_watch *head;
    struct kv_watch *busy; /* the watch whose call-backs run now, without mu */
    pthread_t thread;
    bool has_thread, is_closing;
};

void watch_set_init(struct watch_set *s);
/* Starts the dispatcher; run(arg) ends soon after is_closing. */
MUST_CHECK int watch_set_run(struct watch_set *s, void *(*run)(void *), void *arg,
                             struct err *err);
/* Joins the dispatcher and frees what watches are left. */
void watch_set_done(struct watch_set *s);
void watch_set_add(struct watch_set *s, struct kv_watch *w);
/* No call-back after it returns; frees 'w' (later, when called inside its own call-back). */
void watch_set_stop(struct watch_set *s, struct kv_watch *w);
/* With mu held: marks 'w' as busy / not busy; end frees it when it stopped itself. */
void watch_set_begin(struct watch_set *s, struct kv_watch *w);
void watch_set_end(struct watch_set *s);
/* Calls the user unless the watch was stopped. Without mu, between begin and end. */
void watch_deliver(struct kv_watch *w, const struct kv_event *ev);
MUST_CHECK int watch_set_cursor(struct kv_watch *w, struct str key);
void watch_free(struct kv_watch *w);

/* A condition on the monotonic clock, and a wait with a deadline of it. */
void cond_init_mono(pthread_cond_t *cv);
int cond_wait_until(pthread_cond_t *cv, pthread_mutex_t *mu, uint64_t deadline_mono_ns);
