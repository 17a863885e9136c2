#include "ostore/ostore_world.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* Bodies on their way in: of any size, given up at any moment, too many at once. */

/* --- bodies on their way in --- */

static void bodies_of_any_manner(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    w.o.inline_max = 16384;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    struct str all = world_bytes(&w, 3000000, 7);
    /* Of unknown size, growing out of the log. */
    for (int turn = 0; turn < 4; turn++) {
        static const size_t sizes[] = {0, 16384, 16385, 3000000};
        struct oput *p = NULL;
        struct oput_opts o = {.size = -1};
        assert_ok(&w, oput_new(w.s, &o, &p, &w.err));
        for (size_t at = 0; at < sizes[turn];) {
            size_t n = MIN(sizes[turn] - at, (size_t)7001);
            assert_ok(&w, oput_add_wait(p, str_n(all.p + at, n), &w.err));
            at += n;
        }
        struct ochange c = {.kind = OCHANGE_PUT, .bucket = b, .cond = OCHANGE_IF_NONE};
        assert_int_equal(world_finish(&w, p), 0);
        c.body = p;
        c.rec.key = STR("k");
        assert_int_equal(ochange_wait(w.s, &c), 0);
        world_assert_body(&w, b, STR("k"), NULL, str_n(all.p, sizes[turn]));
    }
    world_wait_for_files(&w, 1);
    /* Given up at several moments: nothing stays. */
    for (int turn = 0; turn < 6; turn++) {
        struct oput *p = NULL;
        struct oput_opts o = {.size = turn % 2 ? 100000 : 10000};
        assert_ok(&w, oput_new(w.s, &o, &p, &w.err));
        assert_ok(&w, oput_add_wait(p, str_n(all.p, turn < 4 ? 9000 : (size_t)o.size), &w.err));
        if (turn >= 4) {
            assert_int_equal(world_finish(&w, p), 0);
        } else if (turn >= 2) {
            assert_int_equal(world_finish(&w, p), -EINVAL); /* fewer than announced */
        }
        oput_free(p);
    }
    world_wait_for_files(&w, 1);
    obucket_unref(b);
    world_done(&w);
}

/* --- given up --- */

struct slow {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    atomic_bool is_in, is_over;
    atomic_uint n;
};

static void hash_slowly(void *ctx, struct str bytes)
{
    struct slow *s = ctx;
    assert_false(atomic_load(&s->is_over)); /* nothing is called after oput_free() */
    atomic_store(&s->is_in, true);
    (void)usleep(2000);
    atomic_fetch_add(&s->n, (unsigned)(bytes.n > 0));
    atomic_store(&s->is_in, false);
    assert_false(atomic_load(&s->is_over));
}

static void given_up_while_it_is_hashed(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    w.o.inline_max = 4096;
    world_open(&w);
    struct str all = world_bytes(&w, 600000, 7);
    for (unsigned i = 0; i < 60; i++) {
        struct slow s = {.lock = PTHREAD_MUTEX_INITIALIZER};
        struct oput *p = NULL;
        struct oput_opts o = {.size = i % 2 ? 700000 : -1, .on_bytes = hash_slowly, .ctx = &s};
        assert_ok(&w, oput_new(w.s, &o, &p, &w.err));
        assert_true(oput_add(p, all, &w.err) >= 0);
        for (unsigned k = 0; k < 2000 && !atomic_load(&s.is_in) && i % 3; k++) {
            (void)usleep(20);
        }
        (void)usleep(i * 100);
        oput_free(p);
        atomic_store(&s.is_over, true);
        assert_false(atomic_load(&s.is_in));
    }
    world_wait_for_files(&w, 0);
    world_done(&w);
}

/* --- waiting --- */

struct ready {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned n;
    uint64_t seen;
};

static void on_ready(void *ctx)
{
    struct ready *r = ctx;
    pthread_mutex_lock(&r->lock);
    r->n++;
    pthread_cond_signal(&r->cond);
    pthread_mutex_unlock(&r->lock);
}

static void count_bytes(void *ctx, struct str bytes)
{
    ((struct ready *)ctx)->seen += bytes.n;
}

/* A loop adds without waiting: told to wait, it goes on after on_ready(), which comes each time. */
static void a_loop_is_told_when_there_is_room(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    w.o.inline_max = 4096;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    struct str all = world_bytes(&w, 8000000, 9);
    struct ready r = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct oput *p = NULL;
    struct oput_opts o = {
        .size = (int64_t)all.n, .on_bytes = count_bytes, .on_ready = on_ready, .ctx = &r};
    assert_ok(&w, oput_new(w.s, &o, &p, &w.err));
    unsigned n_waits = 0;
    for (size_t at = 0; at < all.n;) {
        size_t n = MIN(all.n - at, (size_t)300000);
        int rc = oput_add(p, str_n(all.p + at, n), &w.err);
        assert_true(rc >= 0);
        at += n;
        if (rc == OPUT_WAIT) {
            n_waits++;
            pthread_mutex_lock(&r.lock);
            while (r.n < n_waits) {
                pthread_cond_wait(&r.cond, &r.lock);
            }
            pthread_mutex_unlock(&r.lock);
        }
    }
    assert_true(n_waits > 0);
    assert_int_equal(world_finish(&w, p), 0);
    assert_int_equal(r.seen, all.n);
    struct ochange c = {.kind = OCHANGE_PUT, .bucket = b, .cond = OCHANGE_IF_NONE, .body = p};
    c.rec.key = STR("k");
    assert_int_equal(ochange_wait(w.s, &c), 0);
    world_assert_body(&w, b, STR("k"), NULL, all);
    obucket_unref(b);
    world_done(&w);
}

/* Memory of uploads is bounded: who comes too late is told to come again, and can. */
static void too_many_uploads_are_told_to_slow_down(void **state)
{
    enum { MANY = 400 };
    struct world w;
    world_init(&w, 1, 0);
    world_open(&w);
    struct oput *v[MANY];
    struct oput_opts o = {.size = 100000000};
    unsigned n = 0;
    int rc = 0;
    while (n < MANY && (rc = oput_new(w.s, &o, &v[n], &w.err)) == 0) {
        n++;
    }
    assert_true(n > 100 && n < MANY);
    assert_int_equal(rc, -EAGAIN);
    assert_string_equal(w.err.name, "SlowDown");
    oput_free(v[--n]);
    assert_int_equal(oput_new(w.s, &o, &v[n], NULL), 0);
    for (unsigned i = 0; i <= n; i++) {
        oput_free(v[i]);
    }
    world_done(&w);
}

/* However many slow uploads somebody has, of one account or from one address, others get in. */
static void nobody_keeps_others_from_uploading(void **state)
{
    enum { MANY = 400 };
    static const struct {
        struct str account, address;
    } greedy[] = {
        {STR("1"), STR_NONE}, {STR_NONE, STR("10.0.0.1")}, {STR("1"), STR("10.0.0.1")}};
    struct world w;
    world_init(&w, 1, 0);
    world_open(&w);
    for (size_t turn = 0; turn < ARRAY_LEN(greedy); turn++) {
        struct oput *v[MANY], *other = NULL;
        struct oput_opts o = {.size = 100000000,
                              .account = greedy[turn].account,
                              .address = greedy[turn].address};
        struct oput_opts o2 = {
            .size = 100000000, .account = STR("2"), .address = STR("10.0.0.2")};
        unsigned n = 0;
        while (n < MANY && oput_new(w.s, &o, &v[n], &w.err) == 0) {
            n++;
        }
        assert_in_range(n, 100, 200);
        assert_string_equal(w.err.name, "SlowDown");
        err_clear(&w.err);
        assert_ok(&w, oput_new(w.s, &o2, &other, &w.err));
        oput_free(other);
        while (n) {
            oput_free(v[--n]);
        }
    }
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_of_any_manner),
        cmocka_unit_test(given_up_while_it_is_hashed),
        cmocka_unit_test(a_loop_is_told_when_there_is_room),
        cmocka_unit_test(too_many_uploads_are_told_to_slow_down),
        cmocka_unit_test(nobody_keeps_others_from_uploading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
