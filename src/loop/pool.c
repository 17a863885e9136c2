#include "loop/pool.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

struct job {
    loop_fn work, done;
    struct loop *loop;
    void *ctx;
};

struct pool {
    pthread_mutex_t mu;
    pthread_cond_t has_work;
    struct job *ring;      /* GUARDED_BY(mu) as all below */
    unsigned cap, head, n; /* n jobs from 'head' on */
    bool is_stopping;
    unsigned n_threads;
    pthread_t *threads;
};

static void *worker(void *arg)
{
    struct pool *p = arg;
    pthread_mutex_lock(&p->mu);
    while (true) {
        while (p->n == 0 && !p->is_stopping) {
            pthread_cond_wait(&p->has_work, &p->mu);
        }
        if (p->n == 0) {
            break;
        }
        struct job job = p->ring[p->head];
        p->head = (p->head + 1) % p->cap;
        p->n--;
        pthread_mutex_unlock(&p->mu);
        job.work(job.ctx);
        if (job.loop && job.done) {
            loop_post(job.loop, job.done, job.ctx);
        }
        pthread_mutex_lock(&p->mu);
    }
    pthread_mutex_unlock(&p->mu);
    return NULL;
}

struct pool *pool_new(const char *name, unsigned n_threads, unsigned max_queue)
{
    assert(n_threads > 0 && max_queue > 0);
    struct pool *p = calloc(1, sizeof(*p));
    if (!p) {
        abort();
    }
    p->cap = max_queue;
    p->ring = calloc(max_queue, sizeof(*p->ring));
    p->threads = calloc(n_threads, sizeof(*p->threads));
    if (!p->ring || !p->threads) {
        abort();
    }
    pthread_mutex_init(&p->mu, NULL);
    pthread_cond_init(&p->has_work, NULL);

    /* Signals are the main loop's; those that a fault of this very thread raises stay open. */
    sigset_t all, old;
    sigfillset(&all);
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        sigdelset(&all, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (unsigned i = 0; i < n_threads; i++) {
        if (pthread_create(&p->threads[i], NULL, worker, p) != 0) {
            break;
        }
        p->n_threads++;
        char label[16];
        snprintf(label, sizeof(label), "%.15s", name); /* the kernel takes 15 bytes */
        pthread_setname_np(p->threads[i], label);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (p->n_threads == 0) {
        abort(); /* fewer threads than asked for are enough, none is not */
    }
    return p;
}

void pool_free(struct pool *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->mu);
    p->is_stopping = true;
    pthread_cond_broadcast(&p->has_work);
    pthread_mutex_unlock(&p->mu);
    for (unsigned i = 0; i < p->n_threads; i++) {
        pthread_join(p->threads[i], NULL);
    }
    pthread_cond_destroy(&p->has_work);
    pthread_mutex_destroy(&p->mu);
    free(p->threads);
    free(p->ring);
    free(p);
}

int pool_submit(struct pool *p, loop_fn work, struct loop *done_loop, loop_fn done, void *ctx)
{
    pthread_mutex_lock(&p->mu);
    int r = 0;
    if (p->n == p->cap) {
        r = -EAGAIN;
    } else {
        p->ring[(p->head + p->n) % p->cap] = (struct job){work, done, done_loop, ctx};
        p->n++;
        pthread_cond_signal(&p->has_work);
    }
    pthread_mutex_unlock(&p->mu);
    return r;
}
