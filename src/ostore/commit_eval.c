#include "ostore/ostore_int.h"

#include <errno.h>

static const uint8_t null_version[OREC_ID_SIZE];

static bool is_object(const struct ival *v)
{
    return v && (v->kind == OREC_PUT || v->kind == OREC_COMPLETE);
}

static int failed_condition(struct err *err)
{
    return fail(err, -EEXIST, "PreconditionFailed",
                "At least one of the pre-conditions you specified did not hold");
}

static bool etag_fits(struct str want, struct str etag)
{
    return str_eq(want, STR("*")) || str_eq(want, etag);
}

int commit_check_cond(const struct ival *present, const struct ochange_if *cond, bool is_delete,
                      struct err *err)
{
    bool wants = cond->match.p || cond->mtime_s || cond->size >= 0 || cond->lsn;
    if (present && !is_object(present) && is_delete && !cond->lsn) {
        /* A delete marker is there: it has a time, but no ETag and no bytes. */
        bool is_other = (cond->match.p && !str_eq(cond->match, STR("*"))) || cond->size > 0 ||
                        (cond->mtime_s && cond->mtime_s != present->time_ns / NS_PER_S);
        return is_other ? failed_condition(err) : 0;
    }
    if (!is_object(present) && !(present && cond->lsn)) {
        /* A delete of nothing is fine; to replace nothing is not. */
        return wants && !is_delete
                   ? fail(err, -ENOENT, "NoSuchKey", "The specified key does not exist.")
                   : 0;
    }
    struct ipeek p;
    if (index_peek(present->head, &p) < 0) {
        return fail(err, -EUCLEAN, "IndexDamaged", "the head of a value is broken");
    }
    if ((cond->match.p && !etag_fits(cond->match, p.etag)) ||
        (cond->none_match.p && etag_fits(cond->none_match, p.etag)) ||
        (cond->mtime_s && cond->mtime_s != present->time_ns / NS_PER_S) ||
        (cond->size >= 0 && (uint64_t)cond->size != p.size) ||
        (cond->lsn && cond->lsn != present->origin)) {
        return failed_condition(err);
    }
    return 0;
}

static bool has_cond(const struct ochange_if *c)
{
    return c->match.p || c->none_match.p || c->mtime_s || c->size >= 0 || c->lsn;
}

/* The latest version, or STR_NONE-like NULL in *ret when there is none. */
static int latest(struct cbatch *b, uint64_t bucket, struct str key, struct ival *v,
                  struct ival **ret, struct err *err)
{
    struct ikey k;
    int rc = itx_find(&b->tx, bucket, key, NULL, v, &k, err);
    *ret = rc == 0 ? v : NULL;
    return rc == -ENOENT ? 0 : rc;
}

static uint64_t next_lsn(const struct cbatch *b)
{
    return b->first_lsn + b->recs.n;
}

static void new_version(const struct cbatch *b, const struct obucket *bucket, uint8_t ret[16])
{
    memset(ret, 0, OREC_ID_SIZE);
    if (bucket->versioning == OSTORE_ENABLED) {
        index_make_id(next_lsn(b), ret);
    }
}

static void report(struct ochange *c, const struct obucket *bucket, const struct orec *r)
{
    c->lsn = r->lsn;
    c->time_ns = r->time_ns;
    memcpy(c->version, r->version, OREC_ID_SIZE);
    c->is_version_made = bucket->versioning != OSTORE_UNVERSIONED;
}

static int eval_put(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                    struct err *err)
{
    struct ival v, *cur = NULL;
    int rc = ostore_may_grow(b->s, false, err);
    if (rc == 0 && has_cond(&c->cond)) {
        rc = latest(b, bucket->number, c->rec.key, &v, &cur, err);
        if (rc == 0) {
            rc = commit_check_cond(cur, &c->cond, false, err);
        }
    }
    if (rc < 0) {
        return rc;
    }
    struct orec r = c->rec;
    r.kind = OREC_PUT;
    r.bucket = bucket->number;
    r.origin_lsn = r.source_lsn = 0;
    r.time_ns = ostore_now(b->s);
    r.parts = NULL;
    r.n_parts = 0;
    r.part_number = 0;
    r.new_key = r.unknown = STR_NONE;
    memset(r.upload, 0, sizeof(r.upload));
    new_version(b, bucket, r.version);
    r.body = (struct orec_body){0};
    struct str bytes = STR_NONE;
    if (c->body) {
        r.body = *oput_body(c->body);
        bytes = oput_inline(c->body);
        r.size = oput_size(c->body);
    } else {
        r.size = 0;
    }
    rc = cbatch_add(b, &r, 0, bytes, err);
    if (rc == 0) {
        report(c, bucket, &r);
    }
    return rc;
}

static int add_gone(struct cbatch *b, struct ochange *c, const struct ival *v,
                    const uint8_t *version, struct err *err)
{
    struct orec r = {.kind = OREC_GONE,
                     .bucket = c->bucket->number,
                     .key = c->rec.key,
                     .time_ns = ostore_now(b->s),
                     .account = c->rec.account,
                     .principal = c->rec.principal,
                     .source_lsn = v->since};
    memcpy(r.version, version, OREC_ID_SIZE);
    int rc = cbatch_add(b, &r, 0, STR_NONE, err);
    c->lsn = r.lsn;
    c->time_ns = r.time_ns;
    return rc;
}

static int delete_version(struct cbatch *b, struct ochange *c, struct err *err)
{
    struct ival v;
    struct ikey k;
    uint8_t version[OREC_ID_SIZE];
    memcpy(version, c->rec.version, sizeof(version));
    int rc = itx_find(&b->tx, c->bucket->number, c->rec.key, version, &v, &k, err);
    memcpy(c->version, version, sizeof(version));
    c->is_version_made = true;
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    rc = commit_check_cond(&v, &c->cond, true, err);
    if (rc < 0) {
        return rc;
    }
    c->is_marker = v.kind == OREC_MARKER;
    return add_gone(b, c, &v, version, err);
}

static int eval_delete(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                       struct err *err)
{
    if (c->is_version) {
        return delete_version(b, c, err);
    }
    struct ival v, *cur = NULL;
    int rc = latest(b, bucket->number, c->rec.key, &v, &cur, err);
    if (rc == 0) {
        rc = commit_check_cond(cur, &c->cond, true, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (!cur && (bucket->versioning == OSTORE_UNVERSIONED || has_cond(&c->cond))) {
        return 0;
    }
    if (bucket->versioning == OSTORE_UNVERSIONED) {
        return add_gone(b, c, cur, null_version, err);
    }
    struct orec r = {.kind = OREC_MARKER,
                     .bucket = bucket->number,
                     .key = c->rec.key,
                     .time_ns = ostore_now(b->s),
                     .account = c->rec.account,
                     .principal = c->rec.principal};
    new_version(b, bucket, r.version);
    rc = cbatch_add(b, &r, 0, STR_NONE, err);
    if (rc == 0) {
        report(c, bucket, &r);
        c->is_marker = true;
    }
    return rc;
}

/* A version with other tags is a copy of its record: same time, same origin. */
static int eval_tags(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                     struct err *err)
{
    struct ival v;
    struct ikey k;
    int rc = ostore_may_grow(b->s, false, err);
    if (rc < 0) {
        return rc;
    }
    rc = itx_find(&b->tx, bucket->number, c->rec.key, c->is_version ? c->rec.version : NULL, &v,
                  &k, err);
    if (rc == -ENOENT) {
        return c->is_version
                   ? fail(err, rc, "NoSuchVersion", "The specified version does not exist.")
                   : fail(err, rc, "NoSuchKey", "The specified key does not exist.");
    }
    if (rc == 0 && v.kind == OREC_MARKER) {
        return c->is_version
                   ? fail(err, -EPERM, "MethodNotAllowed",
                          "The specified method is not allowed against this resource.")
                   : fail(err, -ENOENT, "NoSuchKey", "The specified key does not exist.");
    }
    if (rc == 0) {
        rc = commit_check_cond(&v, &c->cond, false, err);
    }
    struct orec r;
    struct str body;
    if (rc == 0) {
        rc = cbatch_body(b, &v, &body, err);
    }
    if (rc == 0) {
        rc = ival_rec(&v, b->a, &r, err);
    }
    if (rc < 0) {
        return rc;
    }
    r.tags = c->rec.tags;
    rc = cbatch_add(b, &r, OLOG_MOVED, body, err);
    if (rc == 0) {
        report(c, bucket, &r);
    }
    return rc;
}

static int eval_rename(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                       struct err *err)
{
    struct ival v, target, *cur = NULL, *to = NULL;
    struct orec r;
    struct str body;
    if (bucket->versioning != OSTORE_UNVERSIONED) {
        return fail(err, -EINVAL, "InvalidRequest", "a bucket with versions has no rename");
    }
    if (str_eq(c->rec.key, c->rec.new_key)) {
        return fail(err, -EINVAL, "InvalidRequest", "the new name is the old one");
    }
    int rc = ostore_may_grow(b->s, false, err);
    if (rc == 0) {
        rc = latest(b, bucket->number, c->rec.key, &v, &cur, err);
    }
    if (rc == 0 && !cur) {
        return fail(err, -ENOENT, "NoSuchKey", "The specified key does not exist.");
    }
    if (rc == 0) {
        rc = latest(b, bucket->number, c->rec.new_key, &target, &to, err);
    }
    if (rc == 0) {
        rc = commit_check_cond(cur, &c->cond, false, err);
    }
    if (rc == 0) {
        rc = commit_check_cond(to, &c->target_cond, false, err);
    }
    if (rc == 0) {
        rc = cbatch_body(b, cur, &body, err);
    }
    if (rc == 0) {
        rc = ival_rec(cur, b->a, &r, err);
    }
    if (rc < 0) {
        return rc;
    }
    struct orec old = {.kind = OREC_RENAME,
                       .bucket = bucket->number,
                       .key = c->rec.key,
                       .new_key = c->rec.new_key,
                       .time_ns = ostore_now(b->s),
                       .account = c->rec.account,
                       .principal = c->rec.principal,
                       .source_lsn = cur->since};
    r.key = c->rec.new_key;
    r.origin_lsn = 0;
    r.source_lsn = r.kind == OREC_COMPLETE ? cur->since : 0;
    rc = cbatch_add(b, &r, OLOG_GROUP, body, err);
    if (rc == 0) {
        report(c, bucket, &r);
        rc = cbatch_add(b, &old, OLOG_GROUP | OLOG_GROUP_END, STR_NONE, err);
        b->is_broken |= rc < 0;
    }
    return rc;
}

static int eval_change(struct cbatch *b, struct ochange *c, struct err *err)
{
    static const unsigned max_key = OREC_KEY_MAX;
    if (c->rec.key.n == 0 || c->rec.key.n > max_key || c->rec.new_key.n > max_key) {
        return fail(err, -EINVAL, "KeyTooLongError", "a key has 1 to 1024 bytes");
    }
    const struct obucket *bucket = buckets_now(b->s, c->bucket->number);
    if (!bucket) {
        return fail(err, -ENOENT, "NoSuchBucket", "The specified bucket does not exist");
    }
    c->is_version_made = c->is_marker = c->is_repeated = false;
    int rc;
    switch (c->kind) {
    case OCHANGE_PUT: rc = eval_put(b, c, bucket, err); break;
    case OCHANGE_DELETE: rc = eval_delete(b, c, bucket, err); break;
    case OCHANGE_TAGS: rc = eval_tags(b, c, bucket, err); break;
    case OCHANGE_RENAME: rc = eval_rename(b, c, bucket, err); break;
    default: rc = commit_eval_upload(b, c, bucket, err); break;
    }
    obucket_unref(bucket);
    return rc;
}

/* --- buckets --- */

static int is_any(struct cbatch *b, char kind, uint64_t bucket, struct err *err)
{
    struct ikey prefix;
    struct itx_iter it;
    ikey_prefix(&prefix, kind, bucket, STR(""));
    int rc = itx_iter_open(&b->tx, &prefix, &it, err);
    if (rc < 0) {
        return rc;
    }
    bool is = itx_iter_next(&it);
    rc = itx_iter_close(&it, err);
    return rc < 0 ? rc : is;
}

static int eval_bucket(struct cbatch *b, struct cop *op, struct err *err)
{
    struct orec r = op->rec;
    const struct obucket *now = buckets_named(b->s, r.bucket_name);
    int rc = 0;
    r.time_ns = ostore_now(b->s);
    if (r.kind == OREC_BUCKET) {
        if (now) {
            bool is_own = str_eq(now->account, r.account);
            obucket_unref(now);
            return fail(err, -EEXIST,
                        is_own ? "BucketAlreadyOwnedByYou" : "BucketAlreadyExists",
                        "the bucket exists");
        }
        rc = ostore_may_grow(b->s, false, err);
        r.bucket = next_lsn(b); /* never used again: an lsn is not either */
        return rc < 0 ? rc : cbatch_add(b, &r, 0, STR_NONE, err);
    }
    bool is_meant = now && (r.bucket == 0 || r.bucket == now->number);
    r.bucket = now ? now->number : 0;
    obucket_unref(now);
    if (!is_meant) {
        return fail(err, -ENOENT, "NoSuchBucket", "The specified bucket does not exist");
    }
    if (r.kind == OREC_BUCKET_GONE) {
        rc = is_any(b, IX_OBJECT, r.bucket, err);
        if (rc > 0) {
            return fail(err, -ENOTEMPTY, "BucketNotEmpty",
                        "The bucket you tried to delete is not empty");
        }
        if (rc == 0) {
            rc = is_any(b, IX_UPLOAD, r.bucket, err);
        }
        if (rc > 0) {
            return fail(err, -EBUSY, "BucketNotEmpty", "the bucket has uploads");
        }
        r.source_lsn = r.bucket;
    } else {
        rc = ostore_may_grow(b->s, false, err);
    }
    r.bucket_name = r.kind == OREC_BUCKET ? r.bucket_name : STR_NONE;
    return rc < 0 ? rc : cbatch_add(b, &r, 0, STR_NONE, err);
}

int commit_eval(struct cbatch *b, struct cop *op, struct err *err)
{
    if (atomic_load(&b->s->is_readonly)) {
        return fail(err, -EROFS, "ReadOnly", "the store takes no changes: %s", b->s->why);
    }
    switch (op->kind) {
    case COP_CHANGE: return eval_change(b, op->c, err);
    case COP_BUCKET: return eval_bucket(b, op, err);
    case COP_MOVE: return commit_eval_move(b, op, err);
    }
    return -EINVAL;
}
