/* The bench against a small S3: what it calls, what it notices, and that nothing is left behind. */
#include "aws/sigv4.h"
#include "base/test.h"
#include "base/time.h"
#include "codec/base64.h"
#include "crypto/crc.h"
#include "net/http_server.h"
#include "spx/bench_s3.h"
#include "testkit/tmpdir.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define SECRET   "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define MAX_SIZE (8u << 20)

static struct {
    struct http_server *s;
    char endpoint[64];
    char *body;
    size_t n_body;
    pthread_mutex_t mu;
    char log[2000]; /* "PUT /b,PUT /b/object," */
    const char *mode;
    unsigned n_bad_signatures, n_bad_sums;
} srv;

static void check(struct http_req *req, struct str body)
{
    const struct http_head *h = http_req_head(req);
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct aws_http rq = {.method = h->method,
                          .path = h->path,
                          .query = h->query,
                          .headers = h->headers,
                          .n_headers = h->n_headers,
                          .now_ns = time_wall_ns()};
    struct sigv4_auth auth;
    AUTO_BUF canonical;
    buf_init(&canonical, 65536);
    int r = sigv4_parse(a, &rq, &auth, NULL);
    struct str good =
        r < 0 ? STR("")
              : sigv4_sign(a, &rq, STR(SECRET), &auth, SIGV4_S3, STR("UNSIGNED-PAYLOAD"));
    srv.n_bad_signatures += r < 0 || !str_eq(good, http_header_get(h, "Authorization"));
    struct str sum = http_header_get(h, "x-amz-checksum-crc64nvme");
    if (str_is_set(sum)) {
        AUTO_BUF want;
        uint8_t bytes[CRC_MAX_SIZE];
        size_t n = crc_bytes(CRC_64NVME, crc_add(CRC_64NVME, 0, body), bytes);
        buf_init(&want, 100);
        base64_encode(str_n((const char *)bytes, n), &want);
        srv.n_bad_sums += !str_eq(buf_str(&want), sum);
    }
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    const struct http_head *h = http_req_head(req);
    pthread_mutex_lock(&srv.mu);
    size_t n = strlen(srv.log);
    bool is_object = str_has_suffix(h->path, STR("/object"));
    snprintf(srv.log + n, sizeof(srv.log) - n, "%.*s %s,", STR_ARG(h->method),
             is_object ? "object" : "bucket");
    check(req, body);
    struct http_answer a = {.status = 200};
    if (is_object && str_eqc(h->method, "PUT")) {
        memcpy(srv.body, body.p, body.n);
        srv.n_body = body.n;
        if (strcmp(srv.mode, "full") == 0) {
            a.status = 507;
            a.body = STR("<Error><Code>InsufficientStorage</Code></Error>");
        }
    } else if (str_eqc(h->method, "GET")) {
        size_t end = srv.n_body;
        if (strcmp(srv.mode, "flipped") == 0) {
            srv.body[end - 7] ^= 1;
        }
        a.body = str_n(srv.body, strcmp(srv.mode, "short") == 0 ? end - 1 : end);
    } else if (str_eqc(h->method, "DELETE")) {
        a.status = strcmp(srv.mode, "sticky") == 0 ? 409 : 204;
    }
    pthread_mutex_unlock(&srv.mu);
    http_respond(req, &a);
}

static int setup(void **state)
{
    static const struct http_handler handler = {.on_end = on_end};
    const struct http_server_opts o = {
        .name = "s3", .n_loops = 1, .max_buffered_body = MAX_SIZE};
    memset(&srv, 0, sizeof(srv));
    pthread_mutex_init(&srv.mu, NULL);
    srv.mode = "";
    srv.body = malloc(MAX_SIZE);
    if (http_server_new(&o, &handler, NULL, &srv.s, NULL) < 0 ||
        http_server_listen(srv.s, "127.0.0.1", 0, NULL) < 0) {
        return -1;
    }
    snprintf(srv.endpoint, sizeof(srv.endpoint), "http://127.0.0.1:%u",
             http_server_port(srv.s));
    return 0;
}

static int teardown(void **state)
{
    http_server_free(srv.s);
    free(srv.body);
    pthread_mutex_destroy(&srv.mu);
    return 0;
}

static struct bench_s3 bench(void)
{
    return (struct bench_s3){.endpoint = srv.endpoint,
                             .keys = {.access_key = "AKIAIOSFODNN7EXAMPLE",
                                      .secret = SECRET,
                                      .token = "",
                                      .region = "eu-west-1",
                                      .endpoint = "",
                                      .ca_path = ""},
                             .size = (3u << 20) + 12345,
                             .n_runs = 2,
                             .pids = {getpid()},
                             .n_pids = 1};
}

static void test_a_good_store(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct bench_s3 b = bench();
    static struct bench_result res;
    struct err err = ERR_INIT;
    if (bench_s3_run(a, &b, &res, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_string_equal(srv.log, "PUT bucket,PUT object,GET object,PUT object,GET object,"
                                 "DELETE object,DELETE bucket,");
    assert_int_equal(srv.n_bad_signatures, 0);
    assert_int_equal(srv.n_bad_sums, 0);
    assert_int_equal(res.n_runs, 2);
    assert_int_equal(srv.n_body, b.size);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(res.put[i].wall_ns > 0 && res.get[i].wall_ns > 0);
    }
    /* Blocks differ: a store that mixes them up is found out. */
    assert_memory_not_equal(srv.body, srv.body + (1 << 20), 8);
}

static void test_bad_stores(void **state)
{
    static const struct {
        const char *mode, *name, *msg, *log;
    } cases[] = {
        {"flipped", "WrongBytes", "what was read is not what was written",
         "PUT bucket,PUT object,GET object,DELETE object,DELETE bucket,"},
        {"short", "WrongBytes", "what was read is not what was written",
         "PUT bucket,PUT object,GET object,DELETE object,DELETE bucket,"},
        {"full", "CallFailed", "the server answered 507 InsufficientStorage",
         "PUT bucket,PUT object,DELETE object,DELETE bucket,"},
        {"sticky", "CallFailed", "is left behind",
         "PUT bucket,PUT object,GET object,PUT object,GET object,DELETE object,"},
    };
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bench_s3 b = bench();
        static struct bench_result res;
        struct err err = ERR_INIT;
        srv.mode = cases[i].mode;
        srv.log[0] = 0;
        assert_true(bench_s3_run(a, &b, &res, &err) < 0);
        assert_string_equal(err.name, cases[i].name);
        if (!strstr(err.msg, cases[i].msg)) {
            fail_msg("%s: %s", cases[i].mode, err.msg);
        }
        assert_string_equal(srv.log, cases[i].log);
    }
}

static void test_stopped_and_unreachable(void **state)
{
    static const volatile bool is_stopped = true;
    static struct bench_result res;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct bench_s3 b = bench();
    struct err err = ERR_INIT;
    b.is_stopped = &is_stopped;
    assert_int_equal(bench_s3_run(a, &b, &res, &err), -ECANCELED);
    assert_non_null(strstr(srv.log, "DELETE bucket,"));
    b.endpoint = "http://127.0.0.1:1";
    err_clear(&err);
    assert_int_equal(bench_s3_run(a, &b, &res, &err), -EHOSTUNREACH);
    b.endpoint = "127.0.0.1";
    err_clear(&err);
    assert_int_equal(bench_s3_run(a, &b, &res, &err), -EINVAL);
}

static void test_costs(void **state)
{
    struct tmpdir d;
    uint64_t rate = 0;
    pid_t self = getpid(), none = 0x3fffffff;
    uint64_t before = bench_cpu_ns(&self, 1), end = time_mono_ns() + 200 * NS_PER_MS;
    while (time_mono_ns() < end) {}
    assert_true(bench_cpu_ns(&self, 1) > before);
    assert_int_equal(bench_cpu_ns(&none, 1), 0);
    tmpdir_init(&d, "bench");
    int r = bench_disk(d.path, 1 << 20, &rate, NULL);
    assert_true(r == 0 ? rate > 0 : r == -EOPNOTSUPP);
    assert_int_equal(bench_disk("/nowhere", 1, &rate, NULL), -ENOENT);
    tmpdir_done(&d);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_a_good_store),
        CASE(test_bad_stores),
        CASE(test_stopped_and_unreachable),
        CASE(test_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
