/* snap_cache.h — things read from the store that are wanted again: pages and manifests, the
 *           newest used
 * ones, up to so many bytes.
 * Not here: reading them (snap_load.c).
 * Threads:  any; leaf lock.
 * Memory:   an entry lives while somebody holds it, in the cache or not.
 * Errors:   none. */
#pragma once
#include "base/omap.h"
#include "base/str.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct snap_cached {
    void *p;
    /* the cache's: */
    void (*free)(void *);
    size_t size;
    unsigned refs;
    bool is_in;
    struct snap_cached *newer, *older;
    char key[128];
};
struct snap_cache {
    pthread_mutex_t mu;
    struct omap *by_key;
    struct snap_cached *newest, *oldest;
    size_t size, max;
    uint64_t generation; /* counts what was dropped */
};
void snap_cache_init(struct snap_cache *c, size_t max);
void snap_cache_done(struct snap_cache *c); /* nobody holds anything */
/* A reference, or NULL; *ret_generation is for snap_cache_put(). */
struct snap_cached *snap_cache_get(struct snap_cache *c, const char *key,
                                   uint64_t *ret_generation);
/* Takes 'p' (never fails: it may just not be kept). What was read before something was dropped
 * is not kept: it may be what was dropped. Returns a reference. */
struct snap_cached *snap_cache_put(struct snap_cache *c, const char *key, uint64_t generation,
                                   void *p, size_t size, void (*free)(void *))
    __attribute__((returns_nonnull));
void snap_cache_release(struct snap_cache *c, struct snap_cached *e);
void snap_cache_drop(struct snap_cache *c, const char *key);
