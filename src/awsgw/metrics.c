#include "awsgw/metrics.h"
#include "base/log.h"
#include "base/time.h"
#include "codec/json.h"
#include "codec/metric.h"
#include "net/http_server.h"
#include "net/rpc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

LOG_MODULE("awsgw.metrics");

#define MAX_SERVICES 8u
#define MAX_CONNS    16u
#define MAX_ASKING   2 /* a scrape that hangs must not take the API's threads */
#define ASK_NS       (2 * NS_PER_S)
#define TEXT_MAX     (16u << 20)
#define TEXT_TYPE    "text/plain; version=0.0.4; charset=utf-8"

struct metrics {
    struct http_server *server;
    struct pool *pool;
    size_t n;
    struct {
        const char *name; /* borrowed from the configuration */
        struct rpc_client *client;
    } v[MAX_SERVICES];
    atomic_int n_asking;
};

struct scrape {
    struct metrics *m;
    struct http_req *req;
};

static void respond(struct http_req *req, int status, struct str body)
{
    const struct http_header headers[] = {{STR("Content-Type"), STR(TEXT_TYPE)},
                                          {STR("Cache-Control"), STR("no-store")}};
    const struct http_answer a = {
        .status = status, .headers = headers, .n_headers = ARRAY_LEN(headers), .body = body};
    http_respond(req, &a);
}

/* What every process has; families must not be torn apart, so they are printed for all services
 * together. */
static void process_families(struct buf *out, const struct metrics *m,
                             struct json *const *answers)
{
    static const struct {
        const char *name, *type, *help, *member;
        bool is_time;
    } families[] = {
        {"spinifex_process_start_time_seconds", "gauge", "When the service was started.",
         "start_ns", true},
        {"spinifex_process_cpu_seconds_total", "counter", "CPU time of the service.", "cpu_ns",
         true},
        {"spinifex_process_resident_memory_bytes", "gauge", "Memory in use.", "resident",
         false},
        {"spinifex_process_open_fds", "gauge", "Open descriptors.", "fds", false},
    };
    metric_family(out, "spinifex_up", "gauge", "Whether the service answers.");
    for (size_t i = 0; i < m->n; i++) {
        const struct metric_label l = {"service", str_c(m->v[i].name)};
        metric_u64(out, "spinifex_up", &l, 1, answers[i] ? 1 : 0);
    }
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        metric_family(out, families[f].name, families[f].type, families[f].help);
        for (size_t i = 0; i < m->n; i++) {
            const struct metric_label l = {"service", str_c(m->v[i].name)};
            uint64_t v = json_get_u64(answers[i], families[f].member, 0);
            if (answers[i] && families[f].is_time) {
                metric_seconds(out, families[f].name, &l, 1, v);
            } else if (answers[i]) {
                metric_u64(out, families[f].name, &l, 1, v);
            }
        }
    }
}

static void scrape_work(void *ctx)
{
    struct scrape *s = ctx;
    struct json *answers[MAX_SERVICES] = {NULL};
    AUTO_BUF out;
    buf_init(&out, TEXT_MAX);
    for (size_t i = 0; i < s->m->n; i++) {
        AUTO(rpc_reply_done) struct rpc_reply reply = {0};
        struct err err = ERR_INIT;
        if (rpc_call(s->m->v[i].client, STR("metrics"), STR("{}"), NULL, 0, ASK_NS, &reply,
                     &err) < 0 ||
            json_parse(str_n(reply.payload, reply.n), &answers[i], &err) < 0) {
            log_debug("service.silent", KV_CSTR("service", s->m->v[i].name), KV_ERR(&err));
        }
    }
    process_families(&out, s->m, answers);
    for (size_t i = 0; i < s->m->n; i++) {
        buf_add(&out, json_get_str(answers[i], "text"));
    }
    if (buf_ok(&out)) {
        respond(s->req, 200, buf_str(&out));
    } else {
        respond(s->req, 500, STR("there are more counters than fit into one answer\n"));
    }
    for (size_t i = 0; i < s->m->n; i++) {
        json_free(answers[i]);
    }
    atomic_fetch_sub(&s->m->n_asking, 1);
    free(s);
}

static void on_head(void *ctx, struct http_req *req, const struct http_head *head,
                    void **ret_user)
{
    *ret_user = ctx;
    if (!str_eqc(head->path, "/metrics")) {
        respond(req, 404, STR("there is /metrics here, and nothing else\n"));
    } else if (!str_eqc(head->method, "GET")) {
        respond(req, 405, STR("GET only\n"));
    }
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    struct metrics *m = user;
    if (atomic_fetch_add(&m->n_asking, 1) < MAX_ASKING) {
        struct scrape *s = malloc(sizeof(*s));
        if (!s) {
            abort();
        }
        *s = (struct scrape){.m = m, .req = req};
        if (pool_submit(m->pool, scrape_work, NULL, NULL, s) == 0) {
            return;
        }
        free(s);
    }
    atomic_fetch_sub(&m->n_asking, 1);
    respond(req, 503, STR("busy: another scrape is under way\n"));
}

int metrics_start(struct loop *l, struct pool *pool, const struct config *c,
                  struct metrics **ret, struct err *err)
{
    static const struct http_handler handler = {.on_head = on_head, .on_end = on_end};
    const struct http_server_opts o = {.name = "metrics",
                                       .loop = l,
                                       .max_head = 8192,
                                       .max_buffered_body = 1,
                                       .max_conns = MAX_CONNS,
                                       .max_conns_per_ip = MAX_CONNS};
    struct metrics *m = calloc(1, sizeof(*m));
    if (!m) {
        abort();
    }
    m->pool = pool;
    for (size_t i = 0; i < c->n_services && m->n < MAX_SERVICES; i++) {
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/%s.sock", c->run_dir, c->services[i]);
        m->v[m->n].name = c->services[i];
        m->v[m->n].client = rpc_client_new(path, NULL, NULL);
        m->n++;
    }
    int r = http_server_new(&o, &handler, m, &m->server, err);
    r = r < 0 ? r : http_server_listen(m->server, "127.0.0.1", (uint16_t)c->metrics_port, err);
    if (r < 0) {
        metrics_stop(m);
        return r;
    }
    *ret = m;
    return 0;
}

uint16_t metrics_port(const struct metrics *m)
{
    return http_server_port(m->server);
}

void metrics_stop(struct metrics *m)
{
    if (!m) {
        return;
    }
    if (m->server) {
        http_server_free(m->server);
    }
    for (size_t i = 0; i < m->n; i++) {
        rpc_client_free(m->v[i].client);
    }
    free(m);
}
