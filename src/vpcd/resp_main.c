/* spx-vpc-responder: started by spx-vpcd with its sockets; lives on when vpcd does not. */
#include "vpcd/resp_int.h"

#include "codec/json.h"
#include "net/rpc.h"
#include "net/service.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

LOG_MODULE("resp");

struct control {
    struct resp resp;
    struct service service;
    const char *path;
    struct rpc_server *rpc;
    bool is_failed;
};

static int handle(struct control *c, struct str method, struct str payload, int *fds,
                  size_t *n_fds, struct err *err)
{
    struct facts *f = c->resp.facts;
    if (str_eqc(method, "vpc.set")) {
        return facts_set_vpc(f, payload, err);
    }
    if (str_eqc(method, "eni.set")) {
        return facts_set_eni(f, payload, err);
    }
    if (str_eqc(method, "upstreams.set")) {
        size_t n = *n_fds;
        *n_fds = 0; /* taken, whatever comes of it */
        return resp_dns_set_upstreams(&c->resp, fds, n, err);
    }
    if (str_eqc(method, "sync.begin")) {
        facts_sync_begin(f);
        return 0;
    }
    if (str_eqc(method, "sync.end")) {
        facts_sync_end(f);
        return 0;
    }
    if (str_eqc(method, "ping")) {
        return 0;
    }
    if (str_eqc(method, "eni.del")) {
        struct json *j = NULL;
        int r = json_parse(payload, &j, err);
        if (!r) {
            facts_del_eni(f, json_get_str(j, "id"));
        }
        json_free(j);
        return r;
    }
    return fail(err, -ENOSYS, "UnknownMethod", "%.*s: no such method", STR_ARG(method));
}

static void answer(struct control *c, struct rpc_req *req, struct str method,
                   struct str payload, int *fds, size_t *n_fds)
{
    struct err err = ERR_INIT;
    uid_t uid = rpc_req_peer(req)->uid;
    int r = uid == 0 || uid == getuid()
                ? handle(c, method, payload, fds, n_fds, &err)
                : fail(&err, -EPERM, "AccessDenied", "only spx-vpcd may tell facts");
    if (r) {
        rpc_reply_err(req, &err);
        return;
    }
    rpc_reply(req, STR("{}"), NULL, 0);
}

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct control *c = ctx;
    if (!service_admin_handle(&c->service, method, payload, req)) {
        answer(c, req, method, payload, fds, &n_fds);
    }
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
}

static int take_fds(struct control *c, struct err *err)
{
    if (!c->path) {
        return fail(err, -EINVAL, "BadUsage", "spx-vpcd starts this program");
    }
    for (int i = 0; i < RESP_FD_N; i++) {
        int fd = c->resp.fds[i] = RESP_FD_FIRST + i;
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) ||
            fcntl(fd, F_SETFL, O_NONBLOCK | fcntl(fd, F_GETFL))) {
            return fail(err, -errno, "BadUsage", "descriptor %d: %m", fd);
        }
    }
    return 0;
}

static int start(struct control *c, struct err *err)
{
    static const struct rpc_server_ops ops = {.on_request = on_request};
    int r = take_fds(c, err);
    if (r) {
        return r;
    }
    c->resp.loop = c->service.loop;
    c->resp.facts = facts_new();
    r = rpc_server_new(c->resp.loop, c->path, 0600, &ops, c, &c->rpc, err);
    r = r ? r : resp_dhcp_start(&c->resp, err);
    r = r ? r : resp_ntp_start(&c->resp, err);
    r = r ? r : resp_dns_start(&c->resp, err);
    r = r ? r : resp_http_start(&c->resp, err);
    return r;
}

static void lock_up(void *ctx)
{
    struct control *c = ctx;
    struct err err = ERR_INIT;
    if (resp_sandbox(&err)) {
        c->is_failed = true;
        (void)service_failed(&c->service, &err);
        service_stop(&c->service);
        return;
    }
    log_info("responder.ready");
}

int main(int argc, char **argv)
{
    struct control c = {.path = NULL};
    int status = 1;
    struct service_arg args[] = {
        {"--control", "PATH  socket on which spx-vpcd tells the facts", &c.path},
    };
    if (service_start(&c.service, "spx-vpc-responder", argc, argv, args, ARRAY_LEN(args),
                      &status)) {
        return status;
    }
    struct err err = ERR_INIT;
    if (start(&c, &err)) {
        return service_failed(&c.service, &err);
    }
    /* In the loop's first turn: service_run() makes its signal descriptor before, and that call
     * is not on the list. */
    loop_post(c.service.loop, lock_up, &c);
    status = service_run(&c.service);
    return c.is_failed ? 1 : status;
}
