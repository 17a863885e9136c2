/* The server over real sockets, plain and TLS. */
#include "net/http_server.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/num.h"
#include "base/time.h"
#include "crypto/x509.h"
#include "net/http_test_client.h"
#include "net/tls.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

#define MS(n) ((n)*NS_PER_MS)

/* ---- the handler under test: paths say what it does ---- */

struct call {
    atomic_int n_heads, n_ends, n_aborts, n_dones;
    atomic_size_t n_body;
    bool is_streaming; /* with on_body */
};

struct user {
    struct call *call;
    struct http_req *req;
    size_t n_body, n_sent, n_want;
    bool is_answered;
};

static void answer(struct http_req *req, int status, struct str body)
{
    struct http_header h = {STR("X-Test"), STR("a\r\nInjected: yes")};
    http_respond(req, &(struct http_answer){
                          .status = status, .headers = &h, .n_headers = 1, .body = body});
}

static void *answer_later(void *ctx)
{
    struct http_req *req = ctx;
    usleep(20000);
    struct str body = str_trim(http_req_head(req)->query);
    answer(req, 200, str_is_set(body) ? body : STR("late"));
    return NULL;
}

static void *resume_later(void *ctx)
{
    usleep(30000);
    http_req_resume(ctx);
    return NULL;
}

static void in_thread(void *(*fn)(void *), void *ctx)
{
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, fn, ctx), 0);
    pthread_detach(t);
}

/* Sends 'n_want' bytes in pieces of 10,000, no more than 64 KiB ahead of the peer. */
static void pump(struct http_req *req, void *ctx)
{
    struct user *u = ctx;
    static char piece[10000];
    memset(piece, 's', sizeof(piece));
    for (;;) {
        size_t n = MIN(sizeof(piece), u->n_want - u->n_sent);
        u->n_sent += n;
        bool is_last = u->n_sent == u->n_want;
        size_t queued = http_body_more(req, str_n(piece, n), is_last);
        if (is_last) {
            return;
        }
        if (queued > 65536) {
            assert_true(queued < 65536 + 2 * sizeof(piece));
            http_on_drain(req, pump, 32768);
            return;
        }
    }
}

static void on_head(void *ctx, struct http_req *req, const struct http_head *head,
                    void **ret_user)
{
    struct call *call = ctx;
    atomic_fetch_add(&call->n_heads, 1);
    struct user *u = calloc(1, sizeof(*u));
    assert_non_null(u);
    u->call = call;
    u->req = req;
    *ret_user = u;
    if (str_eqc(head->path, "/refuse")) {
        u->is_answered = true;
        answer(req, 403, STR("no\n"));
    } else if (str_eqc(head->path, "/think")) {
        http_req_pause(req);
        in_thread(resume_later, req);
    } else if (str_eqc(head->path, "/think-no")) {
        u->is_answered = true;
        http_req_pause(req);
        in_thread(answer_later, req);
    } else if (str_eqc(head->path, "/echo")) {
        u->is_answered = true;
        http_respond(req, &(struct http_answer){.status = 200,
                                                .is_stream = true,
                                                .stream_size = head->content_length});
    }
}

static enum http_flow on_body(struct http_req *req, void *user, struct str chunk)
{
    struct user *u = user;
    u->n_body += chunk.n;
    atomic_fetch_add(&u->call->n_body, chunk.n);
    const struct http_head *h = http_req_head(req);
    if (str_eqc(h->path, "/echo")) {
        http_body_more(req, chunk, false);
    } else if (str_eqc(h->path, "/slow")) {
        in_thread(resume_later, req);
        return HTTP_PAUSE;
    } else if (str_eqc(h->path, "/early") && !u->is_answered) {
        u->is_answered = true;
        answer(req, 409, STR("enough\n"));
    }
    return HTTP_MORE;
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    struct user *u = user;
    atomic_fetch_add(&u->call->n_ends, 1);
    const struct http_head *h = http_req_head(req);
    uint64_t n = 0;
    if (str_eqc(h->path, "/echo")) {
        http_body_more(req, STR(""), true);
    } else if (str_eqc(h->path, "/late")) {
        in_thread(answer_later, req);
    } else if (str_has_prefixc(h->path, "/stream/") &&
               num_u64(str_skip(h->path, 8), UINT32_MAX, &n) == 0) {
        u->n_want = n;
        bool is_sized = str_is_set(h->query);
        http_respond(req, &(struct http_answer){.status = 200,
                                                .is_stream = true,
                                                .stream_size = is_sized ? (int64_t)n : -1});
        pump(req, u);
    } else if (str_eqc(h->path, "/short")) {
        http_respond(
            req, &(struct http_answer){.status = 200, .is_stream = true, .stream_size = 100});
        http_body_more(req, STR("ten bytes."), true);
    } else if (str_eqc(h->path, "/long")) {
        http_respond(req,
                     &(struct http_answer){.status = 200, .is_stream = true, .stream_size = 5});
        http_body_more(req, STR("ten bytes."), true);
    } else if (str_eqc(h->path, "/break")) {
        http_respond(
            req, &(struct http_answer){.status = 200, .is_stream = true, .stream_size = -1});
        http_body_more(req, STR("begun"), false);
        http_abort(req);
    } else if (str_eqc(h->path, "/empty")) {
        answer(req, 204, STR_NONE);
    } else if (str_eqc(h->path, "/tls")) {
        answer(req, 200, h->is_tls ? STR("yes") : STR("no"));
    } else {
        char text[64];
        int k = snprintf(text, sizeof(text), "%.*s %zu", STR_ARG(h->method),
                         u->call->is_streaming ? u->n_body : body.n);
        answer(req, 200, str_n(text, (size_t)k));
    }
}

static void on_abort(struct http_req *req, void *user)
{
    struct user *u = user;
    atomic_fetch_add(&u->call->n_aborts, 1);
}

static void on_done(struct http_req *req, void *user)
{
    struct user *u = user;
    atomic_fetch_add(&u->call->n_dones, 1);
    free(u);
}

/* ---- a server for each test ---- */

struct fixture {
    struct call call;
    struct http_server *s;
    struct tls_server *tls;
    struct x509_pair ca;
    char dir[64], ca_path[96], cert_path[96], key_path[96];
    uint16_t port;
};

static void make_cert(struct fixture *f)
{
    struct str names[] = {STR("localhost"), STR("127.0.0.1")};
    struct x509_pair p = {0};
    assert_int_equal(x509_issue(&f->ca, names, ARRAY_LEN(names), 10, &p, NULL), 0);
    assert_int_equal(x509_save(&p, f->cert_path, f->key_path, NULL), 0);
    x509_pair_done(&p);
}

static void begin(struct fixture *f, struct http_server_opts o, bool is_streaming, bool is_tls)
{
    *f = (struct fixture){.call.is_streaming = is_streaming};
    struct err err = ERR_INIT;
    if (is_tls) {
        snprintf(f->dir, sizeof(f->dir), "/tmp/http-test-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        snprintf(f->ca_path, sizeof(f->ca_path), "%s/ca.pem", f->dir);
        snprintf(f->cert_path, sizeof(f->cert_path), "%s/server.pem", f->dir);
        snprintf(f->key_path, sizeof(f->key_path), "%s/server.key", f->dir);
        assert_int_equal(x509_make_ca(STR("test authority"), 30, &f->ca, NULL), 0);
        assert_int_equal(file_write_atomic(f->ca_path, str_c(f->ca.cert_pem), 0644, NULL), 0);
        make_cert(f);
        assert_int_equal(tls_server_new(f->cert_path, f->key_path, &f->tls, &err), 0);
    }
    o.tls = f->tls;
    o.n_loops = o.loop ? 0 : 2;
    o.name = "test";
    struct http_handler h = {.on_head = on_head,
                             .on_body = is_streaming ? on_body : NULL,
                             .on_end = on_end,
                             .on_abort = on_abort,
                             .on_done = on_done};
    assert_int_equal(http_server_new(&o, &h, &f->call, &f->s, &err), 0);
    assert_int_equal(http_server_listen(f->s, "127.0.0.1", 0, &err), 0);
    f->port = http_server_port(f->s);
    assert_true(f->port > 0);
}

/* Every request that was begun is done, whatever happened. */
static void end(struct fixture *f)
{
    http_server_free(f->s);
    assert_int_equal(atomic_load(&f->call.n_heads), atomic_load(&f->call.n_dones));
    tls_server_free(f->tls);
    x509_pair_done(&f->ca);
    if (f->dir[0]) {
        unlink(f->ca_path);
        unlink(f->cert_path);
        unlink(f->key_path);
        rmdir(f->dir);
    }
}

static void wait_for(atomic_int *v, int want)
{
    for (int i = 0; i < 500 && atomic_load(v) != want; i++) {
        usleep(10000);
    }
    assert_int_equal(atomic_load(v), want);
}

static int connect_to(struct fixture *f, struct tc *c)
{
    return tc_open(c, f->port, f->tls ? f->ca_path : NULL, 0);
}

/* Both kinds of connection run through the same cases. */
static void each(void (*fn)(struct fixture *f), struct http_server_opts o, bool is_streaming)
{
    for (int is_tls = 0; is_tls < 2; is_tls++) {
        struct fixture f;
        begin(&f, o, is_streaming, is_tls);
        fn(&f);
        end(&f);
    }
}

/* ---- cases ---- */

static void case_basic(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(connect_to(f, &c), 0);
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
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "GET /x HTTP/1.0\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_true(tc_is_closed(&c, 2000));
    tc_close(&c);
}

static void test_basic(void **state)
{
    each(case_basic, (struct http_server_opts){0}, false);
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
    assert_int_equal(connect_to(f, &c), 0);
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
    each(case_pipelined, (struct http_server_opts){0}, false);
    each(case_pipelined, (struct http_server_opts){0}, true);
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
    assert_int_equal(connect_to(f, &c), 0);
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
    each(case_pieces, (struct http_server_opts){0}, false);
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
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: tea\r\n\r\n", 417},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\n\r\n", 413},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n", 413},
    {"GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505},
};

static void case_bad(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(connect_to(f, &c), 0);
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
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, buf_cstr(&big));
    assert_int_equal(tc_read(&c, &a, false), 431);
    tc_close(&c);
    /* Chunks that grow past the limit. */
    buf_clear(&big);
    buf_addc(&big, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 70; i++) {
        buf_addc(&big, "10\r\n0123456789abcdef\r\n");
    }
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, buf_cstr(&big));
    assert_int_equal(tc_read(&c, &a, false), 413);
    tc_close(&c);
    struct http_stats st;
    http_server_stats(f->s, &st);
    assert_int_equal(st.n_bad, ARRAY_LEN(bad) + 2);
}

static void test_bad(void **state)
{
    each(case_bad, (struct http_server_opts){.max_head = 4096, .max_buffered_body = 1024},
         false);
}

static void case_continue(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(connect_to(f, &c), 0);
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
        assert_int_equal(connect_to(f, &c), 0);
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
    each(case_continue, (struct http_server_opts){0}, false);
    each(case_continue, (struct http_server_opts){0}, true);
}

/* Answers during a body: the client sees them although it still sends; a small rest saves the
 * connection. */
static void case_early(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(connect_to(f, &c), 0);
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
    each(case_early, (struct http_server_opts){0}, true);
}

static void case_stream(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(connect_to(f, &c), 0);
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
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "GET /stream/100000 HTTP/1.0\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_null(strstr(a.head, "chunked"));
    assert_int_equal(a.body_n, 100000);
    tc_close(&c);
}

static void test_stream(void **state)
{
    each(case_stream, (struct http_server_opts){0}, true);
}

/* Answers that break their promise, or are broken off, never look whole. */
static void case_broken(struct fixture *f)
{
    static const char *const paths[] = {"/short", "/long", "/break"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct tc c;
        struct tc_answer a;
        assert_int_equal(connect_to(f, &c), 0);
        tc_sendf(&c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", paths[i]);
        assert_int_equal(tc_read(&c, &a, false), -1);
        tc_close(&c);
    }
}

static void test_broken(void **state)
{
    each(case_broken, (struct http_server_opts){0}, false);
}

/* Clients that leave in the middle: the handler is told once, and nothing is left behind. */
static void case_abort(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nonly this");
    wait_for(&f->call.n_heads, 1);
    tc_close(&c);
    wait_for(&f->call.n_aborts, 1);
    wait_for(&f->call.n_dones, 1);
    /* Reset while an answer streams that nobody reads. */
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "GET /stream/200000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_for(&f->call.n_ends, 1);
    usleep(50000);
    tc_reset(&c);
    wait_for(&f->call.n_aborts, 2);
    wait_for(&f->call.n_dones, 2);
    /* Gone before the late answer of another thread. */
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "GET /late HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_for(&f->call.n_ends, 2);
    tc_reset(&c);
    wait_for(&f->call.n_dones, 3);
    /* A client that has said all and shut its side down still gets its answer. */
    if (!f->tls) {
        assert_int_equal(connect_to(f, &c), 0);
        tc_send(&c, "GET /late?half HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "half");
        assert_true(tc_is_closed(&c, 3000));
        tc_close(&c);
    }
    assert_int_equal(connect_to(f, &c), 0); /* and the server lives */
    tc_send(&c, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
}

static void test_abort(void **state)
{
    each(case_abort, (struct http_server_opts){0}, true);
}

/* ---- deadlines ---- */

static void case_deadlines(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    /* A head that does not end, although bytes keep coming. */
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n");
    for (int i = 0; i < 8; i++) {
        usleep(40000);
        tc_send(&c, "X: y\r\n");
    }
    assert_int_equal(tc_read(&c, &a, false), 408);
    tc_close(&c);
    /* A body that stops. */
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345");
    assert_int_equal(tc_read(&c, &a, false), 408);
    assert_true(tc_is_closed(&c, 3000));
    tc_close(&c);
    wait_for(&f->call.n_aborts, 1);
    /* A body that trickles: every byte is in time, the whole is not. */
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
    for (int i = 0; i < 20 && !tc_is_readable(&c, 0); i++) {
        usleep(50000);
        tc_send(&c, "x");
    }
    assert_int_equal(tc_read(&c, &a, false), 408);
    tc_close(&c);
    wait_for(&f->call.n_aborts, 2);
    /* Idle: closed without a word. */
    uint64_t t0 = time_mono_ns();
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_true(tc_is_closed(&c, 3000));
    assert_true(time_mono_ns() - t0 >= MS(350));
    tc_close(&c);
    /* An answer that nobody reads. */
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "GET /stream/200000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_for(&f->call.n_aborts, 3);
    tc_close(&c);
    /* A slow handler is not a slow client. */
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "GET /late?x HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
    /* A handshake that never comes, on either kind. */
    int fd = tc_connect(f->port);
    assert_true(fd >= 0);
    char byte = 0;
    struct timeval tv = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

static void test_deadlines(void **state)
{
    each(case_deadlines,
         (struct http_server_opts){.head_timeout_ns = MS(200),
                                   .idle_timeout_ns = MS(400),
                                   .body_timeout_ns = MS(300)},
         false);
}

/* ---- caps ---- */

static void test_per_address(void **state)
{
    struct fixture f;
    begin(&f, (struct http_server_opts){.max_conns_per_ip = 3}, false, false);
    struct tc c[4];
    struct tc_answer a;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(connect_to(&f, &c[i]), 0);
        tc_send(&c[i], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(tc_read(&c[i], &a, false), 200);
    }
    assert_int_equal(connect_to(&f, &c[3]), 0);
    assert_int_equal(tc_read(&c[3], &a, false), 503);
    tc_close(&c[3]);
    tc_close(&c[0]);
    usleep(100000);
    assert_int_equal(connect_to(&f, &c[3]), 0);
    tc_send(&c[3], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c[3], &a, false), 200);
    for (int i = 1; i < 4; i++) {
        tc_close(&c[i]);
    }
    end(&f);
}

/* At the cap the idlest connection goes; when none is idle, the new one. */
static void test_eviction(void **state)
{
    struct fixture f;
    begin(&f, (struct http_server_opts){.max_conns = 3}, true, false);
    struct tc c[5];
    struct tc_answer a;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(connect_to(&f, &c[i]), 0);
        tc_send(&c[i], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(tc_read(&c[i], &a, false), 200);
        usleep(20000);
    }
    assert_int_equal(connect_to(&f, &c[3]), 0);
    tc_send(&c[3], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c[3], &a, false), 200);
    assert_true(tc_is_closed(&c[0], 2000));
    for (int i = 1; i < 4; i++) {
        tc_send(&c[i], "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1");
    }
    wait_for(&f.call.n_heads, 7);
    assert_int_equal(connect_to(&f, &c[4]), 0);
    assert_int_equal(tc_read(&c[4], &a, false), 503);
    for (int i = 1; i < 4; i++) { /* those at work are not disturbed */
        tc_send(&c[i], "2");
        assert_int_equal(tc_read(&c[i], &a, false), 200);
        assert_string_equal(a.body, "PUT 2");
    }
    for (int i = 0; i < 5; i++) {
        tc_close(&c[i]);
    }
    struct http_stats st;
    http_server_stats(f.s, &st);
    assert_int_equal(st.n_evicted, 1);
    assert_int_equal(st.n_refused, 1);
    end(&f);
}

/* 500 connections at once, each with several requests. */
static void case_many(struct fixture *f)
{
    enum { N = 500 };
    struct tc *c = calloc(N, sizeof(*c));
    assert_non_null(c);
    struct tc_answer a;
    for (int i = 0; i < N; i++) {
        assert_int_equal(connect_to(f, &c[i]), 0);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            tc_sendf(&c[i], "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", 3);
        }
        for (int i = 0; i < N; i++) {
            tc_send(&c[i], "abc");
        }
        for (int i = 0; i < N; i++) {
            assert_int_equal(tc_read(&c[i], &a, false), 200);
            assert_string_equal(a.body, "PUT 3");
        }
    }
    struct http_stats st;
    http_server_stats(f->s, &st);
    assert_int_equal(st.n_conns, N);
    for (int i = 0; i < N; i++) {
        tc_close(&c[i]);
    }
    free(c);
}

static void test_many(void **state)
{
    each(case_many, (struct http_server_opts){0}, false);
}

/* ---- the end, and certificates ---- */

struct drain {
    struct http_server *s;
    uint64_t timeout_ns;
    atomic_int is_over;
};

static void *drain_main(void *ctx)
{
    struct drain *d = ctx;
    http_server_drain(d->s, d->timeout_ns);
    atomic_store(&d->is_over, 1);
    return NULL;
}

static void case_drain(struct fixture *f)
{
    struct tc idle, busy, stuck;
    struct tc_answer a;
    assert_int_equal(connect_to(f, &idle), 0);
    assert_int_equal(connect_to(f, &busy), 0);
    assert_int_equal(connect_to(f, &stuck), 0);
    tc_send(&idle, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&idle, &a, false), 200);
    tc_send(&busy, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1");
    tc_send(&stuck, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1");
    wait_for(&f->call.n_heads, 3);
    struct drain d = {.s = f->s, .timeout_ns = MS(700)};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, drain_main, &d), 0);
    assert_true(tc_is_closed(&idle, 500));
    assert_true(tc_connect(f->port) < 0); /* nobody listens any more */
    tc_send(&busy, "2");
    assert_int_equal(tc_read(&busy, &a, false), 200);
    assert_string_equal(a.body, "PUT 2");
    assert_non_null(strstr(a.head, "Connection: close\r\n"));
    assert_int_equal(atomic_load(&d.is_over), 0);
    pthread_join(t, NULL);
    assert_true(tc_is_closed(&stuck, 500));
    tc_close(&idle);
    tc_close(&busy);
    tc_close(&stuck);
}

static void test_drain(void **state)
{
    each(case_drain, (struct http_server_opts){0}, false);
}

static void test_reload(void **state)
{
    struct fixture f;
    begin(&f, (struct http_server_opts){0}, false, true);
    struct tc old, new;
    struct tc_answer a;
    char before[128], after[128], still[128];
    assert_int_equal(connect_to(&f, &old), 0);
    tc_fingerprint(&old, before);
    make_cert(&f);
    assert_int_equal(tls_server_reload(f.tls, NULL), 0);
    assert_int_equal(connect_to(&f, &new), 0);
    tc_fingerprint(&new, after);
    tc_fingerprint(&old, still);
    assert_string_not_equal(before, after);
    assert_string_equal(before, still);
    tc_send(&old, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&old, &a, false), 200);
    tc_send(&new, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&new, &a, false), 200);
    tc_close(&new);
    /* A reload that fails changes nothing. */
    struct err err = ERR_INIT;
    assert_int_equal(file_write_atomic(f.key_path, STR("not a key\n"), 0600, NULL), 0);
    assert_true(tls_server_reload(f.tls, &err) < 0);
    assert_string_equal(err.name, "TlsFailed");
    assert_true(tls_server_not_after_ns(f.tls) > time_wall_ns() + 9 * 86400 * NS_PER_S);
    assert_int_equal(connect_to(&f, &new), 0);
    tc_fingerprint(&new, still);
    assert_string_equal(after, still);
    tc_close(&new);
    tc_close(&old);
    end(&f);
}

static void test_tls_versions(void **state)
{
    struct fixture f;
    begin(&f, (struct http_server_opts){0}, false, true);
    struct tc c;
    struct tc_answer a;
    static const int versions[] = {12, 13};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        assert_int_equal(tc_open(&c, f.port, f.ca_path, versions[i]), 0);
        tc_send(&c, "GET /tls HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "yes");
        tc_close(&c);
    }
    assert_true(tc_open(&c, f.port, f.ca_path, 11) < 0);
    /* Plain HTTP on the TLS port is turned away, and the server lives. */
    assert_int_equal(tc_open(&c, f.port, NULL, 0), 0);
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), -1);
    tc_close(&c);
    assert_int_equal(connect_to(&f, &c), 0);
    tc_close(&c);
    end(&f);
}

/* ---- listening ---- */

static void test_passed_descriptor(void **state)
{
    struct fixture f;
    begin(&f, (struct http_server_opts){0}, false, false);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a4);
    assert_int_equal(bind(fd, (struct sockaddr *)&a4, n), 0);
    assert_int_equal(listen(fd, 10), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a4, &n), 0);
    assert_int_equal(http_server_listen_fd(f.s, fd, NULL), 0);
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tc_open(&c, ntohs(a4.sin_port), NULL, 0), 0);
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
    /* A port in use names its holder: this very process. */
    struct err err = ERR_INIT;
    assert_int_equal(http_server_listen(f.s, "127.0.0.1", f.port, &err), -EADDRINUSE);
    assert_string_equal(err.name, "PortInUse");
    char pid[32];
    snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
    assert_non_null(strstr(err.msg, pid));
    end(&f);
}

static void *stop_later(void *ctx)
{
    usleep(300000);
    loop_stop(ctx);
    return NULL;
}

static void *client_main(void *ctx)
{
    struct fixture *f = ctx;
    struct tc c;
    struct tc_answer a;
    assert_int_equal(connect_to(f, &c), 0);
    tc_send(&c, "GET /late?own HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "own");
    tc_send(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1");
    usleep(600000);
    tc_send(&c, "2");
    assert_int_equal(tc_read(&c, &a, false), 200); /* the drain waited */
    tc_close(&c);
    return NULL;
}

/* On a loop of the caller's; the drain runs it after it was stopped. */
static void test_callers_loop(void **state)
{
    AUTO(loop_freep) struct loop *l = loop_new();
    struct fixture f;
    begin(&f, (struct http_server_opts){.loop = l}, false, false);
    pthread_t client, stopper;
    assert_int_equal(pthread_create(&client, NULL, client_main, &f), 0);
    assert_int_equal(pthread_create(&stopper, NULL, stop_later, l), 0);
    loop_run(l);
    http_server_drain(f.s, 5 * NS_PER_S);
    pthread_join(client, NULL);
    pthread_join(stopper, NULL);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_basic),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_per_address),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_tls_versions),
        cmocka_unit_test(test_passed_descriptor),
        cmocka_unit_test(test_callers_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
