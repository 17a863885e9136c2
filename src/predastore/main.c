/* spx-predastore: objects. It owns its drives and everything on them; of the cloud's store it reads
 * identities only. */
#include "base/file.h"
#include "base/log.h"
#include "base/time.h"
#include "codec/hex.h"
#include "loop/pool.h"
#include "model/identity.h"
#include "model/presence.h"
#include "net/tls.h"
#include "predastore/admin.h"
#include "predastore/front.h"
#include "predastore/lifecycle.h"
#include "predastore/rules.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

LOG_MODULE("predastore");

#define START_TIMEOUT_NS (30 * NS_PER_S)
#define DRAIN_NS         (10 * NS_PER_S)
#define POOL_THREADS     16
#define BULK_THREADS     4
#define POOL_QUEUE       4096
#define BULK_QUEUE       256
#define N_LOOPS          2
#define HEALTH_NS        (2 * NS_PER_S)
#define SYSTEM_BUCKET    ".viperblock"
#define ACCEPT_FILE      "predastore/accept-loss"
#define REBUILD_FILE     "predastore/rebuild-index"

struct predastore {
    struct service svc;
    struct config *cfg;
    struct arena *arena; /* for what lives as long as the process */
    struct keys *keys;
    struct kv *kv;
    struct identity *identity;
    struct tls_server *tls;
    struct ostore *store;
    struct s3 s3;
    struct front *front;
    struct lifecycle *lifecycle;
    struct admin *admin;
    struct presence *presence;
    struct loop_timer *health;
};

static void on_reload(void *ctx)
{
    struct predastore *p = ctx;
    struct err e = ERR_INIT;
    if (tls_server_reload(p->tls, &e) < 0) {
        log_error("certificate.reload_failed", KV_ERR(&e));
    } else {
        log_info("certificate.reloaded",
                 KV_U64("not_after_s", tls_server_not_after_ns(p->tls) / NS_PER_S));
    }
}

/* ---- health: asked of the store every two seconds ---- */

static const char *judge(struct predastore *p, char *why, size_t n)
{
    struct ostore_stats s = {0};
    struct drives *d = ostore_drives(p->store);
    ostore_stats(p->store, &s);
    if (s.is_locked || keys_is_locked(p->keys)) {
        snprintf(why, n, "sealed objects cannot be read until the node is unlocked");
        return "locked";
    }
    if (s.is_readonly) {
        snprintf(why, n, "read-only: %s", s.why);
        return "degraded";
    }
    for (unsigned i = 0; i < drives_n(d); i++) {
        static const char *const text[] = {"ok", "being filled", "missing", "faulted"};
        enum drive_state state = drives_state(d, i);
        if (state != DRIVE_OK) {
            snprintf(why, n, "drive %u is %s", i + 1, text[state]);
            return "degraded";
        }
    }
    enum drives_space space = drives_space(d);
    if (space != SPACE_OK) {
        snprintf(why, n, "%s",
                 space == SPACE_FULL ? "a drive is full" : "a drive is nearly full");
        return "degraded";
    }
    return "ok";
}

/* The root key may have come: a medium was plugged in. */
static void try_unlock(void *ctx)
{
    struct predastore *p = ctx;
    struct err e = ERR_INIT;
    if (ostore_unlock(p->store, &e) == 0) {
        log_info("store.unlocked");
    }
}

static void on_health(void *ctx)
{
    struct predastore *p = ctx;
    char why[200] = "";
    const char *status = judge(p, why, sizeof(why));
    if (strcmp(status, "locked") == 0 &&
        pool_submit(p->s3.pool, try_unlock, NULL, NULL, p) < 0) {
        log_debug("unlock.later");
    }
    service_set_status(&p->svc, status, why[0] ? why : NULL);
    loop_timer_set(p->health, time_mono_ns() + HEALTH_NS);
}

/* ---- start ---- */

static int open_state(struct predastore *p, struct err *err)
{
    const struct config *c = p->cfg;
    int r = keys_open_file_or_wait(config_data_path(p->arena, c, DATA_PREDASTORE_ROOT_KEY),
                                   &p->keys, err);
    if (r < 0 ||
        (r = kv_open_remote(config_run_path(p->arena, c, "state.sock"), &p->kv, err)) < 0) {
        return r;
    }
    return identity_open(p->kv, p->keys, START_TIMEOUT_NS, &p->identity, err);
}

static int open_store(struct predastore *p, struct err *err)
{
    const struct config_predastore *c = &p->cfg->predastore;
    const char *rebuild = config_data_path(p->arena, p->cfg, REBUILD_FILE);
    struct ostore_opts o = {.drives = c->drives,
                            .n_drives = (unsigned)c->n_drives,
                            .k = (unsigned)c->rs_data,
                            .m = (unsigned)c->rs_parity,
                            .keys = p->keys,
                            .is_sealing = c->is_encrypted,
                            .inline_max = (uint32_t)c->inline_max,
                            .near_full_pct = (unsigned)c->near_full_pct,
                            .full_pct = (unsigned)c->full_pct,
                            .makes_folders = true,
                            .is_index_discarded = access(rebuild, F_OK) == 0};
    uint64_t begun = time_mono_ns();
    const char *accept = config_data_path(p->arena, p->cfg, ACCEPT_FILE);
    char *who = NULL;
    size_t n_who = 0;
    if (file_read(accept, PREDASTORE_WHO_MAX, &who, &n_who, NULL) == 0) {
        o.accept_loss = arena_cstr(p->arena, str_n(who, n_who));
        free(who);
    }
    int r = ostore_open(&o, &p->store, err);
    if (r < 0) {
        return r;
    }
    if (o.accept_loss) {
        unlink(accept);
    }
    if (o.is_index_discarded) {
        unlink(rebuild);
    }
    log_info("store.open", KV_U64("ms", (time_mono_ns() - begun) / NS_PER_MS),
             KV_U64("drives", c->n_drives), KV_U64("rs_data", c->rs_data),
             KV_U64("rs_parity", c->rs_parity));
    return 0;
}

/* The block service's own place; nobody's account owns it, S3 refuses such a name. */
static void ensure_system_bucket(struct predastore *p)
{
    struct err e = ERR_INIT;
    const struct obucket *b = NULL;
    if (ostore_bucket(p->store, STR(SYSTEM_BUCKET), &b, &e) == 0) {
        obucket_unref(b);
        return;
    }
    err_clear(&e);
    if (ostore_bucket_create(p->store, STR(SYSTEM_BUCKET), STR(S3_SYSTEM_ACCOUNT),
                             str_c(p->cfg->region), &e) < 0) {
        log_warn("system_bucket.failed", KV_ERR(&e));
    }
}

static void make_s3(struct predastore *p)
{
    char host_id[33];
    hex_encode_to(drives_set_id(ostore_drives(p->store)), 16, host_id);
    p->s3 = (struct s3){.cfg = p->cfg,
                        .store = p->store,
                        .identity = p->identity,
                        .keys = p->keys,
                        .rules = rules_new(),
                        .pool = pool_new("s3", POOL_THREADS, POOL_QUEUE),
                        .bulk = pool_new("s3-bulk", BULK_THREADS, BULK_QUEUE),
                        .region = str_c(p->cfg->region),
                        .partition = STR("aws"),
                        .host_id = arena_str_dup(p->arena, str_c(host_id))};
}

static int open_front(struct predastore *p, struct err *err)
{
    const struct config *c = p->cfg;
    size_t n = c->predastore.n_domains;
    struct str *domains = arena_xalloc(p->arena, (n + 1) * sizeof(*domains));
    for (size_t i = 0; i < n; i++) {
        domains[i] = str_c(c->predastore.domains[i]);
    }
    int r = tls_server_new(config_data_path(p->arena, c, DATA_PREDASTORE_CERT),
                           config_data_path(p->arena, c, DATA_PREDASTORE_KEY), &p->tls, err);
    if (r < 0) {
        return r;
    }
    make_s3(p);
    const struct front_opts o = {.s3 = &p->s3,
                                 .tls = p->tls,
                                 .domains = domains,
                                 .n_domains = n,
                                 .key_find = identity_find_key,
                                 .key_ctx = p->identity,
                                 .policy = aws_policy_builtin,
                                 .uid_base = (uid_t)c->uid_base,
                                 .n_loops = N_LOOPS,
                                 .max_conns_per_ip = (unsigned)c->predastore.max_conns_per_ip};
    return front_new(&o, &p->front, err);
}

static int start(struct predastore *p, struct err *err)
{
    int r = 0;
    p->arena = arena_new(1u << 20);
    if ((r = config_load(p->svc.config_path, &p->cfg, err)) < 0) {
        return r;
    }
    const struct config *c = p->cfg;
    if ((r = open_state(p, err)) < 0 || (r = open_store(p, err)) < 0 ||
        (r = open_front(p, err)) < 0) {
        return r;
    }
    ensure_system_bucket(p);
    p->lifecycle = lifecycle_start(&(struct lifecycle_opts){.store = p->store});
    const struct admin_opts admin = {
        .svc = &p->svc,
        .s3 = &p->s3,
        .front = p->front,
        .lifecycle = p->lifecycle,
        .socket_path = config_run_path(p->arena, c, "predastore.sock"),
        .accept_path = config_data_path(p->arena, c, ACCEPT_FILE),
        .rebuild_path = config_data_path(p->arena, c, REBUILD_FILE)};
    if ((r = front_listen_unix(p->front, config_run_path(p->arena, c, RUN_S3_SOCKET), err)) <
            0 ||
        (r = front_listen(p->front, (uint16_t)c->predastore.port, err)) < 0 ||
        (r = admin_start(&admin, &p->admin, err)) < 0) {
        return r;
    }
    p->presence = presence_start(p->kv, c, "predastore", SPINIFEX_VERSION);
    p->svc.on_reload = on_reload;
    p->svc.reload_ctx = p;
    p->health = loop_timer_new(p->svc.loop, on_health, p);
    loop_timer_set(p->health, time_mono_ns());
    log_info("predastore.listening", KV_U64("port", front_port(p->front)));
    return 0;
}

/* First those who bring work, then those who do it, then the store. */
static void stop(struct predastore *p)
{
    if (p->health) {
        loop_timer_free(p->health);
    }
    if (p->front) {
        front_drain(p->front, DRAIN_NS);
    }
    ostore_hurry(p->store); /* else who waits for space would be waited for */
    lifecycle_stop(p->lifecycle);
    pool_free(p->s3.bulk);
    pool_free(p->s3.pool);
    admin_stop(p->admin); /* its jobs ran on the pool */
    front_free(p->front);
    rules_free(p->s3.rules);
    presence_stop(p->presence);
    ostore_close(p->store);
    identity_close(p->identity);
    if (p->kv) {
        kv_close(p->kv);
    }
    tls_server_free(p->tls);
    keys_close(p->keys);
    config_free(p->cfg);
    arena_free(p->arena);
}

/* Pieces of bodies come and go by the thousand: giving their pages back to the kernel each time
 * would cost more than sending them. */
static void keep_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 4 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
    (void)mallopt(M_TOP_PAD, 1 << 20);
    (void)mallopt(M_ARENA_MAX, 128); /* more than there are threads: none waits for another */
}

int main(int argc, char **argv)
{
    static struct predastore p;
    struct err e = ERR_INIT;
    int status = 0;
    keep_memory();
    if (service_start(&p.svc, "spx-predastore", argc, argv, NULL, 0, &status) != 0) {
        return status;
    }
    status = start(&p, &e) < 0 ? service_failed(&p.svc, &e) : service_run(&p.svc);
    stop(&p);
    service_done(&p.svc);
    return status;
}
