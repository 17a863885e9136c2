#include "aws/sigv4.h"

#include "base/time.h"
#include "crypto/digest.h"
#include "crypto/secret.h"
#include <errno.h>
#include <stdio.h>

#define UNSIGNED "UNSIGNED-PAYLOAD"
enum { MAX_CANONICAL = 4 << 20 };

static int mismatch(struct err *err)
{
    return fail(err, -EACCES, "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you "
                "provided. Check your AWS Secret Access Key "
                "and signing method. Consult the service documentation for details.");
}

static int bad_key(struct err *err)
{
    return fail(err, -EACCES, "InvalidClientTokenId",
                "The security token included in the request is invalid.");
}

/* Hex of the MAC over the string to sign. */
static int signature(struct arena *a, const struct aws_http *rq, const struct sigv4_auth *auth,
                     unsigned flags, const uint8_t key[SHA256_SIZE], struct str payload_hash,
                     char out[2 * SHA256_SIZE + 1], struct err *err)
{
    AUTO_BUF canonical, text;
    uint8_t mac[SHA256_SIZE];
    buf_init(&canonical, MAX_CANONICAL);
    buf_init(&text, 1024);
    int rc = sigv4_canonical(a, rq, auth, flags, payload_hash, &canonical, err);
    if (rc < 0) {
        return rc;
    }
    sigv4_string_to_sign(auth, buf_str(&canonical), &text);
    hmac_sha256(str_n((const char *)key, SHA256_SIZE), buf_str(&text), mac);
    digest_hex(mac, sizeof(mac), out);
    return 0;
}

static int check_time(const struct sigv4_auth *auth, uint64_t now_ns, struct err *err)
{
    char now[TIME_ISO_SIZE];
    uint64_t life_ns = auth->is_presigned ? auth->expires_s * NS_PER_S : SIGV4_SKEW_NS;
    if (auth->signed_ns > now_ns + SIGV4_SKEW_NS) {
        return fail(err, -EACCES, "SignatureNotYetCurrent",
                    "Signature not yet current: %.*s is still later than %s (15 min.)",
                    STR_ARG(auth->amz_date), time_basic(now_ns, now));
    }
    if (auth->signed_ns + life_ns < now_ns) {
        return fail(err, -EACCES, "SignatureExpired",
                    "Signature expired: %.*s is now earlier than %s (%s)",
                    STR_ARG(auth->amz_date), time_basic(now_ns, now),
                    auth->is_presigned ? "X-Amz-Expires" : "15 min.");
    }
    return 0;
}

static int check_key(const struct sigv4_auth *auth, const struct aws_key *key, uint64_t now_ns,
                     struct err *err)
{
    if (!key->is_active || key->secret.n == 0) {
        return bad_key(err);
    }
    bool is_temporary = str_is_set(key->session_token);
    if (is_temporary != (auth->session_token.n > 0) ||
        (is_temporary && !str_eq_consttime(key->session_token, auth->session_token))) {
        return bad_key(err);
    }
    if (key->expires_ns && key->expires_ns <= now_ns) {
        return fail(err, -EACCES, "ExpiredToken",
                    "The security token included in the request is expired");
    }
    return 0;
}

static int check_scope(const struct sigv4_opts *o, const struct sigv4_auth *auth,
                       struct err *err)
{
    if (!str_eq(auth->region, o->region) &&
        !(o->global_region.n > 0 && str_eq(auth->region, o->global_region))) {
        return fail(err, -EACCES, "SignatureDoesNotMatch",
                    "Credential should be scoped to a valid region, not '%.*s'. ",
                    STR_ARG(auth->region));
    }
    if (o->service.n > 0 && !str_eq(auth->service, o->service)) {
        return fail(err, -EACCES, "SignatureDoesNotMatch",
                    "Credential should be scoped to correct service: '%.*s'. ",
                    STR_ARG(o->service));
    }
    return 0;
}

int sigv4_verify(struct arena *a, const struct sigv4_opts *o, const struct aws_http *rq,
                 struct sigv4_auth *ret_auth, struct aws_key *ret_key, struct err *err)
{
    struct sigv4_auth auth;
    struct aws_key key = {.secret = STR_NONE};
    struct err find_err = ERR_INIT;
    char payload[2 * SHA256_SIZE + 1], want[2 * SHA256_SIZE + 1];
    uint8_t hash[SHA256_SIZE], sign_key[SHA256_SIZE];
    int rc = sigv4_parse(a, rq, &auth, err);
    if (rc < 0) {
        return rc;
    }
    rc = o->find(o->find_ctx, a, auth.access_key, &key, &find_err);
    if (rc < 0) {
        return rc == -ENOENT ? bad_key(err)
                             : fail(err, rc, find_err.name ? find_err.name : "InternalError",
                                    "%s", find_err.msg);
    }
    rc = check_scope(o, &auth, err);
    rc = rc < 0 ? rc : check_time(&auth, rq->now_ns, err);
    rc = rc < 0 ? rc : check_key(&auth, &key, rq->now_ns, err);
    if (rc < 0) {
        return rc;
    }
    /* The body is here and bounded: its true hash goes into the comparison, whatever a header
     * says. */
    sha256(rq->body, hash);
    digest_hex(hash, sizeof(hash), payload);
    sigv4_cached_key(o->cache, key.secret, &auth, sign_key);
    rc = signature(a, rq, &auth, o->flags, sign_key, str_c(payload), want, err);
    struct str claimed = aws_http_header(rq, "X-Amz-Content-Sha256");
    bool is_signed = str_is_set(claimed) && !str_eqc(claimed, UNSIGNED);
    if (rc == 0 && o->may_be_unsigned && !is_signed &&
        !str_eq_consttime(str_c(want), auth.signature)) {
        snprintf(payload, sizeof(payload), UNSIGNED);
        rc = signature(a, rq, &auth, o->flags, sign_key, str_c(payload), want, err);
    }
    secret_wipe(sign_key, sizeof(sign_key));
    if (rc < 0) {
        return rc;
    }
    if (str_is_set(claimed) && !auth.is_presigned && !str_eqc(claimed, payload)) {
        return mismatch(err);
    }
    if (!str_eq_consttime(str_c(want), auth.signature)) {
        return mismatch(err);
    }
    *ret_auth = auth;
    *ret_key = key;
    return 0;
}

struct str sigv4_sign(struct arena *a, const struct aws_http *rq, struct str secret,
                      const struct sigv4_auth *auth, unsigned flags, struct str payload_hash)
{
    char hex[2 * SHA256_SIZE + 1];
    uint8_t key[SHA256_SIZE];
    sigv4_signing_key(secret, auth->date, auth->region, auth->service, key);
    int rc = signature(a, rq, auth, flags, key, payload_hash, hex, NULL);
    secret_wipe(key, sizeof(key));
    if (rc < 0) {
        return STR_NONE;
    }
    if (auth->is_presigned) {
        return arena_str_dup(a, str_c(hex));
    }
    return arena_fmt(a,
                     "AWS4-HMAC-SHA256 Credential=%.*s/%.*s/%.*s/%.*s/aws4_request, "
                     "SignedHeaders=%.*s, Signature=%s",
                     STR_ARG(auth->access_key), STR_ARG(auth->date), STR_ARG(auth->region),
                     STR_ARG(auth->service), STR_ARG(auth->signed_headers), hex);
}
