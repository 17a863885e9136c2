#include "snap/snap_cache.h"

#include <stdio.h>
#include <stdlib.h>

void snap_cache_init(struct snap_cache *c, size_t max)
{
    *c = (struct snap_cache){.by_key = omap_new(), .max = max};
    pthread_mutex_init(&c->mu, NULL);
}

static void unref(struct snap_cached *e)
{
    if (--e->refs == 0) {
        e->free(e->p);
        free(e);
    }
}

static void unlink_entry(struct snap_cache *c, struct snap_cached *e)
{
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(struct snap_cache *c, struct snap_cached *e)
{
    e->older = c->newest;
    e->newer = NULL;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static void evict(struct snap_cache *c, struct snap_cached *e)
{
    omap_remove(c->by_key, str_c(e->key));
    unlink_entry(c, e);
    c->size -= e->size;
    e->is_in = false;
    unref(e);
}

void snap_cache_done(struct snap_cache *c)
{
    if (!c->by_key) {
        return;
    }
    while (c->oldest) {
        evict(c, c->oldest);
    }
    omap_free(c->by_key, NULL);
    pthread_mutex_destroy(&c->mu);
}

struct snap_cached *snap_cache_get(struct snap_cache *c, const char *key,
                                   uint64_t *ret_generation)
{
    pthread_mutex_lock(&c->mu);
    struct snap_cached *e = omap_get(c->by_key, str_c(key));
    *ret_generation = c->generation;
    if (e) {
        e->refs++;
        unlink_entry(c, e);
        link_newest(c, e);
    }
    pthread_mutex_unlock(&c->mu);
    return e;
}

struct snap_cached *snap_cache_put(struct snap_cache *c, const char *key, uint64_t generation,
                                   void *p, size_t size, void (*free_fn)(void *))
{
    struct snap_cached *e = calloc(1, sizeof(*e));
    if (!e) {
        abort();
    }
    *e = (struct snap_cached){.p = p, .free = free_fn, .size = size, .refs = 1};
    snprintf(e->key, sizeof(e->key), "%s", key);
    pthread_mutex_lock(&c->mu);
    if (generation == c->generation && size <= c->max && !omap_get(c->by_key, str_c(key))) {
        e->refs++;
        e->is_in = true;
        omap_put(c->by_key, str_c(key), e);
        link_newest(c, e);
        c->size += size;
        while (c->size > c->max) {
            evict(c, c->oldest);
        }
    }
    pthread_mutex_unlock(&c->mu);
    return e;
}

void snap_cache_release(struct snap_cache *c, struct snap_cached *e)
{
    if (e) {
        pthread_mutex_lock(&c->mu);
        unref(e);
        pthread_mutex_unlock(&c->mu);
    }
}

void snap_cache_drop(struct snap_cache *c, const char *key)
{
    pthread_mutex_lock(&c->mu);
    struct snap_cached *e = omap_get(c->by_key, str_c(key));
    c->generation++;
    if (e) {
        evict(c, e);
    }
    pthread_mutex_unlock(&c->mu);
}
