/* Signatures of strangers. Input: method, path, query, Authorization, date, another header and
 * body, one a line.
 * Invariants: nobody who does not hold the secret gets in; what parses gives a canonical
 *             request or an error; signing what was parsed, with the right key, is accepted
 *             when the scope and time are right. */
#include "aws/sigv4.h"

#include "base/time.h"
#include "crypto/digest.h"
#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW_NS (UINT64_C(1440938160) * NS_PER_S)

static int find_key(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                    struct err *err)
{
    *ret = (struct aws_key){
        .secret = *(const struct str *)ctx, .session_token = STR_NONE, .is_active = true};
    return 0;
}

static void check_signed(struct arena *a, struct aws_http *rq, struct http_header *headers,
                         const struct sigv4_auth *auth, const struct sigv4_opts *o)
{
    char hex[2 * SHA256_SIZE + 1];
    uint8_t hash[SHA256_SIZE];
    struct sigv4_auth got;
    struct aws_key key;
    struct err err = ERR_INIT;
    sha256(rq->body, hash);
    digest_hex(hash, sizeof(hash), hex);
    struct str good = sigv4_sign(a, rq, *(const struct str *)o->find_ctx, auth, 0, str_c(hex));
    if (!str_is_set(good) || auth->is_presigned) {
        return; /* a header that is to be signed is not there */
    }
    headers[1].value = good;
    int rc = sigv4_verify(a, o, rq, &got, &key, &err);
    bool is_ours = str_eq(auth->region, o->region) &&
                   auth->signed_ns + SIGV4_SKEW_NS >= NOW_NS &&
                   auth->signed_ns <= NOW_NS + SIGV4_SKEW_NS && auth->session_token.n == 0 &&
                   !str_is_set(aws_http_header(rq, "X-Amz-Content-Sha256"));
    assert((rc == 0) == is_ours);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *a;
    static struct sigv4_cache *cache;
    static struct str secret = {"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", 40};
    struct str rest = {(const char *)data, size}, line[7];
    if (size == 0 || size > 65536) {
        return 0;
    }
    if (!a) {
        a = arena_new(64u << 20);
        cache = sigv4_cache_new(4);
    }
    for (size_t i = 0; i < ARRAY_LEN(line); i++) {
        line[i] = STR("");
        if (str_is_set(rest) && !str_next(&rest, '\n', &line[i])) {
            line[i] = STR("");
        }
    }
    struct str name = str_cut(line[5], ':');
    struct http_header headers[] = {{STR("Host"), STR("localhost:9999")},
                                    {STR("Authorization"), str_trim(line[3])},
                                    {STR("X-Amz-Date"), str_trim(line[4])},
                                    {name, str_trim(str_skip(line[5], name.n + 1))}};
    struct aws_http rq = {.method = line[0],
                          .path = line[1],
                          .query = line[2],
                          .headers = headers,
                          .n_headers = ARRAY_LEN(headers),
                          .body = line[6],
                          .now_ns = NOW_NS};
    if (headers[1].value.n == 0) { /* so that presigned queries are looked at */
        headers[1].name = STR("X-None");
    }
    struct sigv4_opts o = {
        .find = find_key, .find_ctx = &secret, .cache = cache, .region = STR("us-east-1")};
    struct sigv4_auth auth;
    struct aws_key key;
    struct err err = ERR_INIT;
    int rc = sigv4_verify(a, &o, &rq, &auth, &key, &err);
    assert((rc == 0) == (err.code == 0));
    struct err parse_err = ERR_INIT;
    if (sigv4_parse(a, &rq, &auth, &parse_err) == 0) {
        AUTO_BUF out;
        struct err canon_err = ERR_INIT;
        buf_init(&out, 4u << 20);
        int rc_canon = sigv4_canonical(a, &rq, &auth, 0, STR("x"), &out, &canon_err);
        assert((rc_canon == 0) == (canon_err.code == 0));
        check_signed(a, &rq, headers, &auth, &o);
    } else {
        assert(rc < 0);
    }
    arena_reset(a);
    return 0;
}
