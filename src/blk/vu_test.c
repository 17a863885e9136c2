/* The protocol: what is offered, refused and answered; frontends that send garbage, the wrong
 * descriptors, half messages; memory changed under running rings; growth, cutting off, ends. */
#include "blk/vu_test_local.h"
#include "blk/vu_verify.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_config.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define BIT(n) (UINT64_C(1) << (n))

/* ---- a socket by hand ---- */

static int dial(const struct vu_local *l)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, l->sock, strlen(l->sock));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static void send_fds(int sock, const void *p, size_t n, const int *fds, size_t n_fds)
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

static bool is_closed(int sock)
{
    char b;
    struct pollfd p = {sock, POLLIN, 0};
    return poll(&p, 1, 5000) == 1 && recv(sock, &b, 1, 0) <= 0;
}

/* The server is alive and serves the next one. */
static void check_serves(struct vu_local *l)
{
    struct vu_client *c = vu_local_client(l, 128);
    assert_int_equal(vu_local_io(c, 1, VIRTIO_BLK_T_IN, 0, 512, vu_client_mem(c), 0), 0);
    vu_client_free(c);
}

static int count_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    }
    return n;
}

/* The server has seen that the last frontend is gone. */
static void settle(struct vu_local *l)
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

/* ---- what is offered ---- */

static uint64_t get(struct vu_client *c, uint32_t type)
{
    struct vu_msg m = {.h = {type, 0, 0}}, reply;
    assert_int_equal(vu_client_call(c, &m, NULL, 0, &reply, NULL), 0);
    assert_int_equal(reply.h.size, 8);
    assert_int_equal(reply.h.flags, VU_FLAG_VERSION | VU_FLAG_REPLY);
    return reply.u.u64;
}

static void test_features(void **state)
{
    struct vu_local l;
    vu_local_start(&l, &(struct vu_local_opts){.n_queues = 8});
    struct vu_client *c = vu_local_client(&l, 128);
    uint64_t want = BIT(VIRTIO_F_VERSION_1) | BIT(30) | BIT(VIRTIO_RING_F_EVENT_IDX) |
                    BIT(VIRTIO_RING_F_INDIRECT_DESC) | BIT(VIRTIO_BLK_F_SEG_MAX) |
                    BIT(VIRTIO_BLK_F_BLK_SIZE) | BIT(VIRTIO_BLK_F_FLUSH) |
                    BIT(VIRTIO_BLK_F_TOPOLOGY) | BIT(VIRTIO_BLK_F_MQ) |
                    BIT(VIRTIO_BLK_F_DISCARD) | BIT(VIRTIO_BLK_F_WRITE_ZEROES);
    assert_int_equal(get(c, VU_GET_FEATURES), want);
    assert_int_equal(get(c, VU_GET_PROTOCOL_FEATURES),
                     BIT(0) | BIT(3) | BIT(5) | BIT(9) | BIT(12));
    assert_int_equal(get(c, VU_GET_QUEUE_NUM), 8);
    /* What was not offered is refused, and the frontend may go on. */
    struct vu_msg m = {.h = {VU_SET_FEATURES, 0, 8}, .u.u64 = want | BIT(VIRTIO_BLK_F_RO)};
    assert_int_equal(vu_client_ack(c, &m, NULL, 0), -EREMOTEIO);
    struct vu_msg p = {.h = {VU_SET_PROTOCOL_FEATURES, 0, 8}, .u.u64 = BIT(1)};
    assert_int_equal(vu_client_ack(c, &p, NULL, 0), -EREMOTEIO);
    struct vu_msg unknown = {.h = {99, 0, 8}};
    assert_int_equal(vu_client_ack(c, &unknown, NULL, 0), -EREMOTEIO);
    struct vu_msg config = {.h = {VU_SET_CONFIG, 0, 13}, .u.config = {.off = 32, .size = 1}};
    assert_int_equal(vu_client_ack(c, &config, NULL, 0), -EREMOTEIO);
    vu_client_free(c);
    check_serves(&l);
    vu_local_stop(&l);
}

static void test_configuration(void **state)
{
    struct vu_local l;
    vu_local_start(&l, &(struct vu_local_opts){.n_queues = 4});
    struct vu_client *c = vu_local_client(&l, 128);
    static const struct {
        uint32_t off, size;
    } asks[] = {{0, 60}, {0, 57}, {0, 256}, {20, 4}, {34, 2}, {250, 6}, {256, 0}, {200, 256}};
    uint8_t all[512] = {0};
    for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
        struct vu_msg m = {.h = {VU_GET_CONFIG, 0, 12 + asks[i].size},
                           .u.config = {asks[i].off, asks[i].size, 0, {0}}},
                      reply;
        assert_int_equal(vu_client_call(c, &m, NULL, 0, &reply, NULL), 0);
        assert_int_equal(reply.h.size, m.h.size);
        if (i == 0) {
            memcpy(all, reply.u.config.data, 60);
        }
        assert_memory_equal(reply.u.config.data, all + asks[i].off, asks[i].size);
    }
    struct virtio_blk_config v;
    memcpy(&v, all, sizeof(v));
    assert_int_equal(v.capacity, VU_LOCAL_SIZE / 512);
    assert_int_equal(v.seg_max, 126);
    assert_int_equal(v.blk_size, 512);
    assert_int_equal(v.physical_block_exp, 3);
    assert_int_equal(v.num_queues, 4);
    assert_int_equal(v.max_discard_seg, 16);
    assert_int_equal(v.write_zeroes_may_unmap, 1);
    vu_client_free(c);
    vu_local_stop(&l);
}

static void test_the_log_is_24_bytes_and_zeros(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    struct vu_msg reply, m = {.h = {VU_GET_INFLIGHT_FD, 0, 24},
                              .u.inflight = {.n_queues = 2, .queue_size = 128}};
    int fd = -1;
    assert_int_equal(vu_client_call(c, &m, NULL, 0, &reply, &fd), 0);
    assert_int_equal(reply.h.size, 24);
    assert_true(fd >= 0);
    assert_int_equal(reply.u.inflight.size, 2 * ((16 + 128 * 16 + 63) / 64 * 64));
    uint64_t n = 1;
    assert_int_equal(pread(fd, &n, sizeof(n), 8), sizeof(n));
    assert_int_equal(n, 0);
    close(fd);
    vu_client_free(c);
    vu_local_stop(&l);
}

/* ---- garbage ---- */

static void test_garbage_is_hung_up_on(void **state)
{
    static const struct {
        const char *name;
        uint32_t type, flags, size;
        unsigned n_fds;
        uint64_t u64;
        bool is_with_fds; /* the wrong number, with a payload that is right */
    } all[] = {
        {"version 0", VU_GET_FEATURES, 0, 0, 0, 0, false},
        {"version 2", VU_GET_FEATURES, 2, 0, 0, 0, false},
        {"a reply", VU_GET_FEATURES, 5, 0, 0, 0, false},
        {"flags of the future", VU_GET_FEATURES, 0x11, 0, 0, 0, false},
        {"4 GiB", VU_SET_FEATURES, 1, UINT32_MAX, 0, 0, false},
        {"too large", 77, 1, 4096, 0, 0, false},
        {"unknown", 77, 1, 8, 0, 0, false},
        {"wrong size", VU_SET_FEATURES, 1, 4, 0, 0, false},
        {"a ring that is not there", VU_SET_VRING_KICK, 1, 8, 1, 7, false},
        {"no descriptor", VU_SET_VRING_KICK, 1, 8, 0, 0, false},
        {"no descriptor as said, which is not supported", VU_SET_VRING_KICK, 1, 8, 0, 0x100,
         false},
        {"two descriptors", VU_SET_VRING_CALL, 1, 8, 2, 0, false},
        {"a descriptor where none belongs", VU_SET_OWNER, 1, 0, 1, 0, false},
        {"nine descriptors", VU_SET_OWNER, 1, 0, 9, 0, false},
        {"60 descriptors", VU_SET_VRING_CALL, 1, 8, 60, 0, false},
        {"log without descriptor", VU_SET_INFLIGHT_FD, 1, 24, 0, 0, false},
    };
    struct vu_local l;
    vu_local_start(&l, NULL);
    check_serves(&l);
    settle(&l);
    int before = count_fds();
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        uint8_t buf[12 + 24] = {0};
        uint32_t head[3] = {all[i].type, all[i].flags, all[i].size};
        int fds[64], event = eventfd(0, EFD_NONBLOCK);
        memcpy(buf, head, 12);
        memcpy(buf + 12, &all[i].u64, 8);
        for (unsigned k = 0; k < 64; k++) {
            fds[k] = event;
        }
        int sock = dial(&l);
        send_fds(sock, buf, 12 + MIN(all[i].size, 24u), fds, all[i].n_fds);
        if (!is_closed(sock)) {
            fail_msg("%s: the server goes on", all[i].name);
        }
        close(sock);
        close(event);
    }
    check_serves(&l);
    settle(&l);
    assert_int_equal(count_fds(), before); /* no descriptor was kept */
    vu_local_stop(&l);
}

static void test_random_bytes(void **state)
{
    struct vu_local l;
    uint64_t x = 12345;
    vu_local_start(&l, NULL);
    for (unsigned i = 0; i < 300; i++) {
        uint8_t buf[256];
        for (size_t k = 0; k < sizeof(buf); k++) {
            x = x * UINT64_C(6364136223846793005) + 1;
            buf[k] = (uint8_t)(x >> 56);
        }
        buf[0] %= 40; /* often enough a known type, its flags in order */
        buf[1] = buf[2] = buf[3] = buf[5] = buf[6] = buf[7] = buf[9] = buf[10] = buf[11] = 0;
        buf[4] = 1;
        buf[8] = (uint8_t)(i % 3 ? buf[8] % 60 : 8);
        int sock = dial(&l);
        (void)(send(sock, buf, sizeof(buf), MSG_NOSIGNAL) < 0);
        close(sock);
    }
    check_serves(&l);
    vu_local_stop(&l);
}

/* A message that comes byte by byte is a message; one that ends in the middle is none. */
static void test_messages_in_pieces(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    int sock = dial(&l);
    uint32_t m[3] = {VU_GET_FEATURES, 1, 0};
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof(m); i++) {
            assert_int_equal(send(sock, (uint8_t *)m + i, 1, 0), 1);
        }
        uint8_t reply[20];
        assert_int_equal(recv(sock, reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
    }
    assert_int_equal(send(sock, m, 7, 0), 7);
    close(sock);
    check_serves(&l);
    /* Two messages in one packet are two. */
    uint32_t two[6] = {VU_GET_FEATURES, 1, 0, VU_GET_QUEUE_NUM, 1, 0};
    uint8_t replies[40];
    sock = dial(&l);
    assert_int_equal(send(sock, two, sizeof(two), 0), sizeof(two));
    assert_int_equal(recv(sock, replies, sizeof(replies), MSG_WAITALL), sizeof(replies));
    close(sock);
    vu_local_stop(&l);
}

/* A frontend that asks and never reads the answers is hung up on, not waited for. */
static void test_answers_that_nobody_reads(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    int sock = dial(&l);
    uint32_t m[3] = {VU_GET_FEATURES, 1, 0};
    ssize_t n = 0;
    for (unsigned i = 0; i < 1000000 && n >= 0; i++) {
        n = send(sock, m, sizeof(m), MSG_NOSIGNAL);
    }
    assert_true(n < 0);
    close(sock);
    check_serves(&l);
    vu_local_stop(&l);
}

static void test_wrong_descriptors(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    int pipes[2], wrong[4];
    assert_int_equal(pipe(pipes), 0);
    wrong[0] = pipes[0];
    wrong[1] = open("/dev/null", O_RDWR);
    wrong[2] = c->mem_fd;
    wrong[3] = c->sock;
    static const uint32_t types[] = {VU_SET_VRING_KICK, VU_SET_VRING_CALL, VU_SET_VRING_ERR};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        for (size_t k = 0; k < ARRAY_LEN(wrong); k++) {
            struct vu_msg m = {.h = {types[i], 0, 8}, .u.u64 = 0};
            assert_int_equal(vu_client_ack(c, &m, &wrong[k], 1), -EREMOTEIO);
        }
    }
    close(pipes[0]);
    close(pipes[1]);
    close(wrong[1]);
    vu_client_free(c);
    vu_local_stop(&l);
}

/* Memory that its owner could cut short would end the server by SIGBUS: it is not taken. */
static void test_memory_that_can_shrink_is_refused(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    int fds[3];
    fds[0] = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fds[1] = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fds[2] = eventfd(0, 0);
    assert_int_equal(ftruncate(fds[0], 1 << 20), 0);
    assert_int_equal(ftruncate(fds[1], 4096), 0);
    assert_int_equal(fcntl(fds[1], F_ADD_SEALS, F_SEAL_SHRINK), 0);
    for (unsigned i = 0; i < 3; i++) {
        struct vu_msg m = {.h = {VU_SET_MEM_TABLE, 0, 8 + 32},
                           .u.mem = {.n = 1, .v = {{0x1000, 1 << 20, 0x7000, 0}}}};
        assert_int_equal(vu_client_ack(c, &m, &fds[i], 1), -EREMOTEIO);
        struct vu_msg in = {.h = {VU_SET_INFLIGHT_FD, 0, 24},
                            .u.inflight = {.size = 1 << 20, .n_queues = 1, .queue_size = 128}};
        assert_int_equal(vu_client_ack(c, &in, &fds[i], 1), -EREMOTEIO);
        close(fds[i]);
    }
    vu_client_free(c);
    check_serves(&l);
    vu_local_stop(&l);
}

/* In a child, which only makes system calls: 0 when it was hung up on. */
static int dial_as(const struct vu_local *l, uid_t uid)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint32_t m[3] = {VU_GET_FEATURES, 1, 0};
    char reply[20];
    memcpy(a.sun_path, l->sock, strlen(l->sock));
    if (uid != getuid() && setresuid(uid, uid, uid) != 0) {
        return 10;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        return 11;
    }
    (void)(send(fd, m, sizeof(m), MSG_NOSIGNAL) < 0);
    return recv(fd, reply, sizeof(reply), MSG_WAITALL) == (ssize_t)sizeof(reply) ? 1 : 0;
}

static int as_user(const struct vu_local *l, uid_t uid)
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(dial_as(l, uid));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_only_the_guests_user_is_let_in(void **state)
{
    struct vu_local l;
    bool is_root = getuid() == 0;
    uid_t allowed = is_root ? 4711 : getuid() + 1;
    vu_local_start(&l, &(struct vu_local_opts){.has_peer = true, .peer_uid = allowed});
    assert_int_equal(chmod(l.dir.path, 0711), 0);
    assert_int_equal(chmod(l.sock, 0666), 0);
    assert_int_equal(as_user(&l, is_root ? 4712 : getuid()), 0);
    if (is_root) {
        assert_int_equal(as_user(&l, 4711), 1);
        assert_int_equal(as_user(&l, 0), 1);
    }
    vu_local_stop(&l);
}

/* ---- rings that are stopped, moved, cut off ---- */

struct load {
    struct vu_client *c;
    struct vu_oracle *oracle;
    bool is_stopped;
    int rc;
    struct err err;
    struct vu_verify_result r;
    pthread_t thread;
};

static struct vu_verify_opts load_opts(struct load *o)
{
    return (struct vu_verify_opts){.client = o->c,
                                   .oracle = o->oracle,
                                   .n_queues = 2,
                                   .depth = 16,
                                   .block = 8192,
                                   .size = VU_LOCAL_SIZE,
                                   .read_pct = 50,
                                   .flush_pct = 1,
                                   .zeroes_pct = 2,
                                   .duration_ns = 30 * NS_PER_S,
                                   .hang_ns = 10 * NS_PER_S,
                                   .is_stopped = &o->is_stopped};
}

static void *load_main(void *ctx)
{
    struct load *o = ctx;
    struct vu_verify_opts v = load_opts(o);
    o->rc = vu_verify_run(&v, &o->r, &o->err);
    return NULL;
}

static void load_start(struct load *o, struct vu_client *c)
{
    memset(o, 0, sizeof(*o));
    o->c = c;
    assert_int_equal(vu_oracle_new(VU_LOCAL_SIZE / VU_ORACLE_BLOCK, 1, &o->oracle, NULL), 0);
    assert_int_equal(pthread_create(&o->thread, NULL, load_main, o), 0);
}

static void load_stop(struct load *o)
{
    __atomic_store_n(&o->is_stopped, true, __ATOMIC_RELEASE);
    pthread_join(o->thread, NULL);
    if (o->rc == 0) {
        struct vu_verify_opts v = load_opts(o);
        o->rc = vu_verify_all(&v, &o->err);
    }
    if (o->rc < 0) {
        fail_msg("%s", o->err.msg);
    }
    vu_oracle_free(o->oracle);
}

static void nap(unsigned ms)
{
    (void)poll(NULL, 0, (int)ms);
}

/* The frontend changes the memory map while requests are under way, as QEMU does when a device's
 * memory appears: same pages, another region beside them. */
static void test_memory_changes_under_running_rings(void **state)
{
    struct vu_local l;
    struct load o;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    load_start(&o, c);
    int other = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(other, 65536), 0);
    assert_int_equal(fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    for (unsigned i = 0; i < 40; i++) {
        struct vu_msg m = {.h = {VU_SET_MEM_TABLE, 0, 8 + 32 * (1 + i % 2)}};
        int fds[2] = {c->mem_fd, other};
        m.u.mem.n = 1 + i % 2;
        m.u.mem.v[0] =
            (struct vu_region){VU_CLIENT_GPA, c->map_size, (uint64_t)(uintptr_t)c->map, 0};
        m.u.mem.v[1] = (struct vu_region){0x1000, 65536, 0x1000, 0};
        assert_int_equal(vu_client_ack(c, &m, fds, m.u.mem.n), 0);
        nap(3);
    }
    load_stop(&o);
    assert_int_equal(vu_local_stats(&l).n_ring_faults, 0);
    close(other);
    vu_client_free(c);
    vu_local_stop(&l);
}

/* Stop, ask where it is, go on from there: nothing lost, nothing twice. */
static void test_rings_stop_and_go_on(void **state)
{
    struct vu_local l;
    struct load o;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    load_start(&o, c);
    for (unsigned i = 0; i < 40; i++) {
        struct vu_msg stop = {.h = {VU_GET_VRING_BASE, 0, 8}, .u.vring = {i % 2, 0}}, reply;
        assert_int_equal(vu_client_call(c, &stop, NULL, 0, &reply, NULL), 0);
        /* Drained: what it would take next is what the guest has back. */
        assert_int_equal(reply.u.vring.num,
                         __atomic_load_n(&c->queues[i % 2].used->idx, __ATOMIC_ACQUIRE));
        assert_int_equal(vu_client_start_ring(c, i % 2), 0);
        nap(2);
        struct vu_msg off = {.h = {VU_SET_VRING_ENABLE, 0, 8}, .u.vring = {i % 2, 0}};
        assert_int_equal(vu_client_ack(c, &off, NULL, 0), 0);
        struct vu_msg on = {.h = {VU_SET_VRING_ENABLE, 0, 8}, .u.vring = {i % 2, 1}};
        assert_int_equal(vu_client_ack(c, &on, NULL, 0), 0);
    }
    load_stop(&o);
    assert_int_equal(vu_local_stats(&l).n_ring_faults, 0);
    vu_client_free(c);
    vu_local_stop(&l);
}

/* The guest moves its interrupts to other vectors all the time: none is lost. */
static void test_interrupts_move(void **state)
{
    struct vu_local l;
    struct load o;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    load_start(&o, c);
    int masked = eventfd(0, EFD_NONBLOCK);
    for (unsigned i = 0; i < 60; i++) {
        unsigned q = i % 2;
        struct vu_msg m = {.h = {VU_SET_VRING_CALL, 0, 8}, .u.u64 = q};
        assert_int_equal(vu_client_ack(c, &m, &masked, 1), 0);
        nap(1);
        assert_int_equal(vu_client_ack(c, &m, &c->queues[q].call_fd, 1), 0);
        nap(1);
    }
    load_stop(&o);
    close(masked);
    vu_client_free(c);
    vu_local_stop(&l);
}

static void grow(struct vu_local *l, void *arg)
{
    struct err err = ERR_INIT;
    assert_int_equal(disk_grow(l->disk, *(uint64_t *)arg, &err), 0);
    vu_resized(l->vu);
}

static void test_growth_is_told(void **state)
{
    struct vu_local l;
    int pair[2];
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    struct vu_msg m = {.h = {VU_SET_BACKEND_REQ_FD, 0, 0}};
    assert_int_equal(vu_client_ack(c, &m, &pair[1], 1), 0);
    assert_int_equal(vu_client_size(c), VU_LOCAL_SIZE);
    void *p = vu_client_mem(c);
    uint64_t size = VU_LOCAL_SIZE * 2;
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_IN, VU_LOCAL_SIZE, 512, p, 0), 1);
    vu_local_call(&l, grow, &size);
    uint32_t got[3];
    assert_int_equal(recv(pair[0], got, sizeof(got), MSG_WAITALL), sizeof(got));
    assert_int_equal(got[0], 2); /* CONFIG_CHANGE_MSG */
    assert_int_equal(got[1], 1); /* version 1, no reply wanted */
    assert_int_equal(got[2], 0);
    assert_int_equal(vu_client_size(c), size);
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_IN, VU_LOCAL_SIZE, 512, p, 0), 0);
    /* Not told twice. */
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_FLUSH, 0, 0, NULL, 0), 0);
    struct pollfd pf = {pair[0], POLLIN, 0};
    assert_int_equal(poll(&pf, 1, 20), 0);
    /* A frontend that hung up its channel, or whose channel is full, does no harm. */
    close(pair[0]);
    size += 1 << 20;
    vu_local_call(&l, grow, &size);
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_IN, size - 512, 512, p, 0), 0);
    close(pair[1]);
    vu_client_free(c);
    vu_local_stop(&l);
}

static void on_cut(void *ctx)
{
    struct vu_local *l = ctx;
    struct err err = ERR_INIT;
    assert_int_equal(disk_close(l->disk, &err), 0);
    l->disk = NULL;
}

static void cut(struct vu_local *l, void *arg)
{
    vu_cut(l->vu, on_cut, l);
}

static bool has_disk(struct vu_local *l)
{
    return __atomic_load_n((void **)&l->disk, __ATOMIC_ACQUIRE) != NULL;
}

static void test_a_disk_that_is_cut_off_answers_with_errors(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    uint8_t *p = vu_client_mem(c);
    for (unsigned i = 0; i < 40; i++) { /* some are under way at that moment */
        struct vu_io io = {.type = VIRTIO_BLK_T_OUT, .off = i * 65536, .len = 65536, .p = p};
        assert_int_equal(vu_client_put(c, 0, &io), 0);
    }
    assert_int_equal(vu_client_kick(c, 0), 0);
    vu_local_call(&l, cut, NULL);
    for (unsigned i = 0; i < 1000 && has_disk(&l); i++) {
        nap(5);
    }
    assert_false(has_disk(&l));
    struct vu_end ends[40];
    for (int n = 0; n < 40;) {
        int rc = vu_client_wait(c, 0, 5 * NS_PER_S, ends, 40);
        assert_true(rc > 0);
        n += rc;
    }
    for (unsigned q = 0; q < 2; q++) {
        assert_int_equal(vu_local_io(c, q, VIRTIO_BLK_T_IN, 0, 512, p, 0), 1);
        assert_int_equal(vu_local_io(c, q, VIRTIO_BLK_T_FLUSH, 0, 0, NULL, 0), 1);
        assert_int_equal(vu_local_io(c, q, VIRTIO_BLK_T_GET_ID, 0, 20, p, 0), 0);
    }
    assert_int_equal(vu_client_size(c), VU_LOCAL_SIZE);
    assert_int_equal(vu_client_reconnect(c, NS_PER_S, NULL), 0); /* even then */
    assert_int_equal(vu_local_io(c, 1, VIRTIO_BLK_T_IN, 0, 512, p, 0), 1);
    vu_client_free(c);
    vu_local_stop(&l);
}

/* ---- ends ---- */

static void put_many(struct vu_client *c)
{
    for (unsigned i = 0; i < 100; i++) {
        struct vu_io io = {.type = VIRTIO_BLK_T_OUT,
                           .off = (i % 8) * (1u << 20),
                           .len = 1u << 20,
                           .p = vu_client_mem(c)};
        assert_int_equal(vu_client_put(c, i % 2, &io), 0);
    }
    assert_int_equal(vu_client_kick(c, 0), 0);
    assert_int_equal(vu_client_kick(c, 1), 0);
}

/* QEMU is killed with requests under way: they end in its memory, the next frontend is served. */
static void test_a_frontend_dies_in_the_middle(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    for (unsigned i = 0; i < 5; i++) {
        struct vu_client *c = vu_local_client(&l, 128);
        put_many(c);
        vu_client_free(c);
    }
    check_serves(&l);
    assert_int_equal(vu_local_stats(&l).n_connects, 6);
    vu_local_stop(&l);
}

static void test_freed_with_requests_under_way(void **state)
{
    for (unsigned i = 0; i < 3; i++) {
        struct vu_local l;
        vu_local_start(&l, NULL);
        struct vu_client *c = vu_local_client(&l, 128);
        put_many(c);
        vu_local_stop(&l);
        vu_client_free(c);
    }
}

static void set_flag(void *ctx)
{
    __atomic_store_n((bool *)ctx, true, __ATOMIC_RELEASE);
}

static void stop(struct vu_local *l, void *arg)
{
    vu_stop(l->vu, set_flag, arg);
}

static void test_stopped_with_requests_under_way(void **state)
{
    struct vu_local l;
    bool is_stopped = false;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    put_many(c);
    vu_local_call(&l, stop, &is_stopped);
    for (unsigned i = 0; i < 1000 && !__atomic_load_n(&is_stopped, __ATOMIC_ACQUIRE); i++) {
        nap(5);
    }
    assert_true(is_stopped);
    assert_true(is_closed(c->sock));
    vu_local_stop(&l);
    vu_client_free(c);
}

static void test_a_second_frontend_waits(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    int sock = dial(&l);
    uint32_t m[3] = {VU_GET_FEATURES, 1, 0};
    uint8_t reply[20];
    assert_int_equal(send(sock, m, sizeof(m), 0), sizeof(m));
    struct pollfd p = {sock, POLLIN, 0};
    assert_int_equal(poll(&p, 1, 50), 0);
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_IN, 0, 512, vu_client_mem(c), 0), 0);
    vu_client_free(c);
    assert_int_equal(recv(sock, reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
    close(sock);
    vu_local_stop(&l);
}

static void test_polling(void **state)
{
    struct vu_local l;
    struct load o;
    vu_local_start(&l, &(struct vu_local_opts){.poll_ns = 50000});
    struct vu_client *c = vu_local_client(&l, 128);
    load_start(&o, c);
    nap(300);
    load_stop(&o);
    nap(20); /* it sleeps again, and wakes up */
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_IN, 0, 512, vu_client_mem(c), 0), 0);
    vu_client_free(c);
    vu_local_stop(&l);
}

/* Drivers of old: no event index, no indirect tables, no log, no reply-ack. */
static void test_a_simple_driver(void **state)
{
    struct vu_local l;
    struct load o;
    vu_local_start(&l, NULL);
    struct vu_client_opts co = {
        .path = l.sock, .n_queues = 2, .queue_size = 64, .mem_size = 2u << 20};
    struct vu_client *c = NULL;
    assert_int_equal(vu_client_new(&co, &c, NULL), 0);
    load_start(&o, c);
    nap(200);
    load_stop(&o);
    vu_client_free(c);
    vu_local_stop(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_configuration),
        cmocka_unit_test(test_the_log_is_24_bytes_and_zeros),
        cmocka_unit_test(test_garbage_is_hung_up_on),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_messages_in_pieces),
        cmocka_unit_test(test_answers_that_nobody_reads),
        cmocka_unit_test(test_wrong_descriptors),
        cmocka_unit_test(test_memory_that_can_shrink_is_refused),
        cmocka_unit_test(test_only_the_guests_user_is_let_in),
        cmocka_unit_test(test_memory_changes_under_running_rings),
        cmocka_unit_test(test_rings_stop_and_go_on),
        cmocka_unit_test(test_interrupts_move),
        cmocka_unit_test(test_growth_is_told),
        cmocka_unit_test(test_a_disk_that_is_cut_off_answers_with_errors),
        cmocka_unit_test(test_a_frontend_dies_in_the_middle),
        cmocka_unit_test(test_freed_with_requests_under_way),
        cmocka_unit_test(test_stopped_with_requests_under_way),
        cmocka_unit_test(test_a_second_frontend_waits),
        cmocka_unit_test(test_polling),
        cmocka_unit_test(test_a_simple_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
