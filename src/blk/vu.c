#include "blk/vu.h"
#include "base/log.h"
#include "base/time.h"
#include "blk/vu_int.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

LOG_MODULE("blk.vu");

#define RETRY_NS (100 * NS_PER_MS) /* when there are no descriptors for a connection */

static void on_socket(void *ctx, uint32_t ready);
static void on_listen(void *ctx, uint32_t ready);
static void close_connection(struct vu *v);

/* ---- sockets ---- */

static int send_msg(int sock, const struct vu_msg *m, int fd)
{
    struct iovec iov[2] = {{(void *)(uintptr_t)&m->h, VU_MSG_HEAD},
                           {(void *)(uintptr_t)&m->u, m->h.size}};
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c = {0};
    struct msghdr h = {.msg_iov = iov, .msg_iovlen = m->h.size > 0 ? 2 : 1};
    if (fd >= 0) {
        h.msg_control = c.buf;
        h.msg_controllen = sizeof(c.buf);
        c.align.cmsg_level = SOL_SOCKET;
        c.align.cmsg_type = SCM_RIGHTS;
        c.align.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&c.align), &fd, sizeof(int));
    }
    ssize_t n = sendmsg(sock, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* Answers are small: a peer whose buffer is full does not read them. */
    return n == (ssize_t)(VU_MSG_HEAD + m->h.size) ? 0 : -EPIPE;
}

static void drop_fds(struct vu *v)
{
    for (size_t i = 0; i < v->n_fds; i++) {
        auto_closep(&v->fds[i]);
    }
    v->n_fds = 0;
}

/* Keeps the descriptors of one call; -EPROTO when there are more than any message has. */
static int keep_fds(struct vu *v, struct msghdr *h)
{
    int rc = (h->msg_flags & MSG_CTRUNC) != 0 ? -EPROTO : 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (v->n_fds < VU_MAX_FDS) {
                v->fds[v->n_fds++] = fd;
            } else {
                close(fd);
                rc = -EPROTO;
            }
        }
    }
    return rc;
}

/* Reads what is missing of the message and never a byte of the next. 1: it is whole. */
static int read_msg(struct vu *v, struct err *err)
{
    while (v->n_got < VU_MSG_HEAD || v->n_got < VU_MSG_HEAD + v->msg.h.size) {
        bool is_head = v->n_got < VU_MSG_HEAD;
        struct iovec iov = {is_head ? (uint8_t *)&v->msg.h + v->n_got
                                    : v->msg.u.bytes + v->n_got - VU_MSG_HEAD,
                            (is_head ? 0 : v->msg.h.size) + VU_MSG_HEAD - v->n_got};
        union {
            char buf[CMSG_SPACE(sizeof(int) * VU_MAX_FDS)];
            struct cmsghdr align;
        } c;
        struct msghdr h = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = c.buf,
                           .msg_controllen = sizeof(c.buf)};
        ssize_t n = recvmsg(v->fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0) {
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        }
        if (keep_fds(v, &h) < 0) {
            return fail(err, -EPROTO, "BadMessage", "too many descriptors");
        }
        if (n == 0) {
            return -EPIPE;
        }
        v->n_got += (size_t)n;
        if (is_head && v->n_got == VU_MSG_HEAD) {
            int rc = vu_msg_check_head(&v->msg.h, err);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 1;
}

/* ---- the guest learns of a new size ---- */

static void tell_size(struct vu *v)
{
    bool is_running = false;
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        is_running |= vu_queue_state(v->vrings[i].q) == VU_QUEUE_RUNNING;
    }
    /* A frontend whose device does not run yet forgets it: it is told when a ring starts. */
    uint64_t size = vu_size(v);
    if (v->backend_fd < 0 || !is_running || v->told_size == size) {
        return;
    }
    struct vu_msg m = {.h = {VU_BACKEND_CONFIG_CHANGE, VU_FLAG_VERSION, 0}};
    if (send_msg(v->backend_fd, &m, -1) < 0) {
        close(steal_fd(&v->backend_fd));
        return;
    }
    v->told_size = size; /* it asks for it now */
}

void vu_resized(struct vu *v)
{
    tell_size(v);
}

/* ---- messages ---- */

static bool stop_rings(struct vu *v, unsigned mask)
{
    bool is_any = false;
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        struct vu_queue *q = v->vrings[i].q;
        if ((mask >> i & 1) == 0) {
            continue;
        }
        if (vu_queue_state(q) == VU_QUEUE_RUNNING) {
            vu_queue_stop(q);
        }
        is_any |= vu_queue_state(q) == VU_QUEUE_STOPPING;
    }
    return is_any;
}

/* What a stopped ring will take next is where it goes on when it is started again. */
static void keep_bases(struct vu *v, unsigned mask)
{
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        if ((mask >> i & 1) != 0 && v->vrings[i].was_started) {
            v->vrings[i].base = vu_queue_base(v->vrings[i].q);
            v->vrings[i].was_started = false;
        }
    }
}

/* Applies the message that is there and answers it. */
static int do_msg(struct vu *v, struct err *err)
{
    struct vu_msg reply = {.h = {v->msg.h.type, VU_FLAG_VERSION | VU_FLAG_REPLY, 0}};
    AUTO_FD fd = -1;
    struct err why = ERR_INIT;
    bool wants_ack = (v->msg.h.flags & VU_FLAG_NEED_REPLY) != 0 &&
                     (v->protocol >> VU_PROTOCOL_REPLY_ACK & 1) != 0 &&
                     !vu_msg_has_reply(v->msg.h.type);
    keep_bases(v, vu_apply_stops(v, &v->msg));
    int rc = vu_apply(v, &reply, &fd, &why);
    if (rc == 0) {
        rc = vu_apply_start(v, &why);
    }
    if (rc < 0 && !wants_ack && v->msg.h.type != VU_SET_CONFIG) {
        if (err) {
            *err = why;
        }
        return rc;
    }
    if (wants_ack) {
        reply.u.u64 = rc < 0;
        reply.h.size = sizeof(uint64_t);
    }
    if (reply.h.size > 0 && send_msg(v->fd, &reply, fd) < 0) {
        return -EPIPE;
    }
    drop_fds(v);
    v->n_got = 0;
    tell_size(v);
    return 0;
}

static int take_msg(struct vu *v, struct err *err)
{
    int rc = vu_msg_check(&v->msg, v->n_fds, v->o.n_queues, err);
    if (rc < 0) {
        return rc;
    }
    if (stop_rings(v, vu_apply_stops(v, &v->msg))) {
        v->is_waiting = true;
        loop_fd_del(v->fd_h); /* a peer that hangs up meanwhile is noticed after it */
        v->fd_h = NULL;
        return 0;
    }
    return do_msg(v, err);
}

static void end_with(struct vu *v, int rc, const struct err *err)
{
    if (rc != -EPIPE && rc != -ECONNRESET) {
        log_debug("vu.disconnected", KV_CSTR("why", err->code ? err->msg : "the socket failed"),
                  KV_I64("rc", rc));
    }
    close_connection(v);
}

static void on_socket(void *ctx, uint32_t ready)
{
    struct vu *v = ctx;
    (void)ready;
    struct err err = ERR_INIT;
    int rc = read_msg(v, &err); /* one message a turn: others have theirs */
    if (rc == 1) {
        rc = take_msg(v, &err);
    }
    if (rc < 0) {
        end_with(v, rc, &err);
    }
}

/* ---- life of a connection ---- */

static void listen_again(void *ctx)
{
    struct vu *v = ctx;
    if (loop_fd_add(v->o.loop, v->o.listen_fd, EPOLLIN, on_listen, v, &v->listen_h) < 0) {
        loop_timer_set(v->retry, loop_now_ns(v->o.loop) + RETRY_NS);
    }
}

static void closed(struct vu *v)
{
    bool was_connected = v->is_closing;
    vu_apply_reset(v);
    v->is_closing = false;
    if (was_connected && v->o.on_change) {
        v->o.on_change(v->o.ctx, false);
    }
    if (v->is_ending) {
        if (v->on_stopped) {
            v->on_stopped(v->stopped_ctx);
        }
        return;
    }
    listen_again(v);
}

static void close_connection(struct vu *v)
{
    loop_fd_del(v->fd_h);
    v->fd_h = NULL;
    close(steal_fd(&v->fd));
    drop_fds(v);
    v->n_got = 0;
    v->is_waiting = false;
    v->told_size = 0;
    v->is_closing = true;
    if (!stop_rings(v, ~0u)) {
        closed(v);
    }
}

/* Message and rings once more, now that nothing runs that must not. */
static void go_on(struct vu *v)
{
    struct err err = ERR_INIT;
    v->is_waiting = false;
    int rc = do_msg(v, &err);
    if (rc == 0) {
        rc = loop_fd_add(v->o.loop, v->fd, EPOLLIN, on_socket, v, &v->fd_h);
    }
    if (rc < 0) {
        end_with(v, rc, &err);
    }
}

static void cut(struct vu *v)
{
    v->cut_size = disk_size(v->o.disk);
    v->o.disk = NULL;
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        vu_queue_cut(v->vrings[i].q);
    }
    v->is_cutting = false;
    if (v->on_cut) {
        v->on_cut(v->cut_ctx);
    }
}

/* Does what waited for rings to stop, once they have. */
static void settle(struct vu *v)
{
    unsigned mask = v->is_closing || v->is_cutting ? ~0u
                    : v->is_waiting                ? vu_apply_stops(v, &v->msg)
                                                   : 0;
    if (mask == 0 || stop_rings(v, mask)) {
        return; /* nobody waits, or for others too */
    }
    bool was_cutting = v->is_cutting;
    if (was_cutting) {
        keep_bases(v, ~0u);
        cut(v);
    }
    if (v->is_closing) {
        closed(v);
    } else if (v->is_waiting) {
        go_on(v);
    } else if (was_cutting && v->fd >= 0 && vu_apply_start(v, NULL) < 0) {
        close_connection(v);
    }
}

static void on_wake(void *ctx, uint32_t ready)
{
    struct vu *v = ctx;
    (void)ready;
    uint64_t n = 0;
    if (read(v->wake_fd, &n, sizeof(n)) == (ssize_t)sizeof(n)) {
        settle(v);
    }
}

static bool is_allowed(const struct vu *v, int fd)
{
    struct ucred c = {0};
    socklen_t n = sizeof(c);
    if (v->o.peer_uid == (uid_t)-1) {
        return true;
    }
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 &&
           (c.uid == 0 || c.uid == v->o.peer_uid);
}

static void on_listen(void *ctx, uint32_t ready)
{
    struct vu *v = ctx;
    (void)ready;
    AUTO_FD fd = accept4(v->o.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            loop_fd_del(v->listen_h); /* it stays readable: look again in a while */
            v->listen_h = NULL;
            loop_timer_set(v->retry, loop_now_ns(v->o.loop) + RETRY_NS);
        }
        return;
    }
    if (!is_allowed(v, fd)) {
        log_debug("vu.refused");
        return;
    }
    if (loop_fd_add(v->o.loop, fd, EPOLLIN, on_socket, v, &v->fd_h) < 0) {
        return;
    }
    loop_fd_del(v->listen_h); /* the next frontend waits until this one is over */
    v->listen_h = NULL;
    v->fd = steal_fd(&fd);
    v->n_connects++;
    if (v->o.on_change) {
        v->o.on_change(v->o.ctx, true);
    }
}

static int make_queues(struct vu *v, struct err *err)
{
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        struct vu_queue_opts q = {.disk = v->o.disk,
                                  .idx = i,
                                  .poll_ns = v->o.poll_ns,
                                  .serial = v->o.serial,
                                  .shared = &v->shared,
                                  .wake_fd = v->wake_fd};
        v->vrings[i].kick_fd = -1;
        int rc = vu_queue_new(&q, &v->vrings[i].q, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int vu_new(const struct vu_opts *o, struct vu **ret, struct err *err)
{
    if (o->n_queues == 0 || o->n_queues > VU_MAX_QUEUES) {
        return fail(err, -EINVAL, "BadQueues", "%u queues: 1 to %u are possible", o->n_queues,
                    VU_MAX_QUEUES);
    }
    struct vu *v = calloc(1, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a device");
    }
    v->o = *o;
    v->is_read_only = disk_is_read_only(o->disk);
    v->fd = v->backend_fd = -1;
    v->retry = loop_timer_new(o->loop, listen_again, v);
    v->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = v->wake_fd < 0 ? -errno : 0;
    if (rc == 0) {
        rc = loop_fd_add(o->loop, v->wake_fd, EPOLLIN, on_wake, v, &v->wake_h);
    }
    if (rc == 0) {
        rc = make_queues(v, err);
    }
    if (rc == 0) {
        rc = loop_fd_add(o->loop, o->listen_fd, EPOLLIN, on_listen, v, &v->listen_h);
    }
    if (rc < 0) {
        vu_free(v);
        return fail(err, rc, "DeviceFailed", "a vhost-user device cannot be made: %s",
                    strerror(-rc));
    }
    *ret = v;
    return 0;
}

void vu_stop(struct vu *v, void (*fn)(void *ctx), void *ctx)
{
    v->is_ending = true;
    v->on_stopped = fn;
    v->stopped_ctx = ctx;
    loop_fd_del(v->listen_h);
    v->listen_h = NULL;
    loop_timer_stop(v->retry);
    if (v->fd >= 0) {
        close_connection(v);
    } else if (!v->is_closing) {
        closed(v);
    }
}

void vu_cut(struct vu *v, void (*fn)(void *ctx), void *ctx)
{
    if (!v->o.disk) {
        fn(ctx);
        return;
    }
    v->is_cutting = true;
    v->on_cut = fn;
    v->cut_ctx = ctx;
    settle(v);
}

void vu_free(struct vu *v)
{
    if (!v) {
        return;
    }
    loop_fd_del(v->listen_h);
    loop_fd_del(v->fd_h);
    loop_fd_del(v->wake_h);
    loop_timer_free(v->retry);
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        if (v->vrings[i].q) { /* all at once, then waits for each */
            (void)stop_rings(v, 1u << i);
        }
    }
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        vu_queue_free(v->vrings[i].q);
        v->vrings[i].q = NULL;
    }
    if (v->fd >= 0) {
        close(v->fd);
        drop_fds(v);
    }
    v->o.n_queues = 0;
    vu_apply_reset(v);
    auto_closep(&v->wake_fd);
    free(v);
}

void vu_stats(const struct vu *v, struct vu_stats *ret)
{
    const struct vu_shared *s = &v->shared;
    *ret = (struct vu_stats){
        .n_connects = v->n_connects,
        .n_ring_faults = __atomic_load_n(&s->n_ring_faults, __ATOMIC_RELAXED),
        .n_bad_requests = __atomic_load_n(&s->n_bad_requests, __ATOMIC_RELAXED),
        .n_resubmitted = __atomic_load_n(&s->n_resubmitted, __ATOMIC_RELAXED),
        .n_torn_batches = __atomic_load_n(&s->n_torn_batches, __ATOMIC_RELAXED),
        .is_connected = v->fd >= 0 || v->is_closing, /* gone when its memory is */
    };
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        ret->n_rings += vu_queue_state(v->vrings[i].q) == VU_QUEUE_RUNNING ? 1 : 0;
    }
}

void vu_crash_at(struct vu *v, enum vu_crash at, uint64_t n)
{
    __atomic_store_n(&v->shared.crash_left, n, __ATOMIC_RELAXED);
    __atomic_store_n(&v->shared.crash_at, (uint64_t)at, __ATOMIC_RELEASE);
}
