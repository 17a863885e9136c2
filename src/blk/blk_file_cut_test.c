#include "blk/blk_file.h"

#include "base/fault_sim.h"
#include "base/rand.h"
#include "base/test.h"
#include "base/time.h"
#include "blk/blk_world.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The power goes while a volume is written: what a FLUSH or FUA answered for is there afterwards,
 * and nothing is there that was never written. Sectors are stamped; for each the model knows the
 * stamp that is durable and those that may be. Also: each call to the file system fails once. */

#define N_SECTORS 512u
#define SIZE      (N_SECTORS * (uint64_t)BLK_SECTOR)
#define MAX_STEPS 60u

struct cut_world {
    struct world w; /* first */
    struct tmpdir dir;
    char root[PATH_MAX];
    struct fault_sim *sim;
    int dir_fd, fd, n_faults;
    uint64_t seed, stamp;
    uint64_t durable[N_SECTORS]; /* by the last flush */
    struct {
        uint64_t stamp;
        bool is_sure;                  /* its request was answered with 0 */
    } maybe[N_SECTORS][MAX_STEPS + 1]; /* written since */
    unsigned n_maybe[N_SECTORS];
};

static uint64_t rnd(struct cut_world *cw, uint64_t n)
{
    cw->seed = cw->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (cw->seed >> 33) % n;
}

static void on_fault(void *ctx, int errnum)
{
    ((struct cut_world *)ctx)->n_faults++;
}

static void open_world(struct cut_world *cw, uint64_t seed)
{
    struct err err = ERR_INIT;
    memset(cw, 0, sizeof(*cw));
    cw->seed = seed;
    tmpdir_init(&cw->dir, "blkcut");
    (void)tmpdir_path(&cw->dir, "live", cw->root);
    assert_int_equal(mkdir(cw->root, 0700), 0);
    char path[PATH_MAX + 8];
    snprintf(path, sizeof(path), "%s/data", cw->root);
    AUTO_FD made = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(made, (off_t)SIZE), 0);
    cw->sim = fault_sim_new(cw->root, &err);
    assert_non_null(cw->sim);
    cw->dir_fd = fault_open_root(fault_sim_fs(cw->sim), cw->root);
    cw->fd = fault_open(fault_sim_fs(cw->sim), cw->dir_fd, "data", O_RDWR, 0);
    assert_true(cw->fd >= 0);
    world_queue(&cw->w, NULL);
    struct blk_file_opts o = {.fd = cw->fd,
                              .size = SIZE,
                              .fs = fault_sim_fs(cw->sim),
                              .on_fault = on_fault,
                              .ctx = cw};
    assert_int_equal(blk_file_new(&o, &cw->w.top, &err), 0);
}

static void close_world(struct cut_world *cw)
{
    world_done_all(&cw->w);
    close(cw->fd);
    close(cw->dir_fd);
    fault_sim_free(cw->sim);
    tmpdir_done(&cw->dir);
}

static void may_be(struct cut_world *cw, uint64_t sector, uint64_t stamp)
{
    unsigned n = cw->n_maybe[sector]++;
    cw->maybe[sector][n].stamp = stamp;
    cw->maybe[sector][n].is_sure = true;
}

/* The request failed: what it wrote may be there or not. */
static void unsure(struct cut_world *cw, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        cw->maybe[i][cw->n_maybe[i] - 1].is_sure = false;
    }
}

/* All that was surely written is durable now; what came after it unsurely may be there instead. */
static void flushed(struct cut_world *cw)
{
    for (size_t i = 0; i < N_SECTORS; i++) {
        unsigned keep = cw->n_maybe[i];
        while (keep > 0 && !cw->maybe[i][keep - 1].is_sure) {
            keep--;
        }
        if (keep > 0) {
            cw->durable[i] = cw->maybe[i][keep - 1].stamp;
            cw->n_maybe[i] -= keep;
            memmove(cw->maybe[i], cw->maybe[i] + keep,
                    cw->n_maybe[i] * sizeof(cw->maybe[i][0]));
        }
    }
}

/* One request of any kind; the model follows whatever the answer is. */
static int step(struct cut_world *cw)
{
    static char buf[64 * BLK_SECTOR];
    uint64_t n = 1 + rnd(cw, 64), at = rnd(cw, N_SECTORS - n + 1), kind = rnd(cw, 10);
    unsigned flags = rnd(cw, 6) == 0 ? BLK_FUA : 0;
    enum blk_op op = kind < 6   ? BLK_WRITE
                     : kind < 8 ? BLK_FLUSH
                     : kind < 9 ? BLK_ZEROES
                                : BLK_DISCARD;
    if (op == BLK_ZEROES && rnd(cw, 2)) {
        flags |= BLK_NO_UNMAP;
    }
    for (uint64_t i = 0; i < n && op == BLK_WRITE; i++) {
        for (size_t k = 0; k < BLK_SECTOR / sizeof(uint64_t); k++) {
            uint64_t stamp = cw->stamp + i + 1;
            memcpy(buf + i * BLK_SECTOR + k * sizeof(stamp), &stamp, sizeof(stamp));
        }
        may_be(cw, at + i, cw->stamp + i + 1);
    }
    cw->stamp += n;
    uint64_t lo = op == BLK_DISCARD ? (at + 7) / 8 * 8 : at;
    uint64_t hi = op == BLK_DISCARD ? (at + n) / 8 * 8 : at + n;
    for (uint64_t i = lo; i < hi && (op == BLK_ZEROES || op == BLK_DISCARD); i++) {
        may_be(cw, i, 0);
    }
    int rc = world_io(&cw->w, op, flags, at * BLK_SECTOR, op == BLK_WRITE ? buf : NULL,
                      n * BLK_SECTOR);
    if (rc && op != BLK_FLUSH) {
        unsure(cw, lo, hi);
    }
    if (rc == 0 && (op == BLK_FLUSH || ((flags & BLK_FUA) && op != BLK_DISCARD))) {
        flushed(cw);
    }
    return rc;
}

static bool is_allowed(const struct cut_world *cw, size_t i, uint64_t stamp)
{
    bool is = stamp == cw->durable[i];
    for (unsigned k = 0; k < cw->n_maybe[i]; k++) {
        is |= stamp == cw->maybe[i][k].stamp;
    }
    return is;
}

static void check_cut(struct cut_world *cw, enum fault_cut_kind kind, uint64_t seed,
                      bool is_torn)
{
    struct err err = ERR_INIT;
    char dest[PATH_MAX], path[PATH_MAX + 8];
    static unsigned n_cuts;
    char name[32];
    snprintf(name, sizeof(name), "cut%u", n_cuts++);
    struct fault_cut cut = {.kind = kind, .mask = seed, .seed = seed};
    assert_int_equal(fault_sim_cut(cw->sim, &cut, tmpdir_path(&cw->dir, name, dest), &err), 0);
    snprintf(path, sizeof(path), "%s/data", dest);
    static char bytes[SIZE];
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, bytes, SIZE, 0), SIZE);
    for (size_t i = 0; i < N_SECTORS; i++) {
        uint64_t words[BLK_SECTOR / sizeof(uint64_t)];
        memcpy(words, bytes + i * BLK_SECTOR, sizeof(words));
        for (size_t k = 0; k < ARRAY_LEN(words); k++) {
            /* A sector is torn only when a call was made to stop in the middle of it. */
            if (!is_allowed(cw, i, words[k]) || (!is_torn && words[k] != words[0])) {
                fail_msg("sector %zu has %llu, not %llu (kind %d, seed %llu)", i,
                         (unsigned long long)words[k], (unsigned long long)cw->durable[i],
                         (int)kind, (unsigned long long)seed);
            }
        }
    }
}

static void test_flushed_bytes_survive_a_power_cut(void **state)
{
    static struct cut_world cw;
    uint64_t seed = rand_u64();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned run = 0; run < 40; run++) {
        open_world(&cw, seed + run);
        unsigned n = 1 + (unsigned)rnd(&cw, MAX_STEPS);
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(step(&cw), 0);
        }
        check_cut(&cw, FAULT_CUT_SYNCED, 0, false);
        check_cut(&cw, FAULT_CUT_ALL, 0, false);
        for (uint64_t k = 0; k < 6; k++) {
            check_cut(&cw, FAULT_CUT_RANDOM, seed + k, false);
            check_cut(&cw, FAULT_CUT_SUBSET, seed * (k + 1), false);
        }
        assert_int_equal(cw.n_faults, 0);
        close_world(&cw);
    }
}

/* Every call fails once, in every way; then the power goes. An answer of 0 stays true. */
static void test_every_call_fails_once(void **state)
{
    static struct cut_world cw;
    static const int codes[] = {-EIO, -ENOSPC};
    static const enum fault_effect effects[] = {FAULT_NOTHING_DONE, FAULT_HALF_DONE,
                                                FAULT_ALL_DONE};
    uint64_t seed = rand_u64();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t e = 0; e < ARRAY_LEN(effects) * ARRAY_LEN(codes); e++) {
        for (uint64_t at = 1;; at++) {
            int n_failed = 0;
            open_world(&cw, seed);
            struct fault_plan plan = {.at = at, .code = codes[e % 2], .effect = effects[e / 2]};
            fault_sim_plan(cw.sim, &plan);
            for (unsigned i = 0; i < 30; i++) {
                int rc = step(&cw);
                n_failed += rc != 0;
                assert_true(rc == 0 || rc == -EIO || rc == -ENOSPC || rc == -ESTALE);
                assert_true((rc != -ESTALE) || cw.n_faults == 1);
            }
            bool has_failed = fault_sim_has_failed(cw.sim);
            assert_int_equal(n_failed > 0, has_failed); /* none is swallowed */
            assert_int_equal(blk_file_is_faulted(cw.w.top), cw.n_faults == 1);
            assert_int_equal(fault_sim_n_resyncs(cw.sim), 0);
            check_cut(&cw, FAULT_CUT_SYNCED, 0, effects[e / 2] == FAULT_HALF_DONE);
            check_cut(&cw, FAULT_CUT_RANDOM, seed + at, effects[e / 2] == FAULT_HALF_DONE);
            close_world(&cw);
            if (!has_failed) {
                break;
            }
        }
    }
}

/* The disk is full for a while: the guest waits, and then it is as if nothing had been. */
static void test_a_full_disk_is_waited_for(void **state)
{
    static struct cut_world cw;
    struct err err = ERR_INIT;
    char p[BLK_PAGE], seen[BLK_PAGE];
    open_world(&cw, 1);
    blk_stack_free(cw.w.top);
    struct blk_file_opts o = {
        .fd = cw.fd, .size = SIZE, .fs = fault_sim_fs(cw.sim), .is_full_waited_for = true};
    assert_int_equal(blk_file_new(&o, &cw.w.top, &err), 0);
    struct fault_plan plan = {.at = 1, .code = -ENOSPC, .ops = FAULT_BIT(FAULT_PWRITE)};
    fault_sim_plan(cw.sim, &plan);
    rand_bytes(p, sizeof(p));
    uint64_t t = time_mono_ns();
    assert_int_equal(world_io(&cw.w, BLK_WRITE, BLK_FUA, 0, p, sizeof(p)), 0);
    assert_true(time_mono_ns() - t >= 900 * NS_PER_MS);
    assert_true(fault_sim_has_failed(cw.sim));
    assert_int_equal(world_io(&cw.w, BLK_READ, 0, 0, seen, sizeof(seen)), 0);
    assert_memory_equal(seen, p, sizeof(p));
    close_world(&cw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flushed_bytes_survive_a_power_cut),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_a_full_disk_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
