#include "blk/vu_client.h"
#include "base/time.h"
#include "blk/vu_client_int.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#define BIT(n)      (UINT64_C(1) << (n))
#define REPLY_NS    (20 * NS_PER_S)
#define RETRY_MS    2
#define MAX_MEM     (UINT64_C(1) << 34)
#define CONFIG_SIZE 60u

/* ---- messages ---- */

static int send_all(int sock, const struct vu_msg *m, const int *fds, size_t n_fds)
{
    uint8_t buf[sizeof(*m)];
    union {
        char buf[CMSG_SPACE(sizeof(int) * VU_MAX_FDS)];
        struct cmsghdr align;
    } c = {0};
    memcpy(buf, &m->h, VU_MSG_HEAD);
    memcpy(buf + VU_MSG_HEAD, &m->u, m->h.size);
    struct iovec iov = {buf, VU_MSG_HEAD + m->h.size};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        h.msg_control = c.buf;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        c.align.cmsg_level = SOL_SOCKET;
        c.align.cmsg_type = SCM_RIGHTS;
        c.align.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(&c.align), fds, sizeof(int) * n_fds);
    }
    ssize_t n = sendmsg(sock, &h, MSG_NOSIGNAL);
    return n == (ssize_t)iov.iov_len ? 0 : -ECONNRESET;
}

static int recv_part(int sock, void *to, size_t n, int *ret_fd)
{
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c = {0};
    for (size_t got = 0; got < n;) {
        struct iovec iov = {(uint8_t *)to + got, n - got};
        struct msghdr h = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = c.buf,
                           .msg_controllen = sizeof(c.buf)};
        struct pollfd p = {sock, POLLIN, 0};
        if (poll(&p, 1, (int)(REPLY_NS / NS_PER_MS)) == 0) {
            return -ETIMEDOUT;
        }
        ssize_t rc = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
        if (rc <= 0) {
            return -ECONNRESET;
        }
        struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
        if (cm && cm->cmsg_type == SCM_RIGHTS) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(cm), sizeof(fd));
            if (ret_fd && *ret_fd < 0) {
                *ret_fd = fd;
            } else {
                close(fd);
            }
        }
        got += (size_t)rc;
    }
    return 0;
}

int vu_client_call(struct vu_client *c, struct vu_msg *m, const int *fds, size_t n_fds,
                   struct vu_msg *reply, int *ret_fd)
{
    m->h.flags |= VU_FLAG_VERSION;
    int rc = send_all(c->sock, m, fds, n_fds);
    if (rc < 0 || !reply) {
        return rc;
    }
    rc = recv_part(c->sock, &reply->h, VU_MSG_HEAD, ret_fd);
    if (rc < 0) {
        return rc;
    }
    if (reply->h.type != m->h.type || (reply->h.flags & VU_FLAG_REPLY) == 0 ||
        reply->h.size > sizeof(reply->u)) {
        return -EPROTO;
    }
    return recv_part(c->sock, &reply->u, reply->h.size, ret_fd);
}

int vu_client_ack(struct vu_client *c, struct vu_msg *m, const int *fds, size_t n_fds)
{
    struct vu_msg reply;
    if ((c->protocol & BIT(VU_PROTOCOL_REPLY_ACK)) == 0) {
        return vu_client_call(c, m, fds, n_fds, NULL, NULL);
    }
    m->h.flags |= VU_FLAG_NEED_REPLY;
    int rc = vu_client_call(c, m, fds, n_fds, &reply, NULL);
    return rc < 0 ? rc : reply.u.u64 == 0 ? 0 : -EREMOTEIO;
}

static int set_u64(struct vu_client *c, uint32_t type, uint64_t v)
{
    struct vu_msg m = {.h = {type, 0, 8}, .u.u64 = v};
    return vu_client_ack(c, &m, NULL, 0);
}

static int set_vring(struct vu_client *c, uint32_t type, unsigned idx, uint32_t num)
{
    struct vu_msg m = {.h = {type, 0, 8}, .u.vring = {idx, num}};
    return vu_client_ack(c, &m, NULL, 0);
}

static int set_fd(struct vu_client *c, uint32_t type, unsigned idx, int fd)
{
    struct vu_msg m = {.h = {type, 0, 8}, .u.u64 = idx};
    return vu_client_ack(c, &m, &fd, 1);
}

static int get_u64(struct vu_client *c, uint32_t type, uint64_t *ret)
{
    struct vu_msg m = {.h = {type, 0, 0}}, reply;
    int rc = vu_client_call(c, &m, NULL, 0, &reply, NULL);
    if (rc == 0) {
        *ret = reply.u.u64;
    }
    return rc;
}

/* ---- a connection, in QEMU's order ---- */

static int negotiate(struct vu_client *c, struct err *err)
{
    uint64_t offered = 0, protocol = 0, n_queues = 1;
    c->protocol = 0;
    int rc = get_u64(c, VU_GET_FEATURES, &offered);
    if (rc == 0) {
        rc = get_u64(c, VU_GET_PROTOCOL_FEATURES, &protocol);
    }
    protocol &= BIT(VU_PROTOCOL_MQ) | BIT(VU_PROTOCOL_REPLY_ACK) | BIT(VU_PROTOCOL_CONFIG) |
                BIT(VU_PROTOCOL_BACKEND_REQ) |
                (c->o.has_inflight ? BIT(VU_PROTOCOL_INFLIGHT) : 0);
    if (rc == 0) {
        rc = set_u64(c, VU_SET_PROTOCOL_FEATURES, protocol);
    }
    c->protocol = protocol;
    if (rc == 0) {
        rc = get_u64(c, VU_GET_QUEUE_NUM, &n_queues);
    }
    if (rc == 0) {
        struct vu_msg m = {.h = {VU_SET_OWNER, 0, 0}};
        rc = vu_client_ack(c, &m, NULL, 0);
    }
    if (rc < 0) {
        return fail(err, rc, "HandshakeFailed", "the server does not answer as it should");
    }
    uint64_t want = BIT(VIRTIO_F_VERSION_1) | BIT(VU_F_PROTOCOL_FEATURES) |
                    BIT(VIRTIO_BLK_F_FLUSH) | BIT(VIRTIO_BLK_F_DISCARD) |
                    BIT(VIRTIO_BLK_F_WRITE_ZEROES) | BIT(VIRTIO_BLK_F_MQ) |
                    BIT(VIRTIO_BLK_F_SEG_MAX) | BIT(VIRTIO_BLK_F_RO) |
                    (c->o.has_event_idx ? BIT(VIRTIO_RING_F_EVENT_IDX) : 0) |
                    (c->o.has_indirect ? BIT(VIRTIO_RING_F_INDIRECT_DESC) : 0);
    c->features = offered & want;
    uint64_t must = want & ~(BIT(VIRTIO_BLK_F_DISCARD) | BIT(VIRTIO_BLK_F_WRITE_ZEROES) |
                             BIT(VIRTIO_BLK_F_RO) | BIT(VIRTIO_BLK_F_MQ));
    if ((c->features & must) != must || n_queues < c->o.n_queues) {
        return fail(err, -ENOTSUP, "HandshakeFailed", "the server offers %#llx and %llu queues",
                    (unsigned long long)offered, (unsigned long long)n_queues);
    }
    rc = set_u64(c, VU_SET_FEATURES, c->features);
    return rc < 0 ? fail(err, rc, "HandshakeFailed", "features are refused") : 0;
}

static int get_size(struct vu_client *c)
{
    struct vu_msg m = {.h = {VU_GET_CONFIG, 0, 12 + CONFIG_SIZE},
                       .u.config = {.size = CONFIG_SIZE}};
    struct vu_msg reply;
    int rc = vu_client_call(c, &m, NULL, 0, &reply, NULL);
    if (rc < 0) {
        return rc;
    }
    uint64_t sectors = 0;
    memcpy(&sectors, reply.u.config.data, sizeof(sectors));
    c->size = sectors * 512;
    return 0;
}

static int set_inflight(struct vu_client *c)
{
    if ((c->protocol & BIT(VU_PROTOCOL_INFLIGHT)) == 0) {
        return 0;
    }
    if (c->inflight_fd < 0) {
        struct vu_msg reply, m = {.h = {VU_GET_INFLIGHT_FD, 0, 24},
                                  .u.inflight = {.n_queues = (uint16_t)c->o.n_queues,
                                                 .queue_size = (uint16_t)c->o.queue_size}};
        int rc = vu_client_call(c, &m, NULL, 0, &reply, &c->inflight_fd);
        if (rc < 0) {
            return rc;
        }
        if (reply.h.size != sizeof(reply.u.inflight) || c->inflight_fd < 0) {
            return -EPROTO;
        }
        c->inflight = reply.u.inflight;
    }
    struct vu_msg m = {.h = {VU_SET_INFLIGHT_FD, 0, 24}, .u.inflight = c->inflight};
    return vu_client_ack(c, &m, &c->inflight_fd, 1);
}

static int set_mem(struct vu_client *c)
{
    struct vu_msg m = {.h = {VU_SET_MEM_TABLE, 0, 8 + sizeof(struct vu_region)}};
    m.u.mem.n = 1;
    m.u.mem.v[0] =
        (struct vu_region){VU_CLIENT_GPA, c->map_size, (uint64_t)(uintptr_t)c->map, 0};
    return vu_client_ack(c, &m, &c->mem_fd, 1);
}

int vu_client_start_ring(struct vu_client *c, unsigned queue)
{
    struct vu_client_queue *q = &c->queues[queue];
    struct vu_msg addr = {.h = {VU_SET_VRING_ADDR, 0, sizeof(struct vu_vring_addr)},
                          .u.addr = {queue, 0, (uint64_t)(uintptr_t)q->desc,
                                     (uint64_t)(uintptr_t)q->used,
                                     (uint64_t)(uintptr_t)q->avail, 0}};
    int rc = set_vring(c, VU_SET_VRING_NUM, queue, q->num);
    if (rc == 0) { /* what QEMU says after a server died */
        rc = set_vring(c, VU_SET_VRING_BASE, queue,
                       __atomic_load_n(&q->used->idx, __ATOMIC_ACQUIRE));
    }
    if (rc == 0) {
        rc = vu_client_ack(c, &addr, NULL, 0);
    }
    if (rc == 0) {
        rc = set_fd(c, VU_SET_VRING_ERR, queue, q->err_fd);
    }
    if (rc == 0) {
        rc = set_fd(c, VU_SET_VRING_KICK, queue, q->kick_fd);
    }
    if (rc == 0) {
        rc = set_fd(c, VU_SET_VRING_CALL, queue, q->call_fd);
    }
    return rc;
}

static int handshake(struct vu_client *c, struct err *err)
{
    int rc = negotiate(c, err);
    if (rc < 0) {
        return rc;
    }
    rc = get_size(c);
    if (rc == 0) {
        rc = set_inflight(c);
    }
    if (rc == 0) {
        rc = set_mem(c);
    }
    for (unsigned i = 0; i < c->o.n_queues && rc == 0; i++) {
        rc = vu_client_start_ring(c, i);
    }
    for (unsigned i = 0; i < c->o.n_queues && rc == 0; i++) {
        rc = set_vring(c, VU_SET_VRING_ENABLE, i, 1);
    }
    return rc < 0 ? fail(err, rc, "HandshakeFailed", "the rings cannot be set up: %s",
                         strerror(-rc))
                  : 0;
}

static int connect_once(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n >= sizeof(a.sun_path)) {
        return -ENAMETOOLONG;
    }
    memcpy(a.sun_path, path, n + 1);
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        return -errno;
    }
    return steal_fd(&fd);
}

int vu_client_reconnect(struct vu_client *c, uint64_t timeout_ns, struct err *err)
{
    uint64_t end = time_mono_ns() + timeout_ns;
    for (;;) {
        auto_closep(&c->sock);
        c->sock = connect_once(c->o.path);
        struct err why = ERR_INIT;
        int rc = c->sock < 0
                     ? fail(&why, c->sock, "NoServer", "%s: %s", c->o.path, strerror(-c->sock))
                     : handshake(c, &why);
        if (rc == 0) {
            return 0;
        }
        /* A server that is not there yet, or died in the middle, is tried again. */
        bool is_final = rc != -ECONNRESET && rc != -ECONNREFUSED && rc != -ENOENT;
        if (is_final || time_mono_ns() >= end) {
            return fail(err, rc, why.name, "%s", why.msg);
        }
        (void)poll(NULL, 0, RETRY_MS);
    }
}

/* ---- life ---- */

static int make_queue(struct vu_client *c, unsigned idx, uint8_t *p)
{
    struct vu_client_queue *q = &c->queues[idx];
    unsigned n = c->o.queue_size;
    q->idx = idx;
    q->tags = calloc(n, sizeof(*q->tags));
    q->is_busy = calloc(n, sizeof(*q->is_busy));
    q->free_slots = calloc(n, sizeof(*q->free_slots));
    q->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    q->call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    q->err_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!q->tags || !q->is_busy || !q->free_slots || q->kick_fd < 0 || q->call_fd < 0 ||
        q->err_fd < 0) {
        return -ENOMEM;
    }
    vu_client_ring_init(q, p, &c->o);
    return 0;
}

static int make(struct vu_client *c, struct err *err)
{
    uint64_t ring = vu_client_ring_size((uint16_t)c->o.queue_size);
    c->data_off = ring * c->o.n_queues;
    c->map_size = c->data_off + c->o.mem_size;
    c->queues = calloc(c->o.n_queues, sizeof(*c->queues));
    c->mem_fd = memfd_create("vu-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (!c->queues || c->mem_fd < 0 || ftruncate(c->mem_fd, (off_t)c->map_size) != 0 ||
        fcntl(c->mem_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a client: %m");
    }
    void *p = mmap(NULL, c->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, c->mem_fd, 0);
    if (p == MAP_FAILED) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a client: %m");
    }
    c->map = p;
    for (unsigned i = 0; i < c->o.n_queues; i++) {
        int rc = make_queue(c, i, c->map + i * ring);
        if (rc < 0) {
            return fail(err, rc, "OutOfMemory", "no memory for a queue");
        }
    }
    return 0;
}

int vu_client_new(const struct vu_client_opts *o, struct vu_client **ret, struct err *err)
{
    if (o->n_queues == 0 || o->n_queues > 64 || o->queue_size < 4 || o->queue_size > 1024 ||
        (o->queue_size & (o->queue_size - 1)) != 0 || o->mem_size > MAX_MEM) {
        return fail(err, -EINVAL, "BadOptions", "queues or memory are out of range");
    }
    struct vu_client *c = calloc(1, sizeof(*c));
    if (!c) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a client");
    }
    c->o = *o;
    c->sock = c->mem_fd = c->inflight_fd = -1;
    int rc = make(c, err);
    if (rc == 0) {
        rc = vu_client_reconnect(c, 5 * NS_PER_S, err);
    }
    if (rc < 0) {
        vu_client_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void vu_client_free(struct vu_client *c)
{
    if (!c) {
        return;
    }
    for (unsigned i = 0; c->queues && i < c->o.n_queues; i++) {
        struct vu_client_queue *q = &c->queues[i];
        free(q->tags);
        free(q->is_busy);
        free(q->free_slots);
        if (q->desc) {
            close(q->kick_fd);
            close(q->call_fd);
            close(q->err_fd);
        }
    }
    free(c->queues);
    if (c->map) {
        (void)munmap(c->map, c->map_size);
    }
    auto_closep(&c->sock);
    auto_closep(&c->mem_fd);
    auto_closep(&c->inflight_fd);
    free(c);
}

uint64_t vu_client_size(struct vu_client *c)
{
    (void)(get_size(c) < 0); /* away: what it was */
    return c->size;
}

void *vu_client_mem(struct vu_client *c)
{
    return c->map + c->data_off;
}
