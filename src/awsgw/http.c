#include "awsgw/http.h"

#include "awsgw/relay.h"
#include "awsgw/relay_route.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/time.h"

#include <errno.h>

LOG_MODULE("awsgw.http");

struct gw_http {
    const struct aws_dispatch *dispatch;
    struct pool *pool;
    struct http_server *server;
    struct relay *relay; /* NULL: no S3 on this node */
    const char *const *domains;
    size_t n_domains;
};

struct job {
    struct relay_req *relay; /* first (relay.h); NULL: a request of ours */
    struct gw_http *h;
    struct http_req *req;
    struct arena *arena;
    struct str body;
};

static void on_head(void *ctx, struct http_req *req, const struct http_head *head,
                    void **ret_user)
{
    struct gw_http *h = ctx;
    struct job *j = calloc(1, sizeof(*j));
    if (!j) {
        abort();
    }
    *j = (struct job){.h = h, .req = req};
    *ret_user = j;
    if (h->relay && relay_wants(head, h->domains, h->n_domains)) {
        j->relay = relay_begin(h->relay, req, http_req_peer_text(req, http_req_arena(req)));
    } else {
        http_req_collect(req);
    }
}

static enum http_flow on_body(struct http_req *req, void *user, struct str chunk)
{
    struct job *j = user;
    return relay_body(j->relay, chunk);
}

static void on_abort(struct http_req *req, void *user)
{
    struct job *j = user;
    if (j->relay) {
        relay_abort(j->relay);
    }
}

static void on_done(struct http_req *req, void *user)
{
    struct job *j = user;
    if (j->relay) {
        relay_done(j->relay);
    }
    arena_free(j->arena);
    free(j);
}

static struct aws_http as_aws(struct job *j)
{
    const struct http_head *head = http_req_head(j->req);
    return (struct aws_http){
        .method = head->method,
        .path = head->path,
        .query = head->query,
        .headers = head->headers,
        .n_headers = head->n_headers,
        .body = j->body,
        .source_ip = http_req_peer_text(j->req, j->arena),
        .is_tls = head->is_tls,
        .now_ns = time_wall_ns(),
    };
}

/* Errors of the user are the user's affair; ours are logged in full. */
static void log_answer(const struct aws_answer *ans)
{
    if (ans->status >= 500) {
        log_warn_rl("request.failed", KV_STR("op", ans->call.op_name),
                    KV_STR("req", ans->call.request_id), KV_U64("status", ans->status),
                    KV_ERR(&ans->err));
    } else {
        log_debug("request.done", KV_STR("op", ans->call.op_name),
                  KV_STR("req", ans->call.request_id), KV_U64("status", ans->status),
                  KV_CSTR("code", ans->err.name ? ans->err.name : ""));
    }
}

static void job_work(void *ctx)
{
    struct job *j = ctx;
    struct aws_http rq = as_aws(j);
    struct aws_answer ans;
    aws_dispatch_run(j->h->dispatch, j->arena, &rq, &ans);
    log_answer(&ans);
    struct http_header headers[3 + AWS_ANSWER_HEADERS] = {
        {STR("Content-Type"), str_c(ans.content_type)},
        {STR("x-amzn-RequestId"), ans.call.request_id},
        {STR("Cache-Control"), STR("no-cache, no-store")},
    };
    memcpy(headers + 3, ans.headers, ans.n_headers * sizeof(*headers));
    const struct http_answer answer = {.status = ans.status,
                                       .headers = headers,
                                       .n_headers = 3 + ans.n_headers,
                                       .body = buf_str(&ans.body)};
    http_respond(j->req, &answer);
    aws_answer_done(&ans);
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    struct job *j = user;
    if (j->relay) {
        relay_end(j->relay);
        return;
    }
    j->body = body;
    j->arena = arena_new(AWS_ARENA_MAX);
    if (pool_submit(j->h->pool, job_work, NULL, NULL, j) < 0) {
        const struct http_header type = {STR("Content-Type"), STR("text/xml;charset=UTF-8")};
        const struct http_answer busy = {
            .status = 503,
            .headers = &type,
            .n_headers = 1,
            .body =
                STR("<?xml version=\"1.0\" "
                    "encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>RequestLimitExceeded<"
                    "/Code>"
                    "<Message>Request limit exceeded.</Message></Error></Errors></Response>"),
        };
        http_respond(req, &busy);
    }
}

int gw_http_new(const struct aws_dispatch *dispatch, struct pool *pool, struct tls_server *tls,
                unsigned n_loops, struct gw_http **ret, struct err *err)
{
    static const struct http_handler handler = {
        .on_head = on_head,
        .on_body = on_body,
        .on_end = on_end,
        .on_abort = on_abort,
        .on_done = on_done,
    };
    const struct http_server_opts opts = {.name = "awsgw",
                                          .n_loops = n_loops,
                                          .tls = tls,
                                          .max_buffered_body = AWS_MAX_BODY,
                                          .server_header = "Spinifex"};
    struct gw_http *h = calloc(1, sizeof(*h));
    if (!h) {
        abort();
    }
    h->dispatch = dispatch;
    h->pool = pool;
    int r = http_server_new(&opts, &handler, h, &h->server, err);
    if (r < 0) {
        free(h);
        return r;
    }
    *ret = h;
    return 0;
}

void gw_http_relay(struct gw_http *h, struct relay *relay, const char *const *domains,
                   size_t n_domains)
{
    h->relay = relay;
    h->domains = domains;
    h->n_domains = n_domains;
}

int gw_http_listen(struct gw_http *h, uint16_t port, struct err *err)
{
    return http_server_listen(h->server, NULL, port, err);
}

uint16_t gw_http_port(const struct gw_http *h)
{
    return http_server_port(h->server);
}

void gw_http_free(struct gw_http *h, uint64_t timeout_ns)
{
    if (h) {
        http_server_drain(h->server, timeout_ns);
        if (h->relay) {
            relay_stop(h->relay);
        }
        http_server_free(h->server);
        relay_free(h->relay);
        free(h);
    }
}
