#include "loop/pool.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

struct gate {
    sem_t entered, open;
};

static void wait_at_gate(void *ctx)
{
    struct gate *g = ctx;
    sem_post(&g->entered);
    sem_wait(&g->open);
}

static void count(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void a_full_queue_refuses_and_free_runs_the_rest(void **state)
{
    struct gate g;
    sem_init(&g.entered, 0, 0);
    sem_init(&g.open, 0, 0);
    struct pool *p = pool_new("test", 1, 2);
    assert_int_equal(pool_submit(p, wait_at_gate, NULL, NULL, &g), 0);
    sem_wait(&g.entered); /* it runs: the queue is empty */
    atomic_int n = 0;
    assert_int_equal(pool_submit(p, count, NULL, NULL, &n), 0);
    assert_int_equal(pool_submit(p, count, NULL, NULL, &n), 0);
    assert_int_equal(pool_submit(p, count, NULL, NULL, &n), -EAGAIN);
    assert_int_equal(atomic_load(&n), 0);
    sem_post(&g.open);
    pool_free(p);
    assert_int_equal(atomic_load(&n), 2);
    sem_destroy(&g.entered);
    sem_destroy(&g.open);
}

static void jobs_run_side_by_side(void **state)
{
    struct gate g;
    sem_init(&g.entered, 0, 0);
    sem_init(&g.open, 0, 0);
    struct pool *p = pool_new("test", 3, 8);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pool_submit(p, wait_at_gate, NULL, NULL, &g), 0);
    }
    for (int i = 0; i < 3; i++) { /* hangs when one waits for the other */
        sem_wait(&g.entered);
    }
    for (int i = 0; i < 3; i++) {
        sem_post(&g.open);
    }
    pool_free(p);
    sem_destroy(&g.entered);
    sem_destroy(&g.open);
}

#define N_JOBS 2000

struct job {
    struct batch *b;
    pthread_t worker;
    int n_worked, n_done;
};
struct batch {
    struct loop *l;
    pthread_t loop_thread;
    int n_left;
    struct job jobs[N_JOBS];
};

static void work(void *ctx)
{
    struct job *j = ctx;
    j->worker = pthread_self();
    j->n_worked++;
}

static void done(void *ctx)
{
    struct job *j = ctx;
    assert_true(pthread_equal(pthread_self(), j->b->loop_thread));
    assert_false(pthread_equal(j->worker, j->b->loop_thread));
    assert_int_equal(j->n_worked, 1);
    assert_int_equal(j->n_done, 0);
    j->n_done++;
    if (--j->b->n_left == 0) {
        loop_stop(j->b->l);
    }
}

static void done_runs_on_the_loop_once_after_work(void **state)
{
    static struct batch b;
    b.l = loop_new();
    b.loop_thread = pthread_self();
    b.n_left = N_JOBS;
    struct pool *p = pool_new("a-name-longer-than-a-thread's", 4, N_JOBS);
    for (int i = 0; i < N_JOBS; i++) {
        b.jobs[i].b = &b;
        assert_int_equal(pool_submit(p, work, b.l, done, &b.jobs[i]), 0);
    }
    loop_run(b.l);
    pool_free(p);
    loop_free(b.l);
    assert_int_equal(b.n_left, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_queue_refuses_and_free_runs_the_rest),
        cmocka_unit_test(jobs_run_side_by_side),
        cmocka_unit_test(done_runs_on_the_loop_once_after_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
