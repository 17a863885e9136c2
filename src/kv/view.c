#include "kv/view.h"

#include "base/log.h"
#include "base/time.h"
#include "base/vec.h"
#include "kv/kv_int.h"

#include <errno.h>
#include <stdio.h>

LOG_MODULE("kv.view");

#define MAX_PREFIXES 32

struct view_part { /* one prefix */
    struct view *v;
    struct str prefix;
    struct kv_watch *watch;
    uint64_t sync_rev; /* under lock of 'mu' */
    bool is_synced, is_listing;
    uint64_t list; /* number of the list that goes on */
};

struct view {
    struct view_ops ops;
    void *ctx;
    pthread_rwlock_t lock; /* map, n_bad */
    struct omap *map;
    size_t n_bad;
    pthread_mutex_t mu; /* revisions; taken after 'lock' is given up */
    pthread_cond_t cv;
    uint64_t rev; /* all parts show it */
    bool is_ready;
    size_t n_parts;
    struct view_part parts[MAX_PREFIXES];
};

static struct view_entry *entry_mut(const struct view_entry *e)
{
    return (struct view_entry *)(uintptr_t)e; /* only the private members change */
}

struct entry { /* what is allocated: the entry, how to free its object, the bytes of the key */
    struct view_entry e;
    void (*free)(struct str key, void *obj);
    bool is_bad; /* 'parse' refused the value */
    char key[];
};

const struct view_entry *view_ref(const struct view_entry *e)
{
    __atomic_add_fetch(&entry_mut(e)->refs_, 1, __ATOMIC_RELAXED);
    return e;
}

void view_unref(const struct view_entry *ce)
{
    if (!ce) {
        return;
    }
    struct view_entry *e = entry_mut(ce);
    if (__atomic_sub_fetch(&e->refs_, 1, __ATOMIC_ACQ_REL) == 0) {
        struct entry *x = CONTAINER_OF(e, struct entry, e);
        if (e->obj) {
            x->free(e->key, e->obj);
        }
        free(x);
    }
}

static struct view_entry *entry_new(struct view *v, const struct kv_item *item)
{
    struct entry *x = calloc(1, sizeof(*x) + item->key.n + 1);
    if (!x) {
        abort();
    }
    memcpy(x->key, item->key.p, item->key.n);
    x->e.key = str_n(x->key, item->key.n);
    x->e.mod_rev = item->mod_rev;
    x->e.refs_ = 1;
    x->free = v->ops.free;
    struct err err = ERR_INIT;
    x->e.obj = v->ops.parse(x->e.key, item->value, &err);
    x->is_bad = !x->e.obj && err.code != 0; /* NULL without an error: a key that is no record */
    if (x->is_bad) {
        log_warn_rl("view.bad_value", KV_STR("key", x->e.key), KV_ERR(&err));
    }
    return &x->e;
}

static bool is_bad(const struct view_entry *e)
{
    return e && CONTAINER_OF(entry_mut(e), struct entry, e)->is_bad;
}

/* Makes 'now' (NULL = nothing) the entry of the key, tells the user, drops the old one. */
static void change(struct view *v, struct str key, struct view_entry *now)
{
    const struct view_entry *keep = now ? view_ref(now) : NULL; /* for on_change */
    pthread_rwlock_wrlock(&v->lock);
    struct view_entry *old = now ? omap_put(v->map, key, now) : omap_remove(v->map, key);
    v->n_bad += is_bad(now);
    v->n_bad -= is_bad(old);
    pthread_rwlock_unlock(&v->lock);
    if (v->ops.on_change) {
        v->ops.on_change(v->ctx, old, keep);
    }
    view_unref(old);
    view_unref(keep);
}

/* The map changes on the dispatcher of the kv only: what it reads here stays until it changes
 * it itself. */
static struct view_entry *find(struct view *v, struct str key)
{
    pthread_rwlock_rdlock(&v->lock);
    struct view_entry *e = omap_get(v->map, key);
    pthread_rwlock_unlock(&v->lock);
    return e;
}

static void on_put(struct view_part *p, const struct kv_item *item)
{
    struct view_entry *old = find(p->v, item->key);
    if (old && old->mod_rev >= item->mod_rev) {
        old->list_ = p->list;
        return;
    }
    struct view_entry *e = entry_new(p->v, item);
    e->list_ = p->list;
    change(p->v, e->key, e);
}

static void on_delete(struct view_part *p, const struct kv_item *item)
{
    const struct view_entry *old = find(p->v, item->key);
    if (old && old->mod_rev < item->mod_rev) {
        change(p->v, item->key, NULL);
    }
}

/* After a list: what was not in it is gone. */
static void sweep(struct view_part *p)
{
    VEC(const struct view_entry *) gone = {0};
    pthread_rwlock_rdlock(&p->v->lock);
    omap_foreach_prefix(n, p->v->map, p->prefix)
    {
        const struct view_entry *e = omap_value(n);
        if (e->list_ != p->list) {
            vec_push(&gone, view_ref(e));
        }
    }
    pthread_rwlock_unlock(&p->v->lock);
    for (size_t i = 0; i < gone.n; i++) {
        change(p->v, gone.v[i]->key, NULL);
        view_unref(gone.v[i]);
    }
    vec_free(&gone);
}

static void on_synced(struct view_part *p, uint64_t rev)
{
    struct view *v = p->v;
    if (p->is_listing) {
        p->is_listing = false;
        sweep(p);
    }
    pthread_mutex_lock(&v->mu);
    p->sync_rev = rev;
    p->is_synced = true;
    uint64_t all = UINT64_MAX;
    bool is_ready = true;
    for (size_t i = 0; i < v->n_parts; i++) {
        all = MIN(all, v->parts[i].sync_rev);
        is_ready = is_ready && v->parts[i].is_synced;
    }
    bool is_new = is_ready && (!v->is_ready || all > v->rev);
    if (is_new) {
        v->rev = all;
        v->is_ready = true;
        pthread_cond_broadcast(&v->cv);
    }
    pthread_mutex_unlock(&v->mu);
    if (is_new && v->ops.on_sync) {
        v->ops.on_sync(v->ctx, all);
    }
}

static void on_event(void *ctx, const struct kv_event *ev)
{
    struct view_part *p = ctx;
    switch (ev->type) {
    case KV_EVENT_PUT: on_put(p, &ev->item); break;
    case KV_EVENT_DELETE: on_delete(p, &ev->item); break;
    case KV_EVENT_RESET:
        p->is_listing = true;
        p->list++;
        break;
    case KV_EVENT_SYNC: on_synced(p, ev->item.mod_rev); break;
    }
}

static void free_entry(void *e)
{
    view_unref(e);
}

void view_close(struct view *v)
{
    if (!v) {
        return;
    }
    for (size_t i = 0; i < v->n_parts; i++) {
        kv_watch_stop(v->parts[i].watch);
    }
    omap_free(v->map, free_entry);
    pthread_rwlock_destroy(&v->lock);
    pthread_mutex_destroy(&v->mu);
    pthread_cond_destroy(&v->cv);
    free(v);
}

static int check_prefixes(const char *const *prefixes, size_t n, struct err *err)
{
    if (n == 0 || n > MAX_PREFIXES) {
        return fail(err, -EINVAL, "BadView", "a view of %zu prefixes: 1 to %d are possible", n,
                    MAX_PREFIXES);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            if (k != i && str_has_prefix(str_c(prefixes[k]), str_c(prefixes[i]))) {
                return fail(err, -EINVAL, "BadView", "%s and %s overlap", prefixes[i],
                            prefixes[k]);
            }
        }
    }
    return 0;
}

static int wait_ready(struct view *v, uint64_t deadline_ns)
{
    int r = 0;
    pthread_mutex_lock(&v->mu);
    while (!v->is_ready && r == 0) {
        r = cond_wait_until(&v->cv, &v->mu, deadline_ns);
    }
    r = v->is_ready ? 0 : r;
    pthread_mutex_unlock(&v->mu);
    return r;
}

int view_open(struct kv *kv, const char *const *prefixes, size_t n_prefixes,
              const struct view_ops *ops, void *ctx, uint64_t timeout_ns, struct view **ret,
              struct err *err)
{
    uint64_t deadline = time_mono_ns() + timeout_ns;
    int r = check_prefixes(prefixes, n_prefixes, err);
    if (r < 0) {
        return r;
    }
    struct view *v = calloc(1, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a view");
    }
    v->ops = *ops;
    v->ctx = ctx;
    v->map = omap_new();
    v->n_parts = n_prefixes; /* before the first event: all of them have to be synced */
    pthread_rwlock_init(&v->lock, NULL);
    pthread_mutex_init(&v->mu, NULL);
    cond_init_mono(&v->cv);
    for (size_t i = 0; i < n_prefixes; i++) {
        v->parts[i] = (struct view_part){.v = v, .prefix = str_c(prefixes[i])};
    }
    for (size_t i = 0; i < n_prefixes && r == 0; i++) {
        r = kv_watch_start(kv, v->parts[i].prefix, 0, on_event, &v->parts[i],
                           &v->parts[i].watch, err);
    }
    if (r == 0 && wait_ready(v, deadline) < 0) {
        r = fail(err, -ETIMEDOUT, "Unavailable", "the store did not answer in %llu s",
                 (unsigned long long)(timeout_ns / NS_PER_S));
    }
    if (r < 0) {
        view_close(v);
        return r;
    }
    *ret = v;
    return 0;
}

int view_wait(struct view *v, uint64_t rev, uint64_t timeout_ns)
{
    uint64_t deadline = time_mono_ns() + timeout_ns;
    int r = 0;
    pthread_mutex_lock(&v->mu);
    while (v->rev < rev && r == 0) {
        r = cond_wait_until(&v->cv, &v->mu, deadline);
    }
    r = v->rev >= rev ? 0 : r;
    pthread_mutex_unlock(&v->mu);
    return r;
}

void view_lock(struct view *v)
{
    pthread_rwlock_rdlock(&v->lock);
}

void view_unlock(struct view *v)
{
    pthread_rwlock_unlock(&v->lock);
}

const struct view_entry *view_get(struct view *v, struct str key)
{
    return omap_get(v->map, key);
}

const struct omap *view_map(struct view *v)
{
    return v->map;
}

size_t view_n_bad(struct view *v)
{
    pthread_rwlock_rdlock(&v->lock);
    size_t n = v->n_bad;
    pthread_rwlock_unlock(&v->lock);
    return n;
}
