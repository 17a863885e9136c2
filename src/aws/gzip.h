/* gzip.h — bodies that a client compressed (Content-Encoding: gzip), inflated up to a limit.
 * Not here: compressing.
 * Threads:  no state.
 * Memory:   appends to a buffer of the caller; its limit is the limit.
 * Errors:   -EINVAL (not gzip, or cut), -E2BIG (larger than the buffer may get). */
#pragma once
#include "base/buf.h"

MUST_CHECK int gzip_inflate(struct str in, struct buf *out);
