/* snap_head.h — the head of an HTTP/1.1 answer, as far as the client of the object store needs
 *           it.
 * Not here: sockets (snap_s3.c), bodies (net/http1_body.h), requests.
 * Threads:  no state.
 * Memory:   nothing is kept.
 * Errors:   -EBADMSG for a head whose framing could be read in two ways, or that is none. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define SNAP_HEAD_MAX 8192u

struct snap_head {
    int status;             /* 100-599 */
    int64_t content_length; /* -1: none */
    bool is_chunked, is_close;
    bool has_crc;
    uint32_t crc; /* x-amz-checksum-crc32c */
};

/* Bytes of the head with its empty line, or 0: it has not ended yet. */
size_t snap_head_end(struct str bytes);
/* 'head' is all of it, with its empty line. */
MUST_CHECK int snap_head_parse(struct str head, struct snap_head *ret);
