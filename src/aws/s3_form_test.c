/* Browser uploads: the documented example, forms cut anywhere, policies that do not hold. */
#include "aws/s3_form.h"

#include "aws/s3_test_req.h"

#define NOW_NS    (T_2015_NS)
#define T_2015_NS (UINT64_C(1451347200) * NS_PER_S) /* 2015-12-29T00:00:00Z */

/* "Example: Browser-Based Upload using HTTP POST (Using AWS Signature Version 4)". */
static const char doc_policy[] =
    "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9ucyI6IFsNCiAgI"
    "CB7ImJ1Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRrZXkiLCAidX"
    "Nlci91c2VyMS8iXSwNCiAgICB7ImFjbCI6ICJwdWJsaWMtcmVhZCJ9LA0KICAgIHsic3VjY2Vzc19hY3Rpb25fcmV"
    "kaXJlY3QiOiAiaHR0cDovL3NpZ3Y0ZXhhbXBsZWJ1Y2tldC5zMy5hbWF6b25hd3MuY29tL3N1Y2Nlc3NmdWxfdXBs"
    "b2FkLmh0bWwifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRDb250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogICAge"
    "yJ4LWFtei1tZXRhLXV1aWQiOiAiMTQzNjUxMjM2NTEyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRlLWVuY3"
    "J5cHRpb24iOiAiQUVTMjU2In0sDQogICAgWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10YWciLCAiIl0sDQo"
    "NCiAgICB7IngtYW16LWNyZWRlbnRpYWwiOiAiQUtJQUlPU0ZPRE5ON0VYQU1QTEUvMjAxNTEyMjkvdXMtZWFzdC0x"
    "L3MzL2F3czRfcmVxdWVzdCJ9LA0KICAgIHsieC1hbXotYWxnb3JpdGhtIjogIkFXUzQtSE1BQy1TSEEyNTYifSwNC"
    "iAgICB7IngtYW16LWRhdGUiOiAiMjAxNTEyMjlUMDAwMDAwWiIgfQ0KICBdDQp9";
#define DOC_SIGNATURE  "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e"
#define DOC_CREDENTIAL KEY_ID "/20151229/us-east-1/s3/aws4_request"
#define DOC_REDIRECT   "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html"

struct pair {
    const char *name, *value;
};

static void put_part(struct buf *b, const char *name, const char *more, struct str value)
{
    buf_fmt(b, "--9431149156168\r\nContent-Disposition: form-data; name=\"%s\"%s\r\n\r\n", name,
            more);
    buf_add(b, value);
    buf_addc(b, "\r\n");
}

static void put_file(struct buf *b, const char *filename, struct str bytes)
{
    buf_fmt(
        b,
        "--9431149156168\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n"
        "Content-Type: image/jpeg\r\n\r\n",
        filename);
    buf_add(b, bytes);
    buf_addc(b, "\r\n");
}
#define TYPE "multipart/form-data; boundary=9431149156168"
#define END  "--9431149156168--\r\n"

struct parsed {
    struct s3_form *form;
    struct buf file;
    struct err err;
    int rc;
    int n_begins; /* how often the file began */
};
static void parsed_done(struct parsed *p)
{
    s3_form_free(p->form);
    buf_done(&p->file);
}
#define AUTO_PARSED AUTO(parsed_done) struct parsed

static void parse(struct parsed *p, const char *type, struct str body, size_t step)
{
    *p = (struct parsed){.rc = 0};
    buf_init(&p->file, 4u << 20);
    p->rc = s3_form_new(str_c(type), &p->form, &p->err);
    while (p->rc == 0 && body.n) {
        struct str in = {body.p, MIN(step, body.n)}, run;
        body = str_skip(body, in.n);
        while (p->rc == 0 && in.n) {
            enum s3_form_state before = s3_form_state(p->form);
            size_t n = in.n;
            p->rc = s3_form_next(p->form, &in, &run, &p->err);
            if (p->rc < 0) {
                break;
            }
            if (before == S3_FORM_FIELDS && s3_form_state(p->form) != S3_FORM_FIELDS) {
                p->n_begins++;
                assert_int_equal(run.n, 0); /* no byte of the file before it was announced */
            }
            assert_true(in.n < n || run.n > 0);
            buf_add(&p->file, run);
        }
    }
    p->rc = p->rc < 0 ? p->rc : s3_form_end(p->form, &p->err);
}

static const size_t steps[] = {1, 2, 3, 5, 17, 64, 1000, 1u << 20};

static void doc_form(struct buf *b)
{
    buf_init(b, 1u << 20);
    put_part(b, "key", "", STR("user/user1/${filename}"));
    put_part(b, "acl", "", STR("public-read"));
    put_part(b, "success_action_redirect", "", STR(DOC_REDIRECT));
    put_part(b, "Content-Type", "", STR("image/jpeg"));
    put_part(b, "x-amz-meta-uuid", "", STR("14365123651274"));
    put_part(b, "x-amz-server-side-encryption", "", STR("AES256"));
    put_part(b, "X-Amz-Credential", "", STR(DOC_CREDENTIAL));
    put_part(b, "X-Amz-Algorithm", "", STR("AWS4-HMAC-SHA256"));
    put_part(b, "X-Amz-Date", "", STR("20151229T000000Z"));
    put_part(b, "x-amz-meta-tag", "", STR(""));
    put_part(b, "Policy", "", str_c(doc_policy));
    put_part(b, "X-Amz-Signature", "", STR(DOC_SIGNATURE));
    put_file(b, "MyFilename.jpg", STR("file_content"));
    put_part(b, "submit", "", STR("Upload to Amazon S3"));
    buf_addc(b, END);
}

static void test_documented_form(void **state)
{
    struct s3_test *t = *state;
    AUTO_BUF body;
    doc_form(&body);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        AUTO_PARSED p;
        struct s3_form_upload up;
        struct sigv4_opts o = s3_test_opts(t);
        parse(&p, TYPE, buf_str(&body), steps[i]);
        assert_int_equal(p.rc, 0);
        assert_int_equal(p.n_begins, 1);
        assert_str(buf_str(&p.file), "file_content");
        assert_int_equal(s3_form_n_fields(p.form), 12);
        assert_str(s3_form_get(p.form, "KEY"), "user/user1/${filename}");
        assert_str(s3_form_filename(p.form), "MyFilename.jpg");
        assert_str(s3_form_file_type(p.form), "image/jpeg");
        assert_int_equal(s3_form_auth(t->a, &o, p.form, NOW_NS, &t->auth, NULL, &t->err), 0);
        assert_false(t->auth.is_anonymous);
        assert_str(t->auth.who.account, "123456789012");
        assert_int_equal(
            s3_form_check(t->a, p.form, STR("sigv4examplebucket"), NOW_NS, &up, NULL, &t->err),
            0);
        assert_str(up.key, "user/user1/MyFilename.jpg");
        assert_int_equal(up.success_status, 204);
        assert_str(up.redirect, DOC_REDIRECT);
        assert_str(s3_form_redirect(t->a, &up, STR("sigv4examplebucket"), STR("\"abc\"")),
                   DOC_REDIRECT "?bucket=sigv4examplebucket&key=user%2Fuser1%2FMyFilename.jpg&"
                                "etag=%22abc%22");
        assert_int_equal(up.n_headers, 5);
        assert_str(up.headers[0].name, "x-amz-acl");
        assert_str(up.headers[1].name, "Content-Type");
        /* another bucket, later, another signature */
        struct err err = ERR_INIT;
        assert_true(s3_form_check(t->a, p.form, STR("other"), NOW_NS, &up, NULL, &err) < 0);
        assert_string_equal(err.name, "AccessDenied");
        assert_string_equal(err.msg, "Invalid according to Policy: Policy Condition failed: "
                                     "[\"eq\", \"$bucket\", \"sigv4examplebucket\"]");
        err_clear(&err);
        assert_true(s3_form_check(t->a, p.form, STR("sigv4examplebucket"),
                                  NOW_NS + 37 * 3600 * NS_PER_S, &up, NULL, &err) < 0);
        assert_string_equal(err.msg, "Invalid according to Policy: Policy expired.");
        arena_reset(t->a);
    }
    for (size_t at = 0; at + 64 < body.n; at += 7) {
        struct sigv4_opts o = s3_test_opts(t);
        char *policy = strstr(buf_cstr(&body), "eyAi");
        if (body.p + at < policy || body.p + at >= policy + sizeof(doc_policy) - 1) {
            continue;
        }
        AUTO_PARSED p;
        struct err err = ERR_INIT;
        char before = body.p[at];
        body.p[at] = before == 'A' ? 'B' : 'A';
        parse(&p, TYPE, buf_str(&body), 4096);
        assert_true(s3_form_auth(t->a, &o, p.form, NOW_NS, &t->auth, NULL, &err) < 0);
        assert_string_equal(err.name, "SignatureDoesNotMatch");
        assert_null(t->auth.who.account.p);
        body.p[at] = before;
    }
}

/* ---- the body ---- */

#define PART(name, value) \
    "--b\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" value "\r\n"
#define FILE_PART(value)                                                                      \
    "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n" value "\r" \
    "\n"
#define B "multipart/form-data; boundary=b"

static const struct {
    const char *type, *body;
    const char *code; /* NULL: good */
    const char *file, *key;
} bodies[] = {
    {B, PART("key", "k") FILE_PART("data") "--b--\r\n", NULL, "data", "k"},
    {B, PART("key", "k") FILE_PART("data") "--b--", NULL, "data", "k"},
    {B, "preamble\r\n" PART("key", "k") FILE_PART("data") "--b--", NULL, "data", "k"},
    {B, "\r\n" PART("key", "k") FILE_PART("") "--b--", NULL, "", "k"},
    {"Multipart/Form-Data; charset=utf-8; boundary=\"b\"",
     PART("key", "k") FILE_PART("x") "--b--", NULL, "x", "k"},
    {B, PART("key", "k") FILE_PART("a\r\n--c\r\n-\r\n\r--\r\n--") "--b--", NULL,
     "a\r\n--c\r\n-\r\n\r--\r\n--", "k"},
    {B, PART("key", "k") FILE_PART("\r\n\r\n") "--b--", NULL, "\r\n\r\n", "k"},
    {B, PART("key", "a\r\nb") FILE_PART("x") "--b--", NULL, "x", "a\r\nb"},
    /* all that follows the file is thrown away */
    {B, PART("key", "k") FILE_PART("x") PART("key", "evil") FILE_PART("evil") "--b--", NULL,
     "x", "k"},
    {B, PART("key", "k") FILE_PART("x") "--b garbage", NULL, "x", "k"},
    /* names as clients write them */
    {B,
     "--b\r\ncontent-disposition:form-data;name=key\r\nContent-Type: text/plain\r\n\r\nk\r\n"
     "--b\r\nContent-Disposition: form-data; filename=\"C:\\dir\\x.jpg\"; name=\"file\"\r\n\r\n"
     "x\r\n--b--",
     NULL, "x", "k"},
    {B,
     "--b  \r\nContent-Disposition: form-data; name=\"k\\\"ey\"\r\n\r\nk\r\n" FILE_PART(
         "x") "--b--",
     NULL, "x", NULL},
    {B,
     "--b\r\nContent-Disposition: form-data; name=\"key\"; filename=\"key\"\r\n\r\nk\r\n"
     "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--",
     NULL, "x", "k"},
    /* not a form */
    {"text/plain", "x", "PreconditionFailed", NULL, NULL},
    {"", "x", "PreconditionFailed", NULL, NULL},
    {"multipart/form-data", "x", "MalformedPOSTRequest", NULL, NULL},
    {"multipart/form-data; boundary=", "x", "MalformedPOSTRequest", NULL, NULL},
    {"multipart/form-data; boundary=\"a\x01\"", "x", "MalformedPOSTRequest", NULL, NULL},
    {B, "", "MalformedPOSTRequest", NULL, NULL},
    {B, "garbage", "MalformedPOSTRequest", NULL, NULL},
    {B, PART("key", "k"), "MalformedPOSTRequest", NULL, NULL},
    {B, PART("key", "k") "--b--\r\n", "InvalidArgument", NULL, NULL}, /* no file */
    {B, "--b--\r\n", "InvalidArgument", NULL, NULL},
    {B, PART("key", "k") "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ndata",
     "MalformedPOSTRequest", NULL, NULL},
    {B, PART("key", "k") PART("KEY", "k") FILE_PART("x") "--b--", "InvalidArgument", NULL,
     NULL},
    {B, "--b\r\n\r\nk\r\n--b--", "MalformedPOSTRequest", NULL, NULL},
    {B, "--b\r\nContent-Disposition: form-data\r\n\r\nk\r\n--b--", "MalformedPOSTRequest", NULL,
     NULL},
    {B, "--b\r\nContent-Disposition: attachment; name=\"key\"\r\n\r\nk\r\n--b--",
     "MalformedPOSTRequest", NULL, NULL},
    {B, "--b\r\nContent-Type: text/plain\r\n\r\nk\r\n--b--", "MalformedPOSTRequest", NULL,
     NULL},
    {B, "--bX\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--b--",
     "MalformedPOSTRequest", NULL, NULL},
};

static void test_bodies(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
            AUTO_PARSED p;
            parse(&p, bodies[i].type, str_c(bodies[i].body), steps[k]);
            const char *got = p.rc < 0 ? p.err.name : NULL;
            if ((got == NULL) != (bodies[i].code == NULL) ||
                (got && strcmp(got, bodies[i].code) != 0)) {
                fail_msg("case %zu in steps of %zu: %s", i, steps[k], got ? got : "good");
            }
            if (!got) {
                assert_str(buf_str(&p.file), bodies[i].file);
                if (bodies[i].key) {
                    assert_str(s3_form_get(p.form, "key"), bodies[i].key);
                }
            }
        }
    }
    AUTO_PARSED p;
    parse(&p, B, str_c(bodies[10].body), 7);
    assert_str(s3_form_filename(p.form), "x.jpg");
}

/* What comes before the file has a limit, however it is cut. */
static void test_fields_are_bounded(void **state)
{
    AUTO_BUF big, many, head;
    buf_init(&big, 1u << 20);
    buf_init(&many, 1u << 20);
    buf_init(&head, 1u << 20);
    buf_addc(&big, "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n");
    buf_addc(&head, "--b\r\nContent-Disposition: form-data; name=\"");
    for (int i = 0; i < 30000; i++) {
        buf_add_char(&big, 'x');
        buf_add_char(&head, ';');
    }
    for (int i = 0; i < 300; i++) {
        buf_fmt(&many, "--b\r\nContent-Disposition: form-data; name=f%d\r\n\r\n\r\n", i);
    }
    const struct str all[] = {buf_str(&big), buf_str(&many), buf_str(&head)};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        for (size_t k = 2; k < ARRAY_LEN(steps); k++) {
            AUTO_PARSED p;
            parse(&p, B, all[i], steps[k]);
            assert_true(p.rc < 0);
            assert_string_equal(p.err.name, "MaxPostPreDataLengthExceededError");
        }
    }
    /* A large file is none of it. */
    AUTO_BUF file;
    buf_init(&file, 4u << 20);
    buf_addc(&file, PART("key", "k"));
    buf_addc(&file, "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n");
    for (int i = 0; i < 200000; i++) {
        buf_addc(&file, "\r\n--x");
    }
    buf_addc(&file, "\r\n--b--");
    AUTO_PARSED p;
    parse(&p, B, buf_str(&file), 65536);
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.file.n, 1000000);
}

/* ---- who ---- */

#define V4                                                                       \
    {"x-amz-algorithm", "AWS4-HMAC-SHA256"}, {"x-amz-date", "20151229T000000Z"}, \
    {                                                                            \
        "x-amz-signature", DOC_SIGNATURE                                         \
    }
static const struct {
    struct pair fields[6];
    unsigned flags;
    const char *code, *msg;
} credentials[] = {
    {{{"key", "k"}}, 0, NULL, NULL}, /* nobody */
    {{{"policy", doc_policy}, {"x-amz-credential", DOC_CREDENTIAL}, V4}, 0, NULL, NULL},
    {{{"x-amz-credential", DOC_CREDENTIAL}, V4},
     0,
     "InvalidArgument",
     "Bucket POST must contain a field named 'policy'."},
    {{{"policy", doc_policy}, V4},
     0,
     "InvalidArgument",
     "Bucket POST must contain a field named 'X-Amz-Credential'."},
    {{{"policy", doc_policy}},
     0,
     "InvalidArgument",
     "Bucket POST must contain a field named 'X-Amz-Algorithm'."},
    {{{"policy", doc_policy}, {"x-amz-credential", "x"}, V4},
     0,
     "AuthorizationQueryParametersError",
     "Error parsing the X-Amz-Credential"},
    {{{"policy", doc_policy},
      {"x-amz-credential", KEY_ID "/20151229/eu-west-1/s3/aws4_request"},
      V4},
     0,
     "AuthorizationQueryParametersError",
     "Error parsing the X-Amz-Credential parameter; the region 'eu-west-1' is wrong"},
    {{{"policy", doc_policy},
      {"x-amz-credential", KEY_ID "/20151230/us-east-1/s3/aws4_request"},
      V4},
     0,
     "AuthorizationQueryParametersError",
     "X-Amz-Date"},
    {{{"policy", doc_policy},
      {"x-amz-credential", "NOBODY/20151229/us-east-1/s3/aws4_request"},
      V4},
     0,
     "InvalidAccessKeyId",
     ""},
    {{{"policy", "eyAiZQ=="}, {"x-amz-credential", DOC_CREDENTIAL}, V4},
     0,
     "SignatureDoesNotMatch",
     ""},
    {{{"policy", doc_policy},
      {"x-amz-credential", DOC_CREDENTIAL},
      {"x-amz-security-token", "x"},
      V4},
     0,
     "InvalidToken",
     ""},
    /* the old signature: only where it is allowed */
    {{{"policy", doc_policy}, {"AWSAccessKeyId", KEY_ID}, {"signature", "x"}},
     0,
     "InvalidRequest",
     "The authorization mechanism you have provided is not supported."},
    {{{"policy", doc_policy},
      {"AWSAccessKeyId", KEY_ID},
      {"signature", "dCdpN7Qj+lLnlj3k5jJNRMDUvXk="}},
     S3_FORM_OLD_SIGNATURE,
     "SignatureDoesNotMatch",
     ""},
    {{{"policy", doc_policy}, {"AWSAccessKeyId", "NOBODY"}, {"signature", "x"}},
     S3_FORM_OLD_SIGNATURE,
     "InvalidAccessKeyId",
     ""},
    {{{"policy", doc_policy}, {"AWSAccessKeyId", KEY_ID}},
     S3_FORM_OLD_SIGNATURE,
     "InvalidArgument",
     "Bucket POST must contain a field named 'signature'."},
    {{{"policy", doc_policy}, {"AWSAccessKeyId", KEY_ID}, V4},
     S3_FORM_OLD_SIGNATURE,
     "InvalidArgument",
     "Only one auth mechanism allowed"},
    {{{"AWSAccessKeyId", KEY_ID}, {"signature", "x"}},
     S3_FORM_OLD_SIGNATURE,
     "InvalidArgument",
     "Bucket POST must contain a field named 'policy'."},
};

static void test_form_credentials(void **state)
{
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(credentials); i++) {
        AUTO_BUF body;
        AUTO_PARSED p;
        struct err err = ERR_INIT;
        struct sigv4_opts o = s3_test_opts(t);
        o.flags = credentials[i].flags;
        buf_init(&body, 1u << 20);
        for (size_t k = 0;
             k < ARRAY_LEN(credentials[i].fields) && credentials[i].fields[k].name; k++) {
            put_part(&body, credentials[i].fields[k].name, "",
                     str_c(credentials[i].fields[k].value));
        }
        put_file(&body, "f", STR("x"));
        buf_addc(&body, END);
        parse(&p, TYPE, buf_str(&body), 4096);
        assert_int_equal(p.rc, 0);
        int rc = s3_form_auth(t->a, &o, p.form, NOW_NS, &t->auth, NULL, &err);
        if ((rc == 0) != (credentials[i].code == NULL) ||
            (rc < 0 &&
             (strcmp(err.name, credentials[i].code) != 0 ||
              strncmp(err.msg, credentials[i].msg, strlen(credentials[i].msg)) != 0))) {
            fail_msg("case %zu: %s: %s", i, err.name ? err.name : "good", err.msg);
        }
        assert_int_equal(t->auth.is_anonymous, i == 0);
        assert_int_equal(str_is_set(t->auth.who.account), rc == 0 && i > 0);
    }
}

/* HMAC-SHA1 of the policy, as computed with hmac and hashlib. */
static void test_old_signature(void **state)
{
    struct s3_test *t = *state;
    AUTO_BUF body;
    AUTO_PARSED p;
    struct sigv4_opts o = s3_test_opts(t);
    o.flags = S3_FORM_OLD_SIGNATURE;
    buf_init(&body, 1u << 20);
    put_part(&body, "AWSAccessKeyId", "", STR(KEY_ID));
    put_part(&body, "policy", "", STR("eyJleHBpcmF0aW9uIjogIngifQ=="));
    put_part(&body, "signature", "", STR("eKg5vh3g/xzjcoPi7YHUzde867o="));
    put_file(&body, "f", STR("x"));
    buf_addc(&body, END);
    parse(&p, TYPE, buf_str(&body), 4096);
    assert_int_equal(s3_form_auth(t->a, &o, p.form, NOW_NS, &t->auth, NULL, &t->err), 0);
    assert_str(t->auth.who.account, "123456789012");
}

static void test_what_a_form_wants(void **state)
{
    static const struct {
        struct pair fields[4];
        const char *code;
        int status;
        const char *redirect;
    } cases[] = {
        {{{"key", "k"}}, NULL, 204, NULL},
        {{{"key", "k"}, {"success_action_status", "201"}}, NULL, 201, NULL},
        {{{"key", "k"}, {"success_action_status", "200"}}, NULL, 200, NULL},
        {{{"key", "k"}, {"success_action_status", "404"}}, NULL, 204, NULL},
        {{{"key", "k"}, {"redirect", "https://x/y?z=1"}}, NULL, 204, "https://x/y?z=1"},
        {{{"key", "k"}, {"success_action_redirect", "javascript:alert(1)"}}, NULL, 204, NULL},
        {{{"key", "k"}, {"success_action_redirect", "http://x/ y"}}, NULL, 204, NULL},
        {{{"key", "k"}, {"success_action_redirect", "http://x\r\nSet-Cookie: a"}},
         NULL,
         204,
         NULL},
        {{{"acl", "private"}}, "InvalidArgument", 0, NULL},
        {{{"key", ""}}, "UserKeyMustBeSpecified", 0, NULL},
        {{{"key", "k"}, {"x-amz-meta-a", "1\r\nX: y"}}, "InvalidArgument", 0, NULL},
        {{{"key", "k"}, {"x-amz-meta-a: b", "1"}}, "InvalidArgument", 0, NULL},
        {{{"key", "k"}, {"Content-Type", "a\nb"}}, "InvalidArgument", 0, NULL},
        {{{"key", "k"}, {"policy", "%%%"}}, "InvalidPolicyDocument", 0, NULL},
        {{{"key", "\xff"}}, "InvalidURI", 0, NULL},
    };
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF body;
        AUTO_PARSED p;
        struct err err = ERR_INIT;
        struct s3_form_upload up;
        buf_init(&body, 1u << 20);
        for (size_t k = 0; k < ARRAY_LEN(cases[i].fields) && cases[i].fields[k].name; k++) {
            put_part(&body, cases[i].fields[k].name, "", str_c(cases[i].fields[k].value));
        }
        put_file(&body, "f", STR("x"));
        buf_addc(&body, END);
        parse(&p, TYPE, buf_str(&body), 4096);
        assert_int_equal(p.rc, 0);
        int rc = s3_form_check(t->a, p.form, STR("b1"), NOW_NS, &up, NULL, &err);
        if ((rc == 0) != (cases[i].code == NULL) ||
            (rc < 0 && strcmp(err.name, cases[i].code) != 0)) {
            fail_msg("case %zu: %s: %s", i, err.name ? err.name : "good", err.msg);
        }
        if (rc == 0) {
            assert_int_equal(up.success_status, cases[i].status);
            assert_true(cases[i].redirect ? str_eqc(up.redirect, cases[i].redirect)
                                          : !str_is_set(up.redirect));
            assert_int_equal(up.max_size, UINT64_MAX);
        }
    }
}

/* Anybody may send such a head: the time that it takes must not grow with the square of it. */
static void test_headers_of_many_parameters(void **state)
{
    AUTO_BUF type;
    buf_init(&type, 64u << 10);
    buf_addc(&type, "multipart/form-data");
    for (size_t i = 0; i < 30000; i++) {
        buf_addc(&type, ";a");
    }
    buf_addc(&type, "; boundary=b");
    struct s3_form *f = NULL;
    struct err err = ERR_INIT;
    assert_true(s3_form_new(buf_str(&type), &f, &err) < 0);
    assert_string_equal(err.name, "MalformedPOSTRequest");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_of_many_parameters),
        cmocka_unit_test_setup_teardown(test_documented_form, s3_test_setup, s3_test_teardown),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_fields_are_bounded),
        cmocka_unit_test_setup_teardown(test_form_credentials, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_old_signature, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_what_a_form_wants, s3_test_setup,
                                        s3_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
