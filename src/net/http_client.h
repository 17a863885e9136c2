/* http_client.h — one GET, blocking, into a descriptor or a buffer: images, small documents.
 * Not here: connection pools, uploads, anything on a loop (call it from a pool thread or a
 *           command).
 * Threads:  any; a call blocks its thread.
 * Memory:   nothing is kept between calls.
 * Errors:   "DownloadFailed" with -ENOENT (404), -EACCES (401, 403), -EIO (other answers,
 *           broken off), -EFBIG, -ETIMEDOUT, -ECANCELED, -EHOSTUNREACH (name, connection),
 *           -EKEYREJECTED (certificate), -EINVAL (URL). What was written by then stays written. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/macro.h"
#include <stdbool.h>
#include <stdint.h>

struct http_get {
    /* http or https, without user and password; at most 5 redirects, never from https to
     * http */
    const char *url;
    const char *ca_file; /* PEM; NULL: the system's authorities */
    int fd;              /* where the body goes, at its position; used when buf == NULL */
    struct buf *buf;
    uint64_t max_size;   /* bytes; 0 = no limit but the buffer's */
    uint64_t timeout_ns; /* for all of it; 0 = none */
    uint64_t stall_ns;   /* without progress worth the name; 0 = 30 s; whole seconds */
    /* Called a few times a second, may be NULL; false cancels. 'total' is 0 while unknown. */
    bool (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};

struct http_got {
    uint64_t size;
    char content_type[128];
};

/* Only an answer of 200 counts as success. 'ret' may be NULL. */
MUST_CHECK int http_get(const struct http_get *get, struct http_got *ret, struct err *err);
