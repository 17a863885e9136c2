/* The Authorization header and the X-Amz-... fields of a presigned query. */
#include "aws/sigv4.h"

#include "base/num.h"
#include "base/time.h"
#include "codec/uri.h"
#include <errno.h>

#define MAX_EXPIRES_S 604800u /* a week */

static int incomplete(struct err *err, const char *what, struct str shown)
{
    return fail(err, -EINVAL, "IncompleteSignature", "%s: '%.*s'", what,
                (int)MIN(shown.n, (size_t)100), shown.p ? shown.p : "");
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

/* "<access key>/<date>/<region>/<service>/aws4_request" */
static int parse_credential(struct str s, struct sigv4_auth *auth, struct err *err)
{
    struct str rest = s, part[5];
    size_t n = 0;
    while (n < ARRAY_LEN(part) && str_is_set(rest) && str_next(&rest, '/', &part[n])) {
        n++;
    }
    if (n != ARRAY_LEN(part) || str_is_set(rest)) {
        return incomplete(err,
                          "Credential must have exactly 5 slash-delimited elements, e.g. "
                          "keyid/date/region/service/term",
                          s);
    }
    if (!str_eqc(part[4], "aws4_request")) {
        return incomplete(
            err, "Credential should be scoped with a valid terminator: 'aws4_request', not",
            part[4]);
    }
    if (!is_word(part[0], 128, "") || !is_word(part[1], 8, "") || part[1].n != 8 ||
        !is_word(part[2], 64, "-") || !is_word(part[3], 64, "-")) {
        return incomplete(err, "Credential has an element that is not valid", s);
    }
    auth->access_key = part[0];
    auth->date = part[1];
    auth->region = part[2];
    auth->service = part[3];
    return 0;
}

static int check_parts(const struct sigv4_auth *auth, struct err *err)
{
    if (auth->signature.n != 64 || !is_word(auth->signature, 64, "")) {
        return incomplete(err, "Signature must be 64 hexadecimal digits", auth->signature);
    }
    if (!is_word(auth->signed_headers, 4096, "-;_.")) {
        return incomplete(err, "SignedHeaders is not a list of header names",
                          auth->signed_headers);
    }
    return 0;
}

static int check_algorithm(struct str alg, struct err *err)
{
    if (!str_eqc(alg, "AWS4-HMAC-SHA256")) {
        return incomplete(err, "Unsupported AWS 'algorithm'", alg);
    }
    return 0;
}

/* The time of signing: X-Amz-Date, else Date. */
static int parse_date(struct arena *a, struct str amz_date, struct str date,
                      struct sigv4_auth *auth, struct err *err)
{
    struct str have = str_is_set(amz_date) ? amz_date : date;
    char text[TIME_ISO_SIZE];
    uint64_t ns = 0;
    if (!str_is_set(have)) {
        return fail(err, -EINVAL, "IncompleteSignature",
                    "Authorization header requires existence of either a 'X-Amz-Date' or a "
                    "'Date' header.");
    }
    if (time_parse_basic(have, &ns) < 0 && time_parse_http(have, &ns) < 0) {
        return incomplete(err, "Date must be in ISO-8601 'basic format'. Got", have);
    }
    auth->signed_ns = ns;
    auth->amz_date = arena_str_dup(a, str_c(time_basic(ns, text)));
    if (!auth->amz_date.p) {
        return fail(err, -ENOMEM, "RequestTooLarge",
                    "The request is larger than this service accepts.");
    }
    if (!str_eq(str_n(auth->amz_date.p, 8), auth->date)) {
        return fail(err, -EINVAL, "SignatureDoesNotMatch",
                    "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of "
                    "date from HTTP: '%.*s' != '%.8s', "
                    "from '%.*s'.",
                    STR_ARG(auth->date), auth->amz_date.p, STR_ARG(auth->amz_date));
    }
    return 0;
}

/* "AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=..." in any order, each once.
 */
static int parse_header(struct str h, struct sigv4_auth *auth, struct err *err)
{
    static const char *const names[] = {"Credential", "SignedHeaders", "Signature"};
    struct str value[3] = {STR_NONE, STR_NONE, STR_NONE}, field;
    struct str alg = str_cut(h, ' '), rest = str_trim(str_skip(h, alg.n));
    int rc = check_algorithm(alg, err);
    if (rc < 0) {
        return rc;
    }
    while (str_is_set(rest) && str_next(&rest, ',', &field)) {
        field = str_trim(field);
        struct str name = str_cut(field, '=');
        size_t i = 0;
        while (i < ARRAY_LEN(names) && !str_eqc(name, names[i])) {
            i++;
        }
        if (i == ARRAY_LEN(names) || name.n == field.n || str_is_set(value[i])) {
            return incomplete(
                err,
                "Authorization header has a parameter that is unknown, empty or given twice",
                field);
        }
        value[i] = str_skip(field, name.n + 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!str_is_set(value[i])) {
            return fail(err, -EINVAL, "IncompleteSignature",
                        "Authorization header requires '%s' parameter.", names[i]);
        }
    }
    rc = parse_credential(value[0], auth, err);
    auth->signed_headers = value[1];
    auth->signature = value[2];
    return rc < 0 ? rc : check_parts(auth, err);
}

enum { Q_ALG, Q_CRED, Q_DATE, Q_EXPIRES, Q_HEADERS, Q_SIG, Q_TOKEN, Q_N };

static int query_fields(struct arena *a, struct str query, struct str value[Q_N],
                        struct err *err)
{
    static const char *const names[Q_N] = {
        "X-Amz-Algorithm",     "X-Amz-Credential", "X-Amz-Date",          "X-Amz-Expires",
        "X-Amz-SignedHeaders", "X-Amz-Signature",  "X-Amz-Security-Token"};
    struct str name, v, rest = query;
    while (str_is_set(rest) && uri_next_field(&rest, &name, &v)) {
        for (size_t i = 0; i < Q_N; i++) {
            if (!str_eqc(name, names[i])) {
                continue;
            }
            if (str_is_set(value[i])) {
                return fail(err, -EINVAL, "IncompleteSignature",
                            "The query parameter '%s' is given twice", names[i]);
            }
            if (uri_decode(a, str_is_set(v) ? v : STR(""), URI_PLAIN, &value[i]) < 0) {
                return fail(err, -EINVAL, "MalformedQueryString",
                            "The query string contains a syntax error");
            }
        }
    }
    for (size_t i = 0; str_is_set(value[Q_ALG]) && i < Q_TOKEN; i++) {
        if (!str_is_set(value[i])) {
            return fail(err, -EINVAL, "IncompleteSignature",
                        "AWS query-string parameters must include '%s'.", names[i]);
        }
    }
    return 0;
}

static int parse_presigned(struct arena *a, const struct str value[Q_N],
                           struct sigv4_auth *auth, struct err *err)
{
    int rc = check_algorithm(value[Q_ALG], err);
    rc = rc < 0 ? rc : parse_credential(value[Q_CRED], auth, err);
    auth->is_presigned = true;
    auth->signed_headers = value[Q_HEADERS];
    auth->signature = value[Q_SIG];
    auth->session_token = value[Q_TOKEN];
    rc = rc < 0 ? rc : check_parts(auth, err);
    if (rc < 0) {
        return rc;
    }
    if (num_u64(value[Q_EXPIRES], MAX_EXPIRES_S, &auth->expires_s) < 0 ||
        auth->expires_s == 0) {
        return incomplete(err, "X-Amz-Expires must be a number of seconds between 1 and 604800",
                          value[Q_EXPIRES]);
    }
    return parse_date(a, value[Q_DATE], STR_NONE, auth, err);
}

int sigv4_parse(struct arena *a, const struct aws_http *rq, struct sigv4_auth *ret,
                struct err *err)
{
    struct sigv4_auth auth = {.session_token = STR_NONE};
    struct str value[Q_N] = {STR_NONE};
    struct str h = aws_http_header(rq, "Authorization");
    int rc = query_fields(a, rq->query, value, err);
    if (rc < 0) {
        return rc;
    }
    bool is_query = str_is_set(value[Q_ALG]);
    if (!str_is_set(h) && !is_query) {
        return fail(err, -EACCES, "MissingAuthenticationToken",
                    "Request is missing Authentication Token");
    }
    if ((str_is_set(h) && is_query) || aws_http_header_count(rq, "Authorization") > 1) {
        return fail(err, -EINVAL, "IncompleteSignature",
                    "Only one way of authentication is allowed in one request.");
    }
    if (is_query) {
        rc = parse_presigned(a, value, &auth, err);
    } else {
        auth.session_token = aws_http_header(rq, "X-Amz-Security-Token");
        rc = parse_header(h, &auth, err);
        rc = rc < 0 ? rc
                    : parse_date(a, aws_http_header(rq, "X-Amz-Date"),
                                 aws_http_header(rq, "Date"), &auth, err);
    }
    if (rc == 0) {
        *ret = auth;
    }
    return rc;
}
