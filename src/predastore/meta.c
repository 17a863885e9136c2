/* What the headers of a request say about an object that is to be made. */
#include "predastore/s3.h"

#include "aws/s3_auth.h"
#include "aws/s3_name.h"

#include <errno.h>

/* Each header value of an object is kept as sent; all together fit into one head of an answer. */
#define MAX_SYSTEM (8u << 10)

static const char *const system_names[] = {
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-website-redirect-location",
};

static int not_there(struct s3_call *c, const char *header, struct err *err)
{
    rest_extra_add(&c->t.extra, "Header", str_c(header));
    return fail(err, -ENOSYS, "NotImplemented",
                "A header you provided implies functionality that is not implemented");
}

static int refuse_acl(struct s3_call *c, struct err *err)
{
    static const char *const known[] = {"public-read", "public-read-write",
                                        "authenticated-read", "aws-exec-read",
                                        "bucket-owner-read"};
    static const char *const grants[] = {"x-amz-grant-full-control", "x-amz-grant-read",
                                         "x-amz-grant-read-acp", "x-amz-grant-write",
                                         "x-amz-grant-write-acp"};
    struct str acl = aws_http_header(&c->rq, "x-amz-acl");
    bool is_refused = false;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        is_refused = is_refused || str_eqc(acl, known[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(grants); i++) {
        is_refused = is_refused || str_is_set(aws_http_header(&c->rq, grants[i]));
    }
    if (is_refused) {
        return fail(err, -EINVAL, "AccessControlListNotSupported",
                    "The bucket does not allow ACLs");
    }
    if (str_is_set(acl) && !str_eqc(acl, "private") &&
        !str_eqc(acl, "bucket-owner-full-control")) {
        rest_extra_add(&c->t.extra, "ArgumentName", STR("x-amz-acl"));
        rest_extra_add(&c->t.extra, "ArgumentValue", acl);
        return fail(err, -EINVAL, "InvalidArgument", "%s", "");
    }
    return 0;
}

/* Two ways at once. */
static int refuse_mixed(struct s3_call *c, struct str sse, struct err *err)
{
    bool is_customer =
        str_is_set(
            aws_http_header(&c->rq, "x-amz-server-side-encryption-customer-algorithm")) ||
        str_is_set(aws_http_header(&c->rq, "x-amz-server-side-encryption-customer-key"));
    bool has_key =
        str_is_set(aws_http_header(&c->rq, "x-amz-server-side-encryption-aws-kms-key-id"));
    if (is_customer && str_is_set(sse)) {
        return fail(err, -EINVAL, "InvalidArgument",
                    "Server Side Encryption with Customer provided key is incompatible with "
                    "the encryption method specified");
    }
    if (has_key && !is_customer && !str_eqc(sse, "aws:kms") && !str_eqc(sse, "aws:kms:dsse")) {
        return fail(err, -EINVAL, "InvalidArgument",
                    "Server Side Encryption with AWS KMS managed key requires HTTP header "
                    "x-amz-server-side-encryption : aws:kms");
    }
    return 0;
}

static int refuse_encryption(struct s3_call *c, struct err *err)
{
    static const char *const absent[] = {
        "x-amz-server-side-encryption-customer-algorithm",
        "x-amz-server-side-encryption-customer-key",
        "x-amz-server-side-encryption-customer-key-md5",
        "x-amz-copy-source-server-side-encryption-customer-algorithm",
        "x-amz-copy-source-server-side-encryption-customer-key",
        "x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-server-side-encryption-context",
    };
    struct str sse = aws_http_header(&c->rq, "x-amz-server-side-encryption");
    int r = refuse_mixed(c, sse, err);
    if (r < 0) {
        return r;
    }
    if (str_eqc(sse, "aws:kms") || str_eqc(sse, "aws:kms:dsse")) {
        return not_there(c, "x-amz-server-side-encryption", err);
    }
    for (size_t i = 0; i < ARRAY_LEN(absent); i++) {
        if (str_is_set(aws_http_header(&c->rq, absent[i]))) {
            return not_there(c, absent[i], err);
        }
    }
    if (str_is_set(sse) && !str_eqc(sse, "AES256")) {
        return fail(err, -EINVAL, "InvalidEncryptionAlgorithmError", "%s", "");
    }
    return 0;
}

int s3_refuse_features(struct s3_call *c, struct err *err)
{
    static const char *const lock[] = {"x-amz-object-lock-mode",
                                       "x-amz-object-lock-retain-until-date",
                                       "x-amz-object-lock-legal-hold"};
    int r = refuse_acl(c, err);
    if (r < 0 || (r = refuse_encryption(c, err)) < 0) {
        return r;
    }
    for (size_t i = 0; i < ARRAY_LEN(lock); i++) {
        if (str_is_set(aws_http_header(&c->rq, lock[i]))) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "Bucket is missing Object Lock Configuration");
        }
    }
    if (str_is_set(aws_http_header(&c->rq, "x-amz-write-offset-bytes"))) {
        return not_there(c, "x-amz-write-offset-bytes", err);
    }
    return 0;
}

static int check_redirect(struct s3_call *c, struct str to, struct err *err)
{
    if (!str_is_set(to) || str_has_prefixc(to, "/") || str_has_prefixc(to, "http://") ||
        str_has_prefixc(to, "https://")) {
        return 0;
    }
    return fail(err, -EINVAL, "InvalidRedirectLocation",
                "The website redirect location must have a prefix of 'http://' or 'https://' "
                "or '/'.");
}

int s3_take_meta(struct s3_call *c, struct orec *rec, struct err *err)
{
    struct orec_pair *v = arena_array(c->arena, ARRAY_LEN(system_names), sizeof(*v));
    size_t n = 0, size = 0;
    for (size_t i = 0; v && i < ARRAY_LEN(system_names); i++) {
        struct str value = aws_http_header(&c->rq, system_names[i]);
        if (str_eqc(str_c(system_names[i]), "content-encoding") && str_is_set(value)) {
            value = s3_coding_strip(c->arena, value);
        }
        if (!value.n) {
            continue;
        }
        size += value.n;
        v[n++] = (struct orec_pair){str_c(system_names[i]), value};
    }
    if (!v || size > MAX_SYSTEM) {
        return fail(err, -E2BIG, "MetadataTooLarge", "%s", "");
    }
    int r = check_redirect(c, aws_http_header(&c->rq, "x-amz-website-redirect-location"), err);
    if (r < 0) {
        return r;
    }
    struct s3_meta meta = {0};
    struct s3_extra x = {0};
    r = s3_meta_parse(c->arena, c->rq.headers, c->rq.n_headers, &meta, &x, err);
    s3_take_extra(c, &x);
    struct orec_pair *m = r < 0 ? NULL : arena_array(c->arena, meta.n + 1, sizeof(*m));
    if (!m) {
        return r < 0 ? r : fail(err, -E2BIG, "MetadataTooLarge", "%s", "");
    }
    for (size_t i = 0; i < meta.n; i++) {
        m[i] = (struct orec_pair){meta.v[i].key, meta.v[i].value};
    }
    rec->system = (struct orec_pairs){v, n};
    rec->meta = (struct orec_pairs){m, meta.n};
    return 0;
}

int s3_take_tags(struct s3_call *c, struct orec *rec, struct err *err)
{
    struct str header = aws_http_header(&c->rq, "x-amz-tagging");
    struct s3_tags tags = {0};
    struct s3_extra x = {0};
    if (!header.n) {
        return 0;
    }
    struct err e = ERR_INIT;
    int r = s3_tags_parse(c->arena, header, &tags, &e);
    if (r < 0) {
        bool is_form = e.name && strcmp(e.name, "InvalidArgument") == 0;
        if (is_form) {
            rest_extra_add(&c->t.extra, "ArgumentName", STR("x-amz-tagging"));
            rest_extra_add(&c->t.extra, "ArgumentValue", header);
        }
        return fail(err, r, e.name ? e.name : "InvalidTag", "%s", e.msg);
    }
    r = s3_tags_check(tags.v, tags.n, S3_TAGS_MAX, &x, err);
    s3_take_extra(c, &x);
    struct orec_pair *v = r < 0 ? NULL : arena_array(c->arena, tags.n + 1, sizeof(*v));
    if (!v) {
        return r < 0 ? r : fail(err, -E2BIG, "InvalidTag", "%s", "");
    }
    for (size_t i = 0; i < tags.n; i++) {
        v[i] = (struct orec_pair){tags.v[i].key, tags.v[i].value};
    }
    rec->tags = (struct orec_pairs){v, tags.n};
    return 0;
}

int s3_take_class(struct s3_call *c, struct orec *rec, struct err *err)
{
    static const char *const classes[] = {
        "STANDARD",     "REDUCED_REDUNDANCY",  "STANDARD_IA",
        "ONEZONE_IA",   "INTELLIGENT_TIERING", "GLACIER",
        "DEEP_ARCHIVE", "GLACIER_IR",          "EXPRESS_ONEZONE"};
    struct str want = aws_http_header(&c->rq, "x-amz-storage-class");
    rec->storage_class = STR_NONE;
    if (!str_is_set(want) || str_eqc(want, "STANDARD")) {
        return 0;
    }
    for (size_t i = 1; i < ARRAY_LEN(classes); i++) {
        if (str_eqc(want, classes[i])) {
            rec->storage_class = str_c(classes[i]);
            return 0;
        }
    }
    return fail(err, -EINVAL, "InvalidStorageClass",
                "The storage class you specified is not valid");
}

int s3_take_all(struct s3_call *c, struct orec *rec, struct err *err)
{
    int r = s3_refuse_features(c, err);
    if (r < 0 || (r = s3_take_meta(c, rec, err)) < 0 || (r = s3_take_tags(c, rec, err)) < 0) {
        return r;
    }
    return s3_take_class(c, rec, err);
}
