#include "kv/kv_int.h"

#include "base/time.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

void cond_init_mono(pthread_cond_t *cv)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cv, &attr);
    pthread_condattr_destroy(&attr);
}

int cond_wait_until(pthread_cond_t *cv, pthread_mutex_t *mu, uint64_t deadline_mono_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(deadline_mono_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_mono_ns % NS_PER_S)};
    return pthread_cond_timedwait(cv, mu, &ts) == ETIMEDOUT ? -ETIMEDOUT : 0;
}

void watch_set_init(struct watch_set *s)
{
    pthread_mutex_init(&s->mu, NULL);
    cond_init_mono(&s->cv);
}

int watch_set_run(struct watch_set *s, void *(*run)(void *), void *arg, struct err *err)
{
    int r = pthread_create(&s->thread, NULL, run, arg);
    if (r) {
        return fail(err, -r, "ThreadFailed", "cannot start the thread of the watches");
    }
    s->has_thread = true;
    return 0;
}

void watch_set_done(struct watch_set *s)
{
    pthread_mutex_lock(&s->mu);
    s->is_closing = true;
    pthread_cond_broadcast(&s->cv);
    pthread_mutex_unlock(&s->mu);
    if (s->has_thread) {
        pthread_join(s->thread, NULL);
    }
    while (s->head) {
        struct kv_watch *w = s->head;
        s->head = w->next;
        watch_free(w);
    }
    pthread_cond_destroy(&s->cv);
    pthread_mutex_destroy(&s->mu);
}

/* At the end: the dispatcher serves the set in order of starting. */
void watch_set_add(struct watch_set *s, struct kv_watch *w)
{
    pthread_mutex_lock(&s->mu);
    struct kv_watch **at = &s->head;
    while (*at) {
        at = &(*at)->next;
    }
    *at = w;
    pthread_cond_broadcast(&s->cv);
    pthread_mutex_unlock(&s->mu);
}

void watch_set_stop(struct watch_set *s, struct kv_watch *w)
{
    pthread_mutex_lock(&s->mu);
    __atomic_store_n(&w->is_stopped, true, __ATOMIC_SEQ_CST);
    for (struct kv_watch **at = &s->head; *at; at = &(*at)->next) {
        if (*at == w) {
            *at = w->next;
            break;
        }
    }
    if (s->busy == w && s->has_thread && pthread_equal(pthread_self(), s->thread)) {
        w->is_orphan = true; /* watch_set_end() frees it */
        pthread_mutex_unlock(&s->mu);
        return;
    }
    while (s->busy == w) {
        pthread_cond_wait(&s->cv, &s->mu);
    }
    pthread_mutex_unlock(&s->mu);
    watch_free(w);
}

void watch_set_begin(struct watch_set *s, struct kv_watch *w)
{
    assert(!s->busy);
    s->busy = w;
}

void watch_set_end(struct watch_set *s)
{
    struct kv_watch *w = s->busy;
    s->busy = NULL;
    if (w->is_orphan) {
        watch_free(w);
    }
    pthread_cond_broadcast(&s->cv);
}

void watch_deliver(struct kv_watch *w, const struct kv_event *ev)
{
    if (!__atomic_load_n(&w->is_stopped, __ATOMIC_SEQ_CST)) {
        w->fn(w->ctx, ev);
    }
}

int watch_set_cursor(struct kv_watch *w, struct str key)
{
    char *p = realloc(w->cursor, key.n + 1);
    if (!p) {
        return -ENOMEM;
    }
    if (key.n) {
        memcpy(p, key.p, key.n);
    }
    w->cursor = p;
    w->cursor_n = key.n;
    return 0;
}

void watch_free(struct kv_watch *w)
{
    if (w) {
        free((char *)(uintptr_t)w->prefix.p);
        free(w->cursor);
        free(w);
    }
}
