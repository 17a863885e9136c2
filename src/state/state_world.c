#include "state/state_world.h"

#include "net/rpc.h"

#include <stdio.h>
#include <sys/stat.h>

const char *world_exe = "spx-state";

void world_init(struct world *w)
{
    world_init_as(w, 0, NULL);
}

void world_init_as(struct world *w, unsigned uid_base, const char *data_dir)
{
    char text[512], data[PATH_MAX];
    tmpdir_init(&w->dir, "state");
    tmpdir_path(&w->dir, "state.sock", w->sock);
    tmpdir_path(&w->dir, "state.log", w->log);
    tmpdir_path(&w->dir, "data", data);
    snprintf(text, sizeof(text),
             "version = 4\nnode = \"n\"\n[nodes.n]\nuid_base = %u\ndata_dir = \"%.150s\"\n"
             "run_dir = \"%.150s\"\n",
             uid_base, data_dir ? data_dir : data, w->dir.path);
    tmpdir_write(&w->dir, "spinifex.toml", text, w->config);
    w->argv[0] = world_exe;
    w->argv[1] = "--config";
    w->argv[2] = w->config;
    w->argv[3] = NULL;
    struct daemon_opts o = {.argv = w->argv, .log_path = w->log, .health_socket = w->sock};
    struct err err = ERR_INIT;
    if (daemon_start(&o, &w->d, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

void world_done(struct world *w)
{
    if (daemon_is_alive(w->d)) {
        assert_int_equal(daemon_stop(w->d, WAIT_NS), 0); /* no leak, no broken rule either */
    }
    daemon_free(w->d);
    tmpdir_done(&w->dir);
}

struct kv *world_open(const struct world *w, const char *service)
{
    struct kv *kv = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(kv_open_remote_as(w->sock, service, &kv, &err), 0);
    return kv;
}

int world_put(struct kv *kv, const char *key, const char *value, struct err *err)
{
    struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_c(value)};
    return kv_txn(kv, NULL, 0, &op, 1, NULL, err);
}

bool world_has(struct kv *kv, const char *key, const char *value)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct kv_item item = {0};
    return kv_get(kv, a, str_c(key), &item, NULL) == 0 && str_eqc(item.value, value);
}

int world_ask(const struct world *w, const char *method, const char *payload, int fd,
              char **ret, struct err *err)
{
    struct rpc_client *c = rpc_client_new(w->sock, NULL, NULL);
    struct rpc_reply reply;
    int r =
        rpc_call(c, str_c(method), str_c(payload), &fd, fd >= 0 ? 1 : 0, WAIT_NS, &reply, err);
    if (r == 0) {
        *ret = strndup(reply.payload, reply.n);
        rpc_reply_done(&reply);
    }
    rpc_client_free(c);
    return r;
}
