/* CopyObject and UploadPartCopy: bytes from a version of an object to a new one. */
#include "predastore/front_int.h"
#include "predastore/ops.h"

#include "aws/s3_cond.h"
#include "aws/s3_name.h"
#include "aws/s3_range.h"
#include "predastore/page.h"

#include <errno.h>

#define COPY_BUFFER (256u << 10)

/* ---- the source ---- */

struct source {
    struct s3_copy_source name;
    const struct obucket *bucket;
    struct oversion v;
    bool is_version;
};

static void source_done(struct source *s)
{
    obucket_unref(s->bucket);
}
#define AUTO_SOURCE AUTO(source_done) struct source

static int check_conditions(struct s3_call *c, const struct source *s, struct err *err)
{
    struct s3_cond cond;
    struct s3_extra x = {0};
    s3_cond_parse_copy(c->rq.headers, c->rq.n_headers, &cond);
    int r = s3_cond_copy(&cond, s->v.rec.etag, s->v.rec.time_ns, c->now_ns, &x, err);
    s3_take_extra(c, &x);
    return r;
}

/* What is not there is the source's. */
static int not_found(struct s3_call *c, const struct source *s, int r, const struct err *e,
                     struct err *err)
{
    if (e->name && strcmp(e->name, "NoSuchKey") == 0) {
        rest_extra_add(&c->t.extra, "Key", s->name.key);
    } else if (e->name && strcmp(e->name, "NoSuchBucket") == 0) {
        rest_extra_add(&c->t.extra, "BucketName", s->name.bucket);
    }
    return fail(err, r, e->name ? e->name : "InternalError", "%s", e->msg);
}

/* Finds the version; it must be ours and its conditions hold. */
static int source_open(struct s3_call *c, struct str text, struct str owner, struct source *s,
                       struct err *err)
{
    struct s3_extra x = {0};
    struct err e = ERR_INIT;
    uint8_t version[16];
    int r = s3_copy_source_parse(c->arena, text, &s->name, &x, err);
    s3_take_extra(c, &x);
    if (r < 0) {
        return r;
    }
    if ((r = front_bucket(c, s->name.bucket, owner, &s->bucket, &e)) < 0 ||
        (r = s3_version(c, s->name.version_id, version, &s->is_version, &e)) < 0 ||
        (r = ostore_get(c->store, s->bucket, s->name.key, s->is_version ? version : NULL, 0,
                        c->arena, &s->v, &e)) < 0) {
        return not_found(c, s, r, &e, err);
    }
    if (s->v.rec.kind == OREC_MARKER && s->is_version) {
        return fail(
            err, -EINVAL, "InvalidRequest",
            "The source of a copy request may not specifically refer to a delete marker "
            "by version id.");
    }
    if (s->v.rec.kind == OREC_MARKER) {
        rest_extra_add(&c->t.extra, "Key", s->name.key);
        return fail(err, -ENOENT, "NoSuchKey", "%s", "");
    }
    return check_conditions(c, s, err);
}

static struct str source_version(struct s3_call *c, const struct source *s)
{
    return s->bucket->versioning == OSTORE_UNVERSIONED
               ? STR_NONE
               : s3_version_text(c->arena, s->v.rec.version);
}

/* ---- the bytes ---- */

static void on_bytes(void *ctx, struct str bytes)
{
    s3_sum_add(ctx, bytes);
}

struct waiter {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool is_done;
    int rc;
    struct err *err;
};

static void stored(void *ctx, int rc, const struct err *err)
{
    struct waiter *w = ctx;
    pthread_mutex_lock(&w->mu);
    w->is_done = true;
    w->rc = rc;
    if (rc < 0 && err) {
        *w->err = *err;
    }
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mu);
}

static int finish(struct oput *put, struct err *err)
{
    struct err e = ERR_INIT;
    struct waiter w = {
        .mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .err = &e};
    oput_finish(put, stored, &w);
    pthread_mutex_lock(&w.mu);
    while (!w.is_done) {
        pthread_cond_wait(&w.cond, &w.mu);
    }
    pthread_mutex_unlock(&w.mu);
    return w.rc < 0 ? fail(err, w.rc, e.name ? e.name : "InternalError", "%s", e.msg) : 0;
}

static int pour(struct oread *from, uint64_t off, uint64_t n, struct oput *put, struct err *err)
{
    AUTO_FREE char *p = malloc(COPY_BUFFER);
    if (!p) {
        return fail(err, -ENOMEM, "SlowDown", "%s", "");
    }
    int rc = 0;
    while (rc == 0 && n) {
        ssize_t k = oread_at(from, off, p, n < COPY_BUFFER ? (size_t)n : COPY_BUFFER, 0, err);
        if (k <= 0) {
            return k < 0 ? (int)k
                         : fail(err, -EIO, "InternalError", "the body of a version is short");
        }
        rc = oput_add_wait(put, str_n(p, (size_t)k), err);
        off += (uint64_t)k;
        n -= (uint64_t)k;
    }
    return rc < 0 ? rc : 0;
}

/* A new body with the bytes of an old one; ch gets size, etag, sum and body. */
static int copy_bytes(struct s3_call *c, const struct source *s, uint64_t off, uint64_t n,
                      enum s3_sum_alg alg, struct ochange *ch, struct err *err)
{
    const struct s3_sum_want want = {.keep = alg};
    struct s3_sum sum = {0};
    struct s3_sum_result res;
    struct oread *from = NULL;
    const struct oput_opts o = {.size = (int64_t)n,
                                .on_bytes = on_bytes,
                                .ctx = &sum,
                                .account = c->who.account,
                                .is_background = true};
    s3_sum_begin(&sum, &want, false);
    int r = oput_new(c->store, &o, &ch->body, err);
    if (r == 0 && n) {
        r = oread_open(c->store, &s->v, 0, &from, err);
    }
    if (r == 0 && n) {
        r = pour(from, off, n, ch->body, err);
    }
    oread_close(from);
    if (r == 0) {
        r = finish(ch->body, err);
    }
    if (r == 0) {
        r = s3_sum_end(&sum, &res, NULL, NULL, err);
    }
    if (r < 0 && ch->body) {
        oput_free(ch->body); /* it may be hashing into 'sum' still */
        ch->body = NULL;
    }
    s3_sum_done(&sum);
    if (r < 0) {
        return r;
    }
    char etag[S3_ETAG_SIZE];
    s3_etag(res.md5, etag);
    ch->rec.etag = arena_str_dup(c->arena, str_c(etag));
    ch->rec.size = res.size;
    ch->rec.sum = s3_osum(c->arena, &res.sum, false);
    return 0;
}

/* The body belongs to the store after success, else to nobody. */
static int commit(struct s3_call *c, struct ochange *ch, int r, struct err *err)
{
    if (r == 0 && (r = ochange_wait(c->store, ch)) < 0) {
        fail(err, r, ch->err.name, "%s", ch->err.msg);
    }
    if (r < 0 && ch->body) {
        oput_free(ch->body);
    }
    return r;
}

/* ---- CopyObject ---- */

static int directive(struct s3_call *c, const char *what, struct str text, bool *ret_replace,
                     struct err *err)
{
    *ret_replace = str_eqc(text, "REPLACE");
    if (!str_is_set(text) || *ret_replace || str_eqc(text, "COPY")) {
        return 0;
    }
    rest_extra_add(&c->t.extra, "ArgumentName",
                   arena_fmt(c->arena, "x-amz-%s-directive", what));
    rest_extra_add(&c->t.extra, "ArgumentValue", text);
    return fail(err, -EINVAL, "InvalidArgument", "Unknown %s directive.", what);
}

/* Without a change a copy onto itself is a mistake, AWS says. */
static int refuse_idle_copy(struct s3_call *c, const struct s3_copy_object_request *in,
                            const struct source *s, bool is_replaced, struct err *err)
{
    bool is_self = s->bucket->number == c->bucket->number && str_eq(s->name.key, c->t.key) &&
                   !s->is_version;
    bool is_change = is_replaced || str_is_set(in->storage_class) ||
                     str_is_set(in->server_side_encryption) ||
                     str_is_set(in->website_redirect_location) ||
                     str_is_set(in->checksum_algorithm);
    if (!is_self || is_change) {
        return 0;
    }
    return fail(err, -EINVAL, "InvalidRequest",
                "This copy request is illegal because it is trying to copy an object to itself "
                "without changing the object's metadata, storage class, website redirect "
                "location or encryption attributes.");
}

static int without_redirect(struct s3_call *c, const struct orec_pairs *from,
                            struct orec_pairs *ret, struct err *err)
{
    struct orec_pair *v = arena_array(c->arena, from->n + 1, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "InternalError", "the arena of a request is full");
    }
    *ret = (struct orec_pairs){v, 0};
    for (size_t i = 0; i < from->n; i++) {
        if (!str_eqc(from->v[i].name, "x-amz-website-redirect-location")) {
            v[ret->n++] = from->v[i];
        }
    }
    struct str redirect = aws_http_header(&c->rq, "x-amz-website-redirect-location");
    if (redirect.n) {
        v[ret->n++] = (struct orec_pair){STR("x-amz-website-redirect-location"), redirect};
    }
    return 0;
}

/* What the new object says about itself. */
static int take_record(struct s3_call *c, const struct s3_copy_object_request *in,
                       const struct source *s, struct orec *rec, struct err *err)
{
    bool is_meta = false, is_tags = false;
    int r = directive(c, "metadata", in->metadata_directive, &is_meta, err);
    if (r < 0 || (r = directive(c, "tagging", in->tagging_directive, &is_tags, err)) < 0 ||
        (r = s3_refuse_features(c, err)) < 0 ||
        (r = refuse_idle_copy(c, in, s, is_meta, err)) < 0 ||
        (r = s3_take_meta(c, rec, err)) < 0 || (r = s3_take_class(c, rec, err)) < 0) {
        return r;
    }
    if (!is_meta) {
        rec->meta = s->v.rec.meta;
        r = without_redirect(c, &s->v.rec.system, &rec->system, err);
    }
    if (r == 0 && is_tags) {
        r = s3_take_tags(c, rec, err);
    } else {
        rec->tags = s->v.rec.tags;
    }
    return r;
}

/* What was asked, else what the source has, else the default. */
static int choose_alg(const struct s3_copy_object_request *in, const struct source *s,
                      enum s3_sum_alg *ret, struct err *err)
{
    const struct orec_sum *has = &s->v.rec.sum;
    *ret = has->alg != OSUM_NONE ? (enum s3_sum_alg)has->alg : S3_SUM_CRC64NVME;
    if (str_is_set(in->checksum_algorithm)) {
        *ret = s3_sum_by_name(in->checksum_algorithm);
        if (*ret == S3_SUM_NONE) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "Checksum algorithm provided is unsupported. Please try again with any "
                        "of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]");
        }
    }
    return 0;
}

static void copy_answer(struct s3_call *c, const struct ochange *ch, const struct source *s,
                        struct s3_copy_object_output *out)
{
    struct s3_copy_object_result *res = arena_new_of(c->arena, struct s3_copy_object_result);
    struct oversion v = {.rec = ch->rec, .is_latest = true};
    v.rec.time_ns = ch->time_ns;
    res->e_tag = s3_quoted(c->arena, ch->rec.etag);
    res->last_modified = some_time(ch->time_ns - ch->time_ns % NS_PER_S);
    S3_SUM_OUT(res, c->arena, &ch->rec.sum, 0);
    res->checksum_type = s3_osum_type(&ch->rec.sum);
    out->copy_object_result = res;
    out->copy_source_version_id = source_version(c, s);
    out->server_side_encryption = front_sse(c, false);
    out->expiration = s3_expiration(c, &v);
    if (ch->is_version_made) { /* unlike a put's, a null version is named */
        out->version_id = s3_version_text(c->arena, ch->version);
    }
}

int op_copy_object(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_copy_object_request *in = input;
    enum s3_sum_alg alg = S3_SUM_NONE;
    AUTO_SOURCE s = {0};
    struct ochange ch;
    s3_change_init(c, &ch, OCHANGE_PUT);
    int r = source_open(c, in->copy_source, in->expected_source_bucket_owner, &s, err);
    if (r < 0 || (r = take_record(c, in, &s, &ch.rec, err)) < 0 ||
        (r = choose_alg(in, &s, &alg, err)) < 0) {
        return r;
    }
    if (s.v.rec.size > S3_OBJECT_MAX) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The specified copy source is larger than the maximum allowable size for a "
                    "copy source: %llu",
                    (unsigned long long)S3_OBJECT_MAX);
    }
    front_cond(c, &ch.cond);
    r = commit(c, &ch, copy_bytes(c, &s, 0, s.v.rec.size, alg, &ch, err), err);
    if (r == 0) {
        copy_answer(c, &ch, &s, output);
    }
    return r;
}

/* ---- UploadPartCopy ---- */

int op_upload_part_copy(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_upload_part_copy_request *in = input;
    struct s3_upload_part_copy_output *out = output;
    struct opart_page page = {0};
    struct s3_range range = {0};
    AUTO_SOURCE s = {0};
    struct ochange ch;
    unsigned number = 0;
    s3_change_init(c, &ch, OCHANGE_PART);
    int r = s3_upload_part_number(c, in->part_number, &number, err);
    if (r < 0) {
        return r;
    }
    if ((r = s3_refuse_features(c, err)) < 0 ||
        (r = s3_upload_id(in->upload_id, ch.rec.upload, err)) < 0 ||
        (r = ostore_parts(c->store, c->bucket, c->t.key, ch.rec.upload, 0, 1, c->arena, &page,
                          err)) < 0 ||
        (r = source_open(c, in->copy_source, in->expected_source_bucket_owner, &s, err)) < 0) {
        return r;
    }
    if ((r = s3_copy_range_parse(in->copy_source_range, s.v.rec.size, &range, err)) < 0) {
        page_name(c, "x-amz-copy-source-range", in->copy_source_range);
        return r;
    }
    if (!str_is_set(in->copy_source_range)) {
        range = (struct s3_range){.size = s.v.rec.size};
    }
    if (range.size > S3_OBJECT_MAX) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The specified copy source is larger than the maximum allowable size for a "
                    "copy source: %llu",
                    (unsigned long long)S3_OBJECT_MAX);
    }
    enum s3_sum_alg alg = (enum s3_sum_alg)page.upload.sum.alg;
    ch.rec.part_number = number;
    r = commit(c, &ch,
               copy_bytes(c, &s, range.first, range.size,
                          alg == S3_SUM_NONE ? S3_SUM_CRC64NVME : alg, &ch, err),
               err);
    if (r < 0) {
        return r;
    }
    struct s3_copy_part_result *res = arena_new_of(c->arena, struct s3_copy_part_result);
    res->e_tag = s3_quoted(c->arena, ch.rec.etag);
    res->last_modified = some_time(ch.time_ns - ch.time_ns % NS_PER_S);
    S3_SUM_OUT(res, c->arena, &ch.rec.sum, 0);
    out->copy_part_result = res;
    out->copy_source_version_id = source_version(c, &s);
    out->server_side_encryption = front_sse(c, false);
    return 0;
}
