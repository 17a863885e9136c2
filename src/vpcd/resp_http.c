/* The metadata service on the HTTP server: finds out who asks, hands over to imds.c. */
#include "vpcd/resp_int.h"

#include "base/time.h"
#include "net/http_server.h"
#include "vpcd/imds.h"

#include <arpa/inet.h>
#include <string.h>

LOG_MODULE("resp.http");

/* The address is the interface's: spoofed ones are dropped at its tap, before anything else. */
static const struct fact_eni *who(const struct resp *r, struct http_req *req)
{
    const struct sockaddr_storage *peer = http_req_peer(req);
    struct sockaddr_in sa;
    if (peer->ss_family != AF_INET || !facts_vpc(r->facts)) {
        return NULL;
    }
    memcpy(&sa, peer, sizeof(sa));
    return facts_eni_by_ip(r->facts, ntohl(sa.sin_addr.s_addr));
}

static void answer(struct resp *r, struct http_req *req)
{
    const struct http_head *h = http_req_head(req);
    struct arena *a = http_req_arena(req);
    const struct fact_eni *eni = who(r, req);
    struct imds_answer out = {.status = 404, .content_type = "text/plain", .body = STR("")};
    struct imds_request q = {
        .method = h->method,
        .path = h->path,
        .token = http_header_get(h, "X-aws-ec2-metadata-token"),
        .ttl = http_header_get(h, "X-aws-ec2-metadata-token-ttl-seconds"),
        .is_forwarded = http_header_count(h, "X-Forwarded-For") > 0,
        .now_ns = time_wall_ns(),
    };
    if (eni) {
        imds_answer(r->facts, eni, &q, a, &out);
    }
    int hops = out.is_hop_limited ? (int)MAX(1, MIN(eni->inst.http_hop_limit, 64)) : 64;
    if (http_req_set_hop_limit(req, hops)) {
        log_warn_rl("imds.no_hop_limit", KV_STR("eni", eni ? eni->id : STR("")));
        out =
            (struct imds_answer){.status = 500, .content_type = "text/plain", .body = STR("")};
    }
    struct http_header headers[2] = {{STR("Content-Type"), str_c(out.content_type)}};
    size_t n_headers = 1;
    if (out.ttl.p) {
        headers[n_headers++] =
            (struct http_header){STR("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"), out.ttl};
    }
    const struct http_answer ha = {
        .status = out.status, .headers = headers, .n_headers = n_headers, .body = out.body};
    http_respond(req, &ha);
}

static void on_head(void *ctx, struct http_req *req, const struct http_head *head,
                    void **ret_user)
{
    *ret_user = ctx;
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    answer(user, req);
}

int resp_http_start(struct resp *r, struct err *err)
{
    static const struct http_handler handler = {.on_head = on_head, .on_end = on_end};
    const struct http_server_opts opts = {
        .name = "imds",
        .loop = r->loop,
        .max_head = 8192,
        .max_buffered_body = 4096,
        .max_conns = 8192,
        .max_conns_per_ip = 128, /* above what the server takes in one turn */
        .server_header = "EC2ws",
    };
    struct http_server *s = NULL;
    int e = http_server_new(&opts, &handler, r, &s, err);
    return e ? e : http_server_listen_fd(s, r->fds[RESP_FD_HTTP], err);
}
