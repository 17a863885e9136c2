/* http1_parse.h — the head of an HTTP/1.1 request: bytes in, slices out. Pure: no memory, no
 * clock, no descriptors.
 * Not here: bodies (http1_body.h), sockets and answers (http1_conn.c).
 * Threads:  no state but the caller's.
 * Memory:   slices of a parsed head borrow from the bytes given.
 * Errors:   -EBADMSG, and 'status' says how to answer. Every framing that two readers could
 *           understand in two ways is refused (RFC 9112 §6.3, §11.2): the connection must be
 *           closed after an error. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include "net/http_server.h"

#define HTTP1_MAX_HEADERS 128
#define HTTP1_MAX_METHOD  32

/* Looks for the end of a head in bytes that arrive bit by bit, and refuses bytes that cannot be
 * in one at the first sight of them. Start with all zero. */
struct http1_scan {
    size_t off; /* bytes looked at */
    size_t line_off;
    unsigned n_lines; /* complete lines, the request line included */
    bool is_after_cr;
    int status; /* after -EBADMSG: 400, 414 or 431 */
};

/* 'p' always begins at the first byte of the head; 'n' is what there is so far. Returns the
 * size of the head (with its empty line), 0 when more is needed, or -EBADMSG. Never looks past
 * the end of the head. */
MUST_CHECK long http1_scan(struct http1_scan *s, const char *p, size_t n, size_t max_head);

struct http1_head {
    struct http_head h;
    struct http_header headers[HTTP1_MAX_HEADERS];
    bool is_http10, is_keep_alive;
    bool wants_continue; /* Expect: 100-continue */
    int status;          /* after -EBADMSG: 400, 417, 501 or 505 */
    const char *why;     /* static; after -EBADMSG */
};

/* Parses a whole head, of the size that http1_scan() returned. h.is_tls is the caller's. */
MUST_CHECK int http1_parse_head(const char *p, size_t n, struct http1_head *out);

bool http1_is_token(struct str s);
/* Bytes that a header's value may have: no control bytes but tab. */
bool http1_is_value(struct str s);
