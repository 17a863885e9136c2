#include "base/log.h"
#include "base/vec.h"
#include "net/rpc_int.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

LOG_MODULE("net.rpc");

#define STALL_CHECK_NS  (5 * NS_PER_S)
#define ACCEPT_RETRY_NS (100 * NS_PER_MS)
#define MAX_MSGS        65536u /* small events that wait for a slow reader */
#define READS_PER_TURN  16     /* one busy peer must not keep the others waiting */

struct rpc_conn {
    atomic_int refs;
    struct rpc_peer peer;

    /* Of the loop's thread. */
    struct rpc_server *server; /* NULL when closed */
    struct loop_fd *h;
    struct rpc_rx rx;

    pthread_mutex_t mu;
    struct loop *loop; /* GUARDED_BY(mu) as all below; NULL when closed */
    int fd;
    bool is_broken; /* shut down by another thread: the loop will close it */
    bool is_poked;  /* a message to the loop is on its way */
    bool is_paused; /* too many requests wait for their answers */
    unsigned n_inflight;
    struct rpc_msg *first, **last;
    size_t n_queued, n_msgs; /* bytes and frames that are not sent */
    uint64_t progress_ns;    /* when the reader last took something */
};

struct rpc_req {
    struct rpc_conn *conn;
    uint32_t id;
};

struct rpc_server {
    struct loop *loop;
    struct rpc_server_ops ops;
    void *ctx;
    char *path;
    dev_t dev; /* of the socket file that we made */
    ino_t ino;
    int fd;
    struct loop_fd *h;
    struct loop_timer *timer, *accept_timer;
    uint64_t stall_ns, check_ns;
    VEC(struct rpc_conn *) conns;
};

/* ---- connections ---- */

struct rpc_conn *rpc_conn_ref(struct rpc_conn *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

struct rpc_conn *rpc_conn_unref(struct rpc_conn *c)
{
    if (c && atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) == 1) {
        assert(!c->server && c->fd < 0);
        pthread_mutex_destroy(&c->mu);
        free(c);
    }
    return NULL;
}

static void conn_drop_queue(struct rpc_conn *c)
{
    while (c->first) {
        struct rpc_msg *m = c->first;
        c->first = m->next;
        rpc_msg_free(m);
    }
    c->last = &c->first;
    c->n_queued = c->n_msgs = 0;
}

/* Loop thread. */
static void conn_close(struct rpc_conn *c)
{
    struct rpc_server *s = c->server;
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->conns.n; i++) {
        if (s->conns.v[i] == c) {
            s->conns.v[i] = s->conns.v[--s->conns.n];
            break;
        }
    }
    c->server = NULL;
    loop_fd_del(c->h);
    rpc_rx_done(&c->rx);
    pthread_mutex_lock(&c->mu);
    c->loop = NULL;
    close(steal_fd(&c->fd));
    conn_drop_queue(c);
    pthread_mutex_unlock(&c->mu);
    if (s->ops.on_close) {
        s->ops.on_close(s->ctx, c);
    }
    rpc_conn_unref(c);
}

/* Holds mu. The loop sees the hang-up and closes. */
static void conn_break(struct rpc_conn *c)
{
    if (!c->is_broken && c->fd >= 0) {
        c->is_broken = true;
        shutdown(c->fd, SHUT_RDWR);
        conn_drop_queue(c);
    }
}

/* Holds mu. 0 = sent or the socket is full; -errno: broken. */
static int conn_flush(struct rpc_conn *c)
{
    while (c->first) {
        struct rpc_msg *m = c->first;
        size_t before = m->off;
        int r = rpc_msg_send(m, c->fd);
        c->n_queued -= m->off - before;
        if (m->off != before) {
            c->progress_ns = time_mono_ns();
        }
        if (r <= 0) {
            return r;
        }
        c->first = m->next;
        c->n_msgs--;
        if (!c->first) {
            c->last = &c->first;
        }
        rpc_msg_free(m);
    }
    return 0;
}

/* Loop thread: what the socket should tell us next. */
static void conn_arm(struct rpc_conn *c)
{
    pthread_mutex_lock(&c->mu);
    uint32_t events = c->is_paused ? 0 : EPOLLIN;
    if (c->first) {
        events |= EPOLLOUT;
    }
    pthread_mutex_unlock(&c->mu);
    loop_fd_mod(c->h, events);
}

static void conn_serve(struct rpc_conn *c);

/* Loop thread: another thread queued something or answered enough. Owns a reference. */
static void on_poke(void *ctx)
{
    struct rpc_conn *c = ctx;
    pthread_mutex_lock(&c->mu);
    c->is_poked = false;
    bool is_resumed = c->is_paused && c->n_inflight <= RPC_MAX_INFLIGHT / 2;
    if (is_resumed) {
        c->is_paused = false;
    }
    pthread_mutex_unlock(&c->mu);
    if (c->server && is_resumed) {
        conn_serve(c); /* frames that were read before the pause */
    }
    if (c->server) {
        conn_arm(c);
    }
    rpc_conn_unref(c);
}

/* Holds mu. */
static void conn_poke(struct rpc_conn *c)
{
    if (c->loop && !c->is_poked) {
        c->is_poked = true;
        loop_post(c->loop, on_poke, rpc_conn_ref(c));
    }
}

/* Holds mu; takes the message. Sends at once when nothing waits. */
static int conn_send(struct rpc_conn *c, struct rpc_msg *m)
{
    if (c->fd < 0 || c->is_broken) {
        rpc_msg_free(m);
        return -EPIPE;
    }
    if (c->n_queued + m->n > RPC_MAX_QUEUED || c->n_msgs >= MAX_MSGS) {
        rpc_msg_free(m);
        conn_break(c);
        return -ENOBUFS;
    }
    bool was_empty = !c->first;
    *c->last = m;
    c->last = &m->next;
    c->n_queued += m->n;
    c->n_msgs++;
    if (!was_empty) {
        return 0;
    }
    c->progress_ns = time_mono_ns();
    int r = conn_flush(c);
    if (r < 0) {
        conn_break(c);
        return -EPIPE;
    }
    if (c->first) {
        conn_poke(c);
    }
    return 0;
}

int rpc_push(struct rpc_conn *c, uint32_t stream, struct str payload)
{
    struct rpc_msg *m = rpc_msg_new(RPC_EVENT, stream, STR(""), payload);
    if (!m) {
        return -E2BIG;
    }
    pthread_mutex_lock(&c->mu);
    int r = conn_send(c, m);
    pthread_mutex_unlock(&c->mu);
    return r;
}

/* ---- requests ---- */

const struct rpc_peer *rpc_req_peer(const struct rpc_req *req)
{
    return &req->conn->peer;
}

struct rpc_conn *rpc_req_conn(const struct rpc_req *req)
{
    return req->conn;
}

static void req_answer(struct rpc_req *req, struct rpc_msg *m)
{
    struct rpc_conn *c = req->conn;
    pthread_mutex_lock(&c->mu);
    c->n_inflight--;
    int r = conn_send(c, m);
    (void)r; /* nobody is left who wants to know */
    if (c->is_paused && c->n_inflight <= RPC_MAX_INFLIGHT / 2) {
        conn_poke(c);
    }
    pthread_mutex_unlock(&c->mu);
    free(req);
    rpc_conn_unref(c);
}

void rpc_reply(struct rpc_req *req, struct str payload, const int *fds, size_t n_fds)
{
    struct rpc_msg *m = rpc_msg_new(RPC_ANSWER, req->id, STR(""), payload);
    struct err err = ERR_INIT;
    if (!m) {
        fail(&err, -E2BIG, "TooLarge", "an answer of %zu bytes (at most %u fit)", payload.n,
             RPC_MAX_SIZE);
    } else {
        int r = rpc_msg_add_fds(m, fds, n_fds);
        if (r < 0) {
            fail(&err, r, "NoDescriptors", "passing %zu descriptors: %s", n_fds, strerror(-r));
        }
    }
    if (err.code) {
        rpc_msg_free(m);
        m = rpc_err_encode(req->id, &err);
    }
    req_answer(req, m);
}

void rpc_reply_err(struct rpc_req *req, const struct err *err)
{
    req_answer(req, rpc_err_encode(req->id, err));
}

static void conn_request(struct rpc_conn *c, const struct rpc_frame *f, int *fds)
{
    struct rpc_server *s = c->server;
    struct rpc_req *req = malloc(sizeof(*req));
    if (!req) {
        abort();
    }
    *req = (struct rpc_req){.conn = rpc_conn_ref(c), .id = f->id};
    pthread_mutex_lock(&c->mu);
    c->n_inflight++;
    if (c->n_inflight >= RPC_MAX_INFLIGHT) {
        c->is_paused = true;
    }
    pthread_mutex_unlock(&c->mu);
    s->ops.on_request(s->ctx, req, f->name, f->payload, fds, f->n_fds);
}

static bool conn_is_paused(struct rpc_conn *c)
{
    pthread_mutex_lock(&c->mu);
    bool is = c->is_paused || c->is_broken;
    pthread_mutex_unlock(&c->mu);
    return is;
}

static void conn_reject(struct rpc_conn *c)
{
    log_debug("rpc.bad_frame", KV_I64("pid", c->peer.pid), KV_U64("uid", c->peer.uid));
    conn_close(c);
}

/* Loop thread: hands the frames that are there to the handler. The handler may free nothing of
 * ours but answer. */
static void conn_serve(struct rpc_conn *c)
{
    while (c->server && !conn_is_paused(c)) {
        struct rpc_frame f;
        int fds[RPC_MAX_FDS];
        int r = rpc_rx_next(&c->rx, &f, fds);
        if (r < 0) {
            conn_reject(c);
        }
        if (r <= 0) {
            return;
        }
        conn_request(c, &f, fds);
    }
}

static void conn_read(struct rpc_conn *c)
{
    for (int i = 0; i < READS_PER_TURN && c->server && !conn_is_paused(c); i++) {
        int r = rpc_rx_read(&c->rx, c->fd);
        if (r == -EAGAIN) {
            return;
        }
        if (r == -EPROTO) {
            conn_reject(c);
            return;
        }
        if (r <= 0) {
            conn_close(c);
            return;
        }
        conn_serve(c);
    }
}

static void on_conn(void *ctx, uint32_t ready)
{
    struct rpc_conn *c = rpc_conn_ref(ctx);
    if (ready & EPOLLOUT) {
        pthread_mutex_lock(&c->mu);
        int r = conn_flush(c);
        pthread_mutex_unlock(&c->mu);
        if (r < 0) {
            conn_close(c);
        }
    }
    if (c->server && (ready & EPOLLIN)) {
        conn_read(c);
    }
    /* A hang-up with unread bytes is served by the reads above until they meet the end; while
     * paused nobody waits for the answers. */
    if (c->server && (ready & (EPOLLHUP | EPOLLERR)) &&
        (!(ready & EPOLLIN) || conn_is_paused(c))) {
        conn_close(c);
    }
    if (c->server) {
        conn_arm(c);
    }
    rpc_conn_unref(c);
}

/* ---- accepting ---- */

/* One local user must not be able to take all places. */
static bool has_room(const struct rpc_server *s, uid_t uid)
{
    if (s->conns.n >= RPC_MAX_CONNS) {
        return false;
    }
    if (uid == 0 || uid == geteuid()) {
        return true;
    }
    size_t n = 0;
    for (size_t i = 0; i < s->conns.n; i++) {
        n += s->conns.v[i]->peer.uid == uid;
    }
    return n < RPC_MAX_USER;
}

static void conn_new(struct rpc_server *s, int fd)
{
    struct ucred cred = {0};
    socklen_t n = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0 || !has_room(s, cred.uid)) {
        log_debug("rpc.refused", KV_U64("peers", s->conns.n));
        close(fd);
        return;
    }
    struct rpc_conn *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    atomic_init(&c->refs, 1);
    c->peer = (struct rpc_peer){.pid = cred.pid, .uid = cred.uid, .gid = cred.gid};
    c->server = s;
    c->loop = s->loop;
    c->fd = fd;
    c->last = &c->first;
    pthread_mutex_init(&c->mu, NULL);
    rpc_rx_init(&c->rx, true);
    vec_push(&s->conns, c);
    if (loop_fd_add(s->loop, fd, EPOLLIN, on_conn, c, &c->h) < 0) {
        conn_close(c);
    }
}

static void on_accept(void *ctx, uint32_t ready)
{
    struct rpc_server *s = ctx;
    for (int i = 0; i < 16; i++) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            conn_new(s, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            loop_fd_mod(s->h, 0); /* level-triggered: without a pause this would spin */
            loop_timer_set(s->accept_timer, loop_now_ns(s->loop) + ACCEPT_RETRY_NS);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void on_accept_timer(void *ctx)
{
    struct rpc_server *s = ctx;
    loop_fd_mod(s->h, EPOLLIN);
}

static void on_stall_check(void *ctx)
{
    struct rpc_server *s = ctx;
    uint64_t now = time_mono_ns();
    for (size_t i = s->conns.n; i > 0;
         i--) { /* closing moves the last one here, which was looked at */
        struct rpc_conn *c = s->conns.v[i - 1];
        pthread_mutex_lock(&c->mu);
        bool is_stalled = c->first && now - MIN(c->progress_ns, now) > s->stall_ns;
        pthread_mutex_unlock(&c->mu);
        if (is_stalled) {
            log_debug("rpc.stalled", KV_I64("pid", c->peer.pid));
            conn_close(c);
        }
        i = MIN(i, s->conns.n + 1); /* on_close may have closed more */
    }
    loop_timer_set(s->timer, now + s->check_ns);
}

static bool is_served(const struct sockaddr_un *addr)
{
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = connect(fd, (const struct sockaddr *)addr, sizeof(*addr));
    return r == 0 || errno == EAGAIN; /* EAGAIN: its queue is full */
}

/* The socket is made beside its place and moved there when it has its mode and listens: nobody
 * ever meets a half-made one. */
static int server_bind(struct rpc_server *s, mode_t mode, struct err *err)
{
    struct sockaddr_un addr;
    struct sockaddr_un tmp;
    int r = rpc_addr(s->path, &addr, err);
    if (r < 0) {
        return r;
    }
    char tmp_path[sizeof(tmp.sun_path) + 8];
    snprintf(tmp_path, sizeof(tmp_path), "%s.new", s->path);
    r = rpc_addr(tmp_path, &tmp, err);
    if (r < 0) {
        return r;
    }
    if (is_served(&addr)) {
        return fail(err, -EADDRINUSE, "AddressInUse", "another process serves %s", s->path);
    }
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0) {
        return fail(err, -errno, "ListenFailed", "socket: %m");
    }
    unlink(tmp_path);
    struct stat st;
    if (bind(s->fd, (const struct sockaddr *)&tmp, sizeof(tmp)) < 0 ||
        chmod(tmp_path, mode) < 0 || stat(tmp_path, &st) < 0 || listen(s->fd, 128) < 0 ||
        rename(tmp_path, s->path) < 0) {
        r = fail(err, -errno, "ListenFailed", "%s: %m", s->path);
        unlink(tmp_path);
        return r;
    }
    s->dev = st.st_dev;
    s->ino = st.st_ino;
    return 0;
}

int rpc_server_new(struct loop *l, const char *path, mode_t mode,
                   const struct rpc_server_ops *ops, void *ctx, struct rpc_server **ret,
                   struct err *err)
{
    struct rpc_server *s = calloc(1, sizeof(*s));
    if (!s) {
        abort();
    }
    s->loop = l;
    s->ops = *ops;
    s->ctx = ctx;
    s->fd = -1;
    s->path = strdup(path);
    if (!s->path) {
        abort();
    }
    int r = server_bind(s, mode, err);
    if (r == 0) {
        r = loop_fd_add(l, s->fd, EPOLLIN, on_accept, s, &s->h);
        if (r < 0) {
            fail(err, r, "ListenFailed", "epoll: %s", strerror(-r));
        }
    }
    if (r < 0) {
        rpc_server_free(s);
        return r;
    }
    s->timer = loop_timer_new(l, on_stall_check, s);
    s->accept_timer = loop_timer_new(l, on_accept_timer, s);
    rpc_server_set_stall(s, RPC_STALL_NS, STALL_CHECK_NS);
    *ret = s;
    return 0;
}

void rpc_server_set_stall(struct rpc_server *s, uint64_t stall_ns, uint64_t check_ns)
{
    s->stall_ns = stall_ns;
    s->check_ns = check_ns;
    loop_timer_set(s->timer, time_mono_ns() + check_ns);
}

void rpc_server_free(struct rpc_server *s)
{
    if (!s) {
        return;
    }
    struct stat st;
    if (s->ino && stat(s->path, &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino) {
        unlink(s->path); /* only ours: a successor may have replaced it */
    }
    loop_fd_del(s->h);
    if (s->fd >= 0) {
        close(s->fd);
    }
    while (s->conns.n > 0) {
        conn_close(s->conns.v[s->conns.n - 1]);
    }
    vec_free(&s->conns);
    loop_timer_free(s->timer);
    loop_timer_free(s->accept_timer);
    free(s->path);
    free(s);
}
