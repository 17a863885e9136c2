/* Mark and sweep of an account, range by range of names; and the same without freeing
 * anything. */
#include "snap/snap_mark.h"

#include "crypto/secret.h"

#include <errno.h>
#include <stdio.h>

#define LOOKS_MAX 8u /* times that a range is looked at again, for what it needs has moved */

struct collect {
    struct snap_mark m;
    struct snap_store *s;
    struct snap_usage usage;
    struct snap_names live, pages;
    bool is_check, is_deep;
    char kind; /* 'p' or 'b' */
    uint64_t n_found;
    void *block; /* deep: of SNAP_BLOCK bytes */
    /* what nothing names, until it is enough for a request */
    struct snap_s3_item *dead;
    uint8_t (*names)[SNAP_NAME];
    size_t n_dead;
};

/* ---- what is done beside ---- */

static void watch_begin(struct snap_store *s, struct str account)
{
    pthread_mutex_lock(&s->mu);
    s->is_collecting = true;
    s->is_touched_full = false;
    s->account = account;
    snap_names_begin(&s->touched, 0);
    for (const struct snap_hold *h = s->holds; h; h = h->next) {
        if (str_eq(h->account, account) && snap_names_add(&s->touched, h->name) < 0) {
            s->is_touched_full = true;
        }
    }
    pthread_mutex_unlock(&s->mu);
}

static void watch_end(struct snap_store *s)
{
    pthread_mutex_lock(&s->mu);
    s->is_collecting = false;
    snap_names_done(&s->touched);
    snap_names_init(&s->touched, SIZE_MAX);
    pthread_mutex_unlock(&s->mu);
}

/* ---- what is there ---- */

static void count_there(struct collect *c, const struct snap_s3_item *it)
{
    (*(c->kind == 'p' ? &c->usage.n_pages : &c->usage.n_blocks))++;
    c->usage.bytes += it->size;
}

static void count_freed(struct collect *c, const struct snap_s3_item *it)
{
    (*(c->kind == 'p' ? &c->usage.n_freed_pages : &c->usage.n_freed_blocks))++;
    c->usage.freed_bytes += it->size;
}

/* Takes those out again that were stored since, and makes whoever wants to store one of the
 * others wait until it is gone. */
static int doom(struct collect *c, struct err *err)
{
    struct snap_store *s = c->s;
    size_t n = 0;
    pthread_mutex_lock(&s->mu);
    bool is_full = s->is_touched_full;
    for (size_t i = 0; i < c->n_dead && !is_full; i++) {
        if (snap_names_has(&s->touched, c->names[i])) {
            count_there(c, &c->dead[i]);
            continue;
        }
        memmove(c->names[n], c->names[i], SNAP_NAME);
        c->dead[n++] = c->dead[i];
    }
    c->n_dead = n;
    if (!c->is_check && !is_full) {
        s->doomed = (const uint8_t(*)[SNAP_NAME])c->names;
        s->n_doomed = n;
    }
    pthread_mutex_unlock(&s->mu);
    return is_full ? fail(err, -EAGAIN, "CollectBusy", "too much is stored meanwhile") : 0;
}

static int flush_dead(struct collect *c, struct err *err)
{
    struct snap_store *s = c->s;
    if (!c->n_dead) {
        return 0;
    }
    int r = doom(c, err);
    if (r == 0 && !c->is_check) {
        r = snap_s3_delete_many(s->s3, c->dead, c->n_dead, err);
        pthread_mutex_lock(&s->mu);
        s->n_doomed = 0;
        pthread_cond_broadcast(&s->deleted);
        pthread_mutex_unlock(&s->mu);
    }
    for (size_t i = 0; r == 0 && i < c->n_dead; i++) {
        count_freed(c, &c->dead[i]);
    }
    c->n_dead = 0;
    return r;
}

/* A block that is needed: is it what it should be? */
static int look_at(struct collect *c, const struct snap_s3_item *it, const uint8_t *name,
                   struct err *err)
{
    struct snap_keys_pair keys;
    struct err e = ERR_INIT;
    bool is_sealed = it->size == SNAP_SEALED;
    if (c->kind == 'p') {
        return 0; /* read when it was marked */
    }
    if (it->size != SNAP_BLOCK && !is_sealed) {
        c->usage.n_damaged++;
        return 0;
    }
    if (!c->is_deep) {
        return 0;
    }
    int r = is_sealed ? snap_keys_get(c->s, c->m.account, false, &keys, &e) : 0;
    if (r == 0) {
        r = snap_fetch(c->s, is_sealed ? &keys : NULL, c->m.account, name, c->block, &e);
    }
    secret_wipe(&keys, sizeof(keys));
    c->usage.n_damaged += r == -EBADMSG;
    return r == 0 || r == -EBADMSG || r == -ENOENT ? 0 : fail(err, r, e.name, "%s", e.msg);
}

static int on_item(struct collect *c, const struct snap_s3_item *it, bool *ret_end,
                   struct err *err)
{
    uint8_t name[SNAP_NAME];
    if (!snap_key_parse(it->key, c->kind, c->m.account, name)) {
        return 0; /* none of ours */
    }
    *ret_end = c->live.hi != 0 && snap_names_at(name) >= c->live.hi;
    if (*ret_end) {
        return 0;
    }
    if (snap_names_has(&c->live, name)) {
        c->n_found++;
        count_there(c, it);
        return look_at(c, it, name, err);
    }
    memcpy(c->names[c->n_dead], name, SNAP_NAME);
    c->dead[c->n_dead++] = *it;
    return c->n_dead == SNAP_S3_DELETE_MAX ? flush_dead(c, err) : 0;
}

static int sweep(struct collect *c, struct err *err)
{
    char prefix[SNAP_KEY_MAX], after[SNAP_KEY_MAX] = "";
    bool is_more = true, is_end = false;
    int r = 0;
    AUTO_FREE struct snap_s3_item *items = calloc(SNAP_S3_LIST_MAX, sizeof(*items));
    if (!items) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a collection");
    }
    c->n_found = 0;
    snprintf(prefix, sizeof(prefix), "%c/%.*s/", c->kind, STR_ARG(c->m.account));
    if (c->live.lo) { /* before every name that begins so */
        snprintf(after, sizeof(after), "%.20s%016llx", prefix, (unsigned long long)c->live.lo);
    }
    while (r == 0 && is_more && !is_end) {
        size_t n = 0;
        r = snap_s3_list(c->s->s3, prefix, after, false, items, &n, &is_more, err);
        for (size_t i = 0; r == 0 && i < n && !is_end; i++) {
            r = on_item(c, &items[i], &is_end, err);
        }
        if (r == 0 && n) {
            snprintf(after, sizeof(after), "%s", items[n - 1].key);
        }
    }
    r = r < 0 ? r : flush_dead(c, err);
    c->n_dead = 0;
    c->usage.n_missing += r == 0 ? c->live.n - c->n_found : 0;
    return r;
}

/* ---- range by range ---- */

static int mark(struct collect *c, struct snap_roots *roots, struct err *err)
{
    uint64_t lo = c->live.lo;
    int r = -ESTALE;
    for (unsigned i = 0; r == -ESTALE && i < LOOKS_MAX; i++) {
        uint64_t n_damaged = c->usage.n_damaged;
        snap_roots_done(c->s, roots);
        snap_names_begin(&c->live, lo);
        watch_begin(c->s, c->m.account);
        r = snap_roots_look(c->s, c->m.account, roots, err);
        c->m.roots = roots;
        if (r == 0) {
            r = c->kind == 'p' ? snap_mark_pages(&c->m, &c->live, err)
                               : snap_mark_blocks(&c->m, &c->live, &c->pages, err);
        }
        c->usage.n_damaged = r == -ESTALE ? n_damaged : c->usage.n_damaged;
    }
    return r == -ESTALE ? fail(err, -EAGAIN, "CollectBusy", "too much is changing meanwhile")
                        : r;
}

static int run_kind(struct collect *c, char kind, struct err *err)
{
    int r = 0;
    c->kind = kind;
    snap_names_begin(&c->live, 0);
    for (bool is_more = true; r == 0 && is_more;) {
        struct snap_roots roots = {.v = NULL};
        uint64_t n_damaged = c->usage.n_damaged;
        bool is_first = c->live.lo == 0;
        r = mark(c, &roots, err);
        if (!is_first) {
            c->usage.n_damaged = n_damaged; /* every range reads the same */
        }
        if (r == 0) {
            c->usage.n_manifests = roots.n_manifests;
            c->usage.n_kept = roots.n_kept;
            c->usage.n_pending = roots.n_pending;
            r = sweep(c, err);
        }
        snap_roots_done(c->s, &roots);
        is_more = c->live.hi != 0;
        c->live.lo = c->live.hi;
    }
    return r;
}

static int run(struct snap_store *s, struct str account, bool is_check, bool is_deep,
               struct snap_usage *ret, struct err *err)
{
    int r = snap_check_account(account, err);
    if (r < 0) {
        return r;
    }
    struct collect c = {
        .s = s, .m = {.s = s, .account = account}, .is_check = is_check, .is_deep = is_deep};
    c.m.usage = is_check ? &c.usage : NULL;
    snap_names_init(&c.live, s->o.collect_names);
    snap_names_init(&c.pages, MAX(s->o.collect_names / 4, 64u));
    AUTO_FREE void *block = is_deep ? malloc(SNAP_BLOCK) : NULL;
    AUTO_FREE struct snap_s3_item *dead = calloc(SNAP_S3_DELETE_MAX, sizeof(*dead));
    AUTO_FREE uint8_t(*names)[SNAP_NAME] = calloc(SNAP_S3_DELETE_MAX, SNAP_NAME);
    c.block = block;
    c.dead = dead;
    c.names = names;
    if (!dead || !names || (is_deep && !block)) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a collection");
    }
    pthread_mutex_lock(&s->collect_mu);
    r = run_kind(&c, 'p', err);
    r = r < 0 ? r : run_kind(&c, 'b', err);
    watch_end(s);
    pthread_mutex_unlock(&s->collect_mu);
    snap_names_done(&c.live);
    snap_names_done(&c.pages);
    if (r == 0 && ret) {
        *ret = c.usage;
    }
    return r;
}

int snap_collect(struct snap_store *s, struct str account, struct snap_usage *ret,
                 struct err *err)
{
    return run(s, account, false, false, ret, err);
}

int snap_check(struct snap_store *s, struct str account, bool is_deep, struct snap_usage *ret,
               struct err *err)
{
    return run(s, account, true, is_deep, ret, err);
}
