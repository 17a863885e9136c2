/* Connections to predastore: made, kept for reuse, written to. */
#include "awsgw/relay_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_IOV 16

static void unlink_idle(struct relay_conn *c)
{
    struct relay_worker *w = c->w;
    *(c->prev ? &c->prev->next : &w->idle) = c->next;
    if (c->next) {
        c->next->prev = c->prev;
    }
    c->next = c->prev = NULL;
    w->n_idle--;
}

void relay_conn_close(struct relay_conn *c)
{
    loop_fd_del(c->h);
    close(c->fd);
    chunkq_done(&c->out);
    buf_done(&c->in);
    http_piece_free(c->piece);
    atomic_fetch_sub(&c->w->r->n_conns, 1);
    free(c);
}

static void on_event(void *ctx, uint32_t ready)
{
    struct relay_conn *c = ctx;
    if (c->q) {
        relay_on_ready(c->q, ready);
        return;
    }
    /* An idle one has nothing to say but good-bye. */
    unlink_idle(c);
    relay_conn_close(c);
}

static int dial(const char *path, int *ret_fd)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n >= sizeof(sa.sun_path)) {
        return -ENAMETOOLONG;
    }
    memcpy(sa.sun_path, path, n + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return errno == EMFILE || errno == ENFILE ? -EAGAIN : -errno;
    }
    if (connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0) {
        int r = -errno; /* -EAGAIN: more connections wait to be accepted than may */
        close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

static int connect_new(struct relay_worker *w, struct relay_conn **ret)
{
    struct relay *r = w->r;
    int fd = -1;
    if (atomic_fetch_add(&r->n_conns, 1) >= r->max_conns) {
        atomic_fetch_sub(&r->n_conns, 1);
        return -EAGAIN;
    }
    int rc = dial(r->path, &fd);
    if (rc < 0) {
        atomic_fetch_sub(&r->n_conns, 1);
        return rc;
    }
    atomic_fetch_add(&r->n_connects, 1);
    struct relay_conn *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    *c = (struct relay_conn){.w = w, .fd = fd, .events = EPOLLIN};
    buf_init(&c->in, RELAY_MAX_HEAD + RELAY_SCRATCH);
    rc = loop_fd_add(w->l, fd, c->events, on_event, c, &c->h);
    if (rc < 0) {
        c->h = NULL;
        relay_conn_close(c);
        return rc;
    }
    *ret = c;
    return 0;
}

int relay_conn_get(struct relay_worker *w, bool is_fresh, struct relay_conn **ret)
{
    struct relay_conn *c = is_fresh ? NULL : w->idle;
    if (c) {
        unlink_idle(c);
        c->is_reused = true;
        c->has_sent = c->has_received = c->was_reset = false;
        c->scan = (struct http1_scan){0};
        *ret = c;
        return 0;
    }
    return connect_new(w, ret);
}

void relay_conn_put(struct relay_conn *c, bool is_whole)
{
    struct relay_worker *w = c->w;
    c->q = NULL;
    if (!is_whole || !c->is_keep || c->is_write_dead || c->out.n_bytes || c->in.n ||
        w->is_stopping || w->n_idle >= RELAY_MAX_IDLE) {
        relay_conn_close(c);
        return;
    }
    buf_done(&c->in);
    buf_init(&c->in, RELAY_MAX_HEAD + RELAY_SCRATCH);
    http_piece_free(c->piece);
    c->piece = NULL;
    if (!relay_conn_listen(c, EPOLLIN)) {
        relay_conn_close(c);
        return;
    }
    c->next = w->idle;
    if (w->idle) {
        w->idle->prev = c;
    }
    w->idle = c;
    w->n_idle++;
}

bool relay_conn_listen(struct relay_conn *c, uint32_t events)
{
    if (events == c->events) {
        return true;
    }
    c->events = events;
    if (events == 0) { /* epoll would tell of an end again and again */
        loop_fd_del(c->h);
        c->h = NULL;
        return true;
    }
    if (!c->h) {
        return loop_fd_add(c->w->l, c->fd, events, on_event, c, &c->h) == 0;
    }
    loop_fd_mod(c->h, events);
    return true;
}

static void queue(struct relay_conn *c, const struct iovec *v, size_t n, size_t n_skip)
{
    for (size_t i = 0; i < n; i++) {
        size_t skip = MIN(n_skip, v[i].iov_len);
        n_skip -= skip;
        if (v[i].iov_len > skip) {
            chunkq_add(&c->out, str_n((const char *)v[i].iov_base + skip, v[i].iov_len - skip));
        }
    }
}

/* What is queued and 'more' leave in one call where they can: no copy of what the socket takes. */
bool relay_conn_send(struct relay_conn *c, const struct iovec *more, size_t n_more)
{
    while (!c->is_write_dead && (c->out.n_bytes || n_more)) {
        struct iovec iov[MAX_IOV];
        size_t n_queued = chunkq_iov(&c->out, iov, MAX_IOV - 3), was = c->out.n_bytes;
        size_t in_iov = 0;
        for (size_t i = 0; i < n_queued; i++) {
            in_iov += iov[i].iov_len;
        }
        size_t n_direct = in_iov == was ? MIN(n_more, (size_t)3) : 0;
        for (size_t i = 0; i < n_direct; i++) {
            iov[n_queued + i] = more[i];
        }
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = n_queued + n_direct};
        ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno != EAGAIN) {
            c->was_reset |= errno == ECONNRESET;
            c->is_write_dead = true;
            break;
        }
        size_t sent = n < 0 ? 0 : (size_t)n, of_queue = MIN(sent, was);
        c->has_sent = c->has_sent || sent > 0;
        chunkq_drop(&c->out, of_queue);
        if (n < 0 || n_direct == n_more) {
            queue(c, more, n_more, sent - of_queue);
            n_more = 0;
        }
        if (n < 0) {
            break;
        }
    }
    return !c->is_write_dead;
}
