/* Heads: one piece and any pieces give the same, and what is accepted survives being written
 * down again. */
#include "net/http1_parse.h"

#include "base/buf.h"

#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_HEAD 2048

static bool same(struct str a, struct str b)
{
    return str_is_set(a) == str_is_set(b) && str_eq(a, b);
}

/* Status 0 = accepted (*ret_size set), -1 = more is needed. */
static int run(const char *p, size_t n, size_t step, struct http1_head *out, size_t *ret_size)
{
    struct http1_scan s = {0};
    long r = 0;
    for (size_t have = 0; r == 0;) {
        r = http1_scan(&s, p, have, MAX_HEAD);
        if (have == n) {
            break;
        }
        have = n - have < step ? n : have + step;
    }
    if (r <= 0) {
        assert(r == 0 || r == -EBADMSG);
        assert(r == 0 || s.status == 400 || s.status == 414 || s.status == 431);
        return r < 0 ? s.status : -1;
    }
    assert((size_t)r <= n && (size_t)r <= MAX_HEAD);
    *ret_size = (size_t)r;
    if (http1_parse_head(p, (size_t)r, out) < 0) {
        assert(out->why && out->status >= 400 && out->status < 600);
        return out->status;
    }
    return 0;
}

static void check_same(const struct http1_head *a, const struct http1_head *b)
{
    assert(same(a->h.method, b->h.method) && same(a->h.target, b->h.target) &&
           same(a->h.host, b->h.host));
    assert(same(a->h.path, b->h.path) && same(a->h.query, b->h.query));
    assert(a->h.content_length == b->h.content_length && a->h.is_chunked == b->h.is_chunked);
    assert(a->is_keep_alive == b->is_keep_alive && a->wants_continue == b->wants_continue);
    assert(a->h.n_headers == b->h.n_headers);
    for (size_t i = 0; i < a->h.n_headers; i++) {
        assert(same(a->headers[i].name, b->headers[i].name));
        assert(same(a->headers[i].value, b->headers[i].value));
    }
}

/* What no accepted head may hold: two lengths, two hosts, a length beside chunks, bytes that
 * end a line. */
static void check_strict(const struct http1_head *h)
{
    assert(http1_is_token(h->h.method) && h->h.method.n <= HTTP1_MAX_METHOD);
    assert(http_header_count(&h->h, "Transfer-Encoding") == h->h.is_chunked);
    assert(!h->h.is_chunked || http_header_count(&h->h, "Content-Length") == 0);
    assert(h->h.content_length >= 0 || http_header_count(&h->h, "Content-Length") == 0);
    assert(http_header_count(&h->h, "Host") <= 1 && (h->is_http10 || str_is_set(h->h.host)));
    for (size_t i = 0; i < h->h.n_headers; i++) {
        assert(http1_is_token(h->headers[i].name) && http1_is_value(h->headers[i].value));
    }
    for (size_t i = 0; i < h->h.target.n; i++) {
        assert((unsigned char)h->h.target.p[i] > 0x20 &&
               (unsigned char)h->h.target.p[i] < 0x7f);
    }
}

static void check_rewritten(const struct http1_head *h)
{
    AUTO_BUF b;
    buf_init(&b, 8 * MAX_HEAD);
    buf_fmt(&b, "%.*s %.*s HTTP/1.%d\r\n", STR_ARG(h->h.method), STR_ARG(h->h.target),
            h->is_http10 ? 0 : 1);
    for (size_t i = 0; i < h->h.n_headers; i++) {
        buf_add(&b, h->headers[i].name);
        buf_addc(&b, ": ");
        buf_add(&b, h->headers[i].value);
        buf_addc(&b, "\r\n");
    }
    buf_addc(&b, "\r\n");
    assert(buf_ok(&b));
    struct http1_scan s = {0};
    struct http1_head again;
    assert(http1_scan(&s, b.p, b.n, 8 * MAX_HEAD) == (long)b.n);
    assert(http1_parse_head(b.p, b.n, &again) == 0);
    check_same(h, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    /* Exactly as large as the input: a look past the end is seen. */
    size_t n = size - 1;
    char *p = malloc(n ? n : 1);
    if (!p) {
        return 0;
    }
    memcpy(p, data + 1, n);
    struct http1_head whole, pieces;
    size_t whole_n = 0, pieces_n = 0;
    int a = run(p, n, n + 1, &whole, &whole_n);
    int b = run(p, n, (size_t)data[0] % 64 + 1, &pieces, &pieces_n);
    assert(a == b && whole_n == pieces_n);
    if (a == 0) {
        check_same(&whole, &pieces);
        check_strict(&whole);
        check_rewritten(&whole);
    }
    free(p);
    return 0;
}
