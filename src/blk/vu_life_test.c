/* Rings that are stopped, moved and started again under load; growth, cutting off, ends. */
#include "blk/vu_test_local.h"
#include "blk/vu_verify.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

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

/* The frontend changes the memory map while requests are under way, as QEMU does when a
 * device's memory appears: same pages, another region beside them. */
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
    __atomic_store_n((void **)&l->disk, NULL, __ATOMIC_RELEASE);
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

/* QEMU is killed with requests under way: they end in its memory, the next frontend is
 * served. */
static void test_a_frontend_dies_in_the_middle(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    for (unsigned i = 0; i < 5; i++) {
        struct vu_client *c = vu_local_client(&l, 128);
        put_many(c);
        vu_client_free(c);
    }
    vu_local_check_serves(&l);
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
    assert_true(vu_local_is_closed(c->sock));
    vu_local_stop(&l);
    vu_client_free(c);
}

static void test_a_second_frontend_waits(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    int sock = vu_local_dial(&l);
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

/* Many requests are under way and stay so: what is answered meanwhile is told soon, however often
 * the guest was interrupted just before. */
static void test_interrupts_are_not_put_off_for_long(void **state)
{
    enum { SLOW = 12, QUICK = 200 };
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    disk_set_limits(l.disk, &(struct blk_limits){.iops = 4});
    for (unsigned i = 0; i < SLOW; i++) {
        struct vu_io io = {.type = VIRTIO_BLK_T_IN, .len = 512, .p = vu_client_mem(c)};
        assert_int_equal(vu_client_put(c, 0, &io), 0);
    }
    unsigned n_slow = 0, n_quick = 0;
    while (n_quick < QUICK) {
        struct vu_io io = {
            .type = VIRTIO_BLK_T_GET_ID, .len = 20, .p = vu_client_mem(c), .tag = 1};
        bool is_there = false;
        assert_int_equal(vu_client_put(c, 0, &io), 0);
        assert_int_equal(vu_client_kick(c, 0), 0);
        while (!is_there) {
            struct vu_end ends[SLOW + 1];
            int n = vu_client_wait(c, 0, 10 * NS_PER_S, ends, SLOW + 1);
            assert_true(n > 0);
            for (int i = 0; i < n; i++) {
                is_there |= ends[i].tag == 1;
                n_slow += ends[i].tag == 0 ? 1 : 0;
            }
        }
        n_quick++;
    }
    assert_true(n_slow <= 3); /* four a second: nobody waited for them */
    vu_client_free(c);
    vu_local_stop(&l);
}

static uint64_t process_cpu_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* No descriptors left: the frontend waits, the process does not spin, and later it is served. */
static void test_no_descriptors_for_a_connection(void **state)
{
    struct vu_local l;
    struct rlimit before, low;
    vu_local_start(&l, NULL);
    int sock = vu_local_dial(&l), extra = -1;
    uint32_t m[3] = {VU_GET_FEATURES, 1, 0};
    uint8_t reply[20];
    close(sock);
    vu_local_check_serves(&l);
    vu_local_settle(&l);
    sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    extra = fcntl(sock, F_DUPFD_CLOEXEC, 0); /* the lowest number that is free */
    low.rlim_cur = (rlim_t)extra;
    close(extra);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, l.sock, strlen(l.sock));
    assert_int_equal(connect(sock, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(send(sock, m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
    uint64_t cpu = process_cpu_ns();
    nap(300);
    assert_true(process_cpu_ns() - cpu < 100 * NS_PER_MS);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
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
        cmocka_unit_test(test_memory_changes_under_running_rings),
        cmocka_unit_test(test_rings_stop_and_go_on),
        cmocka_unit_test(test_interrupts_move),
        cmocka_unit_test(test_growth_is_told),
        cmocka_unit_test(test_a_disk_that_is_cut_off_answers_with_errors),
        cmocka_unit_test(test_a_frontend_dies_in_the_middle),
        cmocka_unit_test(test_freed_with_requests_under_way),
        cmocka_unit_test(test_stopped_with_requests_under_way),
        cmocka_unit_test(test_a_second_frontend_waits),
        cmocka_unit_test(test_interrupts_are_not_put_off_for_long),
        cmocka_unit_test(test_no_descriptors_for_a_connection),
        cmocka_unit_test(test_polling),
        cmocka_unit_test(test_a_simple_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
