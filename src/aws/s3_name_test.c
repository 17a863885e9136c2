/* Names, keys, copy sources, tags, metadata, version ids: tables of what AWS takes and refuses. */
#include "aws/s3_name.h"

#include "base/arena.h"
#include "base/test.h"

static const char *const good_buckets[] = {
    "abc",
    "films",
    "my-bucket.x1",
    "123",
    "a.b.c",
    "1.2.3",
    "1.2.3.4.5",
    "256a.1.1.1",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "xn-x",
    "s3alias",
    "a--b"};
static const char *const bad_buckets[] = {
    "",
    "a",
    "ab",
    "Films",
    "my_bucket",
    "-abc",
    "abc-",
    ".abc",
    "abc.",
    "a..b",
    "a.-b",
    "a-.b",
    "192.168.5.4",
    "0.0.0.0",
    "999.999.999.999",
    "xn--abc",
    "sthree-abc",
    "amzn-s3-demo-abc",
    "abc-s3alias",
    "abc--ol-s3",
    "abc.mrap",
    "abc--x-s3",
    "abc--table-s3",
    "a b",
    "a/b",
    "caf\xc3\xa9",
    "abc\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

static void test_bucket_names(void **state)
{
    struct err err = ERR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(good_buckets); i++) {
        if (s3_bucket_name_check(str_c(good_buckets[i]), NULL, &err) < 0) {
            fail_msg("%s", good_buckets[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(bad_buckets); i++) {
        struct s3_extra extra = {.n = 0};
        err_clear(&err);
        if (s3_bucket_name_check(str_c(bad_buckets[i]), &extra, &err) == 0) {
            fail_msg("%s", bad_buckets[i]);
        }
        assert_string_equal(err.name, "InvalidBucketName");
        assert_string_equal(extra.v[0].name, "BucketName");
    }
    assert_true(s3_bucket_name_ok(STR("Old_Bucket.Name")));
    assert_false(s3_bucket_name_ok(STR("a/b")));
    assert_false(s3_bucket_name_ok(STR("a")));
}

/* Bug 8 of the research: keys are opaque. */
static void test_keys(void **state)
{
    char big[S3_KEY_MAX + 1];
    static const char *const good[] = {"a",      "a/",       "a//b",        "/a",
                                       "a/../b", ".",        "..",          "/",
                                       " ",      "\x01\x7f", "caf\xc3\xa9", "\xf0\x9f\x98\x80"};
    static const char *const bad[] = {"\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf", ""};
    struct err err = ERR_INIT;
    memset(big, 'k', sizeof(big));
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(s3_key_check(str_c(good[i]), &err), 0);
    }
    assert_int_equal(s3_key_check(str_n(big, S3_KEY_MAX), &err), 0);
    assert_true(s3_key_check(str_n(big, S3_KEY_MAX + 1), &err) < 0);
    assert_string_equal(err.name, "KeyTooLongError");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        err_clear(&err);
        assert_true(s3_key_check(str_c(bad[i]), &err) < 0);
        assert_string_equal(err.name, "InvalidURI");
    }
    assert_int_equal(s3_key_check(str_n("a\0b", 3), NULL), 0);
}

static void test_copy_sources(void **state)
{
    static const struct {
        const char *header, *bucket, *key, *version, *code;
    } cases[] = {
        {"/films/a.mkv", "films", "a.mkv", NULL, NULL},
        {"films/a.mkv", "films", "a.mkv", NULL, NULL},
        {"films/a/b/c", "films", "a/b/c", NULL, NULL},
        {"films//a", "films", "/a", NULL, NULL},
        {"films%2Fa%2Fb", "films", "a/b", NULL, NULL},
        {"%2Ffilms%2Fa", "films", "a", NULL, NULL},
        {"films/a%20b+c%2Bd", "films", "a b c+d", NULL, NULL},
        {"films/caf%C3%A9", "films", "caf\xc3\xa9", NULL, NULL},
        {"films/a?versionId=null", "films", "a", "null", NULL},
        {"films/a?versionId=0123", "films", "a", "0123", NULL},
        {"films/%3FversionId", "films", "?versionId", NULL, NULL},
        {"films/a%3FversionId=x", "films", "a?versionId=x", NULL, NULL},
        {"films/a?b", "films", "a?b", NULL, NULL},
        {"films/a/../b", "films", "a/../b", NULL, NULL},
        {"", NULL, NULL, NULL, "InvalidArgument"},
        {"/", NULL, NULL, NULL, "InvalidArgument"},
        {"films", NULL, NULL, NULL, "InvalidArgument"},
        {"films/", NULL, NULL, NULL, "InvalidArgument"},
        {"//a", NULL, NULL, NULL, "InvalidArgument"},
        {"films/%zz", NULL, NULL, NULL, "InvalidArgument"},
        {"films/a?versionId=%", NULL, NULL, NULL, "InvalidArgument"},
        {"fi lms/a", NULL, NULL, NULL, "InvalidArgument"},
        {"films/%ff", NULL, NULL, NULL, "InvalidArgument"},
        {"arn:aws:s3:us-west-2:123456789012:accesspoint/x/object/k", NULL, NULL, NULL,
         "NotImplemented"},
    };
    struct arena *a = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct s3_copy_source src;
        struct s3_extra extra = {.n = 0};
        struct err err = ERR_INIT;
        int rc = s3_copy_source_parse(a, str_c(cases[i].header), &src, &extra, &err);
        if ((rc == 0) != (cases[i].code == NULL)) {
            fail_msg("%s: %s", cases[i].header, err.msg);
        }
        if (rc < 0) {
            assert_string_equal(err.name, cases[i].code);
            continue;
        }
        assert_str(src.bucket, cases[i].bucket);
        assert_str(src.key, cases[i].key);
        assert_true(cases[i].version ? str_eqc(src.version_id, cases[i].version)
                                     : !str_is_set(src.version_id));
    }
    arena_free(a);
}

static void test_tagging(void **state)
{
    static const struct {
        const char *header;
        size_t n;
        const char *key, *value; /* of the last */
        const char *code;
    } cases[] = {
        {"", 0, NULL, NULL, NULL},
        {"a=b", 1, "a", "b", NULL},
        {"a=b&c", 2, "c", "", NULL},
        {"a=", 1, "a", "", NULL},
        {"a=b&&c=d", 2, "c", "d", NULL},
        {"a+b=c%20d", 1, "a b", "c d", NULL},
        {"k%3D=%2B-%3D._%3A%2F%40", 1, "k=", "+-=._:/@", NULL},
        {"caf%C3%A9=%E2%82%AC", 1, "caf\xc3\xa9", "\xe2\x82\xac", NULL},
        {"A=1&a=2", 2, "a", "2", NULL}, /* keys have case */
        {"a=1&b=2&c=3&d=4&e=5&f=6&g=7&h=8&i=9&j=10", 10, "j", "10", NULL},
        {"a=1&b=2&c=3&d=4&e=5&f=6&g=7&h=8&i=9&j=10&k=11", 0, NULL, NULL, "InvalidTag"},
        {"a=1&a=2", 0, NULL, NULL, "InvalidArgument"},
        {"a=1&%61=2", 0, NULL, NULL, "InvalidArgument"},
        {"a=%z", 0, NULL, NULL, "InvalidArgument"},
        {"=b", 0, NULL, NULL, "InvalidTag"},
        {"a=b%0a", 0, NULL, NULL, "InvalidTag"},
        {"a%00=b", 0, NULL, NULL, "InvalidTag"},
        {"a=%FF", 0, NULL, NULL, "InvalidTag"},
        {"a=%C2%85", 0, NULL, NULL, "InvalidTag"}, /* a control of the second half */
        {"a=b%26c", 0, NULL, NULL, "InvalidTag"},
        {"a!=b", 0, NULL, NULL, "InvalidTag"},
        {"aws:x=b", 0, NULL, NULL, "InvalidTag"},
        {"AWS:x=b", 0, NULL, NULL, "InvalidTag"},
    };
    struct arena *a = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct s3_tags t;
        struct err err = ERR_INIT;
        int rc = s3_tags_parse(a, str_c(cases[i].header), &t, &err);
        if ((rc == 0) != (cases[i].code == NULL)) {
            fail_msg("%s: %s", cases[i].header, err.msg);
        }
        if (rc < 0) {
            assert_string_equal(err.name, cases[i].code);
            continue;
        }
        assert_int_equal(t.n, cases[i].n);
        if (t.n) {
            assert_str(t.v[t.n - 1].key, cases[i].key);
            assert_str(t.v[t.n - 1].value, cases[i].value);
        }
    }
    /* Lengths are code points: 128 and 256 of two bytes each. */
    char text[2 * (S3_TAG_VALUE_MAX + 1)];
    for (size_t i = 0; i < sizeof(text); i += 2) {
        memcpy(text + i, "\xc3\xa9", 2);
    }
    struct s3_tag tag = {str_n(text, 2 * S3_TAG_KEY_MAX), str_n(text, 2 * S3_TAG_VALUE_MAX)};
    assert_int_equal(s3_tags_check(&tag, 1, S3_TAGS_MAX, NULL, NULL), 0);
    tag.value.n += 2;
    assert_true(s3_tags_check(&tag, 1, S3_TAGS_MAX, NULL, NULL) < 0);
    tag.value.n = 0;
    tag.key.n += 2;
    assert_true(s3_tags_check(&tag, 1, S3_TAGS_MAX, NULL, NULL) < 0);
    arena_free(a);
}

static void test_metadata(void **state)
{
    static const struct {
        const char *value, *stored, *shown;
    } cases[] = {
        {"plain", "plain", "plain"},
        {"", "", ""},
        {"=?UTF-8?B?Y2Fmw6k=?=", "caf\xc3\xa9", "=?UTF-8?B?Y2Fmw6k=?="},
        {"=?utf-8?q?caf=C3=A9_x?=", "caf\xc3\xa9 x", "=?UTF-8?B?Y2Fmw6kgeA==?="},
        {"a =?UTF-8?B?w6k=?= b", "a \xc3\xa9 b", "=?UTF-8?B?YSDDqSBi?="},
        {"=?UTF-8?B?w6k=?= =?UTF-8?B?w6k=?=", "\xc3\xa9\xc3\xa9", "=?UTF-8?B?w6nDqQ==?="},
        {"caf\xc3\xa9", "caf\xc3\xa9", "=?UTF-8?B?Y2Fmw6k=?="},
        {"caf\xe9", "caf\xe9", "caf\xe9"}, /* no UTF-8: as it came */
        /* what looks like a word and is none */
        {"=?UTF-8?B?***?=", "=?UTF-8?B?***?=", "=?UTF-8?B?***?="},
        {"=?UTF-8?X?aa?=", "=?UTF-8?X?aa?=", "=?UTF-8?X?aa?="},
        {"=?UTF-8?B?w6k=", "=?UTF-8?B?w6k=", "=?UTF-8?B?w6k="},
        {"=?ISO-8859-1?Q?a?=", "=?ISO-8859-1?Q?a?=", "=?ISO-8859-1?Q?a?="},
        {"=?UTF-8?Q?=0D=0Ax?=", "=?UTF-8?Q?=0D=0Ax?=", "=?UTF-8?Q?=0D=0Ax?="},
        {"=?UTF-8?Q?=FF?=", "=?UTF-8?Q?=FF?=", "=?UTF-8?Q?=FF?="},
        {"=?", "=?", "=?"},
        {"a=?b=?c", "a=?b=?c", "a=?b=?c"},
    };
    struct arena *a = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct http_header h[] = {{STR("Content-Type"), STR("x")},
                                        {STR("X-Amz-Meta-Some-Name"), str_c(cases[i].value)}};
        struct s3_meta m;
        assert_int_equal(s3_meta_parse(a, h, 2, &m, NULL, NULL), 0);
        assert_int_equal(m.n, 1);
        assert_str(m.v[0].key, "some-name");
        assert_str(m.v[0].value, cases[i].stored);
        assert_str(s3_meta_header_value(a, m.v[0].value), cases[i].shown);
    }
    const struct http_header twice[] = {{STR("x-amz-meta-a"), STR("1")},
                                        {STR("x-amz-meta-"), STR("no name")},
                                        {STR("X-Amz-Meta-A"), STR("2")},
                                        {STR("x-amz-meta-b"), STR("3")}};
    struct s3_meta m;
    assert_int_equal(s3_meta_parse(a, twice, 4, &m, NULL, NULL), 0);
    assert_int_equal(m.n, 2);
    assert_str(m.v[0].value, "1,2");
    /* 2 KiB of names and values */
    char text[S3_META_MAX];
    memset(text, 'x', sizeof(text));
    struct http_header big = {STR("x-amz-meta-ab"), {text, S3_META_MAX - 2}};
    struct err err = ERR_INIT;
    struct s3_extra extra = {.n = 0};
    assert_int_equal(s3_meta_parse(a, &big, 1, &m, &extra, &err), 0);
    big.value.n++;
    assert_true(s3_meta_parse(a, &big, 1, &m, &extra, &err) < 0);
    assert_string_equal(err.name, "MetadataTooLarge");
    assert_str(extra.v[0].value, "2049");
    arena_free(a);
}

/* The public suite's keys, and documentation's: test_file(3).png. */
static void test_url_encoding(void **state)
{
    static const struct {
        const char *in, *want;
    } cases[] = {{"asdf+b", "asdf%2Bb"},
                 {"foo+1/", "foo%2B1/"},
                 {"quux ab/", "quux%20ab/"},
                 {"test_file(3).png", "test_file%283%29.png"},
                 {"caf\xc3\xa9*~\x01", "caf%C3%A9%2A~%01"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF b;
        buf_init(&b, 1024);
        s3_url_encode(str_c(cases[i].in), &b);
        assert_str(buf_str(&b), cases[i].want);
    }
}

static void test_version_ids(void **state)
{
    uint8_t id[16], back[16];
    char text[S3_VERSION_ID_SIZE];
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(id); i++) {
        id[i] = (uint8_t)(i * 17);
    }
    assert_string_equal(s3_version_id_text(id, text), "00112233445566778899aabbccddeeff");
    assert_int_equal(s3_version_id_parse(str_c(text), back, NULL, &err), 0);
    assert_memory_equal(id, back, 16);
    memset(id, 0, sizeof(id));
    assert_string_equal(s3_version_id_text(id, text), "null");
    assert_int_equal(s3_version_id_parse(STR("null"), back, NULL, &err), 0);
    assert_memory_equal(id, back, 16);
    static const char *const bad[] = {"",
                                      "NULL",
                                      "x",
                                      "00112233445566778899AABBCCDDEEFF",
                                      "00112233445566778899aabbccddeef",
                                      "00112233445566778899aabbccddeeff0",
                                      "00112233445566778899aabbccddeefg",
                                      "00000000000000000000000000000000"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct s3_extra extra = {.n = 0};
        err_clear(&err);
        assert_true(s3_version_id_parse(str_c(bad[i]), back, &extra, &err) < 0);
        assert_string_equal(err.name, "InvalidArgument");
        assert_string_equal(err.msg, "Invalid version id specified");
        assert_str(extra.v[1].value, bad[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bucket_names), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_copy_sources), cmocka_unit_test(test_tagging),
        cmocka_unit_test(test_metadata),     cmocka_unit_test(test_url_encoding),
        cmocka_unit_test(test_version_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
