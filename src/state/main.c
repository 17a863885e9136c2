#include "state/state.h"

#include "base/file.h"
#include "base/log.h"
#include "base/time.h"
#include "model/config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

LOG_MODULE("state.main");

#define TICK_NS (1 * NS_PER_S)

static void on_close(void *ctx, struct rpc_conn *conn)
{
    struct state *st = ctx;
    session_end(st, session_find(st, conn));
}

static void on_tick(void *ctx)
{
    struct state *st = ctx;
    uint64_t now = loop_now_ns(st->service.loop);
    struct kv_stats stats;
    sessions_tick(st, now);
    if (kv_stats(st->kv, &stats) == 0) {
        service_set_status(&st->service, stats.is_failing ? "degraded" : "ok",
                           stats.is_failing ? stats.reason : NULL);
    }
    loop_timer_set(st->tick, now + TICK_NS);
}

/* 'spx admin init' makes the folder; in a source tree it may be missing. */
static int prepare_folder(const char *db_path, uid_t uid, struct err *err)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", db_path);
    char *slash = strrchr(folder, '/');
    struct stat s;
    if (!slash || slash == folder) {
        return 0;
    }
    *slash = '\0';
    if (stat(folder, &s) == 0) {
        return 0;
    }
    int r = file_mkdirs(folder, 0700, err);
    if (r == 0 && uid && chown(folder, uid, uid) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: cannot be given to uid %u: %m", folder,
                    uid);
    }
    return r;
}

static int open_all(struct state *st, const struct config *c, struct err *err)
{
    static const struct rpc_server_ops ops = {state_on_request, on_close};
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_REQUEST_MAX);
    const char *db = config_data_path(a, c, DATA_STATE_DB);
    uid_t uid = c->uid_base && geteuid() == 0 ? (uid_t)c->uid_base + CONFIG_UID_STATE : 0;
    st->uid_base = (uid_t)c->uid_base;
    int r = prepare_folder(db, uid, err);
    /* The socket while we may still make it there; nobody is served before the loop runs. */
    if (r == 0) {
        r = rpc_server_new(st->service.loop, config_run_path(a, c, "state.sock"), 0666, &ops,
                           st, &st->rpc, err);
    }
    if (r == 0 && uid) {
        r = service_drop_user(uid, uid, NULL, 0, 0, err);
    }
    if (r == 0) {
        r = kv_open_sqlite(db, &st->kv, err);
    }
    if (r < 0) {
        return r;
    }
    st->pool = pool_new("state", 4, 4096);
    st->slow = pool_new("state-slow", 1, 8);
    st->tick = loop_timer_new(st->service.loop, on_tick, st);
    loop_timer_set(st->tick, time_mono_ns() + TICK_NS);
    log_info("store.opened", KV_CSTR("path", db), KV_U64("revision", kv_revision(st->kv)));
    return 0;
}

/* First nobody asks any more, then what runs ends, then the store. */
static void close_all(struct state *st)
{
    while (st->sessions) {
        session_end(st, st->sessions);
    }
    loop_timer_free(st->tick);
    pool_free(st->slow);
    pool_free(st->pool);
    kv_close(st->kv); /* transactions under way are committed and answered */
    rpc_server_free(st->rpc);
}

int main(int argc, char **argv)
{
    static struct state st;
    struct err err = ERR_INIT;
    struct config *config = NULL;
    int rc = 0;
    if (service_start(&st.service, "spx-state", argc, argv, NULL, 0, &rc) != 0) {
        return rc;
    }
    int r = config_load(st.service.config_path, &config, &err);
    if (r == 0) {
        r = open_all(&st, config, &err);
    }
    rc = r < 0 ? service_failed(&st.service, &err) : service_run(&st.service);
    close_all(&st);
    service_done(&st.service);
    config_free(config);
    return rc;
}
