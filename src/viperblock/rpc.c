#include "base/time.h"
#include "base/vec.h"
#include "viperblock/vb_int.h"
#include <errno.h>

LOG_MODULE("viperblock.rpc");

#define MAX_CALLS 256u

struct method {
    const char *name;
    void (*work)(struct vb_call *c);
    bool has_fd, is_long, is_for_gateway;
};
static const struct method methods[] = {
    {.name = "volume.open", .work = call_volume_open},
    {.name = "volume.close", .work = call_volume_close},
    {.name = "volume.nbd", .work = call_volume_nbd},
    {.name = "volume.nbd_end", .work = call_volume_nbd_end},
    {.name = "volume.list", .work = call_volume_list},
    {.name = "volume.check", .work = call_volume_check, .is_long = true},
    {.name = "volume.orphans", .work = call_volume_orphans},
    {.name = "block.list", .work = call_block_list, .is_for_gateway = true},
    {.name = "block.changed", .work = call_block_changed, .is_for_gateway = true},
    {.name = "block.get", .work = call_block_get, .is_for_gateway = true},
    {.name = "block.put", .work = call_block_put, .has_fd = true, .is_for_gateway = true},
    {.name = "image.import", .work = call_image_import, .has_fd = true, .is_long = true},
    {.name = "image.remove", .work = call_image_remove},
};

bool call_is_cancelled(void *call)
{
    struct vb_call *c = call;
    return atomic_load(&c->is_cancelled) || atomic_load(&c->vb->is_stopping);
}

void call_fail(struct vb_call *c, const struct err *err)
{
    log_info("request.refused", KV_ERR(err));
    rpc_reply_err(c->req, err);
    c->req = NULL;
}

void call_reply(struct vb_call *c, struct str payload, const int *fds, size_t n_fds)
{
    rpc_reply(c->req, payload, fds, n_fds);
    c->req = NULL;
}

static void call_work(void *ctx)
{
    struct vb_call *c = ctx;
    if (atomic_load(&c->vb->is_stopping)) {
        struct err err = ERR_INIT;
        fail(&err, -ENOTCONN, "Unavailable", "the block service is stopping");
        call_fail(c, &err);
    } else {
        c->work(c);
    }
}

static void call_free(struct vb_call *c)
{
    json_free(c->args);
    rpc_conn_unref(c->conn);
    if (c->fd >= 0) {
        close(c->fd);
    }
    free(c);
}

static void call_done(void *ctx)
{
    struct vb_call *c = ctx;
    struct vb *vb = c->vb;
    for (size_t i = 0; i < vb->calls.n; i++) {
        if (vb->calls.v[i] == c) {
            vec_remove(&vb->calls, i);
            break;
        }
    }
    call_free(c);
}

static int call_begin(struct vb *vb, struct rpc_req *req, struct str method, struct str payload,
                      int *fd, struct err *err)
{
    const struct method *m = NULL;
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        m = str_eqc(method, methods[i].name) ? &methods[i] : m;
    }
    uid_t uid = rpc_req_peer(req)->uid;
    bool is_gateway = vb->o.gateway_uid != 0 && uid == vb->o.gateway_uid;
    if (uid != 0 && uid != geteuid() && !(is_gateway && m && m->is_for_gateway)) {
        return fail(err, -EPERM, "AccessDenied", "this user may not ask for volumes");
    }
    if (!m) {
        return fail(err, -ENOSYS, "UnknownMethod", "there is no method %.*s",
                    (int)MIN(method.n, (size_t)60), method.p);
    }
    if (m->has_fd != (*fd >= 0)) {
        return fail(err, -EINVAL, "BadArgument",
                    m->has_fd ? "the descriptor of the source is missing"
                              : "a descriptor was not expected");
    }
    if (vb->calls.n >= MAX_CALLS || atomic_load(&vb->is_stopping)) {
        return fail(err, -EAGAIN, "SlowDown", "too many requests are being worked on");
    }
    AUTO(json_freep) struct json *args = NULL;
    int rc = json_parse(payload, &args, err);
    if (rc != 0) {
        return rc;
    }
    struct vb_call *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    *c = (struct vb_call){.vb = vb,
                          .req = req,
                          .conn = rpc_conn_ref(rpc_req_conn(req)),
                          .args = steal(&args),
                          .fd = *fd,
                          .work = m->work};
    if (pool_submit(m->is_long ? vb->import_pool : vb->pool, call_work, vb->o.loop, call_done,
                    c) != 0) {
        c->fd = -1;
        call_free(c);
        return fail(err, -EAGAIN, "SlowDown", "too many requests are waiting");
    }
    *fd = -1;
    vec_push(&vb->calls, c);
    return 0;
}

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct vb *vb = ctx;
    struct err err = ERR_INIT;
    int fd = n_fds == 1 ? fds[0] : -1;
    for (size_t i = 0; i < n_fds && n_fds != 1; i++) {
        close(fds[i]);
    }
    bool is_admin = vb->o.service && n_fds == 0 &&
                    service_admin_handle(vb->o.service, method, payload, req);
    if (!is_admin && call_begin(vb, req, method, payload, &fd, &err) != 0) {
        log_info_rl("request.refused", KV_ERR(&err));
        rpc_reply_err(req, &err);
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* Whoever asked is gone: nobody would learn of the result. */
static void on_close(void *ctx, struct rpc_conn *conn)
{
    struct vb *vb = ctx;
    for (size_t i = 0; i < vb->calls.n; i++) {
        if (vb->calls.v[i]->conn == conn) {
            atomic_store(&vb->calls.v[i]->is_cancelled, true);
        }
    }
}

int calls_start(struct vb *vb, struct err *err)
{
    static const struct rpc_server_ops ops = {.on_request = on_request, .on_close = on_close};
    /* Everybody may connect: who asks is looked at for each request. */
    return rpc_server_new(vb->o.loop, vb->o.socket_path, 0666, &ops, vb, &vb->rpc, err);
}
