#include "ostore/ostore_int.h"
#include "ostore/ostore_world.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* What must not get lost, and what must not come back, when something went wrong before. */

static int n_shards;

static int count_shard(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    n_shards += kind == FTW_F && strstr(path, "/data/") != NULL;
    return 0;
}

static int shards_of(const struct world *w)
{
    n_shards = 0;
    for (unsigned i = 0; i < w->o.n_drives; i++) {
        assert_int_equal(nftw(w->drives[i], count_shard, 16, FTW_PHYS), 0);
    }
    return n_shards;
}

/* The record may be durable although the change failed: then the next start names the files. */
static void a_change_in_doubt_keeps_the_files_of_its_body(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    world_open(&w);
    struct oput *p = world_body(&w, world_bytes(&w, 400000, 1));
    assert_non_null(p);
    assert_int_equal(shards_of(&w), 1);
    ostore_fail(w.s, "the index could not be written");
    oput_free(p);
    world_close(&w); /* whatever was to be removed is */
    assert_int_equal(shards_of(&w), 1);
    world_done(&w);
}

static void flip(const struct world *w, unsigned drive, unsigned segment, off_t off)
{
    char path[192], c = 0;
    (void)snprintf(path, sizeof(path), "%s/log/seg-%016x", w->drives[drive], segment);
    AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, off), 1);
    c = (char)(c ^ 0x40);
    assert_int_equal(pwrite(fd, &c, 1, off), 1);
}

static void scrub(struct world *w, bool is_repair)
{
    struct ostore_scrub st;
    assert_ok(w, ostore_scrub_start(w->s, is_repair, &w->err));
    for (int i = 0; i < 400; i++) {
        ostore_scrub_status(w->s, &st);
        if (!st.is_running) {
            return;
        }
        (void)usleep(25000);
    }
    fail_msg("the scrub does not end");
}

/* What a damaged log does not name is not an orphan: the record may come back with a drive. */
static void a_scrub_of_a_damaged_store_removes_no_body(void **state)
{
    struct world w;
    struct oversion v;
    struct str got;
    world_init(&w, 1, 0);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    assert_ok(&w, world_put(&w, b, STR("a"), world_bytes(&w, 400000, 1), NULL));
    assert_ok(&w, world_put(&w, b, STR("z"), world_bytes(&w, 100, 2), NULL));
    assert_int_equal(ostore_get(w.s, b, STR("a"), NULL, 0, w.a, &v, NULL), 0);
    off_t off = v.off + 100;
    unsigned segment = (unsigned)v.segment;
    obucket_unref(b);
    world_close(&w);
    flip(&w, 0, segment, off);
    w.o.is_index_discarded = true;
    world_open(&w);
    struct ostore_stats st;
    ostore_stats(w.s, &st);
    assert_true(st.is_readonly);
    scrub(&w, true);
    scrub(&w, false);
    world_close(&w);
    flip(&w, 0, segment, off); /* as when the drive with the good copy is there again */
    world_open(&w);
    ostore_stats(w.s, &st);
    assert_false(st.is_readonly); /* and to look at the damage did not make it stay */
    b = world_bucket(&w, "films");
    assert_ok(&w, world_read(&w, b, STR("a"), NULL, &got, NULL));
    assert_int_equal(got.n, 400000);
    assert_ok(&w, world_put(&w, b, STR("new"), world_bytes(&w, 100, 3), NULL));
    obucket_unref(b);
    world_done(&w);
}

/* Whoever only looks removes nothing. */
static void a_scrub_that_does_not_repair_sweeps_nothing(void **state)
{
    struct world w;
    char path[256];
    world_init(&w, 1, 0);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    assert_ok(&w, world_put(&w, b, STR("a"), world_bytes(&w, 400000, 1), NULL));
    obucket_unref(b);
    struct oput *p = world_body(&w, world_bytes(&w, 400000, 2));
    char hex[3];
    (void)snprintf(hex, sizeof(hex), "%02x", oput_body(p)->id[0]);
    oput_free(p);
    for (int i = 0; i < 400 && shards_of(&w) > 1; i++) {
        (void)usleep(25000);
    }
    assert_int_equal(shards_of(&w), 1);
    (void)snprintf(path, sizeof(path), "%s/data/%s/%s112233445566778899aabbccddeeff.0",
                   w.drives[0], hex, hex);
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    scrub(&w, false);
    assert_int_equal(shards_of(&w), 2);
    scrub(&w, true);
    assert_int_equal(shards_of(&w), 1);
    world_done(&w);
}

static void put_many(struct world *w, const struct obucket *b, char first, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "%c%02u", first, i);
        assert_ok(w, world_put(w, b, str_c(key), world_bytes(w, 4000, i), NULL));
    }
}

/* A rebuilt index does not know of overwritten records that are still in the log: tombstones that
 * are made later must hold them down all the same. */
static void the_deleted_stays_deleted_after_two_rebuilds(void **state)
{
    struct world w;
    uint64_t freed = 0;
    struct str got;
    world_init(&w, 1, 0);
    w.o.segment_size = 65536;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    /* A segment that lives on, with the first body of a key in it. */
    assert_ok(&w, world_put(&w, b, STR("key"), world_bytes(&w, 1000, 1), NULL));
    put_many(&w, b, 'a', 15);
    /* The next, which dies: with the second body. */
    assert_ok(&w, world_put(&w, b, STR("key"), world_bytes(&w, 1000, 2), NULL));
    put_many(&w, b, 'f', 12);
    obucket_unref(b);
    world_again(&w, true);
    b = world_bucket(&w, "films");
    assert_ok(&w, world_delete(&w, b, STR("key"), NULL, NULL));
    for (unsigned i = 0; i < 12; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "f%02u", i);
        assert_ok(&w, world_delete(&w, b, str_c(key), NULL, NULL));
    }
    obucket_unref(b);
    for (int i = 0; i < 3; i++) {
        world_again(&w, false); /* each start begins a new segment */
        assert_ok(&w, ostore_compact(w.s, &freed, &w.err));
    }
    world_again(&w, true);
    b = world_bucket(&w, "films");
    assert_int_equal(world_read(&w, b, STR("key"), NULL, &got, NULL), -ENOENT);
    assert_int_equal(b->n_objects, 15);
    obucket_unref(b);
    world_done(&w);
}

/* Another account may have made a bucket of that name meanwhile. */
static void a_bucket_that_was_made_anew_is_another(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    world_open(&w);
    const struct obucket *old = world_bucket(&w, "films");
    assert_ok(&w, ostore_bucket_delete(w.s, STR("films"), old->number, &w.err));
    assert_ok(&w, ostore_bucket_create(w.s, STR("films"), STR("444455556666"), STR("eu-west-1"),
                                       &w.err));
    assert_int_equal(ostore_bucket_configure(w.s, STR("films"), old->number, OCONF_LIFECYCLE,
                                             STR("<all/>"), &w.err),
                     -ENOENT);
    err_clear(&w.err);
    assert_int_equal(ostore_bucket_delete(w.s, STR("films"), old->number, &w.err), -ENOENT);
    assert_string_equal(w.err.name, "NoSuchBucket");
    obucket_unref(old);
    const struct obucket *now = world_bucket(&w, "films");
    assert_int_equal(now->conf[OCONF_LIFECYCLE].n, 0);
    obucket_unref(now);
    world_done(&w);
}

/* An index that was left on a drive which was away knows nothing of what was removed from the log
 * meanwhile. */
static void a_drive_that_comes_back_brings_no_old_index(void **state)
{
    struct world w;
    uint64_t freed = 0;
    struct str got;
    char away[200];
    world_init(&w, 1, 1);
    w.o.segment_size = 65536;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    assert_ok(&w, world_put(&w, b, STR("key"), world_bytes(&w, 1000, 1), NULL));
    put_many(&w, b, 'a', 3);
    obucket_unref(b);
    world_close(&w);
    (void)snprintf(away, sizeof(away), "%s.away", w.drives[0]);
    assert_int_equal(rename(w.drives[0], away), 0);
    world_open(&w);
    b = world_bucket(&w, "films");
    assert_ok(&w, world_delete(&w, b, STR("key"), NULL, NULL));
    put_many(&w, b, 'a', 15);
    put_many(&w, b, 'a', 15); /* what came before is dead, all of it */
    obucket_unref(b);
    for (int i = 0; i < 4; i++) {
        world_again(&w, false); /* each start begins a new segment */
        assert_ok(&w, ostore_compact(w.s, &freed, &w.err));
    }
    world_close(&w);
    (void)rmdir(w.drives[0]);
    assert_int_equal(rename(away, w.drives[0]), 0);
    world_open(&w);
    b = world_bucket(&w, "films");
    assert_int_equal(world_read(&w, b, STR("key"), NULL, &got, NULL), -ENOENT);
    assert_int_equal(b->n_objects, 15);
    obucket_unref(b);
    world_done(&w);
}

/* A door to the file system behind which writes to the bodies of one drive take two seconds. */
struct slow_door {
    struct fault_fs fs;
    atomic_bool is_slow;
};

static int64_t pass_slowly(struct fault_fs *fs, const struct fault_call *c)
{
    struct slow_door *d = CONTAINER_OF(fs, struct slow_door, fs);
    char link[64], path[256] = "";
    if (atomic_load(&d->is_slow) && c->op == FAULT_PWRITE) {
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", c->fd);
        ssize_t n = readlink(link, path, sizeof(path) - 1);
        if (n > 0 && strstr(path, "/d1/data/")) {
            (void)usleep(2000000);
        }
    }
    return fault_direct(c);
}

/* Loops of HTTP give bodies up when clients leave: they serve everybody else meanwhile. */
static void to_give_up_a_body_does_not_wait_for_a_drive(void **state)
{
    struct world w;
    struct slow_door d = {.fs = {.call = pass_slowly}};
    struct oput *p = NULL;
    const struct oput_opts o = {.size = 10000000};
    world_init(&w, 1, 1);
    w.o.fs = &d.fs;
    world_open(&w);
    struct str body = world_bytes(&w, 700000, 1);
    assert_ok(&w, oput_new(w.s, &o, &p, &w.err));
    assert_ok(&w, oput_add(p, body, &w.err));
    (void)usleep(300000);
    atomic_store(&d.is_slow, true);
    assert_ok(&w, oput_add(p, str_n(body.p, 140000), &w.err));
    (void)usleep(100000);
    uint64_t begun = time_mono_ns();
    oput_free(p);
    uint64_t took = time_mono_ns() - begun;
    atomic_store(&d.is_slow, false);
    assert_true(took < NS_PER_S);
    world_close(&w);
    assert_int_equal(shards_of(&w), 0);
    w.o.fs = NULL;
    world_done(&w);
}

struct put_job {
    struct world *w;
    struct ochange c;
    atomic_bool is_over;
};

static void *put_and_wait(void *arg)
{
    struct put_job *j = arg;
    (void)ochange_wait(j->w->s, &j->c);
    atomic_store(&j->is_over, true);
    return NULL;
}

/* Who waits for an index that cannot be written must not keep the service from its end. */
static void an_end_is_not_kept_waiting_by_a_full_index(void **state)
{
    struct world w;
    struct rlimit was, small;
    uint64_t freed = 0;
    pthread_t t;
    char key[64];
    world_init(&w, 1, 0);
    w.o.segment_size = 65536;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    for (unsigned i = 0; i < 900; i++) {
        struct str etag = world_bytes(&w, 64, i); /* that cannot be made smaller */
        struct ochange c = {.cond = OCHANGE_IF_NONE, .rec.etag = etag};
        (void)snprintf(key, sizeof(key), "k%u", i);
        assert_ok(&w,
                  world_put(&w, b, str_c(key), world_bytes(&w, i < 800 ? 10 : 4000, i), &c));
    }
    put_many(&w, b, 'a', 40);
    put_many(&w, b, 'a', 40);
    put_many(&w, b, 'a', 40);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){.rlim_cur = 65536, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_true(ostore_compact(w.s, &freed, &w.err) < 0); /* it flushes the index first */
    struct put_job j = {.w = &w,
                        .c = {.kind = OCHANGE_PUT, .bucket = b, .cond = OCHANGE_IF_NONE}};
    j.c.rec.key = STR("last");
    j.c.rec.etag = STR("00112233445566778899aabbccddeeff");
    assert_int_equal(pthread_create(&t, NULL, put_and_wait, &j), 0);
    (void)usleep(600000);
    assert_false(atomic_load(&j.is_over));
    ostore_hurry(w.s);
    for (int i = 0; i < 200 && !atomic_load(&j.is_over); i++) {
        (void)usleep(50000);
    }
    assert_true(atomic_load(&j.is_over));
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(j.c.rc < 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    obucket_unref(b);
    world_again(&w, false);
    b = world_bucket(&w, "films");
    assert_int_equal(b->n_objects, 941); /* the last one too: it was in the log */
    obucket_unref(b);
    world_done(&w);
}

/* A bucket with many uploads that nobody completed goes quickly: they share syncs. */
static void uploads_go_with_their_bucket_together(void **state)
{
    enum { UPLOADS = 1500 };
    struct world w;
    struct ostore_stats before, after;
    world_init(&w, 1, 0);
    w.o.is_sync_off = true;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    for (unsigned i = 0; i < UPLOADS; i++) {
        char key[16];
        struct ochange c = {.kind = OCHANGE_UPLOAD, .bucket = b, .cond = OCHANGE_IF_NONE};
        (void)snprintf(key, sizeof(key), "k-%u", i);
        c.rec.key = str_c(key);
        assert_int_equal(ochange_wait(w.s, &c), 0);
    }
    obucket_unref(b);
    ostore_stats(w.s, &before);
    assert_int_equal(before.n_uploads, UPLOADS);
    assert_ok(&w, ostore_bucket_delete(w.s, STR("films"), 0, &w.err));
    ostore_stats(w.s, &after);
    assert_int_equal(after.n_uploads, 0);
    /* One each would be as many as there are; how many meet in one batch is chance. */
    assert_in_range(after.n_syncs - before.n_syncs, 2, UPLOADS / 5);
    world_done(&w);
}

int main(int argc, char **argv)
{
    if (argc > 1) { /* a part of a test's name: only that one */
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_in_doubt_keeps_the_files_of_its_body),
        cmocka_unit_test(a_scrub_of_a_damaged_store_removes_no_body),
        cmocka_unit_test(a_scrub_that_does_not_repair_sweeps_nothing),
        cmocka_unit_test(uploads_go_with_their_bucket_together),
        cmocka_unit_test(the_deleted_stays_deleted_after_two_rebuilds),
        cmocka_unit_test(a_bucket_that_was_made_anew_is_another),
        cmocka_unit_test(a_drive_that_comes_back_brings_no_old_index),
        cmocka_unit_test(to_give_up_a_body_does_not_wait_for_a_drive),
        cmocka_unit_test(an_end_is_not_kept_waiting_by_a_full_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
