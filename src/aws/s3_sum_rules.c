/* What clients say about checksums: the headers of one body, the kinds of an upload. */
#include "aws/s3_sum.h"

#include "base/num.h"
#include "codec/base64.h"
#include <errno.h>

static const char many[] =
    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";

static struct str header(const struct s3_auth *auth, const char *name)
{
    for (size_t i = 0; i < auth->n_headers; i++) {
        if (str_ieqc(auth->headers[i].name, name)) {
            return auth->headers[i].value;
        }
    }
    return STR_NONE;
}

static int invalid(struct err *err, const char *msg)
{
    return fail(err, -EINVAL, "InvalidRequest", "%s", msg);
}

static int parse_md5(const struct s3_auth *auth, struct s3_sum_want *w, struct s3_extra *extra,
                     struct err *err)
{
    struct str text = header(auth, "Content-MD5");
    AUTO_BUF b;
    buf_init(&b, 64);
    if (!str_is_set(text)) {
        return 0;
    }
    if (text.n != BASE64_LEN(MD5_SIZE) || base64_decode(text, &b) < 0 || b.n != MD5_SIZE) {
        s3_extra_add(extra, "Content-MD5", text);
        return fail(err, -EINVAL, "InvalidDigest",
                    "The Content-MD5 you specified was invalid.");
    }
    memcpy(w->md5, b.p, MD5_SIZE);
    w->has_md5 = true;
    return 0;
}

/* x-amz-checksum-crc32: ... */
static int parse_headers(const struct s3_auth *auth, struct s3_sum_want *w, struct err *err)
{
    static const struct str prefix = {"x-amz-checksum-", 15};
    for (size_t i = 0; i < auth->n_headers; i++) {
        struct str name = auth->headers[i].name;
        if (name.n <= prefix.n || !str_ieq(str_n(name.p, prefix.n), prefix) ||
            str_ieqc(name, "x-amz-checksum-algorithm") ||
            str_ieqc(name, "x-amz-checksum-type") || str_ieqc(name, "x-amz-checksum-mode")) {
            continue;
        }
        enum s3_sum_alg alg = s3_sum_by_header(name);
        if (alg == S3_SUM_NONE) {
            return invalid(
                err, "The algorithm type you specified in x-amz-checksum- header is invalid.");
        }
        if (w->is_given) {
            return invalid(err, many);
        }
        if (s3_sum_value_parse(alg, auth->headers[i].value, &w->value) < 0) {
            return fail(err, -EINVAL, "InvalidRequest", "Value for %s header is invalid.",
                        s3_sum_header(alg));
        }
        w->alg = alg;
        w->is_given = true;
    }
    return 0;
}

static int parse_trailers(const struct s3_auth *auth, struct s3_sum_want *w, struct err *err)
{
    for (size_t i = 0; i < auth->trailers.n; i++) {
        enum s3_sum_alg alg = s3_sum_by_header(auth->trailers.v[i]);
        if (alg == S3_SUM_NONE) {
            return invalid(err,
                           "The value specified in the x-amz-trailer header is not supported");
        }
        if (w->is_given || w->is_in_trailer) {
            return invalid(err, many);
        }
        w->alg = alg;
        w->is_in_trailer = true;
    }
    return 0;
}

static int parse_sdk(const struct s3_auth *auth, struct s3_sum_want *w, struct err *err)
{
    struct str text = header(auth, "x-amz-sdk-checksum-algorithm");
    if (!str_is_set(text)) {
        return 0;
    }
    enum s3_sum_alg alg = s3_sum_by_name(text);
    if (alg == S3_SUM_NONE || (w->alg && alg != w->alg)) {
        return invalid(err, "Value for x-amz-sdk-checksum-algorithm header is invalid.");
    }
    /* Presigned URLs of some SDKs name an algorithm for a body they have not seen. */
    if (!w->alg && !auth->is_presigned) {
        return invalid(err, "x-amz-sdk-checksum-algorithm specified, but no corresponding "
                            "x-amz-checksum-* or x-amz-trailer headers were found.");
    }
    w->alg = alg;
    return 0;
}

int s3_sum_want_parse(const struct s3_auth *auth, unsigned flags, enum s3_sum_alg default_alg,
                      struct s3_sum_want *ret, struct s3_extra *extra, struct err *err)
{
    struct s3_sum_want w = {.has_sha256 = auth->payload == S3_PAYLOAD_SHA256};
    if (w.has_sha256) {
        memcpy(w.sha256, auth->sha256, sizeof(w.sha256));
    }
    int rc = parse_md5(auth, &w, extra, err);
    rc = rc < 0 ? rc : parse_headers(auth, &w, err);
    rc = rc < 0 ? rc : parse_trailers(auth, &w, err);
    rc = rc < 0 ? rc : parse_sdk(auth, &w, err);
    if (rc < 0) {
        return rc;
    }
    if ((flags & S3_SUM_NEED_ONE) && !w.has_md5 && !w.is_given && !w.is_in_trailer) {
        return invalid(err, "Missing required header for this request: Content-MD5 OR "
                            "x-amz-checksum-*");
    }
    w.keep = flags & S3_SUM_NO_DEFAULT ? S3_SUM_NONE : w.alg ? w.alg : default_alg;
    *ret = w;
    return 0;
}

static const char *lower_name(enum s3_sum_alg alg)
{
    static const char *const names[S3_SUM_ALG_N] = {"null",      "crc32", "crc32c",
                                                    "crc64nvme", "sha1",  "sha256"};
    return names[alg];
}

int s3_sum_want_part(struct s3_sum_want *want, enum s3_sum_alg upload_alg, bool is_default,
                     struct err *err)
{
    if (want->alg && want->alg != upload_alg && !is_default) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "Checksum Type mismatch occurred, expected checksum Type: %s, actual "
                    "checksum Type: %s",
                    lower_name(upload_alg), lower_name(want->alg));
    }
    want->keep = upload_alg;
    return 0;
}

int s3_sum_upload_type(struct str alg, struct str type, enum s3_sum_alg *ret_alg,
                       enum s3_sum_type *ret_type, bool *ret_is_default, struct err *err)
{
    enum s3_sum_alg a = s3_sum_by_name(alg);
    if (!str_is_set(alg)) {
        if (str_is_set(type)) {
            return invalid(err, "The x-amz-checksum-type header can only be used with the "
                                "x-amz-checksum-algorithm header.");
        }
        *ret_alg = S3_SUM_CRC64NVME;
        *ret_type = S3_SUM_FULL_OBJECT;
        *ret_is_default = true;
        return 0;
    }
    if (a == S3_SUM_NONE) {
        return invalid(err, "Checksum algorithm provided is unsupported. Please try again with "
                            "any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]");
    }
    enum s3_sum_type t = str_ieqc(type, "FULL_OBJECT") ? S3_SUM_FULL_OBJECT
                         : str_ieqc(type, "COMPOSITE") ? S3_SUM_COMPOSITE
                                                       : S3_SUM_TYPE_NONE;
    if (str_is_set(type) && t == S3_SUM_TYPE_NONE) {
        return invalid(err, "Value for x-amz-checksum-type header is invalid.");
    }
    if (!t) {
        t = a == S3_SUM_CRC64NVME ? S3_SUM_FULL_OBJECT : S3_SUM_COMPOSITE;
    }
    bool is_sha = a == S3_SUM_SHA1 || a == S3_SUM_SHA256;
    if ((is_sha && t == S3_SUM_FULL_OBJECT) ||
        (a == S3_SUM_CRC64NVME && t == S3_SUM_COMPOSITE)) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The %s checksum type cannot be used with the %s checksum algorithm.",
                    s3_sum_type_name(t), lower_name(a));
    }
    *ret_alg = a;
    *ret_type = t;
    *ret_is_default = false;
    return 0;
}

int s3_sum_multi_check(struct str claimed, const struct s3_sum_value *got,
                       enum s3_sum_type type, unsigned n_parts, struct err *err)
{
    struct str base64 = str_cut(claimed, '-'), count = str_skip(claimed, base64.n + 1);
    struct s3_sum_value v;
    uint64_t n = n_parts;
    bool is_bad = s3_sum_value_parse(got->alg, base64, &v) < 0;
    if (base64.n < claimed.n) {
        is_bad = is_bad || type != S3_SUM_COMPOSITE || num_u64(count, 10000, &n) < 0;
    }
    if (is_bad) {
        return fail(err, -EINVAL, "InvalidRequest", "Value for %s header is invalid.",
                    s3_sum_header(got->alg));
    }
    if (n != n_parts || !s3_sum_eq(&v, got)) {
        return fail(err, -EINVAL, "BadDigest",
                    "The %s you specified did not match the calculated checksum.",
                    s3_sum_name(got->alg));
    }
    return 0;
}
