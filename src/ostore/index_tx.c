#include "ostore/index_tx.h"

#include "base/bytes.h"
#include "ostore/oindex_int.h"
#include <errno.h>

#define ITX_ARENA_MAX     ((size_t)256 << 20)
#define DIRECT_AFTER_READ 50000u

/* --- numbers by key --- */

static size_t inums_seek(const struct inums *m, uint64_t key)
{
    size_t lo = 0, hi = m->v.n;
    if (hi > 0 && m->v.v[hi - 1].key < key) {
        return hi; /* mostly the newest is meant */
    }
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (m->v.v[mid].key < key) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

struct inum *inums_find(struct inums *m, uint64_t key)
{
    size_t i = inums_seek(m, key);
    return i < m->v.n && m->v.v[i].key == key ? &m->v.v[i] : NULL;
}

struct inum *inums_get(struct inums *m, uint64_t key)
{
    size_t i = inums_seek(m, key);
    if (i == m->v.n || m->v.v[i].key != key) {
        vec_push(&m->v, (struct inum){.key = key});
        memmove(&m->v.v[i + 1], &m->v.v[i], (m->v.n - 1 - i) * sizeof(m->v.v[0]));
        m->v.v[i] = (struct inum){.key = key};
    }
    return &m->v.v[i];
}

void inums_drop(struct inums *m, uint64_t key)
{
    size_t i = inums_seek(m, key);
    if (i < m->v.n && m->v.v[i].key == key) {
        vec_remove(&m->v, i);
    }
}

void icounts_init(struct icounts *c)
{
    *c = (struct icounts){0};
    pthread_mutex_init(&c->lock, NULL);
}

void icounts_done(struct icounts *c)
{
    vec_free(&c->segments.v);
    vec_free(&c->buckets.v);
    pthread_mutex_destroy(&c->lock);
}

static int load_numbers(struct icounts *c, struct oindex *x, char kind, struct err *err)
{
    struct oindex_iter *it = NULL;
    char first[1] = {kind}, end[1] = {(char)(kind + 1)};
    int rc = oindex_iter_open(x, str_n(end, 1), &it);
    if (rc < 0) {
        return fail(err, rc, "OutOfMemory", "no memory for the index");
    }
    for (bool is_there = oindex_seek(it, str_n(first, 1)); is_there;
         is_there = oindex_next(it)) {
        struct str k = oindex_key(it), v = oindex_value(it);
        if (k.n != 9 || v.n != 16) {
            oindex_iter_close(it);
            return -EBADMSG;
        }
        struct inum *n =
            inums_get(kind == IX_LIVE ? &c->segments : &c->buckets, ikey_be64(k.p + 1));
        n->a = (int64_t)get_u64(v.p);
        n->b = (int64_t)get_u64(v.p + 8);
    }
    rc = oindex_iter_error(it, err);
    oindex_iter_close(it);
    return rc;
}

int icounts_load(struct icounts *c, struct oindex *x, struct err *err)
{
    struct arena *a = arena_new(4096);
    struct ikey k;
    struct str v;
    ikey_state(&k);
    int rc = oindex_get(x, ikey_str(&k), false, a, &v, err);
    if (rc == 0) {
        rc = istate_decode(v, &c->state);
    }
    arena_free(a);
    if (rc == -ENOENT) {
        c->state = (struct istate){0};
        return 0;
    }
    if (rc == 0 && c->state.is_rebuilding) {
        rc = -EBADMSG;
    }
    if (rc == 0) {
        rc = load_numbers(c, x, IX_LIVE, err);
    }
    if (rc == 0) {
        rc = load_numbers(c, x, IX_COUNTS, err);
    }
    return rc;
}

/* --- the overlay --- */

struct ientry {
    bool is_gone, is_value; /* value: begins with a struct ival */
    size_t n;
    char p[];
};

void itx_init(struct itx *t, struct oindex *x, struct icounts *counts)
{
    *t = (struct itx){.x = x, .counts = counts};
    t->batch = oindex_batch_new();
    t->over = omap_new();
    t->a = arena_new(ITX_ARENA_MAX);
}

void itx_done(struct itx *t)
{
    obulk_free(t->bulk);
    free(t->seen);
    oindex_batch_free(t->batch);
    omap_free(t->over, free);
    arena_free(t->a);
    vec_free(&t->recs);
    vec_free(&t->deaths);
    vec_free(&t->segments.v);
    vec_free(&t->buckets.v);
}

static void forget_changes(struct itx *t)
{
    oindex_batch_clear(t->batch);
    if (omap_len(t->over) > 0) {
        omap_free(t->over, free);
        t->over = omap_new();
    }
    t->recs.n = 0;
    t->segments.v.n = 0;
    t->buckets.v.n = 0;
    t->sum = (struct istate){0};
    t->n_changes = 0;
}

void itx_reset(struct itx *t)
{
    forget_changes(t);
    t->deaths.n = 0;
    arena_reset(t->a);
}

static void over_put(struct itx *t, const struct ikey *k, bool is_gone, bool is_value,
                     struct str first, struct str second)
{
    struct ientry *e = malloc(sizeof(*e) + first.n + second.n);
    if (!e) {
        abort(); /* bounded by what one batch may hold */
    }
    e->is_gone = is_gone;
    e->is_value = is_value;
    e->n = first.n + second.n;
    if (first.n) {
        memcpy(e->p, first.p, first.n);
    }
    if (second.n) {
        memcpy(e->p + first.n, second.p, second.n);
    }
    free(omap_put(t->over, ikey_str(k), e));
    t->n_changes++;
}

/* Whether this blind change goes to the tables that are sorted aside. What went to the batch before
 * has to be in the index then: it is older. */
static bool is_bulk(struct itx *t)
{
    if (!t->bulk || (t->n_direct > 0 && --t->n_direct > 0)) {
        return false;
    }
    if (!t->is_direct) {
        return true;
    }
    t->is_direct = false;
    int rc = oindex_apply(t->x, t->batch, &t->err);
    oindex_batch_clear(t->batch);
    t->rc = t->rc < 0 ? t->rc : rc;
    return true;
}

static void put_blind(struct itx *t, const struct ikey *k, struct str first, struct str second)
{
    if (is_bulk(t)) {
        obulk_put(t->bulk, ikey_str(k), first, second);
    } else {
        oindex_put2(t->batch, ikey_str(k), first, second);
    }
    t->n_changes++;
}

void itx_put_raw(struct itx *t, const struct ikey *k, struct str first, struct str second)
{
    if (t->is_blind) {
        put_blind(t, k, first, second);
        return;
    }
    over_put(t, k, false, false, first, second);
}

void itx_put(struct itx *t, const struct ikey *k, const struct ival *v)
{
    char head[IVAL_HEAD];
    ival_encode(v, head);
    if (t->is_blind) {
        put_blind(t, k, str_n(head, sizeof(head)), v->head);
        return;
    }
    over_put(t, k, false, true, str_n(head, sizeof(head)), v->head);
}

void itx_del(struct itx *t, const struct ikey *k)
{
    if (t->is_blind && is_bulk(t)) {
        obulk_del(t->bulk, ikey_str(k));
        t->n_changes++;
        return;
    }
    if (t->is_blind) {
        oindex_del(t->batch, ikey_str(k));
        t->n_changes++;
        return;
    }
    over_put(t, k, true, false, STR_NONE, STR_NONE);
}

/* What a blind replay has put aside is read from the index itself. */
static int flush_blind(struct itx *t, struct err *err)
{
    if (!t->is_blind) {
        return 0;
    }
    int rc = t->rc;
    if (rc < 0) {
        return fail(err, rc, t->err.name, "%s", t->err.msg);
    }
    if (t->bulk) {
        rc = obulk_is_empty(t->bulk) ? 0 : obulk_flush(t->bulk, err);
        t->is_direct = true;
        t->n_direct = DIRECT_AFTER_READ;
    }
    if (rc == 0 && t->n_changes > 0) {
        rc = oindex_apply(t->x, t->batch, err);
        oindex_batch_clear(t->batch);
        t->n_changes = 0;
    }
    return rc;
}

int itx_end_bulk(struct itx *t, struct err *err)
{
    int rc = flush_blind(t, err);
    obulk_free(t->bulk);
    t->bulk = NULL;
    return rc;
}

int itx_get_raw(struct itx *t, const struct ikey *k, struct str *ret, struct err *err)
{
    const struct ientry *e = omap_len(t->over) ? omap_get(t->over, ikey_str(k)) : NULL;
    if (e) {
        if (e->is_gone) {
            return -ENOENT;
        }
        *ret = arena_str_dup(t->a, str_n(e->p, e->n));
        return ret->p ? 0 : fail(err, -ENOMEM, "SlowDown", "a batch needs too much memory");
    }
    int rc = flush_blind(t, err);
    return rc < 0 ? rc : oindex_get(t->x, ikey_str(k), false, t->a, ret, err);
}

int itx_get(struct itx *t, const struct ikey *k, struct ival *ret, struct err *err)
{
    struct str v;
    int rc = itx_get_raw(t, k, &v, err);
    return rc < 0 ? rc : ival_decode(v, ret, err);
}

/* --- walks --- */

int itx_iter_open(struct itx *t, const struct ikey *prefix, struct itx_iter *ret,
                  struct err *err)
{
    int rc = flush_blind(t, err);
    if (rc < 0) {
        return rc;
    }
    *ret = (struct itx_iter){.t = t, .prefix = *prefix};
    struct ikey end = *prefix;
    struct str bound = ikey_after(&end) ? ikey_str(&end) : STR_NONE;
    rc = oindex_iter_open(t->x, bound, &ret->it);
    if (rc < 0) {
        return fail(err, rc, "OutOfMemory", "no memory for the index");
    }
    ret->is_it = oindex_seek(ret->it, ikey_str(prefix));
    ret->node = omap_seek(t->over, ikey_str(prefix));
    return 0;
}

bool itx_iter_next(struct itx_iter *it)
{
    for (;;) {
        if (it->node && !str_has_prefix(omap_key(it->node), ikey_str(&it->prefix))) {
            it->node = NULL;
        }
        if (!it->node && !it->is_it) {
            return false;
        }
        int cmp = !it->node    ? 1
                  : !it->is_it ? -1
                               : str_cmp(omap_key(it->node), oindex_key(it->it));
        if (cmp <= 0) {
            const struct ientry *e = omap_value(it->node);
            struct str key = omap_key(it->node);
            it->node = omap_next(it->node);
            if (cmp == 0) {
                it->is_it = oindex_next(it->it);
            }
            if (e->is_gone) {
                continue;
            }
            it->key = key;
            it->value = str_n(e->p, e->n);
            return true;
        }
        it->key = arena_str_dup(it->t->a, oindex_key(it->it));
        it->value = arena_str_dup(it->t->a, oindex_value(it->it));
        it->is_it = oindex_next(it->it);
        return it->key.p && it->value.p;
    }
}

int itx_iter_close(struct itx_iter *it, struct err *err)
{
    int rc = oindex_iter_error(it->it, err);
    oindex_iter_close(it->it);
    it->it = NULL;
    return rc;
}

/* --- the batch --- */

void itx_place(struct itx *t, size_t idx, struct olog_place at)
{
    t->recs.v[idx].at = at;
}

void itx_drop_segment(struct itx *t, uint64_t segment)
{
    struct ikey k;
    ikey_number(&k, IX_LIVE, segment);
    itx_del(t, &k);
}

/* Overlay entries go in with the places of records that were not in the log when they were made. */
static void fill_batch(struct itx *t)
{
    for (struct omap_node *n = omap_seek(t->over, STR("")); n; n = omap_next(n)) {
        struct ientry *e = omap_value(n);
        if (e->is_gone) {
            oindex_del(t->batch, omap_key(n));
            continue;
        }
        if (e->is_value && get_u64(e->p + 16) == ITX_PENDING) {
            const struct itx_rec *r = &t->recs.v[get_u32(e->p + 4)];
            put_u32(e->p + 4, r->at.off);
            put_u64(e->p + 16, r->at.segment);
        }
        oindex_put(t->batch, omap_key(n), str_n(e->p, e->n));
    }
    for (size_t i = 0; i < t->recs.n; i++) {
        if (t->recs.v[i].is_live) {
            inums_get(&t->segments, t->recs.v[i].at.segment)->a += t->recs.v[i].size;
        }
    }
    t->recs.n = 0;
}

static void put_number(struct itx *t, char kind, const struct inum *n)
{
    struct ikey k;
    char v[16];
    ikey_number(&k, kind, n->key);
    put_u64(v, (uint64_t)n->a);
    put_u64(v + 8, (uint64_t)n->b);
    oindex_put(t->batch, ikey_str(&k), str_n(v, sizeof(v)));
}

static void add_counts(struct itx *t)
{
    struct icounts *c = t->counts;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < t->segments.v.n; i++) {
        struct inum *n = inums_get(&c->segments, t->segments.v.v[i].key);
        n->a += t->segments.v.v[i].a;
        put_number(t, IX_LIVE, n);
    }
    for (size_t i = 0; i < t->buckets.v.n; i++) {
        struct inum *n = inums_get(&c->buckets, t->buckets.v.v[i].key);
        n->a += t->buckets.v.v[i].a;
        n->b += t->buckets.v.v[i].b;
        put_number(t, IX_COUNTS, n);
    }
    c->state.n_versions += t->sum.n_versions;
    c->state.n_uploads += t->sum.n_uploads;
    c->state.n_bytes += t->sum.n_bytes;
    c->state.n_objects += t->sum.n_objects;
    c->state.file_bytes += t->sum.file_bytes;
    pthread_mutex_unlock(&c->lock);
    t->segments.v.n = 0;
    t->buckets.v.n = 0;
    t->sum = (struct istate){0};
}

int itx_commit(struct itx *t, uint64_t lsn, struct err *err)
{
    if (omap_len(t->over) > 0) {
        fill_batch(t);
        omap_free(t->over, free);
        t->over = omap_new();
    }
    if (!t->is_blind) {
        add_counts(t);
    }
    struct ikey k;
    char state[ISTATE_SIZE];
    ikey_state(&k);
    pthread_mutex_lock(&t->counts->lock);
    t->counts->state.lsn = MAX(t->counts->state.lsn, lsn);
    istate_encode(&t->counts->state, state);
    pthread_mutex_unlock(&t->counts->lock);
    oindex_put(t->batch, ikey_str(&k), str_n(state, sizeof(state)));
    int rc = oindex_apply(t->x, t->batch, err);
    if (rc == 0) {
        forget_changes(t);
        arena_reset(t->a);
    }
    return rc;
}
