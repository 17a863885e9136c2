#include "ostore/ostore_model.h"

#include <errno.h>
#include <stdio.h>

uint32_t model_rand(uint32_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state % n;
}

struct str mkey_str(const struct mkey *k)
{
    return str_n(k->p, k->n);
}

struct mkey *mbucket_key(struct mbucket *b, struct str key, bool is_made)
{
    size_t i = 0;
    while (i < b->keys.n && str_cmp(mkey_str(&b->keys.v[i]), key) < 0) {
        i++;
    }
    if (i < b->keys.n && str_eq(mkey_str(&b->keys.v[i]), key)) {
        return &b->keys.v[i];
    }
    if (!is_made) {
        return NULL;
    }
    struct mkey k = {.n = key.n};
    memcpy(k.p, key.p, key.n);
    vec_push(&b->keys, k);
    memmove(&b->keys.v[i + 1], &b->keys.v[i], (b->keys.n - 1 - i) * sizeof(k));
    b->keys.v[i] = k;
    return &b->keys.v[i];
}

struct mversion *mkey_latest(struct mkey *k)
{
    return k && k->v.n > 0 ? &k->v.v[0] : NULL;
}

void mversion_free(struct mversion *v)
{
    vec_free(&v->parts);
}

void mkey_remove(struct mkey *k, size_t idx)
{
    mversion_free(&k->v.v[idx]);
    vec_remove(&k->v, idx);
}

static bool is_null(const uint8_t id[16])
{
    static const uint8_t zeros[16];
    return memcmp(id, zeros, 16) == 0;
}

void mkey_push(struct mkey *k, struct mversion v)
{
    for (size_t i = 0; is_null(v.id) && i < k->v.n; i++) {
        if (is_null(k->v.v[i].id)) {
            mkey_remove(k, i);
            break;
        }
    }
    vec_push(&k->v, v);
    memmove(&k->v.v[1], &k->v.v[0], (k->v.n - 1) * sizeof(v));
    k->v.v[0] = v;
}

void mbucket_free(struct mbucket *b)
{
    for (size_t i = 0; i < b->keys.n; i++) {
        while (b->keys.v[i].v.n > 0) {
            mkey_remove(&b->keys.v[i], 0);
        }
        vec_free(&b->keys.v[i].v);
    }
    for (size_t i = 0; i < b->uploads.n; i++) {
        vec_free(&b->uploads.v[i].parts);
    }
    vec_free(&b->keys);
    vec_free(&b->uploads);
}

const char *model_etag(uint32_t seed, char buf[33])
{
    (void)snprintf(buf, 33, "%032x", seed);
    return buf;
}

struct str mversion_bytes(struct world *w, const struct mversion *v)
{
    if (v->parts.n == 0) {
        return world_bytes(w, v->size, v->seed);
    }
    char *p = arena_xalloc(w->a, v->size + 1);
    size_t at = 0;
    for (size_t i = 0; i < v->parts.n; i++) {
        struct str one = world_bytes(w, v->parts.v[i].size, v->parts.v[i].seed);
        memcpy(p + at, one.p, one.n);
        at += one.n;
    }
    return str_n(p, at);
}

/* --- versions --- */

static void check_version(const struct mversion *m, const struct oversion *v, bool is_listed)
{
    char buf[33];
    assert_memory_equal(v->rec.version, m->id, 16);
    assert_int_equal(v->rec.kind == OREC_MARKER, m->is_marker);
    assert_int_equal(v->rec.time_ns, m->time_ns);
    assert_int_equal(v->rec.origin_lsn, m->lsn);
    if (m->is_marker) {
        return;
    }
    assert_int_equal(v->rec.size, m->size);
    assert_str(v->rec.etag, model_etag(m->seed, buf));
    assert_int_equal(v->rec.tags.n, m->tag ? 1 : 0);
    if (m->tag) {
        (void)snprintf(buf, sizeof(buf), "%u", m->tag);
        assert_str(v->rec.tags.v[0].value, buf);
    }
    assert_int_equal(v->rec.n_parts, is_listed ? 0 : m->parts.n);
}

static void check_bytes(struct world *w, const struct obucket *b, struct str key,
                        const struct mversion *m, uint32_t *rnd)
{
    struct oversion v;
    struct str want = m->is_marker ? STR_NONE : mversion_bytes(w, m), got;
    int rc = world_read(w, b, key, m->id, &got, &v);
    if (rc < 0) {
        fail_msg("read of \"%.*s\": %d %s %s", STR_ARG(key), rc, w->err.name, w->err.msg);
    }
    check_version(m, &v, false);
    if (m->is_marker) {
        return;
    }
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);
    if (want.n == 0) {
        return;
    }
    /* A piece of it: at borders of blocks and parts too. */
    struct oread *r = NULL;
    assert_int_equal(oread_open(w->s, &v, 0, &r, &w->err), 0);
    for (int i = 0; i < 3; i++) {
        size_t off = model_rand(rnd, (uint32_t)want.n), n = 1 + model_rand(rnd, 20000);
        char *p = arena_xalloc(w->a, n);
        ssize_t rd = oread_at(r, off, p, n, 0, &w->err);
        assert_int_equal(rd, MIN(n, want.n - off));
        assert_memory_equal(p, want.p + off, (size_t)rd);
    }
    oread_close(r);
    uint64_t at = 0;
    for (size_t i = 0; i < m->parts.n; i++) {
        uint64_t off = 0, n = 0;
        assert_int_equal(ostore_part_range(w->s, &v, m->parts.v[i].number, &off, &n, &w->err),
                         0);
        assert_int_equal(off, at);
        assert_int_equal(n, m->parts.v[i].size);
        at += n;
    }
}

static void check_keys(struct world *w, const struct obucket *ob, struct mbucket *b,
                       uint32_t *rnd)
{
    uint64_t n_objects = 0, n_bytes = 0;
    for (size_t i = 0; i < b->keys.n; i++) {
        struct mkey *k = &b->keys.v[i];
        struct oversion v;
        for (size_t j = 0; j < k->v.n; j++) {
            check_bytes(w, ob, mkey_str(k), &k->v.v[j], rnd);
            n_bytes += k->v.v[j].is_marker ? 0 : k->v.v[j].size;
        }
        int rc = ostore_get(w->s, ob, mkey_str(k), NULL, 0, w->a, &v, NULL);
        if (k->v.n == 0) {
            assert_int_equal(rc, -ENOENT);
        } else {
            assert_int_equal(rc, 0);
            assert_true(v.is_latest);
            check_version(&k->v.v[0], &v, false);
            n_objects += !k->v.v[0].is_marker;
        }
        uint8_t other[16] = {1, 2, 3};
        assert_int_equal(ostore_get(w->s, ob, mkey_str(k), other, 0, w->a, &v, NULL), -ENOENT);
        arena_reset(w->a);
    }
    for (size_t i = 0; i < b->uploads.n; i++) {
        for (size_t j = 0; j < b->uploads.v[i].parts.n; j++) {
            n_bytes += b->uploads.v[i].parts.v[j].size;
        }
    }
    const struct obucket *now = world_bucket(w, b->name);
    assert_int_equal(now->n_objects, n_objects);
    assert_int_equal(now->n_bytes, n_bytes);
    assert_int_equal(now->versioning, b->versioning);
    obucket_unref(now);
}

/* --- lists --- */

struct mentry { /* what a list should show */
    struct str prefix, key;
    const struct mversion *v;
    const struct mupload *u;
    bool is_latest;
};
struct mlist {
    VEC(struct mentry) e;
};

static struct str group_of(struct str key, const struct olist_query *q)
{
    if (q->delimiter.n == 0) {
        return STR_NONE;
    }
    ptrdiff_t at = str_find_str(str_skip(key, q->prefix.n), q->delimiter);
    return at < 0 ? STR_NONE : str_n(key.p, q->prefix.n + (size_t)at + q->delimiter.n);
}

static void add(struct mlist *l, struct mentry e, const struct olist_query *q)
{
    if (!str_has_prefix(e.key, q->prefix)) {
        return;
    }
    if (q->is_after_inclusive && str_cmp(e.key, q->after) < 0) {
        return;
    }
    e.prefix = group_of(e.key, q);
    if (!e.prefix.p) {
        vec_push(&l->e, e);
    } else if (l->e.n == 0 || !l->e.v[l->e.n - 1].prefix.p ||
               !str_eq(l->e.v[l->e.n - 1].prefix, e.prefix)) {
        vec_push(&l->e, e);
    }
}

static int compare_uploads(const void *a, const void *b)
{
    const struct mupload *x = *(const struct mupload *const *)a,
                         *y = *(const struct mupload *const *)b;
    int c = str_cmp(x->key, y->key);
    return c ? c : x < y ? -1 : 1; /* the model's are in the order of their beginning */
}

static void list_all(struct mbucket *b, const struct olist_query *q, struct mlist *l)
{
    if (q->kind == OLIST_UPLOADS) {
        const struct mupload *v[256];
        assert_true(b->uploads.n <= ARRAY_LEN(v));
        for (size_t i = 0; i < b->uploads.n; i++) {
            v[i] = &b->uploads.v[i];
        }
        qsort(v, b->uploads.n, sizeof(v[0]), compare_uploads);
        for (size_t i = 0; i < b->uploads.n; i++) {
            add(l, (struct mentry){.key = v[i]->key, .u = v[i]}, q);
        }
        return;
    }
    for (size_t i = 0; i < b->keys.n; i++) {
        struct mkey *k = &b->keys.v[i];
        size_t n = q->kind == OLIST_OBJECTS ? MIN(k->v.n, (size_t)1) : k->v.n;
        for (size_t j = 0; j < n; j++) {
            if (q->kind == OLIST_OBJECTS && k->v.v[j].is_marker) {
                continue;
            }
            add(l, (struct mentry){.key = mkey_str(k), .v = &k->v.v[j], .is_latest = j == 0},
                q);
        }
    }
}

/* The first entry that is behind the markers. */
static size_t first_behind(const struct mlist *l, const struct olist_query *q)
{
    size_t i = 0;
    if (!q->after.n || q->is_after_inclusive) {
        return 0;
    }
    for (; i < l->e.n; i++) {
        const struct mentry *e = &l->e.v[i];
        struct str name = e->prefix.p ? e->prefix : e->key;
        int c = str_cmp(name, q->after);
        if (c > 0) {
            break;
        }
        if (c == 0 && !e->prefix.p && q->after_id) {
            const uint8_t *id = e->v ? e->v->id : e->u->id;
            if (memcmp(id, q->after_id, 16) == 0) {
                return i + 1;
            }
        }
    }
    return i;
}

static void check_page(struct mbucket *b, const struct olist_query *q, const struct mlist *l,
                       size_t first, const struct olist_page *page)
{
    size_t want = MIN(l->e.n - MIN(first, l->e.n), q->max);
    if (page->n != want || page->is_truncated != (first + want < l->e.n)) {
        fail_msg(
            "list %d of %s, prefix \"%.*s\" delimiter \"%.*s\" after \"%.*s\" max %zu: %zu "
            "entries, want %zu of %zu",
            (int)q->kind, b->name, STR_ARG(q->prefix), STR_ARG(q->delimiter), STR_ARG(q->after),
            q->max, page->n, want, l->e.n);
    }
    for (size_t i = 0; i < want; i++) {
        const struct mentry *m = &l->e.v[first + i];
        const struct olist_entry *e = &page->v[i];
        if (m->prefix.p) {
            assert_true(str_eq(e->prefix, m->prefix));
        } else if (m->u) {
            assert_false(e->prefix.p);
            assert_true(str_eq(e->upload.key, m->key));
            assert_memory_equal(e->upload.upload, m->u->id, 16);
        } else {
            if (e->prefix.p || !str_eq(e->version.rec.key, m->key)) {
                fail_msg("list %d of %s, prefix \"%.*s\" delimiter %zu \"%.*s\" after %zu "
                         "\"%.*s\" %d "
                         "inclusive %d: entry %zu of %zu is \"%.*s\" / \"%.*s\", want \"%.*s\"",
                         (int)q->kind, b->name, STR_ARG(q->prefix), q->delimiter.n,
                         STR_ARG(q->delimiter), q->after.n, STR_ARG(q->after),
                         q->after_id != NULL, q->is_after_inclusive, i, want,
                         STR_ARG(e->prefix), STR_ARG(e->version.rec.key), STR_ARG(m->key));
            }
            assert_int_equal(e->version.is_latest, m->is_latest);
            assert_int_equal(e->version.is_first_of_key, m->is_latest);
            check_version(m->v, &e->version, true);
        }
    }
}

static void check_list(struct world *w, const struct obucket *ob, struct mbucket *b,
                       struct olist_query q, uint32_t *rnd)
{
    struct mlist l = {0};
    struct olist_page page;
    size_t n_pages = 0;
    list_all(b, &q, &l);
    size_t first = first_behind(&l, &q);
    for (;;) {
        assert_int_equal(ostore_list(w->s, ob, &q, w->a, &page, &w->err), 0);
        check_page(b, &q, &l, first, &page);
        if (!page.is_truncated || ++n_pages > 200) {
            break;
        }
        first += page.n;
        q.after = page.next;
        q.after_id = page.is_next_id ? page.next_id : NULL;
        if (q.is_after_inclusive) {
            q.is_after_inclusive = false;
        }
    }
    vec_free(&l.e);
}

static void check_lists(struct world *w, const struct obucket *ob, struct mbucket *b,
                        uint32_t *rnd)
{
    static const struct str prefixes[] = {STR_NONE,   {"", 0},    {"a", 1},
                                          {"a/", 2},  {"a\0", 2}, {"b", 1},
                                          {"a/b", 3}, {"z", 1},   {"\xff", 1}};
    static const struct str delimiters[] = {STR_NONE, {"/", 1}, {"//", 2}, {"\0", 1}, {"b", 1}};
    for (int i = 0; i < 40; i++) {
        struct olist_query q = {.kind = (enum olist_kind)model_rand(rnd, 3)};
        q.prefix = prefixes[model_rand(rnd, ARRAY_LEN(prefixes))];
        q.delimiter = delimiters[model_rand(rnd, ARRAY_LEN(delimiters))];
        q.max = model_rand(rnd, 3) == 0 ? 1000 : 1 + model_rand(rnd, 4);
        if (!q.prefix.p) {
            q.prefix = STR("");
        }
        if (b->keys.n > 0 && model_rand(rnd, 2)) {
            struct mkey *k = &b->keys.v[model_rand(rnd, (uint32_t)b->keys.n)];
            q.after = mkey_str(k);
            if (q.kind == OLIST_VERSIONS && k->v.n > 0 && model_rand(rnd, 2)) {
                q.after_id = k->v.v[model_rand(rnd, (uint32_t)k->v.n)].id;
            } else if (q.kind != OLIST_VERSIONS && model_rand(rnd, 4) == 0) {
                q.is_after_inclusive = true;
            }
        }
        check_list(w, ob, b, q, rnd);
        arena_reset(w->a);
    }
}

static void check_uploads(struct world *w, const struct obucket *ob, struct mbucket *b)
{
    for (size_t i = 0; i < b->uploads.n; i++) {
        struct mupload *u = &b->uploads.v[i];
        struct opart_page page;
        assert_int_equal(ostore_parts(w->s, ob, u->key, u->id, 0, 1000, w->a, &page, &w->err),
                         0);
        assert_int_equal(page.n, u->parts.n);
        for (size_t j = 0; j < page.n; j++) {
            assert_int_equal(page.v[j].number, u->parts.v[j].number);
            assert_int_equal(page.v[j].size, u->parts.v[j].size);
            assert_int_equal(page.v[j].lsn, u->parts.v[j].lsn);
        }
        arena_reset(w->a);
    }
}

void model_compare(struct world *w, struct mbucket *b, uint32_t seed)
{
    const struct obucket *ob = world_bucket(w, b->name);
    uint32_t rnd = seed | 1;
    check_keys(w, ob, b, &rnd);
    check_lists(w, ob, b, &rnd);
    check_uploads(w, ob, b);
    obucket_unref(ob);
}
