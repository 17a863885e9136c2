#include "vpcd/vpcd_int.h"

#include "base/time.h"

#include <errno.h>
#include <sys/epoll.h>

LOG_MODULE("vpcd");

#define DEBOUNCE_NS (5 * NS_PER_MS) /* a launch is several keys: one round for all */
#define RETRY_NS    (1 * NS_PER_S)
#define VERIFY_NS \
    (5 * NS_PER_S) /* another tool may have flushed the tables: back within 10 s */

static void round_done(void *ctx);

static void start_round(void *ctx)
{
    struct vpcd *v = ctx;
    if (v->is_running || v->is_stopping) {
        v->is_dirty = true;
        return;
    }
    v->is_running = true;
    v->is_dirty = false;
    v->is_full = v->is_full || v->is_full_wanted;
    v->is_full_wanted = false;
    if (pool_submit(v->pool, vpcd_round, v->service->loop, round_done, v)) {
        v->is_running = false;
        vpcd_want_round(v, RETRY_NS);
    }
}

void vpcd_want_round(struct vpcd *v, uint64_t delay_ns)
{
    loop_timer_set(v->soon, loop_now_ns(v->service->loop) + delay_ns);
}

static bool has_asks(struct vpcd *v)
{
    pthread_mutex_lock(&v->mu);
    bool r = v->asks.n > 0;
    pthread_mutex_unlock(&v->mu);
    return r;
}

static void on_responder_died(void *ctx, uint32_t ready)
{
    struct vpcd *v = ctx;
    loop_fd_mod(v->responder_watch, 0); /* until the round has looked at it */
    vpcd_want_round(v, 0);
}

static void round_done(void *ctx)
{
    struct vpcd *v = ctx;
    v->is_running = false;
    if (v->is_stopping) {
        return;
    }
    if (v->responders && !v->responder_watch) {
        (void)!loop_fd_add(v->service->loop, responders_wait_fd(v->responders), EPOLLIN,
                           on_responder_died, v, &v->responder_watch);
    } else if (v->responder_watch) {
        loop_fd_mod(v->responder_watch, EPOLLIN);
    }
    service_set_status(v->service, v->has_failed ? (v->view ? "degraded" : "starting") : "ok",
                       v->has_failed ? v->trouble : NULL);
    if (v->is_dirty) {
        vpcd_want_round(v, 0);
    } else if (v->has_failed) {
        loop_timer_set(v->again, loop_now_ns(v->service->loop) + RETRY_NS);
    } else if (has_asks(v)) {
        loop_timer_set(v->again, loop_now_ns(v->service->loop) + 100 * NS_PER_MS);
    }
}

static void on_poke(void *ctx)
{
    struct vpcd *v = ctx;
    pthread_mutex_lock(&v->mu);
    v->is_poked = false;
    pthread_mutex_unlock(&v->mu);
    if (v->is_running || v->is_stopping) {
        v->is_dirty = true;
    } else {
        vpcd_want_round(v, DEBOUNCE_NS);
    }
}

void vpcd_poke(struct vpcd *v)
{
    pthread_mutex_lock(&v->mu);
    bool is_first = !v->is_poked;
    v->is_poked = true;
    pthread_mutex_unlock(&v->mu);
    if (is_first) {
        loop_post(v->service->loop, on_poke, v);
    }
}

/* In the loop's first turn, when service_run() has just said "ok": it is not, before the first
 * round. */
static void say_starting(void *ctx)
{
    struct vpcd *v = ctx;
    if (v->is_stopping) {
        return;
    }
    service_set_status(v->service, "starting", "the first look at the store");
}

static void on_verify(void *ctx)
{
    struct vpcd *v = ctx;
    v->is_full_wanted = true;
    loop_timer_set(v->verify, loop_now_ns(v->service->loop) + VERIFY_NS);
    start_round(v);
}

int vpcd_new(struct service *s, const struct config *cfg, struct kv *kv, struct vpcd **ret,
             struct err *err)
{
    struct vpcd *v = calloc(1, sizeof(*v));
    if (!v) {
        abort();
    }
    v->service = s;
    v->cfg = cfg;
    v->kv = kv;
    v->is_full = true;
    pthread_mutex_init(&v->mu, NULL);
    v->reported = omap_new();
    v->pool = pool_new("reconciler", 1, 4);
    v->soon = loop_timer_new(s->loop, start_round, v);
    v->again = loop_timer_new(s->loop, start_round, v);
    v->verify = loop_timer_new(s->loop, on_verify, v);
    int r = native_new(cfg, &v->native, err);
    r = r ? r : responders_new(cfg, &v->responders, err);
    r = r ? r : vpcd_listen(v, err);
    if (r) {
        vpcd_free(v);
        return r;
    }
    loop_post(s->loop, say_starting, v);
    vpcd_want_round(v, 0);
    loop_timer_set(v->verify, loop_now_ns(s->loop) + VERIFY_NS);
    *ret = v;
    return 0;
}

static void free_last(void *ctx)
{
    struct vpcd *v = ctx;
    pthread_mutex_destroy(&v->mu);
    free(v);
}

void vpcd_free(struct vpcd *v)
{
    if (!v) {
        return;
    }
    v->is_stopping = true;
    rpc_server_free(v->rpc);
    pool_free(v->pool); /* waits for a round that runs */
    if (v->view) {
        view_close(v->view);
    }
    loop_fd_del(v->responder_watch);
    loop_timer_free(v->soon);
    loop_timer_free(v->again);
    loop_timer_free(v->verify);
    responders_free(v->responders);
    native_free(v->native);
    omap_free(v->reported, free);
    vec_free(&v->asks);
    /* A poke and the end of a round may still wait for the loop, and run when it is freed: they
     * see is_stopping, and the struct itself goes behind them. */
    loop_post(v->service->loop, free_last, v);
}
