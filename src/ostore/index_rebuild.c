#include "ostore/index_tx.h"

#include "base/bytes.h"
#include <errno.h>

/* A blind replay does not look at what it replaces. So parts of completed uploads whose object was
 * overwritten or deleted are still there, and nothing is counted. Both are made good here. */

struct walk {
    struct oindex *x;
    struct oindex_batch *batch;
    struct omap *uploads; /* ids of uploads whose parts are in use */
    struct icounts *c;
    size_t n;
};

static int flush(struct walk *w, size_t min, struct err *err)
{
    if (w->n < min) {
        return 0;
    }
    int rc = oindex_apply(w->x, w->batch, err);
    oindex_batch_clear(w->batch);
    w->n = 0;
    return rc;
}

typedef int (*walk_fn)(struct walk *w, struct str key, struct str value, struct err *err);

static int each(struct walk *w, char kind, walk_fn fn, struct err *err)
{
    struct oindex_iter *it = NULL;
    char first[1] = {kind}, end[1] = {(char)(kind + 1)};
    int rc = oindex_iter_open(w->x, str_n(end, 1), &it);
    if (rc < 0) {
        return fail(err, rc, "OutOfMemory", "no memory for the index");
    }
    for (bool is = oindex_seek(it, str_n(first, 1)); is && rc == 0; is = oindex_next(it)) {
        rc = fn(w, oindex_key(it), oindex_value(it), err);
        if (rc == 0) {
            rc = flush(w, 10000, err);
        }
    }
    if (rc == 0) {
        rc = oindex_iter_error(it, err);
    }
    oindex_iter_close(it);
    return rc;
}

static int use_upload(struct walk *w, struct str key, struct str value, struct err *err)
{
    omap_put(w->uploads, str_skip(key, key.n - OREC_ID_SIZE), w);
    return 0;
}

/* A completed upload counts while the version that it became is there. */
static int check_completed(struct walk *w, struct str key, struct str value, struct err *err)
{
    struct icompleted c;
    struct ikey k;
    struct str v;
    struct ival val;
    if (icompleted_decode(value, &c) < 0 || c.key.n == 0 || c.key.n > OREC_KEY_MAX) {
        return fail(err, -EUCLEAN, "IndexDamaged", "a value of the index is broken");
    }
    struct arena *a = arena_new((size_t)4 << 20);
    ikey_object(&k, c.bucket, c.key);
    int rc = oindex_get(w->x, ikey_str(&k), false, a, &v, err);
    bool is_there = rc == 0 && ival_decode(v, &val, NULL) == 0 && val.origin == c.origin;
    if (rc == 0 && !is_there) {
        ikey_old(&k, c.bucket, c.key, c.origin);
        rc = oindex_get(w->x, ikey_str(&k), false, a, &v, err);
        is_there = rc == 0;
    }
    arena_free(a);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    if (is_there) {
        return use_upload(w, key, value, err);
    }
    oindex_del(w->batch, key);
    w->n++;
    return 0;
}

static int check_part(struct walk *w, struct str key, struct str value, struct err *err)
{
    if (key.n == 1 + OREC_ID_SIZE + 4 &&
        !omap_get(w->uploads, str_n(key.p + 1, OREC_ID_SIZE))) {
        oindex_del(w->batch, key);
        w->n++;
    }
    return 0;
}

static int count(struct walk *w, struct str key, struct str value, struct err *err)
{
    struct ival v;
    struct ipeek p;
    struct istate *s = &w->c->state;
    int rc = ival_decode(value, &v, err);
    if (rc < 0 || index_peek(v.head, &p) < 0) {
        return fail(err, -EUCLEAN, "IndexDamaged", "a value of the index is broken");
    }
    inums_get(&w->c->segments, v.segment)->a += v.size;
    char kind = key.p[0];
    bool is_object = v.kind == OREC_PUT || v.kind == OREC_COMPLETE;
    if (kind == IX_OBJECT || kind == IX_OLD) {
        s->n_versions++;
    }
    if (kind == IX_OBJECT && is_object) {
        s->n_objects++;
        inums_get(&w->c->buckets, p.bucket)->a++;
    }
    s->n_uploads += kind == IX_UPLOAD;
    if (v.kind == OREC_PUT || v.kind == OREC_PART) {
        s->n_bytes += (int64_t)p.size;
        s->file_bytes += p.is_file ? (int64_t)p.stored_size : 0;
        inums_get(&w->c->buckets, p.bucket)->b += (int64_t)p.size;
    }
    return 0;
}

static void put_numbers(struct walk *w, char kind, const struct inums *m)
{
    for (size_t i = 0; i < m->v.n; i++) {
        struct ikey k;
        char v[16];
        ikey_number(&k, kind, m->v.v[i].key);
        put_u64(v, (uint64_t)m->v.v[i].a);
        put_u64(v + 8, (uint64_t)m->v.v[i].b);
        oindex_put(w->batch, ikey_str(&k), str_n(v, sizeof(v)));
    }
}

int index_recount(struct oindex *x, struct icounts *c, struct err *err)
{
    static const char kinds[] = {IX_BUCKET, IX_CONF, IX_OLD, IX_OBJECT, IX_PART, IX_UPLOAD};
    struct walk w = {.x = x, .batch = oindex_batch_new(), .uploads = omap_new(), .c = c};
    int rc = each(&w, IX_UPLOAD, use_upload, err);
    if (rc == 0) {
        rc = each(&w, IX_COMPLETED, check_completed, err);
    }
    if (rc == 0) {
        rc = each(&w, IX_PART, check_part, err);
    }
    if (rc == 0) {
        rc = flush(&w, 0, err);
    }
    c->segments.v.n = 0;
    for (size_t i = 0; i < c->buckets.v.n; i++) {
        c->buckets.v.v[i].a = c->buckets.v.v[i].b = 0; /* has_ids stays */
    }
    struct istate s = c->state;
    s.n_versions = s.n_uploads = s.n_bytes = s.n_objects = s.file_bytes = 0;
    c->state = s;
    for (size_t i = 0; i < sizeof(kinds) && rc == 0; i++) {
        rc = each(&w, kinds[i], count, err);
    }
    if (rc == 0) {
        struct ikey k;
        char state[ISTATE_SIZE];
        c->state.is_rebuilding = false;
        put_numbers(&w, IX_LIVE, &c->segments);
        put_numbers(&w, IX_COUNTS, &c->buckets);
        ikey_state(&k);
        istate_encode(&c->state, state);
        oindex_put(w.batch, ikey_str(&k), str_n(state, sizeof(state)));
        rc = oindex_apply(x, w.batch, err);
    }
    oindex_batch_free(w.batch);
    omap_free(w.uploads, NULL);
    return rc;
}
