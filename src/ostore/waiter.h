/* waiter.h — a thread waits until so many things that it has asked for are done. Inside the room
 *            only.
 * Not here: waiting with a deadline (shard_int.h).
 * Threads:  waiter_done() from any, once for each thing; the rest is the owner's.
 * Memory:   embedded, on the stack of who waits: waiter_wait() ends its life.
 * Errors:   none. */
#pragma once
#include <pthread.h>
#include <stddef.h>

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    size_t n_left; /* GUARDED_BY(lock) */
};
#define WAITER_INIT(n)                                                                     \
    {                                                                                      \
        .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .n_left = (n) \
    }

static inline void waiter_done(struct waiter *w)
{
    pthread_mutex_lock(&w->lock);
    w->n_left--;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static inline void waiter_wait(struct waiter *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->n_left > 0) {
        pthread_cond_wait(&w->cond, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->cond);
}
