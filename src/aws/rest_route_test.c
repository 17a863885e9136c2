#include "aws/test_rest.h"
#include <errno.h>

#define X16   "xxxxxxxxxxxxxxxx"
#define X256  X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16
#define X1025 X256 X256 X256 X256 "x"

static const char *replaced(struct arena *a, const char *text, const char *what,
                            const char *with)
{
    ptrdiff_t at = str_find_str(str_c(text), str_c(what));
    return at < 0
               ? text
               : arena_fmt(a, "%.*s%s%s", (int)at, text, with, text + (size_t)at + strlen(what))
                     .p;
}

static void test_every_operation_has_its_route(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(64u << 20);
    bool seen[S3_OP_N] = {0};
    unsigned n_seen = 0;
    for (uint16_t i = 0; i < s3->n_routes; i++) {
        const struct aws_route *r = &s3->routes[i];
        const struct aws_op *o = &s3->ops[r->op];
        static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
        const char *uri = aws_name(s3, o->uri);
        uri = replaced(a, uri, "{Key+}", "a/b");
        for (int is_vhost = 0; is_vhost < 2; is_vhost++) {
            const char *path =
                replaced(a, uri, is_vhost ? "/{Bucket}" : "{Bucket}", is_vhost ? "" : "films");
            path = path[0] == '/' ? path : arena_fmt(a, "/%s", path).p;
            struct str text = arena_fmt(
                a, "%s %s%s%s%s%s%sx-id=%s\nHost: %s\n%s", methods[r->method], path,
                strchr(path, '?') ? "&" : "?",
                (r->needs & AWS_NEED_UPLOAD_ID) ? "uploadId=u&" : "",
                (r->needs & AWS_NEED_PART) ? "partNumber=1&" : "",
                (r->needs & AWS_NEED_ID) ? "id=1&" : "", "prefix=p&", aws_name(s3, o->name),
                is_vhost ? "films.s3.example.com" : "s3.example.com",
                (r->needs & AWS_NEED_SOURCE) ? "X-Amz-Copy-Source: /b/k\n" : "");
            if (is_vhost && r->level == 0) {
                continue;
            }
            struct aws_http rq = request(a, text.p);
            struct rest_target t;
            struct err err = ERR_INIT;
            int rc = rest_route(&opts, &rq, a, &t, &err);
            if (rc < 0 || t.op != r->op || t.is_vhost != is_vhost) {
                fail_msg("%s: %d %s, got %s", text.p, rc, err.msg, rest_op_name(t.op));
            }
            assert_true(r->level == 0 || str_eqc(t.bucket, "films"));
            assert_true(r->level < 2 || str_eqc(t.key, "a/b"));
        }
        n_seen += !seen[r->op];
        seen[r->op] = true;
    }
    /* Four deprecated twins, and two that are not at our endpoints. */
    assert_int_equal(n_seen, S3_OP_N - 6);
}

static const char long_key[] = "GET /b/" X1025 "\n";
static const struct {
    const char *rq;
    const char *op; /* or the error */
    const char *bucket, *key;
} route_cases[] = {
    {"GET /\n", "ListBuckets", NULL, NULL},
    {"GET /\nHost: s3.example.com\n", "ListBuckets", NULL, NULL},
    {"GET /\nHost: example.com:8443\n", "ListBuckets", NULL, NULL},
    {"GET /\nHost: films.example.com\n", "ListObjects", "films", NULL},
    {"GET /\nHost: a.b.S3.Example.com.\n", "ListObjects", "a.b", NULL},
    {"GET /k\nHost: films.s3.example.com:99\n", "GetObject", "films", "k"},
    {"GET /films/k\nHost: 10.0.0.1\n", "GetObject", "films", "k"},
    {"GET /films/k\nHost: [::1]:9\n", "GetObject", "films", "k"},
    {"GET /films/k\nHost: notexample.com\n", "GetObject", "films", "k"},
    {"GET /films/k\nHost: .example.com\n", "GetObject", "films", "k"},
    {"GET /k\nHost: \xe9.example.com\n", "InvalidBucketName", NULL, NULL},
    {"GET //k\nHost: films.example.com\n", "GetObject", "films", "/k"},
    {"GET /films\n", "ListObjects", "films", NULL},
    {"GET /films/\n", "ListObjects", "films", NULL},
    {"GET /films//\n", "GetObject", "films", "/"},
    {"GET /films//a\n", "GetObject", "films", "/a"},
    {"GET /films/a/../b\n", "GetObject", "films", "a/../b"},
    {"GET /films/a+b%20c%2Fd%e2%82%ac\n", "GetObject", "films", "a+b c/d\xe2\x82\xac"},
    {"GET /f%69lms/a\n", "GetObject", "films", "a"},
    {"HEAD /films\n", "HeadBucket", "films", NULL},
    {"HEAD /films/a?versionId=x\n", "HeadObject", "films", "a"},
    {"GET /films?list-type=2&prefix=a\n", "ListObjectsV2", "films", NULL},
    {"GET /films?prefix=uploads\n", "ListObjects", "films", NULL},
    {"GET /films?unknown=1&x-foo\n", "ListObjects", "films", NULL},
    {"GET /films?uploads=\n", "ListMultipartUploads", "films", NULL},
    {"GET /films?id=a&analytics\n", "GetBucketAnalyticsConfiguration", "films", NULL},
    {"GET /films?analytics\n", "ListBucketAnalyticsConfigurations", "films", NULL},
    {"PUT /films?analytics\n", "PutBucketAnalyticsConfiguration", "films", NULL},
    {"GET /films/a?uploadId=u\n", "ListParts", "films", "a"},
    {"GET /films/a?partNumber=1\n", "GetObject", "films", "a"},
    {"PUT /films/a?uploadId=u&partNumber=1\n", "UploadPart", "films", "a"},
    {"PUT /films/a?uploadId=u&partNumber=1\nx-amz-copy-source: b/k\n", "UploadPartCopy",
     "films", "a"},
    {"PUT /films/a\nX-AMZ-COPY-SOURCE: b/k\n", "CopyObject", "films", "a"},
    {"PUT /films/a?X-Amz-Copy-Source=b%2Fk&X-Amz-Signature=0\n", "CopyObject", "films", "a"},
    {"PUT /films/a?x-amz-copy-source=b&uploadId=u&partNumber=1\n", "UploadPartCopy", "films",
     "a"},
    {"PUT /films/a?tagging\nx-amz-copy-source: b/k\n", "PutObjectTagging", "films", "a"},
    {"PUT /films/a?uploadId=u\n", "InvalidArgument", "films", "a"},
    {"PUT /films/a?partNumber=1\n", "InvalidArgument", "films", "a"},
    {"DELETE /films/a?uploadId=u\n", "AbortMultipartUpload", "films", "a"},
    {"POST /films/a?uploads\n", "CreateMultipartUpload", "films", "a"},
    {"POST /films/a?uploadId=u\n", "CompleteMultipartUpload", "films", "a"},
    {"PUT /films/a?renameObject\nx-amz-rename-source: b\n", "RenameObject", "films", "a"},
    {"POST /films?delete\n", "DeleteObjects", "films", NULL},
    {"POST /films\nContent-Type: multipart/form-data; boundary=x\n", "PostObject", "films",
     NULL},
    {"POST /\nHost: films.example.com\nContent-Type: Multipart/Form-Data\n", "PostObject",
     "films", NULL},
    {"POST /films\n", "PreconditionFailed", "films", NULL},
    {"POST /films\nContent-Type: text/plain\n", "PreconditionFailed", "films", NULL},
    {"OPTIONS /films/a\n", "Preflight", "films", "a"},
    {"OPTIONS /\n", "Preflight", NULL, NULL},
    {"OPTIONS *\n", "InvalidURI", NULL, NULL},
    {"GET /films?acl\n", "GetBucketAcl", "films", NULL}, /* found; its state is 'no' */
    {"PUT /\n", "MethodNotAllowed", NULL, NULL},
    {"POST /films/a\n", "MethodNotAllowed", "films", "a"},
    {"DELETE /films?versioning\n", "MethodNotAllowed", "films", NULL},
    {"GET /films/a?uploads\n", "MethodNotAllowed", "films", "a"},
    {"PUT /films/a?cors\n", "MethodNotAllowed", "films", "a"},
    {"GET /films?attributes\n", "MethodNotAllowed", "films", NULL},
    {"HEAD /films?policy\n", "MethodNotAllowed", "films", NULL},
    {"PATCH /films/a\n", "MethodNotAllowed", "films", "a"},
    {"get /films/a\n", "MethodNotAllowed", "films", "a"},
    {"GET /films?acl&policy\n", "InvalidArgument", "films", NULL},
    {"GET /films?list-type=3\n", "InvalidArgument", "films", NULL},
    {"GET /films/%\n", "InvalidURI", "films", NULL},
    {"GET /films/%4\n", "InvalidURI", "films", NULL},
    {"GET /films/%zz\n", "InvalidURI", "films", NULL},
    {"GET /films/a%00b\n", "InvalidURI", "films", NULL},
    {"GET /films/%ff\n", "InvalidURI", "films", NULL},
    {"GET /films/%c0%af\n", "InvalidURI", "films", NULL},
    {"GET /films/%ed%a0%80\n", "InvalidURI", "films", NULL},
    {"GET /%ff/a\n", "InvalidURI", NULL, NULL},
    {"GET /films?prefix=%zz\n", "InvalidURI", "films", NULL},
    {"GET films\n", "InvalidURI", NULL, NULL},
    {"GET //a\n", "InvalidBucketName", "", NULL},
    {"GET /films/%01%0a%7f\n", "GetObject", "films", "\x01\n\x7f"},
    {long_key, "KeyTooLongError", "b", NULL},
};

static void test_routes(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(route_cases); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
        struct aws_http rq = request(a, route_cases[i].rq);
        struct rest_target t;
        struct err err = ERR_INIT;
        int rc = rest_route(&opts, &rq, a, &t, &err);
        const char *got = rc < 0 ? err.name : rest_op_name(t.op);
        if (strcmp(got, route_cases[i].op) != 0) {
            fail_msg("%s: got %s, want %s", route_cases[i].rq, got, route_cases[i].op);
        }
        assert_true(str_is_set(t.bucket) == (route_cases[i].bucket != NULL));
        assert_true(str_eq(t.bucket, str_c(route_cases[i].bucket)));
        assert_true(str_is_set(t.key) == (route_cases[i].key != NULL));
        assert_true(str_eq(t.key, str_c(route_cases[i].key)));
    }
}

static void test_allow(void **state)
{
    static const struct {
        const char *rq, *allow;
    } cases[] = {
        {"PATCH /\n", "GET"},
        {"PATCH /b\n", "GET, HEAD, PUT, POST, DELETE"},
        {"PATCH /b/k\n", "GET, HEAD, PUT, POST, DELETE"},
        {"DELETE /b?versioning\n", "GET, PUT"},
        {"GET /b/k?uploads\n", "POST"},
        {"PUT /b/k?cors\n", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
        AUTO(rest_answer_done) struct rest_answer ans;
        struct aws_http rq = request(a, cases[i].rq);
        struct rest_target t;
        struct err err = ERR_INIT;
        assert_int_equal(rest_route(&opts, &rq, a, &t, &err), -EPERM);
        assert_string_equal(t.allow, cases[i].allow);
        rest_answer_init(&ans, a, STR("r"), STR("h"));
        rest_error(&err, &t, STR("r"), STR("h"), &ans);
        assert_int_equal(ans.status, 405);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operation_has_its_route),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_allow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
