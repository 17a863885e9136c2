#include "ostore/ostore_world.h"

#include "base/time.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Drives go and come: nothing that was answered is lost, and writes go on. */

static const size_t sizes[] = {0, 3000, 60000, 700000, 3000000};

static void put_all(struct world *w, const struct obucket *b, const char *prefix, uint32_t seed)
{
    for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char key[32];
        (void)snprintf(key, sizeof(key), "%s-%u", prefix, i);
        assert_ok(w, world_put(w, b, str_c(key), world_bytes(w, sizes[i], seed + i), NULL));
    }
}

static void check_all(struct world *w, const struct obucket *b, const char *prefix,
                      uint32_t seed)
{
    for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char key[32];
        (void)snprintf(key, sizeof(key), "%s-%u", prefix, i);
        world_assert_body(w, b, str_c(key), NULL, world_bytes(w, sizes[i], seed + i));
    }
    arena_reset(w->a);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    return remove(path);
}

static void empty_folder(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void wait_until_well(struct world *w, unsigned idx)
{
    struct drive_facts f;
    for (int i = 0; i < 400; i++) {
        drives_facts(ostore_drives(w->s), idx, &f);
        if (f.state == DRIVE_OK) {
            return;
        }
        (void)usleep(50000);
    }
    fail_msg("drive %u is not healed: state %d %s", idx, (int)f.state, f.why);
}

/* Each of three drives is lost once, replaced and healed: nothing of the first one's is needed in
 * the end. */
static void every_drive_is_lost_once(void **state)
{
    struct world w;
    world_init(&w, 2, 1);
    w.o.inline_max = 16384;
    w.o.segment_size = 1 << 20;
    /* Not on a drive: it would have to be replayed with the first one. */
    char index[160];
    (void)snprintf(index, sizeof(index), "%s/index", w.dir.path);
    w.o.index_path = index;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    put_all(&w, b, "before", 1);
    obucket_unref(b);
    for (unsigned idx = 0; idx < 3; idx++) {
        char prefix[16];
        (void)snprintf(prefix, sizeof(prefix), "without-%u", idx);
        world_close(&w);
        empty_folder(w.drives[idx]);
        world_open(&w);
        b = world_bucket(&w, "films");
        check_all(&w, b, "before", 1);
        put_all(&w, b, prefix, 100 * (idx + 1));
        check_all(&w, b, prefix, 100 * (idx + 1));
        assert_ok(&w, ostore_drive_replace(w.s, idx, &w.err));
        wait_until_well(&w, idx);
        check_all(&w, b, "before", 1);
        obucket_unref(b);
    }
    world_again(&w, true);
    struct ostore_stats st;
    ostore_stats(w.s, &st);
    assert_false(st.is_readonly);
    assert_int_equal(st.n_objects, 4 * ARRAY_LEN(sizes));
    b = world_bucket(&w, "films");
    check_all(&w, b, "before", 1);
    check_all(&w, b, "without-0", 100);
    check_all(&w, b, "without-1", 200);
    check_all(&w, b, "without-2", 300);
    obucket_unref(b);
    world_done(&w);
}

/* The drive with the index is away: another has it made anew. */
static void the_index_goes_with_its_drive(void **state)
{
    struct world w;
    world_init(&w, 1, 1);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    put_all(&w, b, "k", 1);
    obucket_unref(b);
    world_close(&w);
    char away[160];
    (void)snprintf(away, sizeof(away), "%s.away", w.drives[0]);
    assert_int_equal(rename(w.drives[0], away), 0);
    assert_int_equal(mkdir(w.drives[0], 0700), 0);
    world_open(&w);
    b = world_bucket(&w, "films");
    check_all(&w, b, "k", 1);
    put_all(&w, b, "more", 50);
    assert_ok(&w, world_delete(&w, b, STR("k-1"), NULL, NULL));
    obucket_unref(b);
    world_close(&w);
    /* It comes back as it was, with an index of before: it is not believed. */
    (void)nftw(w.drives[0], remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(rename(away, w.drives[0]), 0);
    world_open(&w);
    b = world_bucket(&w, "films");
    check_all(&w, b, "more", 50);
    struct str got;
    assert_int_equal(world_read(&w, b, STR("k-1"), NULL, &got, NULL), -ENOENT);
    obucket_unref(b);
    world_done(&w);
}

static void take_away(struct world *w, unsigned idx, char away[160])
{
    (void)snprintf(away, 160, "%s/away", w->dir.path);
    assert_int_equal(rename(w->drives[idx], away), 0);
    assert_int_equal(mkdir(w->drives[idx], 0700), 0);
}

static void bring_back(struct world *w, unsigned idx, const char *away)
{
    (void)nftw(w->drives[idx], remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(rename(away, w->drives[idx]), 0);
}

static int files_of(const struct world *w, unsigned idx)
{
    struct world one = *w;
    (void)snprintf(one.dir.path, sizeof(one.dir.path), "%.*s", (int)sizeof(one.dir.path) - 1,
                   w->drives[idx]);
    return world_files(&one);
}

static void scrub(struct world *w)
{
    struct ostore_scrub st;
    assert_ok(w, ostore_scrub_start(w->s, true, &w->err));
    for (int i = 0; i < 200; i++) {
        ostore_scrub_status(w->s, &st);
        if (!st.is_running) {
            assert_int_equal(st.n_lost, 0);
            return;
        }
        (void)usleep(50000);
    }
    fail_msg("the scrub does not end");
}

/* A drive was away for so long that its shards were made on others; then it is there again: what
 * it has of them is of no use to anybody. */
static void shards_that_were_moved_do_not_stay_where_they_were(void **state)
{
    enum { BODIES = 6 };
    struct world w;
    char away[160], key[16];
    world_init(&w, 3, 1);
    w.o.k = 2;
    w.o.inline_max = 16384;
    w.o.heal_look_ns = 50 * NS_PER_MS;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    for (uint32_t i = 0; i < BODIES; i++) {
        (void)snprintf(key, sizeof(key), "k-%u", i);
        assert_ok(&w, world_put(&w, b, str_c(key), world_bytes(&w, 300000, i), NULL));
    }
    obucket_unref(b);
    world_close(&w);
    int n_moved = files_of(&w, 1);
    assert_true(n_moved > 0);
    take_away(&w, 1, away);
    w.o.move_after_ns = 1;
    world_open(&w);
    int n = 0;
    for (int i = 0; i < 200 && n < 3 * BODIES; i++) {
        (void)usleep(50000);
        n = files_of(&w, 0) + files_of(&w, 2) + files_of(&w, 3);
    }
    (void)usleep(100000); /* the last record */
    assert_int_equal(n, 3 * BODIES);
    world_close(&w);
    bring_back(&w, 1, away);
    world_open(&w);
    wait_until_well(&w, 1);
    assert_int_equal(files_of(&w, 1), n_moved);
    scrub(&w);
    assert_int_equal(files_of(&w, 1), 0);
    b = world_bucket(&w, "films");
    for (uint32_t i = 0; i < BODIES; i++) {
        (void)snprintf(key, sizeof(key), "k-%u", i);
        world_assert_body(&w, b, str_c(key), NULL, world_bytes(&w, 300000, i));
    }
    obucket_unref(b);
    assert_int_equal(world_files(&w), 3 * BODIES);
    world_done(&w);
}

static void wait_for_code(struct world *w, const struct obucket *b, struct str key, unsigned k,
                          unsigned m)
{
    struct oversion v;
    for (int i = 0; i < 400; i++) {
        arena_reset(w->a);
        assert_ok(w, ostore_get(w->s, b, key, NULL, 0, w->a, &v, &w->err));
        if (v.rec.body.k == k && v.rec.body.m == m) {
            return;
        }
        (void)usleep(50000);
    }
    fail_msg("%.*s: the code is RS(%u,%u)", STR_ARG(key), v.rec.body.k, v.rec.body.m);
}

/* What was written while a drive was away survives as much as everything else, when all are
 * there again; also when nobody remembers that there is something to do. */
static void bodies_of_a_weak_time_get_the_full_code(void **state)
{
    for (unsigned turn = 0; turn < 2; turn++) {
        struct world w;
        char away[160];
        world_init(&w, 2, 1);
        w.o.inline_max = 16384;
        w.o.heal_look_ns = 50 * NS_PER_MS;
        world_open(&w);
        obucket_unref(world_bucket(&w, "films"));
        world_close(&w);
        take_away(&w, 2, away);
        world_open(&w);
        const struct obucket *b = world_bucket(&w, "films");
        put_all(&w, b, "k", 1);
        wait_for_code(&w, b, STR("k-3"), 1, 1);
        if (turn == 0) {
            obucket_unref(b);
            world_close(&w);
            bring_back(&w, 2, away);
            world_open(&w);
            b = world_bucket(&w, "films");
            wait_until_well(&w, 2);
            scrub(&w);
        } else {
            assert_ok(&w, ostore_drive_replace(w.s, 2, &w.err));
            wait_until_well(&w, 2);
        }
        wait_for_code(&w, b, STR("k-2"), 2, 1);
        wait_for_code(&w, b, STR("k-3"), 2, 1);
        wait_for_code(&w, b, STR("k-4"), 2, 1);
        check_all(&w, b, "k", 1);
        (void)nftw(away, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        world_wait_for_files(&w, 9);
        obucket_unref(b);
        world_again(&w, true);
        b = world_bucket(&w, "films");
        assert_int_equal(b->n_bytes, 0 + 3000 + 60000 + 700000 + 3000000);
        assert_int_equal(b->n_objects, ARRAY_LEN(sizes));
        check_all(&w, b, "k", 1);
        wait_for_code(&w, b, STR("k-4"), 2, 1);
        obucket_unref(b);
        world_done(&w);
    }
}

/* A write finds its folder there; a drive that was replaced gets them, too. */
static void folders_are_made_ahead(void **state)
{
    struct world w;
    char path[160];
    world_init(&w, 1, 1);
    w.o.makes_folders = true;
    w.o.inline_max = 16384;
    for (int turn = 0; turn < 2; turn++) { /* the second start finds them */
        world_open(&w);
        for (unsigned drive = 0; drive < 2; drive++) {
            (void)snprintf(path, sizeof(path), "%s/data/ff", w.drives[drive]);
            for (int i = 0; i < 200 && access(path, F_OK) < 0; i++) {
                (void)usleep(20000);
            }
            for (unsigned first = 0; first < 256; first++) {
                (void)snprintf(path, sizeof(path), "%s/data/%02x", w.drives[drive], first);
                assert_int_equal(access(path, F_OK), 0);
            }
        }
        const struct obucket *b = world_bucket(&w, "films");
        put_all(&w, b, "k", 1);
        check_all(&w, b, "k", 1);
        obucket_unref(b);
        world_close(&w);
    }
    world_done(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_drive_is_lost_once),
        cmocka_unit_test(the_index_goes_with_its_drive),
        cmocka_unit_test(folders_are_made_ahead),
        cmocka_unit_test(shards_that_were_moved_do_not_stay_where_they_were),
        cmocka_unit_test(bodies_of_a_weak_time_get_the_full_code),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
