#include "net/http_server.h"

#include "base/log.h"
#include "base/time.h"
#include "net/http_int.h"
#include "net/port_holder.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

LOG_MODULE("net.http");

#define BACKLOG   1024
#define MAX_LOOPS 256u
#define MAX_HEAD  (1u << 20)

static void *worker_main(void *ctx)
{
    struct http_worker *w = ctx;
    loop_run(w->l);
    return NULL;
}

static void worker_init(struct http_server *s, struct http_worker *w, struct loop *l)
{
    w->s = s;
    w->l = l;
    w->scratch = malloc(HTTP_READ_SIZE);
    if (!w->scratch) {
        abort();
    }
    http_link_init(&w->conns);
    http_link_init(&w->idle);
    atomic_init(&w->oldest_idle_ns, UINT64_MAX);
}

static void fill_defaults(struct http_server_opts *o)
{
    o->name = o->name ? o->name : "http";
    o->max_head = o->max_head ? MIN(o->max_head, (size_t)MAX_HEAD) : 64 * 1024;
    o->max_buffered_body = o->max_buffered_body ? o->max_buffered_body : 1 << 20;
    o->max_buffered_total = o->max_buffered_total ? o->max_buffered_total : 256 << 20;
    o->max_conns = o->max_conns ? o->max_conns : 4096;
    o->max_conns_per_ip = o->max_conns_per_ip ? o->max_conns_per_ip : 512;
    o->head_timeout_ns = o->head_timeout_ns ? o->head_timeout_ns : 10 * NS_PER_S;
    o->idle_timeout_ns = o->idle_timeout_ns ? o->idle_timeout_ns : 60 * NS_PER_S;
    o->body_timeout_ns = o->body_timeout_ns ? o->body_timeout_ns : 30 * NS_PER_S;
}

/* OpenSSL writes to sockets with write(2), which raises SIGPIPE when the peer has gone. */
static void ignore_sigpipe(void)
{
    struct sigaction old = {0};
    if (sigaction(SIGPIPE, NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
        old.sa_handler = SIG_IGN;
        sigaction(SIGPIPE, &old, NULL);
    }
}

int http_server_new(const struct http_server_opts *opts, const struct http_handler *handler,
                    void *ctx, struct http_server **ret, struct err *err)
{
    assert(handler->on_end && (opts->n_loops || opts->loop) && opts->n_loops <= MAX_LOOPS);
    ignore_sigpipe();
    struct http_server *s = calloc(1, sizeof(*s));
    unsigned n = MAX(opts->n_loops, 1u);
    struct http_worker *workers = calloc(n, sizeof(*workers));
    if (!s || !workers) {
        abort();
    }
    s->o = *opts;
    fill_defaults(&s->o);
    s->handler = *handler;
    s->ctx = ctx;
    s->workers = workers;
    s->n_workers = n;
    s->peers = http_peers_new(s->o.max_conns_per_ip);
    pthread_mutex_init(&s->mu, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->gone, &attr);
    pthread_condattr_destroy(&attr);
    for (unsigned i = 0; i < n; i++) {
        worker_init(s, &workers[i], opts->n_loops ? loop_new() : opts->loop);
    }
    int r = 0;
    for (unsigned i = 0; i < opts->n_loops && r == 0; i++) {
        r = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        workers[i].has_thread = r == 0;
    }
    if (r) {
        http_server_free(s);
        return fail(err, -r, "HttpServer", "%s: thread: %s", s->o.name, strerror(r));
    }
    *ret = s;
    return 0;
}

/* ---- listening ---- */

static void listen_now(void *ctx)
{
    struct http_listener *ln = ctx;
    int r = http_accept_start(ln);
    if (r < 0) { /* out of memory in epoll: the only reason for a fresh socket */
        log_error("http.listen", KV_CSTR("error", strerror(-r)));
    }
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof(a);
    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0) {
        return 0;
    }
    if (a.ss_family == AF_INET6) {
        return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    }
    return a.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&a)->sin_port) : 0;
}

int http_server_listen_fd(struct http_server *s, int listen_fd, struct err *err)
{
    AUTO_FD fd = listen_fd;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        return fail(err, -errno, "ListenFailed", "%s: descriptor %d: %m", s->o.name, fd);
    }
    if (s->n_listeners == HTTP_MAX_LISTENERS) {
        return fail(err, -ENOSPC, "ListenFailed", "%s: too many listeners", s->o.name);
    }
    struct http_listener *ln = calloc(1, sizeof(*ln));
    if (!ln) {
        abort();
    }
    *ln =
        (struct http_listener){.s = s, .fd = fd, .idx = s->n_listeners, .port = bound_port(fd)};
    fd = -1;
    s->listeners[s->n_listeners++] = ln;
    if (s->workers[0].has_thread) {
        loop_post(s->workers[0].l, listen_now, ln);
    } else {
        listen_now(ln);
    }
    return 0;
}

/* One try with one address. Returns a listening descriptor or negative errno. */
static int listen_on(const struct addrinfo *ai)
{
    AUTO_FD fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    int one = 1, zero = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (ai->ai_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const void *)ai->ai_addr;
        bool is_any = IN6_IS_ADDR_UNSPECIFIED(&a->sin6_addr);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, is_any ? &zero : &one, sizeof(int));
    }
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        return -errno;
    }
    return steal_fd(&fd);
}

int http_server_listen(struct http_server *s, const char *host, uint16_t port, struct err *err)
{
    char port_text[8];
    snprintf(port_text, sizeof(port_text), "%u", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int r = getaddrinfo(host ? host : "::", port_text, &hints, &list);
    if (r) {
        return fail(err, -EINVAL, "ListenFailed", "%s: %s: %s", s->o.name,
                    host ? host : "::", gai_strerror(r));
    }
    int fd = listen_on(list);
    freeaddrinfo(list);
    if (fd == -EAFNOSUPPORT && !host) { /* a kernel without IPv6 */
        return http_server_listen(s, "0.0.0.0", port, err);
    }
    if (fd == -EADDRINUSE) {
        char holder[64];
        port_holder(port, holder, sizeof(holder));
        fail(err, fd, "PortInUse", "%s: port %u is in use%s%s", s->o.name, port,
             holder[0] ? " by " : "", holder);
        return err_hint(err,
                        "stop what uses it, or give the service another port in spinifex.toml");
    }
    if (fd < 0) {
        return fail(err, fd, "ListenFailed", "%s: %s port %u: %s", s->o.name,
                    host ? host : "all addresses", port, strerror(-fd));
    }
    return http_server_listen_fd(s, fd, err);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->n_listeners ? s->listeners[0]->port : 0;
}

/* ---- the end ---- */

void http_conn_gone(struct http_server *s, struct http_worker *w,
                    const struct sockaddr_storage *peer)
{
    http_peers_give(s->peers, peer);
    atomic_fetch_sub(&w->n_conns, 1);
    pthread_mutex_lock(&s->mu);
    if (atomic_fetch_sub(&s->n_conns, 1) == 1 && atomic_load(&s->is_draining)) {
        pthread_cond_broadcast(&s->gone);
        if (!w->has_thread) {
            loop_stop(w->l); /* wait_gone() runs it */
        }
    }
    pthread_mutex_unlock(&s->mu);
}

/* On a worker's thread: idle connections go, or all when it is forced. */
static void worker_wind_down(void *ctx)
{
    struct http_worker *w = ctx;
    struct http_server *s = w->s;
    if (w == &s->workers[0]) {
        for (int i = 0; i < s->n_listeners; i++) {
            http_accept_stop(s->listeners[i]);
        }
    }
    bool is_forced = atomic_load(&s->is_forced);
    struct http_link *at = w->conns.next;
    while (at != &w->conns) {
        struct http_conn *c = CONTAINER_OF(at, struct http_conn, link);
        at = at->next;
        if (is_forced && c->phase != HTTP_DEAD) {
            http_conn_kill(c);
        } else if (c->is_idle) {
            http_conn_close(c);
        }
    }
}

static void tell_workers(struct http_server *s)
{
    for (unsigned i = 0; i < s->n_workers; i++) {
        if (s->workers[i].has_thread) {
            loop_post(s->workers[i].l, worker_wind_down, &s->workers[i]);
        } else if (s->workers[i].l) {
            worker_wind_down(&s->workers[i]);
        }
    }
}

static void stop_loop(void *ctx)
{
    loop_stop(ctx);
}

/* True when all connections are gone before the deadline. */
static bool wait_gone(struct http_server *s, uint64_t deadline_ns)
{
    if (!s->workers[0].has_thread) {
        struct loop *l = s->workers[0].l;
        struct loop_timer *t = loop_timer_new(l, stop_loop, l);
        while (atomic_load(&s->n_conns) > 0 && time_mono_ns() < deadline_ns) {
            loop_timer_set(t, deadline_ns);
            loop_run(l);
        }
        loop_timer_free(t);
        return atomic_load(&s->n_conns) == 0;
    }
    struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    pthread_mutex_lock(&s->mu);
    int r = 0;
    while (atomic_load(&s->n_conns) > 0 && r != ETIMEDOUT) {
        r = pthread_cond_timedwait(&s->gone, &s->mu, &ts);
    }
    pthread_mutex_unlock(&s->mu);
    return atomic_load(&s->n_conns) == 0;
}

void http_server_drain(struct http_server *s, uint64_t timeout_ns)
{
    atomic_store(&s->is_draining, true);
    tell_workers(s);
    if (!wait_gone(s, time_mono_ns() + timeout_ns)) {
        atomic_store(&s->is_forced, true);
        tell_workers(s);
    }
}

void http_server_free(struct http_server *s)
{
    if (!s) {
        return;
    }
    atomic_store(&s->is_draining, true);
    atomic_store(&s->is_forced, true);
    tell_workers(s);
    while (!wait_gone(s, time_mono_ns() + 10 * NS_PER_S)) {
        log_debug("http.waiting", KV_U64("connections", atomic_load(&s->n_conns)));
    }
    for (unsigned i = 0; i < s->n_workers; i++) {
        struct http_worker *w = &s->workers[i];
        if (w->has_thread) {
            loop_stop(w->l);
            pthread_join(w->thread, NULL);
        }
        if (s->o.n_loops) {
            loop_free(w->l);
        }
        free(w->scratch);
    }
    for (int i = 0; i < s->n_listeners; i++) {
        free(s->listeners[i]);
    }
    http_peers_free(s->peers);
    pthread_cond_destroy(&s->gone);
    pthread_mutex_destroy(&s->mu);
    free(s->workers);
    free(s);
}

void http_server_stats(const struct http_server *s, struct http_stats *ret)
{
    *ret = (struct http_stats){
        .n_accepted = atomic_load(&s->n_accepted),
        .n_refused = atomic_load(&s->n_refused),
        .n_conns = atomic_load(&s->n_conns),
    };
    for (unsigned i = 0; i < s->n_workers; i++) {
        const struct http_worker *w = &s->workers[i];
        ret->n_evicted += atomic_load(&w->n_evicted);
        ret->n_requests += atomic_load(&w->n_requests);
        ret->n_bad += atomic_load(&w->n_bad);
        ret->n_idle += atomic_load(&w->n_idle);
    }
}
