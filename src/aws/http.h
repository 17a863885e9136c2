/* http.h — one HTTP request as the AWS rooms see it, free of sockets, so that tests and fuzzers
 * need none.
 * Not here: the server (net/http_server.h).
 * Threads:  plain values.
 * Memory:   borrows everything.
 * Errors:   none. */
#pragma once
#include "base/str.h"
#include "net/http_server.h"

struct aws_http {
    struct str method;                 /* "POST" */
    struct str path;                   /* as sent, not decoded */
    struct str query;                  /* as sent, after '?'; STR_NONE when there is no '?' */
    const struct http_header *headers; /* values trimmed */
    size_t n_headers;
    struct str body;      /* as sent (may be gzip) */
    struct str source_ip; /* text */
    bool is_tls;
    uint64_t now_ns; /* wall clock */
};

/* First header of that name (case ignored), or STR_NONE; how many there are. */
struct str aws_http_header(const struct aws_http *rq, const char *name);
size_t aws_http_header_count(const struct aws_http *rq, const char *name);
