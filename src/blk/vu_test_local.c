#include "blk/vu_test_local.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

static void *loop_main(void *ctx)
{
    struct vu_local *l = ctx;
    loop_run(l->loop);
    return NULL;
}

void vu_local_start(struct vu_local *l, const struct vu_local_opts *o)
{
    memset(l, 0, sizeof(*l));
    tmpdir_init(&l->dir, "vu-local");
    tmpdir_path(&l->dir, "vu.sock", l->sock);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_true(strlen(l->sock) < sizeof(a.sun_path));
    memcpy(a.sun_path, l->sock, strlen(l->sock));
    l->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(l->listen_fd >= 0);
    assert_int_equal(bind(l->listen_fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(l->listen_fd, 64), 0);
    char path[PATH_MAX];
    int fd = o && o->is_file
                 ? open(tmpdir_path(&l->dir, "data", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600)
                 : memfd_create("vu-local-disk", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, VU_LOCAL_SIZE), 0);
    l->data_fd =
        o && o->is_file ? open(path, O_RDWR | O_CLOEXEC) : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    assert_true(l->data_fd >= 0);
    l->loop = loop_new();
    unsigned n = o && o->n_queues ? o->n_queues : 2;
    struct disk_opts d = {.id = "vol-test",
                          .size = VU_LOCAL_SIZE,
                          .data_fd = fd,
                          .map_fd = -1,
                          .run_fd = -1,
                          .aside_fd = -1,
                          .base_fd = -1,
                          .base_map_fd = -1,
                          .is_read_only = o && o->is_read_only,
                          .n_queues = n};
    struct err err = ERR_INIT;
    if (disk_open(&d, 0, &l->disk, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    struct vu_opts v = {.loop = l->loop,
                        .disk = l->disk,
                        .listen_fd = l->listen_fd,
                        .peer_uid = o && o->has_peer ? o->peer_uid : (uid_t)-1,
                        .n_queues = n,
                        .serial = "vol0123456789abcdef0",
                        .poll_ns = o ? o->poll_ns : 0};
    if (vu_new(&v, &l->vu, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(pthread_create(&l->thread, NULL, loop_main, l), 0);
}

struct call {
    struct vu_local *l;
    void (*fn)(struct vu_local *l, void *arg);
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
};

static void run_call(void *ctx)
{
    struct call *c = ctx;
    c->fn(c->l, c->arg);
    pthread_mutex_lock(&c->lock);
    c->is_done = true;
    pthread_cond_signal(&c->done);
    pthread_mutex_unlock(&c->lock);
}

void vu_local_call(struct vu_local *l, void (*fn)(struct vu_local *l, void *arg), void *arg)
{
    struct call c = {l, fn, arg, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    loop_post(l->loop, run_call, &c);
    pthread_mutex_lock(&c.lock);
    while (!c.is_done) {
        pthread_cond_wait(&c.done, &c.lock);
    }
    pthread_mutex_unlock(&c.lock);
}

static void get_stats(struct vu_local *l, void *arg)
{
    vu_stats(l->vu, arg);
}

struct vu_stats vu_local_stats(struct vu_local *l)
{
    struct vu_stats s;
    vu_local_call(l, get_stats, &s);
    return s;
}

void vu_local_stop(struct vu_local *l)
{
    struct err err = ERR_INIT;
    loop_stop(l->loop);
    pthread_join(l->thread, NULL);
    vu_free(l->vu);
    if (l->disk && disk_close(l->disk, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    loop_free(l->loop);
    close(l->listen_fd);
    close(l->data_fd);
    tmpdir_done(&l->dir);
}

struct vu_client *vu_local_client(struct vu_local *l, unsigned size)
{
    struct vu_client_opts o = {.path = l->sock,
                               .n_queues = 2,
                               .queue_size = size,
                               .mem_size = 16u << 20,
                               .has_inflight = true,
                               .has_event_idx = true,
                               .has_indirect = true};
    struct vu_client *c = NULL;
    struct err err = ERR_INIT;
    if (vu_client_new(&o, &c, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return c;
}

uint8_t vu_local_io(struct vu_client *c, unsigned queue, unsigned type, uint64_t off,
                    uint64_t len, void *p, unsigned flags)
{
    struct vu_io io = {.type = type, .flags = flags, .off = off, .len = len, .p = p, .tag = 77};
    struct vu_end end = {0};
    assert_int_equal(vu_client_put(c, queue, &io), 0);
    assert_int_equal(vu_client_kick(c, queue), 0);
    assert_int_equal(vu_client_wait(c, queue, 10 * NS_PER_S, &end, 1), 1);
    assert_int_equal(end.tag, 77);
    return end.status;
}

void vu_hand_desc(struct vu_client *c, unsigned queue, unsigned idx, uint64_t gpa, uint32_t len,
                  uint16_t flags, uint16_t next)
{
    c->queues[queue].desc[idx] = (struct vring_desc){gpa, len, flags, next};
}

void vu_hand_submit(struct vu_client *c, unsigned queue, uint16_t head)
{
    struct vu_client_queue *q = &c->queues[queue];
    q->avail->ring[q->avail_idx & (q->num - 1u)] = head;
    q->avail_idx++;
    assert_int_equal(vu_client_kick(c, queue), 0);
}

static bool wait_fd(int fd, uint64_t ms)
{
    struct pollfd p = {fd, POLLIN, 0};
    uint64_t n = 0;
    return poll(&p, 1, (int)ms) == 1 && read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n);
}

bool vu_hand_wait(struct vu_client *c, unsigned queue, uint64_t ms, struct vring_used_elem *ret)
{
    struct vu_client_queue *q = &c->queues[queue];
    uint64_t end = time_mono_ns() + ms * NS_PER_MS;
    while (__atomic_load_n(&q->used->idx, __ATOMIC_ACQUIRE) == q->last_used) {
        if (time_mono_ns() >= end) {
            return false;
        }
        (void)wait_fd(q->call_fd, 10);
    }
    *ret = q->used->ring[q->last_used & (q->num - 1u)];
    q->last_used++;
    q->avail->ring[q->num] = q->last_used; /* tell us of the next, too */
    return true;
}

bool vu_hand_is_faulted(struct vu_client *c, unsigned queue, uint64_t ms)
{
    return wait_fd(c->queues[queue].err_fd, ms);
}

/* ---- a socket by hand ---- */

int vu_local_dial(const struct vu_local *l)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, l->sock, strlen(l->sock));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

void vu_local_send(int sock, const void *p, size_t n, const int *fds, size_t n_fds)
{
    union {
        char buf[CMSG_SPACE(sizeof(int) * 64)];
        struct cmsghdr align;
    } c = {0};
    struct iovec iov = {(void *)(uintptr_t)p, n};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        h.msg_control = c.buf;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        c.align.cmsg_level = SOL_SOCKET;
        c.align.cmsg_type = SCM_RIGHTS;
        c.align.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(&c.align), fds, sizeof(int) * n_fds);
    }
    assert_int_equal(sendmsg(sock, &h, MSG_NOSIGNAL), (ssize_t)n);
}

bool vu_local_is_closed(int sock)
{
    char b;
    struct pollfd p = {sock, POLLIN, 0};
    return poll(&p, 1, 5000) == 1 && recv(sock, &b, 1, 0) <= 0;
}

/* The server is alive and serves the next one. */
void vu_local_check_serves(struct vu_local *l)
{
    struct vu_client *c = vu_local_client(l, 128);
    assert_int_equal(vu_local_io(c, 1, VIRTIO_BLK_T_IN, 0, 512, vu_client_mem(c), 0), 0);
    vu_client_free(c);
}

int vu_local_count_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    }
    return n;
}

/* The server has seen that the last frontend is gone. */
void vu_local_settle(struct vu_local *l)
{
    for (unsigned i = 0; i < 1000; i++) {
        struct vu_stats s = vu_local_stats(l);
        if (!s.is_connected && s.n_rings == 0) {
            return;
        }
        (void)poll(NULL, 0, 2);
    }
    fail_msg("the connection does not end");
}
