/* Every call that changes something is the last one before a power cut, or fails. Each moment is
 * cut in several ways, with every choice of drives that the log says it survives; then the log is
 * opened, compared with what was promised, goes on, and is opened once more. */
#include "ostore/olog.h"

#include "base/test.h"
#include "ostore/olog_world.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHANGES                                                                      \
    (FAULT_SYNCS | FAULT_BIT(FAULT_PWRITE) | FAULT_BIT(FAULT_TRUNCATE) |             \
     FAULT_BIT(FAULT_ALLOCATE) | FAULT_BIT(FAULT_RENAME) | FAULT_BIT(FAULT_UNLINK) | \
     FAULT_BIT(FAULT_MKDIR) | FAULT_BIT(FAULT_OPEN))

struct scenario {
    const char *name;
    unsigned n, copies;
    void (*setup)(struct world *w); /* nothing fails; may leave the log open */
    int (*run)(struct world *w);
    bool is_any_lost;          /* else only drive 1 may be lost */
    bool is_drive_lost_before; /* so failures of another one are too many */
};

/* --- scenarios --- */

static void setup_nothing(struct world *w)
{
}

static int run_first_start(struct world *w)
{
    int rc = world_open(w, 0);
    rc = rc == 0 ? world_commit(w, 2, 50, true) : rc;
    if (rc == 0) {
        world_close(w);
    }
    return rc;
}

static void setup_open(struct world *w)
{
    world_need(world_open(w, 0), w);
    world_need(world_append(w, 3, 300, false), w);
    world_need(world_sync(w), w);
}

static int run_groups(struct world *w)
{
    int rc = 0;
    for (unsigned i = 0; i < 5 && rc == 0; i++) {
        rc = world_append(w, 3, 700, true);
        rc = rc == 0 ? world_append(w, 1, 100 * i, false) : rc;
        rc = rc == 0 && i % 2 == 0 ? world_sync(w) : rc;
    }
    rc = rc == 0 ? world_commit(w, 2, 60, true) : rc;
    rc = rc == 0 ? olog_idle(w->l, &w->err) : rc;
    return rc == 0 ? world_append(w, 2, 900, true) : rc; /* not synced */
}

static int run_segments(struct world *w)
{
    int rc = 0;
    for (unsigned i = 0; i < 8 && rc == 0; i++) {
        rc = world_append(w, 6, 4000, i % 2);
        rc = rc == 0 && i % 3 ? world_sync(w) : rc;
    }
    return rc == 0 ? world_sync(w) : rc;
}

static void setup_torn(struct world *w)
{
    setup_open(w);
    world_need(world_append(w, 3, 2000, true), w);
    world_need(world_sync(w), w);
    world_need(world_append(w, 1, 900, false), w);
    world_need(world_append(w, 3, 2000, true), w);
    const struct fault_cut cut = {.kind = FAULT_CUT_RANDOM, .seed = w->n * 7 + w->copies};
    world_cut(w, &cut, 0);
}

/* One drive has a whole tail and the others none: it is copied before it counts. */
static void setup_uneven(struct world *w)
{
    setup_open(w);
    world_need(world_append(w, 3, 2000, true), w);
    char from[256], to[256];
    uint8_t bytes[20000];
    assert_true(world_segment(w, 0, true, from));
    AUTO_FD fd = open(from, O_RDONLY | O_CLOEXEC);
    ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
    assert_true(n == (ssize_t)sizeof(bytes));
    const struct fault_cut cut = {.kind = FAULT_CUT_SYNCED};
    world_cut(w, &cut, 0);
    fault_sim_free(w->sim);
    assert_true(world_segment(w, 0, true, to));
    AUTO_FD fd2 = open(to, O_WRONLY | O_CLOEXEC);
    assert_true(pwrite(fd2, bytes, (size_t)n, 0) == n);
    w->sim = fault_sim_new(w->root, &w->err);
    assert_non_null(w->sim);
}

static int run_restart(struct world *w)
{
    int rc = world_open(w, 0);
    if (rc == 0 &&
        !olog_is_readonly(
            w->l)) { /* what a start shows is promised from then on, and what not is gone */
        const char *what = world_check(w);
        if (what) {
            fail_msg("%s", what);
        }
        for (size_t i = 0; i < w->recs.n; i++) {
            for (size_t k = 0; k < w->seen.n; k++) {
                if (w->seen.v[k].serial == w->recs.v[i].serial) {
                    w->recs.v[i].fate = FATE_ACKED;
                }
            }
        }
    }
    rc = rc == 0 ? world_append(w, 2, 500, true) : rc;
    rc = rc == 0 ? world_sync(w) : rc;
    if (rc == 0) {
        world_close(w);
    }
    return rc;
}

static void flip(const struct world *w, unsigned drive, bool is_newest, off_t at)
{
    char path[256];
    uint8_t b = 0;
    assert_true(world_segment(w, drive, is_newest, path));
    AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(pread(fd, &b, 1, at) == 1);
    b ^= 0x10;
    assert_true(pwrite(fd, &b, 1, at) == 1);
}

static void setup_rotten(struct world *w)
{
    setup_open(w);
    world_need(run_segments(w), w);
    const struct fault_cut cut = {.kind = FAULT_CUT_ALL};
    world_cut(w, &cut, 0);
    fault_sim_free(w->sim);
    for (off_t at = 4096 + 30; at < 40000; at += 9000) {
        flip(w, 1, false, at);
    }
    w->sim = fault_sim_new(w->root, &w->err);
    assert_non_null(w->sim);
}

static int verify_all(struct world *w)
{
    struct olog_segment *v = NULL;
    size_t n = 0;
    struct olog_verify io = {0};
    int rc = olog_segments(w->l, &v, &n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = olog_verify(w->l, v[i].segment, &io, &w->err);
    }
    free(v);
    return rc;
}

static int run_repair(struct world *w)
{
    int rc = world_open(w, 0);
    rc = rc == 0 ? verify_all(w) : rc;
    if (rc == 0) {
        world_close(w);
    }
    return rc;
}

static void setup_segments(struct world *w)
{
    setup_open(w);
    world_need(run_segments(w), w);
}

static int run_remove(struct world *w)
{
    struct olog_segment *v = NULL;
    size_t n = 0;
    int rc = olog_segments(w->l, &v, &n);
    assert_true(n >= 4);
    const size_t order[] = {1, 0};
    for (size_t k = 0; k < ARRAY_LEN(order) && rc == 0; k++) {
        const struct olog_segment *s = &v[order[k]];
        for (size_t i = 0; i < w->recs.n; i++) { /* may be gone from now on */
            if (w->recs.v[i].lsn >= s->first_lsn && w->recs.v[i].lsn <= s->last_lsn) {
                w->recs.v[i].fate = FATE_FAILED;
            }
        }
        rc = olog_remove(w->l, s->segment, &w->err);
        rc = rc == 0 ? world_append(w, 1, 100, false) : rc;
        rc = rc == 0 ? world_sync(w) : rc;
    }
    free(v);
    return rc;
}

static void setup_lost_drive(struct world *w)
{
    setup_segments(w);
    const struct fault_cut cut = {.kind = FAULT_CUT_ALL};
    world_cut(w, &cut, 1u << 1);
    world_need(world_open(w, 0), w);
    assert_int_equal(drives_state(w->d, 1), DRIVE_MISSING);
    world_need(world_append(w, 2, 300, true), w);
    world_need(world_sync(w), w);
}

static int run_replace(struct world *w)
{
    int rc = drives_replace(w->d, 1, &w->err);
    rc = rc == 0 ? world_append(w, 3, 300, true) : rc;
    rc = rc == 0 ? world_sync(w) : rc;
    rc = rc == 0 ? verify_all(w) : rc;
    rc = rc == 0 ? drives_healed(w->d, 1, &w->err) : rc;
    rc = rc == 0 ? world_append(w, 3, 300, true) : rc;
    return rc == 0 ? world_sync(w) : rc;
}

static const struct scenario scenarios[] = {
    {"first start", 1, 1, setup_nothing, run_first_start, true, false},
    {"first start", 2, 2, setup_nothing, run_first_start, true, false},
    {"first start", 3, 3, setup_nothing, run_first_start, true, false},
    {"groups", 1, 1, setup_open, run_groups, true, false},
    {"groups", 2, 2, setup_open, run_groups, true, false},
    {"groups", 3, 3, setup_open, run_groups, true, false},
    {"groups", 3, 2, setup_open, run_groups, true, false},
    {"segments", 1, 1, setup_open, run_segments, true, false},
    {"segments", 2, 2, setup_open, run_segments, true, false},
    {"segments", 3, 3, setup_open, run_segments, true, false},
    {"segments", 4, 2, setup_open, run_segments, true, false},
    {"start after a cut", 1, 1, setup_torn, run_restart, true, false},
    {"start after a cut", 2, 2, setup_torn, run_restart, true, false},
    {"start after a cut", 3, 3, setup_torn, run_restart, true, false},
    {"start with uneven copies", 2, 2, setup_uneven, run_restart, false, false},
    {"start with uneven copies", 3, 3, setup_uneven, run_restart, false, false},
    {"copy repair", 2, 2, setup_rotten, run_repair, false, true},
    {"copy repair", 3, 3, setup_rotten, run_repair, false, true},
    {"removal", 1, 1, setup_segments, run_remove, true, false},
    {"removal", 2, 2, setup_segments, run_remove, true, false},
    {"removal", 3, 3, setup_segments, run_remove, true, false},
    {"replacing", 2, 2, setup_lost_drive, run_replace, false, true},
    {"replacing", 3, 2, setup_lost_drive, run_replace, false, true},
    {"replacing", 3, 3, setup_lost_drive, run_replace, false, true},
};

/* --- looking at a cut --- */

static struct world *world_of_cut(const struct world *w, const struct fault_cut *cut,
                                  uint32_t lost)
{
    struct world *c = world_new(w->n, w->copies, false);
    world_remove(c->root);
    struct err err = ERR_INIT;
    assert_int_equal(fault_sim_cut(w->sim, cut, c->root, &err), 0);
    for (unsigned i = 0; i < w->n; i++) {
        if (lost & 1u << i) {
            char path[256];
            world_path(c, i, "", path);
            world_remove(path);
            assert_int_equal(mkdir(path, 0700), 0);
        }
    }
    c->segment_size = w->segment_size;
    c->serial = w->serial;
    for (size_t i = 0; i < w->recs.n; i++) {
        vec_push(&c->recs, w->recs.v[i]);
    }
    c->sim = fault_sim_new(c->root, &err); /* syncs cost nothing */
    assert_non_null(c->sim);
    return c;
}

static bool has_promise(const struct world *w)
{
    for (size_t i = 0; i < w->recs.n; i++) {
        if (w->recs.v[i].fate == FATE_ACKED) {
            return true;
        }
    }
    return false;
}

static void look(const struct world *w, const struct fault_cut *cut, uint32_t lost,
                 const char *where)
{
    struct world *c = world_of_cut(w, cut, lost);
    int rc = world_open(c, 0);
    if (rc < 0) {
        /* A set that was being made, of which a drive was lost before anything was promised. */
        if (lost == 0 || has_promise(w) || !str_eqc(str_c(c->err.name), "TooFewDrives")) {
            fail_msg("%s: opens with %d %s: %s", where, rc, c->err.name, c->err.msg);
        }
        world_free(c);
        return;
    }
    const char *what = world_check(c);
    if (what) {
        fail_msg("%s: %s", where, what);
    }
    if (olog_is_readonly(c->l)) {
        fail_msg("%s: read-only: %s", where, olog_why(c->l));
    }
    rc = world_append(c, 3, 400, true);
    rc = rc == 0 ? world_sync(c) : rc;
    if (rc < 0) {
        fail_msg("%s: does not go on: %d %s", where, rc, c->err.msg);
    }
    world_close(c);
    if (lost) { /* the second start is the same with and without */
        world_free(c);
        return;
    }
    rc = world_open(c, 0);
    what = rc < 0 ? c->err.msg : world_check(c);
    if (what) {
        fail_msg("%s: second start: %s", where, what);
    }
    world_free(c);
}

static void look_all(const struct scenario *s, const struct world *w, uint64_t k,
                     const char *where)
{
    const struct fault_cut cuts[] = {
        {.kind = FAULT_CUT_SYNCED},
        {.kind = FAULT_CUT_ALL},
        {.kind = k % 2 ? FAULT_CUT_NAMES : FAULT_CUT_DATA},
        {.kind = FAULT_CUT_RANDOM, .seed = k * 2},
        {.kind = FAULT_CUT_RANDOM, .seed = k * 2 + 1},
        {.kind = FAULT_CUT_SUBSET, .mask = UINT64_C(0x9e3779b97f4a7c15) * (k + 1)},
    };
    bool is_full = getenv("OLOG_FULL") != NULL; /* some minutes */
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        if (!is_full && i != k % 2 && i != 3 && i != (size_t[]){2, 4, 5}[k / 2 % 3]) {
            continue;
        }
        for (uint32_t lost = 0; lost < 1u << s->n; lost++) {
            bool is_tried = (unsigned)__builtin_popcount(lost) < s->copies &&
                            (s->is_any_lost || (lost & ~2u) == 0);
            /* Losses for one of the cuts, in turn. */
            if (!is_tried || (lost && !is_full && i != (k / 3 % 2 ? 3 : k % 2))) {
                continue;
            }
            char text[160];
            (void)snprintf(text, sizeof(text), "%s, cut %zu, lost %x", where, i, lost);
            look(w, &cuts[i], lost, text);
        }
    }
}

static uint64_t power_cuts(const struct scenario *s)
{
    for (uint64_t k = 1;; k++) {
        struct world *w = world_new(s->n, s->copies, true);
        s->setup(w);
        const struct fault_plan plan = {.at = k,
                                        .code = -EIO,
                                        .ops = CHANGES,
                                        .effect = (enum fault_effect)(k % 3),
                                        .is_dead = true};
        fault_sim_plan(w->sim, &plan);
        int rc = s->run(w);
        world_close(w);
        bool has_failed = fault_sim_has_failed(w->sim);
        char where[96];
        (void)snprintf(where, sizeof(where), "%s %u/%u, call %llu", s->name, s->n, s->copies,
                       (unsigned long long)k);
        if (!has_failed && rc < 0) {
            fail_msg("%s: fails without a fault: %d %s", where, rc, w->err.msg);
        }
        look_all(s, w, k, where);
        world_free(w);
        if (!has_failed) {
            return k - 1;
        }
    }
}

static void test_power_cuts(void **state)
{
    uint64_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(scenarios); i++) {
        uint64_t k = power_cuts(&scenarios[i]);
        print_message("%s %u/%u: %llu calls\n", scenarios[i].name, scenarios[i].n,
                      scenarios[i].copies, (unsigned long long)k);
        n += k;
    }
    assert_true(n > 500);
}

/* --- one call fails --- */

static void failing_call(const struct scenario *s, uint64_t k, int code, bool *ret_is_over)
{
    struct world *w = world_new(s->n, s->copies, true);
    s->setup(w);
    const struct fault_plan plan = {
        .at = k, .code = code, .ops = CHANGES, .effect = (enum fault_effect)(k % 3)};
    fault_sim_plan(w->sim, &plan);
    int rc = s->run(w);
    bool has_failed = fault_sim_has_failed(w->sim);
    char where[128];
    (void)snprintf(where, sizeof(where), "%s %u/%u, call %llu fails with %d", s->name, s->n,
                   s->copies, (unsigned long long)k, code);
    bool is_survived =
        s->copies > 1 && code == -EIO && s->setup != setup_nothing && !s->is_drive_lost_before;
    if (rc < 0 && (is_survived || !has_failed)) {
        fail_msg("%s: the log does not go on: %d %s", where, rc, w->err.msg);
    }
    if (w->l && rc == -ENOSPC) { /* there is room again */
        rc = world_append(w, 2, 1000, true);
        rc = rc == 0 ? world_sync(w) : rc;
        if (rc < 0) {
            fail_msg("%s: does not come back: %d %s", where, rc, w->err.msg);
        }
    }
    world_close(w);
    assert_int_equal(fault_sim_n_resyncs(w->sim), 0);
    const struct fault_cut all = {.kind = FAULT_CUT_ALL}, synced = {.kind = FAULT_CUT_SYNCED};
    fault_sim_plan(w->sim, NULL);
    /* With another drive lost or rotten, or none else, nothing can be said of what is left. */
    if (!s->is_drive_lost_before && (s->copies > 1 || rc == 0)) {
        look(w, &all, 0, where);
        look(w, &synced, 0, where);
    }
    world_free(w);
    *ret_is_over = !has_failed;
}

static void test_failing_calls(void **state)
{
    static const int codes[] = {-EIO, -ENOSPC};
    for (size_t i = 0; i < ARRAY_LEN(scenarios); i++) {
        for (size_t c = 0; c < ARRAY_LEN(codes); c++) {
            bool is_over = false;
            for (uint64_t k = 1; !is_over; k++) {
                failing_call(&scenarios[i], k, codes[c], &is_over);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_cuts),
        cmocka_unit_test(test_failing_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
