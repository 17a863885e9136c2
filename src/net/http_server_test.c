/* Requests and answers over real sockets, plain and TLS. */
#include "net/http_server.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/time.h"
#include "net/http_test_world.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void case_basic(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &c), 0);
    for (int i = 0; i < 3; i++) { /* one connection serves many */
        tc_send(&c, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "GET 0");
        assert_null(strstr(a.head, "\r\nInjected"));
        assert_non_null(strstr(a.head, "X-Test: a  Injected: yes\r\n"));
        assert_non_null(strstr(a.head, "\r\nDate: "));
        assert_null(strstr(a.head, "Connection"));
    }
    tc_send(&c, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "POST 5");
    tc_send(&c, "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                "chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\nT: x\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "POST 7");
    tc_send(&c, "HEAD /stream/12?sized HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, true), 200);
    assert_non_null(strstr(a.head, "Content-Length: 12\r\n"));
    tc_send(&c, "GET /empty HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 204);
    assert_null(strstr(a.head, "Content-Length"));
    tc_send(&c, "GET /late?soon HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "soon");
    tc_send(&c, "GET /tls HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, f->tls ? "yes" : "no");
    assert_non_null(strstr(a.head, "Connection: close\r\n"));
    assert_true(tc_is_closed(&c, 2000));
    tc_close(&c);
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET /x HTTP/1.0\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_true(tc_is_closed(&c, 2000));
    tc_close(&c);
}

static void test_basic(void **state)
{
    tw_each(case_basic, (struct http_server_opts){0}, false);
}

/* Many requests in one write, some answered late by other threads: answers come in order. */
static void case_pipelined(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    AUTO_BUF raw;
    buf_init(&raw, 1 << 20);
    for (int i = 0; i < 30; i++) {
        buf_fmt(&raw, "GET /late?%d HTTP/1.1\r\nHost: h\r\n\r\n", i);
        buf_fmt(&raw, "PUT /%d HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%.*s", i, i, i,
                "0123456789012345678901234567890");
    }
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, buf_cstr(&raw));
    for (int i = 0; i < 30; i++) {
        char want[32];
        assert_int_equal(tc_read(&c, &a, false), 200);
        snprintf(want, sizeof(want), "%d", i);
        assert_string_equal(a.body, want);
        assert_int_equal(tc_read(&c, &a, false), 200);
        snprintf(want, sizeof(want), "PUT %d", i);
        assert_string_equal(a.body, want);
    }
    tc_close(&c);
}

static void test_pipelined(void **state)
{
    tw_each(case_pipelined, (struct http_server_opts){0}, false);
    tw_each(case_pipelined, (struct http_server_opts){0}, true);
}

/* A request that arrives byte by byte, and one cut in two at every byte. */
static void case_pieces(struct fixture *f)
{
    static const char raw[] =
        "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        "5;e=1\r\nhello\r\n0\r\nT: 1\r\n\r\n";
    size_t n = sizeof(raw) - 1;
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &c), 0);
    for (size_t i = 0; i < n; i++) {
        tc_send_n(&c, raw + i, 1);
    }
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "POST 5");
    for (size_t cut = 1; cut < n; cut++) {
        tc_send_n(&c, raw, cut);
        usleep(500);
        tc_send_n(&c, raw + cut, n - cut);
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "POST 5");
    }
    tc_close(&c);
}

static void test_pieces(void **state)
{
    tw_each(case_pieces, (struct http_server_opts){0}, false);
}

static const struct {
    const char *raw;
    int status;
} bad[] = {
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\nHost: h\n\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: "
     "chunked\r\n\r\n0\r\n\r\n",
     400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: tea, 100-continue\r\n\r\n",
     417},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\n\r\n", 413},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n", 413},
    {"GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505},
};

static void case_bad(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(tw_connect(f, &c), 0);
        tc_send(&c, bad[i].raw);
        /* What follows an error is never taken for a request. */
        tc_send(&c, "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(tc_read(&c, &a, false), bad[i].status);
        assert_non_null(strstr(a.head, "Connection: close\r\n"));
        assert_true(tc_is_closed(&c, 3000));
        tc_close(&c);
    }
    AUTO_BUF big;
    buf_init(&big, 1 << 20);
    buf_addc(&big, "GET / HTTP/1.1\r\nHost: h\r\nX: ");
    for (int i = 0; i < 5000; i++) {
        buf_add_char(&big, 'x');
    }
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, buf_cstr(&big));
    assert_int_equal(tc_read(&c, &a, false), 431);
    tc_close(&c);
    /* Chunks that grow past the limit. */
    buf_clear(&big);
    buf_addc(&big, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 70; i++) {
        buf_addc(&big, "10\r\n0123456789abcdef\r\n");
    }
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, buf_cstr(&big));
    assert_int_equal(tc_read(&c, &a, false), 413);
    tc_close(&c);
    struct http_stats st;
    http_server_stats(f->s, &st);
    assert_int_equal(st.n_bad, ARRAY_LEN(bad) + 2);
}

static void test_bad(void **state)
{
    tw_each(case_bad, (struct http_server_opts){.max_head = 4096, .max_buffered_body = 1024},
            false);
}

static void case_continue(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &c), 0);
    static const char *const paths[] = {"/x", "/think"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        tc_sendf(
            &c,
            "PUT %s HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
            paths[i]);
        assert_int_equal(tc_read(&c, &a, true), 100);
        tc_send(&c, "hello");
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "PUT 5");
    }
    /* A client that does not wait gets no 100. */
    tc_send(
        &c,
        "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
    /* Refused before the body: no 100, and the connection ends, for nobody can tell what comes
     * next on it. */
    static const char *const no[] = {"/refuse", "/think-no"};
    for (size_t i = 0; i < ARRAY_LEN(no); i++) {
        assert_int_equal(tw_connect(f, &c), 0);
        tc_sendf(
            &c,
            "PUT %s HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
            no[i]);
        assert_int_equal(tc_read(&c, &a, false), i == 0 ? 403 : 200);
        assert_non_null(strstr(a.head, "Connection: close\r\n"));
        assert_true(tc_is_closed(&c, 3000));
        tc_close(&c);
    }
}

static void test_continue(void **state)
{
    tw_each(case_continue, (struct http_server_opts){0}, false);
    tw_each(case_continue, (struct http_server_opts){0}, true);
}

/* Answers during a body: the client sees them although it still sends; a small rest saves the
 * connection. */
static void case_early(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "PUT /early HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nfirst");
    assert_int_equal(tc_read(&c, &a, false), 409);
    static char rest[995];
    memset(rest, 'r', sizeof(rest));
    tc_send_n(&c, rest, sizeof(rest));
    tc_send(&c, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "GET 0");
    tc_send(&c, "PUT /early HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\nfirst");
    for (int i = 0; i < 100; i++) {
        tc_send_n(&c, rest, sizeof(rest));
    }
    assert_int_equal(tc_read(&c, &a, false), 409);
    assert_string_equal(a.body, "enough\n");
    assert_non_null(strstr(a.head, "Connection: close\r\n"));
    tc_close(&c);
}

static void test_early(void **state)
{
    tw_each(case_early, (struct http_server_opts){0}, true);
}

static void case_stream(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &c), 0);
    static const char *const paths[] = {"/stream/3000000", "/stream/3000000?sized", "/stream/0",
                                        "/stream/0?sized"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        tc_sendf(&c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", paths[i]);
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_int_equal(a.body_n, i < 2 ? 3000000 : 0);
        assert_int_equal(strstr(a.head, "chunked") != NULL, i % 2 == 0);
    }
    /* Both ways at once: 2 MB come back while they are sent, with pauses. */
    tc_send(&c, "PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n");
    AUTO_FREE char *piece = malloc(50000);
    assert_non_null(piece);
    memset(piece, 'e', 50000);
    for (int i = 0; i < 40; i++) {
        tc_send_n(&c, piece, 50000);
        tc_pull(&c);
    }
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_int_equal(a.body_n, 2000000);
    /* A handler that pauses after each piece gets all of it. */
    size_t before = atomic_load(&f->call.n_body);
    tc_send(&c, "PUT /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n");
    for (int i = 0; i < 6; i++) {
        tc_send_n(&c, piece, 50000);
    }
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "PUT 300000");
    assert_int_equal(atomic_load(&f->call.n_body) - before, 300000);
    tc_close(&c);
    /* HTTP/1.0 knows no chunks: the end of the connection ends the body. */
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET /stream/100000 HTTP/1.0\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_null(strstr(a.head, "chunked"));
    assert_int_equal(a.body_n, 100000);
    tc_close(&c);
}

static void test_stream(void **state)
{
    tw_each(case_stream, (struct http_server_opts){0}, true);
}

/* Answers that break their promise, or are broken off, never look whole. */
static void case_broken(struct fixture *f)
{
    static const char *const paths[] = {"/short", "/long", "/break"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct tc c;
        struct tc_answer a;
        assert_int_equal(tw_connect(f, &c), 0);
        tc_sendf(&c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", paths[i]);
        assert_int_equal(tc_read(&c, &a, false), -1);
        tc_close(&c);
    }
}

static void test_broken(void **state)
{
    tw_each(case_broken, (struct http_server_opts){0}, false);
}

/* Clients that leave in the middle: the handler is told once, and nothing is left behind. */
static void case_abort(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nonly this");
    tw_wait_for(&f->call.n_heads, 1);
    tc_close(&c);
    tw_wait_for(&f->call.n_aborts, 1);
    tw_wait_for(&f->call.n_dones, 1);
    /* Reset while an answer streams that nobody reads. */
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET /stream/200000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    tw_wait_for(&f->call.n_ends, 1);
    usleep(50000);
    tc_reset(&c);
    tw_wait_for(&f->call.n_aborts, 2);
    tw_wait_for(&f->call.n_dones, 2);
    /* Gone before the late answer of another thread. */
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET /late HTTP/1.1\r\nHost: h\r\n\r\n");
    tw_wait_for(&f->call.n_ends, 2);
    tc_reset(&c);
    tw_wait_for(&f->call.n_dones, 3);
    /* A client that has said all and shut its side down still gets its answer. */
    if (!f->tls) {
        assert_int_equal(tw_connect(f, &c), 0);
        tc_send(&c, "GET /late?half HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "half");
        assert_true(tc_is_closed(&c, 3000));
        tc_close(&c);
    }
    assert_int_equal(tw_connect(f, &c), 0); /* and the server lives */
    tc_send(&c, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
}

/* A held request is not done before it is released, whether its connection lives or not;
 * neither is a paused one. */
static void case_hold(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\nGET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "held");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_int_equal(atomic_load(&f->call.n_dones), 2); /* in order, as they were asked */
    tc_send(&c, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    tw_wait_for(&f->call.n_ends, 3);
    tc_reset(&c);
    tw_wait_for(&f->call.n_dones, 3);
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "PUT /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nfirst");
    tw_wait_for(&f->call.n_heads, 4);
    tc_reset(&c);
    tw_wait_for(&f->call.n_dones, 4);
    assert_int_equal(atomic_load(&f->call.n_aborts), 1);
}

static void test_hold(void **state)
{
    tw_each(case_hold, (struct http_server_opts){0}, true);
}

/* Chunks far smaller than what a read brings, as fast as they go. */
static void case_small_chunks(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    AUTO_BUF body;
    buf_init(&body, 8 << 20);
    for (int i = 0; i < 100000; i++) {
        buf_addc(&body, "10\r\n0123456789abcdef\r\n");
    }
    buf_addc(&body, "0\r\n\r\n");
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    tc_send_n(&c, body.p, body.n);
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "PUT 1600000");
    tc_close(&c);
}

static void test_small_chunks(void **state)
{
    tw_each(case_small_chunks, (struct http_server_opts){0}, true);
}

/* One server, two ways: this body is collected, the next one streams. */
static void case_collect(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &c), 0);
    for (int i = 0; i < 2; i++) {
        tc_send(&c, "PUT /collect HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n");
        tc_send(&c, "in ");
        usleep(5000);
        tc_send(&c, "pieces");
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "in pieces");
        tc_send(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nin pieces");
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "PUT 9");
    }
    assert_int_equal(atomic_load(&f->call.n_body), 18);
    tc_send(&c, "PUT /collect HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 413);
    tc_close(&c);
}

static void test_collect(void **state)
{
    tw_each(case_collect, (struct http_server_opts){.max_buffered_body = 1024}, true);
}

static void test_abort(void **state)
{
    tw_each(case_abort, (struct http_server_opts){0}, true);
}

/* A unix socket tells whose process is at its other end; TCP does not. */
static void test_peer_uid(void **state)
{
    struct fixture f;
    struct tc c;
    struct tc_answer a;
    char want[32];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    tw_begin(&f, (struct http_server_opts){0}, false, false);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/s", f.dir);
    int ln = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(ln, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(ln, 8), 0);
    assert_int_equal(http_server_listen_fd(f.s, ln, NULL), 0);
    assert_int_equal(tw_connect(&f, &c), 0);
    tc_send(&c, "GET /uid HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    snprintf(want, sizeof(want), "%d 0", -ENOTSOCK);
    assert_string_equal(a.body, want);
    tc_close(&c);
    c = (struct tc){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(connect(c.fd, (struct sockaddr *)&at, sizeof(at)), 0);
    tc_send(&c, "GET /uid HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    snprintf(want, sizeof(want), "0 %u", (unsigned)getuid());
    assert_string_equal(a.body, want);
    tc_close(&c);
    unlink(at.sun_path);
    tw_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer_uid),     cmocka_unit_test(test_basic),
        cmocka_unit_test(test_pipelined),    cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_bad),          cmocka_unit_test(test_continue),
        cmocka_unit_test(test_early),        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_broken),       cmocka_unit_test(test_abort),
        cmocka_unit_test(test_hold),         cmocka_unit_test(test_collect),
        cmocka_unit_test(test_small_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
