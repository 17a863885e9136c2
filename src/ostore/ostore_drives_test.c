#include "ostore/ostore_world.h"

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_drive_is_lost_once),
        cmocka_unit_test(the_index_goes_with_its_drive),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
