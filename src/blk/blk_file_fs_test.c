#include "blk/blk_file.h"

#include "base/test.h"
#include "base/time.h"
#include "blk/blk_world.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The file layer on file systems that are not like others: full, without O_DIRECT, without holes.
 * Each in a mount of a child's own; the child answers 0 or the number of what was wrong. */

/* ---- a full disk ---- */

/* A mount that only this process and its children see. */
static bool has_mount(const char *dir, const char *type, const char *options)
{
    return (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", dir, type, 0, options) == 0;
}

static int write_at(struct world *w, struct world_io *io, uint64_t off, char *p)
{
    world_start(w, io, BLK_WRITE, 0, off, p, 65536);
    return world_wait(w, io);
}

/* In a mount of its own: a file system of 1 MiB. Answers 0 or the number of what was wrong. */
static int on_a_small_disk(const char *dir)
{
    char path[PATH_MAX + 8];
    struct err err = ERR_INIT;
    struct world w;
    struct world_io io = {0}, waiting;
    if (!has_mount(dir, "tmpfs", "size=1m")) {
        return 1;
    }
    snprintf(path, sizeof(path), "%s/data", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    snprintf(path, sizeof(path), "%s/filler", dir);
    int filler = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char *p = aligned_alloc(4096, 65536);
    if (ftruncate(fd, 8 << 20) < 0 || posix_fallocate(filler, 0, 512 << 10) || !p) {
        return 3;
    }
    memset(p, 1, 65536);
    world_queue(&w, NULL);
    struct blk_file_opts o = {.fd = fd, .size = 8 << 20};
    if (blk_file_new(&o, &w.top, &err)) {
        return 4;
    }
    int rc = 0;
    uint64_t n = 0;
    while (n < 64 && (rc = write_at(&w, &io, n * 65536, p)) == 0) {
        n++;
    }
    if (rc != -ENOSPC || n < 4 || n > 8) {
        return 5;
    }
    if (write_at(&w, &io, 0, p) || world_io(&w, BLK_FLUSH, 0, 0, NULL, 0)) {
        return 6; /* what is there goes on, and the volume has no fault */
    }
    blk_stack_free(w.top);
    o.is_full_waited_for = true;
    if (blk_file_new(&o, &w.top, &err)) {
        return 7;
    }
    world_start(&w, &waiting, BLK_WRITE, 0, n * 65536, p, 65536);
    for (int i = 0; i < 20; i++) {
        (void)blk_queue_run(w.q, 10 * NS_PER_MS);
    }
    if (waiting.is_done) {
        return 8;
    }
    if (write_at(&w, &io, 0, p) || ftruncate(filler, 0) < 0) {
        return 9; /* others do not wait behind it */
    }
    if (world_wait(&w, &waiting)) {
        return 10;
    }
    /* Full again, and then the volume has to be closed. */
    if (posix_fallocate(filler, 0, 448 << 10)) {
        return 11;
    }
    world_start(&w, &waiting, BLK_WRITE, 0, 60 * 65536, p, 65536);
    for (int i = 0; i < 10; i++) {
        (void)blk_queue_run(w.q, 10 * NS_PER_MS);
    }
    if (waiting.is_done) {
        return 12;
    }
    blk_file_give_up(w.top);
    return world_wait(&w, &waiting) == -ENOSPC ? 0 : 13;
}

/* ramfs has neither O_DIRECT nor fallocate(): all through the page cache, zeros are written. */
static int on_a_simple_disk(const char *dir)
{
    static const struct {
        unsigned flags;
        uint64_t off, len;
    } zeroes[] = {{0, 0, 65536},
                  {BLK_NO_UNMAP, 1 << 20, 1 << 20},
                  {0, (3 << 20) + 512, 8192},
                  {BLK_NO_UNMAP, (4 << 20) + 512, 512},
                  {0, 4 << 20, 2 << 20}};
    char path[PATH_MAX + 8];
    struct err err = ERR_INIT;
    struct world w;
    struct blk_file_stats st;
    if (!has_mount(dir, "ramfs", NULL)) {
        return 1;
    }
    snprintf(path, sizeof(path), "%s/data", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char *want = malloc(8 << 20), *seen = malloc(8 << 20);
    if (ftruncate(fd, 8 << 20) < 0 || !want || !seen) {
        return 2;
    }
    world_queue(&w, NULL);
    struct blk_file_opts o = {.fd = fd, .size = 8 << 20};
    if (blk_file_new(&o, &w.top, &err)) {
        return 3;
    }
    blk_file_stats(w.top, &st);
    if (st.is_direct || st.align != 1) {
        return 4;
    }
    memset(want, 7, 8 << 20);
    for (uint64_t at = 0; at < 8 << 20; at += BLK_MAX_LEN) {
        if (world_io(&w, BLK_WRITE, 0, at, want + at, BLK_MAX_LEN)) {
            return 5;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(zeroes); i++) {
        memset(want + zeroes[i].off, 0, zeroes[i].len);
        if (world_io(&w, BLK_ZEROES, zeroes[i].flags, zeroes[i].off, NULL, zeroes[i].len)) {
            return 6;
        }
    }
    if (world_io(&w, BLK_DISCARD, 0, 7 << 20, NULL, 65536)) {
        return 7; /* a wish that cannot be met is no error */
    }
    if (pread(fd, seen, 8 << 20, 0) != 8 << 20 || memcmp(seen, want, 8 << 20) != 0) {
        return 8;
    }
    return world_io(&w, BLK_FLUSH, 0, 0, NULL, 0) ? 9 : 0;
}

static void in_child(int (*fn)(const char *dir))
{
    struct tmpdir dir;
    tmpdir_init(&dir, "blkfs");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(fn(dir.path));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    tmpdir_done(&dir);
}

static void test_a_full_disk(void **state)
{
    in_child(on_a_small_disk);
}

static void test_no_direct_io_and_no_holes(void **state)
{
    in_child(on_a_simple_disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_disk),
        cmocka_unit_test(test_no_direct_io_and_no_holes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
