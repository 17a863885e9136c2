/* hex.h — bytes as hex digits, both directions.
 * Not here: numbers (base/num.h).
 * Threads:  no state.
 * Memory:   writes to buffers of the caller.
 * Errors:   hex_decode() answers -EINVAL and may have written a part of the bytes. */
#pragma once
#include "base/buf.h"
#include "base/macro.h"

/* Lower case. */
void hex_encode(const void *p, size_t n, struct buf *out);
/* Writes 2 * n digits and a NUL. */
void hex_encode_to(const void *p, size_t n, char *out);
/* Exactly 2 * n digits of either case. */
MUST_CHECK int hex_decode(struct str s, void *out, size_t n);
/* The value of one digit, -1 when it is none. */
int hex_digit(char c);
