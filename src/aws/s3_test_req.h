/* s3_test_req.h — requests for the tests of S3's pure parts: written as text, signed, verified.
 * Not here: tests.
 * Threads:  none.
 * Memory:   an arena of the test.
 * Errors:   assertions. */
#pragma once
#include "aws/s3_auth.h"
#include "base/test.h"
#include "base/time.h"
#include <errno.h>

#define KEY_ID    "AKIAIOSFODNN7EXAMPLE"
#define SECRET    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define T_2013_NS (UINT64_C(1369353600) * NS_PER_S) /* 2013-05-24T00:00:00Z */
#define NO_HASH   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct s3_test {
    struct arena *a;
    struct sigv4_cache *cache;
    struct aws_http rq;
    struct http_header headers[40];
    /* of the last verification */
    struct s3_auth auth;
    struct s3_extra extra;
    struct err err;
    int n_finds; /* how often the key store was asked */
};

static int s3_test_find(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                        struct err *err)
{
    struct s3_test *t = ctx;
    t->n_finds++;
    if (str_eqc(access_key, "BROKENSTORE")) {
        return fail(err, -EIO, "StoreBroken", "the store is broken");
    }
    *ret = (struct aws_key){.who = {.account = STR("123456789012"),
                                    .arn = STR("arn:aws:iam::123456789012:root"),
                                    .user_id = STR("123456789012"),
                                    .user_name = STR(""),
                                    .is_root = true},
                            .secret = STR(SECRET),
                            .session_token = STR_NONE,
                            .is_active = true};
    if (str_eqc(access_key, "ASIATEMP") || str_eqc(access_key, "ASIAOLD")) {
        ret->session_token = STR("good/token+x=");
        ret->expires_ns = str_eqc(access_key, "ASIAOLD") ? T_2013_NS - 1 : T_2013_NS + NS_PER_S;
        return 0;
    }
    ret->is_active = !str_eqc(access_key, "AKIAINACTIVE");
    return str_eqc(access_key, KEY_ID) || !ret->is_active ? 0 : -ENOENT;
}

/* "METHOD target" and headers, a line each. */
static UNUSED void s3_test_req(struct s3_test *t, const char *text)
{
    struct str rest = arena_str_dup(t->a, str_c(text)), line;
    assert_true(str_next(&rest, '\n', &line));
    struct str method = str_cut(line, ' '), target = str_skip(line, method.n + 1);
    struct str path = str_cut(target, '?');
    t->rq =
        (struct aws_http){.method = method,
                          .path = path,
                          .query = path.n < target.n ? str_skip(target, path.n + 1) : STR_NONE,
                          .headers = t->headers,
                          .now_ns = T_2013_NS};
    while (str_is_set(rest) && str_next(&rest, '\n', &line)) {
        if (line.n == 0) {
            continue;
        }
        struct str name = str_cut(line, ':');
        assert_true(t->rq.n_headers < ARRAY_LEN(t->headers));
        t->headers[t->rq.n_headers++] =
            (struct http_header){name, str_trim(str_skip(line, name.n + 1))};
    }
}

static UNUSED struct http_header *s3_test_header(struct s3_test *t, const char *name)
{
    for (size_t i = 0; i < t->rq.n_headers; i++) {
        if (str_ieqc(t->headers[i].name, name)) {
            return &t->headers[i];
        }
    }
    return NULL;
}

static UNUSED void s3_test_add(struct s3_test *t, const char *name, const char *value)
{
    assert_true(t->rq.n_headers < ARRAY_LEN(t->headers));
    t->headers[t->rq.n_headers++] = (struct http_header){str_c(name), str_c(value)};
}

static const struct sigv4_opts s3_test_opts_plain = {
    .find = s3_test_find, .region = {"us-east-1", 9}, .service = {"s3", 2}};

static struct sigv4_opts s3_test_opts(struct s3_test *t)
{
    struct sigv4_opts o = s3_test_opts_plain;
    o.find_ctx = t;
    o.cache = t->cache;
    return o;
}

/* "" when good, else the code. */
static UNUSED const char *s3_test_verify(struct s3_test *t)
{
    struct sigv4_opts o = s3_test_opts(t);
    memset(&t->extra, 0, sizeof(t->extra));
    err_clear(&t->err);
    int rc = s3_auth_head(t->a, &o, &t->rq, &t->auth, &t->extra, &t->err);
    assert_true((rc == 0) == (t->err.code == 0));
    return rc == 0 ? "" : t->err.name;
}

static UNUSED struct str s3_test_extra(const struct s3_extra *x, const char *name)
{
    for (size_t i = 0; i < x->n; i++) {
        if (strcmp(x->v[i].name, name) == 0) {
            return x->v[i].value;
        }
    }
    return STR_NONE;
}

/* Signs in the header form: host and all x-amz-*, with this key. */
static UNUSED void s3_test_sign(struct s3_test *t, const char *key_id,
                                const char *signed_headers)
{
    struct str hash = aws_http_header(&t->rq, "x-amz-content-sha256");
    struct sigv4_auth auth = {.access_key = str_c(key_id),
                              .date = STR("20130524"),
                              .region = STR("us-east-1"),
                              .service = STR("s3"),
                              .signed_headers = str_c(signed_headers),
                              .amz_date = STR("20130524T000000Z")};
    struct str value = sigv4_sign(t->a, &t->rq, STR(SECRET), &auth, SIGV4_S3, hash);
    assert_true(str_is_set(value));
    struct http_header *h = s3_test_header(t, "Authorization");
    if (h) {
        h->value = value;
    } else {
        s3_test_add(t, "Authorization", arena_cstr(t->a, value));
    }
}

static UNUSED int s3_test_setup(void **state)
{
    struct s3_test *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    t->a = arena_new(8u << 20);
    t->cache = sigv4_cache_new(8);
    *state = t;
    return 0;
}
static UNUSED int s3_test_teardown(void **state)
{
    struct s3_test *t = *state;
    arena_free(t->a);
    sigv4_cache_free(t->cache);
    free(t);
    return 0;
}
