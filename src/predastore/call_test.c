/* What headers say about an object, and the small helpers of handlers: no store, no sockets. */
#include "predastore/s3.h"

#include "base/test.h"
#include <errno.h>

struct fixture {
    struct s3_call c;
    struct http_header h[16];
};

static struct s3_call *call_with(struct fixture *f, const char *const headers[][2])
{
    *f = (struct fixture){0};
    f->c.arena = arena_new(S3_ARENA_MAX);
    for (size_t i = 0; headers && headers[i][0]; i++) {
        f->h[i] = (struct http_header){str_c(headers[i][0]), str_c(headers[i][1])};
        f->c.rq.n_headers = i + 1;
    }
    f->c.rq.headers = f->h;
    return &f->c;
}

static void done(struct fixture *f)
{
    arena_free(f->c.arena);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *name, *value, *code; /* NULL: fine */
    } rows[] = {
        {"x-amz-acl", "private", NULL},
        {"x-amz-acl", "bucket-owner-full-control", NULL},
        {"x-amz-acl", "public-read", "AccessControlListNotSupported"},
        {"x-amz-acl", "public-read-write", "AccessControlListNotSupported"},
        {"x-amz-acl", "nonsense", "InvalidArgument"},
        {"x-amz-grant-read", "id=1", "AccessControlListNotSupported"},
        {"x-amz-server-side-encryption", "AES256", NULL},
        {"X-Amz-Server-Side-Encryption", "aws:kms", "NotImplemented"},
        {"x-amz-server-side-encryption", "aws:kms:dsse", "NotImplemented"},
        {"x-amz-server-side-encryption", "rot13", "InvalidEncryptionAlgorithmError"},
        {"x-amz-server-side-encryption-customer-algorithm", "AES256", "NotImplemented"},
        {"x-amz-server-side-encryption-customer-key-MD5", "x", "NotImplemented"},
        {"x-amz-server-side-encryption-aws-kms-key-id", "x", "InvalidArgument"},
        {"x-amz-object-lock-mode", "COMPLIANCE", "InvalidRequest"},
        {"x-amz-object-lock-legal-hold", "ON", "InvalidRequest"},
        {"x-amz-write-offset-bytes", "5", "NotImplemented"},
        {"x-amz-meta-anything", "x", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *const headers[][2] = {{rows[i].name, rows[i].value}, {NULL, NULL}};
        struct fixture f;
        struct err e = ERR_INIT;
        int r = s3_refuse_features(call_with(&f, headers), &e);
        if (rows[i].code) {
            assert_true(r < 0);
            assert_string_equal(e.name, rows[i].code);
        } else {
            assert_int_equal(r, 0);
        }
        done(&f);
    }
}

static void test_two_encryptions_at_once(void **state)
{
    static const char sse[] = "x-amz-server-side-encryption",
                      key[] = "x-amz-server-side-encryption-aws-kms-key-id",
                      customer[] = "x-amz-server-side-encryption-customer-algorithm";
    static const struct {
        const char *headers[4][2], *code;
    } rows[] = {
        {{{sse, "AES256"}, {customer, "AES256"}}, "InvalidArgument"},
        {{{sse, "aws:kms"}, {key, "k"}, {customer, "AES256"}}, "InvalidArgument"},
        {{{sse, "AES256"}, {key, "k"}}, "InvalidArgument"},
        {{{sse, "aws:kms"}, {key, "k"}}, "NotImplemented"},
        {{{customer, "AES256"}}, "NotImplemented"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fixture f;
        struct err e = ERR_INIT;
        assert_true(s3_refuse_features(call_with(&f, rows[i].headers), &e) < 0);
        assert_string_equal(e.name, rows[i].code);
        done(&f);
    }
}

static void test_metadata(void **state)
{
    static const char *const headers[][2] = {{"Content-Type", "text/plain"},
                                             {"Content-Encoding", "aws-chunked,gzip"},
                                             {"Cache-Control", ""},
                                             {"Expires", "not a date, kept as it is"},
                                             {"x-amz-meta-One", "1"},
                                             {"X-Amz-Meta-two", "zwei"},
                                             {"x-amz-tagging", "a=1&b=two%20words"},
                                             {"x-amz-storage-class", "GLACIER_IR"},
                                             {NULL, NULL}};
    struct fixture f;
    struct err e = ERR_INIT;
    struct orec rec = {0};
    assert_int_equal(s3_take_all(call_with(&f, headers), &rec, &e), 0);
    assert_true(str_eqc(s3_pair(&rec.system, "content-type"), "text/plain"));
    assert_true(str_eqc(s3_pair(&rec.system, "content-encoding"), "gzip"));
    assert_false(str_is_set(s3_pair(&rec.system, "cache-control")));
    assert_true(str_eqc(s3_pair(&rec.system, "expires"), "not a date, kept as it is"));
    assert_true(str_eqc(s3_pair(&rec.meta, "one"), "1"));
    assert_true(str_eqc(s3_pair(&rec.meta, "two"), "zwei"));
    assert_true(str_eqc(s3_pair(&rec.tags, "b"), "two words"));
    assert_true(str_eqc(s3_class(&rec), "GLACIER_IR"));
    done(&f);
}

static void test_only_framing_is_no_encoding(void **state)
{
    static const char *const headers[][2] = {{"Content-Encoding", "aws-chunked"}, {NULL, NULL}};
    struct fixture f;
    struct err e = ERR_INIT;
    struct orec rec = {0};
    assert_int_equal(s3_take_all(call_with(&f, headers), &rec, &e), 0);
    assert_int_equal(rec.system.n, 0);
    assert_true(str_eqc(s3_class(&rec), "STANDARD"));
    assert_false(str_is_set(rec.storage_class));
    done(&f);
}

static void test_bad_values(void **state)
{
    static char big[9000];
    memset(big, 'x', sizeof(big) - 1);
    static const struct {
        const char *name, *value, *code;
    } rows[] = {
        {"Content-Disposition", big, "MetadataTooLarge"},
        {"x-amz-meta-a", big, "MetadataTooLarge"},
        {"x-amz-storage-class", "standard", "InvalidStorageClass"},
        {"x-amz-website-redirect-location", "javascript:x", "InvalidRedirectLocation"},
        {"x-amz-tagging", "aws:a=1", "InvalidTag"},
        {"x-amz-tagging", "a=1&b=1&c=1&d=1&e=1&f=1&g=1&h=1&i=1&j=1&k=1", "InvalidTag"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *const headers[][2] = {{rows[i].name, rows[i].value}, {NULL, NULL}};
        struct fixture f;
        struct err e = ERR_INIT;
        struct orec rec = {0};
        assert_true(s3_take_all(call_with(&f, headers), &rec, &e) < 0);
        if (strcmp(e.name, rows[i].code) != 0) {
            fail_msg("%s: %.40s: %s, not %s", rows[i].name, rows[i].value, e.name,
                     rows[i].code);
        }
        done(&f);
    }
}

static void test_ids(void **state)
{
    struct fixture f;
    struct s3_call *c = call_with(&f, NULL);
    static const uint8_t id[16] = {0xab, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff};
    static const char *const bad[] = {"", "56788", "ab0102030405060708090a0b0c0d0ef",
                                      "zb0102030405060708090a0b0c0d0eff",
                                      "ab0102030405060708090a0b0c0d0eff0"};
    uint8_t back[16];
    bool is_set = true;
    struct err e = ERR_INIT;
    assert_int_equal(s3_upload_id(s3_upload_text(c->arena, id), back, NULL), 0);
    assert_memory_equal(back, id, 16);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        err_clear(&e);
        assert_int_equal(s3_upload_id(str_c(bad[i]), back, &e), -ENOENT);
        assert_string_equal(e.name, "NoSuchUpload");
        err_clear(&e);
        assert_true(s3_version(c, str_c(bad[i]), back, &is_set, &e) < 0);
        assert_string_equal(e.name, "InvalidArgument");
    }
    assert_int_equal(s3_version(c, s3_version_text(c->arena, id), back, &is_set, NULL), 0);
    assert_true(is_set);
    assert_memory_equal(back, id, 16);
    static const uint8_t zeros[16];
    assert_int_equal(s3_version(c, STR("null"), back, &is_set, NULL), 0);
    assert_memory_equal(back, zeros, 16);
    assert_int_equal(s3_version(c, STR_NONE, back, &is_set, NULL), 0);
    assert_false(is_set);
    done(&f);
}

static void test_sums(void **state)
{
    struct fixture f;
    struct arena *a = call_with(&f, NULL)->arena;
    const struct s3_sum_value v = {.alg = S3_SUM_CRC32, .v = {1, 2, 3, 4}};
    struct orec_sum whole = s3_osum(a, &v, false), parts = s3_osum(a, &v, true);
    assert_true(str_eqc(s3_osum_text(a, &whole, 3), "AQIDBA=="));
    assert_true(str_eqc(s3_osum_text(a, &parts, 3), "AQIDBA==-3"));
    assert_true(str_eqc(s3_osum_type(&whole), "FULL_OBJECT"));
    assert_true(str_eqc(s3_osum_type(&parts), "COMPOSITE"));
    struct orec_sum torn = {.alg = OSUM_SHA256, .value = STR("short")};
    assert_false(str_is_set(s3_osum_text(a, &torn, 0)));
    assert_true(str_eqc(s3_quoted(a, STR("ab")), "\"ab\""));
    assert_int_equal(s3_owner_id(a, STR("123456789012")).n, 64);
    done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_two_encryptions_at_once),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_only_framing_is_no_encoding),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
