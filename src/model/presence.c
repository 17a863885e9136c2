#include "model/presence.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/time.h"
#include "loop/ticker.h"
#include "model/node.h"

#include <errno.h>

LOG_MODULE("presence");

#define KEEPALIVE_NS (PRESENCE_TTL_S / 3 * NS_PER_S)

struct presence {
    struct kv *kv;
    char *key, *value; /* constant */
    uint64_t lease;    /* of the thread; of presence_stop() when that has ended */
    struct ticker *ticker;
};

static int put(struct presence *p, struct err *err)
{
    int r = kv_lease_grant(p->kv, PRESENCE_TTL_S, &p->lease, err);
    if (r < 0) {
        p->lease = 0;
        return r;
    }
    const struct kv_op op = {
        .type = KV_PUT, .key = str_c(p->key), .value = str_c(p->value), .lease = p->lease};
    uint64_t rev = 0;
    r = kv_txn(p->kv, NULL, 0, &op, 1, &rev, err);
    if (r < 0) {
        p->lease = 0;
    }
    return r;
}

static void beat(void *ctx)
{
    struct presence *p = ctx;
    struct err e = ERR_INIT;
    int r = p->lease ? kv_lease_keepalive(p->kv, p->lease, &e) : -ENOENT;
    if (r == -ENOENT) {
        err_clear(&e);
        r = put(p, &e);
    }
    if (r < 0) {
        log_debug("presence.failed", KV_ERR(&e));
    }
}

static char *record(const struct config *cfg, const char *service, const char *version)
{
    struct node_service rec = {
        .node = str_c(cfg->node),
        .service = str_c(service),
        .version = str_c(version),
        .ip = str_c(cfg->host),
        .region = str_c(cfg->region),
        .az = str_c(cfg->az),
        .pid = (uint64_t)getpid(),
        .started_ns = time_wall_ns(),
    };
    AUTO_BUF b;
    buf_init(&b, KV_MAX_VALUE);
    char *text = rec_save(&node_service_desc, &rec, &b, NULL) == 0 ? buf_take(&b) : NULL;
    if (!text) {
        abort();
    }
    return text;
}

struct presence *presence_start(struct kv *kv, const struct config *cfg, const char *service,
                                const char *version)
{
    struct presence *p = calloc(1, sizeof(*p));
    AUTO_BUF key;
    buf_init(&key, KV_MAX_KEY);
    buf_fmt(&key, "node/%s/%s", cfg->node, service);
    if (!p || !(p->key = buf_take(&key))) {
        abort();
    }
    p->kv = kv;
    p->value = record(cfg, service, version);
    p->ticker = ticker_start(beat, p, KEEPALIVE_NS);
    return p;
}

void presence_stop(struct presence *p)
{
    if (!p) {
        return;
    }
    ticker_stop(p->ticker);
    struct err e = ERR_INIT;
    if (p->lease && kv_lease_revoke(p->kv, p->lease, &e) < 0) {
        log_debug("presence.revoke_failed", KV_ERR(&e));
    }
    free(p->key);
    free(p->value);
    free(p);
}
