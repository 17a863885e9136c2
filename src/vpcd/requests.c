#include "vpcd/vpcd_int.h"

#include "base/arena.h"
#include "base/time.h"
#include "codec/json.h"
#include "model/keys.h"
#include "os/tun.h"

#include <errno.h>
#include <stdio.h>

LOG_MODULE("vpcd.requests");

#define ASK_TIMEOUT_NS (10 * NS_PER_S)
#define ASKS_MAX       256u

static void copy_str(char *out, size_t size, struct str s)
{
    snprintf(out, size, "%.*s", (int)MIN(s.n, size - 1), s.p ? s.p : "");
}

static int parse_ask(struct str method, struct str payload, struct ask *ask, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    int r = json_parse(payload, &j, err);
    if (r) {
        return r;
    }
    struct str id = json_get_str(j, "eni_id"), account = json_get_str(j, "account");
    uint64_t n = json_get_u64(j, "n_queues", 1);
    if (!id_is_wellformed(id, "eni") || (account.n && account.n != ACCOUNT_ID_LEN)) {
        return fail(err, -EINVAL, "BadRequest", "account or eni_id is missing or malformed");
    }
    if (n < 1 || n > TUN_MAX_QUEUES) {
        return fail(err, -EINVAL, "BadRequest", "n_queues is 1 to %d", TUN_MAX_QUEUES);
    }
    copy_str(ask->account, sizeof(ask->account), account);
    copy_str(ask->eni_id, sizeof(ask->eni_id), id);
    ask->n_queues = (unsigned)n;
    ask->is_vhost_wanted = json_get_bool(j, "is_vhost_wanted", false);
    if (str_eqc(method, "eni.open")) {
        ask->kind = ASK_OPEN;
        return account.n ? 0 : fail(err, -EINVAL, "BadRequest", "account is missing");
    }
    ask->kind = ASK_STATE;
    return str_eqc(method, "eni.state")
               ? 0
               : fail(err, -ENOSYS, "UnknownMethod", "%.*s: no such method", STR_ARG(method));
}

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct vpcd *v = ctx;
    struct err err = ERR_INIT;
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
    if (service_admin_handle(v->service, method, payload, req)) {
        return;
    }
    uid_t uid = rpc_req_peer(req)->uid;
    struct ask ask = {.req = req, .deadline_ns = time_mono_ns() + ASK_TIMEOUT_NS};
    int r = uid == 0 || uid == getuid() ? parse_ask(method, payload, &ask, &err)
                                        : fail(&err, -EPERM, "AccessDenied", "root only");
    pthread_mutex_lock(&v->mu);
    if (!r && v->asks.n >= ASKS_MAX) {
        r = fail(&err, -EAGAIN, "Busy", "too many requests wait");
    }
    if (!r) {
        vec_push(&v->asks, ask);
    }
    pthread_mutex_unlock(&v->mu);
    if (r) {
        rpc_reply_err(req, &err);
        return;
    }
    vpcd_poke(v);
}

int vpcd_listen(struct vpcd *v, struct err *err)
{
    static const struct rpc_server_ops ops = {.on_request = on_request};
    AUTO(arena_freep) struct arena *a = arena_new(65536);
    return rpc_server_new(v->service->loop, config_run_path(a, v->cfg, "vpcd.sock"), 0666, &ops,
                          v, &v->rpc, err);
}

/* ---- answers, on the reconciler's thread ---- */

static const struct plan_eni *find(const struct plan *p, const struct ask *ask,
                                   const struct plan_vpc **ret_vpc)
{
    for (size_t i = 0; p && i < p->n_vpcs; i++) {
        for (size_t k = 0; k < p->vpcs[i].n_enis; k++) {
            const struct plan_eni *e = &p->vpcs[i].enis[k];
            if (str_eqc(e->spec->id, ask->eni_id) &&
                (!ask->account[0] || str_eqc(e->spec->account, ask->account))) {
                *ret_vpc = &p->vpcs[i];
                return e;
            }
        }
    }
    return NULL;
}

static void reply_open(struct vpcd *v, const struct ask *ask, const struct plan_eni *e,
                       const int *fds, unsigned n_vhost)
{
    AUTO_BUF b;
    struct jw w;
    buf_init(&b, 1024);
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    jw_str(&w, "mac", e->spec->mac);
    jw_u64(&w, "mtu", v->cfg->guest_mtu);
    jw_bool(&w, "is_vnet_hdr", true);
    jw_u64(&w, "n_queues", ask->n_queues);
    jw_u64(&w, "n_vhost", n_vhost);
    jw_obj_end(&w);
    rpc_reply(ask->req, buf_str(&b), fds, ask->n_queues + n_vhost);
}

static int answer_open(struct vpcd *v, const struct ask *ask, const struct plan_vpc *pv,
                       const struct plan_eni *e, struct err *err)
{
    int fds[2 * TUN_MAX_QUEUES];
    int r = native_open_tap(v->native, pv, e, ask->n_queues, fds, err);
    if (r) {
        return r;
    }
    /* A vhost descriptor for each queue where one message can carry them; without, QEMU copies
     * itself. */
    unsigned n_vhost =
        ask->is_vhost_wanted && 2 * ask->n_queues <= RPC_MAX_FDS ? ask->n_queues : 0;
    if (n_vhost && tun_open_vhost(n_vhost, fds + ask->n_queues, NULL)) {
        n_vhost = 0;
    }
    reply_open(v, ask, e, fds, n_vhost);
    for (unsigned i = 0; i < ask->n_queues + n_vhost; i++) {
        close(fds[i]);
    }
    log_info("eni.opened", KV_STR("eni", e->spec->id), KV_U64("queues", ask->n_queues),
             KV_U64("vhost", n_vhost));
    return 0;
}

static int answer_state(struct vpcd *v, const struct ask *ask, const struct plan_vpc *pv,
                        const struct plan_eni *e, struct err *err)
{
    bool is_up = false;
    int r = native_has_carrier(v->native, pv, e, &is_up, err);
    if (!r) {
        rpc_reply(ask->req,
                  is_up ? STR("{\"is_link_up\":true}") : STR("{\"is_link_up\":false}"), NULL,
                  0);
    }
    return r;
}

/* True: it was answered. */
static bool answer(struct vpcd *v, const struct ask *ask, const struct plan *p,
                   const struct err *why)
{
    struct err err = ERR_INIT;
    const struct plan_vpc *pv = NULL;
    const struct plan_eni *e = find(p, ask, &pv);
    int r = -ENOENT;
    if (e && native_ifindex(v->native, pv->spec->id, e->spec->id)) {
        r = ask->kind == ASK_OPEN ? answer_open(v, ask, pv, e, &err)
                                  : answer_state(v, ask, pv, e, &err);
    } else if (ask->kind == ASK_OPEN && time_mono_ns() < ask->deadline_ns) {
        return false; /* the record may be on its way */
    } else if (why) {
        r = fail(&err, -EAGAIN, "NotReady", "%s is not ready: %s", ask->eni_id, why->msg);
    } else {
        r = fail(&err, -ENOENT, "NotReady", "%s: no such interface on this node", ask->eni_id);
    }
    if (r) {
        log_warn_rl("request.failed", KV_CSTR("eni", ask->eni_id), KV_ERR(&err));
        rpc_reply_err(ask->req, &err);
    }
    return true;
}

void vpcd_answer_asks(struct vpcd *v, const struct plan *p, const struct err *why)
{
    VEC(struct ask) mine = {0};
    pthread_mutex_lock(&v->mu);
    for (size_t i = 0; i < v->asks.n; i++) {
        vec_push(&mine, v->asks.v[i]);
    }
    v->asks.n = 0;
    pthread_mutex_unlock(&v->mu);
    for (size_t i = 0; i < mine.n; i++) {
        if (!answer(v, &mine.v[i], p, why)) {
            pthread_mutex_lock(&v->mu);
            vec_push(&v->asks, mine.v[i]);
            pthread_mutex_unlock(&v->mu);
        }
    }
    vec_free(&mine);
}
