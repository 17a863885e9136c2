#include "ostore/ostore_world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Parts of the log are damaged on all drives: the store says what is lost, takes no changes, and
 * goes on when somebody accepts that. */

enum { OBJECTS = 60 };

static struct str key_of(unsigned i, char buf[16])
{
    int n = snprintf(buf, 16, "k-%03u", i);
    return str_n(buf, (size_t)n);
}

static void fill(struct world *w)
{
    const struct obucket *b = world_bucket(w, "films");
    char key[16];
    for (unsigned i = 0; i < OBJECTS; i++) {
        assert_ok(w, world_put(w, b, key_of(i, key), world_bytes(w, 9000, i), NULL));
    }
    obucket_unref(b);
}

/* How many are there, all of them as they were put. */
static unsigned count(struct world *w)
{
    const struct obucket *b = world_bucket(w, "films");
    unsigned n = 0;
    for (unsigned i = 0; i < OBJECTS; i++) {
        char key[16];
        struct str got;
        int rc = world_read(w, b, key_of(i, key), NULL, &got, NULL);
        if (rc == 0) {
            n++;
            assert_true(str_eq(got, world_bytes(w, 9000, i)));
        } else {
            assert_int_equal(rc, -ENOENT);
        }
    }
    obucket_unref(b);
    arena_reset(w->a);
    return n;
}

static void place_of(struct world *w, unsigned i, struct oversion *ret)
{
    char key[16];
    const struct obucket *b = world_bucket(w, "films");
    assert_ok(w, ostore_get(w->s, b, key_of(i, key), NULL, 0, w->a, ret, &w->err));
    obucket_unref(b);
}

static void spoil(const struct world *w, uint64_t segment, off_t off)
{
    for (unsigned i = 0; i < w->o.n_drives; i++) {
        char path[192];
        (void)snprintf(path, sizeof(path), "%s/log/seg-%016llx", w->drives[i],
                       (unsigned long long)segment);
        AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd >= 0) {
            assert_int_equal(pwrite(fd, "damagedamage", 12, off), 12);
        }
    }
}

static bool is_readonly(struct world *w)
{
    struct ostore_stats st;
    ostore_stats(w->s, &st);
    return st.is_readonly;
}

static void begin(struct world *w, unsigned m)
{
    world_init(w, 1, m);
    w->o.segment_size = 256 << 10;
    world_open(w);
    fill(w);
}

static void accept(struct world *w)
{
    world_close(w);
    w->o.accept_loss = "tester (uid 1000)";
    world_open(w);
    w->o.accept_loss = NULL;
    assert_false(is_readonly(w));
}

/* It goes on, also after starts of both kinds, and what happened can be read on the drives. */
static void is_well(struct world *w, unsigned n)
{
    struct ostore_loss l;
    char path[192], text[4096];
    for (int turn = 0; turn < 3; turn++) {
        assert_int_equal(count(w), n);
        assert_ok(w, ostore_loss(w->s, w->a, &l, &w->err));
        assert_int_equal(l.n_what, 0);
        const struct obucket *b = world_bucket(w, "films");
        assert_ok(w, world_put(w, b, STR("after"), world_bytes(w, 5000, 7), NULL));
        obucket_unref(b);
        world_again(w, turn == 0);
        assert_false(is_readonly(w));
    }
    (void)snprintf(path, sizeof(path), "%s/losses.log", w->drives[0]);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, text, sizeof(text));
    assert_true(got > 0);
    struct str all = str_n(text, (size_t)got);
    assert_true(str_find_str(all, STR("\"accepted_by\":\"tester (uid 1000)\"")) >= 0);
    assert_true(str_find_str(all, STR("\"lost\":[\"")) >= 0);
}

static void a_record_in_the_middle(void **state)
{
    for (unsigned m = 0; m < 2; m++) {
        struct world w;
        struct oversion v;
        struct ostore_loss l;
        begin(&w, m);
        place_of(&w, 5, &v);
        uint64_t segment = v.segment;
        off_t off = v.off;
        world_close(&w);
        spoil(&w, segment, off + 20);
        /* With its index: the store does not notice by itself, and knows what it was. */
        world_open(&w);
        assert_false(is_readonly(&w));
        assert_ok(&w, ostore_loss(w.s, w.a, &l, &w.err));
        assert_int_equal(l.n_what, 1);
        assert_int_equal(l.n_objects, 1);
        assert_str(l.names[0], "films/k-005");
        /* Without: all is looked at. */
        world_again(&w, true);
        assert_true(is_readonly(&w));
        assert_int_equal(count(&w), OBJECTS - 1);
        assert_ok(&w, ostore_loss(w.s, w.a, &l, &w.err));
        assert_true(l.n_what > 0);
        const struct obucket *b = world_bucket(&w, "films");
        assert_int_equal(world_put(&w, b, STR("x"), STR("y"), NULL), -EROFS);
        obucket_unref(b);
        accept(&w);
        is_well(&w, OBJECTS - 1);
        world_done(&w);
    }
}

static void a_segment_without_a_header(void **state)
{
    struct world w;
    struct oversion v;
    begin(&w, 0);
    place_of(&w, 0, &v);
    uint64_t first = v.segment;
    place_of(&w, 30, &v);
    uint64_t segment = v.segment;
    assert_true(segment > first); /* the bucket's record is elsewhere */
    world_close(&w);
    spoil(&w, segment, 0);
    w.o.is_index_discarded = true;
    world_open(&w);
    w.o.is_index_discarded = false;
    assert_true(is_readonly(&w));
    unsigned n = count(&w);
    assert_in_range(n, 10, OBJECTS - 10);
    accept(&w);
    is_well(&w, n);
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/log/lost-seg-%016llx", w.drives[0],
                   (unsigned long long)segment);
    assert_int_equal(access(path, F_OK), 0); /* for whoever wants to try */
    world_done(&w);
}

/* Of the newest segment, behind what was acknowledged before. */
static void the_end_of_the_log(void **state)
{
    struct world w;
    struct oversion v;
    begin(&w, 0);
    place_of(&w, OBJECTS - 3, &v);
    uint64_t segment = v.segment;
    off_t off = v.off;
    world_close(&w);
    spoil(&w, segment, off + 20);
    w.o.is_index_discarded = true;
    world_open(&w);
    w.o.is_index_discarded = false;
    assert_true(is_readonly(&w));
    unsigned n = count(&w);
    assert_in_range(n, OBJECTS - 3, OBJECTS - 1);
    accept(&w);
    is_well(&w, n);
    world_done(&w);
}

static void nothing_is_lost(void **state)
{
    struct world w;
    begin(&w, 0);
    accept(&w);
    assert_int_equal(count(&w), OBJECTS);
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/losses.log", w.drives[0]);
    assert_true(access(path, F_OK) < 0);
    world_done(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_in_the_middle),
        cmocka_unit_test(a_segment_without_a_header),
        cmocka_unit_test(the_end_of_the_log),
        cmocka_unit_test(nothing_is_lost),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
