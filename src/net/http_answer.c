#include "net/http_int.h"

#include "base/time.h"

static const struct {
    int status;
    const char *text;
} reasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

const char *http_reason(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status) {
            return reasons[i].text;
        }
    }
    return "Status";
}

static void add_line(struct chunkq *q, const char *name, struct str value)
{
    chunkq_addc(q, name);
    chunkq_addc(q, ": ");
    chunkq_add(q, value);
    chunkq_addc(q, "\r\n");
}

/* Decimal digits; printf() costs more than the rest of a small answer. */
static void add_number(struct chunkq *q, uint64_t v)
{
    char text[20];
    size_t at = sizeof(text);
    do {
        text[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    chunkq_add(q, str_n(text + at, sizeof(text) - at));
}

/* The text of this second, made once by each thread. */
static struct str date_now(void)
{
    static _Thread_local struct {
        uint64_t s;
        char text[TIME_ISO_SIZE];
    } last;
    uint64_t ns = time_wall_ns();
    if (ns / NS_PER_S != last.s) {
        last.s = ns / NS_PER_S;
        time_http(ns, last.text);
    }
    return str_c(last.text);
}

/* Status line, Date and Server: what every answer begins with. */
static void add_begin(struct chunkq *q, int status, const struct http_server_opts *o)
{
    chunkq_addc(q, "HTTP/1.1 ");
    add_number(q, (uint64_t)status);
    chunkq_addc(q, " ");
    chunkq_addc(q, http_reason(status));
    chunkq_addc(q, "\r\n");
    add_line(q, "Date", date_now());
    if (o->server_header) {
        add_line(q, "Server", str_c(o->server_header));
    }
}

static void add_length(struct chunkq *q, int64_t n)
{
    chunkq_addc(q, "Content-Length: ");
    add_number(q, (uint64_t)n);
    chunkq_addc(q, "\r\n");
}

/* Line ends inside a value would begin a header, or an answer, of the value's author. */
static void add_clean(struct chunkq *q, struct str s)
{
    while (s.n) {
        size_t n = 0;
        while (n < s.n && ((unsigned char)s.p[n] >= 0x20 || s.p[n] == '\t') && s.p[n] != 0x7f) {
            n++;
        }
        chunkq_add(q, str_n(s.p, n));
        if (n < s.n) {
            chunkq_addc(q, " ");
            n++;
        }
        s = str_skip(s, n);
    }
}

static void add_header(struct http_req *req, const struct http_header *h)
{
    if (str_ieqc(h->name, "Connection")) {
        req->is_close_given = req->is_close_given || str_ieqc(h->value, "close");
        return;
    }
    if (!http1_is_token(h->name) || str_ieqc(h->name, "Date") ||
        str_ieqc(h->name, "Content-Length") || str_ieqc(h->name, "Transfer-Encoding")) {
        return;
    }
    struct chunkq *q = &req->pend_head;
    chunkq_add(q, h->name);
    chunkq_addc(q, ": ");
    add_clean(q, h->value);
    chunkq_addc(q, "\r\n");
}

void http_answer_format(struct http_req *req, const struct http_answer *a)
{
    struct chunkq *q = &req->pend_head;
    add_begin(q, a->status, &req->w->s->o);
    for (size_t i = 0; i < a->n_headers; i++) {
        add_header(req, &a->headers[i]);
    }
    /* RFC 9110 §6.4.1: these never have a body, and no length may be told (304 could, but need
     * not). */
    bool is_empty_status = a->status == 204 || a->status == 304;
    req->is_bodyless = is_empty_status || req->is_head_method;
    int64_t size = a->is_stream ? a->stream_size : (int64_t)a->body.n;
    if (is_empty_status) {
        size = -1;
    } else if (size >= 0) {
        add_length(q, size);
    } else if (!req->is_http10) {
        req->is_chunked_out = true;
        add_line(q, "Transfer-Encoding", STR("chunked"));
    } else {
        req->is_close_given = true; /* the end of the connection ends the body */
    }
    req->out_left = a->is_stream ? size : -1;
    if (!a->is_stream && !req->is_bodyless) {
        chunkq_add(&req->pend, a->body);
    }
}

void http_answer_error(struct http_conn *c, int status, const char *why)
{
    struct chunkq *q = &c->out;
    add_begin(q, status, &c->w->s->o);
    add_line(q, "Content-Type", STR("text/plain"));
    size_t n = strlen(why) + 1;
    add_length(q, (int64_t)n);
    add_line(q, "Connection", STR("close"));
    chunkq_addc(q, "\r\n");
    if (!c->req || !c->req->is_head_method) {
        chunkq_addc(q, why);
        chunkq_addc(q, "\n");
    }
    atomic_store_explicit(&c->n_out, q->n_bytes, memory_order_relaxed);
}
