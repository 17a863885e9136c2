#include "blk/blk_cow.h"

#include "blk/blk_cow_world.h"
#include "loop/child.h"
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

/* On a file system that shares extents the first write to a frozen block copies nothing: its old
 * bytes are shared with the place aside. On one that is made here, in a loop device, in a mount of
 * this program's own; a machine that can have none of them has nothing to test. */

#define MIB   (UINT64_C(1) << 20)
#define SIZE  (16 * MIB)
#define N     ((unsigned)(SIZE / BLK_BLOCK))
#define IMAGE (512 * MIB) /* XFS is not made smaller than 300 MiB; the file is sparse */
#define LIMIT (120 * NS_PER_S)
#define MNT   "/mnt" /* ours in this namespace; folders of tests have short names */

static struct tmpdir dir;
static char image[PATH_MAX];

static int run(const char *const *argv)
{
    AUTO_BUF out;
    struct err err = ERR_INIT;
    const struct child_opts o = {.argv = argv};
    buf_init(&out, 1 << 20);
    int rc = child_run(&o, LIMIT, &out, &err);
    if (rc != 0) {
        print_message("           %s: %s %s\n", argv[0], err.msg, buf_cstr(&out));
    }
    return rc;
}

/* A new one at MNT, for this process and its children. */
static bool has_fs(const char *const *mkfs)
{
    const char *const attach[] = {"mount", "-o", "loop", image, MNT, NULL};
    tmpdir_write(&dir, "image", "", image);
    assert_int_equal(truncate(image, (off_t)IMAGE), 0);
    return run(mkfs) == 0 && run(attach) == 0;
}

static void end_fs(void)
{
    assert_int_equal(umount(MNT), 0);
    assert_int_equal(unlink(image), 0);
}

static uint64_t used(struct cow_world *c)
{
    struct statvfs st;
    assert_int_equal(fsync(c->data_fd) | fsync(c->aside_fd) | syncfs(c->aside_fd), 0);
    assert_int_equal(fstatvfs(c->data_fd, &st), 0);
    return (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize;
}

static void fill(struct cow_world *c, char *now, uint64_t seed)
{
    cw_fill_bytes(now, SIZE, seed);
    for (uint64_t off = 0; off < SIZE; off += MIB) {
        assert_int_equal(cw_write(c, off, now + off, MIB), 0);
    }
    assert_int_equal(cw_flush(c), 0);
}

static unsigned freeze(struct cow_world *c, const char *id)
{
    unsigned idx = 99;
    struct err err = ERR_INIT;
    if (blk_cow_snap_begin(&c->w.top, &id, 1, false, &idx, &err)) {
        fail_msg("%s: %s", id, err.msg);
    }
    cw_settle(c);
    return idx;
}

/* A page of each block; microseconds for each. */
static uint64_t write_all_first(struct cow_world *c, char *now)
{
    uint64_t t = time_mono_ns();
    for (unsigned b = 0; b < N; b++) {
        char *p = now + (uint64_t)b * BLK_BLOCK + (b % 128) * BLK_PAGE;
        cw_fill_bytes(p, BLK_PAGE, 1000 + b);
        assert_int_equal(cw_write(c, (uint64_t)(p - now), p, BLK_PAGE), 0);
    }
    return (time_mono_ns() - t) / 1000 / N;
}

static void read_and_end(struct cow_world *c, unsigned k, const char *then)
{
    uint64_t t = time_mono_ns();
    assert_int_equal(blk_cow_snap_read(c->w.top, k, 4, NULL), 0);
    while (!c->store[k].is_ended) {
        cw_turn(c, 2 * NS_PER_MS);
        assert_true(time_mono_ns() < t + LIMIT);
    }
    for (unsigned b = 0; b < N; b++) {
        assert_non_null(c->store[k].block[b]);
        assert_memory_equal(c->store[k].block[b], then + (uint64_t)b * BLK_BLOCK, BLK_BLOCK);
    }
    assert_int_equal(blk_cow_snap_end(c->w.top, k, NULL), 0);
    cw_clear_store(c, k);
    while (c->l->sets[k].is_ending || c->l->sets[k].is_gone || c->l->n_dropping > 0) {
        cw_turn(c, 2 * NS_PER_MS);
        assert_true(time_mono_ns() < t + LIMIT);
    }
}

static void nothing_is_copied(const char *type)
{
    static struct cow_world c;
    static char now[SIZE] __attribute__((aligned(4096))), then[SIZE];
    struct stat st;
    memset(&c, 0, sizeof(c));
    c.size = SIZE;
    assert_int_equal(setenv("TMPDIR", MNT, 1), 0);
    cw_init(&c);
    assert_int_equal(strncmp(c.dir.path, MNT "/", sizeof(MNT)), 0);
    fill(&c, now, 1);
    memcpy(then, now, SIZE);
    unsigned k = freeze(&c, "shared");
    uint64_t before = used(&c), us = write_all_first(&c, now);
    assert_int_equal(cw_flush(&c), 0);
    uint64_t grown = used(&c) - before;
    assert_int_equal(atomic_load(&c.l->n_clones), N);
    assert_int_equal(atomic_load(&c.l->n_aside_writes), N);
    assert_int_equal(fstat(c.aside_fd, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 >= SIZE); /* there, and not twice */
    assert_in_range(grown, 0, SIZE / 2);
    cw_kill(&c); /* what is shared survives as what is copied does */
    cw_same(&c, now, type);
    read_and_end(&c, k, then);
    assert_int_equal(fstat(c.aside_fd, &st), 0);
    assert_in_range((uint64_t)st.st_blocks * 512, 0, MIB);
    cw_same(&c, now, type);
    /* The same with copies, to know what is saved. */
    fill(&c, now, 2);
    memcpy(then, now, SIZE);
    k = freeze(&c, "copied");
    c.l->is_clone_refused = true;
    before = used(&c);
    uint64_t us_copied = write_all_first(&c, now);
    assert_int_equal(cw_flush(&c), 0);
    uint64_t grown_copied = used(&c) - before;
    assert_int_equal(atomic_load(&c.l->n_clones), 0);
    assert_true(grown_copied >= SIZE / 2);
    read_and_end(&c, k, then);
    cw_same(&c, now, type);
    print_message("           %s: first write %lu us and %lu KiB shared, %lu us and %lu KiB "
                  "copied\n",
                  type, us, grown / 1024 / N, us_copied, grown_copied / 1024 / N);
    cw_stop(&c);
    cw_done(&c);
}

static void first_writes_on_xfs_copy_nothing(void **state)
{
    const char *const mkfs[] = {"mkfs.xfs", "-q", "-m", "reflink=1", image, NULL};
    (void)state;
    if (!has_fs(mkfs)) {
        skip();
    }
    nothing_is_copied("xfs");
    end_fs();
}

static void first_writes_on_btrfs_copy_nothing(void **state)
{
    const char *const mkfs[] = {"mkfs.btrfs", "-q", image, NULL};
    (void)state;
    if (!has_fs(mkfs)) {
        skip();
    }
    nothing_is_copied("btrfs");
    end_fs();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_writes_on_xfs_copy_nothing),
        cmocka_unit_test(first_writes_on_btrfs_copy_nothing),
    };
    tmpdir_init(&dir, "reflink");
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        print_message("no mounts are allowed here: only root makes file systems\n");
        tmpdir_done(&dir);
        return 77;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    (void)umount(MNT);
    tmpdir_done(&dir);
    return rc;
}
