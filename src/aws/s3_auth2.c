#include "aws/s3_auth2.h"

#include "aws/s3_auth_int.h"
#include "aws/s3_form_int.h"
#include "base/num.h"
#include "base/time.h"
#include "codec/base64.h"
#include "codec/uri.h"
#include "crypto/digest.h"
#include <errno.h>

enum { MAX_TO_SIGN = 64 << 10, MAX_FIELDS = 64, MAX_SIGNED_HEADERS = 256 };

/* What stands in the query of a presigned URL. */
struct query2 {
    struct str access_key, signature, expires;
    bool is_v4;
};

static int bad_uri(struct err *err)
{
    return fail(err, -EINVAL, "InvalidURI", "Couldn't parse the specified URI.");
}

static int full(struct err *err)
{
    return fail(err, -ENOMEM, "RequestHeaderSectionTooLarge",
                "Your request header and query string sizes exceed the maximum allowed size.");
}

static struct query2 query_of(struct str query)
{
    struct query2 q = {STR_NONE, STR_NONE, STR_NONE, false};
    struct str name, v;
    while (str_is_set(query) && uri_next_field(&query, &name, &v)) {
        struct str *to = str_eqc(name, "AWSAccessKeyId") ? &q.access_key
                         : str_eqc(name, "Signature")    ? &q.signature
                         : str_eqc(name, "Expires")      ? &q.expires
                                                         : NULL;
        q.is_v4 = q.is_v4 || str_eqc(name, "X-Amz-Signature") ||
                  str_eqc(name, "X-Amz-Credential") || str_eqc(name, "X-Amz-Algorithm");
        if (to) {
            /* The first counts and is checked; a second one is refused with what it is not. */
            *to = str_is_set(*to) || !str_is_set(v) ? STR("") : v;
        }
    }
    return q;
}

bool s3_auth2_is(const struct aws_http *head)
{
    struct str h = aws_http_header(head, "Authorization");
    struct query2 q = query_of(head->query);
    bool is_query = str_is_set(q.access_key) || str_is_set(q.signature);
    if (q.is_v4 || aws_http_header_count(head, "Authorization") > 1) {
        return false;
    }
    if (str_is_set(h)) {
        return !is_query && str_has_prefixc(h, "AWS ") && str_find(h, ':', 0) > 0;
    }
    return is_query;
}

/* ---- what is signed ---- */

/* The parameters that are part of the resource; the list is a part of the protocol. */
static bool is_signed_param(struct str name)
{
    static const char *const names[] = {
        "accelerate",
        "acl",
        "analytics",
        "cors",
        "defaultObjectAcl",
        "delete",
        "inventory",
        "lifecycle",
        "location",
        "logging",
        "metrics",
        "notification",
        "object-lock",
        "partNumber",
        "policy",
        "replication",
        "requestPayment",
        "response-cache-control",
        "response-content-disposition",
        "response-content-encoding",
        "response-content-language",
        "response-content-type",
        "response-expires",
        "restore",
        "select",
        "select-type",
        "storageClass",
        "tagging",
        "torrent",
        "uploadId",
        "uploads",
        "versionId",
        "versioning",
        "versions",
        "website",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eqc(name, names[i])) {
            return true;
        }
    }
    return false;
}

/* Unsigned, and harmless: they choose a page of a list, or say how it is written. */
static bool is_free_param(struct str name)
{
    static const char *const names[] = {
        "AWSAccessKeyId",
        "Expires",
        "Signature",
        "continuation-token",
        "delimiter",
        "encoding-type",
        "fetch-owner",
        "key-marker",
        "list-type",
        "marker",
        "max-keys",
        "max-parts",
        "max-uploads",
        "part-number-marker",
        "prefix",
        "start-after",
        "upload-id-marker",
        "version-id-marker",
        "x-id",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eqc(name, names[i])) {
            return true;
        }
    }
    return false;
}

struct field2 {
    struct str name, value; /* value STR_NONE: no '=' */
    size_t at;
};

/* Those of one name stay as they were sent. */
static int by_name(const void *a, const void *b)
{
    const struct field2 *x = a, *y = b;
    int r = str_cmp(x->name, y->name);
    return r ? r : (x->at > y->at) - (x->at < y->at);
}

static bool is_amz(struct str name)
{
    return name.n > 6 && str_ieq(str_n(name.p, 6), STR("x-amz-"));
}

/* "/bucket/key?acl&versionId=..." */
static int add_resource(struct arena *a, const struct aws_http *head, struct str vhost_bucket,
                        bool has_slash, struct buf *out, struct err *err)
{
    struct field2 v[MAX_FIELDS];
    struct str name, value, rest = head->query;
    size_t n = 0;
    while (str_is_set(rest) && uri_next_field(&rest, &name, &value)) {
        if (name.n == 0) {
            continue;
        }
        if (!is_signed_param(name)) {
            if (is_free_param(name) || is_amz(name) || str_ieqc(name, "content-type") ||
                str_ieqc(name, "content-md5")) {
                continue;
            }
            return fail(err, -EACCES, "AccessDenied",
                        "The query has a parameter that Signature Version 2 does not sign");
        }
        if (n == MAX_FIELDS) {
            return full(err);
        }
        v[n] = (struct field2){name, STR_NONE, n};
        if (str_is_set(value) && uri_decode(a, value, URI_PLAIN, &v[n].value) < 0) {
            return bad_uri(err);
        }
        n++;
    }
    if (n) {
        qsort(v, n, sizeof(v[0]), by_name);
    }
    if (str_is_set(vhost_bucket)) {
        buf_add_char(out, '/');
        buf_add(out, vhost_bucket);
    }
    buf_add(out, head->path);
    buf_addc(out, has_slash ? "/" : "");
    for (size_t i = 0; i < n; i++) {
        buf_add_char(out, i ? '&' : '?');
        buf_add(out, v[i].name);
        if (str_is_set(v[i].value)) {
            buf_add_char(out, '=');
            buf_add(out, v[i].value);
        }
    }
    return 0;
}

static struct str lower(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, s.n + 1);
    for (size_t i = 0; p && i < s.n; i++) {
        char c = s.p[i];
        p[i] = c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
    }
    return p ? str_n(p, s.n) : STR_NONE;
}

/* A URL tells a header that the sender may tell again. */
static bool is_again(const struct field2 *v, size_t n, const struct http_header *h)
{
    for (size_t i = 0; i < n; i++) {
        if (str_ieq(v[i].name, h->name) && v[i].name.n == h->name.n &&
            str_eq(v[i].value, h->value)) {
            return true;
        }
    }
    return false;
}

/* All x-amz-... headers, those in the query too: "name:value" by name, one line each. */
static int add_amz(struct arena *a, const struct s3_auth *got, size_t n_sent, struct str token,
                   struct buf *out, struct err *err)
{
    struct field2 *v = arena_array(a, MAX_SIGNED_HEADERS + 1, sizeof(*v));
    size_t n = 0;
    for (size_t i = 0; v && i < got->n_headers; i++) {
        const struct http_header *h = &got->headers[i];
        if (!is_amz(h->name) || (i >= n_sent && is_again(v, n, h))) {
            continue;
        }
        if (n == MAX_SIGNED_HEADERS) {
            return full(err);
        }
        v[n] = (struct field2){lower(a, h->name), h->value, n};
        n++;
    }
    if (v && str_is_set(token)) { /* of the query */
        v[n] = (struct field2){STR("x-amz-security-token"), token, n};
        n++;
    }
    if (!v) {
        return full(err);
    }
    if (n) {
        qsort(v, n, sizeof(*v), by_name);
    }
    for (size_t i = 0; i < n; i++) {
        bool is_next = i > 0 && str_eq(v[i].name, v[i - 1].name);
        if (!is_next) {
            buf_addc(out, i ? "\n" : "");
            buf_add(out, v[i].name);
        }
        buf_add_char(out, is_next ? ',' : ':');
        buf_add(out, v[i].value);
    }
    buf_addc(out, n ? "\n" : "");
    return 0;
}

/* ---- one request ---- */

struct sign2 {
    bool is_query;
    struct str access_key, signature, date, token;
    uint64_t signed_ns, expires_ns;
};

static int query_text(struct arena *a, struct str raw, const char *what, struct str *ret,
                      struct err *err)
{
    if (!str_is_set(raw) || raw.n == 0) {
        return fail(err, -EACCES, "AccessDenied",
                    "Query-string authentication requires the Signature, Expires and "
                    "AWSAccessKeyId parameters (%s)",
                    what);
    }
    return uri_decode(a, raw, URI_PLAIN, ret) < 0 ? bad_uri(err) : 0;
}

static int parse_query2(struct arena *a, const struct aws_http *head, struct sign2 *ret,
                        struct err *err)
{
    struct query2 q = query_of(head->query);
    struct str name, v, rest = head->query;
    uint64_t seconds = 0;
    int r = query_text(a, q.access_key, "AWSAccessKeyId", &ret->access_key, err);
    r = r < 0 ? r : query_text(a, q.signature, "Signature", &ret->signature, err);
    r = r < 0 ? r : query_text(a, q.expires, "Expires", &ret->date, err);
    if (r < 0) {
        return r;
    }
    if (num_u64(ret->date, UINT32_MAX, &seconds) < 0) {
        return fail(err, -EACCES, "AccessDenied",
                    "Invalid date (should be seconds since epoch)");
    }
    ret->is_query = true;
    ret->expires_ns = seconds * NS_PER_S;
    while (str_is_set(rest) && uri_next_field(&rest, &name, &v)) {
        if (str_ieqc(name, "x-amz-security-token") && str_is_set(v) &&
            uri_decode(a, v, URI_PLAIN, &ret->token) < 0) {
            return bad_uri(err);
        }
    }
    return 0;
}

static int parse_header2(const struct aws_http *head, struct sign2 *ret, struct err *err)
{
    struct str h = str_skip(aws_http_header(head, "Authorization"), 4);
    struct str amz = aws_http_header(head, "x-amz-date"), date = aws_http_header(head, "Date");
    ret->access_key = str_trim(str_cut(h, ':'));
    ret->signature = str_skip(h, str_cut(h, ':').n + 1);
    ret->date = str_is_set(amz) ? STR("") : date;
    ret->token = aws_http_header(head, "x-amz-security-token");
    if (s3_auth_date(str_is_set(amz) ? amz : date, &ret->signed_ns) < 0) {
        return fail(err, -EACCES, "AccessDenied",
                    "AWS authentication requires a valid Date or x-amz-date header");
    }
    return 0;
}

static int check_when(struct arena *a, const struct sign2 *s, uint64_t now_ns,
                      struct s3_extra *extra, struct err *err)
{
    char text[TIME_ISO_SIZE];
    uint64_t gap = now_ns > s->signed_ns ? now_ns - s->signed_ns : s->signed_ns - now_ns;
    if (s->is_query ? now_ns < s->expires_ns : gap <= SIGV4_SKEW_NS) {
        return 0;
    }
    if (s->is_query) {
        s3_extra_dup(extra, a, "Expires", str_c(time_iso_s(s->expires_ns, text)));
    }
    s3_extra_dup(extra, a, "ServerTime", str_c(time_iso_s(now_ns, text)));
    return s->is_query ? fail(err, -EACCES, "AccessDenied", "Request has expired")
                       : fail(err, -EACCES, "RequestTimeTooSkewed",
                              "The difference between the request time and the current time is "
                              "too large.");
}

/* A header, else the query: of presigned URLs both name what was signed. */
static int header_or_query(struct arena *a, const struct aws_http *head, const struct sign2 *s,
                           const char *name, struct buf *out, struct err *err)
{
    struct str have = aws_http_header(head, name), field, v, rest = head->query;
    while (s->is_query && !str_is_set(have) && str_is_set(rest) &&
           uri_next_field(&rest, &field, &v)) {
        if (str_ieqc(field, name) && str_is_set(v) && uri_decode(a, v, URI_PLAIN, &have) < 0) {
            return bad_uri(err);
        }
    }
    buf_add(out, str_is_set(have) ? have : STR(""));
    buf_add_char(out, '\n');
    return 0;
}

static int to_sign(struct arena *a, const struct aws_http *head, const struct sign2 *s,
                   const struct s3_auth *got, struct str vhost_bucket, bool has_slash,
                   struct buf *out, struct err *err)
{
    buf_add(out, head->method);
    buf_add_char(out, '\n');
    int r = header_or_query(a, head, s, "Content-MD5", out, err);
    r = r < 0 ? r : header_or_query(a, head, s, "Content-Type", out, err);
    if (r < 0) {
        return r;
    }
    buf_add(out, s->date);
    buf_add_char(out, '\n');
    r = add_amz(a, got, head->n_headers, s->is_query ? s->token : STR_NONE, out, err);
    r = r < 0 ? r : add_resource(a, head, vhost_bucket, has_slash, out, err);
    return r < 0 || buf_ok(out) ? r : full(err);
}

/* "/bucket" is also signed as "/bucket/": both are the bucket. */
static bool may_have_slash(struct str path, struct str vhost_bucket)
{
    return !str_is_set(vhost_bucket) && path.n > 1 && str_find(str_skip(path, 1), '/', 0) < 0;
}

static int check_mac(struct arena *a, const struct aws_http *head, struct str secret,
                     const struct sign2 *s, const struct s3_auth *got, struct str vhost_bucket,
                     struct s3_extra *extra, struct err *err)
{
    AUTO_BUF text, want;
    struct str shown = STR_NONE;
    buf_init(&text, MAX_TO_SIGN);
    buf_init(&want, 64);
    int n = may_have_slash(head->path, vhost_bucket) ? 2 : 1;
    for (int i = 0; i < n; i++) {
        uint8_t mac[SHA1_SIZE];
        buf_clear(&text);
        buf_clear(&want);
        int r = to_sign(a, head, s, got, vhost_bucket, i == 1, &text, err);
        if (r < 0) {
            return r;
        }
        s3_hmac_sha1(secret, buf_str(&text), mac);
        base64_encode(str_n((const char *)mac, sizeof(mac)), &want);
        if (str_eq_consttime(buf_str(&want), s->signature)) {
            return 0;
        }
        shown = i == 0 ? arena_str_dup(a, buf_str(&text)) : shown;
    }
    s3_extra_add(extra, "AWSAccessKeyId", s->access_key);
    s3_extra_add(extra, "StringToSign", shown);
    s3_extra_add(extra, "SignatureProvided", s->signature);
    return fail(err, -EACCES, "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you "
                "provided. Check your key and signing method.");
}

static int check_payload(struct arena *a, const struct aws_http *head, struct s3_auth *got,
                         struct s3_extra *extra, struct err *err)
{
    struct str hash = STR_NONE;
    int r = s3_auth_payload(a, head, S3_AUTH_NOBODY, got, &hash, extra, err);
    if (r < 0) {
        return r;
    }
    /* With the query: what stands there for headers. */
    return s3_auth_headers(a, head, S3_AUTH_QUERY, got, extra, err);
}

int s3_auth2_head(struct arena *a, const struct sigv4_opts *o, const struct aws_http *head,
                  struct str vhost_bucket, struct s3_auth *ret, struct s3_extra *extra,
                  struct err *err)
{
    struct sign2 s = {.token = STR_NONE, .date = STR("")};
    struct s3_auth got = {.access_key = STR_NONE};
    struct aws_key key = {.secret = STR_NONE};
    *ret = got;
    if (!(o->flags & S3_FORM_OLD_SIGNATURE)) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The authorization mechanism you have provided is not supported. Please "
                    "use AWS4-HMAC-SHA256.");
    }
    int r = str_is_set(aws_http_header(head, "Authorization")) ? parse_header2(head, &s, err)
                                                               : parse_query2(a, head, &s, err);
    if (r < 0) {
        return r;
    }
    const struct s3_auth_scope scope = {
        .access_key = s.access_key, .session_token = s.token, .has_none = true};
    r = s3_auth_key(a, o, &scope, head->now_ns, &key, got.signing_key, extra, err);
    r = r < 0 ? r : check_when(a, &s, head->now_ns, extra, err);
    r = r < 0 ? r : check_payload(a, head, &got, extra, err);
    r = r < 0 ? r : check_mac(a, head, key.secret, &s, &got, vhost_bucket, extra, err);
    if (r < 0) {
        return r;
    }
    got.is_presigned = s.is_query;
    got.who = key.who;
    got.access_key = s.access_key;
    got.scope = got.amz_date = STR("");
    got.signed_ns = s.is_query ? head->now_ns : s.signed_ns;
    got.age_ns = head->now_ns > got.signed_ns ? head->now_ns - got.signed_ns : 0;
    *ret = got;
    return 0;
}
