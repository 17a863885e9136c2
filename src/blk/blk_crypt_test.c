#include "blk/blk_crypt.h"

#include "base/rand.h"
#include "base/test.h"
#include "base/time.h"
#include "blk/blk_file.h"
#include "blk/blk_world.h"
#include "crypto/xts.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>

#define SIZE (UINT64_C(16) << 20)

struct crypt_world {
    struct world w; /* first */
    struct tmpdir dir;
    uint8_t key[BLK_KEY_SIZE];
    int fd;
};

static void open_world(struct crypt_world *cw, const struct blk_queue_opts *qo)
{
    char path[PATH_MAX];
    struct err err = ERR_INIT;
    struct blk_layer *file = NULL;
    memset(cw, 0, sizeof(*cw));
    tmpdir_init(&cw->dir, "blkcrypt");
    cw->fd = open(tmpdir_path(&cw->dir, "data", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(cw->fd >= 0);
    assert_int_equal(ftruncate(cw->fd, SIZE), 0);
    world_queue(&cw->w, qo);
    struct blk_file_opts o = {.fd = cw->fd, .size = SIZE};
    assert_int_equal(blk_file_new(&o, &file, &err), 0);
    rand_bytes(cw->key, sizeof(cw->key));
    assert_int_equal(blk_crypt_new(file, cw->key, &cw->w.top, &err), 0);
}

static void close_world(struct crypt_world *cw)
{
    world_done_all(&cw->w);
    close(cw->fd);
    tmpdir_done(&cw->dir);
}

/* What is on the disk. */
static void disk_bytes(struct crypt_world *cw, uint64_t off, void *p, size_t n)
{
    char path[PATH_MAX];
    AUTO_FD fd = open(tmpdir_path(&cw->dir, "data", path), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, p, n, (off_t)off), (ssize_t)n);
}

/* What it says when each page is decrypted alone, with its number. */
static void decrypted(struct crypt_world *cw, uint64_t off, void *p, size_t n)
{
    struct xts *x = NULL;
    disk_bytes(cw, off, p, n);
    assert_int_equal(xts_new(cw->key, false, &x), 0);
    for (size_t at = 0; at < n; at += BLK_PAGE) {
        assert_int_equal(xts_run(x, (off + at) / BLK_PAGE, BLK_PAGE, (char *)p + at,
                                 (char *)p + at, BLK_PAGE),
                         0);
    }
    xts_free(x);
}

static const struct {
    uint64_t off, len;
    size_t shift; /* of the memory */
} shapes[] = {
    {0, 4096, 0},           {4096, 8192, 0},          {0, 512, 0},
    {3584, 512, 0},         {3584, 1024, 0},          {512, 4096, 0},
    {512, 7680, 512},       {4096, 4096, 1},          {1024, 1024, 3},
    {0, 65536, 0},          {512, 65536, 0},          {4096, 524288, 8},
    {512, 524288, 0},       {512, 1048576, 16},       {0, 4194304, 0},
    {0, 4194304, 1},        {1536, 4194304 - 512, 7}, {SIZE - 512, 512, 0},
    {SIZE - 8192, 8192, 0},
};

static void fill(struct crypt_world *cw, char *want)
{
    rand_bytes(want, SIZE);
    for (uint64_t at = 0; at < SIZE; at += BLK_MAX_LEN) {
        assert_int_equal(world_io(&cw->w, BLK_WRITE, 0, at, want + at, BLK_MAX_LEN), 0);
    }
}

static void test_shapes(void **state)
{
    struct crypt_world cw;
    char *want = malloc(SIZE), *mem = NULL, *seen = malloc(SIZE), *copy = malloc(BLK_MAX_LEN);
    open_world(&cw, NULL);
    assert_int_equal(posix_memalign((void **)&mem, 4096, 5u << 20), 0);
    fill(&cw, want);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        char *p = mem + shapes[i].shift;
        uint64_t off = shapes[i].off, len = shapes[i].len;
        assert_int_equal(world_io(&cw.w, BLK_READ, 0, off, p, len), 0);
        assert_memory_equal(p, want + off, len);
        rand_bytes(p, len);
        memcpy(want + off, p, len);
        memcpy(copy, p, len);
        assert_int_equal(world_io(&cw.w, BLK_WRITE, i % 2 ? BLK_FUA : 0, off, p, len), 0);
        assert_memory_equal(p, copy, len); /* the guest's memory is not ours to change */
    }
    decrypted(&cw, 0, seen, SIZE);
    assert_memory_equal(seen, want, SIZE);
    free(want);
    free(seen);
    free(mem);
    free(copy);
    close_world(&cw);
}

/* Pages that lie in several pieces of the guest's memory. */
static void test_pieces(void **state)
{
    static const size_t cuts[][4] = {{4096, 4096, 4096, 4096},
                                     {512, 7680, 8192, 0},
                                     {4608, 3584, 8192, 0},
                                     {1, 4095, 4097, 8191},
                                     {16383, 1, 0, 0}};
    struct crypt_world cw;
    char *p[4], flat[16384], seen[16384];
    open_world(&cw, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        for (int is_write = 1; is_write >= 0; is_write--) {
            struct world_io io = {.is_done = false};
            io.r = blk_req_get(cw.w.q);
            for (size_t k = 0; k < 4; k++) {
                p[k] = malloc(cuts[i][k] + 1);
                io.iov[k] = (struct iovec){p[k], cuts[i][k]};
            }
            if (is_write) {
                rand_bytes(flat, sizeof(flat));
                blk_iov_write(io.iov, 4, 0, flat, sizeof(flat));
            }
            io.r->op = is_write ? BLK_WRITE : BLK_READ;
            io.r->off = 65536;
            io.r->len = sizeof(flat);
            io.r->iov = io.iov;
            io.r->n_iov = 4;
            io.r->done = world_done;
            io.r->ctx = &io;
            blk_submit(cw.w.top, io.r);
            assert_int_equal(world_wait(&cw.w, &io), 0);
            blk_iov_read(io.iov, 4, 0, seen, sizeof(seen));
            assert_memory_equal(seen, flat, sizeof(flat));
            for (size_t k = 0; k < 4; k++) {
                free(p[k]);
            }
        }
        decrypted(&cw, 65536, seen, sizeof(seen));
        assert_memory_equal(seen, flat, sizeof(flat));
    }
    close_world(&cw);
}

static void test_no_plain_text_on_the_disk(void **state)
{
    static const char secret[] = "The secret of the guest, 32 bytes";
    struct crypt_world cw;
    char *p = malloc(1u << 20), *seen = malloc(SIZE);
    open_world(&cw, NULL);
    for (size_t i = 0; i < 1u << 20; i++) {
        p[i] = secret[i % 32];
    }
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        uint64_t len = MIN(shapes[i].len, UINT64_C(1) << 20);
        assert_int_equal(world_io(&cw.w, BLK_WRITE, 0, shapes[i].off, p, len), 0);
    }
    disk_bytes(&cw, 0, seen, SIZE);
    for (size_t k = 0; k < 32; k++) {
        char part[16];
        for (size_t i = 0; i < sizeof(part); i++) {
            part[i] = secret[(k + i) % 32];
        }
        assert_null(memmem(seen, SIZE, part, sizeof(part)));
    }
    /* Equal pages do not look equal. */
    assert_memory_not_equal(seen, seen + 4096, 4096);
    free(p);
    free(seen);
    close_world(&cw);
}

static void test_zeroes_are_zeros_and_not_holes(void **state)
{
    static const struct {
        uint64_t off, len;
    } at[] = {
        {4096, 4096}, {8192, 1u << 20}, {512, 512}, {3584, 1024}, {65536 + 512, 700 * 512}};
    struct crypt_world cw;
    char *want = malloc(SIZE), *seen = malloc(SIZE);
    open_world(&cw, NULL);
    fill(&cw, want);
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        memset(want + at[i].off, 0, at[i].len);
        assert_int_equal(world_io(&cw.w, BLK_ZEROES, 0, at[i].off, NULL, at[i].len), 0);
    }
    decrypted(&cw, 0, seen, SIZE);
    assert_memory_equal(seen, want, SIZE);
    assert_int_equal(world_io(&cw.w, BLK_DISCARD, 0, 1 << 20, NULL, 65536), 0);
    assert_int_equal(lseek(cw.fd, 1 << 20, SEEK_DATA), (1 << 20) + 65536);
    assert_int_equal(world_io(&cw.w, BLK_FLUSH, 0, 0, NULL, 0), 0);
    free(want);
    free(seen);
    close_world(&cw);
}

/* However many parts a FUA write has: they share one sync, after the last of them. */
static void test_one_sync_for_a_fua_write(void **state)
{
    static const uint64_t len[] = {4096, 512, 256u << 10, (256u << 10) + 512, BLK_MAX_LEN};
    struct crypt_world cw;
    char *p = calloc(1, BLK_MAX_LEN);
    open_world(&cw, NULL);
    for (size_t i = 0; i < ARRAY_LEN(len); i++) {
        struct blk_file_stats st;
        assert_int_equal(world_io(&cw.w, BLK_WRITE, BLK_FUA, 512 * (i % 2), p, len[i]), 0);
        blk_file_stats(cw.w.top->below, &st);
        assert_int_equal(st.n_syncs, i + 1);
    }
    free(p);
    close_world(&cw);
}

/* Many large requests with few buffers and few requests: they wait for each other and all end. */
static void test_nothing_locks_up_when_pools_are_empty(void **state)
{
    struct crypt_world cw;
    static struct world_io io[64];
    char *p = malloc(BLK_MAX_LEN + 4096);
    open_world(&cw, &(struct blk_queue_opts){.n_reqs = 64, .n_buffers = 8, .depth = 8});
    memset(p, 5, BLK_MAX_LEN + 4096);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < ARRAY_LEN(io); i++) {
            /* By turns whole pages, parts of pages, unaligned memory; reads among them. */
            enum blk_op op = i % 5 == 4 ? BLK_READ : BLK_WRITE;
            uint64_t off = i % 3 ? 0 : 512;
            world_start(&cw.w, &io[i], op, 0, off + (i % 4) * BLK_MAX_LEN * (off == 0),
                        p + i % 2, BLK_MAX_LEN - (i % 7) * 512);
        }
        for (size_t i = 0; i < ARRAY_LEN(io); i++) {
            assert_int_equal(world_wait(&cw.w, &io[i]), 0);
        }
    }
    free(p);
    close_world(&cw);
}

/* ---- threads ---- */

#define N_BLOCKS 512u
#define N_ROUNDS 4u

struct half {
    struct crypt_world *cw;
    pthread_barrier_t *both;
    unsigned idx, n_lost;
};

static unsigned count_lost(struct crypt_world *cw, unsigned round)
{
    unsigned n = 0;
    char *p = malloc((size_t)N_BLOCKS * 4096);
    decrypted(cw, 0, p, (size_t)N_BLOCKS * 4096);
    for (size_t i = 0; i < N_BLOCKS * 2; i++) {
        n += p[i * 2048] != (char)(round * 2 + i % 2) ||
             memcmp(p + i * 2048, p + i * 2048 + 1, 2047) != 0;
    }
    free(p);
    return n;
}

static void *write_halves(void *ctx)
{
    struct half *h = ctx;
    struct world w = {.top = h->cw->w.top};
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
            h->n_lost += count_lost(h->cw, round);
        }
    }
    blk_queue_free(w.q);
    return NULL;
}

static void test_two_writers_of_half_blocks(void **state)
{
    struct crypt_world cw;
    pthread_t t[2];
    pthread_barrier_t both;
    struct half h[2];
    open_world(&cw, NULL);
    pthread_barrier_init(&both, NULL, 2);
    for (unsigned i = 0; i < 2; i++) {
        h[i] = (struct half){&cw, &both, i, 0};
        assert_int_equal(pthread_create(&t[i], NULL, write_halves, &h[i]), 0);
    }
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    pthread_barrier_destroy(&both);
    assert_int_equal(h[0].n_lost, 0);
    close_world(&cw);
}

/* ---- what is refused ---- */

static void test_bad_keys_and_sizes(void **state)
{
    uint8_t key[BLK_KEY_SIZE];
    struct err err = ERR_INIT;
    struct blk_layer *mem = NULL, *l = NULL;
    rand_bytes(key, 32);
    memcpy(key + 32, key, 32);
    assert_int_equal(blk_mem_new(1 << 20, &mem, &err), 0);
    assert_int_equal(blk_crypt_new(mem, key, &l, &err), -EINVAL);
    assert_string_equal(err.name, "BadKey");
    assert_null(l);
    blk_stack_free(mem);
    err_clear(&err);
    key[0] ^= 1;
    assert_int_equal(blk_mem_new((1 << 20) + 512, &mem, &err), 0);
    assert_int_equal(blk_crypt_new(mem, key, &l, &err), -EINVAL);
    assert_string_equal(err.name, "BadSize");
    blk_stack_free(mem);
}

static void test_another_key_reads_noise(void **state)
{
    struct crypt_world cw;
    struct err err = ERR_INIT;
    char p[4096], seen[4096];
    open_world(&cw, NULL);
    rand_bytes(p, sizeof(p));
    assert_int_equal(world_io(&cw.w, BLK_WRITE, 0, 8192, p, sizeof(p)), 0);
    cw.key[40] ^= 1;
    struct blk_layer *file = NULL, *right = cw.w.top;
    struct blk_file_opts o = {.fd = cw.fd, .size = SIZE};
    assert_int_equal(blk_file_new(&o, &file, &err), 0);
    assert_int_equal(blk_crypt_new(file, cw.key, &cw.w.top, &err), 0);
    assert_int_equal(world_io(&cw.w, BLK_READ, 0, 8192, seen, sizeof(seen)), 0);
    assert_memory_not_equal(seen, p, sizeof(p));
    blk_stack_free(cw.w.top);
    cw.w.top = right;
    assert_int_equal(world_io(&cw.w, BLK_READ, 0, 8192, seen, sizeof(seen)), 0);
    assert_memory_equal(seen, p, sizeof(p));
    close_world(&cw);
}

/* An error of the disk goes up, whatever step it meets. */
static void test_errors_go_up(void **state)
{
    struct crypt_world cw;
    char p[8192] = {0};
    open_world(&cw, NULL);
    assert_int_equal(ftruncate(cw.fd, SIZE / 2), 0);
    assert_int_equal(world_io(&cw.w, BLK_READ, 0, SIZE / 2, p, 4096), -EIO);
    assert_int_equal(world_io(&cw.w, BLK_READ, 0, SIZE / 2 + 512, p, 512), -EIO);
    assert_int_equal(world_io(&cw.w, BLK_WRITE, 0, SIZE / 2 + 512, p, 512),
                     -EIO); /* old page */
    blk_file_fault(cw.w.top->below, EIO);
    assert_int_equal(world_io(&cw.w, BLK_WRITE, 0, 0, p, 4096), -ESTALE);
    assert_int_equal(world_io(&cw.w, BLK_ZEROES, 0, 0, NULL, 4096), -ESTALE);
    assert_int_equal(world_io(&cw.w, BLK_FLUSH, 0, 0, NULL, 0), -ESTALE);
    close_world(&cw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_no_plain_text_on_the_disk),
        cmocka_unit_test(test_zeroes_are_zeros_and_not_holes),
        cmocka_unit_test(test_one_sync_for_a_fua_write),
        cmocka_unit_test(test_nothing_locks_up_when_pools_are_empty),
        cmocka_unit_test(test_two_writers_of_half_blocks),
        cmocka_unit_test(test_bad_keys_and_sizes),
        cmocka_unit_test(test_another_key_reads_noise),
        cmocka_unit_test(test_errors_go_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
