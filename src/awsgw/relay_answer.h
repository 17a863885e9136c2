/* relay_answer.h — the head of an HTTP/1.1 answer: bytes in, slices out. Pure. As strict as the
 * parser of requests: an answer that two readers could cut differently is refused.
 * Not here: bodies (net/http1_body.h).
 * Threads:  no state.
 * Memory:   slices borrow from the bytes given.
 * Errors:   -EBADMSG: the connection cannot be used any more. */
#pragma once
#include "net/http1_parse.h"

struct relay_answer {
    int status;
    struct http_header headers[HTTP1_MAX_HEADERS]; /* all but those of the connection itself */
    size_t n_headers;
    int64_t content_length; /* -1: none */
    bool is_chunked, is_close;
};

/* A whole head, of the size that http1_scan() returned. */
MUST_CHECK int relay_answer_parse(const char *p, size_t n, struct relay_answer *ret);
