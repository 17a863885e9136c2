/* S3 requests of strangers. Input, one a line: method, target, Authorization, x-amz-date,
 * x-amz-content-sha256, x-amz-decoded-content-length, x-amz-trailer, and one more header.
 * Invariants: whoever gets a name has signed just this request with the secret; who fails has none;
 *             what is said beside an error never holds the secret (unless it was sent). */
#include "aws/s3_auth.h"
#include "aws/s3_auth2.h"
#include "aws/s3_form.h"

#include "base/time.h"
#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW_NS (UINT64_C(1369353600) * NS_PER_S)
static const struct str secret = {"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", 40};

static int find_key(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                    struct err *err)
{
    *ret = (struct aws_key){.who = {.account = STR("123456789012")},
                            .secret = secret,
                            .session_token = STR_NONE,
                            .is_active = true};
    return str_eqc(access_key, "AKIAIOSFODNN7EXAMPLE") ? 0 : -ENOENT;
}

/* Is the signature that was given one of those that the secret makes over this request? */
static void check_signed(struct arena *a, const struct aws_http *rq, const struct s3_auth *got,
                         struct str signed_headers, struct str hash)
{
    static const unsigned spellings[] = {SIGV4_S3, SIGV4_S3 | SIGV4_S3_SLASH,
                                         SIGV4_S3 | SIGV4_RAW_PATH};
    struct sigv4_auth auth = {.is_presigned = true, /* so that the bare signature comes back */
                              .date = str_n(got->scope.p, 8),
                              .region = STR("us-east-1"),
                              .service = STR("s3"),
                              .signed_headers = signed_headers,
                              .amz_date = got->amz_date};
    bool is_good = false;
    for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
        struct str sig = sigv4_sign(a, rq, secret, &auth, spellings[i], hash);
        is_good = is_good || str_eqc(sig, got->seed_signature);
    }
    assert(is_good);
}

static struct str signed_headers_of(struct str authorization)
{
    static const struct str mark = {"SignedHeaders=", 14};
    ptrdiff_t at = str_find_str(authorization, mark);
    struct str s = at < 0 ? STR("") : str_skip(authorization, (size_t)at + mark.n);
    return str_trim(str_cut(str_cut(s, ','), ' '));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *a;
    static struct sigv4_cache *cache;
    static const char *const names[] = {"Authorization", "x-amz-date", "x-amz-content-sha256",
                                        "x-amz-decoded-content-length", "x-amz-trailer"};
    struct str rest = {(const char *)data, size}, line[8];
    struct http_header headers[8] = {{STR("Host"), STR("s3.local")}};
    size_t n = 1;
    if (size > 65536 || size == 0) {
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
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (line[2 + i].n) {
            headers[n++] = (struct http_header){str_c(names[i]), str_trim(line[2 + i])};
        }
    }
    if (line[7].n) {
        struct str name = str_cut(line[7], ':');
        headers[n++] = (struct http_header){name, str_trim(str_skip(line[7], name.n + 1))};
    }
    struct str path = str_cut(line[1], '?');
    const struct aws_http rq = {.method = line[0],
                                .path = path,
                                .query = path.n < line[1].n ? str_skip(line[1], path.n + 1)
                                                            : STR_NONE,
                                .headers = headers,
                                .n_headers = n,
                                .now_ns = NOW_NS};
    const struct sigv4_opts o = {
        .find = find_key, .cache = cache, .region = STR("us-east-1"), .service = STR("s3")};
    struct s3_auth auth;
    struct s3_extra extra = {.n = 0};
    struct err err = ERR_INIT;
    if (s3_auth2_is(&rq)) { /* has no key, and cannot guess a signature by much luck */
        struct sigv4_opts old = o;
        old.flags = S3_FORM_OLD_SIGNATURE;
        int r = s3_auth2_head(a, &old, &rq, STR_NONE, &auth, &extra, &err);
        assert((r == 0) == (err.code == 0) && !auth.is_anonymous);
        assert(str_is_set(auth.who.account) == (r == 0));
        s3_auth_done(&auth);
        err_clear(&err);
        extra.n = 0;
    }
    int rc = s3_auth_head(a, &o, &rq, &auth, &extra, &err);
    assert((rc == 0) == (err.code == 0));
    assert(str_is_set(auth.who.account) == (rc == 0 && !auth.is_anonymous));
    bool was_sent = str_find_str(str_n((const char *)data, size), secret) >= 0;
    for (size_t i = 0; i < extra.n && !was_sent; i++) {
        assert(str_find_str(extra.v[i].value, secret) < 0);
    }
    if (rc == 0 && !auth.is_anonymous) {
        struct str hash = aws_http_header(&rq, "x-amz-content-sha256");
        assert(auth.n_headers >= n);
        if (!auth.is_presigned) {
            check_signed(a, &rq, &auth, signed_headers_of(headers[1].value), hash);
        }
        assert(!s3_payload_is_chunked(auth.payload) || auth.decoded_length <= INT64_MAX);
    }
    s3_auth_done(&auth);
    arena_reset(a);
    return 0;
}
