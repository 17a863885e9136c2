#include "model/presence.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/time.h"
#include "model/node.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

LOG_MODULE("presence");

#define KEEPALIVE_S (PRESENCE_TTL_S / 3)

struct presence {
    struct kv *kv;
    char *key, *value; /* constant */
    uint64_t lease;    /* of the thread */
    pthread_t thread;
    pthread_mutex_t mu;
    pthread_cond_t wake;
    bool is_stopping; /* GUARDED_BY(mu) */
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

static void beat(struct presence *p)
{
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

/* Waits for the next turn; false when it is time to stop. */
static bool pause_until_next(struct presence *p)
{
    struct timespec until = {0};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += KEEPALIVE_S;
    pthread_mutex_lock(&p->mu);
    while (!p->is_stopping && pthread_cond_timedwait(&p->wake, &p->mu, &until) == 0) {}
    bool goes_on = !p->is_stopping;
    pthread_mutex_unlock(&p->mu);
    return goes_on;
}

static void *run(void *arg)
{
    struct presence *p = arg;
    do {
        beat(p);
    } while (pause_until_next(p));
    if (p->lease) {
        struct err e = ERR_INIT;
        if (kv_lease_revoke(p->kv, p->lease, &e) < 0) {
            log_debug("presence.revoke_failed", KV_ERR(&e));
        }
    }
    return NULL;
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
    pthread_condattr_t attr;
    AUTO_BUF key;
    buf_init(&key, KV_MAX_KEY);
    buf_fmt(&key, "node/%s/%s", cfg->node, service);
    if (!p || !(p->key = buf_take(&key))) {
        abort();
    }
    p->kv = kv;
    p->value = record(cfg, service, version);
    pthread_mutex_init(&p->mu, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&p->thread, NULL, run, p) != 0) {
        abort();
    }
    return p;
}

void presence_stop(struct presence *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->mu);
    p->is_stopping = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->mu);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mu);
    free(p->key);
    free(p->value);
    free(p);
}
