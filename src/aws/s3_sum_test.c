/* Checksums: values from independent computations (zlib, hashlib, bitwise CRCs), what heads may
 * say, what bodies must keep, what parts make. */
#include "aws/s3_sum.h"

#include "base/test.h"
#include "codec/hex.h"

/* Of "123456789", of nothing, and of the parts "123456789", "hello", 1000 times 'x'. */
static const struct {
    enum s3_sum_alg alg;
    const char *name, *digits, *nothing, *composite, *full;
} values[] = {
    {S3_SUM_CRC32, "CRC32", "y/Q5Jg==", "AAAAAA==", "1kg+rA==", "JpSM2Q=="},
    {S3_SUM_CRC32C, "CRC32C", "4waSgw==", "AAAAAA==", "6q83VQ==", "sSC9jA=="},
    {S3_SUM_CRC64NVME, "CRC64NVME",
     "rosUhgp5mIg=", "AAAAAAAAAAA=", "mMqeVuNi9/g=", "ddD52Nw+zFw="},
    {S3_SUM_SHA1, "SHA1", "98O8HYCOBHMq32eZZczDTKeuNEE=", "2jmj7l5rSw0yVb/vlWAYkK/YBwk=",
     "Djngg943FIbGZgYn71tohjCYW0o=", NULL},
    {S3_SUM_SHA256, "SHA256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
     "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
     "FTi3sYoryjeH2cnEZTo7lKHqU+uZESw8aPg8b3by3xo=", NULL},
};
#define DIGITS      "123456789"
#define DIGITS_MD5  "JfnnlDI7RTiF9RgfG2JNCw=="
#define DIGITS_SHA  "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
#define DIGITS_ETAG "25f9e794323b453885f5181f1b624d0b"
#define PARTS_ETAG  "40f1c4ac17daf75551b90040e4a95b47-3"

static void check_text(const struct s3_sum_value *v, unsigned n, const char *want)
{
    char text[S3_SUM_TEXT_SIZE];
    assert_string_equal(s3_sum_text(v, n, text), want);
}

static void test_values(void **state)
{
    struct s3_sum s = {.size = 0};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        for (size_t step = 1; step <= 9; step++) {
            struct s3_sum_want want = {.keep = values[i].alg};
            struct s3_sum_result r;
            struct str rest = STR(DIGITS);
            s3_sum_begin(&s, &want, false);
            while (rest.n) {
                s3_sum_add(&s, str_n(rest.p, MIN(step, rest.n)));
                rest = str_skip(rest, step);
            }
            assert_int_equal(s3_sum_end(&s, &r, NULL, NULL, NULL), 0);
            char etag[S3_ETAG_SIZE];
            s3_etag(r.md5, etag);
            assert_true(r.has_md5 && r.size == 9);
            assert_string_equal(etag, DIGITS_ETAG);
            check_text(&r.sum, 0, values[i].digits);
        }
        struct s3_sum_want none = {.keep = values[i].alg};
        struct s3_sum_result r;
        s3_sum_begin(&s, &none, true);
        assert_int_equal(s3_sum_end(&s, &r, NULL, NULL, NULL), 0);
        assert_false(r.has_md5);
        check_text(&r.sum, 0, values[i].nothing);
        assert_string_equal(s3_sum_name(values[i].alg), values[i].name);
        assert_int_equal(s3_sum_by_name(str_c(values[i].name)), values[i].alg);
        assert_int_equal(s3_sum_by_header(str_c(s3_sum_header(values[i].alg))), values[i].alg);
    }
    s3_sum_done(&s);
}

/* A body that broke off leaves nothing behind in the contexts. */
static void test_begin_again_after_a_torn_body(void **state)
{
    struct s3_sum s = {.size = 0};
    struct s3_sum_want want = {.keep = S3_SUM_SHA1, .has_sha256 = true};
    struct s3_sum_result r;
    assert_int_equal(hex_decode(STR(DIGITS_SHA), want.sha256, 32), 0);
    s3_sum_begin(&s, &want, false);
    s3_sum_add(&s, STR("torn"));
    s3_sum_begin(&s, &want, false);
    s3_sum_add(&s, STR(DIGITS));
    assert_int_equal(s3_sum_end(&s, &r, NULL, NULL, NULL), 0);
    check_text(&r.sum, 0, values[3].digits);
    s3_sum_done(&s);
}

/* ---- heads ---- */

struct head {
    struct s3_auth auth;
    struct http_header h[4];
    struct str trailers[4];
};
/* "name: value\n..."; names of trailers after "trailer ". */
static void head_of(struct head *d, const char *text)
{
    *d = (struct head){.auth = {.payload = S3_PAYLOAD_UNSIGNED}};
    struct str rest = str_c(text), line;
    while (str_is_set(rest) && str_next(&rest, '\n', &line)) {
        if (str_has_prefixc(line, "trailer ")) {
            d->trailers[d->auth.trailers.n++] = str_skip(line, 8);
        } else if (str_eqc(line, "presigned")) {
            d->auth.is_presigned = true;
        } else if (line.n) {
            struct str name = str_cut(line, ':');
            d->h[d->auth.n_headers++] =
                (struct http_header){name, str_trim(str_skip(line, name.n + 1))};
        }
    }
    d->auth.headers = d->h;
    d->auth.trailers.v = d->trailers;
}

static const struct {
    const char *head;
    unsigned flags;
    const char *msg; /* NULL: good */
    enum s3_sum_alg alg, keep;
    const char *code; /* InvalidRequest when NULL */
} heads[] = {
    {"", 0, NULL, S3_SUM_NONE, S3_SUM_CRC64NVME, NULL}, /* default integrity */
    {"", S3_SUM_NO_DEFAULT, NULL, S3_SUM_NONE, S3_SUM_NONE, NULL},
    {"Content-MD5: " DIGITS_MD5, 0, NULL, S3_SUM_NONE, S3_SUM_CRC64NVME, NULL},
    {"Content-MD5: " DIGITS_MD5, S3_SUM_NEED_ONE | S3_SUM_NO_DEFAULT, NULL, S3_SUM_NONE,
     S3_SUM_NONE, NULL},
    {"x-amz-checksum-crc32: y/Q5Jg==", S3_SUM_NEED_ONE, NULL, S3_SUM_CRC32, S3_SUM_CRC32, NULL},
    {"X-Amz-Checksum-Sha256: FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=\n"
     "x-amz-sdk-checksum-algorithm: SHA256",
     0, NULL, S3_SUM_SHA256, S3_SUM_SHA256, NULL},
    {"trailer x-amz-checksum-crc32c\nx-amz-sdk-checksum-algorithm: CRC32C", S3_SUM_NEED_ONE,
     NULL, S3_SUM_CRC32C, S3_SUM_CRC32C, NULL},
    {"presigned\nx-amz-sdk-checksum-algorithm: crc32", 0, NULL, S3_SUM_CRC32, S3_SUM_CRC32,
     NULL},
    {"x-amz-checksum-mode: ENABLED\nx-amz-checksum-algorithm: CRC32\n"
     "x-amz-checksum-type: COMPOSITE",
     0, NULL, S3_SUM_NONE, S3_SUM_CRC64NVME, NULL},
    /* bug 4 of the research: one of both is enough, none is not */
    {"", S3_SUM_NEED_ONE,
     "Missing required header for this request: Content-MD5 OR x-amz-checksum-*", 0, 0, NULL},
    {"Content-MD5: abc", 0, "The Content-MD5 you specified was invalid.", 0, 0,
     "InvalidDigest"},
    {"Content-MD5: ", 0, "The Content-MD5 you specified was invalid.", 0, 0, "InvalidDigest"},
    {"Content-MD5: JfnnlDI7RTiF9RgfG2JNC===", 0, "The Content-MD5", 0, 0, "InvalidDigest"},
    {"Content-MD5: y/Q5Jg==", 0, "The Content-MD5", 0, 0, "InvalidDigest"},
    {"x-amz-checksum-crc32: y/Q5Jg", 0, "Value for x-amz-checksum-crc32 header is invalid.", 0,
     0, NULL},
    {"x-amz-checksum-crc32: rosUhgp5mIg=", 0,
     "Value for x-amz-checksum-crc32 header is "
     "invalid.",
     0, 0, NULL},
    {"x-amz-checksum-sha1: ", 0, "Value for x-amz-checksum-sha1 header is invalid.", 0, 0,
     NULL},
    {"x-amz-checksum-md4: y/Q5Jg==", 0,
     "The algorithm type you specified in x-amz-checksum- header is invalid.", 0, 0, NULL},
    {"x-amz-checksum-crc32: y/Q5Jg==\nx-amz-checksum-crc32c: 4waSgw==", 0,
     "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.", 0,
     0, NULL},
    {"x-amz-checksum-crc32: y/Q5Jg==\nx-amz-checksum-crc32: y/Q5Jg==", 0, "Expecting a single",
     0, 0, NULL},
    {"x-amz-checksum-crc32: y/Q5Jg==\ntrailer x-amz-checksum-crc32", 0, "Expecting a single", 0,
     0, NULL},
    {"trailer x-amz-checksum-crc32\ntrailer x-amz-checksum-sha1", 0, "Expecting a single", 0, 0,
     NULL},
    {"trailer x-amz-meta-a", 0,
     "The value specified in the x-amz-trailer header is not supported", 0, 0, NULL},
    {"x-amz-sdk-checksum-algorithm: CRC32", 0,
     "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or "
     "x-amz-trailer headers were found.",
     0, 0, NULL},
    {"x-amz-sdk-checksum-algorithm: CRC31", 0,
     "Value for x-amz-sdk-checksum-algorithm header is invalid.", 0, 0, NULL},
    {"x-amz-checksum-crc32: y/Q5Jg==\nx-amz-sdk-checksum-algorithm: SHA1", 0,
     "Value for x-amz-sdk-checksum-algorithm header is invalid.", 0, 0, NULL},
};

static void test_heads(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        struct head d;
        struct s3_sum_want w;
        struct err err = ERR_INIT;
        head_of(&d, heads[i].head);
        int rc = s3_sum_want_parse(&d.auth, heads[i].flags, S3_SUM_CRC64NVME, &w, NULL, &err);
        if ((rc == 0) != (heads[i].msg == NULL)) {
            fail_msg("case %zu: %s", i, err.msg);
        }
        if (rc < 0) {
            assert_string_equal(err.name, heads[i].code ? heads[i].code : "InvalidRequest");
            assert_int_equal(strncmp(err.msg, heads[i].msg, strlen(heads[i].msg)), 0);
        } else {
            assert_int_equal(w.alg, heads[i].alg);
            assert_int_equal(w.keep, heads[i].keep);
        }
    }
}

/* ---- bodies ---- */

static const struct {
    const char *head, *trailer; /* trailer: value of x-amz-checksum-crc32 */
    const char *body, *code, *msg;
} bodies[] = {
    {"Content-MD5: " DIGITS_MD5, NULL, DIGITS, NULL, NULL},
    {"Content-MD5: " DIGITS_MD5, NULL, "12345678", "BadDigest",
     "The Content-MD5 you specified did not match what we received."},
    {"x-amz-checksum-crc32: y/Q5Jg==", NULL, DIGITS, NULL, NULL},
    {"x-amz-checksum-crc32: y/Q5Jg==", NULL, "", "BadDigest",
     "The CRC32 you specified did not match the calculated checksum."},
    {"x-amz-checksum-sha1: 98O8HYCOBHMq32eZZczDTKeuNEE=", NULL, "x", "BadDigest",
     "The SHA1 you specified did not match the calculated checksum."},
    {"x-amz-checksum-crc64nvme: rosUhgp5mIg=", NULL, DIGITS, NULL, NULL},
    {"trailer x-amz-checksum-crc32", "y/Q5Jg==", DIGITS, NULL, NULL},
    /* bug 2 of the research: a wrong checksum in a trailer is the client's error, not ours */
    {"trailer x-amz-checksum-crc32", "y/Q5Jg==", "123", "BadDigest",
     "The CRC32 you specified did not match the calculated checksum."},
    {"trailer x-amz-checksum-crc32", "y/Q5J", DIGITS, "InvalidRequest",
     "Value for x-amz-checksum-crc32 trailing header is invalid."},
    {"trailer x-amz-checksum-crc32", NULL, DIGITS, "MalformedTrailerError", ""},
    {"", "y/Q5Jg==", DIGITS, "MalformedTrailerError", ""},
    {"x-amz-checksum-crc32: y/Q5Jg==", "y/Q5Jg==", DIGITS, "MalformedTrailerError", ""},
};

static void test_bodies(void **state)
{
    struct s3_sum s = {.size = 0};
    struct arena *a = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct head d;
        struct s3_sum_want w;
        struct s3_sum_result r;
        struct s3_extra extra = {.n = 0};
        struct err err = ERR_INIT;
        head_of(&d, bodies[i].head);
        assert_int_equal(s3_sum_want_parse(&d.auth, 0, S3_SUM_CRC64NVME, &w, NULL, &err), 0);
        s3_sum_begin(&s, &w, false);
        s3_sum_add(&s, str_c(bodies[i].body));
        int rc = s3_sum_trailer(&s, STR("x-amz-other"), STR("1"), &err);
        assert_int_equal(rc, 0);
        if (bodies[i].trailer) {
            rc =
                s3_sum_trailer(&s, STR("x-amz-checksum-crc32"), str_c(bodies[i].trailer), &err);
        }
        rc = rc < 0 ? rc : s3_sum_end(&s, &r, a, &extra, &err);
        if ((rc == 0) != (bodies[i].code == NULL) ||
            (rc < 0 && (strcmp(err.name, bodies[i].code) != 0 ||
                        strncmp(err.msg, bodies[i].msg, strlen(bodies[i].msg)) != 0))) {
            fail_msg("case %zu: %s: %s", i, err.name ? err.name : "good", err.msg);
        }
    }
    s3_sum_done(&s);
    arena_free(a);
}

static void test_sha256_of_the_head(void **state)
{
    struct arena *a = arena_new(1u << 20);
    struct s3_sum s = {.size = 0};
    struct s3_sum_want w;
    struct s3_sum_result r;
    struct s3_extra extra = {.n = 0};
    struct err err = ERR_INIT;
    struct s3_auth auth = {.payload = S3_PAYLOAD_SHA256};
    assert_int_equal(hex_decode(STR(DIGITS_SHA), auth.sha256, 32), 0);
    assert_int_equal(s3_sum_want_parse(&auth, 0, S3_SUM_CRC64NVME, &w, NULL, NULL), 0);
    s3_sum_begin(&s, &w, false);
    s3_sum_add(&s, STR(DIGITS));
    assert_int_equal(s3_sum_end(&s, &r, a, &extra, &err), 0);
    check_text(&r.sum, 0, values[2].digits);
    s3_sum_begin(&s, &w, false);
    s3_sum_add(&s, STR("other"));
    assert_true(s3_sum_end(&s, &r, a, &extra, &err) < 0);
    assert_string_equal(err.name, "XAmzContentSHA256Mismatch");
    assert_string_equal(extra.v[0].name, "ClientComputedContentSHA256");
    assert_str(extra.v[0].value, DIGITS_SHA);
    assert_string_equal(extra.v[1].name, "S3ComputedContentSHA256");
    s3_sum_done(&s);
    arena_free(a);
}

/* ---- multipart ---- */

static void put_together(enum s3_sum_alg alg, enum s3_sum_type type, enum s3_sum_alg part_alg,
                         char etag[S3_ETAG_SIZE], struct s3_sum_value *ret)
{
    char xs[1000];
    memset(xs, 'x', sizeof(xs));
    const struct str parts[] = {STR(DIGITS), STR("hello"), {xs, sizeof(xs)}};
    struct s3_sum s = {.size = 0};
    struct s3_sum_multi m = {.alg = S3_SUM_NONE};
    for (int again = 0; again < 2; again++) {
        s3_sum_multi_begin(&m, alg, type);
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
            struct s3_sum_want w = {.keep = part_alg};
            struct s3_sum_result r;
            s3_sum_begin(&s, &w, false);
            s3_sum_add(&s, parts[i]);
            assert_int_equal(s3_sum_end(&s, &r, NULL, NULL, NULL), 0);
            s3_sum_multi_add(&m, r.md5, r.size, part_alg ? &r.sum : NULL);
        }
        assert_int_equal(m.size, 1014);
        s3_sum_multi_end(&m, etag, ret);
        s3_sum_multi_done(&m);
    }
    s3_sum_done(&s);
}

/* Bug 7 of the research: which algorithm makes which kind, and its form. */
static void test_multipart_checksum_types(void **state)
{
    char etag[S3_ETAG_SIZE], text[S3_SUM_TEXT_SIZE];
    struct s3_sum_value v;
    struct err err = ERR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        put_together(values[i].alg, S3_SUM_COMPOSITE, values[i].alg, etag, &v);
        assert_string_equal(etag, PARTS_ETAG);
        check_text(&v, 0, values[i].composite);
        s3_sum_text(&v, 3, text);
        assert_int_equal(strlen(text), strlen(values[i].composite) + 2);
        assert_string_equal(text + strlen(values[i].composite), "-3");
        assert_int_equal(s3_sum_multi_check(str_c(text), &v, S3_SUM_COMPOSITE, 3, &err), 0);
        assert_int_equal(
            s3_sum_multi_check(str_c(values[i].composite), &v, S3_SUM_COMPOSITE, 3, &err), 0);
        assert_true(s3_sum_multi_check(str_c(text), &v, S3_SUM_COMPOSITE, 4, &err) < 0);
        assert_string_equal(err.name, "BadDigest");
        err_clear(&err);
        assert_true(
            s3_sum_multi_check(str_c(values[i].nothing), &v, S3_SUM_COMPOSITE, 3, &err) < 0);
        assert_string_equal(err.name, "BadDigest");
        err_clear(&err);
        assert_true(s3_sum_multi_check(STR("x"), &v, S3_SUM_COMPOSITE, 3, &err) < 0);
        assert_string_equal(err.name, "InvalidRequest");
        err_clear(&err);
        if (values[i].full) {
            put_together(values[i].alg, S3_SUM_FULL_OBJECT, values[i].alg, etag, &v);
            assert_string_equal(etag, PARTS_ETAG);
            check_text(&v, 0, values[i].full);
            assert_int_equal(
                s3_sum_multi_check(str_c(values[i].full), &v, S3_SUM_FULL_OBJECT, 3, &err), 0);
            s3_sum_text(&v, 3, text); /* a full object has no "-N" */
            assert_true(s3_sum_multi_check(str_c(text), &v, S3_SUM_FULL_OBJECT, 3, &err) < 0);
            err_clear(&err);
        }
    }
    /* Parts without the algorithm: still an object, without a checksum. */
    put_together(S3_SUM_CRC64NVME, S3_SUM_FULL_OBJECT, S3_SUM_NONE, etag, &v);
    assert_string_equal(etag, PARTS_ETAG);
    assert_int_equal(v.alg, S3_SUM_NONE);
    put_together(S3_SUM_SHA256, S3_SUM_COMPOSITE, S3_SUM_SHA1, etag, &v);
    assert_int_equal(v.alg, S3_SUM_NONE);
}

static void test_upload_type(void **state)
{
    static const struct {
        const char *alg, *type;
        enum s3_sum_alg want_alg;
        enum s3_sum_type want_type;
        const char *msg;
    } cases[] = {
        {NULL, NULL, S3_SUM_CRC64NVME, S3_SUM_FULL_OBJECT, NULL},
        {"CRC64NVME", NULL, S3_SUM_CRC64NVME, S3_SUM_FULL_OBJECT, NULL},
        {"CRC32", NULL, S3_SUM_CRC32, S3_SUM_COMPOSITE, NULL},
        {"CRC32C", NULL, S3_SUM_CRC32C, S3_SUM_COMPOSITE, NULL},
        {"CRC32C", "FULL_OBJECT", S3_SUM_CRC32C, S3_SUM_FULL_OBJECT, NULL},
        {"CRC32", "FULL_OBJECT", S3_SUM_CRC32, S3_SUM_FULL_OBJECT, NULL},
        {"SHA1", NULL, S3_SUM_SHA1, S3_SUM_COMPOSITE, NULL},
        {"SHA256", "COMPOSITE", S3_SUM_SHA256, S3_SUM_COMPOSITE, NULL},
        {"SHA256", "FULL_OBJECT", 0, 0,
         "The FULL_OBJECT checksum type cannot be used with the sha256 checksum algorithm."},
        {"CRC64NVME", "COMPOSITE", 0, 0,
         "The COMPOSITE checksum type cannot be used with the crc64nvme checksum algorithm."},
        {NULL, "COMPOSITE", 0, 0,
         "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm "
         "header."},
        {"MD4", NULL, 0, 0, "Checksum algorithm provided is unsupported."},
        {"CRC32", "HALF", 0, 0, "Value for x-amz-checksum-type header is invalid."},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum s3_sum_alg alg = S3_SUM_NONE;
        enum s3_sum_type type = S3_SUM_TYPE_NONE;
        bool is_default = false;
        struct err err = ERR_INIT;
        int rc = s3_sum_upload_type(str_c(cases[i].alg), str_c(cases[i].type), &alg, &type,
                                    &is_default, &err);
        assert_int_equal(rc == 0, cases[i].msg == NULL);
        if (rc == 0) {
            assert_int_equal(alg, cases[i].want_alg);
            assert_int_equal(type, cases[i].want_type);
            assert_int_equal(is_default, cases[i].alg == NULL);
        } else {
            assert_string_equal(err.name, "InvalidRequest");
            assert_int_equal(strncmp(err.msg, cases[i].msg, strlen(cases[i].msg)), 0);
        }
    }
}

/* Parts keep their upload's algorithm; what the client says of one is still compared. */
static void test_parts(void **state)
{
    struct s3_sum s = {.size = 0};
    struct s3_sum_result r;
    struct err err = ERR_INIT;
    struct s3_sum_want w = {.alg = S3_SUM_CRC32, .keep = S3_SUM_CRC32, .is_given = true};
    assert_int_equal(s3_sum_value_parse(S3_SUM_CRC32, STR("y/Q5Jg=="), &w.value), 0);
    assert_true(s3_sum_want_part(&w, S3_SUM_SHA256, false, &err) < 0);
    assert_string_equal(err.msg, "Checksum Type mismatch occurred, expected checksum Type: "
                                 "sha256, actual checksum Type: crc32");
    err_clear(&err);
    assert_int_equal(s3_sum_want_part(&w, S3_SUM_CRC64NVME, true, &err), 0);
    s3_sum_begin(&s, &w, false);
    s3_sum_add(&s, STR(DIGITS));
    assert_int_equal(s3_sum_end(&s, &r, NULL, NULL, &err), 0);
    check_text(&r.sum, 0, values[2].digits);
    s3_sum_begin(&s, &w, false);
    s3_sum_add(&s, STR("0"));
    assert_true(s3_sum_end(&s, &r, NULL, NULL, &err) < 0);
    s3_sum_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_begin_again_after_a_torn_body),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_sha256_of_the_head),
        cmocka_unit_test(test_multipart_checksum_types),
        cmocka_unit_test(test_upload_type),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
