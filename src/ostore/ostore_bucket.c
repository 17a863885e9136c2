#include "ostore/ostore_bucket.h"

#include "base/log.h"
#include "ostore/ostore_int.h"
#include <errno.h>

LOG_MODULE("ostore.bucket");

#define CONF_BYTES_MAX ((size_t)512 << 10)

static struct blob *blob_new(size_t n)
{
    struct blob *b = malloc(sizeof(*b) + n + 1);
    if (!b) {
        abort();
    }
    atomic_init(&b->refs, 1);
    b->n = n;
    b->p[n] = 0;
    return b;
}

static struct blob *blob_ref(struct blob *b)
{
    if (b) {
        atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    }
    return b;
}

static void blob_unref(struct blob *b)
{
    if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1) {
        free(b);
    }
}

const struct obucket *obucket_ref(const struct obucket *b)
{
    struct bucket_snap *s = CONTAINER_OF((void *)(uintptr_t)b, struct bucket_snap, pub);
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return b;
}

void obucket_unref(const struct obucket *b)
{
    if (!b) {
        return;
    }
    struct bucket_snap *s = CONTAINER_OF((void *)(uintptr_t)b, struct bucket_snap, pub);
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1) {
        blob_unref(s->text);
        for (size_t i = 0; i < OCONF_MAX; i++) {
            blob_unref(s->conf[i]);
        }
        free(s);
    }
}

/* A copy that shares all bytes. */
static struct bucket_snap *snap_copy(const struct bucket_snap *old)
{
    struct bucket_snap *s = malloc(sizeof(*s));
    if (!s) {
        abort();
    }
    memcpy(&s->pub, &old->pub, sizeof(s->pub));
    atomic_init(&s->refs, 1);
    s->text = blob_ref(old->text);
    for (size_t i = 0; i < OCONF_MAX; i++) {
        s->conf[i] = blob_ref(old->conf[i]);
    }
    return s;
}

static void snap_replace(struct bucket *b, struct bucket_snap *s)
{
    obucket_unref(&b->snap->pub);
    b->snap = s;
}

void buckets_init(struct buckets *b)
{
    pthread_mutex_init(&b->lock, NULL);
    b->by_name = omap_new();
    b->by_number = omap_new();
}

static void free_bucket(void *p)
{
    struct bucket *b = p;
    obucket_unref(&b->snap->pub);
    free(b);
}

void buckets_done(struct buckets *b)
{
    omap_free(b->by_name, NULL);
    omap_free(b->by_number, free_bucket);
    pthread_mutex_destroy(&b->lock);
}

static struct bucket *by_number(struct buckets *t, uint64_t number)
{
    struct ikey k;
    ikey_number(&k, IX_BUCKET, number);
    return omap_get(t->by_number, ikey_str(&k));
}

static struct blob *blob_add(struct blob *b, size_t *at, struct str s, struct str *ret)
{
    if (s.n) {
        memcpy(b->p + *at, s.p, s.n);
    }
    *ret = str_n(b->p + *at, s.n);
    *at += s.n;
    return b;
}

static void make_bucket(struct buckets *t, const struct irec *r, const struct orec *rec)
{
    if (by_number(t, rec->bucket)) {
        return; /* a copy */
    }
    struct bucket_snap *s = calloc(1, sizeof(*s));
    struct bucket *b = calloc(1, sizeof(*b));
    if (!s || !b) {
        abort();
    }
    size_t at = 0;
    s->text = blob_new(rec->bucket_name.n + rec->account.n + rec->region.n);
    blob_add(s->text, &at, rec->bucket_name, &s->pub.name);
    blob_add(s->text, &at, rec->account, &s->pub.account);
    blob_add(s->text, &at, rec->region, &s->pub.region);
    atomic_init(&s->refs, 1);
    s->pub.number = rec->bucket;
    s->pub.create_ns = r->time_ns;
    b->number = rec->bucket;
    b->origin = r->peek.origin ? r->peek.origin : r->lsn;
    b->snap = s;
    struct ikey k;
    ikey_number(&k, IX_BUCKET, b->number);
    omap_put(t->by_number, ikey_str(&k), b);
    omap_put(t->by_name, s->pub.name, b);
}

static void set_conf(struct ostore *s, const struct irec *r, const struct orec *rec)
{
    struct bucket *b = by_number(&s->buckets, rec->bucket);
    uint64_t origin = r->peek.origin ? r->peek.origin : r->lsn;
    if (!b || rec->conf >= OCONF_MAX || b->conf_origin[rec->conf] > origin) {
        return;
    }
    b->conf_origin[rec->conf] = origin;
    struct bucket_snap *n = snap_copy(b->snap);
    blob_unref(n->conf[rec->conf]);
    n->conf[rec->conf] = NULL;
    n->pub.conf[rec->conf] = STR_NONE;
    if (!rec->is_conf_removed) {
        size_t at = 0;
        n->conf[rec->conf] = blob_new(rec->conf_bytes.n);
        blob_add(n->conf[rec->conf], &at, rec->conf_bytes, &n->pub.conf[rec->conf]);
    }
    if (rec->conf == OCONF_VERSIONING) {
        n->pub.versioning =
            rec->conf_bytes.n && (uint8_t)rec->conf_bytes.p[0] <= OSTORE_SUSPENDED
                ? (enum ostore_versioning)rec->conf_bytes.p[0]
                : OSTORE_UNVERSIONED;
        if (n->pub.versioning != OSTORE_UNVERSIONED) {
            pthread_mutex_lock(&s->counts.lock);
            inums_get(&s->counts.buckets, b->number)->has_ids = true;
            pthread_mutex_unlock(&s->counts.lock);
        }
    }
    snap_replace(b, n);
}

static void drop_bucket(struct ostore *s, uint64_t number)
{
    struct bucket *b = by_number(&s->buckets, number);
    if (!b) {
        return;
    }
    struct ikey k;
    ikey_number(&k, IX_BUCKET, number);
    omap_remove(s->buckets.by_number, ikey_str(&k));
    if (omap_get(s->buckets.by_name, b->snap->pub.name) == b) {
        omap_remove(s->buckets.by_name, b->snap->pub.name);
    }
    free_bucket(b);
    pthread_mutex_lock(&s->counts.lock);
    inums_drop(&s->counts.buckets, number);
    pthread_mutex_unlock(&s->counts.lock);
}

int buckets_apply(struct ostore *s, const struct irec *r, struct err *err)
{
    if (r->kind != OREC_BUCKET && r->kind != OREC_BUCKET_CONF && r->kind != OREC_BUCKET_GONE) {
        return 0;
    }
    struct arena *a = arena_new((size_t)2 << 20);
    struct orec rec;
    int rc = orec_decode(a, r->kind, r->head, &rec, err);
    if (rc == 0) {
        pthread_mutex_lock(&s->buckets.lock);
        if (r->kind == OREC_BUCKET) {
            make_bucket(&s->buckets, r, &rec);
        } else if (r->kind == OREC_BUCKET_CONF) {
            set_conf(s, r, &rec);
        } else {
            drop_bucket(s, rec.bucket);
        }
        pthread_mutex_unlock(&s->buckets.lock);
    }
    arena_free(a);
    return rc;
}

int buckets_load(struct ostore *s, struct err *err)
{
    struct oindex_iter *it = NULL;
    char first[1] = {IX_BUCKET}, end[1] = {IX_CONF + 1};
    int rc = oindex_iter_open(s->index, str_n(end, 1), &it);
    if (rc < 0) {
        return fail(err, rc, "OutOfMemory", "no memory for the index");
    }
    for (bool is = oindex_seek(it, str_n(first, 1)); is && rc == 0; is = oindex_next(it)) {
        struct ival v;
        rc = ival_decode(oindex_value(it), &v, err);
        struct irec r = {.kind = v.kind, .lsn = v.lsn, .time_ns = v.time_ns, .head = v.head};
        if (rc == 0) {
            rc = index_peek(v.head, &r.peek);
        }
        if (rc == 0) {
            rc = buckets_apply(s, &r, err);
        }
    }
    if (rc == 0) {
        rc = oindex_iter_error(it, err);
    }
    oindex_iter_close(it);
    return rc;
}

/* Under the lock: a reference, with counters of now. */
static const struct obucket *take(struct ostore *s, struct bucket *b)
{
    pthread_mutex_lock(&s->counts.lock);
    const struct inum *n = inums_find(&s->counts.buckets, b->number);
    uint64_t objects = n && n->a > 0 ? (uint64_t)n->a : 0,
             bytes = n && n->b > 0 ? (uint64_t)n->b : 0;
    pthread_mutex_unlock(&s->counts.lock);
    if (b->snap->pub.n_objects != objects || b->snap->pub.n_bytes != bytes) {
        struct bucket_snap *copy = snap_copy(b->snap);
        copy->pub.n_objects = objects;
        copy->pub.n_bytes = bytes;
        snap_replace(b, copy);
    }
    return obucket_ref(&b->snap->pub);
}

const struct obucket *buckets_now(struct ostore *s, uint64_t number)
{
    pthread_mutex_lock(&s->buckets.lock);
    struct bucket *b = by_number(&s->buckets, number);
    const struct obucket *ret = b ? obucket_ref(&b->snap->pub) : NULL;
    pthread_mutex_unlock(&s->buckets.lock);
    return ret;
}

const struct obucket *buckets_named(struct ostore *s, struct str name)
{
    pthread_mutex_lock(&s->buckets.lock);
    struct bucket *b = omap_get(s->buckets.by_name, name);
    const struct obucket *ret = b ? take(s, b) : NULL;
    pthread_mutex_unlock(&s->buckets.lock);
    return ret;
}

int ostore_bucket(struct ostore *s, struct str name, const struct obucket **ret,
                  struct err *err)
{
    *ret = buckets_named(s, name);
    return *ret ? 0 : fail(err, -ENOENT, "NoSuchBucket", "The specified bucket does not exist");
}

int ostore_bucket_list(struct ostore *s, struct str account, struct str prefix,
                       struct str after, size_t max, struct arena *a, struct obucket_list *ret,
                       struct err *err)
{
    int rc = 0;
    *ret = (struct obucket_list){0};
    pthread_mutex_lock(&s->buckets.lock);
    max = MIN(max, omap_len(s->buckets.by_name));
    ret->v = arena_array(a, max + 1, sizeof(*ret->v));
    if (!ret->v) {
        rc = fail(err, -ENOMEM, "RequestTooLarge", "too many buckets for one answer");
    }
    struct str from = after.p && (!prefix.p || str_cmp(after, prefix) > 0) ? after
                      : prefix.p                                           ? prefix
                                                                           : STR("");
    for (struct omap_node *n = omap_seek(s->buckets.by_name, from); n && rc == 0;
         n = omap_next(n)) {
        struct bucket *b = omap_value(n);
        if (prefix.p && !str_has_prefix(omap_key(n), prefix)) {
            break;
        }
        if ((after.p && str_cmp(omap_key(n), after) <= 0) ||
            (account.p && !str_eq(account, b->snap->pub.account))) {
            continue;
        }
        if (ret->n == max) {
            ret->is_truncated = true;
            break;
        }
        ret->v[ret->n++] = take(s, b);
    }
    pthread_mutex_unlock(&s->buckets.lock);
    return rc;
}

static int change(struct ostore *s, const struct orec *r, struct err *err)
{
    struct cop op = {.kind = COP_BUCKET, .rec = *r};
    if (commit_wait(s->commit, &op) < 0) {
        return fail(err, op.rc, op.err.name, "%s", op.err.msg);
    }
    return 0;
}

int ostore_bucket_create(struct ostore *s, struct str name, struct str account,
                         struct str region, struct err *err)
{
    if (name.n == 0 || name.n > 255 || account.n > 255 || region.n > 255) {
        return fail(err, -EINVAL, "InvalidBucketName", "The specified bucket is not valid.");
    }
    struct orec r = {
        .kind = OREC_BUCKET, .bucket_name = name, .account = account, .region = region};
    return change(s, &r, err);
}

static int abort_page(struct ostore *s, const struct obucket *b, const struct olist_page *page,
                      struct arena *a, struct err *err)
{
    struct ochange *v = arena_array(a, page->n + 1, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "RequestTooLarge", "no memory for so many uploads");
    }
    for (size_t i = 0; i < page->n; i++) {
        const struct olist_upload *u = &page->v[i].upload;
        v[i] = (struct ochange){
            .kind = OCHANGE_ABORT, .bucket = b, .cond = OCHANGE_IF_NONE, .rec.key = u->key};
        memcpy(v[i].rec.upload, u->upload, sizeof(v[i].rec.upload));
    }
    ochange_wait_all(s, v, page->n);
    for (size_t i = 0; i < page->n; i++) {
        if (v[i].rc < 0 && v[i].rc != -ENOENT) {
            return fail(err, v[i].rc, v[i].err.name, "%s", v[i].err.msg);
        }
    }
    return 0;
}

/* Uploads that were never completed go with their bucket. */
static int abort_uploads(struct ostore *s, struct str name, uint64_t number, struct err *err)
{
    const struct obucket *b = NULL;
    int rc = ostore_bucket(s, name, &b, err);
    if (rc == 0 && number && b->number != number) {
        obucket_unref(b);
        return fail(err, -ENOENT, "NoSuchBucket", "The specified bucket does not exist");
    }
    struct arena *a = arena_new((size_t)64 << 20);
    bool is_more = rc == 0;
    while (is_more) {
        struct olist_query q = {.kind = OLIST_UPLOADS, .max = 1000};
        struct olist_page page;
        arena_reset(a);
        rc = ostore_list(s, b, &q, a, &page, err);
        is_more = rc == 0 && page.is_truncated;
        rc = rc < 0 ? rc : abort_page(s, b, &page, a, err);
        is_more = is_more && rc == 0;
    }
    arena_free(a);
    obucket_unref(b);
    return rc;
}

int ostore_bucket_delete(struct ostore *s, struct str name, uint64_t number, struct err *err)
{
    struct orec r = {.kind = OREC_BUCKET_GONE, .bucket_name = name, .bucket = number};
    for (int i = 0;; i++) {
        struct err why = ERR_INIT;
        int rc = change(s, &r, &why);
        if (rc == -EBUSY && i < 3) {
            rc = abort_uploads(s, name, number, err);
            if (rc < 0) {
                return rc;
            }
            continue;
        }
        if (rc == 0) {
            log_debug("bucket.deleted", KV_STR("bucket", name));
        }
        return rc < 0 ? fail(err, rc == -EBUSY ? -ENOTEMPTY : rc, why.name, "%s", why.msg) : 0;
    }
}

int ostore_bucket_configure(struct ostore *s, struct str name, uint64_t number,
                            enum obucket_conf which, struct str bytes, struct err *err)
{
    if (which <= 0 || which >= OCONF_MAX || bytes.n > CONF_BYTES_MAX ||
        (which == OCONF_VERSIONING &&
         (bytes.n != 1 || (bytes.p[0] != OSTORE_ENABLED && bytes.p[0] != OSTORE_SUSPENDED)))) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "a configuration of a bucket is out of range");
    }
    struct orec r = {.kind = OREC_BUCKET_CONF,
                     .bucket_name = name,
                     .bucket = number,
                     .conf = (uint16_t)which,
                     .conf_bytes = bytes,
                     .is_conf_removed = !bytes.p};
    return change(s, &r, err);
}
