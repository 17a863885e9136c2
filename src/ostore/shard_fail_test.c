#include "ostore/shard_world.h"

#include <stdlib.h>
#include <sys/stat.h>

/* A drive is hung that does not answer for so long, also when this machine is busy with others;
 * what waits for one, at door.slow_ms, is told from what does not by the limit. */
#define HUNG_NS  (2 * NS_PER_S)
#define LIMIT_NS (40 * NS_PER_S)
#define UNIT     (64u << 10)

static bool knows_none(void *ctx, const uint8_t id[OREC_ID_SIZE], unsigned shard,
                       unsigned drive)
{
    return false;
}

/* --- slow drives --- */

static void new_body(struct world *w, unsigned k, unsigned m, struct orec_body *b,
                     struct body_codec *c, struct shard_writer **ret)
{
    const struct shard_code code = {.k = k, .m = m, .unit = UNIT};
    assert_int_equal(body_codec_new(c, NULL, w->arena, b, NULL), 0);
    assert_int_equal(shard_writer_new(w->shards, &code, c, b, ret, NULL), 0);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Reads while one drive takes seconds for each call: others stand in for it. */
static void test_slow_reads(void **state)
{
    struct world *w = world_new_door(3, 20 * NS_PER_S);
    world_hurry(w, &w->door.fs);
    size_t size = 3 << 20;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 1);
    struct orec_body b;
    struct body_codec c;
    world_put(w, 2, 1, UNIT, size, 1, 0, &b, &c);
    uint64_t took[100];
    atomic_store(&w->door.slow_ms, 10000);
    atomic_store(&w->door.ops, FAULT_BIT(FAULT_PREAD));
    atomic_store(&w->door.slow, 1u << b.drive[0]);
    for (size_t i = 0; i < ARRAY_LEN(took); i++) {
        uint64_t start = time_mono_ns();
        size_t off = i * 7919 * 31 % size;
        assert_int_equal(world_read(w, &b, &c, want, size, off, 100000), 0);
        took[i] = time_mono_ns() - start;
    }
    assert_true(atomic_load(&w->door.n_calls) > 0);
    atomic_store(&w->door.slow, 0);
    qsort(took, ARRAY_LEN(took), sizeof(took[0]), by_value);
    assert_true(took[ARRAY_LEN(took) - 1] < 5 * NS_PER_S); /* of the ten that a call takes */
    assert_true(took[ARRAY_LEN(took) / 2] < NS_PER_S / 2);
    assert_true(atomic_load(&w->door.n_calls) < 100); /* not asked by every read */
    struct shards_stats st;
    shards_stats(w->shards, &st);
    assert_true(st.n_hedged > 0 && st.n_recovered > 0);
    assert_int_equal(atomic_load(&w->bad), 0); /* slow is not bad */
    assert_int_equal(drives_state(w->drives, b.drive[0]), DRIVE_OK);
    body_codec_done(&c);
    world_free(w);
}

/* A drive that does not answer at all is faulted; reads that need it say so in time. */
static void test_hung_reads(void **state)
{
    for (unsigned m = 0; m < 2; m++) {
        struct world *w = world_new_door(2, HUNG_NS);
        world_hurry(w, &w->door.fs);
        size_t size = 1 << 20;
        AUTO_FREE uint8_t *want = malloc(size);
        world_fill(want, size, 1);
        struct orec_body b;
        struct body_codec c;
        world_put(w, 1, m, UNIT, size, 1, 0, &b, &c);
        atomic_store(&w->door.slow_ms, 60000);
        atomic_store(&w->door.ops, FAULT_BIT(FAULT_PREAD));
        atomic_store(&w->door.slow, 1u << b.drive[0]);
        uint64_t start = time_mono_ns();
        int r = world_read(w, &b, &c, want, size, 0, size);
        assert_int_equal(r, m == 0 ? -EIO : 0);
        assert_true(time_mono_ns() - start < LIMIT_NS);
        if (m == 0) {
            assert_int_equal(drives_state(w->drives, b.drive[0]), DRIVE_FAULTED);
        }
        atomic_store(&w->door.slow, 0);
        body_codec_done(&c);
        world_free(w);
    }
}

/* A slow drive delays a body, a hung one does not: it is left behind, also in the last sync. */
static void slow_writes(unsigned op, uint64_t stall_ns, bool is_hung)
{
    struct world *w = world_new_door(3, stall_ns);
    size_t size = 3 << 20;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 1);
    struct orec_body b;
    struct body_codec c;
    atomic_store(&w->door.slow_ms, is_hung ? 60000 : 30);
    atomic_store(&w->door.ops, FAULT_BIT(op));
    atomic_store(&w->door.slow, 2);
    uint64_t start = time_mono_ns();
    world_put(w, 2, 1, UNIT, size, 1, 100000, &b, &c);
    assert_true(time_mono_ns() - start < LIMIT_NS);
    assert_int_equal(drives_state(w->drives, 1), is_hung ? DRIVE_FAULTED : DRIVE_OK);
    assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
    struct shards_stats st;
    shards_stats(w->shards, &st);
    assert_int_equal(st.n_failed, is_hung);
    atomic_store(&w->door.slow, 0);
    body_codec_done(&c);
    world_free(w);
}

static void test_slow_writes(void **state)
{
    slow_writes(FAULT_PWRITE, 20 * NS_PER_S, false);
    slow_writes(FAULT_FDATASYNC, 20 * NS_PER_S, false);
    slow_writes(FAULT_PWRITE, HUNG_NS, true);
    slow_writes(FAULT_FDATASYNC, HUNG_NS, true);
    slow_writes(FAULT_OPEN, HUNG_NS, true);
}

/* Nobody waits for a hung drive when a body is given up either. */
static void test_hung_and_given_up(void **state)
{
    struct world *w = world_new_door(3, HUNG_NS);
    AUTO_FREE uint8_t *p = calloc(1, 3 << 20);
    struct orec_body b;
    struct body_codec c;
    struct shard_writer *sw = NULL;
    atomic_store(&w->door.slow_ms, 60000);
    atomic_store(&w->door.ops, FAULT_BIT(FAULT_PWRITE));
    new_body(w, 2, 1, &b, &c, &sw);
    atomic_store(&w->door.slow, 1);
    assert_int_equal(shard_writer_add(sw, p, 600000, NULL), 0);
    uint64_t start = time_mono_ns();
    shard_writer_free(sw);
    assert_true(time_mono_ns() - start < LIMIT_NS);
    assert_true(atomic_load(&w->door.n_calls) > 0);
    atomic_store(&w->door.slow, 0);
    body_codec_done(&c);
    world_free(w);
}

/* Nor when one is removed: the file stays for the sweep. */
static void test_hung_and_removed(void **state)
{
    struct world *w = world_new_door(3, 20 * NS_PER_S);
    struct orec_body b;
    struct body_codec c;
    uint64_t n = 0;
    world_put(w, 2, 1, UNIT, 200000, 1, 0, &b, &c);
    atomic_store(&w->door.slow_ms, 60000);
    atomic_store(&w->door.ops, FAULT_BIT(FAULT_UNLINK));
    atomic_store(&w->door.slow, 1u << b.drive[2]);
    uint64_t start = time_mono_ns();
    shard_remove(w->shards, &b);
    assert_true(time_mono_ns() - start < LIMIT_NS);
    assert_int_equal(world_n_files(w), 1);
    atomic_store(&w->door.slow, 0);
    for (unsigned i = 0; i < 1000 && world_n_files(w) > 0; i++) {
        (void)usleep(5000);
    }
    assert_int_equal(world_n_files(w), 0);
    assert_int_equal(shard_sweep(w->shards, knows_none, NULL, 0, &n, NULL), 0);
    body_codec_done(&c);
    world_free(w);
}

/* --- failing drives --- */

static int put_on_broken(struct world *w, unsigned k, unsigned m, const uint8_t *p, size_t n,
                         struct orec_body *b, struct body_codec *c, struct err *err)
{
    AUTO(shard_writer_freep) struct shard_writer *sw = NULL;
    new_body(w, k, m, b, c, &sw);
    int r = 0;
    for (size_t at = 0; at < n && r == 0; at += 100000) {
        r = shard_writer_add(sw, p + at, MIN(n - at, (size_t)100000), err);
    }
    return r < 0 ? r : shard_writer_finish(sw, b, err);
}

static void test_failing_drives(void **state)
{
    static const unsigned ops[] = {FAULT_OPEN, FAULT_PWRITE, FAULT_FDATASYNC, FAULT_SYNC_DIR};
    size_t size = 2 << 20;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 1);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        for (unsigned pass = 0; pass < 6; pass++) {
            struct world *w = world_new_door(4, 0);
            struct err err = ERR_INIT;
            struct orec_body b;
            struct body_codec c;
            atomic_store(&w->door.code, -EIO);
            atomic_store(&w->door.ops, FAULT_BIT(ops[i]));
            atomic_store(&w->door.n_to_pass, ops[i] == FAULT_PWRITE ? pass : 0);
            atomic_store(&w->door.broken, pass == 5 ? 7 : 1u << pass % 4);
            int r = put_on_broken(w, 2, 2, want, size, &b, &c, &err);
            unsigned n_broken = pass == 5 ? 3 : 1;
            if (n_broken <= 2) {
                assert_int_equal(r, 0);
                atomic_store(&w->door.broken, 0);
                assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
            } else {
                assert_int_equal(r, -EIO);
                assert_string_equal(err.name, "TooFewDrives");
            }
            for (unsigned d = 0; d < 4; d++) {
                bool is_broken = pass == 5 ? d < 3 : d == pass % 4;
                assert_int_equal(drives_state(w->drives, d),
                                 is_broken ? DRIVE_FAULTED : DRIVE_OK);
            }
            body_codec_done(&c);
            world_free(w);
        }
    }
}

/* No room: the answer is -ENOSPC, nothing stays, no drive is faulted, and later it works
 * again. */
static void test_full(void **state)
{
    size_t size = 2 << 20;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 1);
    for (unsigned m = 0; m < 3; m++) {
        for (unsigned pass = 0; pass < 12; pass++) {
            struct world *w = world_new_door(4, 0);
            struct err err = ERR_INIT;
            struct orec_body b;
            struct body_codec c;
            atomic_store(&w->door.code, pass % 2 ? -ENOSPC : -EDQUOT);
            atomic_store(&w->door.ops, FAULT_BIT(FAULT_PWRITE));
            atomic_store(&w->door.n_to_pass, pass);
            atomic_store(&w->door.broken, 0xf);
            assert_int_equal(put_on_broken(w, 1 + m / 2, m, want, size, &b, &c, &err), -ENOSPC);
            assert_string_equal(err.name, "DriveFull");
            assert_int_equal(world_n_files(w), 0);
            assert_int_equal(drives_writable(w->drives), 0xf);
            assert_int_equal(drives_space(w->drives), SPACE_FULL);
            atomic_store(&w->door.broken, 0);
            body_codec_done(&c);
            assert_int_equal(put_on_broken(w, 1 + m / 2, m, want, size, &b, &c, NULL), 0);
            assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
            body_codec_done(&c);
            world_free(w);
        }
    }
}

/* Sectors that cannot be read: made of others, told, and the drive goes on. */
static void test_read_errors(void **state)
{
    struct world *w = world_new_door(3, 0);
    size_t size = 1 << 20;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 1);
    struct orec_body b;
    struct body_codec c;
    world_put(w, 2, 1, UNIT, size, 1, 0, &b, &c);
    atomic_store(&w->door.code, -EIO);
    atomic_store(&w->door.ops, FAULT_BIT(FAULT_PREAD));
    atomic_store(&w->door.broken, 1u << b.drive[1]);
    assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
    assert_int_equal(atomic_load(&w->bad), 2);
    assert_int_equal(drives_writable(w->drives), 7);
    atomic_store(&w->door.broken, 7);
    assert_int_equal(world_read(w, &b, &c, want, size, 0, size), -EIO);
    atomic_store(&w->door.broken, 0);
    body_codec_done(&c);
    world_free(w);
}

/* --- power cuts --- */

struct cut_case {
    unsigned k, m;
    size_t size;
};

/* The drives as a cut leaves them, with no simulator in between. */
static struct world *after_cut(struct fault_sim *sim, const struct world *was,
                               const struct fault_cut *cut)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->n = was->n;
    (void)snprintf(w->top, sizeof(w->top), "%.40s-cut", was->top);
    for (unsigned i = 0; i < w->n; i++) {
        (void)snprintf(w->path[i], sizeof(w->path[i]), "%.40s-cut/d0%02u", was->top, i);
        w->paths[i] = w->path[i];
    }
    struct err err = ERR_INIT;
    if (fault_sim_cut(sim, cut, w->top, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    w->arena = arena_new(1 << 20);
    world_up(w, NULL);
    return w;
}

static const struct fault_cut cuts[] = {{.kind = FAULT_CUT_SYNCED},
                                        {.kind = FAULT_CUT_NAMES},
                                        {.kind = FAULT_CUT_DATA},
                                        {.kind = FAULT_CUT_RANDOM, .seed = 1},
                                        {.kind = FAULT_CUT_RANDOM, .seed = 2}};

/* Whether a body that was promised survives: with 'n_failed' shards that were not, any m -
 * n_failed more may go. */
static void check_promised(struct world *w, const struct orec_body *b, struct body_codec *c,
                           const uint8_t *want, size_t size, unsigned n_failed)
{
    unsigned n = (unsigned)b->k + b->m;
    for (uint32_t mask = 0; mask < 1u << n; mask++) {
        if ((unsigned)__builtin_popcount(mask) + n_failed > b->m) {
            continue;
        }
        char from[192], to[200];
        for (unsigned turn = 0; turn < 2; turn++) { /* away and back */
            for (unsigned i = 0; i < n; i++) {
                world_shard_path(w, b, i, from);
                (void)snprintf(to, sizeof(to), "%s.away", from);
                if (mask >> i & 1) {
                    (void)(turn ? rename(to, from) : rename(from, to));
                }
            }
            if (turn == 0) {
                assert_int_equal(world_read(w, b, c, want, size, 0, size), 0);
            }
        }
    }
}

static void remove_world(struct world *w)
{
    world_free(w); /* removes w->top */
}

/* One body, the power goes at sync 'at' (0: behind everything). Returns false when there is no
 * such sync. */
static bool cut_at(const struct cut_case *cc, uint64_t at, enum fault_effect effect)
{
    struct world *w = world_new(cc->k + cc->m, NULL, 0);
    world_down(w);
    struct fault_sim *sim = fault_sim_new(w->top, NULL);
    assert_non_null(sim);
    world_up(w, fault_sim_fs(sim));
    AUTO_FREE uint8_t *want = malloc(cc->size);
    world_fill(want, cc->size, at);
    const struct fault_plan plan = {
        .at = at, .code = -EIO, .ops = FAULT_SYNCS, .effect = effect, .is_dead = true};
    fault_sim_plan(sim, &plan);
    struct orec_body b;
    struct body_codec c;
    AUTO(shard_writer_freep) struct shard_writer *sw = NULL;
    new_body(w, cc->k, cc->m, &b, &c, &sw);
    int r = shard_writer_add(sw, want, cc->size, NULL);
    r = r < 0 ? r : shard_writer_finish(sw, &b, NULL);
    bool has_failed = fault_sim_has_failed(sim);
    struct shards_stats st;
    shards_stats(w->shards, &st);
    assert_true(at != 0 || r == 0);
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        struct world *after = after_cut(sim, w, &cuts[i]);
        if (r == 0) {
            check_promised(after, &b, &c, want, cc->size, (unsigned)st.n_failed);
        }
        uint64_t n = 0;
        assert_int_equal(shard_sweep(after->shards, knows_none, NULL, 0, &n, NULL), 0);
        assert_int_equal(world_n_files(after), 0);
        remove_world(after);
    }
    assert_int_equal(fault_sim_n_resyncs(sim), 0);
    shard_writer_free(steal(&sw));
    body_codec_done(&c);
    world_down(w);
    world_up(w, NULL);
    world_free(w);
    fault_sim_free(sim);
    return at == 0 || has_failed;
}

static void test_power_cuts(void **state)
{
    static const struct cut_case cases[] = {
        {1, 0, 300000}, {2, 1, 20000}, {2, 1, 700000}, {3, 2, 1}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_true(cut_at(&cases[i], 0, FAULT_NOTHING_DONE));
        uint64_t n = 0;
        for (uint64_t at = 1; cut_at(&cases[i], at, FAULT_NOTHING_DONE); at++) {
            n++;
            assert_true(cut_at(&cases[i], at, FAULT_ALL_DONE));
        }
        assert_true(n >= 2 * (cases[i].k + cases[i].m)); /* file and folder of each shard */
    }
}

/* A repair that is cut at any sync leaves a body that is as readable as before. */
static void test_power_cuts_of_repair(void **state)
{
    size_t size = 700000;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 1);
    bool has_failed = true;
    for (uint64_t at = 1; has_failed; at++) {
        struct world *w = world_new(3, NULL, 0);
        struct orec_body b;
        struct body_codec c;
        char path[192];
        world_put(w, 2, 1, UNIT, size, 1, 0, &b, &c);
        world_flip(world_shard_path(w, &b, 1, path), 5000, 2);
        world_down(w);
        struct fault_sim *sim = fault_sim_new(w->top, NULL);
        assert_non_null(sim);
        world_up(w, fault_sim_fs(sim));
        const struct fault_plan plan = {
            .at = at, .code = -EIO, .ops = FAULT_SYNCS, .is_dead = true};
        fault_sim_plan(sim, &plan);
        struct shard_verify v = {0};
        int r = shard_verify(w->shards, &b, SHARD_REPAIR, &v, NULL, NULL);
        has_failed = fault_sim_has_failed(sim);
        assert_int_equal(r < 0, has_failed);
        for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
            struct world *after = after_cut(sim, w, &cuts[i]);
            assert_int_equal(world_read(after, &b, &c, want, size, 0, size), 0);
            v = (struct shard_verify){0};
            assert_int_equal(shard_verify(after->shards, &b, SHARD_REPAIR, &v, NULL, NULL), 0);
            assert_int_equal(v.n_bad, r < 0 && v.n_bad ? 1 : 0);
            remove_world(after);
        }
        body_codec_done(&c);
        world_down(w);
        world_up(w, NULL);
        world_free(w);
        fault_sim_free(sim);
    }
}

/* --- many at once --- */

struct mix {
    struct world *w;
    unsigned seed;
};

static void *mix_thread(void *ctx)
{
    const struct mix *mx = ctx;
    struct world *w = mx->w;
    struct arena *a = arena_new(1 << 20);
    for (unsigned i = 0; i < 12; i++) {
        size_t size = 50000 + (mx->seed * 7 + i) * 99991 % 1500000;
        AUTO_FREE uint8_t *want = malloc(size);
        world_fill(want, size, mx->seed + i);
        AUTO(shard_writer_freep) struct shard_writer *sw = NULL;
        struct orec_body b;
        struct body_codec c;
        const struct shard_code code = {.k = 2, .m = 1, .unit = UNIT};
        int r = body_codec_new(&c, NULL, a, &b, NULL);
        r = r < 0 ? r : shard_writer_new(w->shards, &code, &c, &b, &sw, NULL);
        r = r < 0 ? r : shard_writer_add(sw, want, size, NULL);
        r = r < 0 || i % 4 == 3 ? r : shard_writer_finish(sw, &b, NULL);
        if (r < 0) {
            abort();
        }
        if (i % 4 != 3) {
            if (world_read(w, &b, &c, want, size, 0, size) < 0) {
                abort();
            }
            shard_remove(w->shards, &b);
        }
        body_codec_done(&c);
    }
    arena_free(a);
    return NULL;
}

static void test_threads(void **state)
{
    struct world *w = world_new(4, NULL, 0);
    pthread_t t[6];
    struct mix mx[6];
    for (unsigned i = 0; i < 6; i++) {
        mx[i] = (struct mix){w, i};
        assert_int_equal(pthread_create(&t[i], NULL, mix_thread, &mx[i]), 0);
    }
    uint64_t n = 0;
    for (unsigned i = 0; i < 20; i++) { /* never what is being written */
        assert_int_equal(shard_sweep(w->shards, knows_none, NULL, 60 * NS_PER_S, &n, NULL), 0);
    }
    for (unsigned i = 0; i < 6; i++) {
        (void)pthread_join(t[i], NULL);
    }
    assert_int_equal(world_n_files(w), 0);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_reads),
        cmocka_unit_test(test_hung_reads),
        cmocka_unit_test(test_slow_writes),
        cmocka_unit_test(test_hung_and_given_up),
        cmocka_unit_test(test_hung_and_removed),
        cmocka_unit_test(test_failing_drives),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_read_errors),
        cmocka_unit_test(test_power_cuts),
        cmocka_unit_test(test_power_cuts_of_repair),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
