#include "net/rpc_int.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define RX_CHUNK 65536u

/* ---- bytes ---- */

static void put_u32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (char)(unsigned char)(v >> (8 * i));
    }
}

static uint32_t get_u32(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        v |= (uint32_t)(unsigned char)p[i] << (8 * i);
    }
    return v;
}

int rpc_frame_parse(struct str in, bool is_server, struct rpc_frame *ret)
{
    if (in.n < 4) {
        return 0;
    }
    size_t rest = get_u32(in.p);
    if (rest < RPC_HEAD_SIZE - 4 || rest > RPC_MAX_SIZE) {
        return -EPROTO; /* seen before a byte of it is stored */
    }
    if (in.n < RPC_HEAD_SIZE) {
        return 0;
    }
    unsigned char kind = (unsigned char)in.p[8];
    unsigned char n_fds = (unsigned char)in.p[9];
    size_t name_n = (unsigned char)in.p[10];
    bool is_kind_ok = is_server ? kind == RPC_REQUEST
                                : kind == RPC_ANSWER || kind == RPC_ERROR || kind == RPC_EVENT;
    bool has_name = kind == RPC_REQUEST || kind == RPC_ERROR;
    bool may_have_fds = kind == RPC_REQUEST || kind == RPC_ANSWER;
    if (!is_kind_ok || n_fds > (may_have_fds ? RPC_MAX_FDS : 0) || has_name != (name_n > 0) ||
        RPC_HEAD_SIZE - 4 + name_n > rest) {
        return -EPROTO;
    }
    if (in.n < 4 + rest) {
        return 0;
    }
    *ret = (struct rpc_frame){
        .id = get_u32(in.p + 4),
        .kind = (enum rpc_kind)kind,
        .n_fds = n_fds,
        .name = str_n(in.p + RPC_HEAD_SIZE, name_n),
        .payload = str_n(in.p + RPC_HEAD_SIZE + name_n, 4 + rest - RPC_HEAD_SIZE - name_n),
        .size = 4 + rest,
    };
    return 1;
}

/* ---- out ---- */

struct rpc_msg *rpc_msg_new(enum rpc_kind kind, uint32_t id, struct str name,
                            struct str payload)
{
    if (name.n > RPC_NAME_MAX || payload.n > RPC_MAX_SIZE ||
        RPC_HEAD_SIZE - 4 + name.n + payload.n > RPC_MAX_SIZE) {
        return NULL;
    }
    size_t n = RPC_HEAD_SIZE + name.n + payload.n;
    struct rpc_msg *m = malloc(sizeof(*m) + n);
    if (!m) {
        abort();
    }
    memset(m, 0, sizeof(*m));
    m->n = n;
    put_u32(m->bytes, (uint32_t)(n - 4));
    put_u32(m->bytes + 4, id);
    m->bytes[8] = (char)kind;
    m->bytes[9] = 0;
    m->bytes[10] = (char)(unsigned char)name.n;
    if (name.n) {
        memcpy(m->bytes + RPC_HEAD_SIZE, name.p, name.n);
    }
    if (payload.n) {
        memcpy(m->bytes + RPC_HEAD_SIZE + name.n, payload.p, payload.n);
    }
    return m;
}

static void close_fds(struct rpc_msg *m)
{
    for (size_t i = 0; i < m->n_fds; i++) {
        close(m->fds[i]);
    }
    m->n_fds = 0;
}

int rpc_msg_add_fds(struct rpc_msg *m, const int *fds, size_t n_fds)
{
    assert(n_fds <= RPC_MAX_FDS && m->n_fds == 0 && m->off == 0);
    for (size_t i = 0; i < n_fds; i++) {
        int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (fd < 0) {
            int r = -errno;
            close_fds(m);
            return r;
        }
        m->fds[m->n_fds++] = fd;
    }
    m->bytes[9] = (char)n_fds;
    return 0;
}

void rpc_msg_free(struct rpc_msg *m)
{
    if (m) {
        close_fds(m);
        free(m);
    }
}

int rpc_msg_send(struct rpc_msg *m, int sock)
{
    union {
        char buf[CMSG_SPACE(RPC_MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    while (m->off < m->n) {
        struct iovec iov = {.iov_base = m->bytes + m->off, .iov_len = m->n - m->off};
        struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
        if (m->n_fds > 0) { /* with the first byte */
            memset(&control, 0, sizeof(control));
            mh.msg_control = control.buf;
            mh.msg_controllen = CMSG_SPACE(m->n_fds * sizeof(int));
            struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
            assert(c); /* there is room: see 'control' */
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(m->n_fds * sizeof(int));
            memcpy(CMSG_DATA(c), m->fds, m->n_fds * sizeof(int));
        }
        ssize_t n = sendmsg(sock, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno == EAGAIN ? 0 : -errno;
        }
        m->off += (size_t)n;
        close_fds(m);
    }
    return 1;
}

/* ---- in ---- */

void rpc_rx_init(struct rpc_rx *rx, bool is_server)
{
    *rx = (struct rpc_rx){.is_server = is_server};
    buf_init(&rx->in, RPC_MAX_SIZE + 4 + RX_CHUNK);
}

void rpc_rx_done(struct rpc_rx *rx)
{
    for (size_t i = 0; i < rx->n_fds; i++) {
        close(rx->fds[i]);
    }
    rx->n_fds = 0;
    buf_done(&rx->in);
    rx->off = 0;
}

/* Every descriptor that the kernel gave is taken in or closed. */
static int take_fds(struct rpc_rx *rx, struct msghdr *mh)
{
    bool is_bad = (mh->msg_flags & MSG_CTRUNC) != 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (rx->n_fds < ARRAY_LEN(rx->fds)) {
                rx->fds[rx->n_fds++] = fd;
            } else {
                close(fd);
                is_bad = true;
            }
        }
    }
    return is_bad ? -EPROTO : 0;
}

int rpc_rx_read(struct rpc_rx *rx, int sock)
{
    if (rx->off > 0) {
        buf_drop(&rx->in, rx->off);
        rx->off = 0;
        if (rx->in.n == 0 &&
            rx->in.cap > 4 * RX_CHUNK) { /* a large frame went by: give its memory back */
            buf_done(&rx->in);
        }
    }
    char *p = buf_reserve(&rx->in, RX_CHUNK);
    if (!p) {
        return -EPROTO;
    }
    union {
        char buf[CMSG_SPACE(RPC_MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = p, .iov_len = RX_CHUNK};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control.buf,
                        .msg_controllen = sizeof(control.buf)};
    ssize_t n = 0;
    do {
        n = recvmsg(sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return -errno;
    }
    int r = take_fds(rx, &mh);
    if (r < 0) {
        return r;
    }
    buf_commit(&rx->in, (size_t)n);
    return n > 0;
}

int rpc_rx_next(struct rpc_rx *rx, struct rpc_frame *ret, int fds[RPC_MAX_FDS])
{
    struct str in = str_skip(buf_str(&rx->in), rx->off);
    int r = rpc_frame_parse(in, rx->is_server, ret);
    if (r < 0) {
        return r;
    }
    if (r == 0) {
        /* Descriptors come with the first byte of their frame: without one, or more than one
         * frame's, they are garbage. */
        return rx->n_fds > (in.n ? RPC_MAX_FDS : 0) ? -EPROTO : 0;
    }
    if (ret->n_fds > rx->n_fds) {
        return -EPROTO;
    }
    for (size_t i = 0; i < ret->n_fds; i++) {
        fds[i] = rx->fds[i];
    }
    rx->n_fds -= ret->n_fds;
    memmove(rx->fds, rx->fds + ret->n_fds, rx->n_fds * sizeof(int));
    rx->off += ret->size;
    return 1;
}

/* ---- errors ---- */

struct rpc_msg *rpc_err_encode(uint32_t id, const struct err *err)
{
    struct str name = str_c(err->name && *err->name ? err->name : "InternalError");
    struct str hint = str_c(err->hint ? err->hint : "");
    struct str msg = str_n(err->msg, strnlen(err->msg, sizeof(err->msg)));
    name.n = MIN(name.n, RPC_NAME_MAX);
    hint.n = MIN(hint.n, 1000);
    AUTO_BUF b;
    buf_init(&b, 4096);
    char head[6];
    put_u32(head, (uint32_t)(err->code < 0 ? err->code : -EIO));
    head[4] = (char)(unsigned char)(hint.n & 0xff);
    head[5] = (char)(unsigned char)(hint.n >> 8);
    buf_add(&b, str_n(head, sizeof(head)));
    buf_add(&b, hint);
    buf_add(&b, msg);
    struct rpc_msg *m = rpc_msg_new(RPC_ERROR, id, name, buf_str(&b));
    assert(m); /* its parts are bounded */
    return m;
}

/* err.name and err.hint are static strings everywhere; those of the far side are few, so each
 * is kept once, for ever. A far side that invents names meets the limit. */
#define INTERN_MAX 2048u

static const char *intern(struct str s, const char *when_full)
{
    static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    static char *words[INTERN_MAX]; /* GUARDED_BY(mu) */
    static size_t n_words;          /* GUARDED_BY(mu) */
    const char *ret = when_full;
    pthread_mutex_lock(&mu);
    size_t i = 0;
    while (i < n_words && !str_eqc(s, words[i])) {
        i++;
    }
    if (i == n_words && n_words < INTERN_MAX) {
        char *copy = strndup(s.p, s.n);
        if (!copy) {
            abort();
        }
        words[n_words++] = copy;
    }
    if (i < n_words) {
        ret = words[i];
    }
    pthread_mutex_unlock(&mu);
    return ret;
}

static bool is_printable(struct str s, bool is_word)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < ' ' || c == 0x7f || (is_word && (c == ' ' || c > 0x7f))) {
            return false;
        }
    }
    return true;
}

int rpc_err_decode(const struct rpc_frame *f, int *ret_code, struct err *err)
{
    const struct str p = f->payload;
    size_t hint_n = p.n >= 6 ? (unsigned char)p.p[4] | (size_t)(unsigned char)p.p[5] << 8 : 0;
    int32_t code = p.n >= 6 ? (int32_t)get_u32(p.p) : 0;
    if (p.n < 6 + hint_n || hint_n > 1000 || code >= 0 || code < -4095 ||
        !is_printable(f->name, true)) {
        return -EPROTO;
    }
    struct str hint = str_n(p.p + 6, hint_n);
    struct str msg = str_skip(p, 6 + hint_n);
    if (!is_printable(hint, false)) {
        return -EPROTO;
    }
    fail(err, code, intern(f->name, "RemoteError"), "%.*s", STR_ARG(msg));
    if (err && err->code == code && !err->hint && hint_n > 0) {
        err_hint(err, intern(hint, NULL));
    }
    *ret_code = code;
    return 0;
}

int rpc_addr(const char *path, struct sockaddr_un *ret, struct err *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof(ret->sun_path)) {
        return fail(err, -ENAMETOOLONG, "PathTooLong",
                    "socket path of %zu bytes (1 to %zu fit): %s", n, sizeof(ret->sun_path) - 1,
                    path);
    }
    memcpy(ret->sun_path, path, n);
    return 0;
}
