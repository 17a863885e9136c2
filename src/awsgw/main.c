/* spx-awsgw: the AWS API of the cloud. It reads the store through a view, writes wishes, and
 * owns no machine. */
#include "awsgw/admin.h"
#include "awsgw/gw.h"
#include "awsgw/http.h"
#include "awsgw/janitor.h"
#include "awsgw/metrics.h"
#include "awsgw/ops.h"
#include "awsgw/relay.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/time.h"
#include "codec/hex.h"
#include "crypto/digest.h"
#include "model/identity.h"
#include "model/obj.h"
#include "model/presence.h"
#include "net/service.h"

#include <errno.h>
#include <pthread.h>

LOG_MODULE("awsgw");

#define START_TIMEOUT_NS    (30 * NS_PER_S)
#define DRAIN_NS            (10 * NS_PER_S)
#define POOL_THREADS        8
#define POOL_QUEUE          1024
#define KEY_CACHE           1024
#define MAX_RELAYED         1024 /* connections to predastore */

#define HANDLER_ROW(op, fn) [op] = fn,
static const aws_handler_fn ebs_handlers[EBS_OP_N] = {EBS_OPS_IMPLEMENTED(HANDLER_ROW)};
static const aws_handler_fn ec2_handlers[EC2_OP_N] = {EC2_OPS_IMPLEMENTED(HANDLER_ROW)};
static const aws_handler_fn sts_handlers[STS_OP_N] = {STS_OPS_IMPLEMENTED(HANDLER_ROW)};
#undef HANDLER_ROW

struct gateway {
    struct service svc;
    struct config *cfg;
    struct arena *arena; /* for what lives as long as the process */
    struct keys *keys;
    struct gw gw;
    struct pool *pool;
    struct tls_server *tls;
    struct aws_dispatch dispatch;
    struct aws_endpoint endpoints[3];
    struct gw_http *http;
    struct admin *admin;
    struct metrics *metrics;    /* NULL: none are wanted */
    pthread_mutex_t janitor_mu; /* over poking and ending it; a leaf but for the ticker's */
    struct janitor *janitor;    /* GUARDED_BY(janitor_mu); NULL = none yet, or no more */
    struct presence *presence;
};

/* Returns the one before. */
static struct janitor *set_janitor(struct gateway *g, struct janitor *j)
{
    pthread_mutex_lock(&g->janitor_mu);
    struct janitor *old = g->janitor;
    g->janitor = j;
    pthread_mutex_unlock(&g->janitor_mu);
    return old;
}

static void on_change(void *ctx, const struct view_entry *old, const struct view_entry *now)
{
    struct gateway *g = ctx;
    const struct view_entry *e = now ? now : old;
    bool is_observed = str_has_prefixc(e->key, "status/") || str_has_prefixc(e->key, "spec/");
    pthread_mutex_lock(&g->janitor_mu);
    if (is_observed && g->janitor) {
        janitor_poke(g->janitor);
    }
    pthread_mutex_unlock(&g->janitor_mu);
}

/* 32 bytes that stay the same over restarts and that no client can guess: a random value in the
 * store, keyed with the root key's wrap. */
static int load_page_key(struct gateway *g, struct err *err)
{
    struct kv_item it;
    struct err e = ERR_INIT;
    struct str key = STR("config/awsgw/page-key");
    for (int i = 0; i < 2; i++) {
        err_clear(&e);
        if (kv_get(g->gw.kv, g->arena, key, &it, &e) == 0) {
            struct secret plain = {0};
            int r = keys_unwrap(g->keys, STR("page-key"), it.value, &plain, err);
            if (r == 0) {
                g->dispatch.page_key = arena_str_dup(g->arena, secret_str(&plain));
                secret_done(&plain);
            }
            return r;
        }
        if (e.code != -ENOENT) {
            break;
        }
        uint8_t bytes[32];
        rand_bytes(bytes, sizeof(bytes));
        AUTO_BUF wrapped;
        buf_init(&wrapped, 1024);
        int r = keys_wrap(g->keys, STR("page-key"), str_n((const char *)bytes, sizeof(bytes)),
                          &wrapped, err);
        if (r < 0) {
            return r;
        }
        const struct kv_cmp cmp = {key, 0};
        const struct kv_op op = {.type = KV_PUT, .key = key, .value = buf_str(&wrapped)};
        uint64_t rev = 0;
        err_clear(&e);
        if (kv_txn(g->gw.kv, &cmp, 1, &op, 1, &rev, &e) < 0 && e.code != -EAGAIN) {
            break;
        }
    }
    return fail(err, e.code, e.name, "%s", e.msg);
}

static int open_store(struct gateway *g, struct err *err)
{
    static const char *const prefixes[] = {"spec/", "status/", "node/", "claim/"};
    static const struct view_ops ops = {
        .parse = model_parse, .free = model_free, .on_change = on_change};
    const struct config *c = g->cfg;
    int r = 0;
    if ((r = kv_open_remote(config_run_path(g->arena, c, "state.sock"), &g->gw.kv, err)) < 0 ||
        (r = view_open(g->gw.kv, prefixes, ARRAY_LEN(prefixes), &ops, g, START_TIMEOUT_NS,
                       &g->gw.view, err)) < 0 ||
        (r = identity_open(g->gw.kv, g->keys, START_TIMEOUT_NS, &g->gw.identity, err)) < 0 ||
        (r = load_page_key(g, err)) < 0) {
        return r;
    }
    g->gw.compute = rpc_client_new(config_run_path(g->arena, c, "compute.sock"), NULL, NULL);
    g->gw.viperblock =
        rpc_client_new(config_run_path(g->arena, c, "viperblock.sock"), NULL, NULL);
    return admin_ensure_defaults(&g->gw, err);
}

static int make_dispatch(struct gateway *g, struct err *err)
{
    g->endpoints[0] = (struct aws_endpoint){&aws_service_ec2, ec2_handlers};
    g->endpoints[1] = (struct aws_endpoint){&aws_service_sts, sts_handlers};
    g->endpoints[2] = (struct aws_endpoint){&aws_service_ebs, ebs_handlers};
    g->dispatch.endpoints = g->endpoints;
    g->dispatch.n_endpoints = ARRAY_LEN(g->endpoints);
    g->dispatch.region = str_c(g->cfg->region);
    g->dispatch.partition = STR("aws");
    g->dispatch.key_find = identity_find_key;
    g->dispatch.key_ctx = g->gw.identity;
    g->dispatch.policy = aws_policy_builtin;
    g->dispatch.cache = sigv4_cache_new(KEY_CACHE);
    g->dispatch.app = &g->gw;
    for (size_t i = 0; i < ARRAY_LEN(g->endpoints); i++) {
        int r = aws_endpoint_check(&g->endpoints[i], err);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static void on_reload(void *ctx)
{
    struct gateway *g = ctx;
    struct err e = ERR_INIT;
    if (tls_server_reload(g->tls, &e) < 0) {
        log_error("certificate.reload_failed", KV_ERR(&e));
    } else {
        log_info("certificate.reloaded",
                 KV_U64("not_after_s", tls_server_not_after_ns(g->tls) / NS_PER_S));
    }
}

static int start(struct gateway *g, struct err *err)
{
    int r = 0;
    g->arena = arena_new(1u << 20);
    if ((r = config_load(g->svc.config_path, &g->cfg, err)) < 0) {
        return r;
    }
    const struct config *c = g->cfg;
    g->gw.cfg = c;
    g->pool = pool_new("awsgw", POOL_THREADS, POOL_QUEUE);
    if ((r = keys_open_file(config_data_path(g->arena, c, DATA_ROOT_KEY), &g->keys, err)) < 0 ||
        (r = tls_server_new(config_data_path(g->arena, c, DATA_SERVER_CERT),
                            config_data_path(g->arena, c, DATA_SERVER_KEY), &g->tls, err)) <
            0 ||
        (r = open_store(g, err)) < 0 || (r = make_dispatch(g, err)) < 0 ||
        (r = gw_http_new(&g->dispatch, g->pool, g->tls, 2, &g->http, err)) < 0) {
        return r;
    }
    if (config_has_service(c, "predastore")) {
        gw_http_relay(g->http,
                      relay_new(config_run_path(g->arena, c, RUN_S3_SOCKET), MAX_RELAYED),
                      c->predastore.domains, c->predastore.n_domains);
    }
    if ((r = gw_http_listen(g->http, (uint16_t)c->awsgw_port, err)) < 0) {
        return r;
    }
    if (c->metrics_port != 0 &&
        (r = metrics_start(g->svc.loop, g->pool, c, &g->metrics, err)) < 0) {
        return r;
    }
    /* Last: who finds this socket finds the port too. */
    if ((r = admin_start(&g->svc, &g->gw, g->keys, g->pool, &g->admin, err)) < 0) {
        return r;
    }
    set_janitor(g, janitor_start(&g->gw));
    g->presence = presence_start(g->gw.kv, c, "awsgw", SPINIFEX_VERSION);
    g->svc.on_reload = on_reload;
    g->svc.reload_ctx = g;
    log_info("awsgw.listening", KV_U64("port", gw_http_port(g->http)));
    return 0;
}

/* First those who work with the view, each until its last job has ended; then the view. */
static void stop(struct gateway *g)
{
    gw_http_free(g->http, DRAIN_NS);
    metrics_stop(g->metrics);
    pool_free(g->pool);
    admin_stop(g->admin); /* its jobs ran on the pool */
    janitor_stop(set_janitor(g, NULL));
    presence_stop(g->presence);
    if (g->gw.view) {
        view_close(g->gw.view);
    }
    identity_close(g->gw.identity);
    if (g->gw.compute) {
        rpc_client_free(g->gw.compute);
    }
    if (g->gw.viperblock) {
        rpc_client_free(g->gw.viperblock);
    }
    if (g->gw.kv) {
        kv_close(g->gw.kv);
    }
    sigv4_cache_free(g->dispatch.cache);
    tls_server_free(g->tls);
    keys_close(g->keys);
    config_free(g->cfg);
    arena_free(g->arena);
}

int main(int argc, char **argv)
{
    static struct gateway g = {.janitor_mu = PTHREAD_MUTEX_INITIALIZER};
    struct err e = ERR_INIT;
    int status = 0;
    if (service_start(&g.svc, "spx-awsgw", argc, argv, NULL, 0, &status) != 0) {
        return status;
    }
    status = start(&g, &e) < 0 ? service_failed(&g.svc, &e) : service_run(&g.svc);
    stop(&g);
    service_done(&g.svc);
    return status;
}
