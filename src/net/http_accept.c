#include "net/http_int.h"

#include "base/log.h"
#include "base/time.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

LOG_MODULE("net.http");

#define MAX_ACCEPTS 32 /* of one turn */
#define RETRY_NS    (100 * NS_PER_MS)
#define NEVER       UINT64_MAX

/* ---- idle connections: each worker's ring, the idlest first ---- */

static void note_idle(struct http_worker *w)
{
    uint64_t oldest = NEVER;
    if (w->idle.next != &w->idle) {
        oldest = CONTAINER_OF(w->idle.next, struct http_conn, idle_link)->phase_ns;
    }
    atomic_store_explicit(&w->oldest_idle_ns, oldest, memory_order_relaxed);
}

void http_idle_enter(struct http_conn *c)
{
    c->is_idle = true;
    http_link_add(&c->w->idle, &c->idle_link);
    atomic_fetch_add_explicit(&c->w->n_idle, 1, memory_order_relaxed);
    note_idle(c->w);
}

void http_idle_leave(struct http_conn *c)
{
    if (c->is_idle) {
        c->is_idle = false;
        http_link_del(&c->idle_link);
        atomic_fetch_sub_explicit(&c->w->n_idle, 1, memory_order_relaxed);
        note_idle(c->w);
    }
}

static void evict(void *ctx)
{
    struct http_worker *w = ctx;
    atomic_fetch_sub(&w->n_evicting, 1);
    if (w->idle.next != &w->idle) {
        atomic_fetch_add(&w->n_evicted, 1);
        http_conn_close(CONTAINER_OF(w->idle.next, struct http_conn, idle_link));
    }
}

/* Makes room by closing the connection that has been idle longest. False when none is. */
static bool make_room(struct http_server *s, struct http_worker *here)
{
    struct http_worker *best = NULL;
    uint64_t oldest = NEVER;
    for (unsigned i = 0; i < s->n_workers; i++) {
        struct http_worker *w = &s->workers[i];
        uint64_t t = atomic_load_explicit(&w->oldest_idle_ns, memory_order_relaxed);
        if (t < oldest && atomic_load(&w->n_idle) > atomic_load(&w->n_evicting)) {
            oldest = t;
            best = w;
        }
    }
    if (!best) {
        return false;
    }
    atomic_fetch_add(&best->n_evicting, 1);
    if (best == here) {
        evict(best);
    } else {
        loop_post(best->l, evict, best);
    }
    return true;
}

/* ---- new connections ---- */

/* Tells a plain client why; a TLS handshake for that would be work that an attacker chooses. */
static void turn_away(struct http_server *s, int fd)
{
    static const char busy[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
        "Connection: close\r\n\r\n";
    atomic_fetch_add(&s->n_refused, 1);
    if (!s->o.tls && send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
        shutdown(fd, SHUT_WR);
        char drop[4096]; /* what has arrived would turn the close into a reset that overtakes
                            the answer */
        while (recv(fd, drop, sizeof(drop), MSG_DONTWAIT) > 0) {}
    }
    close(fd);
}

static struct http_worker *least_busy(struct http_server *s)
{
    struct http_worker *best = &s->workers[0];
    for (unsigned i = 1; i < s->n_workers; i++) {
        if (atomic_load(&s->workers[i].n_conns) < atomic_load(&best->n_conns)) {
            best = &s->workers[i];
        }
    }
    return best;
}

static void take(struct http_listener *ln, int fd, const struct sockaddr_storage *peer)
{
    struct http_server *s = ln->s;
    struct http_worker *here = &s->workers[0];
    if (http_peers_take(s->peers, peer) < 0) {
        log_debug("http.cap", KV_CSTR("cap", "per address"));
        turn_away(s, fd);
        return;
    }
    if (atomic_load(&s->n_conns) >= s->o.max_conns && !make_room(s, here)) {
        http_peers_give(s->peers, peer);
        log_debug("http.cap", KV_CSTR("cap", "all"));
        turn_away(s, fd);
        return;
    }
    struct http_worker *w = least_busy(s);
    atomic_fetch_add(&s->n_conns, 1);
    atomic_fetch_add(&w->n_conns, 1);
    atomic_fetch_add_explicit(&s->n_accepted, 1, memory_order_relaxed);
    struct http_conn *c = http_conn_new(w, fd, ln->idx, peer);
    if (w == here) {
        http_conn_start(c);
    } else {
        loop_post(w->l, http_conn_start, c);
    }
}

static void on_retry(void *ctx)
{
    struct http_listener *ln = ctx;
    loop_fd_mod(ln->h, EPOLLIN);
}

static void on_accept(void *ctx, uint32_t ready)
{
    struct http_listener *ln = ctx;
    for (int i = 0; i < MAX_ACCEPTS && ln->h; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t n = sizeof(peer);
        int fd = accept4(ln->fd, (struct sockaddr *)&peer, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take(ln, fd, &peer);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED) {
            continue;
        }
        if (errno != EAGAIN) {
            /* No descriptors or no memory: the event would come again at once. Look again
             * later. */
            log_debug("http.accept", KV_CSTR("error", strerror(errno)));
            loop_fd_mod(ln->h, 0);
            loop_timer_set(ln->retry, time_mono_ns() + RETRY_NS);
        }
        return;
    }
}

int http_accept_start(struct http_listener *ln)
{
    struct loop *l = ln->s->workers[0].l;
    ln->retry = loop_timer_new(l, on_retry, ln);
    return loop_fd_add(l, ln->fd, EPOLLIN, on_accept, ln, &ln->h);
}

void http_accept_stop(struct http_listener *ln)
{
    loop_fd_del(ln->h);
    ln->h = NULL;
    loop_timer_free(ln->retry);
    ln->retry = NULL;
    if (ln->fd >= 0) {
        close(ln->fd);
        ln->fd = -1;
    }
}
