#include "aws/s3_cors.h"

#include "aws/s3_name.h"
#include "base/buf.h"
#include <errno.h>

static const char *const methods[] = {"GET", "PUT", "POST", "DELETE", "HEAD"};

static bool is_method(struct str s)
{
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (str_eqc(s, methods[i])) {
            return true;
        }
    }
    return false;
}

static size_t n_stars(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        n += s.p[i] == '*' ? 1 : 0;
    }
    return n;
}

/* ---- is it valid? ---- */

static int malformed(struct err *err)
{
    return fail(err, -EINVAL, "MalformedXML",
                "The XML you provided was not well-formed or did not validate against our "
                "published schema");
}

static int check_rule(const struct s3_cors_entry *r, struct err *err)
{
    if (r->methods.n == 0 || r->origins.n == 0 || (r->max_age_s.is_set && r->max_age_s.v < 0)) {
        return malformed(err);
    }
    if (r->id.n > S3_CORS_ID_MAX) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "ID length should not exceed allowed limit of 255");
    }
    for (size_t i = 0; i < r->methods.n; i++) {
        if (!is_method(r->methods.v[i])) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "Found unsupported HTTP method in CORS config. Unsupported method is "
                        "%.*s",
                        STR_ARG(r->methods.v[i]));
        }
    }
    for (size_t i = 0; i < r->origins.n; i++) {
        if (n_stars(r->origins.v[i]) > 1) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "AllowedOrigin \"%.*s\" can not have more than one wildcard.",
                        STR_ARG(r->origins.v[i]));
        }
    }
    for (size_t i = 0; i < r->headers.n; i++) {
        if (n_stars(r->headers.v[i]) > 1) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "AllowedHeader \"%.*s\" can not have more than one wildcard.",
                        STR_ARG(r->headers.v[i]));
        }
        if (!s3_is_token(r->headers.v[i])) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "AllowedHeader \"%.*s\" contains invalid character.",
                        STR_ARG(r->headers.v[i]));
        }
    }
    for (size_t i = 0; i < r->expose.n; i++) {
        if (n_stars(r->expose.v[i]) > 0) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "ExposeHeader \"%.*s\" contains wildcard. We currently do not support "
                        "wildcard for ExposeHeader.",
                        STR_ARG(r->expose.v[i]));
        }
        if (!s3_is_token(r->expose.v[i])) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "ExposeHeader \"%.*s\" contains invalid character.",
                        STR_ARG(r->expose.v[i]));
        }
    }
    return 0;
}

int s3_cors_check(const struct s3_cors *c, struct err *err)
{
    if (c->n_rules == 0) {
        return malformed(err);
    }
    if (c->n_rules > S3_CORS_RULES_MAX) {
        return fail(err, -E2BIG, "InvalidRequest",
                    "The number of CORS rules should not exceed allowed limit of 100 rules.");
    }
    for (size_t i = 0; i < c->n_rules; i++) {
        int rc = check_rule(&c->rules[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* ---- what does it say? ---- */

/* At most one '*', for any run of characters. */
static bool fits(struct str pattern, struct str s, bool ignores_case)
{
    struct str head = str_cut(pattern, '*');
    if (head.n == pattern.n) {
        return ignores_case ? str_ieq(pattern, s) : str_eq(pattern, s);
    }
    struct str tail = str_skip(pattern, head.n + 1);
    if (s.n < head.n + tail.n) {
        return false;
    }
    struct str s_head = {s.p, head.n}, s_tail = str_skip(s, s.n - tail.n);
    return ignores_case ? str_ieq(head, s_head) && str_ieq(tail, s_tail)
                        : str_eq(head, s_head) && str_eq(tail, s_tail);
}

static const struct str *find(const struct aws_str_list *l, struct str s, bool ignores_case)
{
    for (size_t i = 0; i < l->n; i++) {
        if (fits(l->v[i], s, ignores_case)) {
            return &l->v[i];
        }
    }
    return NULL;
}

static bool has_method(const struct s3_cors_entry *r, struct str method)
{
    for (size_t i = 0; i < r->methods.n; i++) {
        if (str_eq(r->methods.v[i], method)) {
            return true;
        }
    }
    return false;
}

static bool allows_headers(const struct s3_cors_entry *r, struct str request_headers)
{
    struct str rest = request_headers, name;
    while (str_is_set(rest) && str_next(&rest, ',', &name)) {
        name = str_trim(name);
        if (name.n && !find(&r->headers, name, true)) {
            return false;
        }
    }
    return true;
}

static const struct s3_cors_entry *find_rule(const struct s3_cors *c, struct str origin,
                                             struct str method, struct str request_headers,
                                             struct str *ret_origin)
{
    for (size_t i = 0; i < c->n_rules; i++) {
        const struct s3_cors_entry *r = &c->rules[i];
        const struct str *pattern = find(&r->origins, origin, false);
        if (pattern && has_method(r, method) && allows_headers(r, request_headers)) {
            *ret_origin = str_eqc(*pattern, "*") ? *pattern : origin;
            return r;
        }
    }
    return NULL;
}

static struct str join(struct arena *a, const struct str *v, size_t n, bool lowers)
{
    AUTO_BUF b;
    buf_init(&b, 64u << 10);
    for (size_t i = 0; i < n; i++) {
        buf_addc(&b, i ? ", " : "");
        for (size_t k = 0; k < v[i].n; k++) {
            char ch = v[i].p[k];
            buf_add_char(&b, lowers && ch >= 'A' && ch <= 'Z' ? (char)(ch + 32) : ch);
        }
    }
    return buf_ok(&b) ? arena_str_dup(a, buf_str(&b)) : STR_NONE;
}

/* "a,B , c" -> "a, b, c" */
static struct str tidy(struct arena *a, struct str list)
{
    AUTO_BUF b;
    struct str rest = list, name;
    buf_init(&b, 2 * list.n + 16);
    while (str_is_set(rest) && str_next(&rest, ',', &name)) {
        name = str_trim(name);
        if (name.n) {
            buf_addc(&b, b.n ? ", " : "");
            buf_add(&b, name);
        }
    }
    struct str one = buf_str(&b);
    return join(a, &one, 1, true);
}

enum { MAX_OUT = 8 };

static int put_answer(struct arena *a, const struct s3_cors_entry *r, struct str origin,
                      struct str request_headers, const struct http_header **ret, size_t *ret_n,
                      struct err *err)
{
    struct http_header *h = arena_array(a, MAX_OUT, sizeof(*h));
    struct str asked = tidy(a, request_headers);
    struct str list = join(a, r->methods.v, r->methods.n, false);
    struct str expose = join(a, r->expose.v, r->expose.n, false);
    size_t n = 0;
    if (!h || !list.p || !expose.p || !asked.p) {
        return fail(err, -ENOMEM, "InternalError", "the arena is full");
    }
    h[n++] = (struct http_header){STR("Access-Control-Allow-Origin"), origin};
    h[n++] = (struct http_header){STR("Access-Control-Allow-Methods"), list};
    if (asked.n) {
        h[n++] = (struct http_header){STR("Access-Control-Allow-Headers"), asked};
    }
    if (expose.n) {
        h[n++] = (struct http_header){STR("Access-Control-Expose-Headers"), expose};
    }
    if (r->max_age_s.is_set) {
        h[n++] = (struct http_header){STR("Access-Control-Max-Age"),
                                      arena_fmt(a, "%lld", (long long)r->max_age_s.v)};
    }
    if (!str_eqc(origin, "*")) {
        h[n++] = (struct http_header){STR("Access-Control-Allow-Credentials"), STR("true")};
    }
    h[n++] = (struct http_header){
        STR("Vary"),
        STR("Origin, Access-Control-Request-Headers, Access-Control-Request-Method")};
    *ret = h;
    *ret_n = n;
    return 0;
}

int s3_cors_simple(struct arena *a, const struct s3_cors *c, struct str origin,
                   struct str method, const struct http_header **ret, size_t *ret_n,
                   struct err *err)
{
    struct str shown;
    *ret = NULL;
    *ret_n = 0;
    const struct s3_cors_entry *r =
        origin.n && c ? find_rule(c, origin, method, STR_NONE, &shown) : NULL;
    return r ? put_answer(a, r, shown, STR_NONE, ret, ret_n, err) : 0;
}

int s3_cors_preflight(struct arena *a, const struct s3_cors *c, struct str origin,
                      struct str method, struct str request_headers,
                      const struct http_header **ret, size_t *ret_n, struct s3_extra *extra,
                      struct err *err)
{
    struct str shown, rest = request_headers, name;
    *ret = NULL;
    *ret_n = 0;
    if (origin.n == 0) {
        return fail(err, -EINVAL, "BadRequest",
                    "Insufficient information. Origin request header needed.");
    }
    if (!is_method(method)) {
        return fail(err, -EINVAL, "BadRequest", "Invalid Access-Control-Request-Method: %.*s",
                    STR_ARG(method.n ? method : STR("null")));
    }
    while (str_is_set(rest) && str_next(&rest, ',', &name)) {
        name = str_trim(name);
        if (name.n && !s3_is_token(name)) {
            return fail(err, -EINVAL, "BadRequest",
                        "Access-Control-Request-Headers \"%.*s\" contains invalid character.",
                        STR_ARG(name));
        }
    }
    s3_extra_add(extra, "Method", method);
    if (!c || c->n_rules == 0) {
        return fail(err, -EACCES, "AccessForbidden",
                    "CORSResponse: CORS is not enabled for this bucket.");
    }
    const struct s3_cors_entry *r = find_rule(c, origin, method, request_headers, &shown);
    if (!r) {
        return fail(err, -EACCES, "AccessForbidden",
                    "CORSResponse: This CORS request is not allowed. This is usually because "
                    "the evalution of Origin, request method / Access-Control-Request-Method "
                    "or Access-Control-Request-Headers are not whitelisted by the resource's "
                    "CORS spec.");
    }
    return put_answer(a, r, shown, request_headers, ret, ret_n, err);
}
