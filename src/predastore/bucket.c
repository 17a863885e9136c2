/* Buckets: made, found, listed, removed. */
#include "predastore/ops.h"

#include "aws/s3_name.h"
#include "predastore/conf.h"
#include "predastore/page.h"

#include <errno.h>

#define BUCKETS_MAX 10000u /* of an account: AWS's default */

/* ---- CreateBucket ---- */

/* "eu-west-1", "us-gov-east-1", "EU": a region, though not ours. */
static bool looks_like_region(struct str s)
{
    size_t n_dashes = 0;
    if (str_eqc(s, "EU")) {
        return true;
    }
    for (size_t i = 0; i < s.n; i++) {
        bool is_good = (s.p[i] >= 'a' && s.p[i] <= 'z') || s.p[i] == '-' ||
                       (i + 1 == s.n && s.p[i] >= '0' && s.p[i] <= '9');
        n_dashes += s.p[i] == '-';
        if (!is_good) {
            return false;
        }
    }
    return n_dashes >= 2;
}

static int check_location(struct s3_call *c, const struct s3_create_bucket_configuration *conf,
                          struct err *err)
{
    struct str where = conf ? conf->location_constraint : STR_NONE;
    if (conf && (conf->location || conf->bucket)) { /* directory buckets */
        return fail(err, -ENOSYS, "NotImplemented", "%s", "");
    }
    if (!where.n || str_eq(where, c->s3->region)) {
        return 0;
    }
    rest_extra_add(&c->t.extra, "LocationConstraint", where);
    if (!looks_like_region(where)) {
        return fail(err, -EINVAL, "InvalidLocationConstraint", "%s", "");
    }
    return fail(err, -EINVAL, "IllegalLocationConstraintException",
                "The %.*s location constraint is incompatible for the region specific endpoint "
                "this request was sent to.",
                STR_ARG(where));
}

static int one_of(struct s3_call *c, const char *header, struct str value,
                  const char *const *names, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eqc(value, names[i])) {
            return 0;
        }
    }
    return page_bad(c, header, value, "", err);
}

/* Buckets are as new ones of AWS: no access lists, the bucket's owner owns the objects. */
static int check_access(struct s3_call *c, const struct s3_create_bucket_request *in,
                        struct err *err)
{
    static const char *const acls[] = {"private", "public-read", "public-read-write",
                                       "authenticated-read"};
    static const char *const ownerships[] = {"BucketOwnerEnforced", "BucketOwnerPreferred",
                                             "ObjectWriter"};
    bool is_grant = str_is_set(in->grant_full_control) || str_is_set(in->grant_read) ||
                    str_is_set(in->grant_read_acp) || str_is_set(in->grant_write) ||
                    str_is_set(in->grant_write_acp);
    if (in->object_lock_enabled_for_bucket.is_set && in->object_lock_enabled_for_bucket.v) {
        return fail(err, -ENOSYS, "NotImplemented",
                    "A header you provided implies functionality that is not implemented");
    }
    if (str_is_set(in->object_ownership)) {
        int r = one_of(c, "x-amz-object-ownership", in->object_ownership, ownerships,
                       ARRAY_LEN(ownerships), err);
        if (r < 0) {
            return r;
        }
        if (!str_eqc(in->object_ownership, "BucketOwnerEnforced")) {
            return fail(err, -ENOSYS, "NotImplemented",
                        "A header you provided implies functionality that is not implemented");
        }
    }
    if (str_is_set(in->acl)) {
        int r = one_of(c, "x-amz-acl", in->acl, acls, ARRAY_LEN(acls), err);
        if (r < 0) {
            return r;
        }
    }
    if (is_grant || (str_is_set(in->acl) && !str_eqc(in->acl, "private"))) {
        return fail(err, -EINVAL, "InvalidBucketAclWithObjectOwnership",
                    "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced "
                    "setting");
    }
    return 0;
}

static int check_room(struct s3_call *c, struct err *err)
{
    struct obucket_list list = {0};
    int r = ostore_bucket_list(c->store, c->who.account, STR_NONE, STR_NONE, BUCKETS_MAX,
                               c->arena, &list, err);
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        obucket_unref(list.v[i]);
    }
    return r == 0 && list.n >= BUCKETS_MAX ? fail(err, -EDQUOT, "TooManyBuckets", "%s", "") : r;
}

/* The caller's own bucket of that name: in us-east-1 making it again is no error, for
 * compatibility with AWS. */
static int exists(struct s3_call *c, const struct err *why, struct err *err)
{
    rest_extra_add(&c->t.extra, "BucketName", c->t.bucket);
    if (why->name && str_eqc(str_c(why->name), "BucketAlreadyOwnedByYou") &&
        str_eqc(c->s3->region, "us-east-1")) {
        return 0;
    }
    *err = *why;
    return err->code;
}

static int check_tags(struct s3_call *c, const struct s3_tag_set *tags, struct err *err)
{
    struct s3_extra x = {0};
    int r = tags->n ? s3_tags_check(tags->v, tags->n, S3_BUCKET_TAGS_MAX, &x, err) : 0;
    s3_take_extra(c, &x);
    return r;
}

int op_create_bucket(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_create_bucket_request *in = input;
    struct s3_create_bucket_output *out = output;
    const struct s3_create_bucket_configuration *conf = in->create_bucket_configuration;
    struct s3_extra x = {0};
    struct err why = ERR_INIT;
    int r = s3_bucket_name_check(c->t.bucket, &x, err);
    s3_take_extra(c, &x);
    if (r < 0 || (r = check_location(c, conf, err)) < 0 || (r = check_access(c, in, err)) < 0 ||
        (conf && (r = check_tags(c, &conf->tags, err)) < 0) || (r = check_room(c, err)) < 0) {
        return r;
    }
    out->location = arena_fmt(c->arena, "/%.*s", STR_ARG(c->t.bucket));
    r = ostore_bucket_create(c->store, c->t.bucket, c->who.account, c->s3->region, &why);
    if (r == -EEXIST) {
        return exists(c, &why, err);
    }
    if (r < 0) {
        *err = why;
        return r;
    }
    if (conf && conf->tags.n) {
        const struct s3_tagging tagging = {.tag_set = conf->tags};
        const struct obucket *b = NULL;
        if ((r = ostore_bucket(c->store, c->t.bucket, &b, err)) < 0) {
            return r;
        }
        if (!str_eq(b->account, c->who.account)) { /* deleted, and made by somebody else */
            obucket_unref(b);
            return fail(err, -ENOENT, "NoSuchBucket", "%s", "");
        }
        const struct obucket *before = c->bucket;
        c->bucket = b;
        r = conf_put(c, &conf_tags, &tagging, err);
        c->bucket = before;
        obucket_unref(b);
    }
    return r;
}

/* ---- one bucket ---- */

int op_head_bucket(struct s3_call *c, const void *input, void *output, struct err *err)
{
    struct s3_head_bucket_output *out = output;
    out->bucket_region = c->bucket->region;
    out->access_point_alias = some_bool(false);
    rest_header(&c->answer, "Content-Type", STR("application/xml"));
    return 0;
}

int op_delete_bucket(struct s3_call *c, const void *input, void *output, struct err *err)
{
    struct err e = ERR_INIT;
    int r = ostore_bucket_delete(c->store, c->bucket->name, c->bucket->number, &e);
    if (r == 0) {
        return 0;
    }
    rest_extra_add(&c->t.extra, "BucketName", c->bucket->name);
    bool is_versions = e.name && strcmp(e.name, "BucketNotEmpty") == 0 &&
                       c->bucket->versioning != OSTORE_UNVERSIONED;
    return fail(err, r, e.name ? e.name : "InternalError", "%s",
                is_versions
                    ? "The bucket you tried to delete is not empty. You must delete all "
                      "versions in the bucket."
                    : e.msg);
}

int op_get_bucket_location(struct s3_call *c, const void *input, void *output, struct err *err)
{
    struct s3_get_bucket_location_output *out = output;
    if (!str_eqc(c->bucket->region, "us-east-1")) { /* whose name is nothing */
        out->location_constraint = c->bucket->region;
    }
    return 0;
}

/* ---- ListBuckets ---- */

static int list_max(struct s3_call *c, struct opt_i64 given, size_t *ret, struct err *err)
{
    if (given.is_set && (given.v < 1 || given.v > BUCKETS_MAX)) {
        return page_bad(c, "max-buckets", arena_fmt(c->arena, "%lld", (long long)given.v),
                        "Argument max-buckets must be an integer between 1 and 10000", err);
    }
    *ret = given.is_set ? (size_t)given.v : BUCKETS_MAX;
    return 0;
}

int op_list_buckets(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_list_buckets_request *in = input;
    struct s3_list_buckets_output *out = output;
    struct obucket_list list = {0};
    struct str after = STR_NONE;
    size_t max = 0;
    bool is_paged = in->max_buckets.is_set || str_is_set(in->continuation_token) ||
                    str_is_set(in->prefix) || str_is_set(in->bucket_region);
    bool is_elsewhere = in->bucket_region.n && !str_eq(in->bucket_region, c->s3->region);
    int r = list_max(c, in->max_buckets, &max, err);
    if (r == 0 && in->continuation_token.n) {
        r = page_token_take(c, 0, in->continuation_token, &after, err);
    }
    if (r == 0 && !is_elsewhere) {
        r = ostore_bucket_list(c->store, c->who.account, in->prefix, after, max, c->arena,
                               &list, err);
    }
    if (r < 0) {
        return r;
    }
    out->owner = s3_owner_of(c->arena, c->who.account);
    out->prefix = in->prefix;
    AWS_LIST_MAKE(c->arena, &out->buckets, list.n);
    for (size_t i = 0; i < list.n; i++) {
        const struct obucket *b = list.v[i];
        struct s3_bucket *o = &out->buckets.v[i];
        o->name = arena_str_dup(c->arena, b->name);
        o->creation_date = some_time(b->create_ns - b->create_ns % NS_PER_S);
        if (is_paged) {
            o->bucket_region = arena_str_dup(c->arena, b->region);
        }
        obucket_unref(b);
    }
    if (list.is_truncated && list.n > 0) {
        out->continuation_token = page_token(c->arena, 0, out->buckets.v[list.n - 1].name);
    }
    return 0;
}
