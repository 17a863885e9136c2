#include "net/http_int.h"

#include <errno.h>
#include <sys/socket.h>

#define MAX_IOV 16
#define RECORD_SIZE \
    16384u /* of TLS; larger writes are cut by OpenSSL, smaller ones cost a record each */

static void note_sent(struct http_conn *c, size_t n)
{
    chunkq_drop(&c->out, n);
    atomic_store_explicit(&c->n_out, c->out.n_bytes, memory_order_relaxed);
    c->write_ns = 0;
}

/* Small blocks are copied together, so that they leave in one record. When a write is tried
 * again OpenSSL wants at least as many bytes as before: the queue only grows between two tries,
 * so that holds. */
static ssize_t send_tls(struct http_conn *c)
{
    struct iovec iov[MAX_IOV];
    size_t n_iov = chunkq_iov(&c->out, iov, MAX_IOV);
    if (n_iov == 1 || iov[0].iov_len >= RECORD_SIZE) {
        return tls_conn_write(c->tls, iov[0].iov_base, iov[0].iov_len);
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

static ssize_t send_plain(struct http_conn *c)
{
    struct iovec iov[MAX_IOV];
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = chunkq_iov(&c->out, iov, MAX_IOV)};
    ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

int http_io_flush(struct http_conn *c)
{
    while (c->out.n_bytes && !c->is_write_blocked) {
        ssize_t n = c->tls ? send_tls(c) : send_plain(c);
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
        note_sent(c, (size_t)n);
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
    atomic_store_explicit(&c->n_out, 0, memory_order_relaxed);
    buf_done(&c->in);
    c->cur = STR_NONE;
}
