#include "blk/blk_throttle.h"

#include "base/rand.h"
#include "base/test.h"
#include "base/time.h"
#include "blk/blk_file.h"
#include "blk/blk_world.h"
#include <pthread.h>

#define SECOND NS_PER_S
#define START  (UINT64_C(1000) * NS_PER_S) /* of the clock, as after some uptime */

/* Somebody who always has 'depth' requests waiting. */
struct pour {
    struct blk_bucket *b, *peak;
    uint64_t n, now, at[64]; /* units of a request; the clock; when each may go */
    unsigned depth, i;
};

/* How many go within 'ns'. */
static uint64_t pour(struct pour *p, uint64_t ns)
{
    uint64_t end = p->now + ns, done = 0;
    while (MAX(p->now, p->at[p->i]) < end) {
        p->now = MAX(p->now, p->at[p->i]);
        done += p->at[p->i] > 0; /* this one goes, and the next comes in its place */
        uint64_t go = blk_bucket_take(p->b, p->n, p->now);
        if (p->peak) {
            uint64_t peak_go = blk_bucket_take(p->peak, p->n, p->now);
            go = MAX(go, peak_go);
        }
        p->at[p->i] = go;
        p->i = (p->i + 1) % p->depth;
    }
    p->now = end;
    return done;
}

static void near(uint64_t got, uint64_t want, unsigned percent)
{
    if (got * 100 < want * (100 - percent) || got * 100 > want * (100 + percent)) {
        fail_msg("%llu, not %llu", (unsigned long long)got, (unsigned long long)want);
    }
}

static void test_no_limit(void **state)
{
    struct blk_bucket b = {0};
    blk_bucket_set(&b, 0, 0, START);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(blk_bucket_take(&b, UINT64_C(1) << 40, START), START);
    }
}

static void test_rates(void **state)
{
    static const uint64_t rates[] = {1,     7,      100,       3000,      16000,
                                     64000, 256000, 131072000, 1048576000};
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        struct blk_bucket b = {0};
        struct pour p = {&b, .n = rates[i] > 1000000 ? 4096 : 1, .now = START, .depth = 32};
        blk_bucket_set(&b, rates[i], 0, START);
        (void)pour(&p, SECOND); /* what a full bucket had saved is gone */
        uint64_t s = rates[i] < 100 ? 1000 : 10;
        near(pour(&p, s * SECOND), rates[i] * s / p.n, 1);
    }
}

/* A saved moment lets a batch through as a whole, and not more. */
static void test_a_batch_stays_whole(void **state)
{
    struct blk_bucket b = {0};
    unsigned n_now = 0;
    blk_bucket_set(&b, 3000, 0, START);
    for (unsigned i = 0; i < 1000; i++) {
        n_now += blk_bucket_take(&b, 1, START) <= START;
    }
    assert_in_range(n_now, 32, 100);
}

/* EBS user guide: burst duration = credit balance / (burst IOPS - 3 x size in GiB). */
static const struct {
    uint64_t gib, want_s;
} gp2[] = {{100, 2000}, {250, 2400}, {500, 3600}, {33, 1862}};

static void test_gp2_credits(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(gp2); i++) {
        struct blk_bucket b = {0}, peak = {0};
        uint64_t base = MAX(3 * gp2[i].gib, UINT64_C(100)), s = 0;
        struct pour p = {&b, &peak, .n = 1, .now = START, .depth = 32};
        blk_bucket_set(&b, base, 5400000, START);
        blk_bucket_set(&peak, 3000, 0, START);
        while (s < 10000 && pour(&p, 10 * SECOND) > 25000) {
            s += 10;
        }
        near(s, gp2[i].want_s, 2);
        near(pour(&p, 100 * SECOND), 100 * base, 3); /* baseline then */
        p.now += 1000 * SECOND; /* a rest: credits come back at the baseline's rate */
        near(pour(&p, 100 * SECOND), MIN(3000 * 100, 1100 * base), 5);
    }
}

/* More is allowed: what was owed at the old rate is owed at the new one, in units. */
static void test_a_change_of_the_limit(void **state)
{
    struct blk_bucket b = {0};
    struct pour p = {&b, .n = 1, .now = START, .depth = 50};
    blk_bucket_set(&b, 100, 0, START);
    (void)pour(&p, SECOND);
    uint64_t owed = b.tat_ns - p.now;
    blk_bucket_set(&b, 1000, 0, p.now);
    near(b.tat_ns - p.now, owed / 10, 1);
    (void)pour(&p, SECOND);
    near(pour(&p, 10 * SECOND), 10000, 1);
    blk_bucket_set(&b, 0, 0, p.now);
    assert_int_equal(blk_bucket_take(&b, 1000000, p.now), p.now);
    blk_bucket_set(&b, 100, 0, p.now);
    (void)pour(&p, SECOND);
    near(pour(&p, 10 * SECOND), 1000, 1);
}

/* ---- threads ---- */

static void *take_many(void *ctx)
{
    for (int i = 0; i < 100000; i++) {
        (void)blk_bucket_take(ctx, 1, START);
    }
    return NULL;
}

static void test_threads_share_a_bucket(void **state)
{
    struct blk_bucket b = {0};
    pthread_t t[4];
    blk_bucket_set(&b, 1000000, 0, START);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, take_many, &b), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
    }
    assert_int_equal(b.tat_ns, START + 400000 * UINT64_C(1000)); /* none was lost */
}

/* ---- the layer ---- */

static void layer_world(struct world *w, const struct blk_limits *lim)
{
    struct err err = ERR_INIT;
    struct blk_layer *mem = NULL;
    world_queue(w, NULL);
    assert_int_equal(blk_mem_new(16u << 20, &mem, &err), 0);
    assert_int_equal(blk_throttle_new(mem, lim, &w->top, &err), 0);
}

static const struct {
    const char *name;
    struct blk_limits lim;
    enum blk_op op;
    unsigned flags;
    uint32_t len;
    unsigned n; /* in all */
    unsigned min_ms, max_ms;
} runs[] = {
    {"iops", {.iops = 500}, BLK_READ, 0, 4096, 100, 150, 3000},
    {"one request of four parts", {.iops = 500}, BLK_WRITE, 0, 1u << 20, 25, 150, 3000},
    {"parts of a size",
     {.iops = 50, .io_size = 1u << 20},
     BLK_WRITE,
     0,
     1u << 20,
     25,
     300,
     1500},
    {"bytes", {.bytes_per_s = 10u << 20}, BLK_WRITE, 0, 1u << 18, 8, 100, 3000},
    {"both", {.iops = 100000, .bytes_per_s = 10u << 20}, BLK_READ, 0, 1u << 18, 8, 100, 3000},
    {"discards", {.iops = 500, .bytes_per_s = 1000}, BLK_DISCARD, 0, 1u << 20, 100, 150, 3000},
    {"flushes", {.iops = 10}, BLK_FLUSH, 0, 0, 100, 0, 3000},
    {"the engine's own", {.iops = 10}, BLK_READ, BLK_INNER, 4096, 100, 0, 3000},
    {"no limit", {0}, BLK_READ, 0, 4096, 100, 0, 3000},
    {"burst of credits",
     {.iops = 10, .credits = 100000, .burst_iops = 500},
     BLK_READ,
     0,
     4096,
     100,
     150,
     3000},
};

static void test_the_layer(void **state)
{
    char *p = calloc(1, 1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        struct world w;
        static struct world_io io[100];
        layer_world(&w, &runs[i].lim);
        bool is_data = runs[i].op == BLK_READ || runs[i].op == BLK_WRITE;
        uint64_t begin = time_mono_ns();
        for (unsigned k = 0; k < runs[i].n; k++) {
            world_start(&w, &io[k], runs[i].op, runs[i].flags, 0, is_data ? p : NULL,
                        runs[i].len);
        }
        for (unsigned k = 0; k < runs[i].n; k++) {
            assert_int_equal(world_wait(&w, &io[k]), 0);
        }
        uint64_t ms = (time_mono_ns() - begin) / NS_PER_MS;
        if (ms < runs[i].min_ms || ms > runs[i].max_ms) {
            fail_msg("%s: %llu ms", runs[i].name, (unsigned long long)ms);
        }
        world_done_all(&w);
    }
    free(p);
}

/* Small ones behind a big one wait for it, and it does not wait for those that come later. */
static void test_nobody_is_overtaken_for_ever(void **state)
{
    struct world w;
    static struct world_io big, io[64];
    char *p = calloc(1, BLK_MAX_LEN);
    unsigned n_after = 0;
    layer_world(&w, &(struct blk_limits){.iops = 400, .io_size = 4096});
    for (size_t i = 0; i < ARRAY_LEN(io); i++) {
        world_start(&w, &io[i], BLK_READ, 0, 0, p, 4096);
    }
    world_start(&w, &big, BLK_READ, 0, 0, p, 64u << 10);
    while (!big.is_done) { /* the small ones come again and again */
        assert_true(blk_queue_run(w.q, UINT64_C(5000000000)) > 0);
        for (size_t i = 0; i < ARRAY_LEN(io); i++) {
            if (io[i].is_done && !big.is_done) {
                n_after++;
                world_start(&w, &io[i], BLK_READ, 0, 0, p, 4096);
            }
        }
    }
    assert_true(n_after <= 2 * ARRAY_LEN(io));
    for (size_t i = 0; i < ARRAY_LEN(io); i++) {
        assert_int_equal(world_wait(&w, &io[i]), 0);
    }
    free(p);
    world_done_all(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_limit),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_a_batch_stays_whole),
        cmocka_unit_test(test_gp2_credits),
        cmocka_unit_test(test_a_change_of_the_limit),
        cmocka_unit_test(test_threads_share_a_bucket),
        cmocka_unit_test(test_the_layer),
        cmocka_unit_test(test_nobody_is_overtaken_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
