#include "net/http1_parse.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define MAX_HEAD 4096

/* What a row expects; status 0 = accepted, -1 = more bytes are needed. */
struct row {
    const char *raw;
    size_t raw_n; /* 0 = strlen */
    int status;
    const char *method, *path, *query, *host;
    int64_t length; /* -1 = none */
    bool is_chunked, is_close, wants_continue;
    unsigned n_headers;
};

#define G    "GET / HTTP/1.1\r\n"
#define P    "PUT /k HTTP/1.1\r\nHost: h\r\n"
#define H    "Host: h\r\n"
#define E    "\r\n"
#define TEN  "0123456789"
#define H10  "A: 1\r\nA: 2\r\nA: 3\r\nA: 4\r\nA: 5\r\nA: 6\r\nA: 7\r\nA: 8\r\nA: 9\r\nA: 0\r\n"
#define H120 H10 H10 H10 H10 H10 H10 H10 H10 H10 H10 H10 H10

static const struct row rows[] = {
    /* Plain good requests. */
    {G H E, 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 1},
    {"\r\n" G H E, 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 1},
    {"DELETE /b/k?versionId=1&x HTTP/1.1\r\nhost: s3.local:8443\r\n\r\n", 0, 0, "DELETE",
     "/b/k", "versionId=1&x", "s3.local:8443", -1, .n_headers = 1},
    {"GET /? HTTP/1.1\r\n" H E, 0, 0, "GET", "/", "", "h", -1, .n_headers = 1},
    {"GET //a//b/../%2e%2E/ HTTP/1.1\r\n" H E, 0, 0, "GET", "//a//b/../%2e%2E/", NULL, "h", -1,
     .n_headers = 1},
    {"GET /a?b?c HTTP/1.1\r\n" H E, 0, 0, "GET", "/a", "b?c", "h", -1, .n_headers = 1},
    {"OPTIONS * HTTP/1.1\r\n" H E, 0, 0, "OPTIONS", "*", NULL, "h", -1, .n_headers = 1},
    {"M-SEARCH /x HTTP/1.1\r\n" H E, 0, 0, "M-SEARCH", "/x", NULL, "h", -1, .n_headers = 1},
    {"get / HTTP/1.1\r\n" H E, 0, 0, "get", "/", NULL, "h", -1, .n_headers = 1},
    {"GET / HTTP/1.0\r\n\r\n", 0, 0, "GET", "/", NULL, NULL, -1, .is_close = true},
    {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0, 0, "GET", "/", NULL, NULL, -1,
     .is_close = true, .n_headers = 1},
    {G H "Connection: close\r\n" E, 0, 0, "GET", "/", NULL, "h", -1, .is_close = true,
     .n_headers = 2},
    {G H "Connection: TE , ClOsE\r\n" E, 0, 0, "GET", "/", NULL, "h", -1, .is_close = true,
     .n_headers = 2},
    {G H "Connection: closed\r\n" E, 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 2},
    {G H "Empty:\r\nBlank:   \t \r\n" E, 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 3},
    {G H "X: a\tb  c \r\n" E, 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 2},
    {G H "X: caf\xc3\xa9 \xff\r\n" E, 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 2},
    {G H "X:a:b:c\r\n" E, 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 2},
    {G H "!#$%&'*+-.^_`|~0: v\r\n" E, 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 2},
    {G H H120 E, 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 121},
    {G H H120 "B:1\r\nB:2\r\nB:3\r\nB:4\r\nB:5\r\nB:6\r\nB:7\r\n" E, 0, 0, "GET", "/", NULL,
     "h", -1, .n_headers = 128},
    {G H H120 "B:1\r\nB:2\r\nB:3\r\nB:4\r\nB:5\r\nB:6\r\nB:7\r\nB:8\r\n" E, 0, 431},
    {G H E "rest of the next", 0, 0, "GET", "/", NULL, "h", -1, .n_headers = 1},
    /* Bodies. */
    {P "Content-Length: 0\r\n" E, 0, 0, "PUT", "/k", NULL, "h", 0, .n_headers = 2},
    {P "Content-Length: 5\r\n" E, 0, 0, "PUT", "/k", NULL, "h", 5, .n_headers = 2},
    {P "content-length:\t5 \r\n" E, 0, 0, "PUT", "/k", NULL, "h", 5, .n_headers = 2},
    {P "Content-Length: 007\r\n" E, 0, 0, "PUT", "/k", NULL, "h", 7, .n_headers = 2},
    {P "Content-Length: 9223372036854775807\r\n" E, 0, 0, "PUT", "/k", NULL, "h", INT64_MAX,
     .n_headers = 2},
    {P "Content-Length: 5\r\nContent-Length: 5\r\n" E, 0, 0, "PUT", "/k", NULL, "h", 5,
     .n_headers = 3},
    {P "Transfer-Encoding: chunked\r\n" E, 0, 0, "PUT", "/k", NULL, "h", -1, .is_chunked = true,
     .n_headers = 2},
    {P "transfer-encoding:CHUNKED\r\n" E, 0, 0, "PUT", "/k", NULL, "h", -1, .is_chunked = true,
     .n_headers = 2},
    {P E, 0, 0, "PUT", "/k", NULL, "h", -1, .n_headers = 1},
    {G H "Content-Length: 3\r\n" E, 0, 0, "GET", "/", NULL, "h", 3, .n_headers = 2},
    {P "Content-Length: 5\r\nExpect: 100-continue\r\n" E, 0, 0, "PUT", "/k", NULL, "h", 5,
     .wants_continue = true, .n_headers = 3},
    {P "Content-Length: 5\r\nExpect: 100-Continue\r\n" E, 0, 0, "PUT", "/k", NULL, "h", 5,
     .wants_continue = true, .n_headers = 3},
    {P "Content-Length: 0\r\nExpect: 100-continue\r\n" E, 0, 0, "PUT", "/k", NULL, "h", 0,
     .n_headers = 3},
    {"PUT / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n" E, 0, 0, "PUT", "/",
     NULL, NULL, 5, .is_close = true, .n_headers = 2},
    /* Two readers, two lengths: request smuggling. */
    {P "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" E, 0, 400},
    {P "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" E, 0, 400},
    {P "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n" E, 0, 400},
    {P "Content-Length: 5\r\nTransfer-Encoding: identity\r\n" E, 0, 400},
    {P "Content-Length: 5\r\nContent-Length: 6\r\n" E, 0, 400},
    {P "Content-Length: 5\r\nContent-Length: 05\r\n" E, 0, 400},
    {P "Content-Length: 5\r\ncontent-length: 0\r\n" E, 0, 400},
    {P "Content-Length: 5, 5\r\n" E, 0, 400},
    {P "Content-Length: 5,6\r\n" E, 0, 400},
    {P "Content-Length: +5\r\n" E, 0, 400},
    {P "Content-Length: -5\r\n" E, 0, 400},
    {P "Content-Length: 0x5\r\n" E, 0, 400},
    {P "Content-Length: 5.0\r\n" E, 0, 400},
    {P "Content-Length: 5 5\r\n" E, 0, 400},
    {P "Content-Length:\r\n" E, 0, 400},
    {P "Content-Length: \r\n" E, 0, 400},
    {P "Content-Length: five\r\n" E, 0, 400},
    {P "Content-Length: 9223372036854775808\r\n" E, 0, 400},
    {P "Content-Length: 18446744073709551617\r\n" E, 0, 400},
    {P "Content-Length: 00000000000000000005\r\n" E, 0, 400},
    {P "Content-Length : 5\r\n" E, 0, 400},
    {P "Content-Length\t: 5\r\n" E, 0, 400},
    {P " Content-Length: 5\r\n" E, 0, 400},
    {P "Content-Length: 5\r\n\tX: folded\r\n" E, 0, 400},
    {P "X: a\r\n folded: b\r\n" E, 0, 400},
    {P "Content-Length: 5\x0b\r\n" E, 0, 400},
    {P "Transfer-Encoding: chunked, chunked\r\n" E, 0, 400},
    {P "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" E, 0, 400},
    {P "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n" E, 0, 400},
    {P "Transfer-Encoding: identity\r\n" E, 0, 400},
    {P "Transfer-Encoding: gzip, chunked\r\n" E, 0, 501},
    {P "Transfer-Encoding: chunked, gzip\r\n" E, 0, 400},
    {P "Transfer-Encoding: gzip\r\n" E, 0, 400},
    {P "Transfer-Encoding: xchunked\r\n" E, 0, 400},
    {P "Transfer-Encoding: chunkedx\r\n" E, 0, 400},
    {P "Transfer-Encoding: \"chunked\"\r\n" E, 0, 400},
    {P "Transfer-Encoding: chunked;q=1\r\n" E, 0, 400},
    {P "Transfer-Encoding: , chunked\r\n" E, 0, 400},
    {P "Transfer-Encoding: chunked,\r\n" E, 0, 400},
    {P "Transfer-Encoding:\r\n" E, 0, 400},
    {P "Transfer-Encoding : chunked\r\n" E, 0, 400},
    {P "Transfer-Encoding:\x0b"
       "chunked\r\n" E,
     0, 400},
    {P "Transfer-Encoding: chunked\x0c\r\n" E, 0, 400},
    {P "X: y\rTransfer-Encoding: chunked\r\n" E, 0, 400},
    {P "X: y\nTransfer-Encoding: chunked\r\n" E, 0, 400},
    {P "Transfer\xc2\xa0"
       "Encoding: chunked\r\n" E,
     0, 400},
    {"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" E, 0, 400},
    /* Line ends and control bytes. */
    {"GET / HTTP/1.1\nHost: h\n\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: h\n\r\n", 0, 400},
    {G H "\n", 0, 400},
    {G H "\r\r\n", 0, 400},
    {G "Host: h\r\r\n\r\n", 0, 400},
    {"\n" G H E, 0, 400},
    {"\r\n\r\n" G H E, 0, 400},
    {G H "X: a\0b\r\n" E, sizeof(G H "X: a\0b\r\n" E) - 1, 400},
    {G H "X\0: b\r\n" E, sizeof(G H "X\0: b\r\n" E) - 1, 400},
    {"GET /\0 HTTP/1.1\r\n" H E, sizeof("GET /\0 HTTP/1.1\r\n" H E) - 1, 400},
    {G H "X: a\x7f\r\n" E, 0, 400},
    {G H "X: \x01\r\n" E, 0, 400},
    {G H "X: \x1b[31m\r\n" E, 0, 400},
    {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11, 400}, /* a TLS hello on a plain port */
    /* Header names. */
    {G H ": v\r\n" E, 0, 400},
    {G H "no colon\r\n" E, 0, 400},
    {G H "nocolon\r\n" E, 0, 400},
    {G H "a b: v\r\n" E, 0, 400},
    {G H "a(b): v\r\n" E, 0, 400},
    {G H "\"a\": v\r\n" E, 0, 400},
    {G H "a@b: v\r\n" E, 0, 400},
    {G H "caf\xc3\xa9: v\r\n" E, 0, 400},
    {G " " H E, 0, 400},
    {G "\t" H E, 0, 400},
    /* Request lines. */
    {"GET  / HTTP/1.1\r\n" H E, 0, 400},
    {"GET /  HTTP/1.1\r\n" H E, 0, 400},
    {" GET / HTTP/1.1\r\n" H E, 0, 400},
    {"GET / HTTP/1.1 \r\n" H E, 0, 400},
    {"GET\t/ HTTP/1.1\r\n" H E, 0, 400},
    {"GET /a b HTTP/1.1\r\n" H E, 0, 400},
    {"GET / HTTP/1.1 x\r\n" H E, 0, 400},
    {"GET /\r\n" H E, 0, 400},
    {"GET\r\n" H E, 0, 400},
    {"GET HTTP/1.1\r\n" H E, 0, 400},
    {"G@T / HTTP/1.1\r\n" H E, 0, 400},
    {"GET a HTTP/1.1\r\n" H E, 0, 400},
    {"GET * HTTP/1.1\r\n" H E, 0, 400},
    {"GET /a#f HTTP/1.1\r\n" H E, 0, 400},
    {"GET /caf\xc3\xa9 HTTP/1.1\r\n" H E, 0, 400},
    {"GET / http/1.1\r\n" H E, 0, 400},
    {"GET / HTTP/1.12\r\n" H E, 0, 400},
    {"GET / HTTP/1\r\n" H E, 0, 400},
    {"GET / HTTP/11.1\r\n" H E, 0, 400},
    {"GET / HTCPCP/1.1\r\n" H E, 0, 400},
    {"GET / HTTP/1.2\r\n" H E, 0, 505},
    {"GET / HTTP/2.0\r\n" H E, 0, 505},
    {"GET / HTTP/0.9\r\n" H E, 0, 505},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, 505},
    {"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", 0, 501},
    {"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n" H E, 0, 501},
    /* Hosts. */
    {G E, 0, 400},
    {G "X: y\r\n" E, 0, 400},
    {G H H E, 0, 400},
    {G H "Host: other\r\n" E, 0, 400},
    {"GET / HTTP/1.0\r\n" H H E, 0, 400},
    {G "Host:\r\n" E, 0, 400},
    {G "Host: a b\r\n" E, 0, 400},
    {G "Host: user@h\r\n" E, 0, 400},
    {G "Host: h/path\r\n" E, 0, 400},
    {G "Host: h:port\r\n" E, 0, 400},
    {G "Host: h:65536\r\n" E, 0, 400},
    {G "Host: h:1:2\r\n" E, 0, 400},
    {G "Host: ::1\r\n" E, 0, 400},
    {G "Host: [::1\r\n" E, 0, 400},
    {G "Host: [::1]x\r\n" E, 0, 400},
    {G "Host: h[1]\r\n" E, 0, 400},
    {G "Host: a, b\r\n" E, 0, 400},
    {G "Host: caf\xc3\xa9\r\n" E, 0, 400},
    {G "Host: [fe80::1]:9999\r\n" E, 0, 0, "GET", "/", NULL, "[fe80::1]:9999", -1,
     .n_headers = 1},
    {G "Host: 169.254.169.254\r\n" E, 0, 0, "GET", "/", NULL, "169.254.169.254", -1,
     .n_headers = 1},
    {"GET http://h/a?b HTTP/1.1\r\n" H E, 0, 0, "GET", "/a", "b", "h", -1, .n_headers = 1},
    {"GET HTTP://H:80 HTTP/1.1\r\n" H E, 0, 0, "GET", "/", NULL, "H:80", -1, .n_headers = 1},
    {"GET https://h?q HTTP/1.1\r\nHost: h:443\r\n" E, 0, 0, "GET", "/", "q", "h", -1,
     .n_headers = 1},
    {"GET http://h/ HTTP/1.0\r\n" E, 0, 0, "GET", "/", NULL, "h", -1, .is_close = true},
    {"GET http://other/ HTTP/1.1\r\n" H E, 0, 400},
    {"GET http://h:81/ HTTP/1.1\r\n" H E, 0, 400},
    {"GET http://u@h/ HTTP/1.1\r\n" H E, 0, 400},
    {"GET http:///a HTTP/1.1\r\n" H E, 0, 400},
    {"GET ftp://h/ HTTP/1.1\r\n" H E, 0, 400},
    {"GET http://h/ HTTP/1.1\r\n" E, 0, 400},
    /* Expectations. */
    {P "Content-Length: 5\r\nExpect: 200\r\n" E, 0, 0, "PUT", "/k", NULL, "h", 5,
     .n_headers = 3},
    {P "Content-Length: 5\r\nExpect:\r\n" E, 0, 0, "PUT", "/k", NULL, "h", 5, .n_headers = 3},
    {P "Content-Length: 5\r\nExpect: x, 100-continue\r\n" E, 0, 417},
    {P "Content-Length: 5\r\nExpect: 100-continue, x\r\n" E, 0, 417},
    {P "Expect: 100-continue\r\nExpect: 100-continue\r\n" E, 0, 417},
    /* Not complete yet. */
    {"", 0, -1},
    {"\r", 0, -1},
    {"GE", 0, -1},
    {G, 0, -1},
    {G H, 0, -1},
    {G H "\r", 0, -1},
};

/* Feeds the bytes in pieces of 'step'; returns the status (0, -1 = more, or what to answer). */
static int feed(const char *p, size_t n, size_t step, size_t max, struct http1_head *out,
                size_t *ret_size)
{
    struct http1_scan s = {0};
    long r = 0;
    for (size_t have = 0; r == 0 && have <= n; have += step) {
        r = http1_scan(&s, p, have < n ? have : n, max);
        if (have >= n) {
            break;
        }
    }
    if (r == 0) {
        r = http1_scan(&s, p, n, max);
    }
    if (r < 0) {
        assert_int_equal(r, -EBADMSG);
        return s.status;
    }
    if (r == 0) {
        return -1;
    }
    *ret_size = (size_t)r;
    if (http1_parse_head(p, (size_t)r, out) < 0) {
        assert_non_null(out->why);
        return out->status;
    }
    return 0;
}

static void str_is(struct str got, const char *want)
{
    if (!want) {
        assert_false(str_is_set(got));
        return;
    }
    assert_true(str_is_set(got));
    if (!str_eqc(got, want)) {
        fail_msg("\"%.*s\" is not \"%s\"", STR_ARG(got), want);
    }
}

static void check_row(const struct row *row, size_t step)
{
    struct http1_head out;
    size_t n = row->raw_n ? row->raw_n : strlen(row->raw), size = 0;
    /* A copy of the exact size: the sanitizer sees a look past the end. */
    char *p = malloc(n ? n : 1);
    assert_non_null(p);
    memcpy(p, row->raw, n);
    int status = feed(p, n, step, MAX_HEAD, &out, &size);
    if (status != row->status) {
        fail_msg("status %d, not %d, in steps of %zu: %s", status, row->status, step, row->raw);
    }
    if (status == 0) {
        str_is(out.h.method, row->method);
        str_is(out.h.path, row->path);
        str_is(out.h.query, row->query);
        str_is(out.h.host, row->host);
        assert_int_equal(out.h.content_length, row->length);
        assert_int_equal(out.h.is_chunked, row->is_chunked);
        assert_int_equal(out.h.has_body, row->is_chunked || row->length > 0);
        assert_int_equal(out.is_keep_alive, !row->is_close);
        assert_int_equal(out.wants_continue, row->wants_continue);
        assert_int_equal(out.h.n_headers, row->n_headers);
        assert_true(size <= n);
    }
    free(p);
}

static void test_rows(void **state)
{
    assert_true(ARRAY_LEN(rows) > 100);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check_row(&rows[i], SIZE_MAX / 2);
        for (size_t step = 1; step < 8; step++) {
            check_row(&rows[i], step);
        }
    }
}

/* Two pieces, cut at every byte. */
static void test_split_everywhere(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *row = &rows[i];
        size_t n = row->raw_n ? row->raw_n : strlen(row->raw);
        for (size_t cut = 0; cut <= n; cut++) {
            struct http1_scan s = {0};
            long r = http1_scan(&s, row->raw, cut, MAX_HEAD);
            if (r == 0) {
                r = http1_scan(&s, row->raw, n, MAX_HEAD);
            }
            struct http1_head out;
            int status = r < 0                                             ? s.status
                         : r == 0                                          ? -1
                         : http1_parse_head(row->raw, (size_t)r, &out) < 0 ? out.status
                                                                           : 0;
            if (status != row->status) {
                fail_msg("cut at %zu: %d, not %d: %s", cut, status, row->status, row->raw);
            }
        }
    }
}

static void test_values(void **state)
{
    static const char raw[] = G H "X-A:  one two\t \r\nx-a: 2\r\nY:\r\n" E;
    struct http1_head out;
    assert_int_equal(http1_parse_head(raw, sizeof(raw) - 1, &out), 0);
    str_is(http_header_get(&out.h, "x-A"), "one two");
    str_is(http_header_get(&out.h, "y"), "");
    str_is(http_header_get(&out.h, "z"), NULL);
    assert_int_equal(http_header_count(&out.h, "X-a"), 2);
    assert_int_equal(http_header_count(&out.h, "z"), 0);
    str_is(out.h.headers[1].name, "X-A");
    str_is(out.h.target, "/");
}

/* The head's own size counts, to the byte, and the request line has its own answer. */
static void test_limits(void **state)
{
    char big[600];
    size_t head = strlen(G H "X: ");
    memset(big, 'a', sizeof(big));
    memcpy(big, G H "X: ", head);
    memcpy(big + 508, "\r\n\r\n", 4); /* 512 bytes in all */
    struct http1_head out;
    size_t size = 0;
    for (size_t step = 1; step < 600; step += 7) {
        assert_int_equal(feed(big, 512, step, 512, &out, &size), 0);
        assert_int_equal(size, 512);
        assert_int_equal(feed(big, 512, step, 511, &out, &size), 431);
        assert_int_equal(feed(big, 300, step, 300, &out, &size), 431);
        assert_int_equal(feed(big, 300, step, 301, &out, &size), -1);
    }
    memset(big, 'a', sizeof(big));
    memcpy(big, "GET /", 5);
    assert_int_equal(feed(big, sizeof(big), 100, 512, &out, &size), 414);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_split_everywhere),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
