#include "aws/s3_auth.h"

#include "aws/s3_auth_int.h"
#include "base/time.h"
#include "codec/hex.h"
#include "crypto/digest.h"
#include "crypto/secret.h"
#include <errno.h>

enum { MAX_CANONICAL = 1 << 20, MAX_SHOWN_BYTES = 4096 };

static int full(struct err *err)
{
    return fail(err, -ENOMEM, "RequestHeaderSectionTooLarge",
                "Your request header and query string sizes exceed the maximum allowed size.");
}

/* ---- key and scope ---- */

static int bad_scope(const struct s3_auth_scope *s, const char *what, struct str have,
                     struct str want, struct err *err)
{
    const char *name = s->is_header_form ? "AuthorizationHeaderMalformed"
                                         : "AuthorizationQueryParametersError";
    const char *where = s->is_header_form ? "The authorization header is malformed"
                                          : "Error parsing the X-Amz-Credential parameter";
    return fail(err, -EINVAL, name, "%s; the %s '%.*s' is wrong; expecting '%.*s'", where, what,
                STR_ARG(have), STR_ARG(want));
}

static int unknown_key(struct arena *a, struct str access_key, struct s3_extra *extra,
                       struct err *err)
{
    s3_extra_dup(extra, a, "AWSAccessKeyId", access_key);
    return fail(err, -EACCES, "InvalidAccessKeyId",
                "The AWS Access Key Id you provided does not exist in our records.");
}

static int check_token(struct arena *a, const struct s3_auth_scope *s,
                       const struct aws_key *key, uint64_t now_ns, struct s3_extra *extra,
                       struct err *err)
{
    bool is_temporary = str_is_set(key->session_token), has_token = s->session_token.n > 0;
    if (!key->is_active || key->secret.n == 0 || (is_temporary && !has_token)) {
        return unknown_key(a, s->access_key, extra, err);
    }
    if (has_token &&
        (!is_temporary || !str_eq_consttime(key->session_token, s->session_token))) {
        return fail(err, -EINVAL, "InvalidToken",
                    "The provided token is malformed or otherwise invalid.");
    }
    if (key->expires_ns && key->expires_ns <= now_ns) {
        return fail(err, -EINVAL, "ExpiredToken", "The provided token has expired.");
    }
    return 0;
}

static int check_scope(const struct sigv4_opts *o, const struct s3_auth_scope *scope,
                       struct s3_extra *extra, struct err *err)
{
    if (o->service.n > 0 && !str_eq(scope->service, o->service)) {
        return bad_scope(scope, "service", scope->service, o->service, err);
    }
    if (!str_eq(scope->region, o->region) &&
        !(o->global_region.n > 0 && str_eq(scope->region, o->global_region))) {
        s3_extra_add(extra, "Region", o->region);
        return bad_scope(scope, "region", scope->region, o->region, err);
    }
    return 0;
}

int s3_auth_key(struct arena *a, const struct sigv4_opts *o, const struct s3_auth_scope *scope,
                uint64_t now_ns, struct aws_key *ret, uint8_t ret_sign_key[32],
                struct s3_extra *extra, struct err *err)
{
    struct aws_key key = {.secret = STR_NONE};
    struct err find_err = ERR_INIT;
    int rc = scope->has_none ? 0 : check_scope(o, scope, extra, err);
    if (rc < 0) {
        return rc;
    }
    rc = o->find(o->find_ctx, a, scope->access_key, &key, &find_err);
    if (rc < 0) {
        return rc == -ENOENT ? unknown_key(a, scope->access_key, extra, err)
                             : fail(err, rc, find_err.name ? find_err.name : "InternalError",
                                    "%s", find_err.msg);
    }
    rc = check_token(a, scope, &key, now_ns, extra, err);
    if (rc < 0) {
        return rc;
    }
    *ret = key;
    if (scope->has_none) {
        return 0;
    }
    const struct sigv4_auth id = {
        .date = scope->date, .region = scope->region, .service = scope->service};
    sigv4_cached_key(o->cache, key.secret, &id, ret_sign_key);
    return 0;
}

/* ---- time ---- */

static void show_time(struct arena *a, struct s3_extra *extra, const char *name, uint64_t ns)
{
    char text[TIME_ISO_SIZE];
    s3_extra_dup(extra, a, name, str_c(time_iso_s(ns, text)));
}

static int check_time(struct arena *a, const struct sigv4_auth *auth, uint64_t now_ns,
                      struct s3_extra *extra, struct err *err)
{
    if (!auth->is_presigned) {
        uint64_t gap =
            now_ns > auth->signed_ns ? now_ns - auth->signed_ns : auth->signed_ns - now_ns;
        if (gap <= SIGV4_SKEW_NS) {
            return 0;
        }
        s3_extra_add(extra, "RequestTime", auth->amz_date);
        show_time(a, extra, "ServerTime", now_ns);
        s3_extra_add(extra, "MaxAllowedSkewMilliseconds", STR("900000"));
        return fail(err, -EACCES, "RequestTimeTooSkewed",
                    "The difference between the request time and the current time is too "
                    "large.");
    }
    if (auth->signed_ns > now_ns + SIGV4_SKEW_NS) {
        s3_extra_add(extra, "X-Amz-Date", auth->amz_date);
        show_time(a, extra, "ServerTime", now_ns);
        return fail(err, -EACCES, "AccessDenied", "Request is not valid yet");
    }
    uint64_t end_ns = auth->signed_ns + auth->expires_s * NS_PER_S;
    if (end_ns < now_ns || auth->expires_s == 0) {
        s3_extra_add(extra, "X-Amz-Expires",
                     arena_fmt(a, "%llu", (unsigned long long)auth->expires_s));
        show_time(a, extra, "Expires", end_ns);
        show_time(a, extra, "ServerTime", now_ns);
        return fail(err, -EACCES, "AccessDenied", "Request has expired");
    }
    return 0;
}

/* ---- signed headers ---- */

static bool is_signed(struct str list, struct str name)
{
    struct str rest = list, one;
    while (str_is_set(rest) && str_next(&rest, ';', &one)) {
        if (one.n == name.n && str_ieq(one, name)) {
            return true;
        }
    }
    return false;
}

/* Whoever holds a signed request must not be able to add meaning to it. x-amz-content-sha256 is
 * the last line of the canonical request, signed whether it is in the list or not. */
static int check_signed_headers(struct arena *a, const struct aws_http *head, struct str list,
                                struct s3_extra *extra, struct err *err)
{
    AUTO_BUF missing;
    buf_init(&missing, 1024);
    if (!is_signed(list, STR("host"))) {
        buf_addc(&missing, "host");
    }
    for (size_t i = 0; i < head->n_headers; i++) {
        struct str name = head->headers[i].name;
        if (name.n < 6 || !str_ieq(str_n(name.p, 6), STR("x-amz-")) ||
            str_ieqc(name, "x-amz-content-sha256") || is_signed(list, name)) {
            continue;
        }
        buf_addc(&missing, missing.n ? ", " : "");
        buf_add(&missing, name);
    }
    if (missing.n == 0 && buf_ok(&missing)) {
        return 0;
    }
    s3_extra_dup(extra, a, "HeadersNotSigned", buf_str(&missing));
    return fail(err, -EACCES, "AccessDenied",
                "There were headers present in the request which were not signed");
}

/* ---- signature ---- */

static int mismatch(struct arena *a, const struct sigv4_auth *auth, struct str canonical,
                    struct str to_sign, struct s3_extra *extra, struct err *err)
{
    AUTO_BUF hex;
    buf_init(&hex, 3 * MAX_SHOWN_BYTES);
    s3_extra_add(extra, "AWSAccessKeyId", auth->access_key);
    s3_extra_dup(extra, a, "StringToSign", to_sign);
    s3_extra_add(extra, "SignatureProvided", auth->signature);
    s3_extra_dup(extra, a, "CanonicalRequest", canonical);
    for (size_t i = 0; canonical.n <= MAX_SHOWN_BYTES && i < canonical.n; i++) {
        buf_fmt(&hex, i ? " %02x" : "%02x", (unsigned)(unsigned char)canonical.p[i]);
    }
    if (hex.n) {
        s3_extra_dup(extra, a, "CanonicalRequestBytes", buf_str(&hex));
    }
    return fail(err, -EACCES, "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you "
                "provided. Check your key and signing method.");
}

/* The spellings of the path that clients are known to sign. All of them name the same object,
 * so that none opens a door. */
static int check_signature(struct arena *a, const struct aws_http *head,
                           const struct sigv4_auth *auth, struct str hash,
                           const uint8_t key[SHA256_SIZE], struct s3_extra *extra,
                           struct err *err)
{
    static const unsigned spellings[] = {SIGV4_S3, SIGV4_S3 | SIGV4_S3_SLASH,
                                         SIGV4_S3 | SIGV4_RAW_PATH};
    AUTO_BUF canonical, to_sign;
    struct str shown = STR_NONE, shown_to_sign = STR_NONE;
    buf_init(&canonical, MAX_CANONICAL);
    buf_init(&to_sign, 1024);
    for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
        uint8_t mac[SHA256_SIZE];
        char want[2 * SHA256_SIZE + 1];
        struct err canon_err = ERR_INIT;
        buf_clear(&canonical);
        buf_clear(&to_sign);
        int rc = sigv4_canonical(a, head, auth, spellings[i], hash, &canonical, &canon_err);
        if (rc < 0) {
            return rc == -ENOMEM ? full(err)
                   : strcmp(canon_err.name, "MalformedQueryString") == 0
                       ? fail(err, rc, "InvalidURI", "Couldn't parse the specified URI.")
                       : fail(err, rc, canon_err.name, "%s", canon_err.msg);
        }
        sigv4_string_to_sign(auth, buf_str(&canonical), &to_sign);
        hmac_sha256(str_n((const char *)key, SHA256_SIZE), buf_str(&to_sign), mac);
        digest_hex(mac, sizeof(mac), want);
        if (str_eq_consttime(str_c(want), auth->signature)) {
            return 0;
        }
        if (i == 0) {
            shown = arena_str_dup(a, buf_str(&canonical));
            shown_to_sign = arena_str_dup(a, buf_str(&to_sign));
        }
    }
    return mismatch(a, auth, shown, shown_to_sign, extra, err);
}

/* What the caller may use, when all is well. */
static int fill(struct arena *a, const struct sigv4_auth *auth, const struct aws_key *key,
                uint64_t now_ns, struct s3_auth *ret, struct err *err)
{
    ret->is_presigned = auth->is_presigned;
    ret->who = key->who;
    ret->access_key = auth->access_key;
    ret->amz_date = auth->amz_date;
    ret->signed_ns = auth->signed_ns;
    ret->age_ns = now_ns > auth->signed_ns ? now_ns - auth->signed_ns : 0;
    memcpy(ret->seed_signature, auth->signature.p, 64); /* its length was checked */
    ret->seed_signature[64] = '\0';
    const struct str parts[] = {auth->date, STR("/"),      auth->region,
                                STR("/"),   auth->service, STR("/aws4_request")};
    size_t n = 0, at = 0;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        n += parts[i].n;
    }
    char *scope = arena_alloc(a, n + 1);
    for (size_t i = 0; scope && i < ARRAY_LEN(parts); i++) {
        memcpy(scope + at, parts[i].p, parts[i].n);
        at += parts[i].n;
    }
    ret->scope = str_n(scope, n);
    return ret->scope.p ? 0 : full(err);
}

int s3_auth_head(struct arena *a, const struct sigv4_opts *o, const struct aws_http *head,
                 struct s3_auth *ret, struct s3_extra *extra, struct err *err)
{
    struct sigv4_auth auth;
    struct aws_key key = {.secret = STR_NONE};
    enum s3_auth_form form = S3_AUTH_NOBODY;
    struct str hash = STR_NONE;
    struct s3_auth got = {.access_key = STR_NONE};
    *ret = got;
    int rc = s3_auth_parse(a, head, &form, &auth, extra, err);
    rc = rc < 0 ? rc : s3_auth_payload(a, head, form, &got, &hash, extra, err);
    if (rc == 0 && form == S3_AUTH_NOBODY) {
        got.is_anonymous = true;
        rc = s3_auth_headers(a, head, form, &got, extra, err);
        if (rc == 0) {
            *ret = got;
        }
        return rc;
    }
    if (rc < 0) {
        return rc;
    }
    const struct s3_auth_scope scope = {.access_key = auth.access_key,
                                        .date = auth.date,
                                        .region = auth.region,
                                        .service = auth.service,
                                        .session_token = auth.session_token,
                                        .is_header_form = form == S3_AUTH_HEADER};
    rc = s3_auth_key(a, o, &scope, head->now_ns, &key, got.signing_key, extra, err);
    rc = rc < 0 ? rc : check_time(a, &auth, head->now_ns, extra, err);
    rc = rc < 0 ? rc : check_signed_headers(a, head, auth.signed_headers, extra, err);
    rc = rc < 0 ? rc : check_signature(a, head, &auth, hash, got.signing_key, extra, err);
    rc = rc < 0 ? rc : fill(a, &auth, &key, head->now_ns, &got, err);
    rc = rc < 0 ? rc : s3_auth_headers(a, head, form, &got, extra, err);
    if (rc == 0) {
        *ret = got;
    }
    s3_auth_done(&got);
    return rc;
}

void s3_auth_done(struct s3_auth *auth)
{
    secret_wipe(auth->signing_key, sizeof(auth->signing_key));
}
