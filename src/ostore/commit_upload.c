#include "ostore/ostore_int.h"

#include <errno.h>

static int no_upload(struct err *err)
{
    return fail(err, -ENOENT, "NoSuchUpload",
                "The specified upload does not exist. The upload ID may be invalid, or the "
                "upload may have been aborted or completed.");
}

static int find_upload(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                       struct ival *ret, struct err *err)
{
    struct ikey k;
    ikey_upload(&k, bucket->number, c->rec.key, c->rec.upload);
    int rc = itx_get(&b->tx, &k, ret, err);
    return rc == -ENOENT ? no_upload(err) : rc;
}

static int eval_begin(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                      struct err *err)
{
    int rc = ostore_may_grow(b->s, false, err);
    if (rc < 0) {
        return rc;
    }
    struct orec r = c->rec;
    r.kind = OREC_UPLOAD;
    r.bucket = bucket->number;
    r.origin_lsn = r.source_lsn = r.size = 0;
    r.time_ns = ostore_now(b->s);
    r.n_parts = r.part_number = 0;
    r.new_key = r.unknown = r.etag = STR_NONE;
    r.body = (struct orec_body){0};
    memset(r.version, 0, sizeof(r.version));
    index_make_id(b->first_lsn + b->recs.n, r.upload);
    rc = cbatch_add(b, &r, 0, STR_NONE, err);
    if (rc == 0) {
        c->lsn = r.lsn;
        c->time_ns = r.time_ns;
        memcpy(c->rec.upload, r.upload, sizeof(r.upload));
    }
    return rc;
}

static int eval_part(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                     struct err *err)
{
    struct ival up;
    int rc = ostore_may_grow(b->s, false, err);
    if (rc == 0) {
        rc = find_upload(b, c, bucket, &up, err);
    }
    if (rc < 0) {
        return rc;
    }
    struct orec r = {.kind = OREC_PART,
                     .bucket = bucket->number,
                     .key = c->rec.key,
                     .time_ns = ostore_now(b->s),
                     .part_number = c->rec.part_number,
                     .etag = c->rec.etag,
                     .sum = c->rec.sum,
                     .account = c->rec.account,
                     .principal = c->rec.principal};
    memcpy(r.upload, c->rec.upload, sizeof(r.upload));
    struct str bytes = STR_NONE;
    if (c->body) {
        r.body = *oput_body(c->body);
        bytes = oput_inline(c->body);
        r.size = oput_size(c->body);
    }
    rc = cbatch_add(b, &r, 0, bytes, err);
    if (rc == 0) {
        c->lsn = r.lsn;
        c->time_ns = r.time_ns;
    }
    return rc;
}

/* Parts as chosen against those that are there. Sizes are filled in. */
static int choose_parts(struct cbatch *b, struct ochange *c, struct orec *r, struct err *err)
{
    const struct orec *want = &c->rec;
    if (want->n_parts == 0 || want->n_parts > OREC_PARTS_MAX) {
        return fail(err, -EINVAL, "InvalidPart",
                    "an upload is completed with 1 to 10000 parts");
    }
    struct orec_part *v = arena_array(b->a, want->n_parts, sizeof(*v));
    if (!v) {
        return fail(err, -EAGAIN, "SlowDown", "too much memory is needed");
    }
    struct ikey prefix;
    struct itx_iter it;
    ikey_parts(&prefix, want->upload);
    int rc = itx_iter_open(&b->tx, &prefix, &it, err);
    if (rc < 0) {
        return rc;
    }
    size_t n = 0;
    bool is_small = false;
    r->size = 0;
    while (n < want->n_parts && rc == 0 && itx_iter_next(&it)) {
        struct ival p;
        struct ipeek peek;
        rc = ival_decode(it.value, &p, err);
        if (rc < 0 || index_peek(p.head, &peek) < 0) {
            rc = rc < 0 ? rc : -EUCLEAN;
        } else if (n > 0 && want->parts[n].number <= want->parts[n - 1].number) {
            rc = fail(err, -EINVAL, "InvalidPartOrder",
                      "The list of parts was not in ascending order.");
        } else if (peek.part_number == want->parts[n].number &&
                   p.origin == want->parts[n].lsn) {
            v[n] = want->parts[n];
            v[n].size = peek.size;
            r->size += peek.size;
            is_small |= peek.size < b->s->min_part && n + 1 < want->n_parts;
            n++;
        }
    }
    int rc2 = itx_iter_close(&it, err);
    rc = rc < 0 ? rc : rc2;
    if (rc == 0 && n < want->n_parts) {
        for (size_t i = 1; i < want->n_parts; i++) {
            if (want->parts[i].number <= want->parts[i - 1].number) {
                return fail(err, -EINVAL, "InvalidPartOrder",
                            "The list of parts was not in ascending order.");
            }
        }
        return fail(err, -EINVAL, "InvalidPart",
                    "One or more of the specified parts could not be found.");
    }
    if (rc == 0 && is_small) {
        return fail(err, -EINVAL, "EntityTooSmall",
                    "Your proposed upload is smaller than the minimum allowed size");
    }
    r->parts = v;
    r->n_parts = n;
    return rc;
}

/* A client that lost our answer asks again: it gets the same one. */
static int repeat(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                  struct err *err)
{
    struct ikey k;
    struct str value;
    struct icompleted done;
    ikey_completed(&k, c->rec.upload);
    int rc = itx_get_raw(&b->tx, &k, &value, err);
    if (rc < 0 || icompleted_decode(value, &done) < 0 || done.bucket != bucket->number ||
        !str_eq(done.key, c->rec.key)) {
        return rc == 0 || rc == -ENOENT ? no_upload(err) : rc;
    }
    struct ival v;
    struct orec r;
    rc = itx_find(&b->tx, bucket->number, c->rec.key, done.version, &v, &k, err);
    if (rc == 0 && v.origin != done.origin) {
        rc = -ENOENT;
    }
    if (rc == 0) {
        /* The ETag must outlive this batch: it goes to memory of the caller's record. */
        rc = ival_rec(&v, b->a, &r, err);
    }
    if (rc < 0) {
        return rc == -ENOENT ? no_upload(err) : rc;
    }
    c->is_repeated = true;
    c->lsn = v.origin;
    c->time_ns = v.time_ns;
    memcpy(c->version, done.version, sizeof(done.version));
    c->is_version_made = bucket->versioning != OSTORE_UNVERSIONED;
    if (r.etag.n < sizeof(c->repeated_etag)) {
        memcpy(c->repeated_etag, r.etag.p, r.etag.n);
        c->rec.etag = str_n(c->repeated_etag, r.etag.n);
    }
    return 0;
}

static int eval_complete(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                         struct err *err)
{
    struct ival up, v;
    struct ikey k;
    struct orec from;
    ikey_upload(&k, bucket->number, c->rec.key, c->rec.upload);
    int rc = itx_get(&b->tx, &k, &up, err);
    if (rc == -ENOENT) {
        return repeat(b, c, bucket, err);
    }
    if (rc == 0) {
        rc = ostore_may_grow(b->s, false, err);
    }
    if (rc == 0) {
        int is = itx_find(&b->tx, bucket->number, c->rec.key, NULL, &v, &k, err);
        rc = is < 0 && is != -ENOENT
                 ? is
                 : commit_check_cond(is < 0 ? NULL : &v, &c->cond, false, err);
    }
    if (rc == 0) {
        rc = ival_rec(&up, b->a, &from, err);
    }
    struct orec r = {.kind = OREC_COMPLETE,
                     .bucket = bucket->number,
                     .key = c->rec.key,
                     .time_ns = ostore_now(b->s),
                     .etag = c->rec.etag,
                     .sum = c->rec.sum};
    if (rc == 0) {
        rc = choose_parts(b, c, &r, err);
    }
    if (rc < 0) {
        return rc;
    }
    r.system = from.system;
    r.meta = from.meta;
    r.tags = from.tags;
    r.storage_class = from.storage_class;
    r.account = from.account;
    r.principal = from.principal;
    r.source_lsn = up.since;
    memcpy(r.upload, c->rec.upload, sizeof(r.upload));
    if (bucket->versioning == OSTORE_ENABLED) {
        index_make_id(b->first_lsn + b->recs.n, r.version);
    }
    rc = cbatch_add(b, &r, 0, STR_NONE, err);
    if (rc == 0) {
        c->lsn = r.lsn;
        c->time_ns = r.time_ns;
        c->rec.size = r.size;
        memcpy(c->version, r.version, sizeof(r.version));
        c->is_version_made = bucket->versioning != OSTORE_UNVERSIONED;
    }
    return rc;
}

static int eval_abort(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                      struct err *err)
{
    struct ival up;
    int rc = find_upload(b, c, bucket, &up, err);
    if (rc < 0) {
        return rc;
    }
    struct orec r = {.kind = OREC_ABORT,
                     .bucket = bucket->number,
                     .key = c->rec.key,
                     .time_ns = ostore_now(b->s),
                     .account = c->rec.account,
                     .principal = c->rec.principal,
                     .source_lsn = up.since};
    memcpy(r.upload, c->rec.upload, sizeof(r.upload));
    rc = cbatch_add(b, &r, 0, STR_NONE, err);
    c->lsn = r.lsn;
    c->time_ns = r.time_ns;
    return rc;
}

int commit_eval_upload(struct cbatch *b, struct ochange *c, const struct obucket *bucket,
                       struct err *err)
{
    switch (c->kind) {
    case OCHANGE_UPLOAD: return eval_begin(b, c, bucket, err);
    case OCHANGE_PART: return eval_part(b, c, bucket, err);
    case OCHANGE_COMPLETE: return eval_complete(b, c, bucket, err);
    case OCHANGE_ABORT: return eval_abort(b, c, bucket, err);
    default: return fail(err, -EINVAL, "InvalidRequest", "a change of kind %d", (int)c->kind);
    }
}

/* --- copies forward --- */

/* Where the living record of this subject is; -ENOENT when there is none. */
static int find_living(struct cbatch *b, enum orec_kind kind, const struct ipeek *p,
                       struct ival *ret, struct err *err)
{
    struct ikey k;
    switch (kind) {
    case OREC_PUT:
    case OREC_MARKER:
    case OREC_COMPLETE: return itx_find(&b->tx, p->bucket, p->key, p->version, ret, &k, err);
    case OREC_UPLOAD: ikey_upload(&k, p->bucket, p->key, p->upload); break;
    case OREC_PART: ikey_part(&k, p->upload, p->part_number); break;
    case OREC_BUCKET: ikey_number(&k, IX_BUCKET, p->bucket); break;
    case OREC_BUCKET_CONF: ikey_conf(&k, p->bucket, p->conf); break;
    default: return -ENOENT;
    }
    return itx_get(&b->tx, &k, ret, err);
}

/* A completed upload that is no object any more leaves a tombstone for its parts. */
static int leave_abort(struct cbatch *b, const struct orec *from, struct err *err)
{
    struct ikey k;
    struct str value;
    ikey_completed(&k, from->upload);
    int rc = itx_get_raw(&b->tx, &k, &value, err);
    if (rc != -ENOENT) {
        return rc; /* another name has the parts, and covers them */
    }
    struct orec r = {.kind = OREC_ABORT,
                     .bucket = from->bucket,
                     .key = from->key,
                     .time_ns = ostore_now(b->s),
                     .source_lsn = from->source_lsn};
    memcpy(r.upload, from->upload, sizeof(r.upload));
    return cbatch_add(b, &r, 0, STR_NONE, err);
}

int commit_eval_move(struct cbatch *b, struct cop *op, struct err *err)
{
    const struct olog_rec *src = op->src;
    struct ipeek p;
    struct ival v;
    if (index_peek(src->head, &p) < 0) {
        return fail(err, -EBADMSG, "BadRecord", "a record to be copied is broken");
    }
    int rc = find_living(b, src->kind, &p, &v, err);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    bool is_living = rc == 0 && v.segment == src->at.segment && v.off == src->at.off;
    if (!is_living && src->kind != OREC_COMPLETE && !op->is_tombstone_needed) {
        return 0;
    }
    struct orec r;
    rc = orec_decode(b->a, src->kind, src->head, &r, err);
    if (rc < 0) {
        return rc;
    }
    if (!is_living && src->kind == OREC_COMPLETE) {
        return op->is_tombstone_needed ? leave_abort(b, &r, err) : 0;
    }
    if (op->new_body) {
        r.body = *op->new_body;
    }
    r.origin_lsn = r.origin_lsn ? r.origin_lsn : src->lsn;
    r.time_ns = src->time_ns;
    return cbatch_add(b, &r, OLOG_MOVED, src->body, err);
}
