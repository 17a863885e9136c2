/* The protocol: what is offered, refused and answered; frontends that send garbage, the wrong
 * descriptors, half messages, memory that could vanish; frontends of other users. */
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
    vu_local_check_serves(&l);
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
    vu_local_check_serves(&l);
    vu_local_settle(&l);
    int before = vu_local_count_fds();
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        uint8_t buf[12 + 24] = {0};
        uint32_t head[3] = {all[i].type, all[i].flags, all[i].size};
        int fds[64], event = eventfd(0, EFD_NONBLOCK);
        memcpy(buf, head, 12);
        memcpy(buf + 12, &all[i].u64, 8);
        for (unsigned k = 0; k < 64; k++) {
            fds[k] = event;
        }
        int sock = vu_local_dial(&l);
        vu_local_send(sock, buf, 12 + MIN(all[i].size, 24u), fds, all[i].n_fds);
        if (!vu_local_is_closed(sock)) {
            fail_msg("%s: the server goes on", all[i].name);
        }
        close(sock);
        close(event);
    }
    vu_local_check_serves(&l);
    vu_local_settle(&l);
    assert_int_equal(vu_local_count_fds(), before); /* no descriptor was kept */
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
        int sock = vu_local_dial(&l);
        (void)(send(sock, buf, sizeof(buf), MSG_NOSIGNAL) < 0);
        close(sock);
    }
    vu_local_check_serves(&l);
    vu_local_stop(&l);
}

/* A message that comes byte by byte is a message; one that ends in the middle is none. */
static void test_messages_in_pieces(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    int sock = vu_local_dial(&l);
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
    vu_local_check_serves(&l);
    /* Two messages in one packet are two. */
    uint32_t two[6] = {VU_GET_FEATURES, 1, 0, VU_GET_QUEUE_NUM, 1, 0};
    uint8_t replies[40];
    sock = vu_local_dial(&l);
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
    int sock = vu_local_dial(&l);
    uint32_t m[3] = {VU_GET_FEATURES, 1, 0};
    ssize_t n = 0;
    for (unsigned i = 0; i < 1000000 && n >= 0; i++) {
        n = send(sock, m, sizeof(m), MSG_NOSIGNAL);
    }
    assert_true(n < 0);
    close(sock);
    vu_local_check_serves(&l);
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
    vu_local_check_serves(&l);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
