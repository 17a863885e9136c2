#include "base/test.h"
#include "base/time.h"
#include "blk/load.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define SIZE (8u << 20)

static void test_percentiles(void **state)
{
    static const struct {
        uint64_t from, to; /* latencies, each once */
        unsigned ppm;
        uint64_t want;
    } cases[] = {
        {1, 1, 500000, 1},     {1, 100, 500000, 50},
        {1, 100, 990000, 99},  {1, 1000, 999000, 999},
        {1000, 2000, 0, 1000}, {1, 1000000, 990000, 990000},
        {7, 7, 990000, 7},     {1u << 30, 1u << 30, 990000, 1u << 30},
        {1, 10, 1000000, 10},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE struct load_hist *h = calloc(1, sizeof(*h));
        for (uint64_t v = cases[i].from; v <= cases[i].to; v++) {
            load_hist_add(h, v);
        }
        double got = (double)load_hist_at(h, cases[i].ppm), want = (double)cases[i].want;
        if (got < want * 0.99 || got > want * 1.0625 + 1) {
            fail_msg("case %zu: %f instead of %f", i, got, want);
        }
        assert_int_equal(h->n, cases[i].to - cases[i].from + 1);
        assert_int_equal(h->max_ns, cases[i].to);
    }
    struct load_hist *empty = calloc(1, sizeof(*empty)), *big = calloc(1, sizeof(*big));
    assert_int_equal(load_hist_at(empty, 990000), 0);
    load_hist_add(big, UINT64_MAX); /* the last bucket takes what is left */
    load_hist_merge(empty, big);
    assert_int_equal(load_hist_at(empty, 990000), UINT64_MAX);
    free(empty);
    free(big);
}

static void test_median(void **state)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 2, 9};
    struct load_stat s = load_stat_of(odd, 3);
    assert_true(s.median == 3 && s.min == 1 && s.max == 5);
    s = load_stat_of(even, 4);
    assert_true(s.median == 3 && s.min == 1 && s.max == 9);
    assert_true(load_stat_of(odd, 0).median == 0);
}

static int open_file(const struct tmpdir *dir, const char *name, size_t size)
{
    char path[PATH_MAX];
    int fd = open(tmpdir_path(dir, name, path), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EINVAL) { /* tmpfs */
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}

static void on_progress(void *ctx, uint64_t done)
{
    *(uint64_t *)ctx = done;
}

/* Every pattern does what its name says, within its target. */
static void test_patterns(void **state)
{
    struct tmpdir dir;
    struct err err = ERR_INIT;
    uint64_t done = 0;
    tmpdir_init(&dir, "load");
    AUTO_FD fd = open_file(&dir, "a", SIZE);
    AUTO_FD other = open_file(&dir, "b", SIZE);
    const struct load_target t[] = {{fd, SIZE}, {other, SIZE}};
    assert_int_equal(load_fill(&t[0], 1, on_progress, &done, &err), 0);
    assert_int_equal(done, SIZE);
    assert_int_equal(load_fill(&t[1], 2, NULL, NULL, &err), 0);
    for (unsigned i = 0; i < load_n_patterns; i++) {
        struct load_pattern p = load_patterns[i];
        AUTO_FREE struct load_result *r = calloc(1, sizeof(*r));
        if (p.block > 65536) {
            p.block = 65536;
        }
        if (load_raw(t, 2, &p, 50 * NS_PER_MS, 7, NULL, r, &err) < 0) {
            fail_msg("%s: %s", p.name, err.msg);
        }
        assert_true(r->n_reads + r->n_writes >= p.depth);
        assert_int_equal(r->bytes, (r->n_reads + r->n_writes) * p.block);
        assert_int_equal(r->read.n, r->n_reads);
        assert_int_equal(r->write.n, r->n_writes);
        assert_true(p.read_percent > 0 || r->n_reads == 0);
        assert_true(p.read_percent < 100 || r->n_writes == 0);
        assert_true(r->ns >= 50 * NS_PER_MS && r->cpu_ns > 0);
    }
    assert_int_equal(lseek(fd, 0, SEEK_END), SIZE); /* nothing was written past the end */
    tmpdir_done(&dir);
}

static void test_errors(void **state)
{
    struct tmpdir dir;
    struct err err = ERR_INIT;
    struct load_pattern p = load_patterns[0];
    AUTO_FREE struct load_result *r = calloc(1, sizeof(*r));
    volatile bool is_cancelled = true;
    tmpdir_init(&dir, "load");
    AUTO_FD fd = open_file(&dir, "a", SIZE);
    struct load_target t = {fd, SIZE};
    t.size = 16384;
    assert_int_equal(load_raw(&t, 1, &p, NS_PER_S, 1, NULL, r, &err), -EINVAL);
    assert_string_equal(err.name, "BadPattern");
    t.size = SIZE;
    p.block = 512;
    err_clear(&err);
    assert_int_equal(load_raw(&t, 1, &p, NS_PER_S, 1, NULL, r, &err), -EINVAL);
    /* A file that is shorter than it should be: a short read is an error, not a fast disk. */
    p = load_patterns[0];
    assert_int_equal(ftruncate(fd, 0), 0);
    err_clear(&err);
    assert_int_equal(load_raw(&t, 1, &p, NS_PER_S, 1, NULL, r, &err), -EIO);
    assert_string_equal(err.name, "LoadFailed");
    assert_int_equal(ftruncate(fd, SIZE), 0);
    uint64_t start = time_mono_ns();
    assert_int_equal(load_raw(&t, 1, &p, 100 * NS_PER_S, 1, &is_cancelled, r, NULL), 0);
    assert_true(time_mono_ns() - start < 50 * NS_PER_S);
    tmpdir_done(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles),
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
