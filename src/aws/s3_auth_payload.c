/* What the head says of the body, and the headers that a presigned URL carries in its query. */
#include "aws/s3_auth_int.h"

#include "aws/s3_name.h"
#include "base/num.h"
#include "codec/hex.h"
#include "codec/uri.h"
#include <errno.h>

enum { MAX_TRAILERS = 8, MAX_HOISTED = 64 };

static int invalid(struct arena *a, struct s3_extra *extra, const char *name, struct str value,
                   struct err *err, const char *msg)
{
    s3_extra_add(extra, "ArgumentName", str_c(name));
    s3_extra_dup(extra, a, "ArgumentValue", str_n(value.p, MIN(value.n, (size_t)256)));
    return fail(err, -EINVAL, "InvalidArgument", "%s", msg);
}

static int full(struct err *err)
{
    return fail(err, -ENOMEM, "RequestHeaderSectionTooLarge",
                "Your request header and query string sizes exceed the maximum allowed size.");
}

/* The query parameter of that name, case ignored; decoded. */
static struct str query_value(struct arena *a, struct str query, const char *want)
{
    struct str name, v, rest = query, ret = STR_NONE;
    while (str_is_set(rest) && uri_next_field(&rest, &name, &v)) {
        if (str_ieqc(name, want) && str_is_set(v) &&
            uri_decode(a, v, URI_PLUS_IS_SPACE, &ret) == 0) {
            return ret;
        }
    }
    return STR_NONE;
}

static struct str lower(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, s.n + 1);
    if (!p) {
        return STR_NONE;
    }
    for (size_t i = 0; i < s.n; i++) {
        p[i] = s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char)(s.p[i] + 32) : s.p[i];
    }
    return str_n(p, s.n);
}

/* x-amz-trailer: names, in one or several headers. */
static int trailer_names(struct arena *a, const struct aws_http *head, struct aws_str_list *ret,
                         struct err *err)
{
    struct str *v = NULL;
    size_t n = 0;
    for (size_t i = 0; i < head->n_headers; i++) {
        struct str rest = head->headers[i].value, name;
        if (!str_ieqc(head->headers[i].name, "x-amz-trailer")) {
            continue;
        }
        while (str_is_set(rest) && str_next(&rest, ',', &name)) {
            name = str_trim(name);
            if (name.n == 0) {
                continue;
            }
            v = v ? v : arena_array(a, MAX_TRAILERS, sizeof(*v));
            if (!v) {
                return full(err);
            }
            if (n == MAX_TRAILERS) {
                return fail(err, -EINVAL, "InvalidRequest",
                            "The value specified in the x-amz-trailer header is not supported");
            }
            v[n] = lower(a, name);
            if (!v[n++].p) {
                return full(err);
            }
        }
    }
    *ret = (struct aws_str_list){.v = v, .n = n, .is_set = v != NULL};
    return 0;
}

static const struct {
    const char *text;
    enum s3_payload kind;
} kinds[] = {
    {"UNSIGNED-PAYLOAD", S3_PAYLOAD_UNSIGNED},
    {"STREAMING-UNSIGNED-PAYLOAD-TRAILER", S3_PAYLOAD_UNSIGNED_TRAILER},
    {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", S3_PAYLOAD_SIGNED},
    {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", S3_PAYLOAD_SIGNED_TRAILER},
};

static int payload_kind(struct arena *a, struct str text, enum s3_auth_form form,
                        struct s3_auth *ret, struct s3_extra *extra, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!str_eqc(text, kinds[i].text)) {
            continue;
        }
        if (form == S3_AUTH_NOBODY && (kinds[i].kind == S3_PAYLOAD_SIGNED ||
                                       kinds[i].kind == S3_PAYLOAD_SIGNED_TRAILER)) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "Anonymous requests don't support this x-amz-content-sha256 value. "
                        "Please use UNSIGNED-PAYLOAD or STREAMING-UNSIGNED-PAYLOAD-TRAILER.");
        }
        ret->payload = kinds[i].kind;
        return 0;
    }
    if (text.n == 2 * sizeof(ret->sha256) &&
        hex_decode(text, ret->sha256, sizeof(ret->sha256)) == 0) {
        ret->payload = S3_PAYLOAD_SHA256;
        return 0;
    }
    if (str_has_prefixc(text, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD")) {
        return fail(err, -ENOSYS, "NotImplemented",
                    "Payloads signed with AWS4-ECDSA-P256-SHA256 are not supported. Please use "
                    "AWS4-HMAC-SHA256.");
    }
    return invalid(a, extra, "x-amz-content-sha256", text, err,
                   "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, "
                   "STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, "
                   "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, or a valid sha256 value.");
}

static int decoded_length(struct arena *a, const struct aws_http *head, struct s3_auth *ret,
                          struct s3_extra *extra, struct err *err)
{
    struct str text = aws_http_header(head, "x-amz-decoded-content-length");
    if (text.n == 0) {
        return fail(err, -EINVAL, "MissingContentLength",
                    "You must provide the Content-Length HTTP header.");
    }
    if (num_u64(text, INT64_MAX, &ret->decoded_length) < 0) {
        return invalid(a, extra, "x-amz-decoded-content-length", text, err,
                       "The value of x-amz-decoded-content-length is not a number of bytes");
    }
    return 0;
}

int s3_auth_payload(struct arena *a, const struct aws_http *head, enum s3_auth_form form,
                    struct s3_auth *ret, struct str *ret_hash, struct s3_extra *extra,
                    struct err *err)
{
    struct str text = aws_http_header(head, "x-amz-content-sha256");
    if (aws_http_header_count(head, "x-amz-content-sha256") > 1) {
        return invalid(a, extra, "x-amz-content-sha256", text, err,
                       "x-amz-content-sha256 is given more than once");
    }
    if (form == S3_AUTH_QUERY && !str_is_set(text)) {
        text = query_value(a, head->query, "X-Amz-Content-Sha256");
    }
    if (!str_is_set(text) && form == S3_AUTH_HEADER) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "Missing required header for this request: x-amz-content-sha256");
    }
    *ret_hash = str_is_set(text) ? text : STR("UNSIGNED-PAYLOAD");
    int rc = payload_kind(a, *ret_hash, form, ret, extra, err);
    rc = rc < 0 ? rc : trailer_names(a, head, &ret->trailers, err);
    if (rc < 0) {
        return rc;
    }
    bool has_trailer = ret->payload == S3_PAYLOAD_SIGNED_TRAILER ||
                       ret->payload == S3_PAYLOAD_UNSIGNED_TRAILER;
    if (ret->trailers.n > 0 && !has_trailer) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The x-amz-trailer header needs an x-amz-content-sha256 that says that a "
                    "trailer follows");
    }
    return s3_payload_is_chunked(ret->payload) ? decoded_length(a, head, ret, extra, err) : 0;
}

/* ---- hoisted headers ---- */

static bool is_hoisted(struct str name)
{
    static const char *const own[] = {"x-amz-algorithm",      "x-amz-credential",
                                      "x-amz-date",           "x-amz-expires",
                                      "x-amz-signedheaders",  "x-amz-signature",
                                      "x-amz-security-token", "x-amz-content-sha256"};
    if (name.n <= 6 || !str_ieqc(str_n(name.p, 6), "x-amz-")) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        if (str_ieqc(name, own[i])) {
            return false;
        }
    }
    return true;
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

int s3_auth_headers(struct arena *a, const struct aws_http *head, enum s3_auth_form form,
                    struct s3_auth *ret, struct s3_extra *extra, struct err *err)
{
    struct str name, v, rest = head->query;
    struct http_header *all = NULL;
    size_t n = 0;
    ret->headers = head->headers;
    ret->n_headers = head->n_headers;
    while (form == S3_AUTH_QUERY && str_is_set(rest) && uri_next_field(&rest, &name, &v)) {
        struct http_header h = {.name = STR_NONE};
        if (name.n <= 6 || (name.p[0] | 32) != 'x') {
            continue;
        }
        if (uri_decode(a, name, URI_PLAIN, &h.name) < 0 ||
            uri_decode(a, str_is_set(v) ? v : STR(""), URI_PLUS_IS_SPACE, &h.value) < 0) {
            return fail(err, -EINVAL, "InvalidURI", "Couldn't parse the specified URI.");
        }
        if (!is_hoisted(h.name)) {
            continue;
        }
        if (!s3_is_token(h.name) || has_control(h.value)) {
            return invalid(a, extra, "query", name, err,
                           "A header given in the query string is not valid");
        }
        if (!all) {
            all = arena_array(a, head->n_headers + MAX_HOISTED, sizeof(*all));
        }
        if (!all || n == MAX_HOISTED) {
            return full(err);
        }
        h.value = str_trim(h.value);
        all[head->n_headers + n++] = h;
    }
    if (all) {
        for (size_t i = 0; i < head->n_headers; i++) {
            all[i] = head->headers[i];
        }
        ret->headers = all;
        ret->n_headers = head->n_headers + n;
    }
    return 0;
}

struct str s3_coding_strip(struct arena *a, struct str content_encoding)
{
    struct str rest = content_encoding, coding, ret = STR_NONE;
    AUTO_BUF out;
    buf_init(&out, content_encoding.n + 1);
    while (str_is_set(rest) && str_next(&rest, ',', &coding)) {
        struct str name = str_trim(coding);
        if (name.n && !str_ieqc(name, "aws-chunked")) {
            buf_addc(&out, out.n ? "," : "");
            buf_add(&out, out.n ? coding : name); /* the spaces between them stay as sent */
        }
    }
    if (out.n) {
        ret = arena_str_dup(a, str_trim(buf_str(&out)));
    }
    return ret;
}
