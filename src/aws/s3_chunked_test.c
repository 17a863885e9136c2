/* aws-chunked bodies: AWS's documented uploads, every way of cutting them, every way of being
 * wrong. */
#include "aws/s3_chunked.h"

#include "aws/s3_test_req.h"
#include "crypto/crc.h"

#define SIG1   "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"
#define SIG2   "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"
#define SIG3   "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"
#define T_SIG1 "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"
#define T_SIG2 "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"
#define T_SIG3 "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"
#define T_SIG4 "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"

enum { SIZE_1 = 65536, SIZE_2 = 1024, SIZE = SIZE_1 + SIZE_2 };

static void auth_of(struct s3_auth *auth, enum s3_payload kind, uint64_t length,
                    const char *trailer)
{
    static struct str names[1];
    *auth = (struct s3_auth){.payload = kind,
                             .scope = STR("20130524/us-east-1/s3/aws4_request"),
                             .amz_date = STR("20130524T000000Z"),
                             .decoded_length = length};
    sigv4_signing_key(STR(SECRET), STR("20130524"), STR("us-east-1"), STR("s3"),
                      auth->signing_key);
    const char *seed = kind == S3_PAYLOAD_SIGNED
                           ? "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
                           : "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
    memcpy(auth->seed_signature, seed, 65);
    names[0] = str_c(trailer);
    if (trailer) {
        auth->trailers = (struct aws_str_list){.v = names, .n = 1, .is_set = true};
    }
}

struct result {
    struct buf out;
    struct err err;
    bool is_good;
    struct s3_chunked c;
};
static void result_done(struct result *r)
{
    buf_done(&r->out);
    s3_chunked_done(&r->c);
}

/* Decodes in pieces of 'step' bytes. */
static void decode(struct result *r, const struct s3_auth *auth, struct str body, size_t step)
{
    r->err = (struct err)ERR_INIT;
    buf_init(&r->out, 1u << 20);
    assert_int_equal(s3_chunked_init(&r->c, auth, NULL), 0);
    int rc = 0;
    while (rc == 0 && body.n) {
        struct str in = {body.p, MIN(step, body.n)}, run;
        body = str_skip(body, in.n);
        while (rc == 0 && in.n) {
            const char *from = in.p;
            size_t n = in.n;
            rc = s3_chunked_next(&r->c, &in, &run, &r->err);
            if (rc == 0 && run.n) {
                assert_true(run.p >= from && run.p + run.n <= from + n); /* no copy */
                buf_add(&r->out, run);
            }
            assert_true(rc < 0 || in.n < n);
        }
    }
    rc = rc < 0 ? rc : s3_chunked_end(&r->c, &r->err);
    r->is_good = rc == 0;
    assert_true(r->out.n <= auth->decoded_length); /* never more than was promised */
    if (rc < 0) {
        struct err again = ERR_INIT;
        assert_int_equal(s3_chunked_end(&r->c, &again), rc); /* an error is final */
        assert_string_equal(again.name, r->err.name);
    }
}
#define AUTO_RESULT AUTO(result_done) struct result

static struct str chunk(struct buf *b, size_t n, const char *sig)
{
    buf_fmt(b, "%zx", n);
    if (sig) {
        buf_fmt(b, ";chunk-signature=%s", sig);
    }
    buf_addc(b, "\r\n");
    char *p = buf_reserve(b, n + 2);
    assert_non_null(p);
    memset(p, 'a', n);
    memcpy(p + n, "\r\n", 2);
    buf_commit(b, n ? n + 2 : 0);
    return buf_str(b);
}

static void signed_body(struct buf *b)
{
    buf_init(b, 1u << 20);
    chunk(b, SIZE_1, SIG1);
    chunk(b, SIZE_2, SIG2);
    chunk(b, 0, SIG3);
    buf_addc(b, "\r\n");
}

static void trailer_body(struct buf *b)
{
    buf_init(b, 1u << 20);
    chunk(b, SIZE_1, T_SIG1);
    chunk(b, SIZE_2, T_SIG2);
    chunk(b, 0, T_SIG3);
    buf_addc(b, "x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:" T_SIG4 "\r\n\r\n");
}

static const size_t steps[] = {1, 2, 3, 63, 64, 65, 1000, 65535, 65536, 1u << 20};

static void test_documented_upload(void **state)
{
    struct s3_auth auth;
    AUTO_BUF body;
    signed_body(&body);
    assert_int_equal(body.n, 66824); /* the documentation's Content-Length */
    auth_of(&auth, S3_PAYLOAD_SIGNED, SIZE, NULL);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        AUTO_RESULT r;
        decode(&r, &auth, buf_str(&body), steps[i]);
        assert_true(r.is_good && s3_chunked_is_done(&r.c));
        assert_int_equal(r.out.n, SIZE);
        for (size_t k = 0; k < r.out.n; k++) {
            assert_int_equal(r.out.p[k], 'a');
        }
    }
}

static void test_documented_upload_with_trailer(void **state)
{
    struct s3_auth auth;
    AUTO_BUF body;
    trailer_body(&body);
    auth_of(&auth, S3_PAYLOAD_SIGNED_TRAILER, SIZE, "x-amz-checksum-crc32c");
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        AUTO_RESULT r;
        struct str name, value;
        decode(&r, &auth, buf_str(&body), steps[i]);
        assert_true(r.is_good);
        assert_int_equal(r.out.n, SIZE);
        assert_true(s3_chunked_trailer(&r.c, 0, &name, &value));
        assert_str(name, "x-amz-checksum-crc32c");
        assert_str(value, "sOO8/Q==");
        assert_false(s3_chunked_trailer(&r.c, 1, &name, &value));
    }
}

/* No byte of a signed body can be changed, none can be left out. */
static void test_forged_bytes(void **state)
{
    for (int kind = 0; kind < 2; kind++) {
        struct s3_auth auth;
        AUTO_BUF body;
        if (kind) {
            trailer_body(&body);
            auth_of(&auth, S3_PAYLOAD_SIGNED_TRAILER, SIZE, "x-amz-checksum-crc32c");
        } else {
            signed_body(&body);
            auth_of(&auth, S3_PAYLOAD_SIGNED, SIZE, NULL);
        }
        /* The last line end is the coding's, not the payload's: some clients leave it out. */
        for (size_t i = 0; i + 2 < body.n; i += i > 200 && i < 65500 ? 997 : 1) {
            AUTO_RESULT r, cut;
            char before = body.p[i];
            body.p[i] = before == 'a' ? 'b' : 'a';
            decode(&r, &auth, buf_str(&body), 4096);
            assert_false(r.is_good);
            body.p[i] = before;
            decode(&cut, &auth, str_n(body.p, i), 4096);
            assert_false(cut.is_good);
            assert_string_equal(cut.err.name, "IncompleteBody");
        }
    }
}

/* Good chunks in another order, one twice, one left out, another's end. */
static void test_reordered_chunks(void **state)
{
    struct s3_auth auth;
    AUTO_BUF a, b, c, d;
    auth_of(&auth, S3_PAYLOAD_SIGNED, SIZE, NULL);
    struct buf *const all[] = {&a, &b, &c, &d};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        buf_init(all[i], 1u << 20);
    }
    chunk(&a, SIZE_2, SIG2);
    chunk(&a, SIZE_1, SIG1);
    chunk(&b, SIZE_1, SIG1);
    chunk(&b, SIZE_1, SIG1);
    chunk(&c, SIZE_1, SIG1);
    chunk(&d, SIZE_1, SIG1);
    chunk(&d, SIZE_2, T_SIG2);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        AUTO_RESULT r;
        chunk(all[i], 0, SIG3);
        buf_addc(all[i], "\r\n");
        decode(&r, &auth, buf_str(all[i]), 1u << 20);
        assert_false(r.is_good);
    }
    /* A chunk whose signature does not hold is not given out at its end. */
    AUTO_RESULT r;
    decode(&r, &auth, buf_str(&a), 1u << 20);
    assert_int_equal(r.out.n, 0);
    assert_string_equal(r.err.name, "SignatureDoesNotMatch");
}

#define U S3_PAYLOAD_UNSIGNED_TRAILER
#define T "x-amz-checksum-crc32"
static const struct {
    const char *body;
    const char *trailer;
    uint64_t length;
    const char *code, *out;
} unsigned_cases[] = {
    /* as botocore sends it */
    {"5\r\nhello\r\n0\r\n" T ":NhCmhg==\r\n\r\n", T, 5, NULL, "hello"},
    {"5\r\nhello\r\n0\r\n" T ": NhCmhg== \r\n\r\n", T, 5, NULL, "hello"},
    {"0\r\n" T ":AAAAAA==\r\n\r\n", T, 0, NULL, ""},
    {"0\r\n\r\n", NULL, 0, NULL, ""},
    {"5\r\nhello\r\n0\r\nX-Amz-Checksum-CRC32:NhCmhg==\r\n\r\n", T, 5, NULL, "hello"},
    /* line ends as some clients write them */
    {"5\r\nhello\r\n0\r\n" T ":NhCmhg==\n\r\n", T, 5, NULL, "hello"},
    {"5\r\nhello\r\n0\r\n" T ":NhCmhg==\r\n", T, 5, NULL, "hello"},
    {"5\r\nhello\r\n0\r\n" T ":NhCmhg==\n\r\n\r\n", T, 5, NULL, "hello"},
    {"5\r\nhello\r\n0\r\n\r\n\r\n", NULL, 5, NULL, "hello"},
    {"00000005\r\nhello\r\n0\r\n\r\n", NULL, 5, NULL, "hello"},
    {"A\r\n0123456789\r\n0\r\n\r\n", NULL, 10, NULL, "0123456789"},
    /* sizes */
    {"5\r\nhello\r\n0\r\n\r\n", NULL, 6, "IncompleteBody", NULL},
    {"5\r\nhello\r\n0\r\n\r\n", NULL, 4, "IncompleteBody", NULL},
    {"6\r\nhello\r\n0\r\n\r\n", NULL, 6, "IncompleteBody", NULL},
    {"4\r\nhello\r\n0\r\n\r\n", NULL, 4, "IncompleteBody", NULL},
    {"-5\r\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"+5\r\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {" 5\r\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"0x5\r\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"\r\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"5;x=y\r\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"5\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"5\r\nhello\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"ffffffffffffffff\r\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"10000000000000005\r\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"140000001\r\nhello", NULL, UINT64_C(1) << 40, "IncompleteBody", NULL},
    {"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", NULL, 5, "InvalidChunkSizeError", NULL},
    /* the end */
    {"", NULL, 0, "IncompleteBody", NULL},
    {"5\r\nhello\r\n", NULL, 5, "IncompleteBody", NULL},
    {"5\r\nhello\r\n0", NULL, 5, "IncompleteBody", NULL},
    {"5\r\nhello\r\n0\r\n" T ":NhCm", T, 5, "IncompleteBody", NULL},
    {"5\r\nhello\r\n0\r\n\r\nX", NULL, 5, "IncompleteBody", NULL},
    {"5\r\nhello\r\n0\r\n\r\n\r\n\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    {"5\r\nhello\r\n0\r\n\r\n5\r\nhello\r\n0\r\n\r\n", NULL, 5, "IncompleteBody", NULL},
    /* trailers */
    {"5\r\nhello\r\n0\r\n\r\n", T, 5, "MalformedTrailerError", NULL},
    {"5\r\nhello\r\n0\r\n", T, 5, "IncompleteBody", NULL},
    {"5\r\nhello\r\n0\r\n" T ":NhCmhg==\r\n\r\n", NULL, 5, "MalformedTrailerError", NULL},
    {"5\r\nhello\r\n0\r\n" T ":a\r\n" T ":b\r\n\r\n", T, 5, "MalformedTrailerError", NULL},
    {"5\r\nhello\r\n0\r\n" T "\r\n\r\n", T, 5, "MalformedTrailerError", NULL},
    {"5\r\nhello\r\n0\r\n:x\r\n\r\n", T, 5, "MalformedTrailerError", NULL},
    {"5\r\nhello\r\n0\r\n" T ":\x01\r\n\r\n", T, 5, "MalformedTrailerError", NULL},
    {"5\r\nhello\r\n0\r\nx-amz-trailer-signature:" SIG1 "\r\n\r\n", NULL, 5,
     "MalformedTrailerError", NULL},
    {"5\r\nhello\r\n0\r\nx-amz-checksum-crc3:NhCmhg==\r\n\r\n", T, 5, "MalformedTrailerError",
     NULL},
};

static void test_unsigned_trailer(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(unsigned_cases); i++) {
        struct s3_auth auth;
        auth_of(&auth, U, unsigned_cases[i].length, unsigned_cases[i].trailer);
        for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
            AUTO_RESULT r;
            decode(&r, &auth, str_c(unsigned_cases[i].body), steps[k]);
            const char *got = r.is_good ? NULL : r.err.name;
            const char *want = unsigned_cases[i].code;
            if ((got == NULL) != (want == NULL) || (got && strcmp(got, want) != 0)) {
                fail_msg("case %zu in steps of %zu: %s", i, steps[k], got ? got : "good");
            }
            if (!want) {
                assert_str(buf_str(&r.out), unsigned_cases[i].out);
            }
        }
    }
}

/* Bug 2 of the research: the unsigned kind has no trailer signature, the signed kind must. */
static void test_trailer_signature_only_where_it_belongs(void **state)
{
    struct s3_auth auth;
    AUTO_BUF body;
    AUTO_RESULT r, wrong;
    trailer_body(&body);
    auth_of(&auth, S3_PAYLOAD_SIGNED_TRAILER, SIZE, "x-amz-checksum-crc32c");
    size_t at = (size_t)str_find_str(buf_str(&body), STR("x-amz-trailer-signature"));
    decode(&r, &auth, str_n(body.p, at), 4096);
    assert_false(r.is_good);
    assert_string_equal(r.err.name, "IncompleteBody");
    body.p[at + 24] = '0';
    decode(&wrong, &auth, buf_str(&body), 4096);
    assert_false(wrong.is_good);
    assert_string_equal(wrong.err.name, "SignatureDoesNotMatch");
}

/* An empty line before the trailer's signature, as one widespread client writes it. */
static void test_empty_line_before_trailer_signature(void **state)
{
    struct s3_auth auth;
    AUTO_BUF body;
    AUTO_RESULT r;
    buf_init(&body, 1u << 20);
    chunk(&body, SIZE_1, T_SIG1);
    chunk(&body, SIZE_2, T_SIG2);
    chunk(&body, 0, T_SIG3);
    buf_addc(&body,
             "x-amz-checksum-crc32c:sOO8/Q==\n\r\nx-amz-trailer-signature:" T_SIG4 "\r\n\r\n");
    auth_of(&auth, S3_PAYLOAD_SIGNED_TRAILER, SIZE, "x-amz-checksum-crc32c");
    decode(&r, &auth, buf_str(&body), 4096);
    assert_true(r.is_good);
}

/* Lines have a limit, whatever comes. */
static void test_long_lines(void **state)
{
    struct s3_auth auth;
    char text[4096];
    memset(text, '0', sizeof(text));
    auth_of(&auth, U, 5, T);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        AUTO_RESULT r, t;
        decode(&r, &auth, str_n(text, sizeof(text)), steps[i]);
        assert_string_equal(r.err.name, "IncompleteBody");
        memcpy(text, "5\r\nhello\r\n0\r\n", 13);
        decode(&t, &auth, str_n(text, sizeof(text)), steps[i]);
        assert_string_equal(t.err.name, "MalformedTrailerError");
        memset(text, '0', sizeof(text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documented_upload),
        cmocka_unit_test(test_documented_upload_with_trailer),
        cmocka_unit_test(test_forged_bytes),
        cmocka_unit_test(test_reordered_chunks),
        cmocka_unit_test(test_unsigned_trailer),
        cmocka_unit_test(test_trailer_signature_only_where_it_belongs),
        cmocka_unit_test(test_empty_line_before_trailer_signature),
        cmocka_unit_test(test_long_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
