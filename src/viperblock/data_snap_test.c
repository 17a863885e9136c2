#include "base/time.h"
#include "blk/nbd_test_client.h"
#include "blk/vu_client.h"
#include "viperblock/data_world.h"
#include <errno.h>
#include <string.h>

#define MIB  (UINT64_C(1) << 20)
#define SIZE (16 * MIB)

/* ---- misses ---- */

static void open_source(struct dw *w, unsigned no)
{
    dw_make(w, no, SIZE, true, SIZE, 0);
    assert_int_equal(dw_open(w, no, NULL), 0);
    assert_int_equal(dw_serve_nbd(w, no), 0);
}

static void check_pattern(struct dw *w, int fd, uint64_t off, uint32_t len)
{
    static uint8_t in[MIB], want[MIB];
    assert_int_equal(dw_nbd_io(w, fd, NBD_CMD_READ, off, len, in), 0);
    dw_pattern(off, want, len);
    assert_memory_equal(in, want, len);
}

static void test_absent_blocks_come_from_the_manager(void **state)
{
    struct dw w;
    uint8_t in[4096], mine[4096], want[4096];
    dw_init(&w);
    open_source(&w, 0);
    int fd = dw_nbd(&w, 0);
    check_pattern(&w, fd, 3 * MIB + 512, 8192);
    assert_int_equal(w.n_fetches, 1);
    assert_int_equal(w.fetched[6], 1);
    check_pattern(&w, fd, 3 * MIB, (uint32_t)(BLK_BLOCK)); /* is there now */
    assert_int_equal(w.n_fetches, 1);
    /* What was written stays, whatever comes after it. */
    memset(mine, 'm', sizeof(mine));
    assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_WRITE, 5 * MIB + 4096, sizeof(mine), mine), 0);
    check_pattern(&w, fd, 5 * MIB, 4096);
    assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, 5 * MIB + 4096, sizeof(in), in), 0);
    assert_memory_equal(in, mine, sizeof(in));
    /* Part of a page: the rest of it comes from the source. */
    assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_WRITE, 7 * MIB + 512, 512, mine), 0);
    assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, 7 * MIB, sizeof(in), in), 0);
    dw_pattern(7 * MIB, want, sizeof(want));
    memcpy(want + 512, mine, 512);
    assert_memory_equal(in, want, sizeof(in));
    close(fd);
    dw_done(&w);
}

static void test_what_the_store_does_not_have_is_an_error_and_zeros_are_zeros(void **state)
{
    struct dw w;
    uint8_t in[4096];
    dw_init(&w);
    open_source(&w, 0);
    int fd = dw_nbd(&w, 0);
    w.store = DW_EIO;
    assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, 0, 4096, in), NBD_EIO);
    w.store = DW_ZEROS;
    assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, MIB, 4096, in), 0);
    for (unsigned i = 0; i < sizeof(in); i++) {
        assert_int_equal(in[i], 0);
    }
    /* Not reachable: asked again until it is. */
    w.store = DW_EAGAIN;
    w.n_fetches = 0;
    dw_nbd_start(fd, NBD_CMD_READ, 2 * MIB, 4096, NULL);
    dw_serve(&w, 1500 * NS_PER_MS, -1, NULL);
    assert_true(w.n_fetches >= 1);
    w.store = DW_ANSWER;
    assert_int_equal(dw_nbd_end(&w, fd, NBD_CMD_READ, 4096, in), 0);
    uint8_t want[4096];
    dw_pattern(2 * MIB, want, sizeof(want));
    assert_memory_equal(in, want, sizeof(in));
    close(fd);
    dw_done(&w);
}

/* No manager: the guest waits, and never gets an error; the next one is asked the same. */
static void test_a_new_manager_is_asked_again(void **state)
{
    struct dw w;
    uint8_t in[4096], want[4096];
    dw_init(&w);
    open_source(&w, 0);
    int fd = dw_nbd(&w, 0), second = dw_nbd(&w, 0);
    w.store = DW_HOLD;
    dw_nbd_start(fd, NBD_CMD_READ, MIB, 4096, NULL);
    dw_serve(&w, 200 * NS_PER_MS, -1, NULL);
    assert_int_equal(w.n_held, 1);
    close(w.fd);
    w.fd = -1;
    dw_nbd_start(second, NBD_CMD_READ, 4 * MIB, 4096, NULL); /* asked while there is nobody */
    usleep(300 * 1000);
    w.n_held = w.n_fetches = 0;
    dw_connect(&w);
    assert_int_equal(w.n_disks, 1);
    dw_serve(&w, 300 * NS_PER_MS, -1, NULL);
    assert_int_equal(w.n_held, 2);
    dw_release(&w, 0);
    assert_int_equal(dw_nbd_end(&w, fd, NBD_CMD_READ, 4096, in), 0);
    dw_pattern(MIB, want, sizeof(want));
    assert_memory_equal(in, want, sizeof(in));
    assert_int_equal(dw_nbd_end(&w, second, NBD_CMD_READ, 4096, in), 0);
    dw_pattern(4 * MIB, want, sizeof(want));
    assert_memory_equal(in, want, sizeof(in));
    close(fd);
    close(second);
    dw_done(&w);
}

/* More misses than there are slots: all are answered in the end. */
static void test_more_misses_than_slots(void **state)
{
    struct dw w;
    int fds[8];
    uint8_t in[4096], want[4096];
    dw_init(&w);
    w.store = DW_HOLD;
    for (unsigned d = 0; d < 4; d++) {
        open_source(&w, d);
    }
    for (unsigned i = 0; i < 8; i++) {
        fds[i] = dw_nbd(&w, i % 4);
        for (unsigned k = 0; k < 4; k++) {
            dw_nbd_start(fds[i], NBD_CMD_READ, (4 * i + k) / 2 * MIB + k % 2 * MIB / 2, 4096,
                         NULL);
        }
    }
    dw_serve(&w, 500 * NS_PER_MS, -1, NULL);
    assert_in_range(w.n_held, 8, CTL_N_SLOTS - 1); /* some slots are kept for uploads */
    w.store = DW_ANSWER;
    dw_release(&w, 0);
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned k = 0; k < 4; k++) {
            assert_int_equal(dw_nbd_end(&w, fds[i], NBD_CMD_READ, 4096, in), 0);
        }
        close(fds[i]);
    }
    dw_pattern(15 * MIB + MIB / 2, want, sizeof(want));
    int fd = dw_nbd(&w, 3);
    assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, 15 * MIB + MIB / 2, 4096, in), 0);
    assert_memory_equal(in, want, sizeof(in));
    close(fd);
    dw_done(&w);
}

static bool has_state(struct dw *w)
{
    return w->disks[0].n_states > 0;
}

/* The manager forgets the source of a volume that is whole: pages that were never read would be
 * lost. */
static void test_a_disk_that_closes_is_not_whole(void **state)
{
    struct dw w;
    struct ctl_result ret;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, SIZE, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_vu(&w, 0), 0);
    struct vu_client *c = NULL;
    const struct vu_client_opts o = {
        .path = w.disks[0].vu, .n_queues = 1, .queue_size = 64, .mem_size = MIB};
    assert_int_equal(vu_client_new(&o, &c, NULL), 0);
    assert_int_equal(dw_simple(&w, CTL_STATE, 0, 0), 0);
    assert_true(dw_serve(&w, 60 * NS_PER_S, -1, has_state));
    assert_int_equal(w.disks[0].state.cow.n_absent_pages, SIZE / 4096);
    union ctl_msg m = dw_msg(CTL_ABSENT, 0);
    assert_int_equal(dw_ask(&w, &m, NULL, 0, &ret), 0);
    assert_int_equal(ret.value, SIZE / 4096);
    assert_int_equal(dw_simple(&w, CTL_CLOSE, 0, 1), 0); /* the guest's end stays */
    w.disks[0].n_states = 0;
    assert_int_equal(dw_simple(&w, CTL_STATE, 0, 0), 0);
    assert_true(dw_serve(&w, 60 * NS_PER_S, -1, has_state));
    assert_int_equal(w.disks[0].state.cow.n_absent_pages, SIZE / 4096);
    vu_client_free(c);
    dw_done(&w);
}

static bool is_filled(struct dw *w)
{
    return w->disks[0].n_states > 0 && w->disks[0].state.cow.n_absent_pages == 0;
}

static void test_the_filler_brings_the_rest(void **state)
{
    struct dw w;
    dw_init(&w);
    open_source(&w, 0);
    w.disks[0].state.cow.n_absent_pages = 1;
    assert_int_equal(dw_simple(&w, CTL_FILL, 0, UINT64_C(1) << 30), 0);
    assert_true(dw_serve(&w, 20 * NS_PER_S, -1, is_filled));
    assert_int_equal(w.n_background, SIZE / BLK_BLOCK);
    union ctl_msg m = dw_msg(CTL_ABSENT, 0);
    struct ctl_result ret;
    assert_int_equal(dw_ask(&w, &m, NULL, 0, &ret), 0);
    assert_int_equal(ret.value, 0);
    w.store = DW_EIO; /* nobody is asked any more */
    int fd = dw_nbd(&w, 0);
    for (uint64_t off = 0; off < SIZE; off += MIB) {
        check_pattern(&w, fd, off, (uint32_t)MIB);
    }
    close(fd);
    dw_done(&w);
}

/* ---- snapshots ---- */

static int snap(struct dw *w, unsigned n, const char *const *names, bool is_full,
                struct ctl_result *ret)
{
    union ctl_msg m = dw_msg(CTL_SNAP, 0);
    m.h.arg = is_full;
    m.snap.n = n;
    for (unsigned i = 0; i < n; i++) {
        m.snap.v[i].disk = i;
        memcpy(m.snap.v[i].snap, names[i], strlen(names[i]));
    }
    return dw_ask(w, &m, NULL, 0, ret);
}

static void write_block(struct dw *w, int fd, uint64_t block, int c)
{
    static uint8_t b[BLK_BLOCK];
    memset(b, c, sizeof(b));
    assert_int_equal(dw_nbd_io(w, fd, NBD_CMD_WRITE, block * BLK_BLOCK, BLK_BLOCK, b), 0);
}

static void check_upload(struct dw *w, unsigned no, uint64_t block, int c)
{
    const uint8_t *b = w->disks[no].up.blocks[block];
    assert_non_null(b);
    for (size_t i = 0; i < BLK_BLOCK; i += 509) {
        assert_int_equal(b[i], c);
    }
}

static void forget_uploads(struct dw_upload *u)
{
    for (unsigned i = 0; i < DW_BLOCKS; i++) {
        free(u->blocks[i]);
    }
    memset(u, 0, sizeof(*u));
}

static bool are_both_done(struct dw *w)
{
    return w->disks[0].n_done > 0 && w->disks[1].n_done > 0;
}

static bool is_done(struct dw *w)
{
    return w->disks[0].n_done > 0;
}

/* The point in time is the request's, whatever is written afterwards; the next snapshot has only
 * what changed. */
static void test_a_snapshot_has_its_point_in_time(void **state)
{
    static const char *const first[] = {"snap-1", "snap-2"}, *const second[] = {"snap-3"};
    struct dw w;
    struct ctl_result r;
    int fds[2];
    dw_init(&w);
    for (unsigned d = 0; d < 2; d++) {
        dw_make(&w, d, SIZE, true, 0, d == 1 ? CTL_OPEN_KEY : 0);
        assert_int_equal(dw_open(&w, d, NULL), 0);
        assert_int_equal(dw_serve_nbd(&w, d), 0);
        fds[d] = dw_nbd(&w, d);
        for (uint64_t b = 0; b < 8; b++) {
            write_block(&w, fds[d], b, 'a' + (int)b);
        }
    }
    assert_int_equal(snap(&w, 2, first, false, &r), 0);
    assert_true(r.value < NS_PER_S); /* held this long */
    assert_int_equal(w.disks[0].up.n, 0);
    for (unsigned d = 0; d < 2; d++) {
        write_block(&w, fds[d], 3, 'X');
        assert_int_equal(dw_snap(&w, CTL_SNAP_READ, d, first[d]), 0);
        write_block(&w, fds[d], 4, 'Y');
    }
    assert_true(dw_serve(&w, 20 * NS_PER_S, -1, are_both_done));
    for (unsigned d = 0; d < 2; d++) {
        assert_string_equal(w.disks[d].done, first[d]);
        assert_int_equal(w.disks[d].up.n, 8);
        for (uint64_t b = 0; b < 8; b++) {
            check_upload(&w, d, b, 'a' + (int)b);
        }
        assert_int_equal(dw_snap(&w, CTL_SNAP_END, d, first[d]), 0);
        forget_uploads(&w.disks[d].up);
        w.disks[d].n_done = 0;
    }
    int rc = -EBUSY; /* what the first held is given back, and then there is room */
    for (unsigned i = 0; rc == -EBUSY && i < 2000; i++) {
        rc = snap(&w, 1, second, false, NULL);
        usleep(1000);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(dw_snap(&w, CTL_SNAP_READ, 0, "snap-3"), 0);
    assert_true(dw_serve(&w, 20 * NS_PER_S, -1, is_done));
    assert_int_equal(w.disks[0].up.n, 2);
    check_upload(&w, 0, 3, 'X');
    check_upload(&w, 0, 4, 'Y');
    close(fds[0]);
    close(fds[1]);
    dw_done(&w);
}

/* Uploads that nobody answered are asked of the next manager, and "done" is said to him again. */
static void test_uploads_outlive_their_manager(void **state)
{
    static const char *const name[] = {"snap-1"};
    struct dw w;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    int fd = dw_nbd(&w, 0);
    for (uint64_t b = 0; b < 24; b++) {
        write_block(&w, fd, b, 'a' + (int)b);
    }
    assert_int_equal(snap(&w, 1, name, false, NULL), 0);
    w.holds_uploads = true;
    assert_int_equal(dw_snap(&w, CTL_SNAP_READ, 0, "snap-1"), 0);
    dw_serve(&w, 300 * NS_PER_MS, -1, NULL);
    assert_in_range(w.n_held, 1, 8); /* a window, not all of them */
    assert_int_equal(w.disks[0].n_done, 0);
    write_block(&w, fd, 2, 'Z'); /* frozen: its old bytes are copied aside meanwhile */
    w.n_held = 0;
    dw_connect(&w);
    dw_serve(&w, 300 * NS_PER_MS, -1, NULL);
    assert_in_range(w.n_held, 1, 8);
    dw_release(&w, -EAGAIN); /* the store is away: they come again */
    dw_serve(&w, 300 * NS_PER_MS, -1, NULL);
    w.holds_uploads = false;
    dw_release(&w, 0);
    assert_true(dw_serve(&w, 20 * NS_PER_S, -1, is_done));
    assert_int_equal(w.disks[0].up.n, 24);
    for (uint64_t b = 0; b < 24; b++) {
        check_upload(&w, 0, b, 'a' + (int)b);
    }
    w.disks[0].n_done = 0;
    dw_connect(&w);
    assert_true(dw_serve(&w, 5 * NS_PER_S, -1, is_done));
    assert_string_equal(w.disks[0].done, "snap-1");
    assert_int_equal(dw_snap(&w, CTL_SNAP_END, 0, "snap-1"), 0);
    w.disks[0].n_done = 0;
    dw_connect(&w);
    dw_serve(&w, 300 * NS_PER_MS, -1, NULL);
    assert_int_equal(w.disks[0].n_done, 0);
    close(fd);
    dw_done(&w);
}

/* kill -9 in the middle of an upload: the next process goes on with the same frozen set, and what
 * was written to the disk is there. */
static void test_a_killed_process_goes_on(void **state)
{
    static const char *const name[] = {"snap-1"};
    struct dw w;
    uint8_t in[512];
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    int fd = dw_nbd(&w, 0);
    for (uint64_t b = 0; b < 12; b++) {
        write_block(&w, fd, b, 'a' + (int)b);
    }
    assert_int_equal(snap(&w, 1, name, false, NULL), 0);
    w.holds_uploads = true;
    assert_int_equal(dw_snap(&w, CTL_SNAP_READ, 0, "snap-1"), 0);
    dw_serve(&w, 300 * NS_PER_MS, -1, NULL);
    write_block(&w, fd, 11, 'Z');
    dw_kill(&w);
    close(fd);
    w.n_held = 0;
    w.holds_uploads = false;
    dw_spawn(&w);
    dw_connect(&w);
    assert_int_equal(w.n_disks, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    assert_int_equal(dw_snap(&w, CTL_SNAP_READ, 0, "snap-1"), 0);
    assert_true(dw_serve(&w, 20 * NS_PER_S, -1, is_done));
    assert_int_equal(w.disks[0].up.n, 12);
    for (uint64_t b = 0; b < 12; b++) {
        check_upload(&w, 0, b, 'a' + (int)b);
    }
    fd = dw_nbd(&w, 0);
    assert_int_equal(dw_nbd_io(&w, fd, NBD_CMD_READ, 11 * (uint64_t)BLK_BLOCK, 512, in), 0);
    assert_int_equal(in[5], 'Z');
    assert_int_equal(dw_snap(&w, CTL_SNAP_END, 0, "snap-1"), 0);
    close(fd);
    dw_done(&w);
}

static void test_a_snapshot_can_be_given_up(void **state)
{
    static const char *const one[] = {"snap-1"}, *const two[] = {"snap-2"};
    struct dw w;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    int fd = dw_nbd(&w, 0);
    write_block(&w, fd, 1, 'p');
    write_block(&w, fd, 5, 'q');
    assert_int_equal(snap(&w, 1, one, false, NULL), 0);
    assert_int_equal(dw_snap(&w, CTL_SNAP_ABORT, 0, "snap-1"), 0);
    int rc = -EBUSY;
    for (unsigned i = 0; rc == -EBUSY && i < 2000; i++) {
        rc = snap(&w, 1, two, false, NULL);
        usleep(1000);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(dw_snap(&w, CTL_SNAP_READ, 0, "snap-2"), 0);
    assert_true(dw_serve(&w, 20 * NS_PER_S, -1, is_done));
    /* Nothing was lost of what changed before; what comes besides is as it is. */
    for (unsigned b = 0; b < SIZE / BLK_BLOCK; b++) {
        if (b == 1 || b == 5 || w.disks[0].up.blocks[b]) {
            check_upload(&w, 0, b, b == 1 ? 'p' : b == 5 ? 'q' : 0);
        }
    }
    close(fd);
    dw_done(&w);
}

/* Numbers of frozen sets are used again: each snapshot is told to be done. */
static void test_one_snapshot_after_another(void **state)
{
    struct dw w;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    int fd = dw_nbd(&w, 0);
    for (unsigned i = 0; i < 3 * BLK_MAX_FROZEN; i++) {
        char name[] = {'s', 'n', 'a', 'p', '-', (char)('a' + (int)i), '\0'};
        const char *const names[] = {name};
        write_block(&w, fd, i % 5, 'A' + (int)i);
        int rc = -EBUSY;
        for (unsigned k = 0; rc == -EBUSY && k < 2000; k++) {
            rc = snap(&w, 1, names, false, NULL);
            usleep(1000);
        }
        assert_int_equal(rc, 0);
        w.disks[0].n_done = 0;
        assert_int_equal(dw_snap(&w, CTL_SNAP_READ, 0, name), 0);
        assert_true(dw_serve(&w, 5 * NS_PER_S, -1, is_done));
        assert_string_equal(w.disks[0].done, name);
        assert_int_equal(w.disks[0].up.n, 1);
        check_upload(&w, 0, i % 5, 'A' + (int)i);
        forget_uploads(&w.disks[0].up);
        assert_int_equal(dw_snap(&w, CTL_SNAP_END, 0, name), 0);
    }
    close(fd);
    dw_done(&w);
}

/* The lengths with flag 1 and without it, of one context. */
static void status(int fd, uint64_t cookie, uint64_t ret[2])
{
    nbd_client_ask(fd, NBD_CMD_BLOCK_STATUS, 0, cookie, 0, SIZE, NULL);
    for (unsigned i = 0; i < 2; i++) {
        struct nbd_chunk c = nbd_client_chunk(fd);
        assert_int_equal(c.type, NBD_CHUNK_STATUS);
        assert_int_equal(c.flags, i == 1 ? NBD_CHUNK_DONE : 0);
        assert_int_equal(nbd_client_num(fd, 4), i + 1);
        for (uint32_t k = 0; k < (c.len - 4) / 8; k++) {
            uint64_t len = nbd_client_num(fd, 4), flags = nbd_client_num(fd, 4);
            if (i == 1) {
                assert_in_range(flags, 0, 1);
                ret[flags] += len;
            }
        }
    }
}

/* What a tool needs for an incremental copy: spx:dirty is what changed since the last snapshot. */
static void test_nbd_tells_what_is_dirty(void **state)
{
    static const char *const name[] = {"snap-1"};
    struct dw w;
    dw_init(&w);
    dw_make(&w, 0, SIZE, true, 0, 0);
    assert_int_equal(dw_open(&w, 0, NULL), 0);
    assert_int_equal(dw_serve_nbd(&w, 0), 0);
    int fd = dw_nbd(&w, 0);
    int asker = nbd_client(w.disks[0].nbd);
    nbd_client_hello(asker, NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES);
    nbd_client_opt(asker, NBD_OPT_STRUCTURED_REPLY, "", 0);
    nbd_client_until_ack(asker, NBD_OPT_STRUCTURED_REPLY);
    static const char q[] = "\0\0\0\0\0\0\0\2\0\0\0\11spx:dirty\0\0\0\17base:allocation";
    nbd_client_opt(asker, NBD_OPT_SET_META_CONTEXT, q, sizeof(q) - 1);
    nbd_client_until_ack(asker, NBD_OPT_SET_META_CONTEXT);
    nbd_client_opt(asker, NBD_OPT_GO, "\0\0\0\0\0\0", 6);
    nbd_client_until_ack(asker, NBD_OPT_GO);
    write_block(&w, fd, 2, 'a');
    write_block(&w, fd, 9, 'b');
    uint64_t got[2] = {0};
    status(asker, 1, got);
    assert_int_equal(got[1], 2 * BLK_BLOCK);
    assert_int_equal(got[0] + got[1], SIZE);
    assert_int_equal(snap(&w, 1, name, false, NULL), 0);
    write_block(&w, fd, 5, 'c');
    got[0] = got[1] = 0;
    status(asker, 2, got);
    assert_int_equal(got[1], BLK_BLOCK);
    close(fd);
    close(asker);
    dw_done(&w);
}

int data_snap_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absent_blocks_come_from_the_manager),
        cmocka_unit_test(test_what_the_store_does_not_have_is_an_error_and_zeros_are_zeros),
        cmocka_unit_test(test_a_new_manager_is_asked_again),
        cmocka_unit_test(test_more_misses_than_slots),
        cmocka_unit_test(test_a_disk_that_closes_is_not_whole),
        cmocka_unit_test(test_the_filler_brings_the_rest),
        cmocka_unit_test(test_a_snapshot_has_its_point_in_time),
        cmocka_unit_test(test_one_snapshot_after_another),
        cmocka_unit_test(test_uploads_outlive_their_manager),
        cmocka_unit_test(test_a_killed_process_goes_on),
        cmocka_unit_test(test_nbd_tells_what_is_dirty),
        cmocka_unit_test(test_a_snapshot_can_be_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
