#include "net/http1_parse.h"

#include "base/num.h"

#include <errno.h>

/* tchar of RFC 9110 §5.6.2. */
static bool is_tchar(unsigned char c)
{
    static const unsigned char others[] = "!#$%&'*+-.^_`|~";
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr((const char *)others, c));
}

bool http1_is_token(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!is_tchar((unsigned char)s.p[i])) {
            return false;
        }
    }
    return s.n > 0;
}

bool http1_is_value(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

static int scan_fail(struct http1_scan *s, int status)
{
    s->status = status;
    return -EBADMSG;
}

/* A line ended at s->off. True when it was the empty line that ends the head. */
static bool scan_line_end(struct http1_scan *s)
{
    size_t size = s->off - s->line_off; /* with CR LF */
    s->line_off = s->off;
    if (size == 2 && s->n_lines > 0) {
        return true;
    }
    if (size > 2) {
        s->n_lines++;
    }
    return false;
}

long http1_scan(struct http1_scan *s, const char *p, size_t n, size_t max_head)
{
    while (s->off < n) {
        if (s->off >= max_head) {
            return scan_fail(s, s->n_lines == 0 ? 414 : 431);
        }
        unsigned char c = (unsigned char)p[s->off++];
        if (s->is_after_cr) {
            s->is_after_cr = false;
            if (c != '\n') {
                return scan_fail(s, 400);
            }
            if (scan_line_end(s)) {
                return (long)s->off;
            }
            /* RFC 9112 §2.2 wants one empty line before a request forgiven; more are an attack
             * or noise. */
            if (s->n_lines == 0 && s->off > 2) {
                return scan_fail(s, 400);
            }
            if (s->n_lines > HTTP1_MAX_HEADERS + 1) {
                return scan_fail(s, 431);
            }
        } else if (c == '\r') {
            s->is_after_cr = true;
        } else if ((c < 0x20 && c != '\t') || c == 0x7f ||
                   (s->n_lines == 0 && (c == '\t' || c > 0x7f))) {
            return scan_fail(s, 400); /* also a TLS hello on a plain port */
        }
    }
    return s->off >= max_head ? scan_fail(s, s->n_lines == 0 ? 414 : 431) : 0;
}

static int refuse(struct http1_head *out, int status, const char *why)
{
    out->status = status;
    out->why = why;
    return -EBADMSG;
}

/* Takes the line up to CR LF off the front. The scan has made sure that CR comes only before
 * LF. */
static struct str take_line(struct str *rest)
{
    struct str line = str_cut(*rest, '\r');
    *rest = str_skip(*rest, line.n + 2);
    return line;
}

static bool is_host_byte(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("-._~%!$&'()*+,;=:[]", c));
}

/* uri-host [":" port], loosely: no user info, no path, no white space, port only digits. */
static bool is_host(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!is_host_byte((unsigned char)s.p[i])) {
            return false;
        }
    }
    struct str rest = s;
    if (str_has_prefixc(s, "[")) {
        ptrdiff_t end = str_find(s, ']', 0);
        if (end < 3) {
            return false;
        }
        rest = str_skip(s, (size_t)end + 1);
        if (rest.n && rest.p[0] != ':') {
            return false;
        }
    } else if (str_find(s, '[', 0) >= 0 || str_find(s, ']', 0) >= 0) {
        return false;
    }
    struct str name = str_cut(rest, ':');
    if (name.n == rest.n) {
        return s.n > 0;
    }
    struct str port = str_skip(rest, name.n + 1);
    uint64_t v = 0;
    return name.p + name.n > s.p &&
           (port.n == 0 || (port.n <= 5 && num_u64(port, 65535, &v) == 0));
}

/* Hosts are compared without case and without the scheme's own port. */
static bool is_same_host(struct str a, struct str b, const char *port)
{
    struct str *both[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        if (str_has_suffix(*both[i], str_c(port))) {
            both[i]->n -= strlen(port);
        } else if (str_has_suffix(*both[i], STR(":"))) {
            both[i]->n--;
        }
    }
    return str_ieq(a, b);
}

static void split_target(struct http_head *h, struct str t)
{
    h->path = str_cut(t, '?');
    h->query = h->path.n < t.n ? str_skip(t, h->path.n + 1) : STR_NONE;
    if (h->path.n == 0) {
        h->path = STR("/"); /* "http://host?query" */
    }
}

static int parse_target(struct http1_head *out, struct str *ret_authority,
                        const char **ret_port)
{
    struct http_head *h = &out->h;
    struct str t = h->target;
    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)t.p[i];
        if (c <= 0x20 || c >= 0x7f || c == '#') {
            return refuse(out, 400, "bad byte in the request target");
        }
    }
    if (str_eqc(t, "*")) {
        if (!str_eqc(h->method, "OPTIONS")) {
            return refuse(out, 400, "\"*\" is for OPTIONS only");
        }
        split_target(h, t);
        return 0;
    }
    if (str_has_prefixc(t, "/")) {
        split_target(h, t);
        return 0;
    }
    size_t skip = 0;
    if (t.n > 7 && str_ieq(str_n(t.p, 7), STR("http://"))) {
        skip = 7;
        *ret_port = ":80";
    } else if (t.n > 8 && str_ieq(str_n(t.p, 8), STR("https://"))) {
        skip = 8;
        *ret_port = ":443";
    } else {
        return refuse(out, 400, "bad request target");
    }
    struct str rest = str_skip(t, skip);
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?') {
        n++;
    }
    *ret_authority = str_n(rest.p, n);
    if (!is_host(*ret_authority)) {
        return refuse(out, 400, "bad authority in the request target");
    }
    split_target(h, str_skip(rest, n));
    return 0;
}

static int parse_request_line(struct http1_head *out, struct str line,
                              struct str *ret_authority, const char **ret_port)
{
    ptrdiff_t a = str_find(line, ' ', 0);
    ptrdiff_t b = a < 0 ? -1 : str_find(line, ' ', (size_t)a + 1);
    if (b < 0) {
        return refuse(out, 400, "bad request line");
    }
    struct http_head *h = &out->h;
    h->method = str_n(line.p, (size_t)a);
    h->target = str_n(line.p + a + 1, (size_t)(b - a - 1));
    struct str version = str_skip(line, (size_t)b + 1);
    if (!http1_is_token(h->method) || h->target.n == 0) {
        return refuse(out, 400, "bad request line");
    }
    /* The version's form is checked first: "GET / x HTTP/1.1" has no version, not an unknown
     * one. */
    if (version.n != 8 || !str_has_prefixc(version, "HTTP/") || version.p[5] < '0' ||
        version.p[5] > '9' || version.p[6] != '.' || version.p[7] < '0' || version.p[7] > '9') {
        return refuse(out, 400, "bad HTTP version");
    }
    out->is_http10 = str_eqc(version, "HTTP/1.0");
    if (!out->is_http10 && !str_eqc(version, "HTTP/1.1")) {
        return refuse(out, 505, "HTTP/1.1 and HTTP/1.0 are spoken here");
    }
    if (h->method.n > HTTP1_MAX_METHOD || str_eqc(h->method, "CONNECT")) {
        return refuse(out, 501, "method not implemented");
    }
    return parse_target(out, ret_authority, ret_port);
}

/* What the headers say about framing and the connection. */
struct framing {
    struct str length, coding, host, expect;
    unsigned n_codings, n_hosts, n_expects;
    bool is_close, is_keep_alive;
};

static void note_connection(struct framing *f, struct str value)
{
    struct str field = STR_NONE;
    while (str_next(&value, ',', &field)) {
        field = str_trim(field);
        if (str_ieqc(field, "close")) {
            f->is_close = true;
        } else if (str_ieqc(field, "keep-alive")) {
            f->is_keep_alive = true;
        }
    }
}

static int note_header(struct http1_head *out, struct framing *f, const struct http_header *hd)
{
    switch (hd->name.n) {
    case 4:
        if (str_ieqc(hd->name, "Host")) {
            f->host = hd->value;
            f->n_hosts++;
        }
        return 0;
    case 6:
        if (str_ieqc(hd->name, "Expect")) {
            f->expect = hd->value;
            f->n_expects++;
        }
        return 0;
    case 10:
        if (str_ieqc(hd->name, "Connection")) {
            note_connection(f, hd->value);
        }
        return 0;
    case 14:
        if (!str_ieqc(hd->name, "Content-Length")) {
            return 0;
        }
        /* The same text twice is the same length for every reader; anything else is not. */
        if (str_is_set(f->length) && !str_eq(f->length, hd->value)) {
            return refuse(out, 400, "Content-Length headers differ");
        }
        f->length = hd->value;
        return 0;
    case 17:
        if (str_ieqc(hd->name, "Transfer-Encoding")) {
            f->coding = hd->value;
            f->n_codings++;
        }
        return 0;
    default: return 0;
    }
}

static int parse_headers(struct http1_head *out, struct str rest, struct framing *f)
{
    struct http_head *h = &out->h;
    h->headers = out->headers;
    for (;;) {
        struct str line = take_line(&rest);
        if (line.n == 0) {
            return rest.n == 0 ? 0 : refuse(out, 400, "bytes after the head");
        }
        if (line.p[0] == ' ' || line.p[0] == '\t') {
            return refuse(out, 400, "folded header lines are refused");
        }
        struct str name = str_cut(line, ':');
        if (name.n == line.n || !http1_is_token(name)) {
            return refuse(out, 400, "bad header name");
        }
        struct str value = str_trim(str_skip(line, name.n + 1));
        if (!str_is_set(value)) {
            value = STR("");
        }
        if (!http1_is_value(value)) {
            return refuse(out, 400, "bad byte in a header");
        }
        if (h->n_headers == HTTP1_MAX_HEADERS) {
            return refuse(out, 431, "too many headers");
        }
        struct http_header *hd = &out->headers[h->n_headers++];
        *hd = (struct http_header){name, value};
        int r = note_header(out, f, hd);
        if (r < 0) {
            return r;
        }
    }
}

/* True when the last element of the list is "chunked" and all are tokens. */
static bool ends_in_chunked(struct str list)
{
    struct str field = STR_NONE;
    bool is_chunked = false;
    unsigned n_chunked = 0;
    while (str_next(&list, ',', &field)) {
        field = str_trim(field);
        if (!http1_is_token(field)) {
            return false;
        }
        is_chunked = str_ieqc(field, "chunked");
        n_chunked += is_chunked;
    }
    return is_chunked && n_chunked == 1;
}

static int judge_body(struct http1_head *out, const struct framing *f)
{
    struct http_head *h = &out->h;
    h->content_length = -1;
    if (f->n_codings) {
        if (str_is_set(f->length)) {
            return refuse(out, 400, "Content-Length and Transfer-Encoding");
        }
        if (out->is_http10 || f->n_codings > 1) {
            return refuse(out, 400, "bad Transfer-Encoding");
        }
        if (!str_ieqc(f->coding, "chunked")) {
            return ends_in_chunked(f->coding) ? refuse(out, 501, "unknown transfer coding")
                                              : refuse(out, 400, "bad Transfer-Encoding");
        }
        h->is_chunked = h->has_body = true;
        return 0;
    }
    if (str_is_set(f->length)) {
        uint64_t v = 0;
        if (f->length.n > 19 || num_u64(f->length, INT64_MAX, &v) < 0) {
            return refuse(out, 400, "bad Content-Length");
        }
        h->content_length = (int64_t)v;
        h->has_body = v > 0;
    }
    return 0;
}

int http1_parse_head(const char *p, size_t n, struct http1_head *out)
{
    out->h = (struct http_head){.content_length = -1};
    out->is_http10 = out->is_keep_alive = out->wants_continue = false;
    out->status = 0;
    out->why = NULL;
    struct str rest = str_n(p, n);
    if (str_has_prefixc(rest, "\r\n")) {
        rest = str_skip(rest, 2);
    }
    struct str authority = STR_NONE;
    const char *port = NULL;
    int r = parse_request_line(out, take_line(&rest), &authority, &port);
    struct framing f = {.length = STR_NONE};
    if (r == 0) {
        r = parse_headers(out, rest, &f);
    }
    if (r == 0) {
        r = judge_body(out, &f);
    }
    if (r < 0) {
        return r;
    }
    if (f.n_hosts > 1 || (f.n_hosts == 0 && !out->is_http10)) {
        return refuse(out, 400, "exactly one Host header is needed");
    }
    if (f.n_hosts && !is_host(f.host)) {
        return refuse(out, 400, "bad Host header");
    }
    if (str_is_set(authority) && f.n_hosts && !is_same_host(authority, f.host, port)) {
        return refuse(out, 400, "the request target names another host");
    }
    out->h.host = str_is_set(authority) ? authority : f.host;
    if (f.n_expects && !out->is_http10) {
        /* A list could have "100-continue" in it: that client waits. What is no expectation of
         * HTTP at all ("200", nothing) is passed over, as S3 does. */
        if (f.n_expects > 1 || memchr(f.expect.p, ',', f.expect.n)) {
            return refuse(out, 417, "unknown expectation");
        }
        out->wants_continue = out->h.has_body && str_ieqc(f.expect, "100-continue");
    }
    out->is_keep_alive = !out->is_http10 && !f.is_close;
    return 0;
}

struct str http_header_get(const struct http_head *h, const char *name)
{
    for (size_t i = 0; i < h->n_headers; i++) {
        if (str_ieqc(h->headers[i].name, name)) {
            return h->headers[i].value;
        }
    }
    return STR_NONE;
}

size_t http_header_count(const struct http_head *h, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < h->n_headers; i++) {
        n += str_ieqc(h->headers[i].name, name);
    }
    return n;
}
