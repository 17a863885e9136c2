#include "loop/ticker.h"

#include "base/time.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

struct ticker {
    void (*turn)(void *ctx);
    void *ctx;
    uint64_t every_ns;
    pthread_t thread;
    pthread_mutex_t mu; /* a leaf */
    pthread_cond_t wake;
    bool is_stopping, is_poked; /* GUARDED_BY(mu) */
};

/* False when it is time to stop. */
static bool wait_for_turn(struct ticker *t)
{
    uint64_t until_ns = time_mono_ns() + t->every_ns;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                                   .tv_nsec = (long)(until_ns % NS_PER_S)};
    pthread_mutex_lock(&t->mu);
    while (!t->is_stopping && !t->is_poked &&
           pthread_cond_timedwait(&t->wake, &t->mu, &until) == 0) {}
    t->is_poked = false;
    bool goes_on = !t->is_stopping;
    pthread_mutex_unlock(&t->mu);
    return goes_on;
}

static void *run(void *arg)
{
    struct ticker *t = arg;
    do {
        t->turn(t->ctx);
    } while (wait_for_turn(t));
    return NULL;
}

struct ticker *ticker_start(void (*turn)(void *ctx), void *ctx, uint64_t every_ns)
{
    struct ticker *t = calloc(1, sizeof(*t));
    pthread_condattr_t attr;
    sigset_t all, before;
    if (!t) {
        abort();
    }
    t->turn = turn;
    t->ctx = ctx;
    t->every_ns = every_ns;
    pthread_mutex_init(&t->mu, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->wake, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&t->thread, NULL, run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) {
        abort();
    }
    return t;
}

static void tell(struct ticker *t, bool *flag)
{
    pthread_mutex_lock(&t->mu);
    *flag = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mu);
}

void ticker_poke(struct ticker *t)
{
    tell(t, &t->is_poked);
}

void ticker_stop(struct ticker *t)
{
    if (!t) {
        return;
    }
    tell(t, &t->is_stopping);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->mu);
    free(t);
}
