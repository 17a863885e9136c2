/* A log while a drive hangs, and under many threads (also for the thread sanitizer). */
#include "ostore/olog.h"

#include "base/test.h"
#include "base/time.h"
#include "ostore/olog_world.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static void check(struct world *w)
{
    const char *what = world_check(w);
    if (what) {
        fail_msg("%s", what);
    }
}

static int count(void *ctx, const struct olog_rec *r, struct err *err)
{
    ++*(uint64_t *)ctx;
    return 0;
}

/* --- a drive that does not answer --- */

struct stall_fs {
    struct fault_fs fs;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool is_stalled;
    unsigned n_stalled;
};

static int64_t stall_call(struct fault_fs *fs, const struct fault_call *c)
{
    struct stall_fs *s = CONTAINER_OF(fs, struct stall_fs, fs);
    pthread_mutex_lock(&s->lock);
    if (s->is_stalled && c->op == FAULT_FDATASYNC) {
        char link[64], path[256] = "";
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", c->fd);
        (void)!readlink(link, path, sizeof(path) - 1);
        if (strstr(path, "/d1/")) {
            s->n_stalled++;
            while (s->is_stalled) {
                pthread_cond_wait(&s->cond, &s->lock);
            }
            s->n_stalled--;
            pthread_cond_broadcast(&s->cond);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return fault_direct(c);
}

static void test_stall(void **state)
{
    struct stall_fs s = {.fs.call = stall_call,
                         .lock = PTHREAD_MUTEX_INITIALIZER,
                         .cond = PTHREAD_COND_INITIALIZER};
    struct world *w = world_new(3, 2, false);
    w->fs = &s.fs;
    w->stall_ns = 300 * NS_PER_MS;
    world_need(world_open(w, 0), w);
    world_fill_segments(w, 2);
    pthread_mutex_lock(&s.lock);
    s.is_stalled = true;
    pthread_mutex_unlock(&s.lock);
    for (int i = 0; i < 30 && drives_state(w->d, 1) == DRIVE_OK; i++) {
        uint64_t from = time_mono_ns();
        world_need(world_append(w, 4, 3000, true), w);
        world_need(world_sync(w), w);
        assert_true(time_mono_ns() - from < 10 * NS_PER_S);
    }
    assert_int_equal(drives_state(w->d, 1), DRIVE_FAULTED);
    world_fill_segments(w, 4);
    world_close(w); /* does not wait for it either */
    w->fs = NULL;
    world_need(world_open(w, 0), w);
    check(w);
    assert_int_equal(drives_state(w->d, 1), DRIVE_FAULTED); /* it is not trusted again */
    pthread_mutex_lock(&s.lock);
    s.is_stalled = false;
    pthread_cond_broadcast(&s.cond);
    while (s.n_stalled > 0) {
        pthread_cond_wait(&s.cond, &s.lock);
    }
    pthread_mutex_unlock(&s.lock);
    usleep(50000); /* the threads that were left alone end */
    world_free(w);
}

/* --- many threads --- */

struct crowd {
    struct world *w;
    atomic_uint_fast64_t segment, off; /* of a record that can be read */
    atomic_bool is_over;
    atomic_uint n_reads, n_walks;
};

static void *read_much(void *ctx)
{
    struct crowd *c = ctx;
    struct arena *a = arena_new(1u << 20);
    while (!atomic_load(&c->is_over)) {
        struct olog_place at = {atomic_load(&c->segment), 4096};
        struct olog_rec r;
        char p[64];
        int rc = olog_read_body(c->w->l, at, 24, 0, p, 64, 0, false);
        assert_true(rc == 0 || rc == -ENOENT);
        rc = olog_read(c->w->l, a, at, &r, NULL);
        assert_true(rc == 0 || rc == -ENOENT);
        arena_reset(a);
        atomic_fetch_add(&c->n_reads, 1);
    }
    arena_free(a);
    return NULL;
}

static void *keep_house(void *ctx)
{
    struct crowd *c = ctx;
    while (!atomic_load(&c->is_over)) {
        struct olog_segment *v = NULL;
        size_t n = 0;
        assert_int_equal(olog_segments(c->w->l, &v, &n), 0);
        if (n > 3) {
            struct olog_verify io = {0};
            uint64_t seen = 0;
            assert_int_equal(olog_walk(c->w->l, v[1].segment, count, &seen, NULL), 0);
            assert_int_equal(olog_verify(c->w->l, v[1].segment, &io, NULL), 0);
            assert_int_equal(io.n_repaired + io.n_lost, 0);
            assert_int_equal(olog_remove(c->w->l, v[0].segment, NULL), 0);
            atomic_fetch_add(&c->n_walks, 1);
        }
        free(v);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    struct world *w = world_new(3, 2, false);
    world_need(world_open(w, 0), w);
    world_fill_segments(w, 2);
    struct crowd c = {.w = w};
    atomic_store(&c.segment, 1);
    pthread_t t[3];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, read_much, &c), 0);
    }
    assert_int_equal(pthread_create(&t[2], NULL, keep_house, &c), 0);
    uint64_t until = time_mono_ns() + 20 * NS_PER_S;
    for (int i = 0; (i < 300 || !c.n_walks || !c.n_reads) && time_mono_ns() < until; i++) {
        world_need(world_append(w, 4, 3000, true), w);
        world_need(olog_sync(w->l, &w->err), w);
        struct olog_segment *v = NULL;
        size_t n = 0;
        assert_int_equal(olog_segments(w->l, &v, &n), 0);
        atomic_store(&c.segment, v[n / 2].segment);
        free(v);
    }
    atomic_store(&c.is_over, true);
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
    }
    assert_true(c.n_reads > 0 && c.n_walks > 0);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
