#include "net/http_int.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

/* What other threads do to a request: they leave it under the lock, and the loop's thread is
 * told when it does not look anyway. */

struct http_req *http_req_new(struct http_conn *c)
{
    struct http_req *req = calloc(1, sizeof(*req));
    if (!req) {
        abort();
    }
    req->c = c;
    req->w = c->w;
    req->is_in_run = true;
    req->out_left = -1;
    atomic_init(&req->refs, 1);
    pthread_mutex_init(&req->mu, NULL);
    req->arena = arena_new(c->w->s->o.max_head + ARENA_REQUEST_MAX);
    buf_init(&req->collected, c->w->s->o.max_buffered_body);
    return req;
}

void http_req_unref(struct http_req *req)
{
    if (atomic_fetch_sub(&req->refs, 1) == 1) {
        chunkq_done(&req->pend_head);
        chunkq_done(&req->pend);
        pthread_mutex_destroy(&req->mu);
        free(req);
    }
}

void http_req_kick(void *ctx)
{
    struct http_req *req = ctx;
    pthread_mutex_lock(&req->mu);
    req->is_posted = false;
    pthread_mutex_unlock(&req->mu);
    if (!req->is_finished) {
        http_conn_run(req->c);
    }
    http_req_unref(req);
}

/* Begins a change from any thread. The reference keeps the lock's memory until the end of the
 * call: the loop may finish the request as soon as it is unlocked. */
static void begin(struct http_req *req)
{
    atomic_fetch_add(&req->refs, 1);
    pthread_mutex_lock(&req->mu);
}

static void end(struct http_req *req)
{
    req->is_dirty = true;
    bool must_post = !req->is_in_run && !req->is_posted;
    if (must_post) {
        req->is_posted = true;
        atomic_fetch_add(&req->refs, 1);
    }
    struct loop *l = req->w->l;
    pthread_mutex_unlock(&req->mu);
    if (must_post) {
        loop_post(l, http_req_kick, req);
    }
    http_req_unref(req);
}

void http_respond(struct http_req *req, const struct http_answer *answer)
{
    begin(req);
    assert(!req->is_head_given);
    req->is_head_given = true;
    req->is_last_given = !answer->is_stream;
    if (!req->is_gone) {
        http_answer_format(req, answer);
    }
    end(req);
}

/* More or less than promised would be read as the next answer, or waited for: break instead. */
static bool is_promised(struct http_req *req, size_t n, bool is_last)
{
    if (req->out_left < 0 || req->is_bodyless) {
        return true;
    }
    if (n > (uint64_t)req->out_left || (is_last && n < (uint64_t)req->out_left)) {
        req->is_abort_given = true;
        return false;
    }
    req->out_left -= (int64_t)n;
    return true;
}

static void begin_chunk(struct http_req *req, size_t n)
{
    char size[24];
    int k = snprintf(size, sizeof(size), "%zx\r\n", n);
    chunkq_add(&req->pend, str_n(size, (size_t)k));
}

/* The bytes: 'piece' (taken) or 'chunk' (copied). */
static void add_body(struct http_req *req, struct str chunk, struct chunkq_block *piece,
                     bool is_last)
{
    if (!is_promised(req, chunk.n, is_last) || req->is_bodyless) {
        chunkq_block_free(piece);
        return;
    }
    bool is_chunked = req->is_chunked_out;
    if (is_chunked && chunk.n) {
        begin_chunk(req, chunk.n);
    }
    if (piece) {
        chunkq_add_block(&req->pend, piece, chunk.n);
    } else {
        chunkq_add(&req->pend, chunk);
    }
    if (is_chunked && chunk.n) {
        chunkq_addc(&req->pend, "\r\n");
    }
    if (is_chunked && is_last) {
        chunkq_addc(&req->pend, "0\r\n\r\n");
    }
}

static size_t body_more(struct http_req *req, struct str chunk, struct chunkq_block *piece,
                        bool is_last)
{
    begin(req);
    assert(req->is_head_given && !req->is_last_given);
    size_t n = 0;
    if (!req->is_gone) {
        add_body(req, chunk, piece, is_last);
        n = req->pend_head.n_bytes + req->pend.n_bytes +
            atomic_load_explicit(&req->c->n_out, memory_order_relaxed);
    } else {
        chunkq_block_free(piece);
    }
    req->is_last_given = is_last;
    end(req);
    return n;
}

size_t http_body_more(struct http_req *req, struct str chunk, bool is_last)
{
    return body_more(req, chunk, NULL, is_last);
}

struct chunkq_block *http_piece_new(size_t size, char **ret_p)
{
    struct chunkq_block *b = chunkq_block_new(size);
    *ret_p = chunkq_block_bytes(b);
    return b;
}

void http_piece_free(struct chunkq_block *piece)
{
    chunkq_block_free(piece);
}

size_t http_body_give(struct http_req *req, struct chunkq_block *piece, size_t n, bool is_last)
{
    return body_more(req, str_n(chunkq_block_bytes(piece), n), piece, is_last);
}

void http_on_drain(struct http_req *req, void (*fn)(struct http_req *req, void *user),
                   size_t below)
{
    begin(req);
    req->drain_fn = fn;
    req->drain_below = below;
    end(req);
}

void http_abort(struct http_req *req)
{
    begin(req);
    req->is_abort_given = true;
    req->is_head_given = req->is_last_given = true;
    end(req);
}

void http_req_collect(struct http_req *req)
{
    req->is_collecting = true;
}

void http_req_pause(struct http_req *req)
{
    pthread_mutex_lock(&req->mu);
    http_req_note_pause(req);
    pthread_mutex_unlock(&req->mu);
}

void http_req_note_pause(struct http_req *req)
{
    assert(!req->is_paused);
    /* Another thread may have resumed before the call-back that pauses returned. */
    req->is_paused = !req->is_resume_given;
    req->is_resume_given = false;
}

void http_req_resume(struct http_req *req)
{
    begin(req);
    if (req->is_paused) {
        req->is_paused = false;
    } else {
        req->is_resume_given = true;
    }
    end(req);
}

void http_req_hold(struct http_req *req)
{
    pthread_mutex_lock(&req->mu);
    req->n_holds++;
    pthread_mutex_unlock(&req->mu);
}

void http_req_release(struct http_req *req)
{
    begin(req);
    assert(req->n_holds > 0);
    req->n_holds--;
    end(req);
}

struct arena *http_req_arena(struct http_req *req)
{
    return req->arena;
}

const struct http_head *http_req_head(const struct http_req *req)
{
    return &req->head;
}

const struct sockaddr_storage *http_req_peer(const struct http_req *req)
{
    return &req->c->peer;
}

struct str http_req_peer_text(const struct http_req *req, struct arena *a)
{
    const struct sockaddr_storage *ss = http_req_peer(req);
    char buf[INET6_ADDRSTRLEN] = "";
    if (ss->ss_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)ss)->sin_addr, buf, sizeof(buf));
    } else if (ss->ss_family == AF_INET6) {
        const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)ss;
        if (IN6_IS_ADDR_V4MAPPED(&s6->sin6_addr)) {
            inet_ntop(AF_INET, &s6->sin6_addr.s6_addr[12], buf, sizeof(buf));
        } else {
            inet_ntop(AF_INET6, &s6->sin6_addr, buf, sizeof(buf));
        }
    }
    return arena_str_dup(a, str_c(buf));
}

int http_req_peer_uid(const struct http_req *req, uid_t *ret)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);
    if (req->c->peer.ss_family != AF_UNIX) {
        return -ENOTSOCK;
    }
    if (getsockopt(req->c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0) {
        return -errno;
    }
    *ret = cred.uid;
    return 0;
}

int http_req_listener(const struct http_req *req)
{
    return req->c->listener;
}

struct loop *http_req_loop(const struct http_req *req)
{
    return req->w->l;
}

int http_req_set_hop_limit(const struct http_req *req, int n_hops)
{
    bool is_v4 = req->c->peer.ss_family == AF_INET;
    if (setsockopt(req->c->fd, is_v4 ? IPPROTO_IP : IPPROTO_IPV6,
                   is_v4 ? IP_TTL : IPV6_UNICAST_HOPS, &n_hops, sizeof(n_hops))) {
        return -errno;
    }
    return 0;
}
