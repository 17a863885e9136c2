#include "base/share.h"

#include "base/omap.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_N 255

struct share_owner {
    uint64_t n;
    unsigned refs;
    size_t name_n;
    char name[];
};

struct shares {
    pthread_mutex_t lock;
    uint64_t total, used; /* GUARDED_BY(lock), as all below */
    struct omap *owners[SHARE_OWNERS];
};

struct shares *shares_new(uint64_t total)
{
    struct shares *s = calloc(1, sizeof(*s));
    if (!s) {
        abort();
    }
    pthread_mutex_init(&s->lock, NULL);
    s->total = total;
    for (int i = 0; i < SHARE_OWNERS; i++) {
        s->owners[i] = omap_new();
    }
    return s;
}

void shares_free(struct shares *s)
{
    if (!s) {
        return;
    }
    assert(s->used == 0);
    for (int i = 0; i < SHARE_OWNERS; i++) {
        omap_free(s->owners[i], free);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static struct share_owner *owner_get(struct omap *m, struct str name)
{
    if (!str_is_set(name)) {
        return NULL;
    }
    name.n = MIN(name.n, (size_t)NAME_MAX_N);
    struct share_owner *o = omap_get(m, name);
    if (!o) {
        o = calloc(1, sizeof(*o) + name.n);
        if (!o) {
            abort();
        }
        memcpy(o->name, name.p, name.n);
        o->name_n = name.n;
        omap_put(m, name, o);
    }
    o->refs++;
    return o;
}

static void owner_put(struct omap *m, struct share_owner *o)
{
    if (o && --o->refs == 0) {
        omap_remove(m, str_n(o->name, o->name_n));
        free(o);
    }
}

static bool may_have(const struct shares *s, const struct share_hold *h, uint64_t n)
{
    if (n > s->total - s->used) {
        return false;
    }
    uint64_t left = s->total - s->used - n;
    for (int i = 0; i < SHARE_OWNERS; i++) {
        if (h->owners[i] && (h->owners[i]->n + n) / 2 > left) {
            return false;
        }
    }
    return true;
}

static void leave(struct shares *s, struct share_hold *h)
{
    for (int i = 0; i < SHARE_OWNERS; i++) {
        if (h->owners[i]) {
            h->owners[i]->n -= h->n;
        }
        owner_put(s->owners[i], h->owners[i]);
    }
    s->used -= h->n;
    *h = (struct share_hold){0};
}

static int more(struct shares *s, struct share_hold *h, uint64_t n)
{
    if (!may_have(s, h, n)) {
        return -EAGAIN;
    }
    for (int i = 0; i < SHARE_OWNERS; i++) {
        if (h->owners[i]) {
            h->owners[i]->n += n;
        }
    }
    h->n += n;
    s->used += n;
    return 0;
}

int share_take(struct shares *s, struct share_hold *h, const struct str owners[SHARE_OWNERS],
               uint64_t n)
{
    assert(h->n == 0 && !h->owners[0] && !h->owners[1]);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SHARE_OWNERS; i++) {
        h->owners[i] = owner_get(s->owners[i], owners[i]);
    }
    int rc = more(s, h, n);
    if (rc < 0) {
        leave(s, h);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int share_more(struct shares *s, struct share_hold *h, uint64_t n)
{
    pthread_mutex_lock(&s->lock);
    int rc = more(s, h, n);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void share_give(struct shares *s, struct share_hold *h)
{
    pthread_mutex_lock(&s->lock);
    leave(s, h);
    pthread_mutex_unlock(&s->lock);
}

uint64_t shares_held(struct shares *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t n = s->used;
    pthread_mutex_unlock(&s->lock);
    return n;
}
