/* RenameObject and GetObjectAttributes. */
#include "predastore/front_int.h"
#include "predastore/ops.h"

#include "aws/s3_cond.h"
#include "aws/s3_name.h"
#include "base/num.h"
#include "base/time.h"

#include <errno.h>

/* ---- RenameObject ---- */

/* ETags are compared by the store, at the moment of the change; dates before it. */
static void etag_cond(struct str match, struct str none_match, struct ochange_if *ret)
{
    *ret = OCHANGE_IF_NONE;
    if (match.n) {
        ret->match = s3_etag_bare(match);
    }
    if (none_match.n) {
        ret->none_match = s3_etag_bare(none_match);
    }
}

static int check_dates(struct s3_call *c, struct str key, struct opt_time since,
                       struct opt_time unmodified, struct err *err)
{
    struct oversion v;
    struct err e = ERR_INIT;
    if (!since.is_set && !unmodified.is_set) {
        return 0;
    }
    int r = ostore_get(c->store, c->bucket, key, NULL, 0, c->arena, &v, &e);
    if (r < 0) {
        return r == -ENOENT ? 0 : fail(err, r, e.name, "%s", e.msg);
    }
    uint64_t at = v.rec.time_ns / NS_PER_S;
    if ((since.is_set && at <= since.ns / NS_PER_S) ||
        (unmodified.is_set && at > unmodified.ns / NS_PER_S)) {
        return fail(err, -EBUSY, "PreconditionFailed", "%s", "");
    }
    return 0;
}

int op_rename_object(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_rename_object_request *in = input;
    struct s3_copy_source source = {0};
    struct s3_extra x = {0};
    struct ochange ch;
    int r = s3_copy_source_parse(c->arena, in->rename_source, &source, &x, err);
    s3_take_extra(c, &x);
    if (r < 0) {
        return r;
    }
    if (!str_eq(source.bucket, c->t.bucket) || str_is_set(source.version_id)) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The source of a rename must be a key of the same bucket");
    }
    if (c->bucket->versioning != OSTORE_UNVERSIONED) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "Objects of a bucket with versioning cannot be renamed");
    }
    if (str_eq(source.key, c->t.key)) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The source and the destination of a rename are the same key");
    }
    if ((r = check_dates(c, source.key, in->source_if_modified_since,
                         in->source_if_unmodified_since, err)) < 0 ||
        (r = check_dates(c, c->t.key, in->destination_if_modified_since,
                         in->destination_if_unmodified_since, err)) < 0) {
        return r;
    }
    s3_change_init(c, &ch, OCHANGE_RENAME);
    ch.rec.key = source.key;
    ch.rec.new_key = c->t.key;
    etag_cond(in->source_if_match, in->source_if_none_match, &ch.cond);
    etag_cond(in->destination_if_match, in->destination_if_none_match, &ch.target_cond);
    r = ochange_wait(c->store, &ch);
    return r < 0 ? fail(err, r, ch.err.name, "%s", ch.err.msg) : 0;
}

/* ---- GetObjectAttributes ---- */

#define MAX_PARTS 1000

static bool is_asked(const struct s3_get_object_attributes_request *in, const char *name)
{
    for (size_t i = 0; i < in->object_attributes.n; i++) {
        if (str_eqc(in->object_attributes.v[i], name)) {
            return true;
        }
    }
    return false;
}

static int check_asked(struct s3_call *c, const struct s3_get_object_attributes_request *in,
                       struct err *err)
{
    static const char *const known[] = {"ETag", "Checksum", "ObjectParts", "StorageClass",
                                        "ObjectSize"};
    if (in->object_attributes.n == 0) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The x-amz-object-attributes header specifying the attributes to be "
                    "retrieved is either missing or empty");
    }
    for (size_t i = 0; i < in->object_attributes.n; i++) {
        bool is_known = false;
        for (size_t k = 0; k < ARRAY_LEN(known); k++) {
            is_known = is_known || str_eqc(in->object_attributes.v[i], known[k]);
        }
        if (!is_known) {
            rest_extra_add(&c->t.extra, "ArgumentName", STR("x-amz-object-attributes"));
            rest_extra_add(&c->t.extra, "ArgumentValue", in->object_attributes.v[i]);
            return fail(err, -EINVAL, "InvalidArgument", "Invalid attribute name specified.");
        }
    }
    return 0;
}

/* "...-N": the object is made of N parts. */
static uint64_t n_parts_of(const struct orec *rec)
{
    struct str head = str_cut(rec->etag, '-');
    uint64_t n = 0;
    if (head.n == rec->etag.n ||
        num_u64(str_skip(rec->etag, head.n + 1), OREC_PARTS_MAX, &n) < 0) {
        return 0;
    }
    return n;
}

static int fill_parts(struct s3_call *c, const struct s3_get_object_attributes_request *in,
                      const struct oversion *v, uint64_t n_parts,
                      struct s3_get_object_attributes_output *out, struct err *err)
{
    struct opart_page page = {0};
    int64_t max = in->max_parts.is_set ? in->max_parts.v : MAX_PARTS;
    int64_t after = in->part_number_marker.is_set ? in->part_number_marker.v : 0;
    if (max < 0 || after < 0) {
        return fail(err, -EINVAL, "InvalidArgument", "%s", "");
    }
    max = MIN(max, (int64_t)MAX_PARTS);
    int r = ostore_version_parts(c->store, v, (uint32_t)MIN(after, INT64_C(10000)), (size_t)max,
                                 c->arena, &page, err);
    if (r < 0) {
        return r;
    }
    struct s3_get_object_attributes_parts *p =
        arena_new_of(c->arena, struct s3_get_object_attributes_parts);
    p->total_parts_count = some_i64((int64_t)n_parts);
    p->part_number_marker = some_i64(after);
    p->next_part_number_marker = some_i64(page.n ? (int64_t)page.v[page.n - 1].number : after);
    p->max_parts = some_i64(max);
    p->is_truncated = some_bool(page.is_truncated);
    AWS_LIST_MAKE(c->arena, &p->parts, page.n);
    for (size_t i = 0; i < page.n; i++) {
        struct s3_object_part *to = &p->parts.v[i];
        to->part_number = some_i64((int64_t)page.v[i].number);
        to->size = some_i64((int64_t)page.v[i].size);
        S3_SUM_OUT(to, c->arena, &page.v[i].sum, 0);
    }
    out->object_parts = p;
    return 0;
}

static int refuse_marker(struct s3_call *c, bool is_version, const struct orec *rec,
                         struct err *err)
{
    struct front_call *fc = CONTAINER_OF(c, struct front_call, c);
    fc->fail_headers[0] = (struct http_header){STR("x-amz-delete-marker"), STR("true")};
    fc->fail_headers[1] =
        (struct http_header){STR("x-amz-version-id"), s3_version_text(c->arena, rec->version)};
    fc->n_fail_headers = 2;
    return is_version ? fail(err, -EINVAL, "MethodNotAllowed", "%s", "")
                      : fail(err, -ENOENT, "NoSuchKey", "%s", "");
}

int op_get_object_attributes(struct s3_call *c, const void *input, void *output,
                             struct err *err)
{
    const struct s3_get_object_attributes_request *in = input;
    struct s3_get_object_attributes_output *out = output;
    struct oversion v;
    uint8_t version[16];
    bool is_version = false;
    int r = check_asked(c, in, err);
    if (r < 0 || (r = s3_version(c, in->version_id, version, &is_version, err)) < 0 ||
        (r = ostore_get(c->store, c->bucket, c->t.key, is_version ? version : NULL, 0, c->arena,
                        &v, err)) < 0) {
        return r;
    }
    if (v.rec.kind == OREC_MARKER) {
        return refuse_marker(c, is_version, &v.rec, err);
    }
    uint64_t n_parts = n_parts_of(&v.rec);
    out->last_modified = some_time(v.rec.time_ns);
    if (c->bucket->versioning != OSTORE_UNVERSIONED) {
        out->version_id = s3_version_text(c->arena, v.rec.version);
    }
    if (is_asked(in, "ETag")) {
        out->e_tag = v.rec.etag;
    }
    if (is_asked(in, "Checksum") && v.rec.sum.alg != OSUM_NONE) {
        out->checksum = arena_new_of(c->arena, struct s3_checksum);
        S3_SUM_OUT(out->checksum, c->arena, &v.rec.sum, 0); /* no "-N" here, as AWS */
        out->checksum->checksum_type = s3_osum_type(&v.rec.sum);
    }
    if (is_asked(in, "StorageClass")) {
        out->storage_class = s3_class(&v.rec);
    }
    if (is_asked(in, "ObjectSize")) {
        out->object_size = some_i64((int64_t)v.rec.size);
    }
    return is_asked(in, "ObjectParts") && n_parts ? fill_parts(c, in, &v, n_parts, out, err)
                                                  : 0;
}
