#include "net/http_int.h"

#include <errno.h>
#include <sys/socket.h>

#define MAX_IOV     16
#define RECORD_SIZE 16384u /* of TLS; smaller writes cost a record each */
/* Records made before they are sent: one system call for many, without growing what a slow client
 * costs. */
#define SEAL_MAX    (8 * RECORD_SIZE)

/* Small blocks are copied together, so that they leave in one record. */
static ssize_t seal_one(struct http_conn *c)
{
    struct iovec iov[MAX_IOV];
    size_t n_iov = chunkq_iov(&c->out, iov, MAX_IOV);
    if (n_iov == 1 || iov[0].iov_len >= RECORD_SIZE) {
        return tls_conn_write(c->tls, iov[0].iov_base,
                              MIN(iov[0].iov_len, (size_t)RECORD_SIZE));
    }
    char record[RECORD_SIZE];
    size_t n = 0;
    for (size_t i = 0; i < n_iov && n < sizeof(record); i++) {
        size_t take = MIN(iov[i].iov_len, sizeof(record) - n);
        memcpy(record + n, iov[i].iov_base, take);
        n += take;
    }
    return tls_conn_write(c->tls, record, n);
}

static int seal(struct http_conn *c)
{
    while (c->out.n_bytes && c->sealed.n_bytes < SEAL_MAX) {
        ssize_t n = seal_one(c);
        if (n < 0) {
            return (int)n;
        }
        chunkq_drop(&c->out, (size_t)n);
    }
    atomic_store_explicit(&c->n_out, http_unsent(c), memory_order_relaxed);
    return 0;
}

static ssize_t send_some(struct http_conn *c, struct chunkq *q)
{
    struct iovec iov[MAX_IOV];
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = chunkq_iov(q, iov, MAX_IOV)};
    ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

static void note_sent(struct http_conn *c, struct chunkq *q, size_t n)
{
    chunkq_drop(q, n);
    atomic_store_explicit(&c->n_out, http_unsent(c), memory_order_relaxed);
    c->write_ns = 0;
}

int http_io_flush(struct http_conn *c)
{
    struct chunkq *q = c->tls ? &c->sealed : &c->out;
    while (http_unsent(c) && !c->is_write_blocked) {
        int r = c->tls && c->phase != HTTP_TLS ? seal(c) : 0;
        if (r == -EAGAIN && q->n_bytes == 0) {
            return 0; /* TLS wants to read first */
        }
        if (r < 0 && r != -EAGAIN) {
            return r;
        }
        ssize_t n = send_some(c, q);
        if (n == -EINTR) {
            continue;
        }
        if (n == -EAGAIN) {
            c->is_write_blocked = true;
            if (c->write_ns == 0) {
                c->write_ns = loop_now_ns(c->w->l);
            }
            return 0;
        }
        if (n < 0) {
            return (int)n;
        }
        note_sent(c, q, (size_t)n);
    }
    return 0;
}

ssize_t http_io_read(struct http_conn *c, char *p, size_t n)
{
    ssize_t got = 0;
    if (c->tls) {
        got = tls_conn_read(c->tls, p, n);
        c->is_readable = got > 0 && tls_conn_has_pending(c->tls);
        return got;
    }
    do {
        got = recv(c->fd, p, n, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    c->is_readable = got == (ssize_t)n; /* less: all that was there; epoll tells of more */
    return got < 0 ? -errno : got;
}

void http_io_close(struct http_conn *c)
{
    loop_fd_del(c->h);
    c->h = NULL;
    tls_conn_free(c->tls);
    c->tls = NULL;
    if (c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
    }
    chunkq_done(&c->out);
    chunkq_done(&c->sealed);
    atomic_store_explicit(&c->n_out, 0, memory_order_relaxed);
    buf_done(&c->in);
    c->cur = STR_NONE;
}
