/* Tags of objects and of buckets. */
#include "predastore/front_int.h"
#include "predastore/ops.h"

#include "aws/s3_name.h"
#include "predastore/conf.h"

#include <errno.h>

static int check(struct s3_call *c, const struct s3_tagging *in, size_t max, struct err *err)
{
    struct s3_extra x = {0};
    if (!in) {
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    for (size_t i = 0; i < in->tag_set.n; i++) {
        if (!str_is_set(in->tag_set.v[i].key) || !str_is_set(in->tag_set.v[i].value)) {
            return fail(err, -EINVAL, "MalformedXML", "%s", "");
        }
    }
    int r = s3_tags_check(in->tag_set.v, in->tag_set.n, max, &x, err);
    s3_take_extra(c, &x);
    return r;
}

/* ---- objects ---- */

/* The version that is meant; a delete marker is none. */
static int find(struct s3_call *c, struct str version_id, struct oversion *v, bool *ret_is_id,
                struct err *err)
{
    uint8_t id[OREC_ID_SIZE];
    int r = s3_version(c, version_id, id, ret_is_id, err);
    if (r < 0 || (r = ostore_get(c->store, c->bucket, c->t.key, *ret_is_id ? id : NULL, 0,
                                 c->arena, v, err)) < 0) {
        return r;
    }
    if (v->rec.kind != OREC_MARKER) {
        return 0;
    }
    struct front_call *fc = CONTAINER_OF(c, struct front_call, c);
    fc->fail_headers[0] = (struct http_header){STR("x-amz-delete-marker"), STR("true")};
    fc->n_fail_headers = 1;
    return fail(err, -EPERM, "MethodNotAllowed", "%s", "");
}

/* STR_NONE: the bucket never had versions. */
static struct str version_of(struct s3_call *c, const struct oversion *v)
{
    return c->bucket->versioning == OSTORE_UNVERSIONED
               ? STR_NONE
               : s3_version_text(c->arena, v->rec.version);
}

static int change_tags(struct s3_call *c, struct str version_id, struct orec_pairs tags,
                       struct str *ret_version, struct err *err)
{
    struct oversion v;
    struct ochange ch;
    bool is_id = false;
    int r = find(c, version_id, &v, &is_id, err);
    if (r < 0) {
        return r;
    }
    s3_change_init(c, &ch, OCHANGE_TAGS);
    ch.is_version = true; /* the one that was seen */
    memcpy(ch.rec.version, v.rec.version, OREC_ID_SIZE);
    ch.rec.tags = tags;
    if ((r = ochange_wait(c->store, &ch)) < 0) {
        *err = ch.err;
        return r;
    }
    *ret_version = version_of(c, &v);
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return str_cmp(((const struct s3_tag *)a)->key, ((const struct s3_tag *)b)->key);
}

int op_get_object_tagging(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_get_object_tagging_request *in = input;
    struct s3_get_object_tagging_output *out = output;
    struct oversion v;
    bool is_id = false;
    int r = find(c, in->version_id, &v, &is_id, err);
    if (r < 0) {
        return r;
    }
    out->version_id = version_of(c, &v);
    AWS_LIST_MAKE(c->arena, &out->tag_set, v.rec.tags.n);
    for (size_t i = 0; i < v.rec.tags.n; i++) {
        out->tag_set.v[i].key = v.rec.tags.v[i].name;
        out->tag_set.v[i].value = v.rec.tags.v[i].value;
    }
    if (out->tag_set.n) { /* a set: its order is that of the keys, however it came */
        qsort(out->tag_set.v, out->tag_set.n, sizeof(*out->tag_set.v), by_key);
    }
    return 0;
}

static int take(struct s3_call *c, const struct s3_tag_set *set, struct orec_pairs *ret,
                struct err *err)
{
    struct orec_pair *v = arena_array(c->arena, set->n + 1, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "InvalidTag", "%s", "");
    }
    for (size_t i = 0; i < set->n; i++) {
        v[i] = (struct orec_pair){set->v[i].key, set->v[i].value};
    }
    *ret = (struct orec_pairs){v, set->n};
    return 0;
}

int s3_take_tags_xml(struct s3_call *c, struct str xml, struct orec *rec, struct err *err)
{
    struct s3_tagging in = {0};
    int shape = aws_shape_find(&aws_service_s3, STR("Tagging"));
    int r =
        rest_decode_xml(&aws_service_s3, (uint16_t)shape, "Tagging", xml, c->arena, &in, err);
    if (r < 0 || (r = check(c, &in, S3_TAGS_MAX, err)) < 0) {
        return r;
    }
    return take(c, &in.tag_set, &rec->tags, err);
}

int op_put_object_tagging(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_put_object_tagging_request *in = input;
    struct s3_put_object_tagging_output *out = output;
    int r = check(c, in->tagging, S3_TAGS_MAX, err);
    if (r < 0) {
        return r;
    }
    struct orec_pairs tags = {0};
    if ((r = take(c, &in->tagging->tag_set, &tags, err)) < 0) {
        return r;
    }
    return change_tags(c, in->version_id, tags, &out->version_id, err);
}

int op_delete_object_tagging(struct s3_call *c, const void *input, void *output,
                             struct err *err)
{
    const struct s3_delete_object_tagging_request *in = input;
    struct s3_delete_object_tagging_output *out = output;
    return change_tags(c, in->version_id, (struct orec_pairs){0}, &out->version_id, err);
}

/* ---- buckets ---- */

int op_get_bucket_tagging(struct s3_call *c, const void *input, void *output, struct err *err)
{
    struct s3_get_bucket_tagging_output *out = output;
    struct s3_tagging conf = {0};
    if (!conf_is_set(c->bucket, &conf_tags)) {
        rest_extra_add(&c->t.extra, "BucketName", c->bucket->name);
        return fail(err, -ENOENT, "NoSuchTagSet", "%s", "");
    }
    int r = conf_get(c->arena, c->bucket, &conf_tags, &conf, err);
    out->tag_set = conf.tag_set;
    return r;
}

int op_put_bucket_tagging(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_put_bucket_tagging_request *in = input;
    int r = check(c, in->tagging, S3_BUCKET_TAGS_MAX, err);
    if (r < 0) {
        return r;
    }
    c->status = 204; /* as AWS; the model says 200 */
    return in->tagging->tag_set.n ? conf_put(c, &conf_tags, in->tagging, err)
                                  : conf_remove(c, &conf_tags, err);
}

int op_delete_bucket_tagging(struct s3_call *c, const void *input, void *output,
                             struct err *err)
{
    return conf_remove(c, &conf_tags, err);
}
