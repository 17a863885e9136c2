/* The rest-json codec with the EBS model: paths, labels, query, headers, JSON in and out, errors.
 */
#include "base/test.h"

#include "aws/api/ebs.h"
#include "aws/errors.h"
#include "aws/rest_json.h"
#include "aws/validate.h"

#include <errno.h>

static const struct aws_service *const s = &aws_service_ebs;

static struct aws_http request(const char *method, const char *path, const char *query,
                               const char *body)
{
    return (struct aws_http){.method = str_c(method),
                             .path = str_c(path),
                             .query = query ? str_c(query) : STR_NONE,
                             .body = str_c(body)};
}

static void test_paths(void **ctx)
{
    static const struct {
        const char *method, *path;
        int op;
        const char *label;
    } cases[] = {
        {"POST", "/snapshots", EBS_OP_START_SNAPSHOT, NULL},
        {"POST", "/snapshots/completion/snap-1", EBS_OP_COMPLETE_SNAPSHOT, "snap-1"},
        {"GET", "/snapshots/snap-1/blocks", EBS_OP_LIST_SNAPSHOT_BLOCKS, "snap-1"},
        {"GET", "/snapshots/snap-1/changedblocks", EBS_OP_LIST_CHANGED_BLOCKS, "snap-1"},
        {"GET", "/snapshots/snap-1/blocks/7", EBS_OP_GET_SNAPSHOT_BLOCK, "snap-1"},
        {"PUT", "/snapshots/a%2Fb/blocks/7", EBS_OP_PUT_SNAPSHOT_BLOCK, "a/b"},
        {"GET", "/snapshots", -1, NULL},
        {"POST", "/snapshots/", -1, NULL},
        {"GET", "/snapshots//blocks", -1, NULL},
        {"GET", "/snapshots/snap-1/blocks/", -1, NULL},
        {"GET", "/snapshots/snap-1/blocks/1/2", -1, NULL},
        {"GET", "snapshots/snap-1/blocks", -1, NULL},
        {"DELETE", "/snapshots/snap-1/blocks/1", -1, NULL},
        {"get", "/snapshots/snap-1/blocks", -1, NULL},
        {"GET", "", -1, NULL},
    };
    (void)ctx;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(1u << 16);
        struct aws_http rq = request(cases[i].method, cases[i].path, NULL, "");
        struct rest_json_route t;
        assert_int_equal(rest_json_find(s, &rq, a, &t, NULL), 0);
        assert_int_equal(t.op, cases[i].op);
        if (cases[i].label) {
            assert_str(t.labels[0].value, cases[i].label);
        }
    }
    AUTO(arena_freep) struct arena *a = arena_new(1u << 16);
    struct aws_http rq = request("GET", "/snapshots/%zz/blocks", NULL, "");
    struct rest_json_route t;
    assert_int_equal(rest_json_find(s, &rq, a, &t, NULL), -EINVAL);
    assert_true(rest_json_takes_bytes(s, EBS_OP_PUT_SNAPSHOT_BLOCK));
    assert_false(rest_json_takes_bytes(s, EBS_OP_START_SNAPSHOT));
    assert_false(rest_json_takes_bytes(s, -1));
}

static int decode(struct arena *a, const struct aws_http *rq, void *out, struct err *err)
{
    struct rest_json_route t;
    assert_int_equal(rest_json_find(s, rq, a, &t, NULL), 0);
    assert_true(t.op >= 0);
    int r = rest_json_decode(s, &t, rq, a, out, err);
    return r < 0 ? r : aws_validate(s, s->ops[t.op].in, out, err);
}

static void test_labels_query_headers(void **ctx)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    const struct http_header headers[] = {{STR("X-AMZ-data-length"), STR("5")},
                                          {STR("x-amz-Checksum"), STR("abc=")},
                                          {STR("x-amz-checksum-algorithm"), STR("SHA256")}};
    (void)ctx;
    struct ebs_put_snapshot_block_request put = {0};
    struct aws_http rq = request("PUT", "/snapshots/snap-1/blocks/42", NULL, "hello");
    rq.headers = headers;
    rq.n_headers = ARRAY_LEN(headers);
    assert_int_equal(decode(a, &rq, &put, NULL), 0);
    assert_str(put.snapshot_id, "snap-1");
    assert_int_equal(put.block_index.v, 42);
    assert_int_equal(put.data_length.v, 5);
    assert_str(put.checksum, "abc=");
    assert_str(put.block_data, "hello");
    assert_false(put.progress.is_set);
    struct ebs_list_snapshot_blocks_request list = {0};
    rq =
        request("GET", "/snapshots/snap-1/blocks", "maxResults=100&pageToken=a%2Bb%3D&x=1", "");
    assert_int_equal(decode(a, &rq, &list, NULL), 0);
    assert_int_equal(list.max_results.v, 100);
    assert_str(list.next_token, "a+b=");
    assert_false(list.starting_block_index.is_set);
}

static void test_values_that_are_none(void **ctx)
{
    static const struct {
        const char *method, *path, *query, *body, *name;
    } cases[] = {
        {"GET", "/snapshots/snap-1/blocks", "maxResults=x", "", "ValidationException"},
        {"GET", "/snapshots/snap-1/blocks", "maxResults=99", "", "ValidationError"},
        {"GET", "/snapshots/snap-1/blocks", "maxResults=%zz", "", "ValidationException"},
        {"GET", "/snapshots/vol-1/blocks", NULL, "", "ValidationError"},
        {"GET", "/snapshots/snap-1/blocks/-1", "blockToken=a", "", "ValidationError"},
        {"GET", "/snapshots/snap-1/blocks/1", NULL, "", "ValidationError"},
        {"GET", "/snapshots/snap-1/blocks/2147483648", "blockToken=a", "",
         "ValidationException"},
        {"POST", "/snapshots", NULL, "", "ValidationError"},
        {"POST", "/snapshots", NULL, "{}", "ValidationError"},
        {"POST", "/snapshots", NULL, "[]", "SerializationException"},
        {"POST", "/snapshots", NULL, "{", "SerializationException"},
        {"POST", "/snapshots", NULL, "{\"VolumeSize\":\"1\"}", "SerializationException"},
        {"POST", "/snapshots", NULL, "{\"VolumeSize\":1.5}", "SerializationException"},
        {"POST", "/snapshots", NULL, "{\"VolumeSize\":1,\"Tags\":[{\"Key\":1}]}",
         "SerializationException"},
        {"POST", "/snapshots", NULL, "{\"VolumeSize\":1,\"Timeout\":9}", "ValidationError"},
        {"POST", "/snapshots", NULL, "{\"VolumeSize\":1,\"Timeout\":4294967306}",
         "SerializationException"},
    };
    (void)ctx;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
        char out[1024] __attribute__((aligned(16))) = {0};
        struct err e = ERR_INIT;
        struct aws_http rq =
            request(cases[i].method, cases[i].path, cases[i].query, cases[i].body);
        assert_int_equal(decode(a, &rq, out, &e), -EINVAL);
        assert_string_equal(e.name, cases[i].name);
    }
}

static void test_json_in(void **ctx)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct ebs_start_snapshot_request in = {0};
    (void)ctx;
    struct aws_http rq = request("POST", "/snapshots", NULL,
                                 "{\"VolumeSize\":8,\"Encrypted\":true,\"Description\":null,"
                                 "\"Tags\":[{\"Key\":\"a\",\"Value\":\"\\u00e9\"},"
                                 "{\"Key\":\"b\"}],\"Unknown\":{\"x\":[1]}}");
    assert_int_equal(decode(a, &rq, &in, NULL), 0);
    assert_int_equal(in.volume_size.v, 8);
    assert_true(in.encrypted.is_set && in.encrypted.v);
    assert_false(str_is_set(in.description));
    assert_int_equal(in.tags.n, 2);
    assert_str(in.tags.v[0].value, "\xc3\xa9");
    assert_false(str_is_set(in.tags.v[1].value));
    assert_false(in.timeout.is_set);
}

static void test_out(void **ctx)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    AUTO_BUF body;
    struct rest_json_answer ans;
    (void)ctx;
    buf_init(&body, 1u << 20);
    struct ebs_start_snapshot_response out = {
        .snapshot_id = STR("snap-1"),
        .status = STR("pending"),
        .volume_size = some_i64(8),
        .start_time = some_time(UINT64_C(1701302400123456789)),
    };
    AWS_LIST_MAKE(a, &out.tags, 1);
    out.tags.v[0].key = STR("a\"");
    assert_int_equal(rest_json_encode(s, EBS_OP_START_SNAPSHOT, &out, a, &ans, &body, NULL), 0);
    assert_int_equal(ans.status, 201);
    assert_false(ans.is_bytes);
    assert_str(buf_str(&body), "{\"SnapshotId\":\"snap-1\",\"Status\":\"pending\","
                               "\"StartTime\":1701302400.123,\"VolumeSize\":8,"
                               "\"Tags\":[{\"Key\":\"a\\\"\"}]}");
    struct ebs_get_snapshot_block_response block = {
        .data_length = some_i64(3), .block_data = STR("\0\1\2"), .checksum = STR("x=")};
    buf_clear(&body);
    assert_int_equal(
        rest_json_encode(s, EBS_OP_GET_SNAPSHOT_BLOCK, &block, a, &ans, &body, NULL), 0);
    assert_true(ans.is_bytes && ans.status == 200 && ans.n == 2);
    assert_str(ans.headers[0].name, "x-amz-Data-Length");
    assert_str(ans.headers[0].value, "3");
    assert_str(ans.headers[1].name, "x-amz-Checksum");
    assert_int_equal(body.n, 3);
    assert_memory_equal(body.p, "\0\1\2", 3);
}

static void test_errors(void **ctx)
{
    static const struct {
        const char *name, *hint;
        int status;
        const char *code, *body;
    } cases[] = {
        {"ValidationException", "INVALID_BLOCK", 400, "ValidationException",
         "{\"Message\":\"m\",\"Reason\":\"INVALID_BLOCK\"}"},
        {"ValidationError", NULL, 400, "ValidationException",
         "{\"Message\":\"m\",\"Reason\":\"INVALID_PARAMETER_VALUE\"}"},
        {"ResourceNotFoundException", "SNAPSHOT_NOT_FOUND", 404, "ResourceNotFoundException",
         "{\"Message\":\"m\",\"Reason\":\"SNAPSHOT_NOT_FOUND\"}"},
        {"ConflictException", NULL, 409, "ConflictException", "{\"Message\":\"m\"}"},
        {"AccessDenied", NULL, 403, "AccessDeniedException",
         "{\"Message\":\"m\",\"Reason\":\"UNAUTHORIZED_ACCOUNT\"}"},
        {"SignatureDoesNotMatch", NULL, 403, "InvalidSignatureException",
         "{\"Message\":\"m\"}"},
        {"Unavailable", NULL, 503, "ServiceUnavailableException", NULL},
        {"OpenFailed", NULL, 500, "InternalServerException", NULL},
    };
    (void)ctx;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = {
            .code = -EINVAL, .name = cases[i].name, .hint = cases[i].hint, .msg = "m"};
        struct aws_error_out o = aws_error_show(s, &e);
        AUTO_BUF b;
        buf_init(&b, 4096);
        aws_error_body(s, &o, STR("id"), &b);
        assert_int_equal(o.status, cases[i].status);
        assert_string_equal(o.code, cases[i].code);
        if (cases[i].body) {
            assert_str(buf_str(&b), cases[i].body);
        } else {
            assert_true(str_find_str(buf_str(&b), STR("\"m\"")) < 0); /* ours stay ours */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_labels_query_headers),
        cmocka_unit_test(test_values_that_are_none),
        cmocka_unit_test(test_json_in),
        cmocka_unit_test(test_out),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
