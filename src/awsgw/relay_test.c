/* Which requests are S3's, and heads of answers. */
#include "awsgw/relay_answer.h"
#include "awsgw/relay_route.h"
#include "base/test.h"
#include <errno.h>

#define AUTH(service)                                                              \
    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261130/eu-west-1/" service \
    "/aws4_request, SignedHeaders=host, Signature=00"
#define PRESIGNED(service)                                                                     \
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA%2F20261130%2Feu-west-1%2F" service \
    "%2Faws4_request&X-Amz-Signature=00"

static void test_routes(void **state)
{
    static const char *const domains[] = {"s3.example.net", "s3.localhost"};
    static const struct {
        const char *method, *path, *query, *host, *name, *value;
        bool is_s3;
    } cases[] = {
        /* the scope decides */
        {"GET", "/", NULL, "h", "Authorization", AUTH("s3"), true},
        {"POST", "/", NULL, "h", "authorization", AUTH("s3"), true},
        {"POST", "/", NULL, "h", "Authorization", AUTH("ec2"), false},
        {"GET", "/bucket/key", NULL, "h", "Authorization", AUTH("ec2"), false},
        {"GET", "/", NULL, "s3.localhost", "Authorization", AUTH("sts"), false},
        {"GET", "/", "list-type=2&" PRESIGNED("s3"), "h", "X", "", true},
        {"PUT", "/b/k", PRESIGNED("s3"), "h", "X", "", true},
        {"GET", "/", "Action=GetCallerIdentity&" PRESIGNED("sts"), "h", "X", "", false},
        {"GET", "/", "X-Amz-Credential=A/20261130/s3/aws4_request", "h", "X", "", true},
        {"GET", "/", NULL, "h", "Authorization",
         "AWS4-ECDSA-P256-SHA256 Credential=A/20261130/s3/aws4_request, Signature=0", true},
        {"GET", "/b/k", NULL, "h", "Authorization", "AWS AKIA:c2ln", true},
        {"GET", "/", NULL, "h", "Authorization", "AWS AKIA:c2ln", true},
        /* nobody signed: the form does */
        {"OPTIONS", "/b/k", NULL, "h", "Origin", "https://x", true},
        {"OPTIONS", "*", NULL, "h", "X", "", true},
        {"GET", "/b/k", NULL, "h", "X", "", true},
        {"HEAD", "/", NULL, "h", "X", "", true},
        {"PUT", "/", NULL, "h", "X", "", true},
        {"GET", "/", NULL, "h", "X", "", false},
        {"GET", "/", "Action=DescribeRegions&Version=2016-11-15", "h", "X", "", false},
        {"GET", "/", "AWSAccessKeyId=A&Signature=b&Expires=1", "h", "X", "", true},
        {"GET", "/", "AWSAccessKeyId=A&Signature=b&Action=DescribeRegions", "h", "X", "",
         false},
        {"GET", "/", "list-type=2", "films.s3.example.net:9999", "X", "", true},
        {"GET", "/", NULL, "S3.Example.NET", "X", "", true},
        {"GET", "/", NULL, "xs3.example.net", "X", "", false},
        {"GET", "/", NULL, ".s3.example.net", "X", "", false},
        {"POST", "/", NULL, "h", "Content-Type", "application/x-www-form-urlencoded", false},
        {"POST", "/", NULL, "h", "Content-Type", "application/x-amz-json-1.1", false},
        {"POST", "/", NULL, "b.s3.localhost", "Content-Type", "multipart/form-data; boundary=x",
         true},
        {"POST", "/b", NULL, "h", "Content-Type", "multipart/form-data; boundary=x", true},
        /* no scopes at all */
        {"GET", "/", NULL, "h", "Authorization", "AWS4-HMAC-SHA256 Credential=AKIA", false},
        {"GET", "/", NULL, "h", "Authorization", "AWS4-HMAC-SHA256", false},
        {"POST", "/", "X-Amz-Credential", "h", "X", "", false},
        {"POST", "/", "X-Amz-Credential=s3%2F", "h", "X", "", false},
        {"POST", "/", "xX-Amz-Credential=A/1/s3/x", "h", "X", "", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct http_header header = {str_c(cases[i].name), str_c(cases[i].value)};
        const struct http_head h = {.method = str_c(cases[i].method),
                                    .path = str_c(cases[i].path),
                                    .query = cases[i].query ? str_c(cases[i].query) : STR_NONE,
                                    .host = str_c(cases[i].host),
                                    .headers = &header,
                                    .n_headers = 1};
        if (relay_wants(&h, domains, ARRAY_LEN(domains)) != cases[i].is_s3) {
            fail_msg("%zu: %s %s?%s", i, cases[i].method, cases[i].path,
                     cases[i].query ? cases[i].query : "");
        }
    }
}

static void test_answers(void **state)
{
    static const struct {
        const char *text;
        int status; /* 0: refused */
        int64_t length;
        size_t n_headers;
        bool is_chunked, is_close;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nETag: \"a\"\r\n\r\n", 200, 12, 1, 0, 0},
        {"HTTP/1.1 204\r\n\r\n", 204, -1, 0, 0, 0},
        {"HTTP/1.1 304 \r\nDate: x\r\nServer: y\r\nKeep-Alive: 5\r\n\r\n", 304, -1, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\ntransfer-encoding:  Chunked\r\nConnection: a, Close\r\n\r\n", 200,
         -1, 0, 1, 1},
        {"HTTP/1.1 100 Continue\r\n\r\n", 100, -1, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nx-amz-meta-a: \xc3\xa4 b\t\r\nX-Empty:\r\n\r\n", 200, -1, 2, 0, 0},
        {"HTTP/1.0 200 OK\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 20 OK\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 2000 OK\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 099 OK\r\n\r\n", 0, 0, 0, 0, 0},
        {"200 OK\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 0, 0,
         0, 0},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nA\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct relay_answer a;
        struct http1_scan s = {0};
        size_t n = strlen(cases[i].text);
        assert_int_equal(http1_scan(&s, cases[i].text, n, 65536), n);
        int r = relay_answer_parse(cases[i].text, n, &a);
        if (r != (cases[i].status ? 0 : -EBADMSG)) {
            fail_msg("%zu: %d for %s", i, r, cases[i].text);
        }
        if (r == 0) {
            assert_int_equal(a.status, cases[i].status);
            assert_int_equal(a.content_length, cases[i].length);
            assert_int_equal(a.n_headers, cases[i].n_headers);
            assert_int_equal(a.is_chunked, cases[i].is_chunked);
            assert_int_equal(a.is_close, cases[i].is_close);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
