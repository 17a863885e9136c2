#include "blk/blk_file.h"

#include "base/rand.h"
#include "base/test.h"
#include "base/time.h"
#include "blk/blk_world.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

#define SIZE (UINT64_C(16) << 20)

struct file_world {
    struct world w; /* first */
    struct tmpdir dir;
    int fd;
    int n_faults;
};

static void on_fault(void *ctx, int errnum)
{
    struct file_world *fw = ctx;
    fw->n_faults++;
}

static void open_world(struct file_world *fw, struct blk_file_opts o)
{
    char path[PATH_MAX];
    memset(fw, 0, sizeof(*fw));
    tmpdir_init(&fw->dir, "blkfile");
    fw->fd = open(tmpdir_path(&fw->dir, "data", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fw->fd >= 0);
    assert_int_equal(ftruncate(fw->fd, SIZE), 0);
    world_queue(&fw->w, NULL);
    o.fd = fw->fd;
    o.size = SIZE;
    o.on_fault = on_fault;
    o.ctx = fw;
    struct err err = ERR_INIT;
    if (blk_file_new(&o, &fw->w.top, &err)) {
        fail_msg("%s", err.msg);
    }
}

static void close_world(struct file_world *fw)
{
    world_done_all(&fw->w);
    close(fw->fd);
    tmpdir_done(&fw->dir);
}

/* The bytes of the file as another reader sees them. */
static void file_bytes(struct file_world *fw, uint64_t off, void *p, size_t n)
{
    char path[PATH_MAX];
    AUTO_FD fd = open(tmpdir_path(&fw->dir, "data", path), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, p, n, (off_t)off), (ssize_t)n);
}

static const struct {
    uint64_t off, len;
    size_t shift; /* of the memory */
} shapes[] = {
    {0, 4096, 0},         {4096, 4096, 0},        {0, 512, 0},       {512, 512, 0},
    {3584, 512, 0},       {3584, 1024, 0},        {512, 4096, 0},    {512, 7680, 512},
    {4096, 4096, 1},      {8192, 4096, 512},      {1024, 1024, 3},   {0, 65536, 0},
    {512, 65536, 0},      {4096, 524288, 0},      {4096, 524288, 8}, {512, 524288, 0},
    {512, 1048576, 16},   {0, 4194304, 0},        {0, 4194304, 1},   {1536, 4194304 - 512, 7},
    {SIZE - 512, 512, 0}, {SIZE - 1024, 1024, 5},
};

static void run_shapes(unsigned min_align)
{
    struct file_world fw;
    open_world(&fw, (struct blk_file_opts){.min_align = min_align});
    char *want = malloc(SIZE), *mem = NULL, *seen = malloc(SIZE);
    assert_non_null(want);
    assert_non_null(seen);
    assert_int_equal(posix_memalign((void **)&mem, 4096, (5u << 20)), 0);
    rand_bytes(want, SIZE);
    for (uint64_t at = 0; at < SIZE; at += 4u << 20) {
        assert_int_equal(world_io(&fw.w, BLK_WRITE, 0, at, want + at, 4u << 20), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        char *p = mem + shapes[i].shift;
        uint64_t off = shapes[i].off, len = shapes[i].len;
        assert_int_equal(world_io(&fw.w, BLK_READ, 0, off, p, len), 0);
        assert_memory_equal(p, want + off, len);
        rand_bytes(p, len);
        memcpy(want + off, p, len);
        assert_int_equal(world_io(&fw.w, BLK_WRITE, i % 2 ? BLK_FUA : 0, off, p, len), 0);
    }
    file_bytes(&fw, 0, seen, SIZE);
    assert_memory_equal(seen, want, SIZE);
    free(want);
    free(seen);
    free(mem);
    close_world(&fw);
}

static void test_alignments(void **state)
{
    run_shapes(0);
}

static void test_alignments_of_a_4k_disk(void **state)
{
    run_shapes(4096);
}

/* ---- the end of the file ---- */

static void test_a_file_that_is_too_short_is_refused(void **state)
{
    struct tmpdir dir;
    char path[PATH_MAX];
    struct err err = ERR_INIT;
    struct blk_layer *l = NULL;
    tmpdir_init(&dir, "blkfile");
    AUTO_FD fd = open(tmpdir_path(&dir, "f", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, SIZE - 1), 0);
    struct blk_file_opts o = {.fd = fd, .size = SIZE};
    assert_int_equal(blk_file_new(&o, &l, &err), -EINVAL);
    assert_string_equal(err.name, "FileTooShort");
    tmpdir_done(&dir);
}

/* Somebody cut the file: an error, never zeros. */
static void test_behind_the_end_of_the_file_is_an_error(void **state)
{
    for (unsigned align = 0; align <= 4096; align += 4096) {
        struct file_world fw;
        char *p = NULL;
        open_world(&fw, (struct blk_file_opts){.min_align = align});
        assert_int_equal(posix_memalign((void **)&p, 4096, 1 << 20), 0);
        memset(p, 1, 1 << 20);
        assert_int_equal(ftruncate(fw.fd, SIZE / 2), 0);
        assert_int_equal(world_io(&fw.w, BLK_READ, 0, SIZE / 2, p, 4096), -EIO);
        assert_int_equal(world_io(&fw.w, BLK_READ, 0, SIZE / 2 + 512, p, 512), -EIO);
        assert_int_equal(world_io(&fw.w, BLK_READ, 0, SIZE / 2 - 4096, p, 8192), -EIO);
        assert_int_equal(world_io(&fw.w, BLK_READ, 0, SIZE / 2 - 4096, p + 1, 1 << 19), -EIO);
        assert_int_equal(world_io(&fw.w, BLK_READ, 0, SIZE / 2 - 4096, p, 4096), 0);
        free(p);
        close_world(&fw);
    }
}

static void test_growth(void **state)
{
    struct file_world fw;
    char p[512];
    open_world(&fw, (struct blk_file_opts){0});
    assert_int_equal(world_io(&fw.w, BLK_READ, 0, SIZE, p, 512), -EINVAL);
    assert_int_equal(ftruncate(fw.fd, SIZE + 512), 0);
    blk_file_grow(fw.w.top, SIZE + 512);
    assert_int_equal(world_io(&fw.w, BLK_WRITE, 0, SIZE, p, 512), 0);
    assert_int_equal(world_io(&fw.w, BLK_READ, 0, SIZE, p, 512), 0);
    close_world(&fw);
}

/* ---- discard and zeroes ---- */

static const struct {
    enum blk_op op;
    unsigned flags;
    uint64_t off, len;
    uint64_t hole_off, hole_len; /* what has no space afterwards */
} holes[] = {
    {BLK_DISCARD, 0, 65536, 65536, 65536, 65536},
    {BLK_DISCARD, 0, 65536 + 512, 8192, 65536 + 4096, 4096},
    {BLK_DISCARD, 0, 512, 4096, 0, 0}, /* no whole page */
    {BLK_DISCARD, 0, 512, 512, 0, 0},
    {BLK_ZEROES, 0, 65536, 4194304, 65536, 4194304},
    {BLK_ZEROES, 0, 512, 512, 0, 0},
    {BLK_ZEROES, 0, 65536 + 512, 1024, 0, 0},
    {BLK_ZEROES, 0, 65536 + 3584, 1024, 0, 0}, /* over the edge of two pages */
    {BLK_ZEROES, 0, 65536 + 512, 65536, 65536 + 4096, 61440},
    {BLK_ZEROES, BLK_FUA, 65536, 4096, 65536, 4096},
    {BLK_ZEROES, BLK_NO_UNMAP, 65536, 4096, 0, 0},
    {BLK_ZEROES, BLK_NO_UNMAP, 65536 + 512, 1 << 20, 0, 0},
};

static uint64_t file_blocks(struct file_world *fw)
{
    struct stat st;
    assert_int_equal(fstat(fw->fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void run_hole(size_t i, unsigned align)
{
    struct file_world fw;
    open_world(&fw, (struct blk_file_opts){.min_align = align});
    char *want = malloc(SIZE / 2), *seen = malloc(SIZE / 2);
    rand_bytes(want, SIZE / 2);
    for (uint64_t at = 0; at < SIZE / 2; at += BLK_MAX_LEN) {
        assert_int_equal(world_io(&fw.w, BLK_WRITE, 0, at, want + at, BLK_MAX_LEN), 0);
    }
    assert_int_equal(fsync(fw.fd), 0);
    uint64_t before = file_blocks(&fw);
    assert_int_equal(
        world_io(&fw.w, holes[i].op, holes[i].flags, holes[i].off, NULL, holes[i].len), 0);
    if (holes[i].op == BLK_ZEROES) {
        memset(want + holes[i].off, 0, holes[i].len);
    } else if (holes[i].hole_len) {
        memset(want + holes[i].hole_off, 0, holes[i].hole_len);
    }
    file_bytes(&fw, 0, seen, SIZE / 2);
    assert_memory_equal(seen, want, SIZE / 2);
    assert_int_equal(before - file_blocks(&fw), holes[i].hole_len);
    if (holes[i].hole_len) {
        uint64_t end = holes[i].hole_off + holes[i].hole_len;
        assert_int_equal(lseek(fw.fd, (off_t)holes[i].hole_off, SEEK_DATA), (off_t)end);
        assert_int_equal(lseek(fw.fd, 0, SEEK_HOLE), (off_t)holes[i].hole_off);
    }
    free(want);
    free(seen);
    close_world(&fw);
}

static void test_discard_and_zeroes(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(holes); i++) {
        run_hole(i, 0);
        run_hole(i, 4096);
    }
}

/* ---- flush ---- */

static void test_flushes_that_wait_together_share_a_sync(void **state)
{
    struct file_world fw;
    struct world_io io[10];
    struct blk_file_stats st;
    open_world(&fw, (struct blk_file_opts){0});
    for (size_t i = 0; i < ARRAY_LEN(io); i++) {
        world_start(&fw.w, &io[i], BLK_FLUSH, 0, 0, NULL, 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(io); i++) {
        assert_int_equal(world_wait(&fw.w, &io[i]), 0);
    }
    blk_file_stats(fw.w.top, &st);
    /* The first runs alone: those that came after its call may have written after it. */
    assert_int_equal(st.n_flushes, 10);
    assert_int_equal(st.n_syncs, 2);
    close_world(&fw);
}

#define N_THREADS 4

struct flusher {
    struct blk_layer *top;
    unsigned idx, n;
};

static void *flush_all(void *ctx)
{
    struct flusher *f = ctx;
    struct world w = {.top = f->top};
    char *p = NULL;
    world_queue(&w, NULL);
    assert_int_equal(posix_memalign((void **)&p, 4096, 4096), 0);
    memset(p, (int)f->idx, 4096);
    for (unsigned i = 0; i < f->n; i++) {
        uint64_t off = ((uint64_t)f->idx * f->n + i) * 4096;
        assert_int_equal(world_io(&w, BLK_WRITE, i % 3 == 0 ? BLK_FUA : 0, off, p, 4096), 0);
        assert_int_equal(world_io(&w, BLK_FLUSH, 0, 0, NULL, 0), 0);
    }
    blk_queue_free(w.q); /* at once: who leads must not need it any more */
    free(p);
    return NULL;
}

static void test_queues_share_syncs(void **state)
{
    struct file_world fw;
    pthread_t t[N_THREADS];
    struct flusher f[N_THREADS];
    struct blk_file_stats st;
    open_world(&fw, (struct blk_file_opts){0});
    for (unsigned i = 0; i < N_THREADS; i++) {
        f[i] = (struct flusher){fw.w.top, i, 60};
        assert_int_equal(pthread_create(&t[i], NULL, flush_all, &f[i]), 0);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        pthread_join(t[i], NULL);
    }
    blk_file_stats(fw.w.top, &st);
    assert_int_equal(st.n_flushes, N_THREADS * 80);
    assert_true(st.n_syncs < st.n_flushes);
    close_world(&fw);
}

/* The descriptor becomes a pipe: its sync fails. */
static void test_a_failed_sync_faults_the_volume(void **state)
{
    struct file_world fw;
    struct world_io io[3], late;
    struct blk_file_stats st;
    int p[2];
    char page[512];
    open_world(&fw, (struct blk_file_opts){0});
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    int kept = dup(fw.fd);
    assert_true(dup2(p[1], fw.fd) >= 0);
    for (size_t i = 0; i < ARRAY_LEN(io); i++) {
        world_start(&fw.w, &io[i], BLK_FLUSH, 0, 0, NULL, 0);
    }
    assert_int_equal(world_wait(&fw.w, &io[0]), -EIO);
    assert_int_equal(world_wait(&fw.w, &io[1]), -ESTALE); /* waited for the next one */
    assert_int_equal(world_wait(&fw.w, &io[2]), -ESTALE);
    assert_true(dup2(kept, fw.fd) >= 0); /* well again: too late */
    assert_int_equal(fw.n_faults, 1);
    assert_true(blk_file_is_faulted(fw.w.top));
    world_start(&fw.w, &late, BLK_FLUSH, 0, 0, NULL, 0);
    assert_int_equal(world_wait(&fw.w, &late), -ESTALE);
    assert_int_equal(world_io(&fw.w, BLK_READ, 0, 0, page, 512), -ESTALE);
    assert_int_equal(world_io(&fw.w, BLK_WRITE, BLK_FUA, 0, page, 512), -ESTALE);
    assert_int_equal(world_io(&fw.w, BLK_DISCARD, 0, 0, NULL, 4096), -ESTALE);
    blk_file_stats(fw.w.top, &st);
    assert_int_equal(st.n_syncs, 1);
    assert_int_equal(fw.n_faults, 1);
    close(kept);
    close(p[0]);
    close(p[1]);
    close_world(&fw);
}

/* A write that was under way when another queue's sync failed does not sync again. */
static void test_no_sync_after_a_fault(void **state)
{
    struct file_world fw;
    struct world_io io;
    struct blk_file_stats st;
    char page[512] = {0};
    open_world(&fw, (struct blk_file_opts){0});
    world_start(&fw.w, &io, BLK_WRITE, BLK_FUA, 0, page, 512);
    blk_file_fault(fw.w.top, EIO);
    assert_int_equal(world_wait(&fw.w, &io), -ESTALE);
    blk_file_stats(fw.w.top, &st);
    assert_int_equal(st.n_syncs, 0);
    assert_int_equal(fw.n_faults, 1);
    close_world(&fw);
}

static void test_read_only(void **state)
{
    struct file_world fw;
    char p[512];
    open_world(&fw, (struct blk_file_opts){.is_read_only = true});
    assert_int_equal(world_io(&fw.w, BLK_READ, 0, 0, p, 512), 0);
    assert_int_equal(world_io(&fw.w, BLK_WRITE, 0, 0, p, 512), -EROFS);
    assert_int_equal(world_io(&fw.w, BLK_DISCARD, 0, 0, NULL, 4096), -EROFS);
    assert_int_equal(world_io(&fw.w, BLK_ZEROES, 0, 0, NULL, 4096), -EROFS);
    assert_int_equal(world_io(&fw.w, BLK_FLUSH, 0, 0, NULL, 0), 0);
    close_world(&fw);
}

/* ---- two writers of one page ---- */

#define N_BLOCKS 2048u
#define N_ROUNDS 6u

struct half {
    struct file_world *fw;
    pthread_barrier_t *both;
    unsigned idx, n_lost;
};

static unsigned count_lost(struct file_world *fw, unsigned round)
{
    unsigned n = 0;
    char *p = malloc((size_t)N_BLOCKS * 4096);
    assert_non_null(p);
    file_bytes(fw, 0, p, (size_t)N_BLOCKS * 4096);
    for (size_t i = 0; i < N_BLOCKS * 2; i++) {
        char want = (char)(round * 2 + i % 2);
        n += p[i * 2048] != want || memcmp(p + i * 2048, p + i * 2048 + 1, 2047) != 0;
    }
    free(p);
    return n;
}

/* Each owns one half of every page; both write the same 32 pages at the same time. */
static void *write_halves(void *ctx)
{
    struct half *h = ctx;
    struct world w = {.top = h->fw->w.top};
    static _Thread_local struct world_io io[32];
    static _Thread_local char p[2048];
    world_queue(&w, NULL);
    for (unsigned round = 1; round <= N_ROUNDS; round++) {
        memset(p, (int)(round * 2 + h->idx), sizeof(p));
        for (unsigned at = 0; at < N_BLOCKS; at += 32) {
            pthread_barrier_wait(h->both);
            for (unsigned i = 0; i < 32; i++) {
                world_start(&w, &io[i], BLK_WRITE, 0, (uint64_t)(at + i) * 4096 + h->idx * 2048,
                            p, 2048);
            }
            for (size_t i = 0; i < 32; i++) {
                assert_int_equal(world_wait(&w, &io[i]), 0);
            }
        }
        pthread_barrier_wait(h->both);
        if (h->idx == 0) {
            h->n_lost += count_lost(h->fw, round);
        }
    }
    blk_queue_free(w.q);
    return NULL;
}

static void test_two_writers_of_half_blocks(void **state)
{
    struct file_world fw;
    pthread_t t[2];
    pthread_barrier_t both;
    struct half h[2];
    open_world(&fw, (struct blk_file_opts){.min_align = 4096});
    pthread_barrier_init(&both, NULL, 2);
    for (unsigned i = 0; i < 2; i++) {
        h[i] = (struct half){&fw, &both, i, 0};
        assert_int_equal(pthread_create(&t[i], NULL, write_halves, &h[i]), 0);
    }
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    pthread_barrier_destroy(&both);
    assert_int_equal(h[0].n_lost, 0);
    close_world(&fw);
}

/* A write of the whole page is not undone by one of its second half that read before it. */
static void test_a_whole_page_against_a_half(void **state)
{
    struct file_world fw;
    char *whole = NULL, half[2048], page[4096];
    open_world(&fw, (struct blk_file_opts){.min_align = 4096});
    assert_int_equal(posix_memalign((void **)&whole, 4096, 4096), 0);
    for (unsigned i = 1; i <= 500; i++) {
        struct world_io a, b;
        memset(whole, (int)i, 4096);
        memset(half, (int)(i + 100), sizeof(half));
        if (i % 2) {
            world_start(&fw.w, &b, BLK_WRITE, 0, 2048, half, 2048);
            world_start(&fw.w, &a, BLK_WRITE, 0, 0, whole, 4096);
        } else {
            world_start(&fw.w, &a, BLK_WRITE, 0, 0, whole, 4096);
            world_start(&fw.w, &b, BLK_WRITE, 0, 2048, half, 2048);
        }
        assert_int_equal(world_wait(&fw.w, &a), 0);
        assert_int_equal(world_wait(&fw.w, &b), 0);
        file_bytes(&fw, 0, page, sizeof(page));
        assert_memory_equal(page, whole, 2048);
    }
    free(whole);
    close_world(&fw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alignments),
        cmocka_unit_test(test_alignments_of_a_4k_disk),
        cmocka_unit_test(test_a_file_that_is_too_short_is_refused),
        cmocka_unit_test(test_behind_the_end_of_the_file_is_an_error),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_discard_and_zeroes),
        cmocka_unit_test(test_flushes_that_wait_together_share_a_sync),
        cmocka_unit_test(test_queues_share_syncs),
        cmocka_unit_test(test_a_failed_sync_faults_the_volume),
        cmocka_unit_test(test_no_sync_after_a_fault),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_two_writers_of_half_blocks),
        cmocka_unit_test(test_a_whole_page_against_a_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
