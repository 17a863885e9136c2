#include "aws/sigv4.h"

#include "aws/sigv4_test_vectors.h"
#include "base/test.h"
#include "base/time.h"
#include "crypto/digest.h"
#include <errno.h>
#include <stdio.h>

#define KEY_ID "AKIDEXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define NOW_NS (UINT64_C(1440938160) * NS_PER_S) /* 2015-08-30T12:36:00Z */

struct keys { /* what the key store of a test holds */
    const char *token;
    uint64_t expires_ns;
    bool is_off;
};

static int find_key(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                    struct err *err)
{
    const struct keys *k = ctx;
    if (!str_eqc(access_key, KEY_ID)) {
        return -ENOENT;
    }
    *ret = (struct aws_key){.who = {.account = STR("123456789012"), .is_root = true},
                            .secret = STR(SECRET),
                            .session_token = str_c(k->token),
                            .expires_ns = k->expires_ns,
                            .is_active = !k->is_off};
    return 0;
}

struct req { /* a request that a test may change */
    struct aws_http http;
    struct http_header headers[8];
    char text[8][1024];
};

static void header(struct req *r, const char *name, const char *value)
{
    size_t i = r->http.n_headers++;
    assert_true(i < ARRAY_LEN(r->headers) && strlen(value) < sizeof(r->text[i]));
    memcpy(r->text[i], value, strlen(value) + 1);
    r->headers[i] = (struct http_header){str_c(name), str_trim(str_c(r->text[i]))};
    r->http.headers = r->headers;
}

static void from_vector(const struct vector *v, struct req *r, const char *signature)
{
    char auth[1024];
    memset(r, 0, sizeof(*r));
    r->http.method = str_c(v->method);
    r->http.path = str_c(v->path);
    r->http.query = str_c(v->query);
    r->http.body = str_c(v->body);
    r->http.now_ns = NOW_NS;
    bool has_date = false;
    for (size_t i = 0; i < ARRAY_LEN(v->headers) && v->headers[i].name; i++) {
        header(r, v->headers[i].name, v->headers[i].value);
        has_date = has_date || strcmp(v->headers[i].name, "X-Amz-Date") == 0;
    }
    if (!has_date) {
        header(r, "X-Amz-Date", "20150830T123600Z");
    }
    snprintf(auth, sizeof(auth),
             "AWS4-HMAC-SHA256 Credential=" KEY_ID
             "/20150830/us-east-1/service/aws4_request, SignedHeaders=%s, Signature=%s",
             v->signed_headers, signature);
    header(r, "Authorization", auth);
}

struct fixture {
    struct arena *a;
    struct sigv4_cache *cache;
    struct keys keys;
    struct sigv4_opts o;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->a = arena_new(64u << 20);
    f->cache = sigv4_cache_new(8);
    f->o = (struct sigv4_opts){.find = find_key,
                               .find_ctx = &f->keys,
                               .cache = f->cache,
                               .region = STR("us-east-1"),
                               .service = STR("service")};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    sigv4_cache_free(f->cache);
    arena_free(f->a);
    free(f);
    return 0;
}

static const char *verify(struct fixture *f, const struct aws_http *rq)
{
    static struct err err;
    struct sigv4_auth auth;
    struct aws_key key;
    err_clear(&err);
    if (f->keys.token == NULL && aws_http_header(rq, "X-Amz-Security-Token").n > 0) {
        f->keys.token = TOKEN;
    }
    int rc = sigv4_verify(f->a, &f->o, rq, &auth, &key, &err);
    assert_true((rc == 0) == (err.code == 0));
    return rc == 0 ? "ok" : err.name;
}

static void test_vectors(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        const struct vector *v = &vectors[i];
        struct req r;
        struct sigv4_auth auth;
        struct err err = ERR_INIT;
        char want[8192], hex[65];
        uint8_t hash[SHA256_SIZE];
        from_vector(v, &r, v->signature);
        f->keys.token = NULL;
        assert_int_equal(sigv4_parse(f->a, &r.http, &auth, &err), 0);
        sha256(r.http.body, hash);
        digest_hex(hash, sizeof(hash), hex);
        snprintf(want, sizeof(want), "%s\n%s\n%s\n%s\n%s\n%s", v->method, v->want_path,
                 v->want_query, v->want_headers, v->signed_headers, hex);
        AUTO_BUF canonical;
        buf_init(&canonical, 65536);
        assert_int_equal(sigv4_canonical(f->a, &r.http, &auth, 0, str_c(hex), &canonical, &err),
                         0);
        assert_string_equal(buf_cstr(&canonical), want);
        if (strcmp(verify(f, &r.http), "ok") != 0) {
            fail_msg("%s is refused", v->name);
        }
        struct str again = sigv4_sign(f->a, &r.http, STR(SECRET), &auth, 0, str_c(hex));
        assert_true(str_eq(again, aws_http_header(&r.http, "Authorization")));
    }
}

/* The request with one byte of 's' changed. */
static bool is_accepted_with(struct fixture *f, struct req *r, struct str *s, size_t at)
{
    char copy[2048];
    struct str was = *s;
    assert_true(was.n < sizeof(copy));
    memcpy(copy, was.p, was.n);
    copy[at] = (char)(copy[at] ^ 1);
    *s = str_n(copy, was.n);
    bool is_ok = strcmp(verify(f, &r->http), "ok") == 0;
    *s = was;
    return is_ok;
}

static void canonical_of(struct fixture *f, const struct aws_http *rq, struct buf *out)
{
    struct sigv4_auth auth;
    struct err err = ERR_INIT;
    if (sigv4_parse(f->a, rq, &auth, &err) < 0 ||
        sigv4_canonical(f->a, rq, &auth, 0, STR("x"), out, &err) < 0) {
        buf_clear(out);
    }
}

static void flip_all(struct fixture *f, const char *name, struct req *r, struct str *s,
                     bool may_be_equal)
{
    for (size_t i = 0; i < s->n; i++) {
        arena_reset(f->a);
        f->keys.token = NULL;
        if (!is_accepted_with(f, r, s, i)) {
            continue;
        }
        /* Two paths or values may mean the same: then the canonical requests are equal. */
        AUTO_BUF one, two;
        buf_init(&one, 65536);
        buf_init(&two, 65536);
        canonical_of(f, &r->http, &one);
        char copy[2048];
        struct str was = *s;
        memcpy(copy, was.p, was.n);
        copy[i] = (char)(copy[i] ^ 1);
        *s = str_n(copy, was.n);
        canonical_of(f, &r->http, &two);
        *s = was;
        if (!may_be_equal || !str_eq(buf_str(&one), buf_str(&two))) {
            fail_msg("%s: accepted with byte %zu of '%.*s' changed", name, i, STR_ARG(*s));
        }
    }
}

static void test_one_byte_changed(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        struct req r;
        from_vector(&vectors[i], &r, vectors[i].signature);
        flip_all(f, vectors[i].name, &r, &r.http.method, false);
        flip_all(f, vectors[i].name, &r, &r.http.path, true);
        flip_all(f, vectors[i].name, &r, &r.http.query, true);
        flip_all(f, vectors[i].name, &r, &r.http.body, false);
        for (size_t h = 0; h < r.http.n_headers; h++) {
            flip_all(f, vectors[i].name, &r, &r.headers[h].value, false);
        }
    }
}

/* What is said to a header that is wrong in one way. */
static void test_bad_authorization(void **state)
{
#define CRED "Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
#define REST                            \
    ", SignedHeaders=host;x-amz-date, " \
    "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    static const struct {
        const char *auth, *want;
    } cases[] = {
        {"AWS4-HMAC-SHA256 " CRED REST, "ok"},
        {"AWS4-HMAC-SHA256   " CRED " ,SignedHeaders=host;x-amz-date,Signature="
         "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
         "ok"},
        {"", "IncompleteSignature"},
        {"AWS4-HMAC-SHA256", "IncompleteSignature"},
        {"AWS4-ECDSA-P256-SHA256 " CRED REST, "IncompleteSignature"},            /* SigV4A */
        {"AWS AKIDEXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=", "IncompleteSignature"}, /* version 2 */
        {"Bearer token", "IncompleteSignature"},
        {"AWS4-HMAC-SHA256 " CRED, "IncompleteSignature"},
        {"AWS4-HMAC-SHA256 " CRED REST ", " CRED, "IncompleteSignature"},
        {"AWS4-HMAC-SHA256 " CRED REST ", Extra=1", "IncompleteSignature"},
        {"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service" REST,
         "IncompleteSignature"},
        {"AWS4-HMAC-SHA256 "
         "Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request/x" REST,
         "IncompleteSignature"},
        {"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws5_request" REST,
         "IncompleteSignature"},
        {"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150829/us-east-1/service/aws4_request" REST,
         "SignatureDoesNotMatch"},
        {"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-west-9/service/aws4_request" REST,
         "SignatureDoesNotMatch"},
        {"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/other/aws4_request" REST,
         "SignatureDoesNotMatch"},
        {"AWS4-HMAC-SHA256 Credential=AKIDNOBODY/20150830/us-east-1/service/aws4_request" REST,
         "InvalidClientTokenId"},
        {"AWS4-HMAC-SHA256 " CRED ", SignedHeaders=x-amz-date, "
         "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
         "SignatureDoesNotMatch"}, /* host is not signed */
        {"AWS4-HMAC-SHA256 " CRED ", SignedHeaders=Host;x-amz-date, "
         "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
         "IncompleteSignature"},
        {"AWS4-HMAC-SHA256 " CRED ", SignedHeaders=host;x-amz-date;x-not-there, "
         "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
         "SignatureDoesNotMatch"},
        {"AWS4-HMAC-SHA256 " CRED ", SignedHeaders=host;x-amz-date, Signature=5fa0",
         "IncompleteSignature"},
        {"AWS4-HMAC-SHA256 " CRED ", SignedHeaders=host;x-amz-date, "
         "Signature=5FA00FA31553B73EBF1942676E86291E8372FF2A2260956D9B8AAE1D763FBF31",
         "SignatureDoesNotMatch"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct req r;
        from_vector(&vectors[0], &r, vectors[0].signature);
        r.headers[r.http.n_headers - 1].value = str_c(cases[i].auth);
        if (strcmp(verify(f, &r.http), cases[i].want) != 0) {
            fail_msg("'%s': %s instead of %s", cases[i].auth, verify(f, &r.http),
                     cases[i].want);
        }
    }
    struct req r;
    from_vector(&vectors[0], &r, vectors[0].signature);
    r.http.n_headers--;
    assert_string_equal(verify(f, &r.http), "MissingAuthenticationToken");
    r.http.n_headers++;
    header(&r, "Authorization", "AWS4-HMAC-SHA256 " CRED REST);
    assert_string_equal(verify(f, &r.http), "IncompleteSignature"); /* twice */
}

static void test_time(void **state)
{
    struct fixture *f = *state;
    struct req r;
    from_vector(&vectors[0], &r, vectors[0].signature);
    r.http.now_ns = NOW_NS + SIGV4_SKEW_NS;
    assert_string_equal(verify(f, &r.http), "ok");
    r.http.now_ns = NOW_NS + SIGV4_SKEW_NS + 1;
    assert_string_equal(verify(f, &r.http), "SignatureExpired");
    r.http.now_ns = NOW_NS - SIGV4_SKEW_NS;
    assert_string_equal(verify(f, &r.http), "ok");
    r.http.now_ns = NOW_NS - SIGV4_SKEW_NS - 1;
    assert_string_equal(verify(f, &r.http), "SignatureNotYetCurrent");
    r.http.now_ns = NOW_NS;
    r.headers[1].value = STR("2015-08-30");
    assert_string_equal(verify(f, &r.http), "IncompleteSignature");
    r.headers[1].name = STR("X-Other");
    assert_string_equal(verify(f, &r.http), "IncompleteSignature");
    /* Date takes the place of X-Amz-Date; the scope names the same day. */
    r.headers[1] = (struct http_header){STR("Date"), STR("Sun, 30 Aug 2015 12:36:00 GMT")};
    assert_string_equal(verify(f, &r.http),
                        "SignatureDoesNotMatch"); /* x-amz-date was signed */
}

static void test_keys(void **state)
{
    struct fixture *f = *state;
    struct req r;
    from_vector(&vectors[0], &r, vectors[0].signature);
    f->keys.is_off = true;
    assert_string_equal(verify(f, &r.http), "InvalidClientTokenId");
    f->keys = (struct keys){.token = "other"};
    assert_string_equal(verify(f, &r.http),
                        "InvalidClientTokenId"); /* a temporary key without its token */
    f->keys = (struct keys){.expires_ns = NOW_NS};
    assert_string_equal(verify(f, &r.http), "ExpiredToken");
    f->keys = (struct keys){.expires_ns = NOW_NS + 1};
    assert_string_equal(verify(f, &r.http), "ok");
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        if (strcmp(vectors[i].name, "post-sts-header-before") == 0) {
            from_vector(&vectors[i], &r, vectors[i].signature);
            f->keys = (struct keys){.token = ""}; /* a long-term key with a token */
            assert_string_equal(verify(f, &r.http), "InvalidClientTokenId");
            f->keys = (struct keys){.token = TOKEN};
            assert_string_equal(verify(f, &r.http), "ok");
            return;
        }
    }
    fail_msg("no vector with a session token");
}

/* A payload hash that a client claims must be the body's. */
static void test_payload(void **state)
{
    struct fixture *f = *state;
    struct req r;
    from_vector(&vectors[0], &r, vectors[0].signature);
    header(&r, "X-Amz-Content-Sha256",
           "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_string_equal(verify(f, &r.http), "ok");
    r.headers[r.http.n_headers - 1].value = STR("UNSIGNED-PAYLOAD");
    assert_string_equal(verify(f, &r.http), "SignatureDoesNotMatch");
}

static void presign(struct fixture *f, struct req *r, const char *expires, char *query,
                    size_t size)
{
    memset(r, 0, sizeof(*r));
    r->http.method = STR("GET");
    r->http.path = STR("/");
    r->http.now_ns = NOW_NS;
    header(r, "Host", "example.amazonaws.com");
    int n = snprintf(query, size,
                     "Action=ListUsers&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
                     "AKIDEXAMPLE%%2F20150830%%2Fus-east-1%%2Fservice"
                     "%%2Faws4_request&X-Amz-Date=20150830T123600Z&X-Amz-Expires=%s&X-Amz-"
                     "SignedHeaders=host",
                     expires);
    r->http.query = str_n(query, (size_t)n);
    struct sigv4_auth auth = {.is_presigned = true,
                              .access_key = STR(KEY_ID),
                              .date = STR("20150830"),
                              .region = STR("us-east-1"),
                              .service = STR("service"),
                              .signed_headers = STR("host"),
                              .amz_date = STR("20150830T123600Z")};
    struct str sig =
        sigv4_sign(f->a, &r->http, STR(SECRET), &auth, 0,
                   STR("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    n += snprintf(query + n, size - (size_t)n, "&X-Amz-Signature=%.*s", STR_ARG(sig));
    r->http.query = str_n(query, (size_t)n);
}

static void test_presigned(void **state)
{
    struct fixture *f = *state;
    struct req r;
    char query[2048];
    static const struct {
        const char *expires, *want;
    } cases[] = {{"60", "ok"},
                 {"604800", "ok"},
                 {"604801", "IncompleteSignature"},
                 {"0", "IncompleteSignature"},
                 {"-1", "IncompleteSignature"},
                 {"1e3", "IncompleteSignature"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        presign(f, &r, cases[i].expires, query, sizeof(query));
        assert_string_equal(verify(f, &r.http), cases[i].want);
    }
    presign(f, &r, "60", query, sizeof(query));
    r.http.now_ns = NOW_NS + 60 * NS_PER_S;
    assert_string_equal(verify(f, &r.http), "ok");
    r.http.now_ns++;
    assert_string_equal(verify(f, &r.http), "SignatureExpired");
    r.http.now_ns = NOW_NS;
    flip_all(f, "presigned", &r, &r.http.query, false);
    header(&r, "Authorization", "AWS4-HMAC-SHA256 x");
    assert_string_equal(verify(f, &r.http), "IncompleteSignature"); /* both ways at once */
    r.http.n_headers--;
    r.http.query = arena_fmt(f->a, "%s&X-Amz-Date=20150830T123600Z", query);
    assert_string_equal(verify(f, &r.http), "IncompleteSignature");
}

/* S3 signs the path as it is: no normalisation, escapes once. */
static void test_s3_path(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *path, *want;
        unsigned flags;
    } cases[] = {{"/a//b/../c", "/a//b/../c", 0},
                 {"/a%20b", "/a%20b", 0},
                 {"/a%2fb+c", "/a%2Fb%2Bc", 0},
                 {"/a%2fb+c", "/a/b%2Bc", SIGV4_S3_SLASH},
                 {"/a%2fb+c", "/a%2fb+c", SIGV4_RAW_PATH},
                 {"/%e1%88%b4", "/%E1%88%B4", 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF out;
        struct req r;
        struct err err = ERR_INIT;
        struct sigv4_auth auth = {.signed_headers = STR("host")};
        from_vector(&vectors[0], &r, vectors[0].signature);
        buf_init(&out, 4096);
        r.http.path = str_c(cases[i].path);
        assert_int_equal(sigv4_canonical(f->a, &r.http, &auth, SIGV4_S3 | cases[i].flags,
                                         STR("x"), &out, &err),
                         0);
        struct str rest = buf_str(&out), method, path = STR_NONE;
        assert_true(str_next(&rest, '\n', &method) && str_next(&rest, '\n', &path));
        assert_true(str_eqc(path, cases[i].want));
    }
}

/* The cache gives what the derivation gives, for more scopes than it has slots, again and
 * again. */
static void test_cache(void **state)
{
    struct fixture *f = *state;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 40; i++) {
            char region[16], secret[16];
            uint8_t want[32], have[32];
            snprintf(region, sizeof(region), "r-%d", i / 2);
            snprintf(secret, sizeof(secret), "s%d", i % 2 + round % 2);
            struct sigv4_auth auth = {
                .date = STR("20150830"), .region = str_c(region), .service = STR("ec2")};
            sigv4_signing_key(str_c(secret), auth.date, auth.region, auth.service, want);
            sigv4_cached_key(f->cache, str_c(secret), &auth, have);
            assert_memory_equal(want, have, sizeof(want));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_vectors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_byte_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_authorization, setup, teardown),
        cmocka_unit_test_setup_teardown(test_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_payload, setup, teardown),
        cmocka_unit_test_setup_teardown(test_presigned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_s3_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cache, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
