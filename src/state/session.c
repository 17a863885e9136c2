#include "state/state.h"

#include "base/log.h"
#include "base/rand.h"
#include "base/time.h"
#include "kv/kv_proto.h"
#include "state/rights.h"

#include <errno.h>

LOG_MODULE("state.session");

/* Events wait in chunks. A chunk is closed, and may be sent, only where a watch can be resumed:
 * after a SYNC, or anywhere in a list (which begins again when the connection breaks). So a
 * peer never has half a revision. */
#define CHUNK_SIZE (256u << 10)
#define CHUNK_MAX  (7u << 20)
#define FULL_SIZE  (1u << 20) /* the watches pause */
#define BUSY_SIZE  (8u << 20) /* no further watch is begun */
#define HOLD_NS    (15 * NS_PER_S)

struct chunk {
    struct chunk *next;
    struct buf b;
    size_t safe_n; /* so much of it may be sent */
    bool is_closed;
};

struct watch {
    struct watch *next;
    struct session *s;
    uint32_t id;
    struct kv_watch *w;
    bool is_listing;
};

struct session {
    struct session *next;
    struct state *st;
    struct rpc_conn *conn;
    uint64_t id;
    int service;

    pthread_mutex_t mu; /* all below */
    struct watch *watches;
    size_t n_watches;
    struct chunk *head, *last;
    size_t queued;
    bool is_full, is_woken;
    struct rpc_req *waiting;
    uint64_t waiting_since_ns;
};

static void chunk_free(struct chunk *c)
{
    buf_done(&c->b);
    free(c);
}

/* ---- the queue (with the lock held) ---- */

static struct chunk *open_chunk(struct session *s)
{
    if (s->last && !s->last->is_closed) {
        return s->last;
    }
    struct chunk *c = calloc(1, sizeof(*c));
    if (!c) {
        abort(); /* small; the bytes in it are bounded by BUSY_SIZE */
    }
    buf_init(&c->b, CHUNK_MAX);
    *(s->last ? &s->last->next : &s->head) = c;
    s->last = c;
    return c;
}

static void set_paused(struct session *s, bool is_paused)
{
    s->is_full = is_paused;
    for (struct watch *w = s->watches; w; w = w->next) {
        if (is_paused) {
            kv_watch_pause(w->w);
        } else {
            kv_watch_resume(w->w);
        }
    }
}

static void answer_waiting(struct session *s, struct str payload)
{
    struct rpc_req *req = s->waiting;
    s->waiting = NULL;
    s->is_woken = false;
    rpc_reply(req, payload, NULL, 0);
}

/* Sends what may be sent, when somebody waits for it. */
static void flush(struct session *s)
{
    struct chunk *c = s->head;
    if (!s->waiting || (!s->is_woken && (!c || c->safe_n == 0))) {
        return;
    }
    if (!c || c->safe_n == 0) {
        answer_waiting(s, STR(""));
        return;
    }
    answer_waiting(s, str_n(c->b.p, c->safe_n));
    s->queued -= c->safe_n;
    if (c->safe_n == c->b.n) {
        s->head = c->next;
        if (!s->head) {
            s->last = NULL;
        }
        chunk_free(c);
    } else {
        buf_drop(&c->b, c->safe_n);
        c->safe_n = 0;
    }
    if (s->is_full && s->queued < FULL_SIZE / 2) {
        set_paused(s, false);
    }
}

static void on_event(void *ctx, const struct kv_event *ev)
{
    struct watch *w = ctx;
    struct session *s = w->s;
    pthread_mutex_lock(&s->mu);
    w->is_listing = ev->type == KV_EVENT_RESET || (w->is_listing && ev->type != KV_EVENT_SYNC);
    struct chunk *c = open_chunk(s);
    size_t before = c->b.n;
    kvp_put_event(&c->b, w->id, ev);
    s->queued += c->b.n - before;
    if (w->is_listing || ev->type == KV_EVENT_SYNC) {
        c->safe_n = c->b.n;
        c->is_closed = c->b.n >= CHUNK_SIZE;
    }
    if (!s->is_full && s->queued >= FULL_SIZE) {
        set_paused(s, true);
    }
    flush(s);
    pthread_mutex_unlock(&s->mu);
}

/* ---- sessions ---- */

struct session *session_find(struct state *st, const struct rpc_conn *conn)
{
    struct session *s = st->sessions;
    while (s && s->conn != conn) {
        s = s->next;
    }
    return s;
}

int session_service(const struct session *s)
{
    return s->service;
}

void session_end(struct state *st, struct session *s)
{
    if (!s) {
        return;
    }
    for (struct session **at = &st->sessions; *at; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    /* Out of the list first: a call-back of one watch pauses all that are in it. */
    pthread_mutex_lock(&s->mu);
    struct watch *watches = s->watches;
    s->watches = NULL;
    pthread_mutex_unlock(&s->mu);
    while (watches) {
        struct watch *w = watches;
        watches = w->next;
        kv_watch_stop(w->w); /* without the lock: a call-back may wait for it */
        free(w);
    }
    if (s->waiting) {
        struct err err = ERR_INIT;
        fail(&err, -EPROTO, "HelloFirst", "the session has ended");
        rpc_reply_err(s->waiting, &err);
    }
    while (s->head) {
        struct chunk *c = s->head;
        s->head = c->next;
        chunk_free(c);
    }
    log_debug("session.ended", KV_CSTR("service", rights_name(s->service)));
    rpc_conn_unref(s->conn);
    pthread_mutex_destroy(&s->mu);
    free(s);
}

static int check_hello(struct state *st, const struct rpc_peer *peer, struct str payload,
                       int *ret_service, struct err *err)
{
    struct kvp_hello m = {0};
    int r = kvp_get_hello(payload, &m, err);
    if (r < 0) {
        return r;
    }
    if (m.version != KVP_VERSION) {
        return fail(err, -EPROTONOSUPPORT, "BadVersion",
                    "version %u of the store's protocol: this spx-state speaks %d", m.version,
                    KVP_VERSION);
    }
    int service = rights_service(m.service);
    if (service < 0 || !rights_may_be(service, peer->uid, st->uid_base)) {
        log_warn_rl("hello.refused", KV_STR("service", m.service), KV_U64("uid", peer->uid),
                    KV_I64("pid", peer->pid));
        fail(err, -EPERM, "AccessDenied", "a process of uid %u may not be the service \"%.*s\"",
             peer->uid, STR_ARG(m.service));
        err_hint(err, "run the command as root; services are started by systemd or spx up");
        return -EPERM;
    }
    *ret_service = service;
    return 0;
}

int session_hello(struct state *st, struct rpc_req *req, struct str payload, uint64_t *ret_id,
                  struct err *err)
{
    int service = 0;
    int r = check_hello(st, rpc_req_peer(req), payload, &service, err);
    session_end(st, session_find(st, rpc_req_conn(req)));
    if (r < 0) {
        return r;
    }
    struct session *s = calloc(1, sizeof(*s));
    if (!s) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a session");
    }
    s->st = st;
    s->service = service;
    s->conn = rpc_conn_ref(rpc_req_conn(req));
    s->id = rand_u64() | 1;
    pthread_mutex_init(&s->mu, NULL);
    s->next = st->sessions;
    st->sessions = s;
    *ret_id = s->id;
    log_debug("session.begun", KV_CSTR("service", rights_name(service)),
              KV_I64("pid", rpc_req_peer(req)->pid));
    return 0;
}

void sessions_tick(struct state *st, uint64_t now_ns)
{
    for (struct session *s = st->sessions; s; s = s->next) {
        pthread_mutex_lock(&s->mu);
        if (s->waiting && now_ns - s->waiting_since_ns >= HOLD_NS) {
            answer_waiting(s, STR(""));
        }
        pthread_mutex_unlock(&s->mu);
    }
}

/* ---- watches ---- */

static int check_session(const struct session *s, uint64_t id, struct err *err)
{
    return s->id == id ? 0 : fail(err, -EPROTO, "HelloFirst", "another session has begun");
}

static struct watch *watch_find(struct session *s, uint32_t id)
{
    struct watch *w = s->watches;
    while (w && w->id != id) {
        w = w->next;
    }
    return w;
}

static int check_watch(struct session *s, const struct kvp_watch *m, struct err *err)
{
    int r = check_session(s, m->session, err);
    if (r < 0) {
        return r;
    }
    if (!rights_may_read(s->service, m->prefix, true)) {
        return fail(err, -EPERM, "AccessDenied", "%s may not read all of \"%.*s\"",
                    rights_name(s->service), STR_ARG(m->prefix));
    }
    if (watch_find(s, m->id)) {
        return fail(err, -EEXIST, "WatchExists", "watch %u is there already", m->id);
    }
    if (s->n_watches >= KVP_MAX_WATCHES) {
        return fail(err, -E2BIG, "TooManyWatches", "more than %u watches", KVP_MAX_WATCHES);
    }
    pthread_mutex_lock(&s->mu);
    bool is_busy = s->queued >= BUSY_SIZE;
    pthread_mutex_unlock(&s->mu);
    return is_busy ? fail(err, -EBUSY, "SlowDown", "fetch the events that wait first") : 0;
}

int session_watch(struct session *s, struct str payload, struct err *err)
{
    struct kvp_watch m = {0};
    int r = kvp_get_watch(payload, &m, err);
    if (r == 0) {
        r = check_watch(s, &m, err);
    }
    if (r < 0) {
        return r;
    }
    struct watch *w = calloc(1, sizeof(*w));
    if (!w) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a watch");
    }
    w->s = s;
    w->id = m.id;
    /* The lock keeps call-backs out until w->w is there for pausing. */
    pthread_mutex_lock(&s->mu);
    r = kv_watch_start(s->st->kv, m.prefix, m.from_rev, on_event, w, &w->w, err);
    if (r == 0) {
        w->next = s->watches;
        s->watches = w;
        s->n_watches++;
        if (s->is_full) {
            kv_watch_pause(w->w);
        }
    }
    pthread_mutex_unlock(&s->mu);
    if (r < 0) {
        free(w);
    }
    return r;
}

int session_unwatch(struct session *s, struct str payload, struct err *err)
{
    struct kvp_unwatch m = {0};
    int r = kvp_get_unwatch(payload, &m, err);
    if (r == 0) {
        r = check_session(s, m.session, err);
    }
    struct watch *w = r < 0 ? NULL : watch_find(s, m.id);
    if (!w) {
        return r;
    }
    pthread_mutex_lock(&s->mu);
    for (struct watch **at = &s->watches; *at; at = &(*at)->next) {
        if (*at == w) {
            *at = w->next;
            break;
        }
    }
    s->n_watches--;
    pthread_mutex_unlock(&s->mu);
    kv_watch_stop(w->w); /* without the lock: a call-back may wait for it */
    free(w);
    return 0;
}

int session_events(struct session *s, struct str payload, struct rpc_req *req, struct err *err)
{
    uint64_t id = 0;
    int r = kvp_get_u64(payload, &id, err);
    if (r == 0) {
        r = check_session(s, id, err);
    }
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&s->mu);
    if (s->waiting) {
        r = fail(err, -EALREADY, "AlreadyWaiting", "one request for events is waiting");
    } else {
        s->waiting = req;
        s->waiting_since_ns = time_mono_ns();
        flush(s);
    }
    pthread_mutex_unlock(&s->mu);
    return r;
}

void session_wake(struct session *s)
{
    pthread_mutex_lock(&s->mu);
    s->is_woken = true;
    flush(s);
    pthread_mutex_unlock(&s->mu);
}
