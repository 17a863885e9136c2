/* Who sends a form, and what it wants. */
#include "aws/s3_form.h"

#include "aws/s3_auth_int.h"
#include "aws/s3_form_int.h"
#include "aws/s3_name.h"
#include "base/time.h"
#include "codec/base64.h"
#include "codec/uri.h"
#include "crypto/digest.h"
#include "crypto/secret.h"
#include <errno.h>

static int full(struct err *err)
{
    return fail(err, -ENOMEM, "MaxPostPreDataLengthExceededError",
                "Your POST request fields preceeding the upload file was too large.");
}

static int missing(const char *name, struct s3_extra *extra, struct err *err)
{
    s3_extra_add(extra, "ArgumentName", str_c(name));
    s3_extra_add(extra, "ArgumentValue", STR(""));
    return fail(
        err, -EINVAL, "InvalidArgument",
        "Bucket POST must contain a field named '%s'.  If it is specified, please check "
        "the order of the fields.",
        name);
}

static int mismatch(struct arena *a, struct str access_key, struct str policy,
                    struct str signature, struct s3_extra *extra, struct err *err)
{
    s3_extra_dup(extra, a, "AWSAccessKeyId", access_key);
    s3_extra_dup(extra, a, "StringToSign", policy);
    s3_extra_dup(extra, a, "SignatureProvided", signature);
    return fail(err, -EACCES, "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you "
                "provided. Check your key and signing method.");
}

/* ---- the old signature ---- */

void s3_hmac_sha1(struct str key, struct str data, uint8_t out[SHA1_SIZE])
{
    uint8_t pad[64] = {0}, inner[SHA1_SIZE];
    struct digest *d = digest_new(DIGEST_SHA1);
    if (key.n > sizeof(pad)) {
        sha1(key, pad);
    } else if (key.n) {
        memcpy(pad, key.p, key.n);
    }
    for (size_t i = 0; i < sizeof(pad); i++) {
        pad[i] ^= 0x36;
    }
    digest_add(d, str_n((const char *)pad, sizeof(pad)));
    digest_add(d, data);
    digest_end(d, inner);
    for (size_t i = 0; i < sizeof(pad); i++) {
        pad[i] ^= 0x36 ^ 0x5c;
    }
    digest_add(d, str_n((const char *)pad, sizeof(pad)));
    digest_add(d, str_n((const char *)inner, sizeof(inner)));
    digest_end(d, out);
    digest_free(d);
    secret_wipe(pad, sizeof(pad));
}

static int check_old(struct arena *a, const struct sigv4_opts *o, const struct s3_form *f,
                     struct str policy, uint64_t now_ns, struct s3_auth *ret,
                     struct s3_extra *extra, struct err *err)
{
    struct aws_key key;
    uint8_t mac[SHA1_SIZE];
    AUTO_BUF want;
    struct str signature = s3_form_get(f, "signature");
    const struct s3_auth_scope scope = {.access_key = s3_form_get(f, "AWSAccessKeyId"),
                                        .session_token = s3_form_get(f, "x-amz-security-token"),
                                        .has_none = true};
    buf_init(&want, 64);
    if (!(o->flags & S3_FORM_OLD_SIGNATURE)) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The authorization mechanism you have provided is not supported. Please "
                    "use AWS4-HMAC-SHA256.");
    }
    if (!str_is_set(scope.access_key)) {
        return missing("AWSAccessKeyId", extra, err);
    }
    if (!str_is_set(signature)) {
        return missing("signature", extra, err);
    }
    int rc = s3_auth_key(a, o, &scope, now_ns, &key, ret->signing_key, extra, err);
    if (rc < 0) {
        return rc;
    }
    s3_hmac_sha1(key.secret, policy, mac);
    base64_encode(str_n((const char *)mac, sizeof(mac)), &want);
    if (!str_eq_consttime(buf_str(&want), signature)) {
        return mismatch(a, scope.access_key, policy, signature, extra, err);
    }
    ret->who = key.who;
    ret->access_key = scope.access_key;
    return 0;
}

/* ---- Signature Version 4 ---- */

static int check_v4(struct arena *a, const struct sigv4_opts *o, const struct s3_form *f,
                    struct str policy, uint64_t now_ns, struct s3_auth *ret,
                    struct s3_extra *extra, struct err *err)
{
    struct str algorithm = s3_form_get(f, "x-amz-algorithm");
    struct str credential = s3_form_get(f, "x-amz-credential");
    struct str date = s3_form_get(f, "x-amz-date");
    struct str signature = s3_form_get(f, "x-amz-signature");
    struct sigv4_auth auth = {.session_token = s3_form_get(f, "x-amz-security-token")};
    struct aws_key key;
    uint8_t mac[SHA256_SIZE];
    char want[2 * SHA256_SIZE + 1];
    const char *absent = !str_is_set(algorithm)    ? "X-Amz-Algorithm"
                         : !str_is_set(credential) ? "X-Amz-Credential"
                         : !str_is_set(date)       ? "X-Amz-Date"
                         : !str_is_set(signature)  ? "X-Amz-Signature"
                                                   : NULL;
    if (absent) {
        return missing(absent, extra, err);
    }
    if (!str_eqc(algorithm, "AWS4-HMAC-SHA256")) {
        return fail(err, -EINVAL, "InvalidArgument",
                    "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
    }
    if (s3_auth_parse_credential(credential, &auth) < 0) {
        return fail(err, -EINVAL, "AuthorizationQueryParametersError",
                    "Error parsing the X-Amz-Credential parameter; the Credential is "
                    "mal-formed; expecting "
                    "\"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".");
    }
    if (time_parse_basic(date, &auth.signed_ns) < 0 || !str_eq(str_n(date.p, 8), auth.date)) {
        return fail(
            err, -EINVAL, "AuthorizationQueryParametersError",
            "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\" and "
            "of the day in X-Amz-Credential");
    }
    const struct s3_auth_scope scope = {.access_key = auth.access_key,
                                        .date = auth.date,
                                        .region = auth.region,
                                        .service = auth.service,
                                        .session_token = auth.session_token};
    int rc = s3_auth_key(a, o, &scope, now_ns, &key, ret->signing_key, extra, err);
    if (rc < 0) {
        return rc;
    }
    hmac_sha256(str_n((const char *)ret->signing_key, SHA256_SIZE), policy, mac);
    digest_hex(mac, sizeof(mac), want);
    if (!str_eq_consttime(str_c(want), signature)) {
        return mismatch(a, auth.access_key, policy, signature, extra, err);
    }
    ret->who = key.who;
    ret->access_key = auth.access_key;
    ret->amz_date = date;
    ret->signed_ns = auth.signed_ns;
    ret->age_ns = now_ns > auth.signed_ns ? now_ns - auth.signed_ns : 0;
    return 0;
}

int s3_form_auth(struct arena *a, const struct sigv4_opts *o, const struct s3_form *f,
                 uint64_t now_ns, struct s3_auth *ret, struct s3_extra *extra, struct err *err)
{
    struct str policy = s3_form_get(f, "policy");
    struct s3_auth got = {.payload = S3_PAYLOAD_UNSIGNED};
    bool is_old =
        str_is_set(s3_form_get(f, "AWSAccessKeyId")) || str_is_set(s3_form_get(f, "signature"));
    bool is_v4 = str_is_set(s3_form_get(f, "x-amz-signature")) ||
                 str_is_set(s3_form_get(f, "x-amz-credential")) ||
                 str_is_set(s3_form_get(f, "x-amz-algorithm"));
    *ret = (struct s3_auth){.is_anonymous = false};
    if (!str_is_set(policy)) {
        if (is_old || is_v4) {
            return missing("policy", extra, err);
        }
        got.is_anonymous = true;
        *ret = got;
        return 0;
    }
    if (is_old && is_v4) {
        return fail(err, -EINVAL, "InvalidArgument", "Only one auth mechanism allowed");
    }
    int rc = is_old ? check_old(a, o, f, policy, now_ns, &got, extra, err)
                    : check_v4(a, o, f, policy, now_ns, &got, extra, err);
    if (rc == 0) {
        *ret = got;
    }
    s3_auth_done(&got);
    return rc;
}

/* ---- what it wants ---- */

/* "${filename}" stands for the name of the file, in every field. */
static int expand(struct arena *a, struct str value, struct str filename, struct str *ret)
{
    static const struct str mark = {"${filename}", 11};
    ptrdiff_t at = str_find_str(value, mark);
    AUTO_BUF b;
    buf_init(&b, 4 * S3_FORM_FIELDS_MAX);
    if (at < 0) {
        *ret = value;
        return 0;
    }
    while (at >= 0) {
        buf_add(&b, str_n(value.p, (size_t)at));
        buf_add(&b, filename);
        value = str_skip(value, (size_t)at + mark.n);
        at = str_find_str(value, mark);
    }
    buf_add(&b, value);
    *ret = buf_ok(&b) ? arena_str_dup(a, buf_str(&b)) : STR_NONE;
    return ret->p ? 0 : -ENOMEM;
}

static bool is_token_of_signature(struct str name)
{
    static const char *const names[] = {"policy",     "x-amz-signature",     "x-amz-credential",
                                        "x-amz-date", "x-amz-algorithm",     "AWSAccessKeyId",
                                        "signature",  "x-amz-security-token"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_ieqc(name, names[i])) {
            return true;
        }
    }
    return false;
}

static struct s3_form_field *expanded(struct arena *a, const struct s3_form *f)
{
    struct s3_form_field *v = arena_array(a, f->n_fields + 1, sizeof(*v));
    for (size_t i = 0; v && i < f->n_fields; i++) {
        v[i] = f->fields[i];
        if (!is_token_of_signature(v[i].name) &&
            expand(a, f->fields[i].value, f->filename.p ? f->filename : STR(""), &v[i].value) <
                0) {
            return NULL;
        }
    }
    return v;
}

static struct str find(const struct s3_form_field *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (str_ieqc(v[i].name, name)) {
            return v[i].value;
        }
    }
    return STR_NONE;
}

static bool has_control(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f) {
            return true;
        }
    }
    return false;
}

/* The header a field stands for; STR_NONE when it stands for none. */
static struct str header_of(struct str name)
{
    static const char *const plain[] = {
        "Cache-Control", "Content-Type",     "Content-Disposition", "Content-Encoding",
        "Expires",       "Content-Language", "Content-MD5"};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        if (str_ieqc(name, plain[i])) {
            return name;
        }
    }
    if (str_ieqc(name, "acl")) {
        return STR("x-amz-acl");
    }
    bool is_amz = name.n > 6 && str_ieq(str_n(name.p, 6), STR("x-amz-"));
    return is_amz && !is_token_of_signature(name) ? name : STR_NONE;
}

static int put_headers(struct arena *a, const struct s3_form_field *v, size_t n,
                       struct s3_form_upload *up, struct err *err)
{
    struct http_header *h = arena_array(a, n + 1, sizeof(*h));
    if (!h) {
        return full(err);
    }
    up->n_headers = 0;
    for (size_t i = 0; i < n; i++) {
        struct str name = header_of(v[i].name);
        if (!str_is_set(name)) {
            continue;
        }
        if (!s3_is_token(name) || has_control(v[i].value)) {
            return fail(err, -EINVAL, "InvalidArgument",
                        "The name or the value of the field '%.*s' is not valid for a header",
                        STR_ARG(v[i].name));
        }
        h[up->n_headers++] = (struct http_header){name, str_trim(v[i].value)};
    }
    up->headers = h;
    return 0;
}

/* A value that is none of these, or no URL, counts as if it were not there. */
static void put_success(const struct s3_form_field *v, size_t n, struct s3_form_upload *up)
{
    struct str status = find(v, n, "success_action_status");
    struct str to = find(v, n, "success_action_redirect");
    to = str_is_set(to) ? to : find(v, n, "redirect");
    up->success_status = str_eqc(status, "200") ? 200 : str_eqc(status, "201") ? 201 : 204;
    bool is_url = (str_has_prefixc(to, "http://") || str_has_prefixc(to, "https://")) &&
                  !has_control(to) && str_find(to, ' ', 0) < 0;
    up->redirect = is_url ? to : STR_NONE;
}

static int check_policy(const struct s3_form_field *v, size_t n, struct str bucket,
                        uint64_t now_ns, struct s3_form_upload *up, struct err *err)
{
    AUTO_BUF json;
    struct str policy = find(v, n, "policy");
    buf_init(&json, S3_FORM_FIELDS_MAX);
    up->max_size = UINT64_MAX;
    if (!str_is_set(policy)) {
        return 0;
    }
    if (base64_decode_lax(policy, &json) < 0) {
        return fail(err, -EINVAL, "InvalidPolicyDocument",
                    "Invalid Policy: Invalid Base64 encoding.");
    }
    const struct s3_form_policy_in in = {
        .json = buf_str(&json), .bucket = bucket, .fields = v, .n_fields = n, .now_ns = now_ns};
    return s3_form_policy(&in, up, err);
}

int s3_form_check(struct arena *a, const struct s3_form *f, struct str bucket, uint64_t now_ns,
                  struct s3_form_upload *ret, struct s3_extra *extra, struct err *err)
{
    struct s3_form_upload up = {.tagging_xml = STR_NONE};
    const struct s3_form_field *v = expanded(a, f);
    if (!v) {
        return full(err);
    }
    up.key = find(v, f->n_fields, "key");
    up.tagging_xml = find(v, f->n_fields, "tagging");
    if (!str_is_set(up.key)) {
        return missing("key", extra, err);
    }
    if (up.key.n == 0) {
        return fail(
            err, -EINVAL, "UserKeyMustBeSpecified",
            "The bucket POST must contain the specified field name. If it is specified, "
            "check the order of the fields.");
    }
    int rc = s3_key_check(up.key, err);
    rc = rc < 0 ? rc : check_policy(v, f->n_fields, bucket, now_ns, &up, err);
    rc = rc < 0 ? rc : put_headers(a, v, f->n_fields, &up, err);
    if (rc == 0) {
        put_success(v, f->n_fields, &up);
        *ret = up;
    }
    return rc;
}

int s3_form_size_check(struct arena *a, const struct s3_form_upload *u, uint64_t size,
                       bool is_end, struct s3_extra *extra, struct err *err)
{
    if (size > u->max_size) {
        s3_extra_add(extra, "ProposedSize", arena_fmt(a, "%llu", (unsigned long long)size));
        s3_extra_add(extra, "MaxSizeAllowed",
                     arena_fmt(a, "%llu", (unsigned long long)u->max_size));
        return fail(err, -EFBIG, "EntityTooLarge",
                    "Your proposed upload exceeds the maximum allowed size");
    }
    if (is_end && size < u->min_size) {
        s3_extra_add(extra, "ProposedSize", arena_fmt(a, "%llu", (unsigned long long)size));
        s3_extra_add(extra, "MinSizeAllowed",
                     arena_fmt(a, "%llu", (unsigned long long)u->min_size));
        return fail(err, -EINVAL, "EntityTooSmall",
                    "Your proposed upload is smaller than the minimum allowed size");
    }
    return 0;
}

struct str s3_form_redirect(struct arena *a, const struct s3_form_upload *u, struct str bucket,
                            struct str etag)
{
    AUTO_BUF b;
    if (etag.n >= 2 && etag.p[0] == '"') {
        etag = str_n(etag.p + 1, etag.n - 2);
    }
    buf_init(&b, 64u << 10);
    buf_add(&b, u->redirect);
    buf_addc(&b, str_find(u->redirect, '?', 0) < 0 ? "?bucket=" : "&bucket=");
    uri_encode(bucket, URI_PLAIN, &b);
    buf_addc(&b, "&key=");
    uri_encode(u->key, URI_PLAIN, &b);
    buf_addc(&b, "&etag=%22");
    uri_encode(etag, URI_PLAIN, &b);
    buf_addc(&b, "%22");
    return buf_ok(&b) ? arena_str_dup(a, buf_str(&b)) : STR_NONE;
}
