#include "aws/test_rest.h"
#include <errno.h>

/* ---- inputs ---- */

static int decode(struct arena *a, const char *text, struct rest_target *t, void **in,
                  struct err *err)
{
    struct aws_http rq = request(a, text);
    int rc = rest_route(&opts, &rq, a, t, err);
    assert_int_equal(rc, 0);
    return rest_decode(s3, t->op, &rq, t, a, in, err);
}

#define ROOT "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

static const struct {
    const char *rq, *code;
    const char *arg; /* ArgumentName */
} bad_values[] = {
    {"PUT /b/k\nx-amz-storage-class: COLD\n", "InvalidStorageClass", "x-amz-storage-class"},
    {"PUT /b/k\nx-amz-acl: everybody\n", "InvalidArgument", "x-amz-acl"},
    {"PUT /b/k\nx-amz-server-side-encryption: ROT13\n", "InvalidEncryptionAlgorithmError",
     "x-amz-server-side-encryption"},
    {"PUT /b/k\nx-amz-sdk-checksum-algorithm: CRC16\n", "InvalidRequest",
     "x-amz-sdk-checksum-algorithm"},
    {"POST /b/k?uploads\nx-amz-checksum-type: HALF\n", "InvalidRequest", "x-amz-checksum-type"},
    {"PUT /b/k\nx-amz-copy-source: /b/c\nx-amz-metadata-directive: MIX\n", "InvalidArgument",
     "x-amz-metadata-directive"},
    {"PUT /b/k\nx-amz-server-side-encryption-bucket-key-enabled: yes\n", "InvalidArgument",
     "x-amz-server-side-encryption-bucket-key-enabled"},
    {"PUT /b/k\nx-amz-object-lock-retain-until-date: soon\n", "InvalidArgument",
     "x-amz-object-lock-retain-until-date"},
    {"GET /b?max-keys=blah\n", "InvalidArgument", "max-keys"},
    {"GET /b?max-keys=99999999999\n", "InvalidArgument", "max-keys"},
    {"GET /b?max-keys=1e3\n", "InvalidArgument", "max-keys"},
    {"GET /b?max-keys=+1\n", "InvalidArgument", "max-keys"},
    {"GET /b?encoding-type=base64\n", "InvalidArgument", "encoding-type"},
    {"GET /b?prefix=%ff\n", "InvalidArgument", "prefix"},
    {"GET /b/k?partNumber=one\n", "InvalidArgument", "partNumber"},
    {"PUT /b/k?partNumber=a&uploadId=u\n", "InvalidArgument", "partNumber"},
    {"PUT /b/k?partNumber=&uploadId=u\n", "InvalidArgument", "partNumber"},
    {"GET /b/k?attributes\n", "InvalidRequest", NULL},
    {"GET /b/k?attributes\nx-amz-object-attributes: ETag,Smell\n", "InvalidArgument",
     "x-amz-object-attributes"},
    {"DELETE /b/k\nx-amz-if-match-last-modified-time: today\n", "InvalidArgument",
     "x-amz-if-match-last-modified-time"},
    {"PUT /b?tagging\n\n", "MissingRequestBodyError", NULL},
    {"PUT /b?tagging\n\n \n", "MissingRequestBodyError", NULL},
    {"PUT /b?tagging\n\n<Tagging", "MalformedXML", NULL},
    {"PUT /b?tagging\n\n<Tag/>", "MalformedXML", NULL},
    {"PUT /b?tagging\n\n<Tagging/>", "MalformedXML", NULL}, /* TagSet is required */
    {"PUT /b?tagging\n\n<Tagging><TagSet/></Tagging>", NULL, NULL},
    {"PUT /b?tagging\n\n<Tagging " ROOT "><TagSet/></Tagging>", NULL, NULL},
    {"PUT /b?tagging\n\n<Tagging xmlns=\"urn:other\"><TagSet/></Tagging>", "MalformedXML",
     NULL},
    {"PUT /b?tagging\n\n<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>",
     "MalformedXML", NULL},
    {"PUT /b?tagging\n\n<Tagging><TagSet><Tag><Key/><Value/></Tag></TagSet></Tagging>", NULL,
     NULL}, /* the handler judges tags */
    {"PUT /b?tagging\n\n<Tagging><TagSet><T/></TagSet></Tagging>", "MalformedXML", NULL},
    {"PUT /b?tagging\n\n<Tagging><TagSet/><TagSet/></Tagging>", "MalformedXML", NULL},
    {"PUT /b?tagging\n\n<Tagging>x<TagSet/></Tagging>", "MalformedXML", NULL},
    {"PUT /b?tagging\n\n<Tagging>x</Tagging>", "MalformedXML", NULL},
    {"PUT /b?versioning\n\n<VersioningConfiguration><Status>On</Status>"
     "</VersioningConfiguration>",
     "MalformedXML", NULL},
    {"PUT /b?versioning\n\n<VersioningConfiguration><Status> Enabled\n</Status>"
     "</VersioningConfiguration>",
     NULL, NULL},
    {"POST /b/k?uploadId=u\n\n<CompleteMultipartUpload><Part><PartNumber>1x</PartNumber>"
     "</Part></CompleteMultipartUpload>",
     "MalformedXML", NULL},
    {"POST /b/k?uploadId=u\n\n<CompleteMultipartUpload><Part><PartNumber>1<b/></PartNumber>"
     "</Part></CompleteMultipartUpload>",
     "MalformedXML", NULL},
    {"POST /b?delete\n\n<!DOCTYPE d [<!ENTITY e \"x\">]><Delete><Object><Key>&e;</Key>"
     "</Object></Delete>",
     "MalformedXML", NULL},
    {"POST /b?delete\n\n<Delete><Quiet>maybe</Quiet><Object><Key>a</Key></Object></Delete>",
     "MalformedXML", NULL},
};

static void test_bad_values(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bad_values); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(8u << 20);
        struct rest_target t;
        struct err err = ERR_INIT;
        void *in = NULL;
        int rc = decode(a, bad_values[i].rq, &t, &in, &err);
        if ((rc < 0) != (bad_values[i].code != NULL) ||
            (rc < 0 && strcmp(err.name, bad_values[i].code) != 0)) {
            fail_msg("%s: %d %s %s", bad_values[i].rq, rc, err.name ? err.name : "", err.msg);
        }
        assert_true((in != NULL) == (rc == 0));
        assert_true(rc == 0 || rest_status(err.name) == 400);
        if (bad_values[i].arg) {
            assert_string_equal(t.extra.v[0].name, "ArgumentName");
            assert_true(str_eqc(t.extra.v[0].value, bad_values[i].arg));
        }
    }
}

static void test_put_object(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct rest_target t;
    struct err err = ERR_INIT;
    void *v = NULL;
    assert_int_equal(
        decode(a,
               "PUT /b/k%20\nHost: s3.example.com\nContent-TYPE: text/plain\n"
               "x-amz-meta-One: 1\nX-Amz-Meta-two: caf\xc3\xa9\nExpires: whenever\n"
               "x-amz-sdk-checksum-algorithm: crc32c\nIf-Modified-Since: never\n"
               "Content-Length: 5\nCache-Control: a\nCache-Control: b\nx-amz-storage-class:\n"
               "Content-Encoding: \n\n<not XML>",
               &t, &v, &err),
        0);
    const struct s3_put_object_request *in = v;
    assert_true(str_eqc(in->bucket, "b") && str_eqc(in->key, "k "));
    assert_true(str_eqc(in->content_type, "text/plain"));
    assert_true(str_eqc(in->expires, "whenever"));
    assert_true(str_eqc(in->checksum_algorithm, "CRC32C"));
    assert_true(in->content_length.is_set && in->content_length.v == 5);
    assert_true(str_eqc(in->cache_control, "a,b"));
    assert_false(str_is_set(in->storage_class));
    assert_true(str_is_set(in->content_encoding) && in->content_encoding.n == 0);
    assert_false(str_is_set(in->body)); /* a stream */
    assert_int_equal(in->metadata.n, 2);
    assert_true(str_eqc(in->metadata.v[0].key, "one"));
    assert_true(str_eqc(in->metadata.v[1].value, "caf\xc3\xa9"));
    assert_true(rest_op_streams(t.op) && !rest_op_wants_checksum(t.op));
}

static void test_get_object(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct rest_target t;
    struct err err = ERR_INIT;
    void *v = NULL;
    assert_int_equal(decode(a,
                            "GET /b/k?response-content-type=a%2Fb&response-expires=junk&"
                            "versionId=&partNumber=&x-id=GetObject\n"
                            "If-Modified-Since: Mon, 30 Nov 2026 14:49:10 GMT\n"
                            "If-Unmodified-Since: yesterday\nRange: bytes=0-1\n",
                            &t, &v, &err),
                     0);
    const struct s3_get_object_request *in = v;
    assert_true(str_eqc(in->response_content_type, "a/b"));
    assert_false(in->response_expires.is_set);
    assert_true(str_is_set(in->version_id) && in->version_id.n == 0);
    assert_false(in->part_number.is_set);
    assert_true(in->if_modified_since.is_set);
    assert_false(in->if_unmodified_since.is_set);
    assert_true(str_eqc(in->range, "bytes=0-1"));
}

static void test_lists_in_xml(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(64u << 20);
    struct rest_target t;
    void *v = NULL;
    for (size_t n = 0; n <= REST_MAX_ITEMS + 1;
         n = n < 5 ? n + 1 : n * 7 + REST_MAX_ITEMS % 7) {
        AUTO_BUF text;
        struct err err = ERR_INIT;
        size_t count = n > REST_MAX_ITEMS ? REST_MAX_ITEMS + 1 : n;
        buf_init(&text, 4u << 20);
        buf_addc(&text, "POST /b/k?uploadId=u\n\n<CompleteMultipartUpload>");
        for (size_t i = 0; i < count; i++) {
            buf_fmt(&text, "<Part><PartNumber>%zu</PartNumber><ETag>\"e\"</ETag></Part>", i);
        }
        buf_addc(&text, "</CompleteMultipartUpload>");
        int rc = decode(a, buf_cstr(&text), &t, &v, &err);
        assert_int_equal(rc, count > REST_MAX_ITEMS ? -EINVAL : 0);
        const struct s3_complete_multipart_upload_request *in = v;
        for (size_t i = 0; rc == 0 && i < count; i++) {
            assert_int_equal(in->multipart_upload->parts.v[i].part_number.v, i);
        }
        assert_true(rc < 0 || in->multipart_upload->parts.n == count);
        if (n > REST_MAX_ITEMS) {
            break;
        }
        arena_reset(a);
    }
}

/* ---- answers ---- */

static void test_answers(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    AUTO(rest_answer_done) struct rest_answer ans;
    struct err err = ERR_INIT;
    struct s3_list_objects_v2_output out = {.name = STR("films"),
                                            .prefix = STR(""),
                                            .key_count = some_i64(1),
                                            .is_truncated = some_bool(false)};
    AWS_LIST_MAKE(a, &out.contents, 1);
    out.contents.v[0] =
        (struct s3_object){.key = STR("a&b"),
                           .last_modified = some_time(UINT64_C(1796049000123000000)),
                           .e_tag = STR("\"e\""),
                           .size = some_i64(5)};
    rest_answer_init(&ans, a, STR("R1"), STR("H1"));
    assert_int_equal(rest_encode(s3, S3_OP_LIST_OBJECTS_V2, &out, a, &ans, &err), 0);
    assert_string_equal(
        buf_cstr(&ans.body),
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult " ROOT ">"
        "<IsTruncated>false</IsTruncated><Contents><Key>a&amp;b</Key>"
        "<LastModified>2026-11-30T14:30:00.123Z</LastModified><ETag>&quot;e&quot;</ETag>"
        "<Size>5</Size></Contents><Name>films</Name><Prefix/><KeyCount>1</KeyCount>"
        "</ListBucketResult>");
    assert_int_equal(ans.n, 3);
    assert_true(str_eqc(ans.headers[0].value, "R1") && str_eqc(ans.headers[1].value, "H1"));
    assert_true(str_eqc(ans.headers[2].value, "application/xml"));
}

static void test_answer_headers(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    AUTO(rest_answer_done) struct rest_answer ans;
    struct err err = ERR_INIT;
    struct s3_metadata_pair meta[] = {{STR("k"), STR("v")}, {STR("k2"), STR("a\r\nb: c")}};
    struct s3_get_object_output out = {.e_tag = STR("\"e\""),
                                       .content_length = some_i64(7),
                                       .content_disposition = STR("a\nb"),
                                       .last_modified =
                                           some_time(UINT64_C(1796049000123000000)),
                                       .metadata = {.v = meta, .n = 1, .is_set = true}};
    rest_answer_init(&ans, a, STR("R1"), STR("H1"));
    assert_int_equal(rest_encode(s3, S3_OP_GET_OBJECT, &out, a, &ans, &err), 0);
    assert_true(ans.is_stream && ans.body.n == 0 && ans.n == 6);
    assert_true(str_eqc(ans.headers[2].value, "Mon, 30 Nov 2026 14:30:00 GMT"));
    assert_true(str_eqc(ans.headers[3].value, "7"));
    assert_true(str_eqc(ans.headers[5].name, "x-amz-meta-k"));
    assert_false(rest_header(&ans, "X", STR("a\r\nSet-Cookie: b")));
    assert_true(rest_header(&ans, "etag", STR("other"))); /* in its place */
    assert_int_equal(ans.n, 6);
    for (int i = 0; i < 300; i++) {
        rest_header(&ans, arena_fmt(a, "h%d", i).p, STR("v"));
    }
    assert_int_equal(ans.n, REST_MAX_HEADERS);
}

static void test_location(void **state)
{
    static const struct {
        struct str in;
        const char *want;
    } cases[] = {{{"eu-west-1", 9}, ">eu-west-1</LocationConstraint>"},
                 {{NULL, 0}, "></LocationConstraint>"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
        AUTO(rest_answer_done) struct rest_answer ans;
        struct s3_get_bucket_location_output out = {.location_constraint = cases[i].in};
        rest_answer_init(&ans, a, STR("R1"), STR("H1"));
        assert_int_equal(rest_encode(s3, S3_OP_GET_BUCKET_LOCATION, &out, a, &ans, NULL), 0);
        assert_true(str_has_suffix(buf_str(&ans.body), str_c(cases[i].want)));
    }
}

static void test_errors(void **state)
{
    static const struct {
        int code;
        const char *name, *text;
        bool is_head;
        int status;
        const char *body; /* a part of it, "" = none at all */
    } cases[] = {
        {-ENOENT, "NoSuchKey", "Not there.", false, 404,
         "<Error><Code>NoSuchKey</Code><Message>Not there.</Message><Key>k&lt;</Key>"
         "<Resource>/b/k%3C</Resource><RequestId>R</RequestId><HostId>H</HostId></Error>"},
        {-ENOENT, "NoSuchBucket", "", false, 404,
         "<Message>The specified bucket does not exist</Message><BucketName>b</BucketName>"},
        {-ENOENT, "NoSuchKey", "x", true, 404, ""},
        {-EAGAIN, "NotModified", "x", false, 304, ""},
        {-EIO, "OpenFailed", "/secret: no", false, 500,
         "<Code>InternalError</Code><Message>We encountered an internal error. Please try "
         "again.</Message>"},
        {-EPERM, "AccessDenied", "by the store", false, 500, "InternalError"},
        {-EACCES, "AccessDenied", "by a policy", false, 403, "by a policy"},
        {-EIO, "Unavailable", "no store", false, 503, "<Code>ServiceUnavailable</Code>"},
        {-ENOSPC, "InsufficientStorage", "full", false, 507, "full"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
        AUTO(rest_answer_done) struct rest_answer ans;
        struct rest_target t = {.bucket = STR("b"),
                                .key = STR("k<"),
                                .resource = STR("/b/k%3C"),
                                .sub = "",
                                .is_head = cases[i].is_head};
        struct err err = ERR_INIT;
        fail(&err, cases[i].code, cases[i].name, "%s", cases[i].text);
        rest_answer_init(&ans, a, STR("R"), STR("H"));
        rest_header(&ans, "ETag", STR("meant for success"));
        buf_addc(&ans.body, "half a body");
        rest_error(&err, &t, STR("R"), STR("H"), &ans);
        assert_int_equal(ans.status, cases[i].status);
        const char *body = buf_cstr(&ans.body);
        if (cases[i].body[0] ? !strstr(body, cases[i].body) : body[0] != '\0') {
            fail_msg("%s: %s", cases[i].name, body);
        }
        assert_null(strstr(body, "secret"));
        assert_int_equal(ans.n, cases[i].body[0] ? 3 : 2);
    }
}

static void test_needs(void **state)
{
    static const struct {
        const char *rq;
        const char *want[4]; /* "action arn" */
    } cases[] = {
        {"GET /\n", {"s3:ListAllMyBuckets *"}},
        {"GET /b?list-type=2\n", {"s3:ListBucket arn:aws:s3:::b"}},
        {"HEAD /b/k\n", {"s3:GetObject arn:aws:s3:::b/k"}},
        {"HEAD /b/k?versionId=1\n", {"s3:GetObjectVersion arn:aws:s3:::b/k"}},
        {"GET /b?acl\n", {"s3:GetBucketAcl arn:aws:s3:::b"}},
        {"POST /b/k?uploads\n", {"s3:PutObject arn:aws:s3:::b/k"}},
        {"PUT /b/k\nx-amz-tagging: a=b\n",
         {"s3:PutObject arn:aws:s3:::b/k", "s3:PutObjectTagging arn:aws:s3:::b/k"}},
        {"PUT /b/k\nx-amz-copy-source: /src-1/d%20e?versionId=7\n",
         {"s3:PutObject arn:aws:s3:::b/k", "s3:GetObjectVersion arn:aws:s3:::src-1/d e"}},
        {"PUT /b/k?partNumber=1&uploadId=u\nx-amz-copy-source: src-1/d\n",
         {"s3:PutObject arn:aws:s3:::b/k", "s3:GetObject arn:aws:s3:::src-1/d"}},
        {"GET /b/k?attributes&versionId=1\nx-amz-object-attributes: ETag\n",
         {"s3:GetObjectVersionAttributes arn:aws:s3:::b/k",
          "s3:GetObjectVersion arn:aws:s3:::b/k"}},
        {"PUT /b/k?renameObject\nx-amz-rename-source: %2Fold%20one\n",
         {"s3:PutObject arn:aws:s3:::b/k", "s3:GetObject arn:aws:s3:::b/old one",
          "s3:DeleteObject arn:aws:s3:::b/old one"}},
        {"POST /b?delete\n\n<Delete><Object><Key>a</Key></Object></Delete>", {NULL}},
        {"OPTIONS /b\n", {NULL}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
        struct rest_target t;
        struct err err = ERR_INIT;
        void *in = NULL;
        const struct rest_need *needs;
        size_t n = 0, n_want = 0;
        if (decode(a, cases[i].rq, &t, &in, &err) < 0) {
            fail_msg("%s: %s", cases[i].rq, err.msg);
        }
        if (rest_needs(s3, t.op, &t, in, a, &needs, &n, &err) < 0) {
            fail_msg("%s: %s", cases[i].rq, err.msg);
        }
        for (; n_want < 4 && cases[i].want[n_want]; n_want++) {
            struct str got = n_want < n
                                 ? arena_fmt(a, "%.*s %.*s", STR_ARG(needs[n_want].action),
                                             STR_ARG(needs[n_want].arn))
                                 : STR("nothing");
            if (!str_eqc(got, cases[i].want[n_want])) {
                fail_msg("%s: %s, want %s", cases[i].rq, got.p, cases[i].want[n_want]);
            }
        }
        assert_int_equal(n, n_want);
    }
}

/* An arena of any size gives an answer or a refusal, never an end of the process; and a request
 * that is accepted means the same in all of them. */
static void test_small_arenas(void **state)
{
    static const char *const requests[] = {
        "GET /a%20b?prefix=x&versionId=1\nHost: films.example.com\n",
        "PUT /b/k%20?x-id=1\nx-amz-meta-a: 1\nx-amz-meta-b: =?UTF-8?B?w6k=?=\n"
        "Cache-Control: a\nCache-Control: b\nx-amz-tagging: a=b\n",
        "PUT /b/k\nx-amz-copy-source: /src-1/k%20?versionId=1\n",
        "PATCH /b/k?acl\n",
        "GET /b/k?attributes\nx-amz-object-attributes: ETag, Checksum, ObjectParts\n",
        "POST /b?delete\n\n<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object>"
        "<Object><Key>c</Key></Object><Object><Key>d</Key></Object><Object><Key>e</Key>"
        "</Object></Delete>",
    };
    AUTO(arena_freep) struct arena *texts = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct aws_http rq = request(texts, requests[i]);
        int last_op = REST_OP_NONE;
        for (size_t max = 0; max < 16384; max += 16) {
            AUTO(arena_freep) struct arena *a = arena_new(max);
            AUTO(rest_answer_done) struct rest_answer ans;
            struct rest_target t;
            struct err err = ERR_INIT;
            const struct rest_need *needs;
            size_t n;
            void *in = NULL;
            int rc = rest_route(&opts, &rq, a, &t, &err);
            assert_true(rc < 0 || last_op == REST_OP_NONE || last_op == t.op);
            last_op = rc < 0 ? last_op : t.op;
            rc = rc < 0 ? rc : rest_decode(s3, t.op, &rq, &t, a, &in, &err);
            rc = rc < 0 ? rc : rest_needs(s3, t.op, &t, in, a, &needs, &n, &err);
            rest_answer_init(&ans, a, STR("r"), STR("h"));
            if (rc < 0) {
                assert_true(rest_status(err.name) >= 400);
                rest_error(&err, &t, STR("r"), STR("h"), &ans);
                assert_true(ans.status >= 400 && ans.body.n > 0);
            }
        }
        assert_true(last_op != REST_OP_NONE || i == 3);
    }
}

static void test_codes(void **state)
{
    static const char *const codes[] = {"AccessControlListNotSupported", "NoSuchKey",
                                        "XAmzContentSHA256Mismatch", "KMS.NotFoundException",
                                        "KeyTooLongError"};
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        assert_true(rest_status(codes[i]) >= 400); /* the table is sorted */
    }
    for (uint16_t i = 0; i < s3->n_errors; i++) {
        const char *code = aws_name(s3, s3->errors[i].code);
        assert_int_equal(rest_status(code), s3->errors[i].status);
    }
    assert_int_equal(rest_status("Nonsense"), 0);
    assert_int_equal(rest_status(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_values),   cmocka_unit_test(test_put_object),
        cmocka_unit_test(test_get_object),   cmocka_unit_test(test_lists_in_xml),
        cmocka_unit_test(test_answers),      cmocka_unit_test(test_answer_headers),
        cmocka_unit_test(test_location),     cmocka_unit_test(test_errors),
        cmocka_unit_test(test_needs),        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_small_arenas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
