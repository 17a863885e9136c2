#include "awsgw/relay.h"

#include "awsgw/relay_int.h"
#include "base/log.h"
#include "base/rand.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

LOG_MODULE("awsgw.relay");

#define MAX_READS 16 /* of one event; then the other descriptors of the loop have their turn */

struct relay *relay_new(const char *socket_path, unsigned max_conns)
{
    struct relay *r = calloc(1, sizeof(*r));
    if (!r || !(r->path = strdup(socket_path))) {
        abort();
    }
    r->max_conns = max_conns;
    pthread_mutex_init(&r->mu, NULL);
    return r;
}

static struct relay_worker *worker_of(struct relay *r, struct loop *l)
{
    struct relay_worker *w = NULL;
    pthread_mutex_lock(&r->mu);
    for (unsigned i = 0; i < r->n_workers && !w; i++) {
        w = r->workers[i]->l == l ? r->workers[i] : NULL;
    }
    if (!w && r->n_workers < RELAY_MAX_LOOPS) {
        w = calloc(1, sizeof(*w));
        if (!w || !(w->scratch = malloc(RELAY_SCRATCH))) {
            abort();
        }
        w->r = r;
        w->l = l;
        r->workers[r->n_workers++] = w;
    }
    pthread_mutex_unlock(&r->mu);
    return w;
}

static void stop_worker(void *ctx)
{
    struct relay_worker *w = ctx;
    w->is_stopping = true;
    while (w->idle) {
        struct relay_conn *c = w->idle;
        w->idle = c->next;
        relay_conn_close(c);
    }
    w->n_idle = 0;
}

void relay_stop(struct relay *r)
{
    pthread_mutex_lock(&r->mu);
    for (unsigned i = 0; i < r->n_workers; i++) {
        loop_post(r->workers[i]->l, stop_worker, r->workers[i]);
    }
    pthread_mutex_unlock(&r->mu);
}

void relay_free(struct relay *r)
{
    if (!r) {
        return;
    }
    for (unsigned i = 0; i < r->n_workers; i++) {
        free(r->workers[i]->scratch);
        free(r->workers[i]);
    }
    pthread_mutex_destroy(&r->mu);
    free(r->path);
    free(r);
}

void relay_stats(const struct relay *r, struct relay_stats *ret)
{
    *ret = (struct relay_stats){.n_requests = atomic_load(&r->n_requests),
                                .n_unavailable = atomic_load(&r->n_unavailable),
                                .n_broken = atomic_load(&r->n_broken),
                                .n_connects = atomic_load(&r->n_connects),
                                .n_conns = atomic_load(&r->n_conns)};
}

/* ---- ends ---- */

static void drop_conn(struct relay_req *q, bool is_whole)
{
    if (q->c) {
        relay_conn_put(q->c, is_whole);
        q->c = NULL;
    }
}

static void unavailable(struct relay_req *q, bool is_busy)
{
    char body[400], id[17];
    rand_hex(id, 16);
    for (char *p = id; *p; p++) {
        *p = *p >= 'a' ? (char)(*p - 'a' + 'A') : *p;
    }
    const char *code = is_busy ? "SlowDown" : "ServiceUnavailable";
    const char *text =
        is_busy ? "Please reduce your request rate." : "Service is unable to handle request.";
    int n = snprintf(body, sizeof(body),
                     "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code>"
                     "<Message>%s</Message><RequestId>%s</RequestId></Error>",
                     code, text, id);
    const struct http_header headers[] = {{STR("Content-Type"), STR("application/xml")},
                                          {STR("x-amz-request-id"), str_c(id)},
                                          {STR("Retry-After"), STR("1")}};
    const struct http_answer a = {.status = 503,
                                  .headers = headers,
                                  .n_headers = ARRAY_LEN(headers),
                                  .body = str_n(body, (size_t)n)};
    q->phase = RELAY_OVER;
    atomic_fetch_add(&q->r->n_unavailable, 1);
    drop_conn(q, false);
    http_respond(q->req, &a);
}

/* Predastore's side broke: before anything was answered that can be said, afterwards only shown. */
static void broken(struct relay_req *q, const char *why)
{
    atomic_fetch_add(&q->r->n_broken, 1);
    log_warn_rl("relay.broken", KV_CSTR("why", why), KV_U64("phase", q->phase));
    if (q->phase == RELAY_SENDING) {
        unavailable(q, false);
        return;
    }
    q->phase = RELAY_OVER;
    drop_conn(q, false);
    http_abort(q->req);
}

/* ---- the request ---- */

static void add_head(struct relay_req *q)
{
    const struct http_head *h = http_req_head(q->req);
    struct chunkq *out = &q->c->out;
    chunkq_add(out, h->method);
    chunkq_addc(out, " ");
    chunkq_add(out, h->target);
    chunkq_addc(out, " HTTP/1.1\r\n");
    for (size_t i = 0; i < h->n_headers; i++) {
        struct str name = h->headers[i].name;
        bool is_ours = name.n >= 6 && str_ieq(str_n(name.p, 6), STR("x-spx-"));
        if (is_ours || str_ieqc(name, "Connection") || str_ieqc(name, "Keep-Alive") ||
            str_ieqc(name, "Proxy-Connection") || str_ieqc(name, "Upgrade")) {
            continue; /* of the connection that ends here */
        }
        chunkq_add(out, name);
        chunkq_addc(out, ": ");
        chunkq_add(out, h->headers[i].value);
        chunkq_addc(out, "\r\n");
    }
    chunkq_addc(out, "X-Spx-Source-Ip: ");
    chunkq_add(out, q->source_ip);
    chunkq_addc(out, "\r\n\r\n");
}

static int attach(struct relay_req *q, bool is_fresh)
{
    int r = relay_conn_get(q->w, is_fresh, &q->c);
    if (r == 0) {
        q->c->q = q;
    }
    return r;
}

static void relisten(struct relay_req *q)
{
    if (q->c && !relay_conn_listen(
                    q->c, (q->is_stopped ? 0 : EPOLLIN) |
                              (q->c->out.n_bytes && !q->c->is_write_dead ? EPOLLOUT : 0))) {
        broken(q, "not watched");
    }
}

/* A kept connection that had ended before it took a byte: nothing of the request was seen, all of
 * it goes to a new one. */
static bool move_to_fresh(struct relay_req *q)
{
    struct relay_conn *old = q->c;
    if (!old->is_reused || old->has_sent || old->has_received || q->was_retried) {
        return false;
    }
    q->was_retried = true;
    if (attach(q, true) < 0) {
        q->c = old;
        return false;
    }
    chunkq_move(&q->c->out, &old->out);
    relay_conn_close(old);
    return true;
}

/* The answer may be there already when predastore takes no more: then it is read, what the client
 * still sends is dropped. */
static void send_up(struct relay_req *q, const struct iovec *v, size_t n)
{
    if (!relay_conn_send(q->c, v, n) && move_to_fresh(q)) {
        relay_conn_send(q->c, v, n);
    }
    if (q->c->is_write_dead) {
        chunkq_done(&q->c->out);
    }
    relisten(q);
}

static void resume_client(struct relay_req *q)
{
    if (q->is_paused && q->phase != RELAY_OVER) {
        q->is_paused = false;
        http_req_resume(q->req);
    }
}

struct relay_req *relay_begin(struct relay *r, struct http_req *req, struct str source_ip)
{
    const struct http_head *h = http_req_head(req);
    struct relay_req *q = calloc(1, sizeof(*q));
    if (!q) {
        abort();
    }
    *q = (struct relay_req){
        .r = r,
        .w = worker_of(r, http_req_loop(req)),
        .req = req,
        .source_ip = source_ip,
        .is_head_method = str_eqc(h->method, "HEAD"),
        .has_body = h->has_body,
        .is_chunked = h->is_chunked,
        /* What is no expectation is passed over by predastore too: no 100 would ever come. */
        .is_waiting = h->has_body && str_ieqc(http_header_get(h, "Expect"), "100-continue"),
        .is_kept = true,
    };
    atomic_fetch_add(&r->n_requests, 1);
    int rc = q->w ? attach(q, false) : -EAGAIN;
    if (rc < 0) {
        if (rc != -EAGAIN) {
            log_warn_rl("relay.unavailable", KV_CSTR("socket", r->path), KV_I64("errno", -rc));
        }
        unavailable(q, rc == -EAGAIN);
        return q;
    }
    add_head(q);
    if (q->is_waiting) { /* the body is asked for when predastore asks for it */
        q->is_paused = true;
        http_req_pause(req);
        send_up(q, NULL, 0);
    } /* else the head leaves with what follows it in this same run */
    return q;
}

static void keep(struct relay_req *q, const struct iovec *v, size_t n)
{
    if (!q->is_kept || !q->c->is_reused || q->c->has_received || q->was_retried) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        chunkq_add(&q->kept, str_n(v[i].iov_base, v[i].iov_len));
    }
    if (q->kept.n_bytes > RELAY_REPLAY) {
        q->is_kept = false;
        chunkq_done(&q->kept);
    }
}

enum http_flow relay_body(struct relay_req *q, struct str chunk)
{
    if (q->phase == RELAY_OVER || !q->c) {
        return HTTP_MORE;
    }
    char size[24];
    int k = q->is_chunked ? snprintf(size, sizeof(size), "%zx\r\n", chunk.n) : 0;
    static char crlf[] = "\r\n";
    struct iovec v[3];
    size_t n = 0;
    if (k) {
        v[n++] = (struct iovec){size, (size_t)k};
    }
    v[n].iov_base = (void *)(uintptr_t)chunk.p;
    v[n++].iov_len = chunk.n;
    if (k) {
        v[n++] = (struct iovec){crlf, 2};
    }
    keep(q, v, n);
    send_up(q, v, n);
    if (q->phase == RELAY_OVER || !q->c || q->c->out.n_bytes <= RELAY_UP_HIGH) {
        return HTTP_MORE;
    }
    q->is_paused = true;
    return HTTP_PAUSE;
}

void relay_end(struct relay_req *q)
{
    if (q->phase == RELAY_OVER || !q->c) {
        return;
    }
    static char last[] = "0\r\n\r\n";
    const struct iovec v = {last, 5};
    q->is_body_done = true;
    if (q->is_chunked) {
        keep(q, &v, 1);
    }
    send_up(q, &v, q->is_chunked ? 1 : 0);
}

void relay_abort(struct relay_req *q)
{
    if (q->phase != RELAY_OVER) {
        q->phase = RELAY_OVER;
        drop_conn(q, false); /* predastore sees the end of the connection in the middle */
        http_abort(q->req);
    }
}

void relay_done(struct relay_req *q)
{
    drop_conn(q, false);
    chunkq_done(&q->kept);
    free(q);
}

/* ---- the answer ---- */

static void on_drain(struct http_req *req, void *user)
{
    struct relay_req *q = *(struct relay_req **)user;
    q->is_stopped = false;
    if (q->phase == RELAY_ANSWERING) {
        relisten(q);
    }
}

/* The client takes less than predastore gives: wait until it has caught up. */
static void check_down(struct relay_req *q, size_t n_queued)
{
    if (n_queued > RELAY_DOWN_HIGH && q->phase == RELAY_ANSWERING && !q->is_stopped) {
        q->is_stopped = true;
        http_on_drain(q->req, on_drain, RELAY_DOWN_LOW);
    }
}

/* All of the answer is queued. */
static void finish(struct relay_req *q)
{
    q->phase = RELAY_OVER;
    drop_conn(q, q->is_body_done);
}

static void respond(struct relay_req *q, const struct relay_answer *a, bool is_bodyless,
                    struct str *rest)
{
    struct relay_conn *c = q->c;
    struct http_answer out = {.status = a->status,
                              .headers = a->headers,
                              .n_headers = a->n_headers,
                              .is_stream = true,
                              .stream_size = a->is_chunked ? -1 : MAX(a->content_length, 0)};
    q->phase = RELAY_ANSWERING;
    c->is_keep = !a->is_close;
    if (is_bodyless) {
        c->is_keep = c->is_keep && rest->n == 0;
        http_respond(q->req, &out);
        http_body_more(q->req, STR(""), true);
        finish(q);
        return;
    }
    if (!a->is_chunked && rest->n >= (uint64_t)out.stream_size) { /* small: all is there */
        out.is_stream = false;
        out.body = str_n(rest->p, (size_t)out.stream_size);
        *rest = str_skip(*rest, (size_t)out.stream_size);
        c->is_keep = c->is_keep && rest->n == 0;
        http_respond(q->req, &out);
        finish(q);
        return;
    }
    http1_body_init(&c->body, a->is_chunked, a->content_length);
    http_respond(q->req, &out);
}

/* A whole head. False: the request is over. */
static bool take_head(struct relay_req *q, struct str head, struct str *rest)
{
    struct relay_answer a;
    struct relay_conn *c = q->c;
    c->scan = (struct http1_scan){0};
    if (relay_answer_parse(head.p, head.n, &a) < 0) {
        broken(q, "malformed answer");
        return false;
    }
    if (a.status < 200) {
        if (a.status == 100 && q->is_waiting) {
            q->is_waiting = false;
            resume_client(q);
        }
        return true;
    }
    bool is_bodyless = q->is_head_method || a.status == 204 || a.status == 304;
    if (!is_bodyless && !a.is_chunked && a.content_length < 0) {
        broken(q, "an answer without an end");
        return false;
    }
    respond(q, &a, is_bodyless, rest);
    return q->phase != RELAY_OVER;
}

/* False: over, or broken. */
static bool take_body(struct relay_req *q, struct str in)
{
    struct relay_conn *c = q->c;
    while (in.n || http1_body_is_done(&c->body)) {
        struct str data = STR_NONE;
        size_t used = 0;
        int r = http1_body_next(&c->body, in.p, in.n, &used, &data);
        in = str_skip(in, used);
        if (r == HTTP1_BODY_DATA) {
            check_down(q, http_body_more(q->req, data, false));
        } else if (r == HTTP1_BODY_END) {
            c->is_keep = c->is_keep && in.n == 0;
            http_body_more(q->req, STR(""), true);
            finish(q);
            return false;
        } else if (r < 0) {
            broken(q, "malformed chunk");
            return false;
        }
    }
    return true;
}

static bool take(struct relay_req *q, struct str in)
{
    struct relay_conn *c = q->c;
    while (q->phase == RELAY_SENDING && in.n) {
        /* The bytes of a head are looked at once, and copied only when it comes in pieces. */
        bool was_kept = c->in.n > 0;
        if (was_kept) {
            buf_add(&c->in, in);
        }
        struct str all = was_kept ? buf_str(&c->in) : in;
        long n = http1_scan(&c->scan, all.p, all.n, RELAY_MAX_HEAD);
        if (n < 0 || !buf_ok(&c->in)) {
            broken(q, "malformed answer");
            return false;
        }
        if (n == 0) {
            if (!was_kept) {
                buf_add(&c->in, in);
            }
            return true;
        }
        struct str rest = str_skip(all, (size_t)n);
        AUTO_BUF kept; /* 'all' and 'rest' point into it */
        buf_init(&kept, RELAY_MAX_HEAD + RELAY_SCRATCH);
        if (was_kept) {
            struct buf empty = kept;
            kept = c->in;
            c->in = empty;
        }
        bool is_on = take_head(q, str_n(all.p, (size_t)n), &rest);
        if (!is_on) {
            return false;
        }
        if (q->phase == RELAY_ANSWERING) {
            return take_body(q, rest);
        }
        /* After a 100: what follows it lies in 'in' too. */
        in = rest.n <= in.n ? str_skip(in, in.n - rest.n) : in;
    }
    return q->phase != RELAY_ANSWERING || take_body(q, in);
}

/* Large bodies of known size go from the socket to the client's queue without a copy. */
static ssize_t read_piece(struct relay_req *q, bool *ret_is_on)
{
    struct relay_conn *c = q->c;
    char *p = NULL;
    if (!c->piece) {
        c->piece = http_piece_new(RELAY_PIECE, &p);
    } else {
        p = chunkq_block_bytes(c->piece);
    }
    ssize_t n = recv(c->fd, p, RELAY_PIECE, MSG_DONTWAIT);
    *ret_is_on = true;
    if (n <= 0) {
        return n;
    }
    struct str data = STR_NONE;
    size_t used = 0;
    int r = http1_body_next(&c->body, p, (size_t)n, &used, &data);
    if (r == HTTP1_BODY_DATA && used == (size_t)n && data.p == p && data.n >= RELAY_PIECE / 2) {
        struct chunkq_block *piece = c->piece;
        c->piece = NULL;
        check_down(q, http_body_give(q->req, piece, data.n, false));
        *ret_is_on = take_body(q, STR(""));
        return n;
    }
    if (r == HTTP1_BODY_DATA) {
        check_down(q, http_body_more(q->req, data, false));
        *ret_is_on = take_body(q, str_n(p + used, (size_t)n - used));
    } else {
        broken(q, "malformed answer");
        *ret_is_on = false;
    }
    return n;
}

/* Nobody has done what the request asks for: it was not sent whole, or not read whole (a unix
 * socket tells that), or there is nothing to do. */
static bool is_undone(const struct relay_req *q)
{
    const struct http_head *h = http_req_head(q->req);
    return !q->is_body_done || q->c->was_reset || str_eqc(h->method, "GET") ||
           q->is_head_method || str_eqc(h->method, "OPTIONS");
}

static void on_end_of_answer(struct relay_req *q, int code)
{
    struct relay_conn *c = q->c;
    c->was_reset |= code == ECONNRESET;
    if (q->phase != RELAY_SENDING || c->has_received || !c->is_reused || q->was_retried ||
        !q->is_kept || !is_undone(q)) {
        broken(q, code ? strerror(code) : "ended early");
        return;
    }
    /* The kept connection ended while the request was under way: once more. */
    q->was_retried = true;
    drop_conn(q, false);
    if (attach(q, true) < 0) {
        unavailable(q, false);
        return;
    }
    add_head(q);
    chunkq_move(&q->c->out, &q->kept);
    send_up(q, NULL, 0);
}

static void read_answer(struct relay_req *q)
{
    for (int i = 0; i < MAX_READS && q->phase != RELAY_OVER && !q->is_stopped; i++) {
        struct relay_conn *c = q->c;
        bool is_on = true;
        ssize_t n = 0;
        int64_t left = q->phase == RELAY_ANSWERING ? http1_body_left(&c->body) : -1;
        if (left >= (int64_t)RELAY_PIECE) {
            n = read_piece(q, &is_on);
        } else {
            n = recv(c->fd, q->w->scratch, RELAY_SCRATCH, MSG_DONTWAIT);
            if (n > 0) {
                c->has_received = true;
                chunkq_done(&q->kept);
                is_on = take(q, str_n(q->w->scratch, (size_t)n));
            }
        }
        if (!is_on) {
            return;
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            on_end_of_answer(q, n == 0 ? 0 : errno);
            return;
        }
    }
}

void relay_on_ready(struct relay_req *q, uint32_t ready)
{
    if (ready & EPOLLOUT) {
        send_up(q, NULL, 0);
    }
    if (q->c && q->c->out.n_bytes <= RELAY_UP_LOW && !q->is_waiting) {
        resume_client(q);
    }
    if (q->phase != RELAY_OVER && !q->is_stopped) {
        read_answer(q);
    }
    if (q->phase != RELAY_OVER && q->is_stopped && (ready & (EPOLLHUP | EPOLLERR))) {
        q->c->is_write_dead = true; /* ended, with bytes that are read later */
        chunkq_done(&q->c->out);
    }
    relisten(q);
}
