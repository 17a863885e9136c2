/* S3's credentials as text: the Authorization header and the X-Amz-... query. The codes and
 * texts differ from those of the other services (sigv4_parse.c), field by field. */
#include "aws/s3_auth_int.h"

#include "base/num.h"
#include "base/time.h"
#include "codec/uri.h"
#include <errno.h>

#define MAX_EXPIRES_S 604800u /* a week */
#define MALFORMED     "The authorization header is malformed; "

static int full(struct err *err)
{
    return fail(err, -ENOMEM, "RequestHeaderSectionTooLarge",
                "Your request header and query string sizes exceed the maximum allowed size.");
}

static int argument(struct arena *a, struct s3_extra *extra, const char *name, struct str value,
                    struct err *err, const char *msg)
{
    s3_extra_add(extra, "ArgumentName", str_c(name));
    s3_extra_dup(extra, a, "ArgumentValue", str_n(value.p, MIN(value.n, (size_t)256)));
    return fail(err, -EINVAL, "InvalidArgument", "%s", msg);
}

static bool is_word(struct str s, size_t max, const char *more)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool is_alnum =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_alnum && !(c && strchr(more, c))) {
            return false;
        }
    }
    return s.n > 0 && s.n <= max;
}

int s3_auth_parse_credential(struct str s, struct sigv4_auth *ret)
{
    struct str rest = s, part[5];
    size_t n = 0;
    while (n < ARRAY_LEN(part) && str_is_set(rest) && str_next(&rest, '/', &part[n])) {
        n++;
    }
    if (n != ARRAY_LEN(part) || str_is_set(rest) || !str_eqc(part[4], "aws4_request") ||
        !is_word(part[0], 128, "") || !is_word(part[1], 8, "") || part[1].n != 8 ||
        !is_word(part[2], 64, "-") || !is_word(part[3], 64, "-")) {
        return -EINVAL;
    }
    ret->access_key = part[0];
    ret->date = part[1];
    ret->region = part[2];
    ret->service = part[3];
    return 0;
}

/* ---- header ---- */

/* As HTTP writes dates, and as mail does: the signer of Python's SDK says "-0000" for GMT. */
static int parse_http_date(struct str s, uint64_t *ret_ns)
{
    enum { HEAD = 25 }; /* "Fri, 24 May 2013 00:00:00" */
    char text[HEAD + sizeof(" GMT")] = "";
    struct str zone = s.n > HEAD ? str_skip(s, HEAD) : STR("");
    if (!str_eqc(zone, " -0000") && !str_eqc(zone, " +0000")) {
        return time_parse_http(s, ret_ns);
    }
    memcpy(text, s.p, HEAD);
    memcpy(text + HEAD, " GMT", sizeof(" GMT"));
    return time_parse_http(str_c(text), ret_ns);
}

int s3_auth_date(struct str s, uint64_t *ret_ns)
{
    if (!str_is_set(s)) {
        return -EINVAL;
    }
    return time_parse_basic(s, ret_ns) < 0 ? parse_http_date(s, ret_ns) : 0;
}

/* x-amz-date, else Date. */
static int header_date(struct arena *a, const struct aws_http *head, struct sigv4_auth *auth,
                       struct err *err)
{
    char text[TIME_ISO_SIZE];
    uint64_t ns = 0;
    struct str have = aws_http_header(head, "x-amz-date");
    have = str_is_set(have) ? have : aws_http_header(head, "Date");
    if (s3_auth_date(have, &ns) < 0) {
        return fail(err, -EACCES, "AccessDenied",
                    "AWS authentication requires a valid Date or x-amz-date header");
    }
    auth->signed_ns = ns;
    bool is_basic = have.n == 16 && have.p[8] == 'T'; /* the others look otherwise */
    auth->amz_date = is_basic ? have : arena_str_dup(a, str_c(time_basic(ns, text)));
    if (!auth->amz_date.p) {
        return full(err);
    }
    if (!str_eq(str_n(auth->amz_date.p, 8), auth->date)) {
        return fail(err, -EINVAL, "AuthorizationHeaderMalformed",
                    MALFORMED "Invalid credential date \"%.*s\". This date is not the same as "
                              "X-Amz-Date: \"%.8s\".",
                    STR_ARG(auth->date), auth->amz_date.p);
    }
    return 0;
}

/* "Credential=..., SignedHeaders=..., Signature=..." in any order, each once. */
static int header_parts(struct str rest, struct sigv4_auth *auth, struct err *err)
{
    static const char *const names[] = {"Credential", "SignedHeaders", "Signature"};
    struct str value[3] = {STR_NONE, STR_NONE, STR_NONE}, field;
    while (str_is_set(rest) && str_next(&rest, ',', &field)) {
        field = str_trim(field);
        struct str name = str_cut(field, '=');
        size_t i = 0;
        while (i < ARRAY_LEN(names) && !str_eqc(name, names[i])) {
            i++;
        }
        if (i == ARRAY_LEN(names) || name.n == field.n || str_is_set(value[i])) {
            return fail(err, -EINVAL, "AuthorizationHeaderMalformed",
                        MALFORMED "the authorization component \"%.*s\" is malformed.",
                        (int)MIN(field.n, (size_t)100), field.p);
        }
        value[i] = str_skip(field, name.n + 1);
    }
    if (!str_is_set(value[0]) || !str_is_set(value[1]) || !str_is_set(value[2])) {
        return fail(err, -EINVAL, "AuthorizationHeaderMalformed",
                    MALFORMED "the authorization header requires three components: "
                              "Credential, SignedHeaders, and Signature.");
    }
    if (s3_auth_parse_credential(value[0], auth) < 0) {
        return fail(err, -EINVAL, "AuthorizationHeaderMalformed",
                    MALFORMED "the Credential is mal-formed; expecting "
                              "\"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".");
    }
    if (!is_word(value[1], 4096, "-;_.")) {
        return fail(err, -EINVAL, "AuthorizationHeaderMalformed",
                    MALFORMED "the SignedHeaders is not a list of header names.");
    }
    if (value[2].n != 64 || !is_word(value[2], 64, "")) {
        return fail(err, -EINVAL, "AuthorizationHeaderMalformed",
                    MALFORMED "the Signature is not 64 hexadecimal digits.");
    }
    auth->signed_headers = value[1];
    auth->signature = value[2];
    return 0;
}

static int parse_header(struct arena *a, const struct aws_http *head, struct str h,
                        struct sigv4_auth *auth, struct s3_extra *extra, struct err *err)
{
    struct str kind = str_cut(h, ' ');
    if (h.n == 0) {
        return fail(err, -EACCES, "AccessDenied", "Access Denied");
    }
    if (str_eqc(kind, "AWS") && str_find(h, ':', 0) < 0) {
        return argument(a, extra, "Authorization", h, err,
                        "AWS authorization header is invalid. Expected "
                        "AwsAccessKeyId:signature");
    }
    if (str_eqc(kind, "AWS") || str_eqc(kind, "AWS4-ECDSA-P256-SHA256")) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The authorization mechanism you have provided is not supported. Please "
                    "use AWS4-HMAC-SHA256.");
    }
    if (kind.n == h.n) {
        return argument(a, extra, "Authorization", h, err,
                        "Authorization header is invalid -- one and only one ' ' (space) "
                        "required");
    }
    if (!str_eqc(kind, "AWS4-HMAC-SHA256")) {
        return argument(a, extra, "Authorization", h, err, "Unsupported Authorization Type");
    }
    struct str token = aws_http_header(head, "x-amz-security-token");
    auth->session_token = token.n ? token : STR_NONE;
    int rc = header_parts(str_trim(str_skip(h, kind.n)), auth, err);
    return rc < 0 ? rc : header_date(a, head, auth, err);
}

/* ---- query ---- */

enum { Q_ALG, Q_CRED, Q_DATE, Q_EXPIRES, Q_HEADERS, Q_SIG, Q_NEEDED, Q_TOKEN = Q_NEEDED, Q_N };

static int query_error(struct err *err, const char *msg)
{
    return fail(err, -EINVAL, "AuthorizationQueryParametersError", "%s", msg);
}

static int query_fields(struct arena *a, struct str query, struct str value[Q_N],
                        bool *ret_is_v2, struct err *err)
{
    static const char *const names[Q_N] = {
        "X-Amz-Algorithm",     "X-Amz-Credential", "X-Amz-Date",          "X-Amz-Expires",
        "X-Amz-SignedHeaders", "X-Amz-Signature",  "X-Amz-Security-Token"};
    struct str name, v, rest = query;
    while (str_is_set(rest) && uri_next_field(&rest, &name, &v)) {
        *ret_is_v2 =
            *ret_is_v2 || str_eqc(name, "AWSAccessKeyId") || str_eqc(name, "Signature");
        for (size_t i = 0; name.n > 9 && name.p[0] == 'X' && i < Q_N; i++) {
            if (!str_eqc(name, names[i])) {
                continue;
            }
            if (str_is_set(value[i])) {
                return fail(err, -EINVAL, "AuthorizationQueryParametersError",
                            "The query parameter %s is given twice", names[i]);
            }
            int rc = uri_decode(a, str_is_set(v) ? v : STR(""), URI_PLUS_IS_SPACE, &value[i]);
            if (rc < 0) {
                return rc == -ENOMEM ? full(err)
                                     : fail(err, -EINVAL, "InvalidURI",
                                            "Couldn't parse the specified URI.");
            }
        }
    }
    return 0;
}

static int query_times(struct arena *a, const struct str value[Q_N], struct sigv4_auth *auth,
                       struct err *err)
{
    int64_t expires = 0;
    if (num_i64(value[Q_EXPIRES], INT64_MIN, INT64_MAX, &expires) < 0) {
        return query_error(err, "X-Amz-Expires should be a number");
    }
    if (expires < 0) {
        return fail(err, -EACCES, "AccessDenied", "Request has expired");
    }
    if (expires > MAX_EXPIRES_S) {
        return query_error(err, "X-Amz-Expires must be less than a week (in seconds); that is, "
                                "the given X-Amz-Expires must be less than 604800 seconds");
    }
    auth->expires_s = (uint64_t)expires;
    if (time_parse_basic(value[Q_DATE], &auth->signed_ns) < 0) {
        return query_error(
            err, "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"");
    }
    auth->amz_date = value[Q_DATE]; /* it has just one form */
    if (!str_eq(str_n(auth->amz_date.p, 8), auth->date)) {
        return fail(err, -EINVAL, "AuthorizationQueryParametersError",
                    "Invalid credential date \"%.*s\". This date is not the same as "
                    "X-Amz-Date: \"%.8s\".",
                    STR_ARG(auth->date), auth->amz_date.p);
    }
    return 0;
}

static int parse_query(struct arena *a, const struct str value[Q_N], struct sigv4_auth *auth,
                       struct err *err)
{
    for (size_t i = 0; i < Q_NEEDED; i++) {
        if (!str_is_set(value[i])) {
            return query_error(err, "Query-string authentication version 4 requires the "
                                    "X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
                                    "X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires "
                                    "parameters.");
        }
    }
    if (!str_eqc(value[Q_ALG], "AWS4-HMAC-SHA256")) {
        return query_error(err, "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
    }
    if (s3_auth_parse_credential(value[Q_CRED], auth) < 0) {
        return query_error(err, "Error parsing the X-Amz-Credential parameter; the Credential "
                                "is mal-formed; expecting "
                                "\"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".");
    }
    if (!is_word(value[Q_HEADERS], 4096, "-;_.")) {
        return query_error(err, "X-Amz-SignedHeaders is not a list of header names");
    }
    if (value[Q_SIG].n != 64 || !is_word(value[Q_SIG], 64, "")) {
        return query_error(err, "X-Amz-Signature is not 64 hexadecimal digits");
    }
    auth->is_presigned = true;
    auth->signed_headers = value[Q_HEADERS];
    auth->signature = value[Q_SIG];
    auth->session_token = value[Q_TOKEN].n ? value[Q_TOKEN] : STR_NONE;
    return query_times(a, value, auth, err);
}

int s3_auth_parse(struct arena *a, const struct aws_http *head, enum s3_auth_form *ret_form,
                  struct sigv4_auth *ret, struct s3_extra *extra, struct err *err)
{
    struct str value[Q_N] = {STR_NONE};
    struct str h = aws_http_header(head, "Authorization");
    bool is_v2 = false;
    *ret = (struct sigv4_auth){.session_token = STR_NONE};
    int rc = query_fields(a, head->query, value, &is_v2, err);
    if (rc < 0) {
        return rc;
    }
    bool is_query =
        str_is_set(value[Q_ALG]) || str_is_set(value[Q_CRED]) || str_is_set(value[Q_SIG]);
    if (str_is_set(h) &&
        (is_query || is_v2 || aws_http_header_count(head, "Authorization") > 1)) {
        return argument(a, extra, "Authorization", h, err,
                        "Only one auth mechanism allowed; only the X-Amz-Algorithm query "
                        "parameter, Signature query string parameter or the Authorization "
                        "header should be specified");
    }
    if (str_is_set(h)) {
        *ret_form = S3_AUTH_HEADER;
        return parse_header(a, head, h, ret, extra, err);
    }
    if (is_query) {
        *ret_form = S3_AUTH_QUERY;
        return parse_query(a, value, ret, err);
    }
    if (is_v2) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The authorization mechanism you have provided is not supported. Please "
                    "use AWS4-HMAC-SHA256.");
    }
    *ret_form = S3_AUTH_NOBODY;
    return 0;
}
