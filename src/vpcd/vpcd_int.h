/* vpcd_int.h — shared by the files of vpcd.h.
 * Not here: anything that other rooms may see.
 * Threads:  see the marks at the members.
 * Memory:   as vpcd.h.
 * Errors:   as vpcd.h. */
#pragma once
#include "base/vec.h"
#include "kv/view.h"
#include "loop/pool.h"
#include "net/rpc.h"
#include "vpcd/native.h"
#include "vpcd/responders.h"
#include "vpcd/vpcd.h"

#include <pthread.h>

enum ask_kind { ASK_OPEN, ASK_STATE };

/* A request that waits for the reconciler. */
struct ask {
    enum ask_kind kind;
    struct rpc_req *req;
    char account[16], eni_id[32];
    unsigned n_queues;
    bool is_vhost_wanted;
    uint64_t deadline_ns;
};

struct vpcd {
    struct service *service;
    const struct config *cfg;
    struct kv *kv;
    struct pool *pool;
    struct rpc_server *rpc;

    /* Of the loop's thread. */
    struct loop_timer *soon, *again, *verify;
    struct loop_fd *responder_watch;
    bool is_running, is_dirty, is_full_wanted, is_stopping;

    pthread_mutex_t mu;
    VEC(struct ask) asks; /* GUARDED_BY(mu) */
    bool is_poked;        /* GUARDED_BY(mu): a message to the loop is on its way */

    /* Of the reconciler (a job of the pool; never two at once). */
    struct view *view;
    struct native *native;
    struct responders *responders;
    bool is_full, has_failed, is_watching;
    char trouble[200];
    struct omap *reported; /* key of status/eni -> the JSON that was written */
};

/* Any thread: something changed. */
void vpcd_poke(struct vpcd *v);
/* Loop thread: a round soon. */
void vpcd_want_round(struct vpcd *v, uint64_t delay_ns);

/* reconcile.c: one round, on the pool's thread. */
void vpcd_round(void *vpcd);
/* status.c */
struct eni_result {
    const struct eni *spec;
    const char *state; /* "ready", "error", "deleted" */
    struct str reason;
};
MUST_CHECK int vpcd_report(struct vpcd *v, const struct eni_result *r, size_t n,
                           struct err *err);
/* requests.c */
MUST_CHECK int vpcd_listen(struct vpcd *v, struct err *err);
/* Answers those whose interface is there; those past their deadline with 'why'. */
void vpcd_answer_asks(struct vpcd *v, const struct plan *p, const struct err *why);
