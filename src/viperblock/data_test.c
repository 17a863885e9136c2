#include "base/time.h"
#include "blk/nbd_int.h"
#include "viperblock/data_world.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>

#define MIB  (UINT64_C(1) << 20)
#define SIZE (16 * MIB)

static void test_a_disk_is_opened_served_and_closed(void **state)
{
    static uint8_t out[65536], in[65536];
    for (unsigned kind = 0; kind < 3; kind++) { /* plain, with a map, encrypted */
        struct dw w;
        dw_init(&w);
        assert_int_equal(w.n_disks, 0);
        dw_make(&w, 0, SIZE, kind > 0, 0, kind == 2 ? CTL_OPEN_KEY : 0);
        assert_int_equal(dw_open(&w, 0, NULL), 0);
        assert_int_equal(dw_serve_nbd(&w, 0), 0);
        int fd = dw_nbd(&w, 0);
        dw_pattern(0, out, sizeof(out));
        assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_WRITE, 4096, sizeof(out), out), 0);
        assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_FLUSH, 0, 0, NULL), 0);
        assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, 4096, sizeof(in), in), 0);
        assert_memory_equal(in, out, sizeof(in));
        assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, MIB, 512, in), 0); /* never written */
        for (unsigned i = 0; i < 512; i++) {
            assert_int_equal(in[i], 0);
        }
        /* While it is open nobody else has it. */
        AUTO_FD data = open(w.disks[0].data, O_RDWR | O_CLOEXEC);
        assert_int_equal(flock(data, LOCK_EX | LOCK_NB), -1);
        assert_int_equal(dw_simple(&w, CTL_CLOSE, 0, 0), -EBUSY);
        close(fd);
        for (unsigned i = 0; dw_simple(&w, CTL_CLOSE, 0, 0) == -EBUSY && i < 5000; i++) {
            usleep(1000);
        }
        assert_int_equal(dw_simple(&w, CTL_CLOSE, 0, 0), -ENOENT);
        assert_int_equal(flock(data, LOCK_EX | LOCK_NB), 0);
        assert_int_equal(pread(data, in, sizeof(in), 4096), sizeof(in));
        assert_int_equal(memcmp(in, out, sizeof(in)) == 0, kind < 2); /* no plain text there */
        assert_int_equal(flock(data, LOCK_UN), 0);
        assert_int_equal(dw_open(&w, 0, NULL), 0); /* and again */
        assert_int_equal(dw_simple(&w, CTL_QUIT, 0, 0), 0);
        assert_int_equal(dw_wait(&w), 0);
        dw_done(&w);
    }
}

static void test_wrong_requests_are_refused(void **state)
{
    struct dw w;
    struct ctl_result r;
    dw_init(&w);
    static const enum ctl_op ops[] = {CTL_CLOSE, CTL_UNSERVE,   CTL_LIMITS,   CTL_FILL,
                                      CTL_GIVE,  CTL_SNAP_READ, CTL_SNAP_END, CTL_SNAP_ABORT};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) { /* of a disk that is not there */
        union ctl_msg m = dw_msg(ops[i], 7);
        memcpy(m.h.snap, "snap-1", ops[i] >= CTL_SNAP_READ ? 6 : 0);
        memset(m.h.snap, 0, ops[i] == CTL_LIMITS ? sizeof(m.h.snap) : 0);
        assert_int_equal(dw_ask(&w, &m, NULL, 0, &r), -ENOENT);
        assert_string_equal(r.name, "NoSuchDisk");
    }
    dw_make(&w, 0, SIZE, false, 0, 0);
    dw_make(&w, 1, SIZE, true, 0, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_open(&w, 1, NULL), 0);
    assert_int_equal(dw_open(&w, 0, &r), -EEXIST);
    assert_string_equal(r.name, "DiskNumberInUse");
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), -EEXIST);
    assert_int_equal(dw_serve_vu(&w, 0), 0);
    assert_int_equal(dw_serve_vu(&w, 0), -EEXIST);
    assert_int_equal(dw_simple(&w, CTL_UNSERVE, 0, 0), 0);
    assert_int_equal(dw_simple(&w, CTL_UNSERVE, 0, 0), -ENOENT);
    assert_int_equal(dw_simple(&w, CTL_UNSERVE, 1, 1), -ENOENT);
    assert_int_equal(dw_simple(&w, CTL_FILL, 0, 1), -ENOTSUP); /* no map */
    assert_int_equal(dw_simple(&w, CTL_FILL, 1, 1), 0);
    assert_int_equal(dw_snap(&w, CTL_SNAP_READ, 1, "snap-1"), -ENOENT);
    assert_int_equal(dw_snap(&w, CTL_SNAP_END, 1, "snap-1"), -ENOENT);
    union ctl_msg m = dw_msg(CTL_SNAP, 0);
    m.snap.n = 2;
    m.snap.v[1].disk = 1;
    memcpy(m.snap.v[0].snap, "snap-1", 6);
    memcpy(m.snap.v[1].snap, "snap-2", 6);
    assert_int_equal(dw_ask(&w, &m, NULL, 0, &r), -ENOTSUP); /* one of them has no map */
    assert_string_equal(r.name, "NoMap");
    m = dw_msg(CTL_LIMITS, 0);
    m.limits.limits.iops = 100;
    assert_int_equal(dw_ask(&w, &m, NULL, 0, NULL), 0);
    dw_done(&w);
}

/* A map that is none, a file that is locked: the disk is refused and the number is free. */
static void test_what_cannot_be_opened_leaves_nothing(void **state)
{
    struct dw w;
    struct ctl_result r;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    dw_make(&w, 1, SIZE, false, 0, 0);
    AUTO_FD map = open(w.disks[0].map, O_RDWR | O_CLOEXEC);
    char good[64];
    assert_int_equal(pread(map, good, sizeof(good), 0), sizeof(good));
    assert_int_equal(pwrite(map, "garbage!garbage!", 16, 0), 16);
    assert_int_not_equal(dw_open(&w, 0, &r), 0);
    assert_true(r.text[0] != 0 && r.name[0] != 0);
    assert_int_equal(pwrite(map, good, sizeof(good), 0), sizeof(good));
    /* The lock is waited for, and other disks are opened meanwhile. */
    AUTO_FD data = open(w.disks[0].data, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(data, LOCK_EX), 0);
    union ctl_msg m;
    int fds[CTL_MAX_FDS];
    size_t n = 0;
    dw_open_msg(&w, 0, &m, fds, &n);
    m.h.seq = 1000000;
    uint64_t start = time_mono_ns();
    assert_int_equal(ctl_send(w.fd, &m, fds, n), 0);
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
    assert_int_equal(dw_open(&w, 1, NULL), 0); /* its answer comes first */
    assert_true(time_mono_ns() - start < NS_PER_S);
    struct pollfd p = {.fd = w.fd, .events = POLLIN};
    do {
        assert_int_equal(poll(&p, 1, 10000), 1);
        assert_int_equal(ctl_recv(w.fd, true, &m, fds, &n), 0);
    } while (m.h.op != CTL_RESULT);
    assert_int_equal(m.h.seq, 1000000);
    assert_int_equal(m.h.rc, -EBUSY);
    assert_string_equal(m.result.name, "VolumeInUse");
    assert_true(time_mono_ns() - start > NS_PER_S);
    assert_int_equal(flock(data, LOCK_UN), 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    dw_done(&w);
}

static uint8_t vu_io(struct dw *w, struct vu_client *c, unsigned type, uint64_t off,
                     uint64_t len)
{
    struct vu_io io = {.type = type, .off = off, .len = len, .p = vu_client_mem(c), .tag = 7};
    struct vu_end end = {.tag = 0};
    assert_int_equal(vu_client_put(c, 0, &io), 0);
    assert_int_equal(vu_client_kick(c, 0), 0);
    for (unsigned i = 0; i < 2000; i++) {
        int n = vu_client_wait(c, 0, 10 * NS_PER_MS, &end, 1);
        if (n == 1) {
            assert_int_equal(end.tag, 7);
            return end.status;
        }
        assert_int_equal(n, 0);
        dw_serve(w, NS_PER_MS, -1, NULL);
    }
    fail_msg("no answer on the ring");
    return 0xff;
}

static struct vu_client *vu(struct dw *w, unsigned no)
{
    struct err err = ERR_INIT;
    struct vu_client *c = NULL;
    const struct vu_client_opts o = {.path = w->disks[no].vu,
                                     .n_queues = 1,
                                     .queue_size = 64,
                                     .mem_size = 4 * MIB,
                                     .has_inflight = true};
    if (vu_client_new(&o, &c, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    return c;
}

static void test_a_disk_grows_under_its_guest(void **state)
{
    struct dw w;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    assert_int_equal(dw_serve_vu(&w, 0), 0);
    struct vu_client *c = vu(&w, 0);
    assert_int_equal(vu_client_size(c), SIZE);
    memset(vu_client_mem(c), 'g', 4096);
    assert_int_equal(vu_io(&w, c, VIRTIO_BLK_T_OUT, 0, 4096), VIRTIO_BLK_S_OK);
    assert_int_not_equal(vu_io(&w, c, VIRTIO_BLK_T_OUT, SIZE, 4096), VIRTIO_BLK_S_OK);
    assert_int_equal(dw_simple(&w, CTL_GROW, 0, 2 * SIZE), 0);
    assert_int_equal(vu_client_size(c), 2 * SIZE);
    assert_int_equal(vu_io(&w, c, VIRTIO_BLK_T_OUT, SIZE, 4096), VIRTIO_BLK_S_OK);
    assert_int_not_equal(dw_simple(&w, CTL_GROW, 0, SIZE), 0); /* never smaller */
    assert_int_equal(vu_client_size(c), 2 * SIZE);
    uint8_t b[4096];
    int fd = dw_nbd(&w, 0);
    assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, SIZE, 4096, b), 0);
    assert_int_equal(b[17], 'g');
    close(fd);
    vu_client_free(c);
    dw_done(&w);
}

static bool is_vu_known(struct dw *w)
{
    return w->disks[0].state.is_vu_connected == 1;
}

static bool is_vu_gone(struct dw *w)
{
    return w->disks[0].state.is_vu_connected == 0;
}

/* DISK_STATE comes by itself when a frontend comes or goes, and says what was done. */
static void test_states_tell_what_happens(void **state)
{
    struct dw w;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_vu(&w, 0), 0);
    struct vu_client *c = vu(&w, 0);
    assert_true(dw_serve(&w, 5 * NS_PER_S, -1, is_vu_known));
    assert_int_equal(w.disks[0].state.size, SIZE);
    assert_string_equal(w.disks[0].state.id, "vol-0");
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(vu_io(&w, c, VIRTIO_BLK_T_OUT, 4096 * i, 4096), VIRTIO_BLK_S_OK);
    }
    unsigned before = w.disks[0].n_states;
    dw_serve(&w, 2500 * NS_PER_MS, -1, NULL);
    assert_in_range(w.disks[0].n_states - before, 1, 8); /* a few per second at most */
    assert_int_equal(w.disks[0].state.counters.n_ops[BLK_WRITE], 10);
    assert_int_equal(w.disks[0].state.counters.bytes[BLK_WRITE], 40960);
    assert_int_equal(w.disks[0].state.cow.n_dirty_blocks, 1);
    before = w.disks[0].n_states;
    assert_int_equal(dw_simple(&w, CTL_STATE, 0, 0), 0);
    dw_serve(&w, 200 * NS_PER_MS, -1, NULL);
    assert_true(w.disks[0].n_states > before); /* asked for: also without news */
    vu_client_free(c);
    assert_true(dw_serve(&w, 5 * NS_PER_S, -1, is_vu_gone));
    dw_done(&w);
}

/* A forced close: the lock is free at once, the guest stays and gets errors, and the volume may be
 * opened again beside it. */
static void test_a_forced_close_leaves_the_guest_with_errors(void **state)
{
    struct dw w;
    dw_init(&w);
    w.store = DW_HOLD;
    dw_make(&w, 0, SIZE, true, SIZE, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_vu(&w, 0), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    struct vu_client *c = vu(&w, 0);
    int nbd = dw_nbd(&w, 0);
    memset(vu_client_mem(c), 'f', 4096);
    assert_int_equal(vu_io(&w, c, VIRTIO_BLK_T_OUT, 0, 4096), VIRTIO_BLK_S_OK);
    /* One request waits for the store, which does not answer. */
    struct vu_io io = {.type = VIRTIO_BLK_T_IN,
                       .off = 8 * MIB,
                       .len = 4096,
                       .p = (uint8_t *)vu_client_mem(c) + MIB,
                       .tag = 9};
    struct vu_end end = {.tag = 0};
    assert_int_equal(vu_client_put(c, 0, &io), 0);
    assert_int_equal(vu_client_kick(c, 0), 0);
    dw_nbd_start(nbd, NBD_CMD_READ, 4 * MIB, 4096, NULL); /* and one of NBD */
    dw_serve(&w, 200 * NS_PER_MS, -1, NULL);
    assert_int_equal(w.n_held, 2);
    assert_int_equal(dw_simple(&w, CTL_CLOSE, 0, 0), -EBUSY);
    assert_int_equal(dw_simple(&w, CTL_CLOSE, 0, 1), 0);
    assert_int_equal(vu_client_wait(c, 0, 5 * NS_PER_S, &end, 1), 1);
    assert_int_equal(end.tag, 9);
    assert_int_equal(end.status, VIRTIO_BLK_S_IOERR);
    assert_int_equal(vu_io(&w, c, VIRTIO_BLK_T_OUT, 0, 4096), VIRTIO_BLK_S_IOERR);
    /* NBD is cut off: its request ended with an error, which perhaps was still sent. */
    uint8_t reply[32];
    ssize_t n_reply = recv(nbd, reply, sizeof(reply), MSG_WAITALL);
    assert_true(n_reply == 0 || n_reply == 16);
    assert_true(n_reply == 0 || reply[7] == NBD_EIO);
    close(nbd);
    assert_int_equal(dw_simple(&w, CTL_GROW, 0, 2 * SIZE), -ENODEV);
    /* The same volume under another number, while the cut-off guest is still there. */
    w.disks[1] = w.disks[0];
    w.disks[1].listen_vu = w.disks[1].listen_nbd = -1;
    assert_int_equal(dw_open(&w, 1, NULL), 0);
    tmpdir_path(&w.dir, "nbd-again", w.disks[1].nbd);
    assert_int_equal(dw_serve_nbd(&w, 1), 0);
    uint8_t in[4096], want[4096];
    nbd = dw_nbd(&w, 1);
    assert_int_equal(dw_nbd_io(&w, nbd, NBD_CMD_READ, 0, 4096, in), 0);
    assert_int_equal(in[100], 'f');
    /* What was asked for the closed disk may still be written: others get other slots. */
    dw_nbd_start(nbd, NBD_CMD_READ, 8 * MIB, 4096, NULL);
    dw_serve(&w, 200 * NS_PER_MS, -1, NULL);
    assert_int_equal(w.n_held, 3);
    assert_int_not_equal(w.held[2].slot, w.held[0].slot);
    assert_int_not_equal(w.held[2].slot, w.held[1].slot);
    dw_release(&w, 0);
    w.store = DW_ANSWER;
    assert_int_equal(dw_nbd_end(&w, nbd, NBD_CMD_READ, 4096, in), 0);
    dw_pattern(8 * MIB, want, sizeof(want));
    assert_memory_equal(in, want, sizeof(in));
    close(nbd);
    assert_int_equal(vu_io(&w, c, VIRTIO_BLK_T_IN, 0, 4096), VIRTIO_BLK_S_IOERR);
    vu_client_free(c); /* the guest goes, and the number with it */
    for (unsigned i = 0; dw_simple(&w, CTL_GIVE, 0, 0) == 0 && i < 5000; i++) {
        usleep(1000);
    }
    assert_int_equal(dw_simple(&w, CTL_GIVE, 0, 0), -ENOENT);
    dw_done(&w);
}

/* Nor does it wait until those that a limit holds back have had their turn: that may be hours. */
static void test_a_forced_close_does_not_wait_for_limits(void **state)
{
    struct dw w;
    union ctl_msg m;
    int fds[CTL_MAX_FDS];
    size_t n = 0;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    dw_open_msg(&w, 0, &m, fds, &n);
    m.open.limits.bytes_per_s = 1024; /* a request of 1 MiB: 17 minutes */
    assert_int_equal(dw_ask(&w, &m, fds, n, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
    assert_int_equal(dw_serve_vu(&w, 0), 0);
    struct vu_client *c = vu(&w, 0);
    for (unsigned i = 0; i < 3; i++) {
        struct vu_io io = {.type = VIRTIO_BLK_T_IN,
                           .off = i * MIB,
                           .len = MIB,
                           .p = (uint8_t *)vu_client_mem(c),
                           .tag = i};
        assert_int_equal(vu_client_put(c, 0, &io), 0);
    }
    assert_int_equal(vu_client_kick(c, 0), 0);
    struct vu_end ends[3];
    assert_int_equal(vu_client_wait(c, 0, 60 * NS_PER_S, ends, 3), 1); /* the others wait */
    assert_int_equal(dw_simple(&w, CTL_CLOSE, 0, 1), 0);
    for (int n_ends = 0; n_ends < 2;) {
        int got = vu_client_wait(c, 0, 60 * NS_PER_S, ends, 3);
        assert_true(got > 0);
        n_ends += got;
    }
    vu_client_free(c);
    dw_done(&w);
}

static void test_forty_disks(void **state)
{
    static uint8_t b[4096];
    struct dw w;
    dw_init(&w);
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        dw_make(&w, i, MIB, true, 0, i % 4 == 3 ? CTL_OPEN_KEY : 0);
        assert_int_equal(dw_open(&w, i, NULL), 0);
        assert_int_equal(dw_serve_nbd(&w, i), 0);
    }
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        int fd = dw_nbd(&w, i);
        memset(b, (int)i + 1, sizeof(b));
        assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_WRITE, 4096, sizeof(b), b), 0);
        close(fd);
    }
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        int fd = dw_nbd(&w, i);
        assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, 4096, sizeof(b), b), 0);
        assert_int_equal(b[99], i + 1);
        close(fd);
    }
    assert_int_equal(dw_simple(&w, CTL_STATE, 0, 0), 0);
    dw_serve(&w, 500 * NS_PER_MS, -1, NULL);
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        assert_true(w.disks[i].n_states > 0);
    }
    dw_connect(&w);
    assert_int_equal(w.n_disks, CTL_MAX_DISKS);
    assert_int_equal(dw_simple(&w, CTL_QUIT, 0, 0), 0);
    assert_int_equal(dw_wait(&w), 0);
    dw_done(&w);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: vb_data_test SPX-VIPERBLOCK-DATA\n");
        return 2;
    }
    dw_exe = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_disk_is_opened_served_and_closed),
        cmocka_unit_test(test_wrong_requests_are_refused),
        cmocka_unit_test(test_what_cannot_be_opened_leaves_nothing),
        cmocka_unit_test(test_a_disk_grows_under_its_guest),
        cmocka_unit_test(test_states_tell_what_happens),
        cmocka_unit_test(test_a_forced_close_leaves_the_guest_with_errors),
        cmocka_unit_test(test_a_forced_close_does_not_wait_for_limits),
        cmocka_unit_test(test_forty_disks),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    rc += data_snap_tests();
    return rc + data_life_tests();
}
