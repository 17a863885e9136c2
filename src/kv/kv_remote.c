#include "kv/kv.h"

#include "base/time.h"
#include "kv/kv_int.h"
#include "kv/kv_proto.h"
#include "net/rpc.h"

#include <errno.h>
#include <stdio.h>

/* Who we are is told once a connection ("hello"). A request on a connection that does not know
 * us was not executed and is answered "HelloFirst": then we introduce ourselves and send it
 * again. The answer to hello names the session; watches belong to one. One thread asks for
 * events, delivers them, and asks again: a slow user slows down only itself. */

#define CALL_NS     (15 * NS_PER_S)
#define EVENTS_NS   (25 * NS_PER_S) /* the far side answers after 15 s at the latest */
#define PROBE_NS    (1 * NS_PER_S)
#define RETRY_NS    (200 * NS_PER_MS)
#define MAX_REQUEST (2u << 20)

struct kv_remote {
    struct kv kv;
    char *path;
    char service[KVP_MAX_SERVICE + 1];
    struct rpc_client *rpc;
    pthread_mutex_t hello_mu;
    uint64_t session; /* atomic; 0 = none */
    uint64_t rev;     /* atomic: newest heard of */
    uint32_t last_id; /* under watches.mu, as the rest */
    bool is_down;     /* the last attempt to reach the far side failed */
    struct watch_set watches;
};

static struct kv_remote *kvr(struct kv *kv)
{
    return (struct kv_remote *)(void *)kv; /* 'kv' is the first member */
}

static void heard_of(struct kv_remote *k, uint64_t rev)
{
    uint64_t old = __atomic_load_n(&k->rev, __ATOMIC_SEQ_CST);
    while (rev > old && !__atomic_compare_exchange_n(&k->rev, &old, rev, false,
                                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
}

/* Only the session that failed is forgotten: another thread may have made a new one. */
static void forget(struct kv_remote *k, uint64_t session)
{
    __atomic_compare_exchange_n(&k->session, &session, 0, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
}

static uint64_t session_of(const struct kv_remote *k)
{
    return __atomic_load_n(&k->session, __ATOMIC_SEQ_CST);
}

static int say_hello(struct kv_remote *k, uint64_t timeout_ns, struct err *err)
{
    AUTO_BUF b;
    buf_init(&b, 256);
    kvp_put_hello(&b, &(struct kvp_hello){KVP_VERSION, str_c(k->service)});
    struct rpc_reply reply;
    int r = rpc_call(k->rpc, STR("hello"), buf_str(&b), NULL, 0, timeout_ns, &reply, err);
    if (r < 0) {
        return r;
    }
    struct kvp_hello_reply m = {0};
    r = kvp_get_hello_reply(str_n(reply.payload, reply.n), &m, err);
    rpc_reply_done(&reply);
    if (r == 0) {
        __atomic_store_n(&k->session, m.session, __ATOMIC_SEQ_CST);
        heard_of(k, m.rev);
    }
    return r;
}

/* A hello ends the session before it, so only one is on its way. */
static int hello(struct kv_remote *k, uint64_t timeout_ns, struct err *err)
{
    pthread_mutex_lock(&k->hello_mu);
    int r = session_of(k) ? 0 : say_hello(k, timeout_ns, err);
    pthread_mutex_unlock(&k->hello_mu);
    return r;
}

static bool is_stranger(int r, const struct err *err)
{
    return r == -EPROTO && err->name && strcmp(err->name, "HelloFirst") == 0;
}

/* The words of kv.h for what went wrong on the way. */
static int translate(int r, bool is_txn, struct err *err)
{
    if (r != -ETIMEDOUT) {
        return r;
    }
    struct err was = *err;
    err_clear(err);
    if (is_txn) {
        return fail(err, -ECONNRESET, "Interrupted", "%.500s", was.msg);
    }
    return fail(err, -ENOTCONN, "Unavailable", "%.500s", was.msg);
}

enum call_kind { CALL_READ, CALL_WRITE };

/* A read is asked again when the connection breaks; a write that may have been done is not. */
static int call(struct kv_remote *k, const char *method, struct str payload,
                enum call_kind kind, uint64_t timeout_ns, struct rpc_reply *ret,
                struct err *user_err)
{
    uint64_t deadline = time_mono_ns() + timeout_ns;
    struct err err = ERR_INIT;
    for (;;) {
        uint64_t now = time_mono_ns();
        uint64_t left = deadline > now ? deadline - now : 0;
        err_clear(&err);
        uint64_t session = session_of(k);
        bool is_asked = session != 0;
        int r = is_asked ? 0 : hello(k, left, &err);
        if (r == 0) {
            is_asked = true;
            r = rpc_call(k->rpc, str_c(method), payload, NULL, 0, left, ret, &err);
        }
        if (is_stranger(r, &err) && left) {
            forget(k, session ? session : session_of(k));
            continue;
        }
        if (r == -ECONNRESET && (kind == CALL_READ || !is_asked) && left) {
            usleep(20000);
            continue;
        }
        if (r < 0) {
            r = translate(r, kind == CALL_WRITE && is_asked, &err);
            if (user_err && user_err->code == 0) {
                *user_err = err;
            }
        }
        return r;
    }
}

/* ---- requests ---- */

static int own(struct arena *a, struct kv_item *item, struct err *err)
{
    item->key = arena_str_dup(a, item->key);
    item->value = arena_str_dup(a, item->value);
    return item->key.p && item->value.p
               ? 0
               : fail(err, -E2BIG, "TooLarge",
                      "the answer does not fit the memory of the request");
}

static int kvr_get(struct kv *kv, struct arena *a, struct str key, struct kv_item *ret,
                   struct err *err)
{
    struct kv_remote *k = kvr(kv);
    struct kv_item item = {0};
    struct rpc_reply reply;
    AUTO_BUF b;
    buf_init(&b, MAX_REQUEST);
    kvp_put_key(&b, key);
    int r = call(k, "get", buf_str(&b), CALL_READ, CALL_NS, &reply, err);
    if (r < 0) {
        return r;
    }
    r = kvp_get_item(str_n(reply.payload, reply.n), &item, err);
    if (r == 0) {
        r = own(a, &item, err);
    }
    if (r == 0) {
        heard_of(k, item.mod_rev);
        *ret = item;
    }
    rpc_reply_done(&reply);
    return r;
}

static int kvr_list(struct kv *kv, struct arena *a, struct str prefix, struct str after,
                    size_t limit, struct kv_list *ret, struct err *err)
{
    struct kv_remote *k = kvr(kv);
    struct kv_list list = {0};
    struct rpc_reply reply;
    AUTO_BUF b;
    buf_init(&b, MAX_REQUEST);
    kvp_put_list(&b, &(struct kvp_list){prefix, after, (uint32_t)limit});
    int r = call(k, "list", buf_str(&b), CALL_READ, CALL_NS, &reply, err);
    if (r < 0) {
        return r;
    }
    r = kvp_get_list_reply(str_n(reply.payload, reply.n), a, &list, err);
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        r = own(a, &list.v[i], err);
    }
    if (r == 0) {
        heard_of(k, list.rev);
        *ret = list;
    }
    rpc_reply_done(&reply);
    return r;
}

static int kvr_txn(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp,
                   const struct kv_op *op, size_t n_op, uint64_t *ret_rev, struct err *err)
{
    struct kv_remote *k = kvr(kv);
    struct rpc_reply reply;
    AUTO_BUF b;
    buf_init(&b, MAX_REQUEST);
    struct kvp_txn m = {(struct kv_cmp *)(uintptr_t)cmp, n_cmp, (struct kv_op *)(uintptr_t)op,
                        n_op}; /* only read */
    kvp_put_txn(&b, &m);
    if (!buf_ok(&b)) {
        return fail(err, -E2BIG, "TooLarge", "the transaction is too large");
    }
    int r = call(k, "txn", buf_str(&b), CALL_WRITE, CALL_NS, &reply, err);
    if (r < 0) {
        return r;
    }
    r = kvp_get_u64(str_n(reply.payload, reply.n), ret_rev, err);
    rpc_reply_done(&reply);
    heard_of(k, *ret_rev);
    return r;
}

static uint64_t kvr_revision(struct kv *kv)
{
    return __atomic_load_n(&kvr(kv)->rev, __ATOMIC_SEQ_CST);
}

static int kvr_lease_grant(struct kv *kv, uint8_t tag, uint32_t ttl_s, uint64_t *ret,
                           struct err *err)
{
    struct rpc_reply reply;
    AUTO_BUF b;
    (void)tag; /* the far side knows who we are */
    buf_init(&b, 64);
    kvp_put_u32(&b, ttl_s);
    int r = call(kvr(kv), "lease.grant", buf_str(&b), CALL_WRITE, CALL_NS, &reply, err);
    if (r < 0) {
        return r;
    }
    r = kvp_get_u64(str_n(reply.payload, reply.n), ret, err);
    rpc_reply_done(&reply);
    return r;
}

static int lease_call(struct kv *kv, const char *method, uint64_t lease, enum call_kind kind,
                      struct err *err)
{
    AUTO_BUF b;
    buf_init(&b, 64);
    kvp_put_u64(&b, lease);
    return call(kvr(kv), method, buf_str(&b), kind, CALL_NS, NULL, err);
}

static int kvr_lease_keepalive(struct kv *kv, uint64_t lease, struct err *err)
{
    return lease_call(kv, "lease.keepalive", lease, CALL_READ, err);
}

static int kvr_lease_revoke(struct kv *kv, uint64_t lease, struct err *err)
{
    return lease_call(kv, "lease.revoke", lease, CALL_WRITE, err);
}

/* ---- watches ---- */

/* Makes the answer to "events" come now, if there is anybody to give it. */
static void wake(struct kv_remote *k)
{
    if (session_of(k)) {
        int r = rpc_call(k->rpc, STR("events.wake"), STR(""), NULL, 0, PROBE_NS, NULL, NULL);
        (void)r; /* without a connection nobody waits either */
    }
}

static bool is_dispatcher(const struct kv_remote *k)
{
    return k->watches.has_thread && pthread_equal(pthread_self(), k->watches.thread);
}

static void *dispatch(void *arg);

/* Waits until the far side knows the watch, so that a refusal reaches the caller. When it is
 * not there: later. */
static int kvr_watch_start(struct kv *kv, struct kv_watch *w, struct err *err)
{
    struct kv_remote *k = kvr(kv);
    struct watch_set *ws = &k->watches;
    pthread_mutex_lock(&ws->mu);
    size_t n = 0;
    for (const struct kv_watch *x = ws->head; x; x = x->next) {
        n++;
    }
    int r = n >= KVP_MAX_WATCHES
                ? fail(err, -E2BIG, "TooManyWatches", "more than %u watches", KVP_MAX_WATCHES)
                : 0;
    if (r == 0 && !ws->has_thread) {
        r = watch_set_run(ws, dispatch, k, err);
    }
    w->id = ++k->last_id;
    k->is_down = false;
    bool is_inside = is_dispatcher(k);
    pthread_mutex_unlock(&ws->mu);
    if (r < 0) {
        return r;
    }
    watch_set_add(ws, w);
    if (is_inside) {
        return 0; /* inside a call-back: it is told when that has ended */
    }
    wake(k);
    pthread_mutex_lock(&ws->mu);
    uint64_t deadline = time_mono_ns() + 2 * NS_PER_S;
    while (w->session == 0 && !w->refusal.code && !k->is_down && r == 0) {
        r = cond_wait_until(&ws->cv, &ws->mu, deadline);
    }
    struct err refusal = w->refusal;
    bool is_refused = refusal.code && w->session == 0;
    if (is_refused) {
        for (struct kv_watch **at = &ws->head; *at; at = &(*at)->next) {
            if (*at == w) {
                *at = w->next;
                break;
            }
        }
    }
    pthread_mutex_unlock(&ws->mu);
    if (is_refused) {
        if (err && err->code == 0) {
            *err = refusal;
        }
        return refusal.code;
    }
    return 0;
}

static void kvr_watch_stop(struct kv *kv, struct kv_watch *w)
{
    struct kv_remote *k = kvr(kv);
    pthread_mutex_lock(&k->watches.mu);
    struct kvp_unwatch m = {w->session, w->id};
    pthread_mutex_unlock(&k->watches.mu);
    watch_set_stop(&k->watches, w);
    if (m.session && m.session == session_of(k)) {
        AUTO_BUF b;
        buf_init(&b, 64);
        kvp_put_unwatch(&b, &m);
        int r = rpc_call(k->rpc, STR("watch.stop"), buf_str(&b), NULL, 0, PROBE_NS, NULL, NULL);
        (void)r; /* else it goes with the connection, and its events are for nobody */
    }
}

static bool is_lost(int r)
{
    return r == -ECONNRESET || r == -ENOTCONN || r == -ETIMEDOUT || r == -EPROTO ||
           r == -ECANCELED;
}

/* With the lock held: a watch that the session does not know. */
static struct kv_watch *next_unknown(const struct kv_remote *k, uint64_t session)
{
    uint64_t now = time_mono_ns();
    for (struct kv_watch *w = k->watches.head; w; w = w->next) {
        if (w->session != session && (!w->refusal.code || now >= w->retry_ns)) {
            return w;
        }
    }
    return NULL;
}

static struct kv_watch *by_id(const struct kv_remote *k, uint32_t id)
{
    struct kv_watch *w = k->watches.head;
    while (w && w->id != id) {
        w = w->next;
    }
    return w;
}

/* Tells the session all watches it does not know, each from where it stands. */
static int register_watches(struct kv_remote *k, uint64_t session)
{
    struct watch_set *ws = &k->watches;
    for (;;) {
        AUTO_BUF b;
        buf_init(&b, KV_MAX_KEY + 64);
        pthread_mutex_lock(&ws->mu);
        struct kv_watch *w = next_unknown(k, session);
        uint32_t id = w ? w->id : 0;
        if (w) {
            uint64_t from = w->phase == WATCH_LIVE ? w->pos : 0;
            kvp_put_watch(&b, &(struct kvp_watch){session, id, from, w->prefix});
        }
        pthread_mutex_unlock(&ws->mu);
        if (!w) {
            return 0;
        }
        struct err err = ERR_INIT;
        int r = rpc_call(k->rpc, STR("watch.start"), buf_str(&b), NULL, 0, CALL_NS, NULL, &err);
        if (is_lost(r)) {
            return r;
        }
        pthread_mutex_lock(&ws->mu);
        w = by_id(k, id); /* it may have been stopped meanwhile */
        if (w && r == 0) {
            w->session = session;
            err_clear(&w->refusal);
        } else if (w) {
            w->refusal = err;
            w->retry_ns = time_mono_ns() + 5 * NS_PER_S;
        }
        pthread_cond_broadcast(&ws->cv);
        pthread_mutex_unlock(&ws->mu);
    }
}

static int deliver(struct kv_remote *k, struct str events, uint64_t session)
{
    struct watch_set *ws = &k->watches;
    struct kv_event ev;
    uint32_t id = 0;
    int r = 0;
    while ((r = kvp_next_event(&events, &id, &ev, NULL)) == 1) {
        heard_of(k, ev.item.mod_rev);
        pthread_mutex_lock(&ws->mu);
        struct kv_watch *w = ws->is_closing ? NULL : by_id(k, id);
        if (!w || w->session != session) {
            pthread_mutex_unlock(&ws->mu);
            continue; /* stopped */
        }
        if (ev.type == KV_EVENT_RESET) {
            w->phase = WATCH_LISTING;
        } else if (ev.type == KV_EVENT_SYNC) {
            w->phase = WATCH_LIVE;
            w->pos = ev.item.mod_rev;
        }
        watch_set_begin(ws, w);
        pthread_mutex_unlock(&ws->mu);
        watch_deliver(w, &ev);
        pthread_mutex_lock(&ws->mu);
        watch_set_end(ws);
        pthread_mutex_unlock(&ws->mu);
    }
    return r;
}

/* We ourselves are not wanted: so are all watches. */
static void refuse_all(struct kv_remote *k, const struct err *err)
{
    pthread_mutex_lock(&k->watches.mu);
    for (struct kv_watch *w = k->watches.head; w; w = w->next) {
        w->refusal = *err;
        w->session = 0;
    }
    pthread_cond_broadcast(&k->watches.cv);
    pthread_mutex_unlock(&k->watches.mu);
}

static int ask_events(struct kv_remote *k, uint64_t *ret_session)
{
    struct err err = ERR_INIT;
    int r = session_of(k) ? 0 : hello(k, PROBE_NS, &err);
    uint64_t session = *ret_session = session_of(k);
    if (r == -EPERM) {
        refuse_all(k, &err);
    }
    if (r == 0) {
        r = register_watches(k, session);
    }
    if (r < 0) {
        return r;
    }
    AUTO_BUF b;
    buf_init(&b, 64);
    kvp_put_u64(&b, session);
    struct rpc_reply reply;
    r = rpc_call(k->rpc, STR("events"), buf_str(&b), NULL, 0, EVENTS_NS, &reply, NULL);
    if (r == 0) {
        r = deliver(k, str_n(reply.payload, reply.n), session);
        rpc_reply_done(&reply);
    }
    return r;
}

static void *dispatch(void *arg)
{
    struct kv_remote *k = arg;
    struct watch_set *ws = &k->watches;
    pthread_setname_np(pthread_self(), "kv-watch");
    pthread_mutex_lock(&ws->mu);
    while (!ws->is_closing) {
        if (!ws->head) {
            pthread_cond_wait(&ws->cv, &ws->mu);
            continue;
        }
        pthread_mutex_unlock(&ws->mu);
        uint64_t session = 0;
        int r = ask_events(k, &session);
        pthread_mutex_lock(&ws->mu);
        if (r < 0) {
            /* Sessions are not used again, so another thread's new one is not taken for ours.
             */
            __atomic_store_n(&k->session, 0, __ATOMIC_SEQ_CST);
            k->is_down = r != -EPROTO;
            pthread_cond_broadcast(&ws->cv);
            if (k->is_down && !ws->is_closing) {
                cond_wait_until(&ws->cv, &ws->mu, time_mono_ns() + RETRY_NS);
            }
        }
    }
    pthread_mutex_unlock(&ws->mu);
    return NULL;
}

/* ---- opening and closing ---- */

static void kvr_close(struct kv *kv)
{
    struct kv_remote *k = kvr(kv);
    pthread_mutex_lock(&k->watches.mu);
    k->watches.is_closing = true;
    pthread_cond_broadcast(&k->watches.cv);
    bool has_thread = k->watches.has_thread;
    pthread_mutex_unlock(&k->watches.mu);
    if (has_thread) {
        wake(k);
    }
    watch_set_done(&k->watches);
    rpc_client_free(k->rpc);
    pthread_mutex_destroy(&k->hello_mu);
    free(k->path);
    free(k);
}

static const struct kv_backend backend = {
    .close = kvr_close,
    .get = kvr_get,
    .list = kvr_list,
    .txn = kvr_txn,
    .revision = kvr_revision,
    .watch_start = kvr_watch_start,
    .watch_stop = kvr_watch_stop,
    .lease_grant = kvr_lease_grant,
    .lease_keepalive = kvr_lease_keepalive,
    .lease_revoke = kvr_lease_revoke,
};

int kv_open_remote_as(const char *socket_path, const char *service, struct kv **ret,
                      struct err *err)
{
    if (strlen(service) > KVP_MAX_SERVICE) {
        return fail(err, -EINVAL, "BadService", "%s: not a service", service);
    }
    struct kv_remote *k = calloc(1, sizeof(*k));
    char *path = strdup(socket_path);
    if (!k || !path) {
        free(k);
        free(path);
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for the store");
    }
    k->kv.backend = &backend;
    k->path = path;
    snprintf(k->service, sizeof(k->service), "%s", service);
    pthread_mutex_init(&k->hello_mu, NULL);
    watch_set_init(&k->watches);
    k->rpc = rpc_client_new(path, NULL, NULL);
    *ret = &k->kv;
    return 0;
}

int kv_open_remote(const char *socket_path, struct kv **ret, struct err *err)
{
    const char *name = program_invocation_short_name;
    if (strcmp(name, "spx") == 0) {
        name = "admin";
    } else if (strncmp(name, "spx-", 4) == 0) {
        name += 4;
    }
    char service[KVP_MAX_SERVICE + 1];
    snprintf(service, sizeof(service), "%.32s", name);
    return kv_open_remote_as(socket_path, service, ret, err);
}
