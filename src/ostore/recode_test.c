#include "ostore/recode.h"

#include "base/fault_sim.h"
#include "ostore/ostore_world.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bodies get a stronger code: the power goes at each sync, or one call fails for want of space.
 * Everything can be read before, meanwhile and afterwards, and no file is left that nobody
 * names. */

#define UPLOAD "parts"

struct crash {
    struct world w;
    struct fault_sim *sim;
    char live[96], index[96], cut[96];
};

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static bool pace(void *ctx, uint64_t n_bytes)
{
    return true;
}

static void put_upload(struct world *w, const struct obucket *b)
{
    struct ochange u = {.kind = OCHANGE_UPLOAD, .bucket = b, .cond = OCHANGE_IF_NONE};
    struct orec_part parts[2] = {{.number = 1, .size = 30000}, {.number = 2, .size = 40000}};
    u.rec.key = STR(UPLOAD);
    assert_int_equal(ochange_wait(w->s, &u), 0);
    for (unsigned i = 0; i < 2; i++) {
        struct ochange p = {.kind = OCHANGE_PART, .bucket = b, .cond = OCHANGE_IF_NONE};
        p.rec.key = u.rec.key;
        memcpy(p.rec.upload, u.rec.upload, sizeof(p.rec.upload));
        p.rec.part_number = parts[i].number;
        p.rec.size = parts[i].size;
        p.rec.etag = STR("00000000000000000000000000000000");
        p.body = world_body(w, world_bytes(w, (size_t)parts[i].size, 10 + i));
        assert_int_equal(ochange_wait(w->s, &p), 0);
        parts[i].lsn = p.lsn;
    }
    struct ochange c = {.kind = OCHANGE_COMPLETE, .bucket = b, .cond = OCHANGE_IF_NONE};
    c.rec.key = u.rec.key;
    memcpy(c.rec.upload, u.rec.upload, sizeof(c.rec.upload));
    c.rec.etag = STR("00000000000000000000000000000000-2");
    c.rec.parts = parts;
    c.rec.n_parts = 2;
    c.rec.size = 70000;
    assert_int_equal(ochange_wait(w->s, &c), 0);
}

static void check(struct world *w)
{
    const struct obucket *b = world_bucket(w, "films");
    struct str all = world_bytes(w, 30000, 10), rest = world_bytes(w, 40000, 11);
    char *p = arena_xalloc(w->a, 70000);
    memcpy(p, all.p, 30000);
    memcpy(p + 30000, rest.p, 40000);
    world_assert_body(w, b, STR("a"), NULL, world_bytes(w, 100000, 1));
    world_assert_body(w, b, STR("b"), NULL, world_bytes(w, 20000, 3));
    world_assert_body(w, b, STR(UPLOAD), NULL, str_n(p, 70000));
    struct olist_query q = {.kind = OLIST_VERSIONS, .max = 1000, .prefix = STR("b")};
    struct olist_page page;
    assert_int_equal(ostore_list(w->s, b, &q, w->a, &page, NULL), 0);
    assert_int_equal(page.n, 2);
    world_assert_body(w, b, STR("b"), page.v[1].version.rec.version, world_bytes(w, 300000, 2));
    obucket_unref(b);
    arena_reset(w->a);
}

static void fill(struct world *w)
{
    const char on = OSTORE_ENABLED;
    obucket_unref(world_bucket(w, "films"));
    assert_ok(w, ostore_bucket_configure(w->s, STR("films"), 0, OCONF_VERSIONING, str_n(&on, 1),
                                         &w->err));
    const struct obucket *b = world_bucket(w, "films");
    assert_ok(w, world_put(w, b, STR("a"), world_bytes(w, 100000, 1), NULL));
    assert_ok(w, world_put(w, b, STR("b"), world_bytes(w, 300000, 2), NULL));
    assert_ok(w, world_put(w, b, STR("b"), world_bytes(w, 20000, 3), NULL));
    put_upload(w, b);
    obucket_unref(b);
}

/* The files that the index names, and how many bodies are weak. */
static int named_files(struct world *w, unsigned *ret_weak)
{
    struct heal_cursor c = {.n = 0};
    struct arena *a = arena_new(1 << 20);
    struct file_place f;
    int n = 0, rc;
    *ret_weak = 0;
    while ((rc = files_next(w->s, &c, a, &f, &w->err)) > 0) {
        n += f.body.k + f.body.m;
        *ret_weak += recode_is_weak(w->s, &f.body);
    }
    assert_ok(w, rc);
    arena_free(a);
    return n;
}

/* All of them, as healing does it, which may be at it at the same time. The first failure. */
static int recode_all(struct world *w)
{
    struct heal_cursor c = {.n = 0};
    struct arena *a = arena_new(1 << 20);
    struct file_place f;
    int rc;
    while ((rc = files_next(w->s, &c, a, &f, NULL)) > 0) {
        struct err err = ERR_INIT;
        f.is_set = true;
        rc = recode_is_weak(w->s, &f.body) ? recode_body(w->s, &f, pace, NULL, &err) : 0;
        if (rc < 0 && rc != -ENOENT) {
            break;
        }
        arena_reset(a);
    }
    arena_free(a);
    return rc;
}

/* In the end all have the full code, and there is no file but theirs. */
static void finish(struct world *w)
{
    unsigned n_weak = 1;
    for (int i = 0; n_weak > 0; i++) {
        assert_true(i < 60); /* fullness is looked at once a second */
        if (recode_all(w) < 0) {
            (void)usleep(100000);
        }
        (void)named_files(w, &n_weak);
    }
    assert_int_equal(named_files(w, &n_weak), 15);
    check(w);
    struct ostore_scrub st = {.is_running = true};
    assert_ok(w, ostore_scrub_start(w->s, true, &w->err));
    for (int i = 0; st.is_running; i++) {
        assert_true(i < 2000);
        (void)usleep(5000);
        ostore_scrub_status(w->s, &st);
    }
    assert_int_equal(st.n_lost, 0);
    world_wait_for_files(w, 15);
}

static void begin(struct crash *c)
{
    memset(c, 0, sizeof(*c));
    struct world *w = &c->w;
    world_init(w, 2, 1);
    (void)snprintf(c->live, sizeof(c->live), "%s/live", w->dir.path);
    (void)snprintf(c->index, sizeof(c->index), "%s/index", w->dir.path);
    (void)snprintf(c->cut, sizeof(c->cut), "%s/cut", w->dir.path);
    assert_int_equal(mkdir(c->live, 0700), 0);
    for (unsigned i = 0; i < 3; i++) {
        (void)snprintf(w->paths[i], sizeof(w->paths[i]), "%s/d%u", c->live, i);
        assert_int_equal(mkdir(w->paths[i], 0700), 0);
    }
    w->o.index_path = c->index;
    w->o.inline_max = 8192;
    w->o.segment_size = 128 << 10;
    w->o.k = 1;
    world_open(w);
    fill(w);
    world_close(w);
    w->o.k = 2;
    c->sim = fault_sim_new(c->live, &w->err);
    assert_non_null(c->sim);
    w->o.fs = fault_sim_fs(c->sim);
    world_open(w);
}

static void done(struct crash *c)
{
    ostore_close(c->w.s);
    c->w.s = NULL;
    fault_sim_free(c->sim);
    world_done(&c->w);
}

static void all_of_them(void **state)
{
    struct crash c;
    unsigned n_weak = 0;
    begin(&c);
    assert_true(named_files(&c.w, &n_weak) >= 10);
    finish(&c.w);
    done(&c);
}

/* Somebody has the old body open: he reads it to its end, then its files go. */
static void a_reader_reads_on(void **state)
{
    struct crash c;
    struct oversion v;
    struct oread *r = NULL;
    begin(&c);
    struct world *w = &c.w;
    const struct obucket *b = world_bucket(w, "films");
    struct str want = world_bytes(w, 100000, 1);
    char *got = malloc(100000);
    assert_ok(w, ostore_get(w->s, b, STR("a"), NULL, 0, w->a, &v, &w->err));
    assert_ok(w, oread_open(w->s, &v, 0, &r, &w->err));
    for (unsigned n_weak = 1; n_weak > 0; (void)named_files(w, &n_weak)) {
        assert_int_equal(recode_all(w), 0);
    }
    world_wait_for_files(w, 15 + 2);
    assert_int_equal(oread_at(r, 0, got, 100000, 0, &w->err), 100000);
    assert_memory_equal(got, want.p, 100000);
    oread_close(r);
    obucket_unref(b);
    free(got);
    world_wait_for_files(w, 15);
    done(&c);
}

static void check_cut(struct crash *c, const struct fault_cut *cut, bool has_index)
{
    struct world w = {.o = c->w.o, .a = arena_new((size_t)64 << 20)};
    remove_tree(c->cut);
    if (fault_sim_cut(c->sim, cut, c->cut, &w.err) < 0) {
        fail_msg("cut: %s", w.err.msg);
    }
    if (!has_index) {
        remove_tree(c->index);
    }
    for (unsigned i = 0; i < 3; i++) {
        (void)snprintf(w.paths[i], sizeof(w.paths[i]), "%s/d%u", c->cut, i);
        w.drives[i] = w.paths[i];
    }
    (void)snprintf(w.dir.path, sizeof(w.dir.path), "%.60s", c->cut);
    w.o.drives = w.drives;
    w.o.fs = NULL;
    world_open(&w);
    check(&w);
    finish(&w);
    arena_free(w.a);
    ostore_close(w.s);
}

static void power_cut_at_every_sync(void **state)
{
    bool has_failed = true;
    for (uint64_t at = 1; has_failed; at++) {
        struct crash c;
        begin(&c);
        struct fault_plan plan = {.at = at,
                                  .code = -EIO,
                                  .ops = FAULT_SYNCS,
                                  .is_dead = true,
                                  .effect = at % 2 ? FAULT_NOTHING_DONE : FAULT_ALL_DONE};
        fault_sim_plan(c.sim, &plan);
        int rc = recode_all(&c.w);
        has_failed = fault_sim_has_failed(c.sim);
        assert_true(has_failed || rc == 0);
        arena_reset(c.w.a);
        ostore_close(c.w.s);
        c.w.s = NULL;
        assert_int_equal(fault_sim_n_resyncs(c.sim), 0);
        if (has_failed) {
            static const enum fault_cut_kind kinds[] = {FAULT_CUT_SYNCED, FAULT_CUT_ALL,
                                                        FAULT_CUT_DATA};
            const struct fault_cut cuts[] = {{.kind = kinds[at % ARRAY_LEN(kinds)]},
                                             {.kind = FAULT_CUT_RANDOM, .seed = at}};
            for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
                check_cut(&c, &cuts[i], i == 0 && at % 2);
            }
        } else {
            print_message("%llu syncs\n", (unsigned long long)at - 1);
        }
        done(&c);
    }
}

static void full_disk_at_every_call(void **state)
{
    bool has_failed = true;
    for (uint64_t at = 1; has_failed; at += 1 + at / 6) {
        struct crash c;
        begin(&c);
        struct fault_plan plan = {.at = at,
                                  .code = -ENOSPC,
                                  .ops = FAULT_BIT(FAULT_PWRITE) | FAULT_BIT(FAULT_ALLOCATE) |
                                         FAULT_BIT(FAULT_OPEN) | FAULT_BIT(FAULT_RENAME),
                                  .effect = at % 2 ? FAULT_NOTHING_DONE : FAULT_HALF_DONE};
        fault_sim_plan(c.sim, &plan);
        (void)recode_all(&c.w);
        has_failed = fault_sim_has_failed(c.sim);
        check(&c.w);
        finish(&c.w);
        world_again(&c.w, at % 2);
        finish(&c.w);
        done(&c);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) { /* a part of a test's name: only that one */
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_them),
        cmocka_unit_test(a_reader_reads_on),
        cmocka_unit_test(power_cut_at_every_sync),
        cmocka_unit_test(full_disk_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
