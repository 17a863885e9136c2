#include "base/file.h"
#include "base/time.h"
#include "blk/nbd_int.h"
#include "viperblock/data_world.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define MIB  (UINT64_C(1) << 20)
#define SIZE (16 * MIB)

static void open_served(struct dw *w, unsigned no)
{
    dw_make(w, no, SIZE, true, 0, 0);
    assert_int_equal(dw_open(w, no, NULL), 0);
    assert_int_equal(dw_serve_nbd(w, no), 0);
}

/* ---- managers that come, go, and misbehave ---- */

static bool is_cut_off(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char b[sizeof(union ctl_msg)];
    while (poll(&p, 1, 10000) == 1) {
        if (recv(fd, b, sizeof(b), MSG_DONTWAIT) <= 0) {
            return true;
        }
    }
    return false;
}

static void test_garbage_ends_the_connection_and_nothing_else(void **state)
{
    static const char noise[] = "GET / HTTP/1.1\r\n\r\n";
    struct dw w;
    uint8_t b[512];
    dw_init(&w);
    open_served(&w, 0);
    int nbd = dw_nbd(&w, 0);
    for (unsigned i = 0; i < 4; i++) {
        union ctl_msg m = dw_msg(i == 0 ? CTL_FETCH : CTL_CLOSE, 0); /* 0: not his to say */
        m.h.magic = i == 1 ? 0 : CTL_MAGIC;
        m.h.version = i == 2 ? 99 : CTL_VERSION;
        m.h.size = sizeof(m.h);
        ssize_t n = i == 3 ? send(w.fd, noise, sizeof(noise), MSG_NOSIGNAL)
                           : send(w.fd, &m, sizeof(m.h), MSG_NOSIGNAL);
        assert_true(n > 0);
        assert_true(is_cut_off(w.fd));
        dw_connect(&w);
        assert_int_equal(w.n_disks, 1);
        assert_int_equal(dw_nbd_io(&w, nbd, NBD_CMD_READ, 0, 512, b), 0);
    }
    close(nbd);
    dw_done(&w);
}

/* Answers to what was not asked, to another block, twice: nothing happens. */
static void test_answers_without_a_question_change_nothing(void **state)
{
    struct dw w;
    uint8_t in[4096], want[4096];
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, SIZE, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    int nbd = dw_nbd(&w, 0);
    w.store = DW_HOLD;
    dw_nbd_start(nbd, NBD_CMD_READ, 0, 4096, NULL);
    dw_serve(&w, 200 * NS_PER_MS, -1, NULL);
    assert_int_equal(w.n_held, 1);
    memset(w.mem, 'E', (size_t)CTL_N_SLOTS * BLK_BLOCK);
    for (unsigned slot = 0; slot < CTL_N_SLOTS; slot++) {
        for (unsigned disk = 0; disk < 2; disk++) {
            union ctl_msg m = dw_msg(CTL_FETCHED, disk);
            m.h.slot = slot;
            m.h.block = 1; /* not that one */
            assert_int_equal(ctl_send(w.fd, &m, NULL, 0), 0);
            m = dw_msg(CTL_STORED, disk);
            m.h.slot = slot;
            memcpy(m.h.snap, "snap-1", 6);
            assert_int_equal(ctl_send(w.fd, &m, NULL, 0), 0);
        }
    }
    dw_serve(&w, 200 * NS_PER_MS, -1, NULL);
    struct ctl_head twice = w.held[0];
    dw_release(&w, 0);
    w.held[0] = twice;
    w.n_held = 1;
    dw_release(&w, -EIO);
    assert_int_equal(dw_nbd_end(&w, nbd, NBD_CMD_READ, 4096, in), 0);
    dw_pattern(0, want, sizeof(want));
    assert_memory_equal(in, want, sizeof(in));
    close(nbd);
    dw_done(&w);
}

static uint64_t cpu_ticks(pid_t pid)
{
    char path[64];
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    unsigned long user = 0, system = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    assert_int_equal(file_read(path, 65536, &text, &n, NULL), 0);
    assert_int_equal(sscanf(strrchr(text, ')'),
                            ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                            &system),
                     2);
    return user + system;
}

/* It asks a lot and reads nothing: what waits for it is bounded (beside what two sockets hold),
 * costs nothing, guests do not notice, and when it reads, all is there. */
static void test_a_slow_manager_is_waited_for(void **state)
{
    struct dw w;
    uint8_t b[4096];
    dw_init(&w);
    open_served(&w, 0);
    int nbd = dw_nbd(&w, 0);
    unsigned n_sent = 0, n_results = 0;
    for (; n_sent < 20000; n_sent++) {
        union ctl_msg m = dw_msg(CTL_STATE, 0);
        m.h.seq = 500000 + n_sent;
        struct pollfd p = {.fd = w.fd, .events = POLLOUT};
        if (ctl_send(w.fd, &m, NULL, 0) != 0 &&
            (poll(&p, 1, 700) == 0 || ctl_send(w.fd, &m, NULL, 0) != 0)) {
            break; /* it does not take more */
        }
    }
    assert_in_range(n_sent, 100, 4096);
    bool is_quiet = false;
    for (unsigned i = 0; !is_quiet && i < 200; i++) {
        uint64_t ticks = cpu_ticks(w.pid);
        usleep(300000);
        is_quiet = cpu_ticks(w.pid) - ticks <= (uint64_t)sysconf(_SC_CLK_TCK) / 10;
    }
    assert_true(is_quiet);
    memset(b, 's', sizeof(b));
    for (unsigned i = 0; i < 50; i++) { /* not through dw_nbd_io(): the manager sleeps */
        dw_nbd_start(nbd, NBD_CMD_WRITE, 0, sizeof(b), b);
        char reply[16];
        assert_int_equal(recv(nbd, reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
    }
    while (n_results < n_sent) {
        union ctl_msg m;
        int fds[CTL_MAX_FDS];
        size_t n = 0;
        struct pollfd p = {.fd = w.fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 60000), 1);
        assert_int_equal(ctl_recv(w.fd, true, &m, fds, &n), 0);
        if (m.h.op == CTL_RESULT) {
            assert_int_equal(m.h.seq, 500000 + n_results);
            n_results++;
        }
    }
    close(nbd);
    dw_done(&w);
}

/* Requests for a disk that is busy wait in its queue, and so many only. */
static void test_requests_under_way_are_bounded(void **state)
{
    enum { N = 300, BOUND = 256 };
    struct dw w;
    union ctl_msg m;
    int fds[CTL_MAX_FDS];
    size_t n = 0;
    unsigned n_refused = 0;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    AUTO_FD data = open(w.disks[0].data, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(data, LOCK_EX), 0); /* the disk is being opened for a while */
    dw_open_msg(&w, 0, &m, fds, &n);
    m.h.seq = 1;
    assert_int_equal(ctl_send(w.fd, &m, fds, n), 0);
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
    for (unsigned i = 0; i < N; i++) {
        m = dw_msg(CTL_FILL, 0);
        m.h.seq = 2 + i;
        int rc = -EAGAIN;
        for (unsigned k = 0; rc == -EAGAIN && k < 60000; k++) {
            rc = ctl_send(w.fd, &m, NULL, 0);
            usleep(rc == -EAGAIN ? 1000 : 0);
        }
        assert_int_equal(rc, 0);
    }
    for (unsigned got = 0; got < N + 1;) { /* each has its answer */
        struct pollfd p = {.fd = w.fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 60000), 1);
        assert_int_equal(ctl_recv(w.fd, true, &m, fds, &n), 0);
        got += m.h.op == CTL_RESULT;
        if (m.h.op == CTL_RESULT && m.h.rc == -EBUSY && m.h.seq > 1) {
            assert_string_equal(m.result.name, "TooManyRequests");
            assert_true(m.h.seq > BOUND);
            n_refused++;
        }
    }
    assert_int_equal(n_refused, N + 1 - BOUND);
    assert_int_equal(flock(data, LOCK_UN), 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0); /* and it is as before */
    dw_done(&w);
}

/* ---- listening sockets survive the process ---- */

static void test_sockets_are_given_back(void **state)
{
    struct dw w;
    uint8_t b[512];
    dw_init(&w);
    open_served(&w, 0);
    assert_int_equal(dw_serve_vu(&w, 0), 0);
    /* The manager that made them has died: the next one has only what the process gives. */
    close(w.disks[0].listen_nbd);
    close(w.disks[0].listen_vu);
    union ctl_msg m = dw_msg(CTL_GIVE, 0);
    struct ctl_result r;
    int fds[2] = {-1, -1};
    assert_int_equal(dw_ask(&w, &m, NULL, 0, &r), 0);
    assert_int_equal(r.value, 3);
    assert_int_equal(m.h.arg32, 2);
    memcpy(fds, m.h.snap, sizeof(fds));
    w.disks[0].listen_vu = fds[0];
    w.disks[0].listen_nbd = fds[1];
    dw_kill(&w);
    dw_spawn(&w);
    dw_connect(&w);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    assert_int_equal(dw_serve_vu(&w, 0), 0);
    int nbd = dw_nbd(&w, 0); /* the same path */
    assert_int_equal(dw_nbd_io(&w, nbd, NBD_CMD_READ, 0, 512, b), 0);
    close(nbd);
    struct vu_client *c = NULL;
    const struct vu_client_opts o = {
        .path = w.disks[0].vu, .n_queues = 1, .queue_size = 64, .mem_size = MIB};
    assert_int_equal(vu_client_new(&o, &c, NULL), 0);
    assert_int_equal(vu_client_size(c), SIZE);
    vu_client_free(c);
    assert_int_equal(dw_simple(&w, CTL_UNSERVE, 0, 1), 0);
    m = dw_msg(CTL_GIVE, 0);
    assert_int_equal(dw_ask(&w, &m, NULL, 0, &r), 0);
    assert_int_equal(r.value, 1);
    memcpy(fds, m.h.snap, sizeof(int));
    close(fds[0]);
    dw_done(&w);
}

/* ---- the end, and the sandbox ---- */

static bool status_has(pid_t pid, const char *line)
{
    char path[64];
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    assert_int_equal(file_read(path, 65536, &text, &n, NULL), 0);
    return strstr(text, line) != NULL;
}

static void test_it_runs_with_nothing(void **state)
{
    struct dw w;
    char path[64];
    dw_init(&w);
    assert_true(status_has(w.pid, "\nSeccomp:\t2\n"));
    assert_true(status_has(w.pid, "\nNoNewPrivs:\t1\n"));
    assert_true(status_has(w.pid, "\nCapEff:\t0000000000000000\n"));
    assert_true(status_has(w.pid, "\nCapPrm:\t0000000000000000\n"));
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/limits", (int)w.pid);
    assert_int_equal(file_read(path, 65536, &text, &n, NULL), 0);
    const char *core = strstr(text, "Max core file size");
    assert_non_null(core);
    assert_memory_equal(core, "Max core file size        0                    0  ", 50);
    dw_done(&w);
}

static void test_sigterm_is_a_clean_end_and_the_manager_s_death_is_none(void **state)
{
    struct dw w;
    uint8_t b[4096];
    dw_init(&w);
    open_served(&w, 0);
    int nbd = dw_nbd(&w, 0);
    memset(b, 't', sizeof(b));
    close(w.fd); /* the manager dies */
    w.fd = -1;
    usleep(100 * 1000);
    assert_true(dw_is_alive(&w));
    dw_nbd_start(nbd, NBD_CMD_WRITE, 0, sizeof(b), b);
    char reply[16];
    assert_int_equal(recv(nbd, reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
    assert_int_equal(kill(w.pid, SIGTERM), 0);
    assert_int_equal(dw_wait(&w), 0);
    assert_int_equal(recv(nbd, reply, 1, 0), 0);
    close(nbd);
    AUTO_FD fd = open(w.disks[0].data, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, b, sizeof(b), 0), sizeof(b));
    assert_int_equal(b[1234], 't');
    dw_spawn(&w); /* and it opens again as after a clean stop: nothing counts as changed */
    dw_connect(&w);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_simple(&w, CTL_STATE, 0, 0), 0);
    dw_serve(&w, 300 * NS_PER_MS, -1, NULL);
    assert_int_equal(w.disks[0].state.cow.n_dirty_blocks, 1);
    dw_done(&w);
}

/* A store that does not answer: the end is not waited for, what hangs is as after kill -9. */
static void test_quitting_does_not_wait_for_a_store_for_ever(void **state)
{
    struct dw w;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, SIZE, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    int nbd = dw_nbd(&w, 0);
    w.store = DW_HOLD;
    dw_nbd_start(nbd, NBD_CMD_READ, 0, 4096, NULL);
    dw_serve(&w, 200 * NS_PER_MS, -1, NULL);
    uint64_t start = time_mono_ns();
    assert_int_equal(kill(w.pid, SIGTERM), 0);
    int rc = dw_wait(&w);
    assert_true(rc == 0 || rc == 1);
    assert_true(time_mono_ns() - start < 15 * NS_PER_S);
    close(nbd);
    dw_done(&w);
}

/* ---- a volume that fails is faulted alone ---- */

static bool is_faulted(struct dw *w)
{
    return w->disks[0].state.is_faulted == 1;
}

static void test_a_volume_whose_map_fails_is_faulted_alone(void **state)
{
    struct dw w;
    uint8_t b[4096] = {1};
    dw_init(&w);
    open_served(&w, 1);
    dw_make(&w, 0, SIZE, true, 0, 0);
    union ctl_msg m;
    int fds[CTL_MAX_FDS];
    size_t n = 0;
    dw_open_msg(&w, 0, &m, fds, &n);
    /* A map that can be closed to writing while it is open. */
    int map = memfd_create("map", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct blk_map_opts o = {.size = SIZE};
    assert_int_equal(blk_map_create(map, &o, NULL), 0);
    close(fds[1]);
    fds[1] = map;
    assert_int_equal(dw_ask(&w, &m, fds, n, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    int nbd = dw_nbd(&w, 0), other = dw_nbd(&w, 1);
    assert_int_equal(fcntl(map, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    assert_int_not_equal(dw_nbd_io(&w, nbd, NBD_CMD_WRITE, 0, sizeof(b), b), 0);
    assert_true(dw_serve(&w, 5 * NS_PER_S, -1, is_faulted)); /* told at once, unasked */
    assert_int_not_equal(dw_nbd_io(&w, nbd, NBD_CMD_WRITE, 0, sizeof(b), b), 0);
    assert_int_equal(dw_nbd_io(&w, other, NBD_CMD_WRITE, 0, sizeof(b), b), 0);
    assert_int_equal(w.disks[1].state.is_faulted, 0);
    close(nbd);
    close(other);
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
    dw_done(&w);
}

int data_life_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_garbage_ends_the_connection_and_nothing_else),
        cmocka_unit_test(test_answers_without_a_question_change_nothing),
        cmocka_unit_test(test_a_slow_manager_is_waited_for),
        cmocka_unit_test(test_requests_under_way_are_bounded),
        cmocka_unit_test(test_sockets_are_given_back),
        cmocka_unit_test(test_it_runs_with_nothing),
        cmocka_unit_test(test_sigterm_is_a_clean_end_and_the_manager_s_death_is_none),
        cmocka_unit_test(test_quitting_does_not_wait_for_a_store_for_ever),
        cmocka_unit_test(test_a_volume_whose_map_fails_is_faulted_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
