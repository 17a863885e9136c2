#include "net/http_int.h"

#include "base/log.h"
#include "base/time.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

LOG_MODULE("net.http");

#define MAX_ROUNDS 64 /* of one run; then the other connections of the loop have their turn */

/* ---- the end of connections ---- */

void http_conn_die(struct http_conn *c)
{
    if (c->phase != HTTP_DEAD) {
        http_set_phase(c, HTTP_DEAD);
        http_idle_leave(c);
        loop_timer_stop(c->timer);
        http_io_close(c);
        http_request_abort(c);
    }
}

/* Answers with an error of the server's own; the connection ends after it. */
void http_conn_refuse(struct http_conn *c, int status, const char *why)
{
    atomic_fetch_add(&c->w->n_bad, 1);
    log_debug("http.refused", KV_I64("status", status), KV_CSTR("why", why));
    if (c->req && c->req->is_started) {
        http_conn_die(c); /* half an answer is out: the only sign left is a broken connection */
        return;
    }
    http_answer_error(c, status, why);
    http_request_abort(c);
    c->is_closing = c->is_unread = true;
    http_set_phase(c, HTTP_WAIT);
}

/* ---- the steps of a run: each returns true when it changed something ---- */

static bool step_tls(struct http_conn *c)
{
    if (!c->is_readable) {
        return false;
    }
    int r = tls_conn_handshake(c->tls);
    if (http_io_flush(c) < 0) { /* what it says, an alert too */
        r = -EPIPE;
    }
    if (r == -EAGAIN) {
        c->is_readable = false;
        return false;
    }
    if (r < 0) {
        http_conn_die(c);
        return true;
    }
    http_idle_leave(c); /* and enters anew, as the youngest */
    http_set_phase(c, HTTP_HEAD);
    return true;
}

static bool input_head(struct http_conn *c)
{
    if (c->cur.n == 0 || c->is_closing || c->out.n_bytes > HTTP_OUT_HIGH) {
        return false;
    }
    if (c->scan.off == 0) {
        c->phase_ns = http_now(c);
    }
    long n = http1_scan(&c->scan, c->cur.p, c->cur.n, c->w->s->o.max_head);
    if (n == 0) {
        return false;
    }
    if (n < 0) {
        atomic_fetch_add_explicit(&c->w->n_requests, 1, memory_order_relaxed);
        http_conn_refuse(c, c->scan.status,
                         c->scan.status == 400 ? "not HTTP, or a malformed head"
                                               : "the head is too large");
        return true;
    }
    http_request_begin(c, str_n(c->cur.p, (size_t)n));
    return true;
}

static bool input_body(struct http_conn *c)
{
    if (c->is_closing) {
        return false;
    }
    if (c->out.n_bytes > HTTP_OUT_HIGH || http_request_is_paused(c)) {
        c->was_paused = true;
        return false;
    }
    if (c->was_paused) {
        c->was_paused = false;
        c->read_ns = c->window_ns = http_now(c);
        c->window_bytes = 0;
    }
    http_request_continue(c);
    size_t used = 0;
    struct str data = STR_NONE;
    int r = http1_body_next(&c->body, c->cur.p, c->cur.n, &used, &data);
    c->cur = str_skip(c->cur, used);
    switch (r) {
    case HTTP1_BODY_DATA: http_request_deliver(c, data); return true;
    case HTTP1_BODY_END: http_request_end(c); return true;
    case HTTP1_BODY_MORE: return used > 0;
    default: http_conn_refuse(c, 400, "malformed chunk"); return true;
    }
}

static bool step_input(struct http_conn *c)
{
    switch (c->phase) {
    case HTTP_HEAD: return input_head(c);
    case HTTP_BODY: return input_body(c);
    case HTTP_LINGER:
        c->discarded += c->cur.n;
        c->cur = STR_NONE;
        if (c->discarded > HTTP_LINGER_MAX) {
            http_conn_die(c);
        }
        return false;
    default: return false;
    }
}

/* All is sent: says so, and waits for the peer's end when it may still be sending. A close with
 * unread bytes is a reset, which can destroy the answer on its way. */
static void close_gently(struct http_conn *c)
{
    int n_unread = 0;
    if (c->tls) {
        tls_conn_shutdown(c->tls);
        if (http_io_flush(c) < 0) {
            http_conn_die(c);
            return;
        }
    }
    if (!c->is_eof && !c->is_unread && c->cur.n == 0 &&
        (ioctl(c->fd, FIONREAD, &n_unread) < 0 || n_unread == 0)) {
        http_conn_die(c);
        return;
    }
    if (c->is_eof || shutdown(c->fd, SHUT_WR) < 0) {
        http_conn_die(c);
        return;
    }
    http_set_phase(c, HTTP_LINGER);
    c->discarded = 0;
    c->is_readable = true;
}

static bool step_output(struct http_conn *c)
{
    if (c->phase == HTTP_DEAD) {
        return http_request_step_drain(c);
    }
    if (http_io_flush(c) < 0) {
        http_conn_die(c);
        return true;
    }
    if (c->is_closing && http_unsent(c) == 0 && c->phase != HTTP_LINGER &&
        (!c->req || c->req->is_aborted)) {
        close_gently(c);
        return true;
    }
    return http_request_step_drain(c);
}

static bool wants_input(struct http_conn *c)
{
    switch (c->phase) {
    case HTTP_HEAD: return !c->is_closing && c->out.n_bytes <= HTTP_OUT_HIGH;
    case HTTP_BODY:
        /* Also not while much waits to be sent: an answer made of the body could grow without
         * end. */
        return !c->is_closing && c->out.n_bytes <= HTTP_OUT_HIGH && !http_request_is_paused(c);
    case HTTP_LINGER: return true;
    default: return false;
    }
}

static void on_eof(struct http_conn *c)
{
    c->is_eof = true;
    if (c->phase == HTTP_HEAD && c->cur.n == 0) {
        c->is_closing = true; /* what is still to be sent is sent */
        return;
    }
    http_conn_die(c);
}

/* Not enough time passes between bytes to call it a stop, but too few come. */
static bool is_dribbling(struct http_conn *c, size_t n)
{
    c->window_bytes += n;
    if (http_now(c) - c->window_ns < c->w->s->o.body_timeout_ns) {
        return false;
    }
    bool r = c->window_bytes < HTTP_BODY_MIN_WINDOW;
    c->window_ns = http_now(c);
    c->window_bytes = 0;
    return r;
}

static bool step_read(struct http_conn *c)
{
    /* Of a body what is there is used first: it goes piece by piece, and would pile up. */
    if (!c->is_readable || !wants_input(c) || (c->phase == HTTP_BODY && c->cur.n > 0)) {
        return false;
    }
    char *p = c->w->scratch;
    size_t room = HTTP_READ_SIZE;
    bool is_own =
        c->cur.n > 0; /* part of a head: the rest joins it in the connection's own buffer */
    if (is_own) {
        if (c->in.n == 0) {
            buf_add(&c->in, c->cur);
        } else {
            buf_drop(&c->in, c->in.n - c->cur.n);
        }
        room = HTTP_READ_SIZE / 4;
        p = buf_reserve(&c->in, room);
        if (!p) {
            http_conn_die(c);
            return true;
        }
        c->cur = buf_str(&c->in);
    } else {
        buf_clear(&c->in);
    }
    ssize_t n = http_io_read(c, p, room);
    if (n == -EAGAIN) {
        return false;
    }
    if (n < 0) {
        http_conn_die(c);
        return true;
    }
    if (n == 0) {
        on_eof(c);
        return true;
    }
    c->read_ns = http_now(c);
    if (is_own) {
        buf_commit(&c->in, (size_t)n);
        c->cur = buf_str(&c->in);
    } else {
        c->cur = str_n(p, (size_t)n);
    }
    if (c->phase == HTTP_BODY && is_dribbling(c, (size_t)n)) {
        http_conn_refuse(c, 408, "the body comes too slowly");
    }
    return true;
}

/* ---- between runs ---- */

static void keep_rest(struct http_conn *c)
{
    if (c->cur.n == 0) {
        buf_done(&c->in); /* idle connections hold no buffer */
    } else if (c->in.n == 0) {
        buf_add(&c->in, c->cur); /* from the worker's buffer, never longer than it */
    } else {
        buf_drop(&c->in, c->in.n - c->cur.n);
    }
    c->cur = STR_NONE;
}

static void update_events(struct http_conn *c)
{
    uint32_t want = 0;
    if (c->phase == HTTP_TLS) {
        want = http_unsent(c) ? EPOLLIN | EPOLLOUT : EPOLLIN;
    } else {
        if (wants_input(c) || (c->phase == HTTP_WAIT && !c->is_readable)) {
            /* While an answer is waited for, the interest stays until something really comes:
             * most times nothing does, and two system calls are saved. */
            want |= EPOLLIN;
        }
        if (http_unsent(c)) {
            /* TLS may have to read before it can write (a key update). */
            want |= c->tls && tls_conn_want(c->tls) == EPOLLIN ? EPOLLIN | EPOLLOUT : EPOLLOUT;
        }
    }
    if (want != c->events) {
        c->events = want;
        loop_fd_mod(c->h, want);
    }
}

static uint64_t next_deadline(struct http_conn *c)
{
    const struct http_server_opts *o = &c->w->s->o;
    uint64_t d = UINT64_MAX;
    switch (c->phase) {
    case HTTP_TLS: d = c->phase_ns + o->head_timeout_ns; break;
    case HTTP_HEAD:
        if (wants_input(c)) {
            d = c->phase_ns + (c->in.n ? o->head_timeout_ns : o->idle_timeout_ns);
        }
        break;
    case HTTP_BODY:
        if (wants_input(c)) {
            d = c->read_ns + o->body_timeout_ns;
        }
        break;
    case HTTP_LINGER: d = c->phase_ns + HTTP_LINGER_NS; break;
    default: break;
    }
    if (http_unsent(c) && c->write_ns) {
        d = MIN(d, c->write_ns + o->body_timeout_ns);
    }
    return d;
}

static void set_timer(struct http_conn *c)
{
    c->deadline_ns = c->is_again ? http_now(c) : next_deadline(c);
    if (c->deadline_ns < c->armed_ns) {
        c->armed_ns = c->deadline_ns;
        loop_timer_set(c->timer, c->deadline_ns);
    }
}

/* False when another thread left something that must be looked at first. */
static bool leave(struct http_conn *c, bool is_forced)
{
    struct http_req *req = c->req;
    if (!req) {
        return true;
    }
    pthread_mutex_lock(&req->mu);
    bool r = is_forced || !req->is_dirty;
    req->is_in_run = !r;
    pthread_mutex_unlock(&req->mu);
    return r;
}

static void conn_free(struct http_conn *c)
{
    struct http_worker *w = c->w;
    struct sockaddr_storage peer = c->peer;
    loop_timer_free(c->timer);
    http_link_del(&c->link);
    buf_done(&c->in);
    free(c);
    http_conn_gone(w->s, w, &peer);
}

void http_conn_run(struct http_conn *c)
{
    assert(!c->is_running);
    c->is_running = true;
    c->is_again = false;
    if (c->req) {
        pthread_mutex_lock(&c->req->mu);
        c->req->is_in_run = true;
        pthread_mutex_unlock(&c->req->mu);
    }
    c->cur = buf_str(&c->in);
    for (unsigned round = 0;; round++) {
        bool moved = c->phase == HTTP_TLS && step_tls(c);
        moved |= http_request_step(c);
        moved |= step_input(c);
        moved |= step_output(c);
        moved |= step_read(c);
        bool is_over = round == MAX_ROUNDS;
        if (moved && !is_over) {
            continue;
        }
        if (leave(c, is_over)) {
            c->is_again = is_over;
            break;
        }
    }
    c->is_running = false;
    if (c->phase == HTTP_DEAD) {
        if (!c->req) {
            conn_free(c);
        } else if (c->is_again) {
            loop_timer_set(c->timer, http_now(c));
        }
        return;
    }
    keep_rest(c);
    /* A handshake that goes on makes way too: else one that never ends would be worth more than
     * a customer. */
    bool is_idle = c->phase == HTTP_TLS ||
                   (c->phase == HTTP_HEAD && c->in.n == 0 && http_unsent(c) == 0 && !c->req);
    if (is_idle && !c->is_idle) {
        http_idle_enter(c);
    } else if (!is_idle) {
        http_idle_leave(c);
    }
    update_events(c);
    set_timer(c);
}

void http_conn_kill(struct http_conn *c)
{
    http_conn_die(c);
    http_conn_run(c);
}

void http_conn_close(struct http_conn *c)
{
    c->is_closing = true;
    if (c->phase == HTTP_TLS) {
        http_conn_die(c);
    }
    http_conn_run(c);
}

static void on_event(void *ctx, uint32_t ready)
{
    struct http_conn *c = ctx;
    if (ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        c->is_readable = true;
    }
    if (ready & EPOLLOUT || (c->tls && ready & EPOLLIN)) {
        c->is_write_blocked = false;
    }
    if (ready & (EPOLLHUP | EPOLLERR) && !wants_input(c) && c->phase != HTTP_TLS) {
        http_conn_kill(
            c); /* nobody reads the answer, and nothing else would stop these events */
        return;
    }
    http_conn_run(c);
}

static void on_timer(void *ctx)
{
    struct http_conn *c = ctx;
    c->armed_ns = UINT64_MAX;
    if (c->phase == HTTP_DEAD || c->is_again) {
        http_conn_run(c);
        return;
    }
    if (http_now(c) < c->deadline_ns) {
        set_timer(c);
        return;
    }
    log_debug("http.deadline", KV_U64("phase", c->phase));
    if (http_unsent(c) || c->phase == HTTP_TLS || c->phase == HTTP_LINGER ||
        (c->phase == HTTP_HEAD && c->in.n == 0)) {
        http_conn_kill(c);
        return;
    }
    http_conn_refuse(c, 408, "the request comes too slowly");
    http_conn_run(c);
}

struct http_conn *http_conn_new(struct http_worker *w, int fd, int listener,
                                const struct sockaddr_storage *peer)
{
    struct http_conn *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    c->w = w;
    c->fd = fd;
    c->listener = listener;
    c->peer = *peer;
    http_link_init(&c->link);
    http_link_init(&c->idle_link);
    buf_init(&c->in, w->s->o.max_head + 2 * HTTP_READ_SIZE);
    c->armed_ns = UINT64_MAX;
    return c;
}

void http_conn_start(void *ctx)
{
    struct http_conn *c = ctx;
    struct http_server *s = c->w->s;
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one,
               sizeof(one)); /* fails on unix sockets: fine */
    http_link_add(&c->w->conns, &c->link);
    c->timer = loop_timer_new(c->w->l, on_timer, c);
    http_set_phase(c, s->o.tls ? HTTP_TLS : HTTP_HEAD);
    c->is_readable = true;
    c->events = EPOLLIN;
    if (s->o.tls) {
        c->tls = tls_conn_new(s->o.tls, c->fd, &c->sealed);
    }
    if ((s->o.tls && !c->tls) || atomic_load(&s->is_forced) ||
        loop_fd_add(c->w->l, c->fd, c->events, on_event, c, &c->h) < 0) {
        c->h = NULL;
        http_conn_kill(c);
        return;
    }
    http_conn_run(c);
}
