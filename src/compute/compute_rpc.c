/* compute.sock: what others ask this service. See docs/architecture.md. */
#include "base/log.h"
#include "base/time.h"
#include "codec/base64.h"
#include "codec/json.h"
#include "compute/compute_int.h"
#include "compute/console_log.h"
#include <errno.h>
#include <stdio.h>

LOG_MODULE("compute.rpc");

#define ANSWER_MAX (4u << 20)

static void refuse(struct rpc_req *req, const struct err *err)
{
    if (err->code ==
        -ENOENT) { /* an instance that has printed nothing yet is asked for often */
        log_debug("request.refused", KV_ERR(err));
    } else {
        log_info_rl("request.refused", KV_ERR(err));
    }
    rpc_reply_err(req, err);
}

static int instance_of(struct compute *c, const struct json *args, char id[GUEST_ID_MAX],
                       struct guest **ret_guest, struct err *err)
{
    struct str s = json_get_str(args, "instance_id"), account = json_get_str(args, "account");
    if (!guest_id_is_ok(s)) {
        return fail(err, -EINVAL, "BadArgument", "instance_id is missing or malformed");
    }
    (void)snprintf(id, GUEST_ID_MAX, "%.*s", STR_ARG(s));
    struct guest *g = compute_guest(c, id);
    if (!g || !str_eqc(account, g->account)) {
        return fail(err, -ENOENT, "NoSuchInstance",
                    "this node has no instance %s of that account", id);
    }
    *ret_guest = g;
    return 0;
}

static int console_get(struct compute *c, const struct json *args, struct jw *w,
                       struct err *err)
{
    char id[GUEST_ID_MAX], dir[GUEST_DATA_PATH_MAX];
    struct guest *g = NULL;
    int r = instance_of(c, args, id, &g, err);
    if (r == 0) {
        r = guest_data_path(&c->spawn.dirs, id, dir, err);
    }
    if (r < 0) {
        return r;
    }
    AUTO_BUF text, b64;
    buf_init(&text, CONSOLE_TAIL_MAX * 2 + 16);
    buf_init(&b64, CONSOLE_TAIL_MAX * 2);
    uint64_t changed_ns = 0;
    r = console_log_tail(dir, CONSOLE_TAIL_MAX, &text, &changed_ns, err);
    if (r < 0) {
        return r;
    }
    if (text.n == 0) {
        return fail(err, -ENOENT, "NoConsole", "instance %s has printed nothing yet", id);
    }
    base64_encode(buf_str(&text), &b64);
    jw_str(w, "text", buf_str(&b64));
    jw_u64(w, "taken_ns", changed_ns);
    return buf_ok(&b64) ? 0
                        : fail(err, -ENOMEM, "InternalError", "no memory for the console text");
}

static int console_input(struct compute *c, const struct json *args, struct jw *w,
                         struct err *err)
{
    (void)w;
    char id[GUEST_ID_MAX];
    struct guest *g = NULL;
    int r = instance_of(c, args, id, &g, err);
    if (r < 0) {
        return r;
    }
    AUTO_BUF data;
    buf_init(&data, GM_TEXT_MAX);
    if (base64_decode(json_get_str(args, "data"), &data) < 0 || data.n == 0) {
        return fail(err, -EINVAL, "BadArgument", "data is not base64 of 1 to %u bytes",
                    GM_TEXT_MAX);
    }
    if (g->conn_fd < 0 || g->proc != VM_PROC_RUNNING) {
        return fail(err, -ENOTCONN, "NotRunning", "instance %s does not run", id);
    }
    guest_send_now(g, GM_OP_INPUT, buf_str(&data));
    return 0;
}

static int guests(struct compute *c, const struct json *args, struct jw *w, struct err *err)
{
    (void)args;
    (void)err;
    static const char *const procs[VM_PROC_N] = {"none", "launching", "running", "ended"};
    jw_arr(w, "guests");
    omap_foreach_prefix(n, c->guests, STR(""))
    {
        const struct guest *g = omap_value(n);
        const struct instance *s = guest_spec(g);
        jw_obj(w, NULL);
        jw_cstr(w, "id", g->id);
        jw_cstr(w, "account", g->account);
        jw_cstr(w, "state", instance_state_name(g->fsm.state));
        jw_cstr(w, "process", procs[g->proc]);
        jw_u64(w, "pid", (uint64_t)g->note.qemu.pid);
        jw_u64(w, "monitor_pid", (uint64_t)g->note.monitor.pid);
        jw_u64(w, "uid", g->has_note ? g->note.uid : 0);
        jw_cstr(w, "accel", g->has_note ? g->note.accel : "");
        jw_bool(w, "is_monitored", g->has_state);
        jw_bool(w, "is_monitor_replaced", g->mon.is_adopted);
        jw_u64(w, "n_guest_resets", g->mon.n_resets);
        jw_u64(w, "console_bytes", g->mon.console_bytes);
        jw_u64(w, "n_vcpus", s ? s->n_vcpus : 0);
        jw_u64(w, "memory_mib", s ? s->memory_mib : 0);
        jw_cstr(w, "system_check", g->system_check);
        jw_cstr(w, "instance_check", g->instance_check);
        jw_cstr(w, "reason", g->fsm.reason_message);
        jw_obj_end(w);
    }
    jw_arr_end(w);
    return 0;
}

static const struct method {
    const char *name;
    int (*run)(struct compute *, const struct json *, struct jw *, struct err *);
} methods[] = {
    {"console.get", console_get}, {"console.input", console_input}, {"guests", guests}};

static int answer(struct compute *c, struct rpc_req *req, struct str method, struct str payload,
                  struct buf *out, struct err *err)
{
    uid_t uid = rpc_req_peer(req)->uid;
    uid_t gateway =
        (uid_t)(c->o.cfg->uid_base ? c->o.cfg->uid_base + CONFIG_UID_AWSGW : geteuid());
    if (uid != 0 && uid != geteuid() && uid != gateway) {
        return fail(err, -EPERM, "AccessDenied", "this user may not ask about guests");
    }
    const struct method *m = NULL;
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        m = str_eqc(method, methods[i].name) ? &methods[i] : m;
    }
    if (!m) {
        return fail(err, -ENOSYS, "UnknownMethod", "there is no method %.*s",
                    (int)MIN(method.n, (size_t)60), method.p);
    }
    AUTO(json_freep) struct json *args = NULL;
    int r = json_parse(payload.n ? payload : STR("{}"), &args, err);
    if (r < 0) {
        return r;
    }
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w, NULL);
    r = m->run(c, args, &w, err);
    if (r < 0) {
        return r;
    }
    jw_obj_end(&w);
    return buf_ok(out) ? 0 : fail(err, -ENOMEM, "InternalError", "the answer is too large");
}

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct compute *c = ctx;
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
    if (c->o.service && service_admin_handle(c->o.service, method, payload, req)) {
        return;
    }
    AUTO_BUF out;
    buf_init(&out, ANSWER_MAX);
    struct err err = ERR_INIT;
    if (answer(c, req, method, payload, &out, &err) < 0) {
        refuse(req, &err);
    } else {
        rpc_reply(req, buf_str(&out), NULL, 0);
    }
}

int compute_rpc_start(struct compute *c, struct err *err)
{
    static const struct rpc_server_ops ops = {.on_request = on_request};
    AUTO(arena_freep) struct arena *a = arena_new(1u << 16);
    /* Everybody may connect: who may ask is decided per request, by the kernel's word about the
     * peer. */
    return rpc_server_new(c->o.loop, config_run_path(a, c->o.cfg, "compute.sock"), 0666, &ops,
                          c, &c->rpc, err);
}
