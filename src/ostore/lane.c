#include "ostore/lane.h"

#include "base/time.h"
#include <errno.h>
#include <time.h>

/* The thread and the owner share it: a thread that hangs may outlive everything else. */
struct lane {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t thread;
    struct lane_job *first, *last;
    atomic_uint refs;
    bool is_stopping, is_given_up;
};

static void lane_unref(struct lane *l)
{
    if (atomic_fetch_sub(&l->refs, 1) == 1) {
        pthread_cond_destroy(&l->work);
        pthread_cond_destroy(&l->done);
        pthread_mutex_destroy(&l->lock);
        free(l);
    }
}

void lane_job_init(struct lane_job *j, int (*fn)(struct lane_job *),
                   void (*free_fn)(struct lane_job *))
{
    j->fn = fn;
    j->free = free_fn;
    atomic_init(&j->refs, 1);
    j->lane = NULL;
    j->next = NULL;
    j->rc = 0;
    j->is_done = false;
}

void lane_job_unref(struct lane_job *j)
{
    if (j && atomic_fetch_sub(&j->refs, 1) == 1) {
        struct lane *l = j->lane;
        j->free(j);
        if (l) {
            lane_unref(l);
        }
    }
}

/* With the lock held. */
static void finish(struct lane *l, struct lane_job *j, int rc)
{
    j->rc = rc;
    j->is_done = true;
    pthread_cond_broadcast(&l->done);
}

static void *run(void *ctx)
{
    struct lane *l = ctx;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->first && !l->is_stopping && !l->is_given_up) {
            pthread_cond_wait(&l->work, &l->lock);
        }
        struct lane_job *j = l->first;
        if (!j || l->is_given_up) {
            break;
        }
        l->first = j->next;
        pthread_mutex_unlock(&l->lock);
        int rc = j->fn(j);
        pthread_mutex_lock(&l->lock);
        finish(l, j, rc);
        pthread_mutex_unlock(&l->lock);
        lane_job_unref(j);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    lane_unref(l);
    return NULL;
}

int lane_new(struct lane **ret)
{
    struct lane *l = calloc(1, sizeof(*l));
    if (!l) {
        return -ENOMEM;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, &attr);
    pthread_condattr_destroy(&attr);
    atomic_init(&l->refs, 2);
    int rc = pthread_create(&l->thread, NULL, run, l);
    if (rc != 0) {
        atomic_store(&l->refs, 1);
        lane_unref(l);
        return -rc;
    }
    *ret = l;
    return 0;
}

void lane_free(struct lane *l)
{
    if (!l) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->is_stopping = true;
    bool is_given_up = l->is_given_up;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    if (!is_given_up) {
        pthread_join(l->thread, NULL);
    }
    lane_unref(l);
}

void lane_post(struct lane *l, struct lane_job *j)
{
    atomic_fetch_add(&j->refs, 1);
    atomic_fetch_add(&l->refs, 1);
    j->lane = l;
    j->next = NULL;
    pthread_mutex_lock(&l->lock);
    bool is_dropped = l->is_given_up;
    if (is_dropped) {
        finish(l, j, -ECANCELED);
    } else {
        if (l->first) {
            l->last->next = j;
        } else {
            l->first = j;
        }
        l->last = j;
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    if (is_dropped) {
        lane_job_unref(j);
    }
}

int lane_wait(struct lane_job *j, uint64_t deadline_mono_ns)
{
    struct lane *l = j->lane;
    struct timespec until = {(time_t)(deadline_mono_ns / NS_PER_S),
                             (long)(deadline_mono_ns % NS_PER_S)};
    pthread_mutex_lock(&l->lock);
    int rc = 0;
    while (!j->is_done && rc == 0) {
        rc = pthread_cond_timedwait(&l->done, &l->lock, &until);
    }
    rc = j->is_done ? j->rc : -ETIMEDOUT;
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void lane_give_up(struct lane *l)
{
    pthread_mutex_lock(&l->lock);
    bool is_first = !l->is_given_up;
    l->is_given_up = true;
    struct lane_job *j = l->first;
    l->first = NULL;
    for (struct lane_job *i = j; i; i = i->next) {
        finish(l, i, -ECANCELED);
    }
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    while (j) {
        struct lane_job *next = j->next;
        lane_job_unref(j);
        j = next;
    }
    if (is_first) {
        pthread_detach(l->thread);
    }
}
