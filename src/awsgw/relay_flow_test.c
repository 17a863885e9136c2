/* The relay between a real HTTP server and a scripted predastore. */
#include "awsgw/relay.h"
#include "awsgw/relay_up.h"
#include "base/num.h"
#include "base/test.h"
#include "base/time.h"
#include "net/http_test_client.h"
#include "testkit/tmpdir.h"

#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* ---- the gateway's side ---- */

static struct {
    struct tmpdir dir;
    struct http_server *s;
    struct relay *r;
    uint16_t port;
    atomic_int n_open;
} gw;

struct user {
    struct relay_req *q; /* first, as relay.h wants it */
};

static void on_head(void *ctx, struct http_req *req, const struct http_head *head,
                    void **ret_user)
{
    struct user *u = calloc(1, sizeof(*u));
    atomic_fetch_add(&gw.n_open, 1);
    *ret_user = u;
    u->q = relay_begin(gw.r, req, STR("192.0.2.7"));
}

static enum http_flow on_body(struct http_req *req, void *user, struct str chunk)
{
    return relay_body(((struct user *)user)->q, chunk);
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    relay_end(((struct user *)user)->q);
}

static void on_abort(struct http_req *req, void *user)
{
    relay_abort(((struct user *)user)->q);
}

static void on_done(struct http_req *req, void *user)
{
    relay_done(((struct user *)user)->q);
    free(user);
    atomic_fetch_sub(&gw.n_open, 1);
}

static const struct http_handler handler = {.on_head = on_head,
                                            .on_body = on_body,
                                            .on_end = on_end,
                                            .on_abort = on_abort,
                                            .on_done = on_done};

static int setup_with(unsigned max_conns)
{
    memset(&up, 0, sizeof(up));
    memset(&gw, 0, sizeof(gw));
    char path[PATH_MAX];
    tmpdir_init(&gw.dir, "relay");
    snprintf(up.path, sizeof(up.path), "%s", tmpdir_path(&gw.dir, "s3.sock", path));
    up_begin();
    gw.r = relay_new(up.path, max_conns);
    const struct http_server_opts o = {.name = "gw", .n_loops = 1, .server_header = "Spinifex"};
    if (http_server_new(&o, &handler, NULL, &gw.s, NULL) < 0 ||
        http_server_listen(gw.s, "127.0.0.1", 0, NULL) < 0) {
        return -1;
    }
    gw.port = http_server_port(gw.s);
    return 0;
}

static int setup(void **state)
{
    return setup_with(100);
}

static int setup_two(void **state)
{
    return setup_with(2);
}

static void wait_for(atomic_int *v, int want)
{
    for (int i = 0; i < 2000 && atomic_load(v) != want; i++) {
        usleep(5000);
    }
    assert_int_equal(atomic_load(v), want);
}

static int teardown(void **state)
{
    http_server_drain(gw.s, NS_PER_S);
    relay_stop(gw.r);
    http_server_free(gw.s);
    struct relay_stats st;
    relay_stats(gw.r, &st);
    assert_int_equal(st.n_conns, 0);
    assert_int_equal(atomic_load(&gw.n_open), 0);
    relay_free(gw.r);
    up_end();
    atomic_store(&up.is_stalled, false);
    wait_for(&up.n_conns, 0);
    tmpdir_done(&gw.dir);
    return 0;
}

static void open_client(struct tc *c)
{
    assert_int_equal(tc_open(c, gw.port, NULL, 0), 0);
}

static void test_a_request_passes_unchanged(void **state)
{
    struct tc c;
    struct tc_answer a;
    open_client(&c);
    tc_send(&c,
            "PUT /head HTTP/1.1\r\nhOsT: b.s3.localhost:9999\r\nX-Spx-Source-Ip: 1.2.3.4\r\n"
            "x-spx-principal: root\r\nAuthorization: AWS4-HMAC-SHA256 Credential=a/b/c/s3/d\r\n"
            "x-amz-meta-a:  two  words \r\nConnection: keep-alive\r\nx-amz-date: x\r\n"
            "X-Amz-Meta-A: again\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "PUT /head HTTP/1.1\r\nhOsT: b.s3.localhost:9999\r\n"
                                "Authorization: AWS4-HMAC-SHA256 Credential=a/b/c/s3/d\r\n"
                                "x-amz-meta-a: two  words\r\nx-amz-date: x\r\n"
                                "X-Amz-Meta-A: again\r\nX-Spx-Source-Ip: 192.0.2.7\r\n\r\n");
    assert_non_null(strstr(a.head, "\r\nETag: \"e\"\r\n"));
    tc_send(&c, "GET /a%2Fb/..//c?x=%20+&y HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
}

static void test_connections_are_used_again(void **state)
{
    struct tc c;
    struct tc_answer a;
    struct relay_stats st;
    open_client(&c);
    for (int i = 0; i < 50; i++) {
        tc_send(&c, i % 2 ? "GET /get/10 HTTP/1.1\r\nHost: h\r\n\r\n"
                          : "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, i % 2 ? "dddddddddd" : "5");
    }
    relay_stats(gw.r, &st);
    assert_int_equal(st.n_connects, 1);
    assert_int_equal(st.n_requests, 50);
    tc_close(&c);
}

static void test_answers_of_all_forms(void **state)
{
    static const struct {
        const char *method, *path, *body;
        int status;
        const char *header; /* that must be there */
    } cases[] = {
        {"GET", "/torn", "0123456789", 200, "X-A: b"},
        {"GET", "/chunks", "hello!", 200, "Transfer-Encoding: chunked"},
        {"GET", "/204", "", 204, "x-amz-id-2: a"},
        {"GET", "/304", "", 304, "ETag: \"e\""},
        {"HEAD", "/length", "", 200, "Content-Length: 123456789012"},
        {"GET", "/get/0", "", 200, "Content-Length: 0"},
        {"GET", "/torn", "0123456789", 200, "Server: Spinifex"},
    };
    struct tc c;
    struct tc_answer a;
    open_client(&c);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        tc_sendf(&c, "%s %s HTTP/1.1\r\nHost: h\r\n\r\n", cases[i].method, cases[i].path);
        int status = tc_read(&c, &a, strcmp(cases[i].method, "HEAD") == 0);
        if (status != cases[i].status || strcmp(a.body ? a.body : "", cases[i].body) != 0 ||
            !strstr(a.head, cases[i].header)) {
            fail_msg("%s: %d %s", cases[i].path, status, a.head);
        }
    }
    tc_close(&c);
}

static void test_bodies_of_all_sizes_and_forms(void **state)
{
    struct tc c;
    struct tc_answer a;
    char want[30];
    size_t sizes[] = {1, 1000, 65536, 1000000, 5000000};
    char *big = calloc(1, 5000000);
    open_client(&c);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        tc_sendf(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", sizes[i]);
        tc_send_n(&c, big, sizes[i]);
        assert_int_equal(tc_read(&c, &a, false), 200);
        snprintf(want, sizeof(want), "%zu", sizes[i]);
        assert_string_equal(a.body, want);
    }
    tc_send(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 20; i++) {
        tc_send(&c, "3e8\r\n");
        tc_send_n(&c, big, 1000);
        tc_send(&c, "\r\n");
    }
    tc_send(&c, "0\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200); /* frames and bytes: at least these */
    uint64_t got = 0;
    assert_int_equal(num_u64(str_c(a.body), 100000, &got), 0);
    assert_true(got >= 20 * (5 + 1000 + 2) + 5 - 100);
    free(big);
    tc_close(&c);
}

static void test_expect_is_answered_by_predastore(void **state)
{
    struct tc c;
    struct tc_answer a;
    open_client(&c);
    tc_send(&c,
            "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_false(tc_is_readable(&c, 5)); /* not by the gateway on its own */
    assert_int_equal(tc_read(&c, &a, true), 100);
    tc_send(&c, "body");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "4");
    tc_send(&c, "PUT /no HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\nExpect: "
                "100-continue\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 403); /* and no 100 before it */
    assert_string_equal(a.body, "no\n");
    assert_true(tc_is_closed(&c, 5000));
    tc_close(&c);
}

static void test_an_expectation_that_is_none_is_not_waited_for(void **state)
{
    static const char *const values[] = {"200", "", "100-continue2"};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct tc c;
        struct tc_answer a;
        char head[200];
        (void)snprintf(
            head, sizeof(head),
            "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: %s\r\n\r\nbody",
            values[i]);
        open_client(&c);
        tc_send(&c, head);
        assert_true(tc_is_readable(&c, 5000));
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "4");
        tc_close(&c);
    }
}

static void test_a_refusal_overtakes_the_body(void **state)
{
    struct tc c;
    struct tc_answer a;
    char *big = calloc(1, 100000);
    open_client(&c);
    tc_send(&c, "PUT /no HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n");
    tc_send_n(&c, big, 100000);
    assert_int_equal(tc_read(&c, &a, false), 403);
    assert_string_equal(a.body, "no\n");
    tc_close(&c);
    /* An answer that begins early, and a body that is wanted to its end. */
    open_client(&c);
    tc_send(&c, "PUT /early HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        tc_send_n(&c, big, 100000);
        usleep(20000);
    }
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "early300000");
    free(big);
    tc_close(&c);
}

static void test_predastore_breaks(void **state)
{
    static const char *const before[] = {"/dies", "/half", "/nonsense", "/endless"};
    struct tc c;
    struct tc_answer a;
    open_client(&c);
    for (size_t i = 0; i < ARRAY_LEN(before); i++) {
        tc_sendf(&c, "PUT %s HTTP/1.1\r\nHost: h\r\n\r\n", before[i]);
        assert_int_equal(tc_read(&c, &a, false), 503);
        assert_non_null(strstr(a.body, "<Error><Code>ServiceUnavailable</Code>"));
        assert_non_null(strstr(a.head, "Content-Type: application/xml"));
    }
    tc_send(&c,
            "GET /long HTTP/1.1\r\nHost: h\r\n\r\n"); /* what is too much is nobody's answer */
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "ab");
    tc_send(&c, "GET /get/3 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "ddd");
    tc_send(&c, "GET /short HTTP/1.1\r\nHost: h\r\n\r\n"); /* half an answer is shown as that */
    assert_int_equal(tc_read(&c, &a, false), -1);
    tc_close(&c);
}

static void test_predastore_is_not_there(void **state)
{
    struct tc c;
    struct tc_answer a;
    up_end();
    open_client(&c);
    for (int i = 0; i < 3; i++) {
        tc_send(&c, "GET /get/3 HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(tc_read(&c, &a, false), 503);
        assert_non_null(strstr(a.body, "<Code>ServiceUnavailable</Code>"));
    }
    tc_send(&c, "HEAD /get/3 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, true), 503);
    up_begin(); /* back without anybody being told */
    tc_send(&c, "GET /get/3 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
}

static void wait_for_conns(unsigned want)
{
    struct relay_stats st = {0};
    for (int i = 0; i < 2000; i++) {
        relay_stats(gw.r, &st);
        if (st.n_conns == want) {
            return;
        }
        usleep(5000);
    }
    fail_msg("%u connections to predastore, want %u", (unsigned)st.n_conns, want);
}

#define PUT  "PUT /x HTTP/1.1\r\nHost: h\r\n"
#define POST "POST /x HTTP/1.1\r\nHost: h\r\n"

/* A kept connection that ended is no reason to refuse anybody: what was not read is sent again.
 * What was read whole may have been done; that is said, but for what changes nothing. */
static void test_kept_connections_that_ended(void **state)
{
    static const struct {
        const char *first, *request, *rest;
        int want;
        const char *body;
    } cases[] = {
        {"/then-deaf", "GET /get/3 HTTP/1.1\r\nHost: h\r\n\r\n", NULL, 200, "ddd"},
        {"/then-deaf", PUT "Content-Length: 2\r\n\r\nab", NULL, 200, "2"},
        {"/then-deaf", PUT "Content-Length: 4\r\n\r\nab", "cd", 200, "4"},
        {"/then-deaf", PUT "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", NULL, 200,
         "12"},
        {"/then-deaf", POST "Content-Length: 2\r\n\r\nab", NULL, 200, "2"},
        {"/then-deaf", "DELETE /x HTTP/1.1\r\nHost: h\r\n\r\n", NULL, 200, "0"},
        {"/then-deaf", PUT "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n", "ab", 200, "2"},
        {"/then-half", PUT "Content-Length: 4\r\n\r\nab", "cd", 200, "4"},
        {"/then-half", POST "Content-Length: 4\r\n\r\nab", "cd", 200, "4"},
        {"/then-eats", "GET /get/3 HTTP/1.1\r\nHost: h\r\n\r\n", NULL, 200, "ddd"},
        {"/then-eats", PUT "Content-Length: 2\r\n\r\nab", NULL, 503, NULL},
        {"/then-eats", POST "Content-Length: 2\r\n\r\nab", NULL, 503, NULL},
        {"/then-eats", "DELETE /x HTTP/1.1\r\nHost: h\r\n\r\n", NULL, 503, NULL},
        {"/once", PUT "Content-Length: 2\r\n\r\nab", NULL, 200, "2"},
    };
    struct tc c;
    struct tc_answer a;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        open_client(&c);
        tc_sendf(&c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", cases[i].first);
        assert_int_equal(tc_read(&c, &a, false), 200);
        if (strcmp(cases[i].first, "/once") == 0) {
            wait_for_conns(0); /* seen while nobody used it */
        }
        int n = atomic_load(&up.n_requests);
        tc_send(&c, cases[i].request);
        if (cases[i].rest) { /* the head is there again, or for the first time */
            wait_for(&up.n_requests, n + (strcmp(cases[i].first, "/then-half") == 0 ? 2 : 1));
            if (strstr(cases[i].request, "Expect")) {
                assert_int_equal(tc_read(&c, &a, true), 100);
            }
            tc_send(&c, cases[i].rest);
        }
        int status = tc_read(&c, &a, false);
        if (status != cases[i].want) {
            fail_msg("%zu: %s, then %s: %d", i, cases[i].first, cases[i].request, status);
        }
        if (cases[i].body) {
            assert_string_equal(a.body, cases[i].body);
        } else {
            assert_non_null(strcasestr(a.head, "Retry-After: "));
        }
        tc_send(&c, "GET /once HTTP/1.1\r\nHost: h\r\n\r\n"); /* and it goes on */
        assert_int_equal(tc_read(&c, &a, false), 200);
        tc_close(&c);
        wait_for_conns(0);
    }
}

/* More than is kept cannot be sent again: the client is told, and is not given half of it. */
static void test_a_large_body_is_not_kept(void **state)
{
    enum { SIZE = 3 << 20 };
    struct tc c;
    struct tc_answer a;
    char *big = calloc(1, SIZE);
    open_client(&c);
    tc_send(&c, "GET /then-half HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    atomic_store(&up.is_stalled, true); /* until more than is kept has left */
    tc_sendf(&c, PUT "Content-Length: %d\r\n\r\n", SIZE);
    tc_send_n(&c, big, 256 << 10);
    usleep(100000);
    atomic_store(&up.is_stalled, false);
    tc_send_n(&c, big, SIZE - (256 << 10));
    assert_int_equal(tc_read(&c, &a, false), 503);
    free(big);
    tc_close(&c);
}

static void test_too_many(void **state)
{
    struct tc c[3];
    struct tc_answer a;
    atomic_store(&up.is_stalled, true);
    for (int i = 0; i < 2; i++) {
        open_client(&c[i]);
        tc_send(&c[i], "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab");
    }
    wait_for(&up.n_requests, 2);
    open_client(&c[2]);
    tc_send(&c[2], "GET /get/3 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c[2], &a, false), 503);
    assert_non_null(strstr(a.body, "<Code>SlowDown</Code>"));
    atomic_store(&up.is_stalled, false);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tc_read(&c[i], &a, false), 200);
    }
    tc_send(&c[2], "GET /get/3 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c[2], &a, false), 200);
    for (int i = 0; i < 3; i++) {
        tc_close(&c[i]);
    }
}

static void test_the_client_leaves(void **state)
{
    struct tc c;
    open_client(&c);
    tc_send(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nsome");
    wait_for(&up.n_requests, 1);
    tc_reset(&c);
    wait_for(&up.n_eofs, 1); /* predastore sees that it is not the whole */
    wait_for(&gw.n_open, 0);
    open_client(&c);
    tc_send(&c, "GET /get/1000000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(tc_is_readable(&c, 5000));
    tc_reset(&c);
    wait_for(&gw.n_open, 0);
    wait_for(&up.n_conns, 0);
    assert_true(atomic_load(&up.n_out) < 100000000);
}

/* Who does not take holds up only himself: what waits in between is bounded. */
static void test_back_pressure_of_a_download(void **state)
{
    struct tc c;
    int small = 65536;
    open_client(&c);
    setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    tc_send(&c, "GET /get/200000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    size_t before = 1;
    for (int i = 0; i < 100 && atomic_load(&up.n_out) != before; i++) {
        before = atomic_load(&up.n_out);
        usleep(100000);
    }
    assert_true(before > 100000 &&
                before < 10000000); /* sockets' buffers and 384 KiB of ours */
    static char block[1 << 20];
    size_t got = 0;
    for (ssize_t n = 1; n > 0 && got < 200000000;) {
        n = recv(c.fd, block, sizeof(block), 0);
        got += n > 0 ? (size_t)n : 0;
    }
    assert_true(got >= 200000000);
    tc_close(&c);
}

static void test_back_pressure_of_an_upload(void **state)
{
    struct tc c;
    struct tc_answer a;
    static char block[1 << 20];
    size_t sent = 0;
    atomic_store(&up.is_stalled, true);
    open_client(&c);
    tc_send(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 200000000\r\n\r\n");
    for (int quiet = 0; quiet < 5;) {
        ssize_t n = send(c.fd, block, sizeof(block), MSG_NOSIGNAL | MSG_DONTWAIT);
        quiet = n > 0 ? 0 : quiet + 1;
        sent += n > 0 ? (size_t)n : 0;
        usleep(n > 0 ? 0 : 50000);
    }
    assert_true(sent > 100000 && sent < 20000000);
    atomic_store(&up.is_stalled, false);
    while (sent < 200000000) {
        size_t n = MIN(sizeof(block), 200000000 - sent);
        tc_send_n(&c, block, n);
        sent += n;
    }
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "200000000");
    tc_close(&c);
}

static long rss_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static void test_a_gibibyte_each_way(void **state)
{
    struct tc c;
    struct tc_answer a;
    static char block[1 << 20];
    size_t size = (size_t)1 << 30, got = 0;
    open_client(&c);
    tc_send(&c, "GET /get/1000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    long before = rss_kib();
    tc_sendf(&c, "GET /get/%zu HTTP/1.1\r\nHost: h\r\n\r\n", size);
    while (got < size) {
        ssize_t n = recv(c.fd, block, sizeof(block), 0);
        assert_true(n > 0);
        got += (size_t)n;
    }
    tc_close(&c);
    open_client(&c);
    tc_sendf(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", size);
    for (size_t i = 0; i < size; i += sizeof(block)) {
        tc_send_n(&c, block, sizeof(block));
    }
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "1073741824");
    tc_close(&c);
    /* Under AddressSanitizer up to 256 MiB of freed memory are kept aside. */
    long grown = rss_kib() - before;
    if (grown > 300 * 1024) {
        fail_msg("%ld KiB more", grown);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_a_request_passes_unchanged),
        CASE(test_connections_are_used_again),
        CASE(test_answers_of_all_forms),
        CASE(test_bodies_of_all_sizes_and_forms),
        CASE(test_expect_is_answered_by_predastore),
        CASE(test_an_expectation_that_is_none_is_not_waited_for),
        CASE(test_a_refusal_overtakes_the_body),
        CASE(test_predastore_breaks),
        CASE(test_predastore_is_not_there),
        CASE(test_kept_connections_that_ended),
        CASE(test_a_large_body_is_not_kept),
        cmocka_unit_test_setup_teardown(test_too_many, setup_two, teardown),
        CASE(test_the_client_leaves),
        CASE(test_back_pressure_of_a_download),
        CASE(test_back_pressure_of_an_upload),
        CASE(test_a_gibibyte_each_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
