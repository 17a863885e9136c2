#include "net/http_int.h"

/* One request on the loop's thread: from its head to on_done(). What other threads do to it is
 * in http_req.c. */

/* True when nobody will touch the request any more. */
static bool is_settled(struct http_req *req)
{
    pthread_mutex_lock(&req->mu);
    bool is_owed =
        (req->is_ended || req->is_head_given || req->is_paused) && !req->is_last_given;
    bool is_done = req->is_aborted ? !is_owed : req->is_answered;
    bool r = is_done && req->n_holds == 0;
    pthread_mutex_unlock(&req->mu);
    return r;
}

/* Calls on_done when the request is settled, and forgets it. */
static bool try_finish(struct http_conn *c)
{
    struct http_req *req = c->req;
    if (!req || !is_settled(req)) {
        return false;
    }
    if (c->w->s->handler.on_done) {
        c->w->s->handler.on_done(req, req->user);
    }
    req->is_finished = true;
    c->req = NULL;
    if (!req->is_keep_alive || atomic_load(&c->w->s->is_draining)) {
        c->is_closing = true;
    }
    arena_free(req->arena);
    req->arena = NULL;
    atomic_fetch_sub(&c->w->s->n_buffered, req->collected.n);
    buf_done(&req->collected);
    http_req_unref(req);
    return true;
}

/* The peer will not get an answer to this request from the handler. */
void http_request_abort(struct http_conn *c)
{
    struct http_req *req = c->req;
    if (!req || req->is_aborted) {
        return;
    }
    req->is_aborted = true;
    pthread_mutex_lock(&req->mu);
    req->is_gone = true;
    bool is_complete = req->is_last_given;
    chunkq_done(&req->pend_head);
    chunkq_done(&req->pend);
    pthread_mutex_unlock(&req->mu);
    if (!is_complete && c->w->s->handler.on_abort) {
        c->w->s->handler.on_abort(req, req->user);
    }
    try_finish(c);
}

void http_request_continue(struct http_conn *c)
{
    struct http_req *req = c->req;
    if (!req->wants_continue) {
        return;
    }
    pthread_mutex_lock(&req->mu);
    bool is_answering = req->is_head_given;
    pthread_mutex_unlock(&req->mu);
    if (!is_answering) {
        req->wants_continue = false;
        if (c->cur.n == 0) { /* a client that has begun to send does not wait */
            chunkq_addc(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        }
    }
}

void http_request_begin(struct http_conn *c, struct str head)
{
    struct http_server *s = c->w->s;
    struct http_req *req = http_req_new(c);
    c->req = req;
    c->cur = str_skip(c->cur, head.n);
    c->scan = (struct http1_scan){0};
    http_set_phase(c, HTTP_BODY);
    atomic_fetch_add_explicit(&c->w->n_requests, 1, memory_order_relaxed);

    struct http1_head parsed;
    struct str own = arena_str_dup(req->arena, head); /* the read buffer is used again */
    if (http1_parse_head(own.p, own.n, &parsed) < 0) {
        req->is_aborted = true; /* no call-back has seen it: nobody is told */
        http_conn_refuse(c, parsed.status, parsed.why);
        arena_free(req->arena);
        buf_done(&req->collected);
        c->req = NULL;
        http_req_unref(req);
        return;
    }
    size_t n = parsed.h.n_headers;
    struct http_header *headers = arena_xalloc(req->arena, (n + 1) * sizeof(*headers));
    memcpy(headers, parsed.headers, n * sizeof(*headers));
    req->head = parsed.h;
    req->head.headers = headers;
    req->head.is_tls = c->tls != NULL;
    req->is_keep_alive = parsed.is_keep_alive;
    req->is_http10 = parsed.is_http10;
    req->wants_continue = parsed.wants_continue;
    req->is_head_method = str_eqc(parsed.h.method, "HEAD");
    http1_body_init(&c->body, req->head.is_chunked, req->head.content_length);
    req->is_collecting = !s->handler.on_body;
    if (s->handler.on_head) {
        s->handler.on_head(s->ctx, req, &req->head, &req->user);
    }
    pthread_mutex_lock(&req->mu);
    bool is_taken = req->is_head_given;
    pthread_mutex_unlock(&req->mu);
    if (!is_taken && req->is_collecting &&
        req->head.content_length > (int64_t)s->o.max_buffered_body) {
        http_conn_refuse(c, 413, "the body is too large");
    }
}

void http_request_end(struct http_conn *c)
{
    struct http_req *req = c->req;
    http_set_phase(c, HTTP_WAIT);
    pthread_mutex_lock(&req->mu);
    bool is_over = req->is_last_given;
    pthread_mutex_unlock(&req->mu);
    if (!is_over) {
        req->is_ended = true;
        c->w->s->handler.on_end(req, req->user, buf_str(&req->collected));
    }
}

/* Nobody has been asked for a signature yet: what strangers can make us keep is bounded for all
 * of them together. */
static void collect(struct http_conn *c, struct str data)
{
    struct http_server *s = c->w->s;
    struct buf *b = &c->req->collected;
    if (atomic_fetch_add(&s->n_buffered, data.n) + data.n > s->o.max_buffered_total) {
        atomic_fetch_sub(&s->n_buffered, data.n);
        http_conn_refuse(c, 503, "too many bodies at once");
        return;
    }
    buf_add(b, data);
    if (!buf_ok(b)) {
        atomic_fetch_sub(&s->n_buffered, data.n);
        http_conn_refuse(c, 413, "the body is too large");
    }
}

void http_request_deliver(struct http_conn *c, struct str data)
{
    struct http_req *req = c->req;
    if (req->is_answered) {
        c->discarded += data.n; /* answered early: read and dropped to save the connection */
        return;
    }
    if (req->is_collecting) {
        collect(c, data);
        return;
    }
    if (c->w->s->handler.on_body(req, req->user, data) == HTTP_PAUSE) {
        http_req_pause(req);
    }
}

/* A complete answer ends a pause: what is left of the body is dropped. */
bool http_request_is_paused(struct http_conn *c)
{
    pthread_mutex_lock(&c->req->mu);
    bool r = c->req->is_paused && !c->req->is_last_given;
    pthread_mutex_unlock(&c->req->mu);
    return r;
}

/* Puts the head of the answer into the output, with the last line that only this thread can
 * decide. */
static void start_answer(struct http_conn *c, struct http_req *req, bool is_close, bool is_last)
{
    req->is_started = true;
    if (is_close || atomic_load(&c->w->s->is_draining)) {
        req->is_keep_alive = false;
    }
    /* What is left of the body is read away when it is small; a client that waits for a 100 may
     * send it or not: the next request could not be told from it. */
    if (c->phase == HTTP_BODY && is_last && !http1_body_is_done(&c->body)) {
        int64_t left = http1_body_left(&c->body);
        if (req->wants_continue || left < 0 || left > (int64_t)HTTP_DISCARD_MAX) {
            req->is_keep_alive = false;
        }
    }
    if (!req->is_keep_alive) {
        chunkq_addc(&c->out, "Connection: close\r\n");
    }
    chunkq_addc(&c->out, "\r\n");
}

static void take_pending(struct http_conn *c, struct http_req *req, bool *ret_abort)
{
    struct chunkq head, body;
    pthread_mutex_lock(&req->mu);
    req->is_dirty = false;
    head = req->pend_head;
    body = req->pend;
    req->pend_head = req->pend = (struct chunkq){0};
    bool is_close = req->is_close_given, is_last = req->is_last_given;
    *ret_abort = req->is_abort_given;
    pthread_mutex_unlock(&req->mu);
    if (*ret_abort) {
        chunkq_done(&head);
        chunkq_done(&body);
        return;
    }
    if (head.n_bytes) {
        chunkq_move(&c->out, &head);
        start_answer(c, req, is_close, is_last);
    }
    chunkq_move(&c->out, &body);
    atomic_store_explicit(&c->n_out, http_unsent(c), memory_order_relaxed);
    req->is_answered = req->is_started && is_last;
}

bool http_request_step(struct http_conn *c)
{
    struct http_req *req = c->req;
    if (!req) {
        return false;
    }
    if (req->is_aborted) {
        pthread_mutex_lock(&req->mu);
        req->is_dirty = false;
        pthread_mutex_unlock(&req->mu);
        return try_finish(c);
    }
    bool was_answered = req->is_answered, must_abort = false;
    size_t n_before = c->out.n_bytes;
    take_pending(c, req, &must_abort);
    if (must_abort) {
        struct linger rst = {.l_onoff = 1};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &rst, sizeof(rst));
        http_conn_die(c);
        return true;
    }
    if (c->phase == HTTP_BODY && req->is_answered) {
        int64_t left = http1_body_left(&c->body);
        if (!req->is_keep_alive || req->wants_continue || left < 0 ||
            left > (int64_t)HTTP_DISCARD_MAX) {
            req->is_keep_alive = false;
            c->is_unread = c->is_closing = true;
            http_set_phase(c, HTTP_WAIT);
        }
    }
    if (c->phase == HTTP_WAIT && req->is_answered && try_finish(c)) {
        http_set_phase(c, HTTP_HEAD);
        return true;
    }
    return c->out.n_bytes != n_before || was_answered != req->is_answered;
}

bool http_request_step_drain(struct http_conn *c)
{
    struct http_req *req = c->req;
    if (!req) {
        return false;
    }
    void (*fn)(struct http_req * req, void *user) = NULL;
    pthread_mutex_lock(&req->mu);
    size_t n = req->pend_head.n_bytes + req->pend.n_bytes + http_unsent(c);
    if (req->drain_fn && (n < req->drain_below || req->is_gone)) {
        fn = req->drain_fn;
        req->drain_fn = NULL;
    }
    pthread_mutex_unlock(&req->mu);
    if (fn) {
        fn(req, req->user);
    }
    return fn != NULL;
}
