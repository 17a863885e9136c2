/* http1_body.h — the body of an HTTP/1.1 request: finds its end in a stream of bytes, takes
 * chunks apart. Pure.
 * Not here: heads (http1_parse.h), aws-chunked signatures (aws/).
 * Threads:  no state but the caller's.
 * Memory:   slices of data borrow from the bytes given.
 * Errors:   -EBADMSG for a malformed chunk or trailer (400); the connection must be closed. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

#define HTTP1_MAX_CHUNK_EXT   256          /* bytes of extensions of one chunk */
#define HTTP1_MAX_CHUNK_EXTS  (16u * 1024) /* of all chunks of one body */
#define HTTP1_MAX_TRAILER     (8u * 1024)  /* bytes of the trailer section */
#define HTTP1_MAX_CHUNK_DIGIT 15

struct http1_body {
    int state;
    uint64_t left; /* data bytes that must still come: of the body, or of this chunk */
    uint32_t n_digits, n_ext, n_exts, n_trailer, n_line;
    bool has_colon;
};

enum http1_body_step { HTTP1_BODY_MORE, HTTP1_BODY_DATA, HTTP1_BODY_END };

/* 'content_length' < 0: chunked. */
void http1_body_init(struct http1_body *b, bool is_chunked, int64_t content_length);
/* Looks at p[0..n) and says what comes next: needs more input (all n bytes were used), a slice
 * of data, or the end. '*ret_used' bytes are done with: call again with the rest. Trailers are
 * checked and dropped. */
MUST_CHECK int http1_body_next(struct http1_body *b, const char *p, size_t n, size_t *ret_used,
                               struct str *ret_data);
/* Bytes that must still come when that is known, or -1 (chunked). */
int64_t http1_body_left(const struct http1_body *b);
bool http1_body_is_done(const struct http1_body *b);
