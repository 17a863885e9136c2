#include "base/fault.h"

#include "base/fault_sim.h"
#include "base/file.h"
#include "base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

static char top[32];
static int n_folder;

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *new_path(char *buf, size_t n)
{
    (void)snprintf(buf, n, "%s/%d", top, n_folder++);
    return buf;
}

struct world {
    char live[64], cut[64];
    struct fault_sim *sim;
    struct fault_fs *fs;
    int dir;
};

static void put(int dir, const char *name, const char *text)
{
    AUTO_FD fd = fault_open(NULL, dir, name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fault_pwrite(NULL, fd, text, strlen(text), 0), 0);
}

/* A folder with a durable file "old" (12 bytes) and a durable folder "sub" with "deep" in it. */
static struct world world_new(void)
{
    struct world w = {.dir = -1};
    new_path(w.live, sizeof(w.live));
    assert_int_equal(mkdir(w.live, 0700), 0);
    AUTO_FD d = fault_open_root(NULL, w.live);
    assert_true(d >= 0);
    put(d, "old", "first-state!");
    assert_int_equal(fault_mkdir(NULL, d, "sub", 0700), 0);
    AUTO_FD sub = fault_open_dir(NULL, d, "sub");
    put(sub, "deep", "down");
    w.sim = fault_sim_new(w.live, NULL);
    assert_non_null(w.sim);
    w.fs = fault_sim_fs(w.sim);
    w.dir = fault_open_root(w.fs, w.live);
    assert_true(w.dir >= 0);
    return w;
}

static void world_done(struct world *w)
{
    close(w->dir);
    fault_sim_free(w->sim);
    remove_tree(w->live);
}

/* Cuts, and answers what "name" holds then; NULL: it is not there. */
static char *after_cut(struct world *w, struct fault_cut cut, const char *name)
{
    struct err err = ERR_INIT;
    char path[128], *text = NULL;
    new_path(w->cut, sizeof(w->cut));
    int r = fault_sim_cut(w->sim, &cut, w->cut, &err);
    if (r < 0) {
        fail_msg("cut: %s", err.msg);
    }
    (void)snprintf(path, sizeof(path), "%s/%s", w->cut, name);
    (void)!file_read(path, 1 << 20, &text, NULL, NULL);
    remove_tree(w->cut);
    return text;
}

static void want_after(struct world *w, enum fault_cut_kind kind, const char *name,
                       const char *want)
{
    AUTO_FREE char *got = after_cut(w, (struct fault_cut){.kind = kind}, name);
    if (!got != !want || (got && strcmp(got, want) != 0)) {
        fail_msg("%s after cut %d: got %s, want %s", name, kind, got ? got : "(absent)",
                 want ? want : "(absent)");
    }
}

/* --- the door itself --- */

static void door_refuses(void **state)
{
    struct world w = world_new();
    struct fault_fs *both[] = {NULL, w.fs};
    for (size_t i = 0; i < 2; i++) {
        struct fault_fs *fs = both[i];
        static const char *const bad[] = {"", ".", "..", "a/b", "/etc/passwd"};
        for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
            assert_int_equal(fault_open(fs, w.dir, bad[k], O_RDONLY, 0), -EINVAL);
            assert_int_equal(fault_open_dir(fs, w.dir, bad[k]), -EINVAL);
            assert_int_equal(fault_rename(fs, w.dir, "old", bad[k]), -EINVAL);
            assert_int_equal(fault_rename(fs, w.dir, bad[k], "x"), -EINVAL);
            assert_int_equal(fault_unlink(fs, w.dir, bad[k]), -EINVAL);
            assert_int_equal(fault_mkdir(fs, w.dir, bad[k], 0700), -EINVAL);
            assert_int_equal(fault_rmdir(fs, w.dir, bad[k]), -EINVAL);
        }
        assert_int_equal(fault_open(fs, w.dir, "old", O_WRONLY | O_APPEND, 0), -EINVAL);
        assert_int_equal(fault_open(fs, w.dir, "nope", O_RDONLY, 0), -ENOENT);
        assert_int_equal(fault_open(fs, w.dir, "old", O_RDWR | O_CREAT | O_EXCL, 0600),
                         -EEXIST);
        assert_int_equal(fault_open_dir(fs, w.dir, "old"), -ENOTDIR);
        assert_int_equal(fault_unlink(fs, w.dir, "nope"), -ENOENT);
        assert_int_equal(fault_rmdir(fs, w.dir, "sub"), -ENOTEMPTY);
        assert_int_equal(fault_mkdir(fs, w.dir, "sub", 0700), -EEXIST);
        assert_int_equal(fault_rename(fs, w.dir, "nope", "x"), -ENOENT);
        char b[4];
        assert_int_equal(fault_pread(fs, -1, b, 4, 0), -EBADF);
        assert_int_equal(fault_pwrite(fs, -1, b, 4, 0), -EBADF);
        assert_int_equal(fault_pwrite(fs, 0, b, 4, INT64_MAX - 3), -EINVAL);
        assert_int_equal(fault_pread(fs, 0, b, 4, UINT64_MAX), -EINVAL);
        assert_int_equal(fault_truncate(fs, 0, UINT64_MAX), -EINVAL);
        assert_int_equal(fault_fdatasync(fs, -1), -EBADF);
        assert_int_equal(fault_sync_dir(fs, -1), -EBADF);
        assert_int_equal(symlinkat("old", w.dir, "link"), 0);
        assert_int_equal(fault_open(fs, w.dir, "link", O_RDONLY, 0), -ELOOP);
        assert_int_equal(unlinkat(w.dir, "link", 0), 0);
    }
    world_done(&w);
}

static void door_reads_and_writes(void **state)
{
    struct world w = world_new();
    struct fault_fs *both[] = {NULL, w.fs};
    for (size_t i = 0; i < 2; i++) {
        struct fault_fs *fs = both[i];
        AUTO_FD fd = fault_open(fs, w.dir, i ? "b" : "a", O_RDWR | O_CREAT, 0600);
        assert_true(fd >= 0);
        char one[] = "one,", two[] = "two,", three[] = "three";
        const struct iovec iov[] = {{one, 4}, {two, 4}, {NULL, 0}, {three, 5}};
        assert_int_equal(fault_pwritev(fs, fd, iov, 4, 3), 0);
        assert_int_equal(fault_pwritev(fs, fd, iov, 0, 3), 0);
        assert_int_equal(fault_pwritev(fs, fd, iov, -1, 3), -EINVAL);
        char b[64];
        assert_int_equal(fault_pread(fs, fd, b, sizeof(b), 3), 13);
        assert_memory_equal(b, "one,two,three", 13);
        assert_int_equal(fault_pread(fs, fd, b, sizeof(b), 100), 0);
        /* Just written: in memory, unless the file system has no such call. */
        ssize_t n = fault_pread_nowait(fs, fd, b, sizeof(b), 3);
        assert_true(n == 13 || n == -EAGAIN);
        assert_int_equal(fault_pread_nowait(fs, fd, b, 1, UINT64_MAX), -EINVAL);
        assert_int_equal(fault_allocate(fs, fd, 0, 8192, true), 0);
        assert_int_equal(fault_pread(fs, fd, b, 1, 8191), 1);
        assert_int_equal(fault_allocate(fs, fd, 0, 1 << 20, false), 0);
        assert_int_equal(fault_pread(fs, fd, b, 1, 8192), 0);
        assert_int_equal(fault_punch(fs, fd, 7, 4), 0);
        assert_int_equal(fault_pread(fs, fd, b, 13, 3), 13);
        assert_memory_equal(b, "one,\0\0\0\0three", 13);
        assert_int_equal(fault_truncate(fs, fd, 5), 0);
        assert_int_equal(fault_pread(fs, fd, b, 64, 3), 2);
        assert_int_equal(fault_fdatasync(fs, fd), 0);
        assert_int_equal(fault_fsync(fs, fd), 0);
        assert_int_equal(fault_sync_dir(fs, w.dir), 0);
    }
    world_done(&w);
}

/* A write that the system cuts short and interrupts is finished piece by piece. */
struct stutter {
    struct fault_fs fs;
    int n;
};
static int64_t stutter_call(struct fault_fs *fs, const struct fault_call *c)
{
    struct stutter *s = (struct stutter *)(void *)fs;
    if (c->op == FAULT_FDATASYNC) {
        s->n++;
        return -EINTR;
    }
    if (s->n++ % 2 == 0) {
        return -EINTR;
    }
    if (c->op == FAULT_PREAD) {
        struct fault_call part = *c;
        part.n = MIN(part.n, 3u);
        return fault_direct(&part);
    }
    if (c->op == FAULT_PWRITE) {
        struct iovec first = c->iov[0];
        first.iov_len = MIN(first.iov_len, 3u);
        struct fault_call part = *c;
        part.iov = &first;
        part.n_iov = 1;
        return fault_direct(&part);
    }
    return fault_direct(c);
}

static void door_finishes_short_calls(void **state)
{
    struct world w = world_new();
    struct stutter s = {.fs.call = stutter_call};
    AUTO_FD fd = fault_open(&s.fs, w.dir, "s", O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    char a[] = "abcdefgh", b[] = "ijklm", got[16];
    const struct iovec iov[] = {{a, 8}, {b, 5}};
    assert_int_equal(fault_pwritev(&s.fs, fd, iov, 2, 0), 0);
    assert_int_equal(fault_pread(&s.fs, fd, got, sizeof(got), 0), 13);
    assert_memory_equal(got, "abcdefghijklm", 13);
    s.n = 0;
    assert_int_equal(fault_fdatasync(&s.fs, fd), -EINTR); /* asked once, never again */
    assert_int_equal(s.n, 1);
    world_done(&w);
}

/* --- what a cut leaves --- */

static void write_new(struct world *w, bool syncs_data, bool syncs_name)
{
    AUTO_FD fd = fault_open(w->fs, w->dir, "new", O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fault_pwrite(w->fs, fd, "fresh", 5, 0), 0);
    if (syncs_data) {
        assert_int_equal(fault_fdatasync(w->fs, fd), 0);
    }
    if (syncs_name) {
        assert_int_equal(fault_sync_dir(w->fs, w->dir), 0);
    }
}

static void new_files(void **state)
{
    static const struct {
        bool data, name;
        const char *synced, *names, *datas;
    } t[] = {
        {false, false, NULL, "", NULL},
        {true, false, NULL, "fresh", NULL},
        {false, true, "", "", "fresh"},
        {true, true, "fresh", "fresh", "fresh"},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct world w = world_new();
        write_new(&w, t[i].data, t[i].name);
        want_after(&w, FAULT_CUT_SYNCED, "new", t[i].synced);
        want_after(&w, FAULT_CUT_NAMES, "new", t[i].names);
        want_after(&w, FAULT_CUT_DATA, "new", t[i].datas);
        want_after(&w, FAULT_CUT_ALL, "new", "fresh");
        want_after(&w, FAULT_CUT_SYNCED, "old", "first-state!");
        want_after(&w, FAULT_CUT_SYNCED, "sub/deep", "down");
        world_done(&w);
    }
}

static void changes_of_old_things(void **state)
{
    struct world w = world_new();
    AUTO_FD fd = fault_open(w.fs, w.dir, "old", O_RDWR, 0);
    assert_int_equal(fault_pwrite(w.fs, fd, "FIRST", 5, 0), 0);
    want_after(&w, FAULT_CUT_SYNCED, "old", "first-state!");
    want_after(&w, FAULT_CUT_ALL, "old", "FIRST-state!");
    assert_int_equal(fault_truncate(w.fs, fd, 5), 0);
    want_after(&w, FAULT_CUT_SYNCED, "old", "first-state!");
    want_after(&w, FAULT_CUT_ALL, "old", "FIRST");
    assert_int_equal(fault_fsync(w.fs, fd), 0);
    assert_int_equal(fault_sim_n_unsynced(w.sim), 0);
    want_after(&w, FAULT_CUT_SYNCED, "old", "FIRST");
    assert_int_equal(fault_rename(w.fs, w.dir, "old", "renamed"), 0);
    want_after(&w, FAULT_CUT_SYNCED, "old", "FIRST");
    want_after(&w, FAULT_CUT_SYNCED, "renamed", NULL);
    want_after(&w, FAULT_CUT_ALL, "old", NULL);
    want_after(&w, FAULT_CUT_ALL, "renamed", "FIRST");
    assert_int_equal(fault_sync_dir(w.fs, w.dir), 0);
    want_after(&w, FAULT_CUT_SYNCED, "renamed", "FIRST");
    want_after(&w, FAULT_CUT_SYNCED, "old", NULL);
    assert_int_equal(fault_unlink(w.fs, w.dir, "renamed"), 0);
    want_after(&w, FAULT_CUT_SYNCED, "renamed", "FIRST"); /* it comes back */
    want_after(&w, FAULT_CUT_ALL, "renamed", NULL);
    /* The open file without a name is still itself, though another has been made since. */
    write_new(&w, true, true);
    assert_int_equal(fault_pwrite(w.fs, fd, "ghost", 5, 0), 0);
    assert_int_equal(fault_fdatasync(w.fs, fd), 0);
    want_after(&w, FAULT_CUT_SYNCED, "new", "fresh");
    want_after(&w, FAULT_CUT_SYNCED, "renamed", NULL);
    world_done(&w);
}

static void folders(void **state)
{
    struct world w = world_new();
    assert_int_equal(fault_mkdir(w.fs, w.dir, "d", 0700), 0);
    AUTO_FD d = fault_open_dir(w.fs, w.dir, "d");
    AUTO_FD fd = fault_open(w.fs, d, "f", O_RDWR | O_CREAT, 0600);
    assert_int_equal(fault_pwrite(w.fs, fd, "in", 2, 0), 0);
    assert_int_equal(fault_fsync(w.fs, fd), 0);
    assert_int_equal(fault_sync_dir(w.fs, d), 0);
    want_after(&w, FAULT_CUT_SYNCED, "d/f", NULL); /* the folder's own name was not synced */
    assert_int_equal(fault_sync_dir(w.fs, w.dir), 0);
    want_after(&w, FAULT_CUT_SYNCED, "d/f", "in");
    AUTO_FD sub = fault_open_dir(w.fs, w.dir, "sub");
    assert_int_equal(fault_unlink(w.fs, sub, "deep"), 0);
    assert_int_equal(fault_rmdir(w.fs, w.dir, "sub"), 0);
    want_after(&w, FAULT_CUT_SYNCED, "sub/deep", "down");
    want_after(&w, FAULT_CUT_ALL, "sub/deep", NULL);
    assert_int_equal(fault_sync_dir(w.fs, w.dir), 0);
    want_after(&w, FAULT_CUT_SYNCED, "sub/deep", NULL);
    world_done(&w);
}

static void holes_and_growth(void **state)
{
    struct world w = world_new();
    AUTO_FD fd = fault_open(w.fs, w.dir, "old", O_RDWR, 0);
    assert_int_equal(fault_punch(w.fs, fd, 0, 5), 0);
    want_after(&w, FAULT_CUT_SYNCED, "old", "first-state!");
    want_after(&w, FAULT_CUT_ALL, "old", ""); /* a zero ends the text */
    assert_int_equal(fault_fdatasync(w.fs, fd), 0);
    assert_int_equal(fault_pwrite(w.fs, fd, "again", 5, 0), 0);
    assert_int_equal(fault_allocate(w.fs, fd, 0, UINT64_C(64) << 20, true), 0);
    assert_int_equal(fault_fdatasync(w.fs, fd), 0);
    new_path(w.cut, sizeof(w.cut));
    assert_int_equal(
        fault_sim_cut(w.sim, &(struct fault_cut){FAULT_CUT_SYNCED, 0, 0}, w.cut, NULL), 0);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/old", w.cut);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 64 << 20);
    assert_true(st.st_blocks < 1024); /* zeros take no space */
    remove_tree(w.cut);
    AUTO_FD again = fault_open(w.fs, w.dir, "old", O_RDWR | O_TRUNC, 0);
    assert_true(again >= 0);
    want_after(&w, FAULT_CUT_ALL, "old", "");
    world_done(&w);
}

static void torn_writes(void **state)
{
    enum { SIZE = 32768, GROWN = 65536 };
    struct world w = world_new();
    AUTO_FREE char *a = malloc(GROWN);
    AUTO_FREE char *b = malloc(GROWN);
    memset(a, 'a', GROWN);
    memset(b, 'b', GROWN);
    AUTO_FD fd = fault_open(w.fs, w.dir, "old", O_RDWR, 0);
    assert_int_equal(fault_pwrite(w.fs, fd, a, SIZE, 0), 0);
    assert_int_equal(fault_fdatasync(w.fs, fd), 0);
    assert_int_equal(fault_pwrite(w.fs, fd, b, GROWN, 0), 0);
    unsigned n_old = 0, n_new = 0, n_torn = 0, n_small = 0, n_zero = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        char path[128];
        AUTO_FREE char *got = NULL;
        size_t n = 0;
        new_path(w.cut, sizeof(w.cut));
        const struct fault_cut cut = {.kind = FAULT_CUT_RANDOM, .seed = seed};
        assert_int_equal(fault_sim_cut(w.sim, &cut, w.cut, NULL), 0);
        (void)snprintf(path, sizeof(path), "%s/old", w.cut);
        assert_int_equal(file_read(path, GROWN, &got, &n, NULL), 0);
        remove_tree(w.cut);
        assert_true(n >= SIZE);
        assert_int_equal(n % 512, 0);
        bool has_a = false, has_b = false, is_small = false;
        for (size_t off = 0; off < n; off += 512) {
            char c = got[off];
            for (size_t i = 0; i < 512; i++) {
                assert_int_equal(got[off + i], c); /* a sector is whole */
            }
            assert_true(c == 'b' || (off < SIZE ? c == 'a' : c == 0));
            has_a |= c != 'b';
            has_b |= c == 'b';
            n_zero += c == 0;
            is_small |= off % 4096 != 0 && c != got[off - 512];
        }
        n_old += !has_b;
        n_new += !has_a && n == GROWN;
        n_torn += has_a && has_b;
        n_small += is_small;
    }
    assert_true(n_old > 30 && n_new > 30 && n_torn > 30); /* all of it really happens */
    assert_true(n_small > 20 && n_small < n_torn && n_zero > 0);
    world_done(&w);
}

static void a_seed_is_one_outcome(void **state)
{
    struct world w = world_new();
    write_new(&w, false, false);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct fault_cut cut = {.kind = FAULT_CUT_RANDOM, .seed = seed};
        AUTO_FREE char *x = after_cut(&w, cut, "new");
        AUTO_FREE char *y = after_cut(&w, cut, "new");
        assert_true(!x == !y && (!x || strcmp(x, y) == 0));
    }
    world_done(&w);
}

static void any_subset_is_a_tree(void **state)
{
    struct world w = world_new();
    AUTO_FD fd = fault_open(w.fs, w.dir, "t", O_RDWR | O_CREAT, 0600);
    assert_int_equal(fault_pwrite(w.fs, fd, "T", 1, 0), 0);
    assert_int_equal(fault_rename(w.fs, w.dir, "t", "u"), 0);
    assert_int_equal(fault_rename(w.fs, w.dir, "u", "old"), 0);
    assert_int_equal(fault_rename(w.fs, w.dir, "old", "v"), 0);
    write_new(&w, false, false);
    assert_int_equal(fault_unlink(w.fs, w.dir, "v"), 0);
    uint32_t n = fault_sim_n_unsynced(w.sim);
    assert_int_equal(n, 8);
    unsigned n_old = 0, n_t = 0, n_new = 0, n_gone = 0;
    for (uint64_t mask = 0; mask < (UINT64_C(1) << n); mask++) {
        struct fault_cut cut = {.kind = FAULT_CUT_SUBSET, .mask = mask};
        AUTO_FREE char *old = after_cut(&w, cut, "old");
        n_old += old && strcmp(old, "first-state!") == 0;
        n_t += old && (strcmp(old, "T") == 0 || strcmp(old, "") == 0);
        n_gone += !old;
        AUTO_FREE char *new = after_cut(&w, cut, "new");
        n_new += new != NULL;
    }
    assert_int_equal(n_old + n_t + n_gone, 256);
    assert_true(n_old > 0 && n_t > 0 && n_gone > 0);
    assert_int_equal(n_new, 128);
    world_done(&w);
}

static void a_cut_can_be_cut_again(void **state)
{
    struct world w = world_new();
    write_new(&w, true, true);
    new_path(w.cut, sizeof(w.cut));
    assert_int_equal(
        fault_sim_cut(w.sim, &(struct fault_cut){FAULT_CUT_SYNCED, 0, 0}, w.cut, NULL), 0);
    assert_int_equal(/* 'dest' must not exist */
                     fault_sim_cut(w.sim, &(struct fault_cut){FAULT_CUT_SYNCED, 0, 0}, w.cut,
                                   NULL),
                     -EEXIST);
    struct world v = {.sim = fault_sim_new(w.cut, NULL), .dir = -1};
    memcpy(v.live, w.cut, sizeof(v.live));
    v.fs = fault_sim_fs(v.sim);
    v.dir = fault_open_root(v.fs, v.live);
    assert_int_equal(fault_unlink(v.fs, v.dir, "new"), 0);
    want_after(&v, FAULT_CUT_SYNCED, "new", "fresh");
    want_after(&v, FAULT_CUT_SYNCED, "sub/deep", "down");
    want_after(&v, FAULT_CUT_ALL, "new", NULL);
    world_done(&v);
    world_done(&w);
}

/* --- failing calls --- */

struct protocol {
    const char *name;
    bool syncs_data, syncs_dir, is_in_place, retries_sync;
};

/* Replaces "old" as a program would; 0 means that it promises the new state. */
static int replace_old(struct world *w, const struct protocol *p)
{
    static const char text[] = "second-state";
    const char *name = p->is_in_place ? "old" : "tmp";
    AUTO_FD fd = fault_open(w->fs, w->dir, name, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return fd;
    }
    int r = fault_pwrite(w->fs, fd, text, 12, 0);
    if (r == 0 && p->syncs_data) {
        r = fault_fdatasync(w->fs, fd);
        if (r < 0 && p->retries_sync) {
            r = fault_fdatasync(w->fs, fd);
        }
    }
    if (r == 0 && !p->is_in_place) {
        r = fault_rename(w->fs, w->dir, "tmp", "old");
    }
    if (r == 0 && p->syncs_dir) {
        r = fault_sync_dir(w->fs, w->dir);
    }
    return r;
}

/* Fails every call in every way, cuts in many ways; the number of broken promises. */
static unsigned broken_promises(const struct protocol *p, uint32_t *n_resyncs)
{
    static const int codes[] = {-EIO, -ENOSPC};
    unsigned n_broken = 0;
    for (unsigned way = 0; way < 12; way++) {
        for (uint64_t at = 1;; at++) {
            struct world w = world_new();
            const struct fault_plan plan = {.at = at,
                                            .code = codes[way % 2],
                                            .effect = (enum fault_effect)(way / 2 % 3),
                                            .is_dead = way >= 6};
            fault_sim_plan(w.sim, &plan);
            int r = replace_old(&w, p);
            bool was_reached = fault_sim_has_failed(w.sim);
            *n_resyncs += fault_sim_n_resyncs(w.sim);
            for (uint64_t k = 0; k < 8; k++) {
                struct fault_cut cut = {.kind =
                                            k < 4 ? (enum fault_cut_kind)k : FAULT_CUT_RANDOM,
                                        .seed = k * 977 + at};
                AUTO_FREE char *got = after_cut(&w, cut, "old");
                bool is_old = got && strcmp(got, "first-state!") == 0;
                bool is_new = got && strcmp(got, "second-state") == 0;
                n_broken += !(is_new || (is_old && r < 0));
            }
            world_done(&w);
            if (!was_reached) {
                assert_true(at > 2);
                break;
            }
        }
    }
    return n_broken;
}

static void every_call_fails_once(void **state)
{
    uint32_t n_resyncs = 0;
    const struct protocol right = {"right", true, true, false, false};
    assert_int_equal(broken_promises(&right, &n_resyncs), 0);
    assert_int_equal(n_resyncs, 0);
    /* The simulator has to find each classic mistake, or it is worth nothing. */
    static const struct protocol wrong[] = {
        {"no sync of the data", false, true, false, false},
        {"no sync of the folder", true, false, false, false},
        {"no sync", false, false, true, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        if (broken_promises(&wrong[i], &n_resyncs) == 0) {
            fail_msg("not found: %s", wrong[i].name);
        }
    }
    const struct protocol stubborn = {"syncs again", true, true, false, true};
    assert_int_equal(broken_promises(&stubborn, &n_resyncs),
                     0); /* as the second fails as well */
    assert_true(n_resyncs > 0);
}

static void plans(void **state)
{
    struct world w = world_new();
    AUTO_FD fd = fault_open(w.fs, w.dir, "old", O_RDWR, 0);
    fault_sim_plan(w.sim, &(struct fault_plan){.at = 2, .code = -ENOSPC, .ops = FAULT_SYNCS});
    assert_int_equal(fault_pwrite(w.fs, fd, "x", 1, 0), 0);
    assert_int_equal(fault_fdatasync(w.fs, fd), 0);
    assert_int_equal(fault_sim_n_calls(w.sim), 1);
    assert_false(fault_sim_has_failed(w.sim));
    assert_int_equal(fault_pwrite(w.fs, fd, "y", 1, 0), 0);
    assert_int_equal(fault_fsync(w.fs, fd), -ENOSPC);
    assert_true(fault_sim_has_failed(w.sim));
    /* The cache shows what the disk does not have, and no later sync changes that. */
    char c = 0;
    assert_int_equal(fault_pread(w.fs, fd, &c, 1, 0), 1);
    assert_int_equal(c, 'y');
    assert_int_equal(fault_fsync(w.fs, fd), -EIO);
    assert_int_equal(fault_sim_n_resyncs(w.sim), 1);
    want_after(&w, FAULT_CUT_SYNCED, "old", "xirst-state!");
    fault_sim_plan(w.sim,
                   &(struct fault_plan){
                       .at = 1, .code = -EIO, .ops = FAULT_BIT(FAULT_PREAD), .is_dead = true});
    assert_int_equal(fault_sync_dir(w.fs, w.dir), 0);
    assert_int_equal(fault_pread(w.fs, fd, &c, 1, 0), -EIO);
    assert_int_equal(fault_pwrite(w.fs, fd, "z", 1, 0), -EIO); /* dead is dead */
    assert_int_equal(fault_open(w.fs, w.dir, "old", O_RDONLY, 0), -EIO);
    fault_sim_plan(w.sim, NULL);
    assert_int_equal(fault_pread(w.fs, fd, &c, 1, 0), 1);
    world_done(&w);
}

static void *writer(void *p)
{
    struct world *w = p;
    static int n;
    char name[16];
    (void)snprintf(name, sizeof(name), "w%d", __atomic_fetch_add(&n, 1, __ATOMIC_RELAXED));
    AUTO_FD fd = fault_open(w->fs, w->dir, name, O_RDWR | O_CREAT, 0600);
    for (uint64_t i = 0; i < 100 && fd >= 0; i++) {
        if (fault_pwrite(w->fs, fd, "0123456789", 10, i * 10) < 0 ||
            (i % 10 == 9 && fault_fdatasync(w->fs, fd) < 0)) {
            return NULL;
        }
    }
    return fault_sync_dir(w->fs, w->dir) == 0 ? w : NULL;
}

static void threads(void **state)
{
    struct world w = world_new();
    pthread_t t[4];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, writer, &w), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        void *r = NULL;
        assert_int_equal(pthread_join(t[i], &r), 0);
        assert_non_null(r);
    }
    assert_int_equal(fault_sim_n_unsynced(w.sim), 0);
    for (int i = 0; i < 4; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "w%d", i);
        AUTO_FREE char *got = after_cut(&w, (struct fault_cut){.kind = FAULT_CUT_SYNCED}, name);
        assert_non_null(got);
        assert_int_equal(strlen(got), 1000);
    }
    world_done(&w);
}

static int set_up(void **state)
{
    /* Thousands of small files: a slow disk would take minutes over their names. */
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(top, sizeof(top), "%s/spx-fault-XXXXXX", where);
    return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
    return rmdir(top); /* not empty: a test left something */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(door_refuses),
        cmocka_unit_test(door_reads_and_writes),
        cmocka_unit_test(door_finishes_short_calls),
        cmocka_unit_test(new_files),
        cmocka_unit_test(changes_of_old_things),
        cmocka_unit_test(folders),
        cmocka_unit_test(holes_and_growth),
        cmocka_unit_test(torn_writes),
        cmocka_unit_test(a_seed_is_one_outcome),
        cmocka_unit_test(any_subset_is_a_tree),
        cmocka_unit_test(a_cut_can_be_cut_again),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(plans),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
