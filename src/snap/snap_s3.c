#include "snap/snap_s3.h"

#include "base/time.h"
#include "codec/base64.h"
#include "crypto/crc.h"
#include "net/http1_body.h"
#include "snap/snap_head.h"
#include "snap/snap_s3_int.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define DEFAULT_CONNS 8u
#define DEFAULT_STALL (10 * NS_PER_S)
#define TOTAL_STALLS  6u /* a whole request may take this many times as long as a silence */
#define REFUSAL_MAX   2048u

struct conn {
    int fd;
    bool is_old; /* it has carried a request before */
    size_t off, n;
    char in[SNAP_HEAD_MAX];
};

struct snap_s3 {
    struct snap_s3_opts o;
    char socket[108], bucket[64];
    pthread_mutex_t mu;
    pthread_cond_t freed;
    _Atomic uint64_t trouble_ns;
    unsigned n_busy;
    unsigned n_idle;
    struct conn **idle; /* n_conns places */
};

struct snap_s3 *snap_s3_new(const struct snap_s3_opts *o)
{
    struct snap_s3 *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    c->o = *o;
    c->o.n_conns = o->n_conns ? o->n_conns : DEFAULT_CONNS;
    c->o.stall_ns = o->stall_ns ? o->stall_ns : DEFAULT_STALL;
    snprintf(c->socket, sizeof(c->socket), "%s", o->socket);
    snprintf(c->bucket, sizeof(c->bucket), "%s", o->bucket);
    pthread_mutex_init(&c->mu, NULL);
    pthread_cond_init(&c->freed, NULL);
    c->trouble_ns = time_mono_ns();
    c->idle = calloc(c->o.n_conns, sizeof(struct conn *));
    if (!c->idle) {
        abort();
    }
    return c;
}

static void conn_free(struct conn *k)
{
    if (k->fd >= 0) {
        close(k->fd);
    }
    free(k);
}
DEFINE_CLEANUP(struct conn *, conn_free);

void snap_s3_free(struct snap_s3 *c)
{
    if (!c) {
        return;
    }
    for (unsigned i = 0; i < c->n_idle; i++) {
        conn_free(c->idle[i]);
    }
    free(c->idle);
    pthread_cond_destroy(&c->freed);
    pthread_mutex_destroy(&c->mu);
    free(c);
}

uint64_t snap_s3_trouble_ns(struct snap_s3 *c)
{
    return atomic_load(&c->trouble_ns);
}

/* ---- connections ---- */

static int away(struct err *err, const char *why)
{
    return fail(err, -EAGAIN, "StoreUnavailable", "the object store %s", why);
}

static int conn_new(struct snap_s3 *c, struct conn **ret, struct err *err)
{
    AUTO(conn_freep) struct conn *k = calloc(1, sizeof(*k));
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval tv = {.tv_sec = (time_t)(c->o.stall_ns / NS_PER_S),
                         .tv_usec = (suseconds_t)(c->o.stall_ns % NS_PER_S / 1000)};
    int size = 1 << 20; /* a block and its head, if the kernel lets us */
    if (!k) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a connection");
    }
    k->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (k->fd < 0) {
        return fail(err, -errno, "StoreFailed", "socket: %m");
    }
    setsockopt(k->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    setsockopt(k->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    if (setsockopt(k->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) < 0 ||
        setsockopt(k->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) < 0) {
        return fail(err, -errno, "StoreFailed", "setsockopt: %m");
    }
    memcpy(a.sun_path, c->socket, sizeof(c->socket));
    if (connect(k->fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        return away(err, errno == EAGAIN ? "is slow: it takes no connection" : "is away");
    }
    *ret = steal(&k);
    return 0;
}

/* One of n_conns turns; with a connection that was kept, or NULL. */
static struct conn *turn_take(struct snap_s3 *c)
{
    pthread_mutex_lock(&c->mu);
    while (c->n_busy == c->o.n_conns) {
        pthread_cond_wait(&c->freed, &c->mu);
    }
    c->n_busy++;
    struct conn *k = c->n_idle ? c->idle[--c->n_idle] : NULL;
    pthread_mutex_unlock(&c->mu);
    return k;
}

static void turn_give(struct snap_s3 *c, struct conn *k)
{
    pthread_mutex_lock(&c->mu);
    c->n_busy--;
    if (k) {
        k->is_old = true;
        c->idle[c->n_idle++] = k;
    }
    pthread_cond_signal(&c->freed);
    pthread_mutex_unlock(&c->mu);
}

/* ---- one request on one connection ---- */

struct call {
    const struct snap_s3_req *rq;
    struct str head;
    uint64_t end_ns;
    struct snap_head h;
    bool is_answered; /* a byte of the answer came */
    bool is_whole;    /* the connection may be kept */
    size_t n;         /* bytes of the body received */
    char refusal[REFUSAL_MAX];
    size_t n_refusal;
};

static int io_failed(const struct call *k, struct err *err)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK || time_mono_ns() >= k->end_ns) {
        return away(err, "is slow: it was silent for too long");
    }
    return away(err, "broke the connection");
}

static int send_all(struct conn *k, struct call *call, struct err *err)
{
    struct iovec iov[2] = {
        {(void *)(uintptr_t)call->head.p, call->head.n},
        {(void *)(uintptr_t)call->rq->body.p, call->rq->body.n},
    };
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    while (iov[0].iov_len + iov[1].iov_len) {
        ssize_t n = sendmsg(k->fd, &m, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 || time_mono_ns() >= call->end_ns) {
            return io_failed(call, err);
        }
        for (size_t i = 0, left = (size_t)n; i < 2; i++) {
            size_t used = MIN(left, iov[i].iov_len);
            iov[i].iov_base = (char *)iov[i].iov_base + used;
            iov[i].iov_len -= used;
            left -= used;
        }
    }
    return 0;
}

static int receive(struct conn *k, struct call *call, void *p, size_t n, size_t *ret,
                   struct err *err)
{
    for (;;) {
        ssize_t got = recv(k->fd, p, n, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 || time_mono_ns() >= call->end_ns) {
            return io_failed(call, err);
        }
        call->is_answered |= got > 0;
        *ret = (size_t)got;
        return 0;
    }
}

/* More bytes behind those that are there; 0 bytes: the end. */
static int fill(struct conn *k, struct call *call, size_t *ret, struct err *err)
{
    if (k->off == k->n) {
        k->off = k->n = 0;
    } else if (k->n == sizeof(k->in) && k->off) {
        memmove(k->in, k->in + k->off, k->n - k->off);
        k->n -= k->off;
        k->off = 0;
    }
    if (k->n == sizeof(k->in)) {
        return fail(err, -EIO, "StoreFailed", "the head of an answer is too long");
    }
    int r = receive(k, call, k->in + k->n, sizeof(k->in) - k->n, ret, err);
    k->n += r < 0 ? 0 : *ret;
    return r;
}

static struct str there(const struct conn *k)
{
    return str_n(k->in + k->off, k->n - k->off);
}

static int read_head(struct conn *k, struct call *call, struct err *err)
{
    for (;;) {
        size_t size = snap_head_end(there(k)), got = 0;
        if (size) {
            if (snap_head_parse(str_n(k->in + k->off, size), &call->h) < 0) {
                return fail(err, -EIO, "StoreFailed", "an answer cannot be understood");
            }
            k->off += size;
            if (call->h.status >= 200) {
                return 0;
            }
            continue;
        }
        int r = fill(k, call, &got, err);
        if (r < 0) {
            return r;
        }
        if (got == 0) {
            return away(err, "broke the connection");
        }
    }
}

/* Bytes of the body into where they belong. */
static int take(struct call *call, struct str bytes, struct err *err)
{
    const struct snap_s3_req *rq = call->rq;
    if (call->h.status >= 300) {
        size_t n = MIN(bytes.n, sizeof(call->refusal) - call->n_refusal);
        memcpy(call->refusal + call->n_refusal, bytes.p, n);
        call->n_refusal += n;
        return 0;
    }
    if (rq->out) {
        buf_add(rq->out, bytes);
        return buf_ok(rq->out) ? 0 : fail(err, -EFBIG, "ObjectTooLarge", "%s", rq->key);
    }
    if (bytes.n > rq->cap - call->n) {
        return fail(err, -EFBIG, "ObjectTooLarge", "%s", rq->key);
    }
    if (bytes.n) {
        memcpy((char *)rq->p + call->n, bytes.p, bytes.n);
    }
    call->n += bytes.n;
    return 0;
}

/* The usual body: its size is known, and it goes straight to where it belongs. */
static int read_sized(struct conn *k, struct call *call, uint64_t left, struct err *err)
{
    const struct snap_s3_req *rq = call->rq;
    bool is_direct = call->h.status < 300 && !rq->out;
    if (is_direct && left > rq->cap) {
        return fail(err, -EFBIG, "ObjectTooLarge", "%s", rq->key);
    }
    while (left) {
        size_t got = 0;
        struct str s = there(k);
        s.n = (size_t)MIN((uint64_t)s.n, left);
        int r = take(call, s, err);
        k->off += s.n;
        left -= s.n;
        if (r == 0 && left) {
            r = is_direct ? receive(k, call, (char *)rq->p + call->n, (size_t)left, &got, err)
                          : fill(k, call, &got, err);
            if (r == 0 && got == 0) {
                r = away(err, "broke the connection");
            }
            if (r == 0 && is_direct) {
                call->n += got;
                left -= got;
            }
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int read_chunked(struct conn *k, struct call *call, struct err *err)
{
    struct http1_body b;
    http1_body_init(&b, true, -1);
    for (;;) {
        struct str s = there(k), data = STR_NONE;
        size_t used = 0, got = 0;
        int step = http1_body_next(&b, s.p, s.n, &used, &data);
        if (step < 0) {
            return fail(err, -EIO, "StoreFailed", "an answer cannot be understood");
        }
        int r = step == HTTP1_BODY_DATA ? take(call, data, err) : 0;
        k->off += used;
        if (r < 0 || step == HTTP1_BODY_END) {
            return r;
        }
        if (step == HTTP1_BODY_MORE) {
            r = fill(k, call, &got, err);
            if (r == 0 && got == 0) {
                r = away(err, "broke the connection");
            }
            if (r < 0) {
                return r;
            }
        }
    }
}

static int read_body(struct conn *k, struct call *call, struct err *err)
{
    const struct snap_head *h = &call->h;
    int r = 0;
    if (strcmp(call->rq->method, "HEAD") == 0 || h->status == 204 || h->status == 304) {
        call->is_whole = !h->is_close;
        return 0;
    }
    if (h->is_chunked) {
        r = read_chunked(k, call, err);
    } else if (h->content_length >= 0) {
        r = read_sized(k, call, (uint64_t)h->content_length, err);
    } else {
        return fail(err, -EIO, "StoreFailed", "an answer does not say how long it is");
    }
    call->is_whole = r == 0 && !h->is_close && k->off == k->n;
    return r;
}

static int exchange(struct conn *k, struct call *call, struct err *err)
{
    struct err sent = ERR_INIT;
    k->off = k->n = 0;
    /* A store that refuses from the head closes before it has read the body: its answer waits. */
    int s = send_all(k, call, &sent);
    int r = read_head(k, call, s < 0 ? NULL : err);
    if (r < 0) {
        return s < 0 ? fail(err, s, sent.name, "%s", sent.msg) : r;
    }
    r = read_body(k, call, err);
    call->is_whole &= s == 0;
    return r;
}

/* ---- a request and what its answer means ---- */

static int judge(const struct call *call, struct err *err)
{
    const struct snap_s3_req *rq = call->rq;
    switch (call->h.status) {
    case 200:
    case 204: return 0;
    case 404: return fail(err, -ENOENT, "NoSuchKey", "%s is not in the object store", rq->key);
    case 409: /* another one is writing the key this moment */
    case 412: return fail(err, -EEXIST, "KeyExists", "%s is there", rq->key);
    case 403: return fail(err, -EACCES, "StoreRefused", "the object store refuses this user");
    case 429:
    case 503: return away(err, "is busy or locked (503)");
    case 507: return away(err, "is full (507)");
    default: break;
    }
    if (call->h.status >= 500) {
        return away(err, "failed (5xx)");
    }
    return fail(err, -EIO, "StoreFailed", "%s %s: the object store answers %d: %.*s",
                rq->method, rq->key, call->h.status, (int)MIN(call->n_refusal, 300u),
                call->refusal);
}

static int write_head(struct snap_s3 *c, const struct snap_s3_req *rq, struct buf *b,
                      struct err *err)
{
    buf_fmt(b, "%s /%s%s%s%s%s HTTP/1.1\r\nHost: localhost\r\n", rq->method, c->bucket,
            rq->key[0] ? "/" : "", rq->key, rq->query ? "?" : "", rq->query ? rq->query : "");
    if (str_is_set(rq->body)) {
        uint8_t sum[CRC_MAX_SIZE];
        buf_fmt(b, "Content-Length: %zu\r\nx-amz-checksum-crc32c: ", rq->body.n);
        base64_encode(str_n((const char *)sum, crc_bytes(CRC_32C, rq->crc, sum)), b);
        buf_addc(b, "\r\n");
    }
    buf_fmt(b, "%s\r\n", rq->headers ? rq->headers : "");
    return buf_ok(b) ? 0 : fail(err, -EINVAL, "StoreFailed", "a request is too long");
}

static int run(struct snap_s3 *c, struct call *call, struct err *err)
{
    AUTO(conn_freep) struct conn *k = turn_take(c);
    bool was_old = k && k->is_old;
    struct err first = ERR_INIT;
    int r = k ? exchange(k, call, &first) : 0;
    if (!k || (r < 0 && was_old && !call->is_answered && time_mono_ns() < call->end_ns)) {
        if (k) {
            conn_free(k);
            k = NULL;
        }
        err_clear(&first);
        r = conn_new(c, &k, &first);
        r = r < 0 ? r : exchange(k, call, &first);
    }
    turn_give(c, r == 0 && call->is_whole ? steal(&k) : NULL);
    return r < 0 ? fail(err, r, first.name, "%s", first.msg) : judge(call, err);
}

int snap_s3_call(struct snap_s3 *c, const struct snap_s3_req *rq, struct snap_s3_got *got,
                 struct err *err)
{
    AUTO_BUF head;
    struct call call = {.rq = rq, .end_ns = time_mono_ns() + TOTAL_STALLS * c->o.stall_ns};
    buf_init(&head, 4096);
    int r = write_head(c, rq, &head, err);
    if (r == 0 && c->o.on_request) {
        r = c->o.on_request(c->o.ctx, false, rq->method, rq->key);
        r = r < 0 ? away(err, "was cut off by a test") : 0;
    }
    if (r < 0) {
        return r;
    }
    call.head = buf_str(&head);
    r = run(c, &call, err);
    if (c->o.on_request && c->o.on_request(c->o.ctx, true, rq->method, rq->key) < 0 && r == 0) {
        r = away(err, "was cut off by a test");
    }
    if (r == -EAGAIN || r == -EIO) {
        atomic_store(&c->trouble_ns, time_mono_ns());
    }
    if (r == 0 && got) {
        *got = (struct snap_s3_got){.n = call.n,
                                    .content_length = call.h.content_length,
                                    .has_crc = call.h.has_crc,
                                    .crc = call.h.crc};
    }
    return r;
}
