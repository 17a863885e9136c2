#include "net/service_jobs.h"

#include "loop/pool.h"

#include <errno.h>
#include <unistd.h>

struct job {
    struct service_job pub;
    const struct service_jobs *s;
    struct rpc_req *req;
    struct str method, payload;
};

static int run(struct job *j, struct buf *out, struct err *err)
{
    AUTO(json_freep) struct json *rq = NULL;
    int r = json_parse(j->payload.n > 0 ? j->payload : STR("{}"), &rq, err);
    if (r < 0) {
        return r;
    }
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w, NULL);
    for (size_t i = 0; i < j->s->n_methods; i++) {
        if (str_eqc(j->method, j->s->methods[i].name)) {
            r = j->s->methods[i].fn(&j->pub, rq, &w, err);
            jw_obj_end(&w);
            return r;
        }
    }
    return fail(err, -ENOSYS, "UnknownMethod", "%s has no method '%.*s'", j->s->name,
                STR_ARG(j->method));
}

static void work(void *ctx)
{
    struct job *j = ctx;
    struct err e = ERR_INIT;
    AUTO_BUF out;
    buf_init(&out, RPC_MAX_SIZE / 2);
    if (run(j, &out, &e) < 0) {
        rpc_reply_err(j->req, &e);
    } else {
        rpc_reply(j->req, buf_str(&out), NULL, 0);
    }
    arena_free(j->pub.a); /* 'j' lives in it */
}

void service_jobs_request(const struct service_jobs *s, struct rpc_req *req, struct str method,
                          struct str payload, int *fds, size_t n_fds)
{
    struct err e = ERR_INIT;
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
    if (service_admin_handle(s->svc, method, payload, req)) {
        return;
    }
    uid_t uid = rpc_req_peer(req)->uid;
    if (uid != 0 && uid != getuid()) {
        fail(&e, -EPERM, "AccessDenied", "%s", s->refusal);
        rpc_reply_err(req, &e);
        return;
    }
    struct arena *a = arena_new(s->arena_max);
    struct job *j = arena_new_of(a, struct job);
    *j = (struct job){.pub = {.ctx = s->ctx, .a = a},
                      .s = s,
                      .req = req,
                      .method = arena_str_dup(a, method),
                      .payload = arena_str_dup(a, payload)};
    if (!j->method.p || (payload.n > 0 && !j->payload.p) ||
        pool_submit(s->pool, work, NULL, NULL, j) < 0) {
        fail(&e, -EAGAIN, "SlowDown", "%s is busy: try again", s->name);
        rpc_reply_err(req, &e);
        arena_free(a);
    }
}
