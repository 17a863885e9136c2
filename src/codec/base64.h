/* base64.h — base64 of RFC 4648 section 4, both directions.
 * Not here: the URL alphabet (nobody asks for it yet).
 * Threads:  no state.
 * Memory:   appends to a buffer of the caller, whose limit bounds the work.
 * Errors:   -EINVAL on bytes outside the alphabet, wrong padding or stray bits; -E2BIG when the
 *           buffer is full; nothing is appended on failure. */
#pragma once
#include "base/buf.h"
#include "base/macro.h"

/* Length of the encoded form of n bytes. */
#define BASE64_LEN(n) (((n) + 2) / 3 * 4)

void base64_encode(struct str in, struct buf *out);
/* Strict: padded, no white space. */
MUST_CHECK int base64_decode(struct str in, struct buf *out);
/* As people send it: white space anywhere, padding may be missing. */
MUST_CHECK int base64_decode_lax(struct str in, struct buf *out);
