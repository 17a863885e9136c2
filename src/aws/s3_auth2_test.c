#include "aws/s3_auth2.h"
#include "aws/s3_form.h"
#include "aws/s3_test_req.h"

#define DATE    "Date: Fri, 24 May 2013 00:00:00 +0000\n"
#define BY(sig) "Authorization: AWS " KEY_ID ":" sig "\n"
#define URL(sig) \
    "AWSAccessKeyId=" KEY_ID "&Expires=1369353660&Signature=" sig /* a minute of it is left */
#define GET_SIG "P9EuttsIaBZftXLy8wn6PZzM/Wk="

/* Signatures were computed with hmac and hashlib over the strings that the protocol names. */
static const struct {
    const char *text, *vhost_bucket, *code; /* "": good */
} rows[] = {
    {"GET /b/k\n" DATE BY(GET_SIG), NULL, ""},
    {"GET /k\n" DATE BY("pvVdaji/93fK3WKkM5J2VXbwR4s="), "bucket", ""},
    {"GET /bucket/k\n" DATE BY("pvVdaji/93fK3WKkM5J2VXbwR4s="), NULL, ""}, /* the same object */
    {"GET /bucket/k\n" DATE BY("pvVdaji/93fK3WKkM5J2VXbwR4s="), "other",
     "SignatureDoesNotMatch"},
    {"PUT /b/k\nX-Amz-Meta-B: x\nContent-Type: text/plain\nx-amz-meta-a: 1\nx-amz-meta-A: 2\n"
     "x-amz-acl: private\nContent-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\nDate: not looked at\n"
     "x-amz-date: Fri, 24 May 2013 00:00:00 +0000\n" BY("Sut0mizwp8/fN8CFxBgXuKmzI3w="),
     NULL, ""},
    {"GET /b/k?versionId=null&tagging&response-content-type=text%2Fplain%3B%20x\n" DATE BY(
         "NxEUad9c7yFZD9C7gBWGgZ364ZA="),
     NULL, ""},
    {"GET /b?prefix=a&list-type=2&max-keys=5\n" DATE BY("ubm5H5K4jBBuCx1+BvtJTClxU48="), NULL,
     ""},
    {"GET /b?uploads\n" DATE BY("37Dnreb+89oav3d8p1yMm7z1C88="), NULL, ""},
    {"GET /b/k?uploads\n" DATE BY("KTtC3XBcMDNYMYqXJ1bRLF0pu4A="), NULL,
     "SignatureDoesNotMatch"},
    {"GET /b/a%20k?" URL("8HZLBv%2BVZMPtsx%2Fg4BJOek06A7E%3D") "\n", NULL, ""},
    {"GET /b/a%20k?" URL("8HZLBv+VZMPtsx/g4BJOek06A7E=") "\n", NULL, ""},
    {"PUT /b/k?x-amz-acl=private&content-type=text%2Fx&" URL(
         "iM1Dk9oXN%2BzxP%2BjwtVNkleFlz6c%3D") "\nx-amz-acl: private\n",
     NULL, ""},
    /* what was not signed */
    {"GET /b/k2\n" DATE BY(GET_SIG), NULL, "SignatureDoesNotMatch"},
    {"PUT /b/k\n" DATE BY(GET_SIG), NULL, "SignatureDoesNotMatch"},
    {"GET /b/k?acl\n" DATE BY(GET_SIG), NULL, "SignatureDoesNotMatch"},
    {"GET /b/k?attributes\n" DATE BY(GET_SIG), NULL, "AccessDenied"},
    {"GET /b/k?renameObject\n" DATE BY(GET_SIG), NULL, "AccessDenied"},
    {"GET /b/k\nx-amz-meta-a: 1\n" DATE BY(GET_SIG), NULL, "SignatureDoesNotMatch"},
    {"GET /b/k?x-amz-meta-a=1\n" DATE BY(GET_SIG), NULL, "SignatureDoesNotMatch"},
    {"GET /b/a%20k?x-amz-acl=private&" URL("8HZLBv%2BVZMPtsx%2Fg4BJOek06A7E%3D") "\n", NULL,
     "SignatureDoesNotMatch"},
    {"PUT /b/k?x-amz-acl=private&content-type=text%2Fx&" URL(
         "iM1Dk9oXN%2BzxP%2BjwtVNkleFlz6c%3D") "\nx-amz-acl: public-read\n",
     NULL, "SignatureDoesNotMatch"},
    {"PUT /b/k?x-amz-acl=private&content-type=text%2Fx&" URL(
         "iM1Dk9oXN%2BzxP%2BjwtVNkleFlz6c%3D") "\nContent-Type: text/y\n",
     NULL, "SignatureDoesNotMatch"},
    {"GET /b/k\nContent-Type: text/x\n" DATE BY(GET_SIG), NULL, "SignatureDoesNotMatch"},
    {"GET /b/k\n" DATE BY("P9EuttsIaBZftXLy8wn6PZzM/Wk"), NULL, "SignatureDoesNotMatch"},
    /* keys */
    {"GET /b/k\n" DATE "Authorization: AWS AKIANOBODY:x\n", NULL, "InvalidAccessKeyId"},
    {"GET /b/k\n" DATE "Authorization: AWS AKIAINACTIVE:x\n", NULL, "InvalidAccessKeyId"},
    {"GET /b/k\n" DATE "Authorization: AWS BROKENSTORE:x\n", NULL, "StoreBroken"},
    {"GET /b/k\n" DATE "Authorization: AWS ASIATEMP:x\n", NULL, "InvalidAccessKeyId"},
    {"GET /b/k\nx-amz-security-token: good/token+x=\n" DATE
     "Authorization: AWS ASIATEMP:ABJ3xZM+DgtEEiOuNa2gRErr4NA=\n",
     NULL, ""},
    {"GET /b/k\nx-amz-security-token: other\n" DATE
     "Authorization: AWS ASIATEMP:ABJ3xZM+DgtEEiOuNa2gRErr4NA=\n",
     NULL, "InvalidToken"},
    {"GET "
     "/b/k?AWSAccessKeyId=ASIATEMP&x-amz-security-token=good%2Ftoken%2Bx%3D&Expires=1369353660"
     "&Signature=F2SkUHNkyb53zH3RNpEvDz9aWgo%3D\n",
     NULL, ""},
    /* time */
    {"GET /b/k\n" BY(GET_SIG), NULL, "AccessDenied"},
    {"GET /b/k\nx-amz-date: Bad Date\n" DATE BY(GET_SIG), NULL, "AccessDenied"},
    {"GET /b/k\nx-amz-date:\n" DATE BY(GET_SIG), NULL, "AccessDenied"},
    {"GET /b/k\nDate: Tue, 07 Jul 1950 21:53:04 GMT\n" BY(GET_SIG), NULL, "AccessDenied"},
    {"GET /b/k\nDate: Tue, 07 Jul 2010 21:53:04 GMT\n" BY(GET_SIG), NULL,
     "RequestTimeTooSkewed"},
    {"GET /b/k\nDate: Tue, 07 Jul 2030 21:53:04 GMT\n" BY(GET_SIG), NULL,
     "RequestTimeTooSkewed"},
    {"GET /b/k?AWSAccessKeyId=" KEY_ID "&Expires=1369353600&Signature=x\n", NULL,
     "AccessDenied"},
    {"GET /b/k?AWSAccessKeyId=" KEY_ID "&Expires=soon&Signature=x\n", NULL, "AccessDenied"},
    {"GET /b/k?AWSAccessKeyId=" KEY_ID "&Expires=99999999999999999999&Signature=x\n", NULL,
     "AccessDenied"},
    /* not complete, or twice */
    {"GET /b/k?AWSAccessKeyId=" KEY_ID "&Signature=x\n", NULL, "AccessDenied"},
    {"GET /b/k?Expires=1369353660&Signature=x\n", NULL, "AccessDenied"},
    {"GET /b/k?" URL("x") "&Signature=y\n", NULL, "AccessDenied"},
    {"GET /b/k?" URL("%zz") "\n", NULL, "InvalidURI"},
    /* chunks need a key that this signature has not */
    {"PUT /b/k\nx-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\n"
     "x-amz-decoded-content-length: 1\n" DATE BY(GET_SIG),
     NULL, "InvalidRequest"},
};

static const char *verify(struct s3_test *t, const char *vhost_bucket, unsigned flags)
{
    struct sigv4_opts o = s3_test_opts(t);
    o.flags = flags;
    memset(&t->extra, 0, sizeof(t->extra));
    err_clear(&t->err);
    assert_true(s3_auth2_is(&t->rq));
    int rc = s3_auth2_head(t->a, &o, &t->rq, vhost_bucket ? str_c(vhost_bucket) : STR_NONE,
                           &t->auth, &t->extra, &t->err);
    return rc == 0 ? "" : t->err.name;
}

static void test_requests(void **state)
{
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        s3_test_req(t, rows[i].text);
        const char *got = verify(t, rows[i].vhost_bucket, S3_FORM_OLD_SIGNATURE);
        if (strcmp(got, rows[i].code) != 0) {
            fail_msg("row %zu: '%s' instead of '%s': %s\n%s", i, got, rows[i].code, t->err.msg,
                     rows[i].text);
        }
        for (size_t k = 0; k < t->extra.n; k++) {
            assert_true(str_find_str(t->extra.v[k].value, STR(SECRET)) < 0);
        }
    }
}

static void test_result(void **state)
{
    struct s3_test *t = *state;
    s3_test_req(t, rows[11].text); /* the presigned PUT: its query stands for headers */
    assert_string_equal(verify(t, NULL, S3_FORM_OLD_SIGNATURE), "");
    assert_true(t->auth.is_presigned && !t->auth.is_anonymous);
    assert_true(str_eqc(t->auth.access_key, KEY_ID));
    assert_true(str_eqc(t->auth.who.account, "123456789012"));
    assert_int_equal(t->auth.payload, S3_PAYLOAD_UNSIGNED);
    s3_test_req(t, rows[0].text);
    assert_string_equal(verify(t, NULL, 0), "InvalidRequest"); /* only where it is allowed */
    assert_int_equal(t->n_finds > 0, 1);
}

/* Two ways at once are no way of ours: the other checker refuses them. */
static void test_which(void **state)
{
    static const struct {
        const char *text;
        bool want;
    } cases[] = {
        {"GET /b/k\n" BY("x"), true},
        {"GET /b/k?" URL("x") "\n", true},
        {"GET /b/k?Signature=x\n", true},
        {"GET /b/k\n", false},
        {"GET /b/k\nAuthorization: AWS HAHAHA\n", false},
        {"GET /b/k\nAuthorization: AWS4-HMAC-SHA256 a:b\n", false},
        {"GET /b/k\n" BY("x") BY("x"), false},
        {"GET /b/k?" URL("x") "\n" BY("x"), false},
        {"GET /b/k?X-Amz-Signature=1&" URL("x") "\n", false},
        {"GET /b/k?X-Amz-Credential=1\n" BY("x"), false},
    };
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        s3_test_req(t, cases[i].text);
        if (s3_auth2_is(&t->rq) != cases[i].want) {
            fail_msg("case %zu: %s", i, cases[i].text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_requests, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_result, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_which, s3_test_setup, s3_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
