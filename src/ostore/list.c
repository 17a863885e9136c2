#include "ostore/ostore_int.h"

#include "base/bytes.h"
#include "ostore/oindex_int.h"
#include "ostore/record_int.h"
#include <errno.h>

/* One list under way. Entries go into the page until it is full; one more that would go says that
 * there is more. */
struct lister {
    struct ostore *s;
    const struct olist_query *q;
    uint64_t bucket;
    struct arena *a;
    struct olist_page *page;
    struct oindex_snap *snap;
    struct oindex_iter *it, *old; /* objects or uploads; old versions */
    bool has_ids;
    struct str prefix, delimiter, after;
};

static int too_large(struct err *err)
{
    return fail(err, -ENOMEM, "RequestTooLarge", "a list needs too much memory");
}

/* Where the common prefix of 'key' ends; 0: it has none. */
static size_t common_prefix(const struct lister *l, struct str key)
{
    if (l->delimiter.n == 0 || key.n < l->prefix.n) {
        return 0;
    }
    ptrdiff_t at = str_find_str(str_skip(key, l->prefix.n), l->delimiter);
    return at < 0 ? 0 : l->prefix.n + (size_t)at + l->delimiter.n;
}

/* 1: the page is full, there is more. */
static int add_entry(struct lister *l, struct olist_entry **ret)
{
    if (l->page->n == l->q->max) {
        l->page->is_truncated = true;
        return 1;
    }
    *ret = &l->page->v[l->page->n++];
    return 0;
}

static int add_prefix(struct lister *l, struct str cp, struct err *err)
{
    struct olist_entry *e = NULL;
    if (add_entry(l, &e) > 0) {
        return 1;
    }
    e->prefix = arena_str_dup(l->a, cp);
    l->page->next = e->prefix;
    l->page->is_next_id = false;
    return e->prefix.p ? 0 : too_large(err);
}

/* A copy of the value with one part of many: a page of objects of 10,000 parts would not fit into
 * any request otherwise. */
static struct str copy_value(struct arena *a, struct str value)
{
    for (size_t at = IVAL_HEAD; at + FIELD_HEAD_SIZE <= value.n;) {
        const char *p = value.p + at;
        size_t n = get_u32(p + 4), rest = value.n - at - FIELD_HEAD_SIZE;
        if (n > rest) {
            break;
        }
        size_t one = n >= OREC_PART_FIELD
                         ? OREC_PART_FIELD + (size_t)(uint8_t)p[FIELD_HEAD_SIZE + 22]
                         : SIZE_MAX;
        if (get_u16(p) == FIELD_PARTS && one < n) {
            char *copy = arena_alloc(a, value.n - (n - one));
            if (!copy) {
                return STR_NONE;
            }
            size_t first = at + FIELD_HEAD_SIZE + one;
            memcpy(copy, value.p, first);
            put_u32(copy + at + 4, (uint32_t)one);
            memcpy(copy + first, p + FIELD_HEAD_SIZE + n, rest - n);
            return str_n(copy, value.n - (n - one));
        }
        at += FIELD_HEAD_SIZE + n;
    }
    return arena_str_dup(a, value);
}

static int add_version(struct lister *l, struct str value, bool is_latest, struct err *err)
{
    struct olist_entry *e = NULL;
    struct ival v;
    if (add_entry(l, &e) > 0) {
        return 1;
    }
    value = copy_value(l->a, value);
    int rc = value.p ? ival_decode(value, &v, err) : too_large(err);
    if (rc == 0) {
        rc = oversion_fill(&v, is_latest, l->a, &e->version, err);
    }
    if (rc == 0) {
        e->version.rec.parts = NULL; /* ostore_get() gives them */
        e->version.rec.n_parts = 0;
        l->page->next = e->version.rec.key;
        l->page->is_next_id = l->q->kind == OLIST_VERSIONS;
        memcpy(l->page->next_id, e->version.rec.version, sizeof(l->page->next_id));
    }
    return rc;
}

/* --- where to begin --- */

static bool begins_inside(const struct lister *l)
{
    return l->after.p && str_cmp(l->after, l->prefix) >= 0;
}

/* The first key that can be listed. 'is_open': the marker's own key may have more to list. */
static bool first_key(const struct lister *l, char kind, struct ikey *k, bool is_open)
{
    if (!begins_inside(l)) {
        ikey_prefix(k, kind, l->bucket, l->prefix);
        return true;
    }
    size_t cp = str_has_prefix(l->after, l->prefix) ? common_prefix(l, l->after) : 0;
    if (cp && !l->q->is_after_inclusive) {
        ikey_prefix(k, kind, l->bucket, str_n(l->after.p, cp));
        return ikey_after(k); /* behind the common prefix, which was listed */
    }
    if (kind == IX_OBJECT) {
        ikey_object(k, l->bucket, l->after);
        if (!is_open && !l->q->is_after_inclusive) {
            k->p[k->n++] = 0;
        }
        return true;
    }
    ikey_of(k, kind, l->bucket, l->after);
    return is_open || l->q->is_after_inclusive || ikey_after(k);
}

static int seek_first(struct lister *l, char kind, bool is_open, bool *ret_is, struct err *err)
{
    struct ikey end, k;
    ikey_prefix(&end, kind, l->bucket, l->prefix);
    struct str bound = ikey_after(&end) ? ikey_str(&end) : STR_NONE;
    int rc = oindex_snap_open(l->s->index, &l->snap);
    if (rc == 0) {
        rc = oindex_iter_open_at(l->snap, bound, &l->it);
    }
    if (rc == 0 && l->has_ids && l->q->kind == OLIST_VERSIONS) {
        rc = oindex_iter_open_at(l->snap, STR_NONE, &l->old);
    }
    if (rc < 0) {
        return fail(err, rc, "OutOfMemory", "no memory for a list");
    }
    *ret_is = first_key(l, kind, &k, is_open) && oindex_seek(l->it, ikey_str(&k));
    return 0;
}

/* Behind all keys that begin with the common prefix. */
static bool skip_prefix(struct lister *l, char kind, struct str cp)
{
    struct ikey k;
    ikey_prefix(&k, kind, l->bucket, cp);
    return ikey_after(&k) && oindex_seek(l->it, ikey_str(&k));
}

/* --- objects and versions --- */

/* Old versions of one key, newest first; those with an origin at or above 'before' were listed. */
static int add_old(struct lister *l, struct str key, uint64_t before, struct err *err)
{
    struct ikey prefix, from;
    ikey_of(&prefix, IX_OLD, l->bucket, key);
    from = prefix;
    if (before != UINT64_MAX) {
        ikey_old(&from, l->bucket, key, before - 1);
    }
    for (bool is = oindex_seek(l->old, ikey_str(&from));
         is && str_has_prefix(oindex_key(l->old), ikey_str(&prefix));
         is = oindex_next(l->old)) {
        int rc = add_version(l, oindex_value(l->old), false, err);
        if (rc != 0) {
            return rc;
        }
    }
    return oindex_iter_error(l->old, err);
}

/* The origin of the version that the marker names, as far as it can be told. */
static uint64_t marker_origin(const struct lister *l, const struct ival *cur)
{
    const uint8_t *id = l->q->after_id;
    struct ipeek p;
    if (!index_is_null(id)) {
        return index_id_lsn(id);
    }
    if (index_peek(cur->head, &p) == 0 && index_is_null(p.version)) {
        return cur->origin;
    }
    return cur->null_origin ? cur->null_origin : UINT64_MAX;
}

static int add_key(struct lister *l, struct str key, struct err *err)
{
    struct ival cur;
    struct str value = oindex_value(l->it);
    int rc = ival_decode(value, &cur, err);
    if (rc < 0) {
        return rc;
    }
    if (l->q->kind == OLIST_OBJECTS) {
        return cur.kind == OREC_MARKER ? 0 : add_version(l, value, true, err);
    }
    uint64_t before = UINT64_MAX;
    if (l->q->after_id && str_eq(key, l->after)) {
        before = marker_origin(l, &cur);
    }
    if (cur.origin < before) {
        rc = add_version(l, value, true, err);
    }
    return rc == 0 && l->old ? add_old(l, key, before, err) : rc;
}

static int list_objects(struct lister *l, struct err *err)
{
    bool is_open = l->q->kind == OLIST_VERSIONS && l->q->after_id, is = false;
    int rc = seek_first(l, IX_OBJECT, is_open, &is, err);
    while (rc == 0 && is) {
        struct str key = ikey_object_key(oindex_key(l->it));
        size_t cp = key.n <= OREC_KEY_MAX ? common_prefix(l, key) : 0;
        if (cp == 0) {
            rc = add_key(l, key, err);
            is = rc == 0 && oindex_next(l->it);
            continue;
        }
        struct ival v;
        rc = ival_decode(oindex_value(l->it), &v, err);
        if (rc == 0 && l->q->kind == OLIST_OBJECTS && v.kind == OREC_MARKER) {
            is = oindex_next(l->it); /* a prefix of nothing but markers is none */
            continue;
        }
        char copy[OREC_KEY_MAX];
        memcpy(copy, key.p, cp);
        rc = rc < 0 ? rc : add_prefix(l, str_n(copy, cp), err);
        is = rc == 0 && skip_prefix(l, IX_OBJECT, str_n(copy, cp));
    }
    return rc;
}

/* --- uploads --- */

static int add_upload(struct lister *l, struct str key, struct str id, struct err *err)
{
    struct olist_entry *e = NULL;
    struct ival v;
    if (add_entry(l, &e) > 0) {
        return 1;
    }
    struct str value = arena_str_dup(l->a, oindex_value(l->it));
    e->upload.key = arena_str_dup(l->a, key);
    memcpy(e->upload.upload, id.p, OREC_ID_SIZE);
    int rc = value.p && e->upload.key.p ? ival_decode(value, &v, err) : too_large(err);
    if (rc == 0) {
        rc = ival_rec(&v, l->a, &e->upload.rec, err);
    }
    l->page->next = e->upload.key;
    memcpy(l->page->next_id, id.p, OREC_ID_SIZE);
    l->page->is_next_id = true;
    return rc;
}

static int list_uploads(struct lister *l, struct err *err)
{
    bool is = false;
    int rc = seek_first(l, IX_UPLOAD, l->q->after_id != NULL, &is, err);
    while (rc == 0 && is) {
        char buf[OREC_KEY_MAX];
        struct str key, rest;
        if (ikey_unescape(oindex_key(l->it), buf, &key, &rest) < 0 ||
            rest.n != 8 + OREC_ID_SIZE) {
            return fail(err, -EUCLEAN, "IndexDamaged", "a key of the index is broken");
        }
        size_t cp = common_prefix(l, key);
        if (cp) {
            rc = add_prefix(l, str_n(buf, cp), err);
            is = rc == 0 && skip_prefix(l, IX_UPLOAD, str_n(buf, cp));
            continue;
        }
        bool was_listed = l->q->after_id && str_eq(key, l->after) &&
                          ikey_be64(rest.p) <= index_id_lsn(l->q->after_id);
        if (!was_listed) {
            rc = add_upload(l, key, str_skip(rest, 8), err);
        }
        is = rc == 0 && oindex_next(l->it);
    }
    return rc;
}

int ostore_list(struct ostore *s, const struct obucket *b, const struct olist_query *q,
                struct arena *a, struct olist_page *ret, struct err *err)
{
    size_t max = MIN(q->max, (size_t)1000);
    struct olist_query query = *q;
    uint8_t after_id[OREC_ID_SIZE];
    query.max = max;
    if (q->after_id) {
        /* It may be a member of the page before, which is written over. */
        memcpy(after_id, q->after_id, sizeof(after_id));
        query.after_id = after_id;
    }
    struct lister l = {.s = s,
                       .q = &query,
                       .bucket = b->number,
                       .a = a,
                       .page = ret,
                       .prefix = q->prefix.p ? q->prefix : STR(""),
                       .delimiter = q->delimiter,
                       .after = q->after.n ? q->after : STR_NONE};
    *ret = (struct olist_page){0};
    atomic_fetch_add_explicit(&s->n_list, 1, memory_order_relaxed);
    if (max == 0 || l.prefix.n > OREC_KEY_MAX) {
        return 0;
    }
    /* No key is longer: a marker that is begins behind all that it begins with. */
    l.after.n = MIN(l.after.n, (size_t)OREC_KEY_MAX);
    ret->v = arena_array(a, max, sizeof(*ret->v));
    if (!ret->v) {
        return too_large(err);
    }
    pthread_mutex_lock(&s->counts.lock);
    const struct inum *n = inums_find(&s->counts.buckets, b->number);
    l.has_ids = n && n->has_ids;
    pthread_mutex_unlock(&s->counts.lock);
    int rc = q->kind == OLIST_UPLOADS ? list_uploads(&l, err) : list_objects(&l, err);
    if (rc >= 0 && l.it) {
        rc = oindex_iter_error(l.it, err);
    }
    oindex_iter_close(l.it);
    oindex_iter_close(l.old);
    oindex_snap_close(l.snap);
    if (rc == 0 && !ret->is_truncated) {
        ret->next = STR_NONE;
        ret->is_next_id = false;
    }
    return rc < 0 ? rc : 0;
}

/* --- parts --- */

static int add_part(struct opart_page *page, const struct ival *v, uint32_t number,
                    struct arena *a, struct err *err)
{
    struct orec r;
    int rc = ival_rec(v, a, &r, err);
    if (rc == 0) {
        page->v[page->n++] = (struct opart){.number = number,
                                            .size = r.size,
                                            .lsn = v->origin,
                                            .time_ns = v->time_ns,
                                            .etag = r.etag,
                                            .sum = r.sum};
    }
    return rc;
}

int ostore_parts(struct ostore *s, const struct obucket *b, struct str key,
                 const uint8_t upload[16], uint32_t after, size_t max, struct arena *a,
                 struct opart_page *ret, struct err *err)
{
    struct ikey k, end;
    struct str value;
    struct ival v;
    struct oindex_iter *it = NULL;
    *ret = (struct opart_page){0};
    if (key.n == 0 || key.n > OREC_KEY_MAX) {
        return fail(err, -ENOENT, "NoSuchUpload", "The specified upload does not exist.");
    }
    max = MIN(max, (size_t)OREC_PARTS_MAX);
    ikey_upload(&k, b->number, key, upload);
    int rc = oindex_get(s->index, ikey_str(&k), false, a, &value, err);
    if (rc == -ENOENT) {
        return fail(err, rc, "NoSuchUpload",
                    "The specified upload does not exist. The upload ID may be invalid, or the "
                    "upload may have been aborted or completed.");
    }
    if (rc == 0) {
        rc = ival_decode(value, &v, err);
    }
    if (rc == 0) {
        rc = ival_rec(&v, a, &ret->upload, err);
    }
    if (rc < 0) {
        return rc;
    }
    ikey_parts(&k, upload);
    end = k;
    if (after >= OREC_PARTS_MAX) {
        return 0;
    }
    rc = oindex_iter_open(s->index, ikey_after(&end) ? ikey_str(&end) : STR_NONE, &it);
    if (rc < 0) {
        return fail(err, rc, "OutOfMemory", "no memory for a list");
    }
    ret->v = arena_array(a, MAX(max, (size_t)1), sizeof(*ret->v));
    rc = ret->v ? 0 : too_large(err);
    ikey_part(&k, upload, after + 1);
    for (bool is = oindex_seek(it, ikey_str(&k)); is && rc == 0; is = oindex_next(it)) {
        if (ret->n == max) {
            ret->is_truncated = max > 0;
            break;
        }
        struct str kk = oindex_key(it);
        value = arena_str_dup(a, oindex_value(it));
        rc = value.p ? ival_decode(value, &v, err) : too_large(err);
        if (rc == 0) {
            rc = add_part(ret, &v, (uint32_t)(ikey_be64(kk.p + 13) & UINT32_MAX), a, err);
        }
    }
    if (rc == 0) {
        rc = oindex_iter_error(it, err);
    }
    oindex_iter_close(it);
    return rc;
}

int ostore_version_parts(struct ostore *s, const struct oversion *v, uint32_t after, size_t max,
                         struct arena *a, struct opart_page *ret, struct err *err)
{
    const struct orec *r = &v->rec;
    size_t n = MIN(max, r->n_parts);
    *ret = (struct opart_page){.upload = *r};
    ret->v = arena_array(a, MAX(n, (size_t)1), sizeof(*ret->v));
    if (!ret->v) {
        return too_large(err);
    }
    for (size_t i = 0; i < r->n_parts; i++) {
        const struct orec_part *p = &r->parts[i];
        if (p->number <= after) {
            continue;
        }
        if (ret->n == n) {
            ret->is_truncated = n > 0;
            break;
        }
        struct ikey k;
        struct str value;
        struct ival part;
        ikey_part(&k, r->upload, p->number);
        int rc = oindex_get(s->index, ikey_str(&k), false, a, &value, err);
        if (rc == 0) {
            rc = ival_decode(value, &part, err);
        }
        if (rc == 0 && part.origin == p->lsn) {
            rc = add_part(ret, &part, p->number, a, err);
        } else if (rc == 0 || rc == -ENOENT) {
            /* Deleted meanwhile: what the object itself says of it is enough. */
            ret->v[ret->n++] = (struct opart){.number = p->number,
                                              .size = p->size,
                                              .lsn = p->lsn,
                                              .time_ns = r->time_ns,
                                              .sum = p->sum};
            rc = 0;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}
