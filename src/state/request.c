#include "state/state.h"

#include "base/log.h"
#include "kv/kv_proto.h"
#include "state/rights.h"

#include <errno.h>

LOG_MODULE("state.request");

#define ANSWER_MAX (4u << 20)
#define ARENA_MAX  (6u << 20)

/* A request that leaves the loop: a copy of its bytes, and who asked. */
struct job {
    struct state *st;
    struct rpc_req *req;
    struct arena *a;
    struct str payload;
    int service;
    struct kvp_txn txn;
};

static struct job *job_new(struct state *st, const struct session *s, struct rpc_req *req,
                           struct str payload)
{
    struct job *j = calloc(1, sizeof(*j));
    if (!j) {
        return NULL;
    }
    j->st = st;
    j->req = req;
    j->service = session_service(s);
    j->a = arena_new(ARENA_MAX);
    j->payload = arena_str_dup(j->a, payload.p ? payload : STR(""));
    if (!j->payload.p) {
        arena_free(j->a);
        free(j);
        return NULL;
    }
    return j;
}

static void job_free(struct job *j)
{
    arena_free(j->a);
    free(j);
}

static void job_answer(struct job *j, const struct buf *b, int r, struct err *err)
{
    if (r == 0 && !buf_ok(b)) {
        r = fail(err, -E2BIG, "TooLarge", "the answer does not fit a message");
    }
    if (r < 0) {
        rpc_reply_err(j->req, err);
    } else {
        rpc_reply(j->req, buf_str(b), NULL, 0);
    }
    job_free(j);
}

static int denied(int service, const char *what, struct str key, struct err *err)
{
    log_warn_rl("access.denied", KV_CSTR("service", rights_name(service)),
                KV_CSTR("what", what), KV_STR("key", key));
    return fail(err, -EPERM, "AccessDenied", "%s may not %s %.*s", rights_name(service), what,
                STR_ARG(key));
}

static int do_get(struct job *j, struct buf *out, struct err *err)
{
    struct str key = STR_NONE;
    struct kv_item item = {0};
    int r = kvp_get_key(j->payload, &key, err);
    if (r == 0 && !rights_may_read(j->service, key, false)) {
        r = denied(j->service, "read", key, err);
    }
    if (r == 0) {
        r = kv_get(j->st->kv, j->a, key, &item, err);
    }
    if (r == 0) {
        kvp_put_item(out, &item);
    }
    return r;
}

static int do_list(struct job *j, struct buf *out, struct err *err)
{
    struct kvp_list m = {0};
    struct kv_list list = {0};
    int r = kvp_get_list(j->payload, &m, err);
    if (r == 0 && !rights_may_read(j->service, m.prefix, true)) {
        r = denied(j->service, "read", m.prefix, err);
    }
    if (r == 0) {
        r = kv_list(j->st->kv, j->a, m.prefix, m.after, m.limit, &list, err);
    }
    if (r == 0) {
        kvp_put_list_reply(out, &list);
    }
    return r;
}

static int do_grant(struct job *j, struct buf *out, struct err *err)
{
    uint32_t ttl_s = 0;
    uint64_t lease = 0;
    int r = kvp_get_u32(j->payload, &ttl_s, err);
    if (r == 0) {
        r = kv_lease_grant_tagged(j->st->kv, (uint8_t)(j->service + 1), ttl_s, &lease, err);
    }
    if (r == 0) {
        kvp_put_u64(out, lease);
    }
    return r;
}

static int check_lease(int service, uint64_t lease, struct err *err)
{
    if (kv_lease_tag(lease) != service + 1 && !rights_is_admin(service)) {
        return fail(err, -EPERM, "AccessDenied", "the lease is not %s's", rights_name(service));
    }
    return 0;
}

static int get_lease(struct job *j, uint64_t *ret, struct err *err)
{
    int r = kvp_get_u64(j->payload, ret, err);
    return r < 0 ? r : check_lease(j->service, *ret, err);
}

static int do_keepalive(struct job *j, struct buf *out, struct err *err)
{
    (void)out;
    uint64_t lease = 0;
    int r = get_lease(j, &lease, err);
    return r < 0 ? r : kv_lease_keepalive(j->st->kv, lease, err);
}

static int do_revoke(struct job *j, struct buf *out, struct err *err)
{
    (void)out;
    uint64_t lease = 0;
    int r = get_lease(j, &lease, err);
    return r < 0 ? r : kv_lease_revoke(j->st->kv, lease, err);
}

/* ---- transactions: no thread waits for the disk ---- */

static int check_rights(const struct job *j, struct err *err)
{
    for (size_t i = 0; i < j->txn.n_cmp; i++) {
        if (!rights_may_read(j->service, j->txn.cmp[i].key, false)) {
            return denied(j->service, "read", j->txn.cmp[i].key, err);
        }
    }
    for (size_t i = 0; i < j->txn.n_op; i++) {
        const struct kv_op *op = &j->txn.op[i];
        bool is_put = op->type == KV_PUT;
        if (!rights_may_write(j->service, is_put ? RIGHT_PUT : RIGHT_DELETE, op->key)) {
            return denied(j->service, is_put ? "write" : "delete", op->key, err);
        }
        int r = is_put && op->lease ? check_lease(j->service, op->lease, err) : 0;
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static void on_txn(void *ctx, int rc, uint64_t rev, const struct err *err)
{
    struct job *j = ctx;
    struct err copy = *err;
    AUTO_BUF b;
    buf_init(&b, 64);
    kvp_put_u64(&b, rev);
    job_answer(j, &b, rc, &copy);
}

static int start_txn(struct job *j, struct err *err)
{
    int r = kvp_get_txn(j->payload, j->a, &j->txn, err);
    if (r == 0) {
        r = check_rights(j, err);
    }
    if (r == 0) {
        r = kv_txn_start(j->st->kv, j->txn.cmp, j->txn.n_cmp, j->txn.op, j->txn.n_op, on_txn, j,
                         err);
    }
    return r;
}

/* ---- dispatch ---- */

#define POOL_JOB(name)                \
    static void name##_job(void *ctx) \
    {                                 \
        struct job *j = ctx;          \
        struct err err = ERR_INIT;    \
        AUTO_BUF b;                   \
        buf_init(&b, ANSWER_MAX);     \
        int r = name(j, &b, &err);    \
        job_answer(j, &b, r, &err);   \
    }
POOL_JOB(do_get)
POOL_JOB(do_list)
POOL_JOB(do_grant)
POOL_JOB(do_keepalive)
POOL_JOB(do_revoke)

static const struct {
    const char *method;
    loop_fn fn;
    bool waits_for_disk; /* runs on the pool; else here, without blocking */
} jobs[] = {
    {"get", do_get_job, true},
    {"list", do_list_job, true},
    {"lease.grant", do_grant_job, true},
    {"lease.keepalive", do_keepalive_job, false},
    {"lease.revoke", do_revoke_job, true},
};

static int start_job(struct state *st, const struct session *s, struct rpc_req *req,
                     struct str method, struct str payload, struct err *err)
{
    struct job *j = job_new(st, s, req, payload);
    if (!j) {
        return fail(err, -E2BIG, "TooLarge", "a request of %zu bytes", payload.n);
    }
    int r = 0;
    if (str_eqc(method, "txn")) {
        r = start_txn(j, err);
        if (r < 0) {
            job_free(j);
        }
        return r;
    }
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        if (!str_eqc(method, jobs[i].method)) {
            continue;
        }
        if (!jobs[i].waits_for_disk) {
            jobs[i].fn(j);
            return 0;
        }
        if (pool_submit(st->pool, jobs[i].fn, NULL, NULL, j) == 0) {
            return 0;
        }
        job_free(j);
        return fail(err, -EBUSY, "SlowDown", "too many requests wait");
    }
    job_free(j);
    return fail(err, -ENOSYS, "UnknownMethod", "%.*s: not a method of spx-state",
                STR_ARG(method));
}

static void reply_hello(struct state *st, struct rpc_req *req, struct str payload)
{
    struct err err = ERR_INIT;
    struct kvp_hello_reply m = {0};
    if (session_hello(st, req, payload, &m.session, &err) < 0) {
        rpc_reply_err(req, &err);
        return;
    }
    m.rev = kv_revision(st->kv);
    AUTO_BUF b;
    buf_init(&b, 64);
    kvp_put_hello_reply(&b, &m);
    rpc_reply(req, buf_str(&b), NULL, 0);
}

/* Answers itself, or returns an error for the caller to send. */
static int handle(struct state *st, struct session *s, struct rpc_req *req, struct str method,
                  struct str payload, struct err *err)
{
    if (!s) {
        return fail(err, -EPROTO, "HelloFirst", "the connection has not said who it is");
    }
    if (str_eqc(method, "events")) {
        return session_events(s, payload, req, err);
    }
    int r = 0;
    if (str_eqc(method, "watch.start")) {
        r = session_watch(s, payload, err);
    } else if (str_eqc(method, "watch.stop")) {
        r = session_unwatch(s, payload, err);
    } else if (str_eqc(method, "events.wake")) {
        session_wake(s);
    } else {
        return start_job(st, s, req, method, payload, err);
    }
    if (r == 0) {
        rpc_reply(req, STR(""), NULL, 0);
    }
    return r;
}

void state_on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                      int *fds, size_t n_fds)
{
    struct state *st = ctx;
    struct err err = ERR_INIT;
    if (str_eqc(method, "hello")) {
        reply_hello(st, req, payload);
    } else if (!service_admin_handle(&st->service, method, payload, req) &&
               !admin_handle(st, req, method, payload, fds, n_fds)) {
        if (handle(st, session_find(st, rpc_req_conn(req)), req, method, payload, &err) < 0) {
            rpc_reply_err(req, &err);
        }
    }
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
}
