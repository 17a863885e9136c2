/* uri.h — percent-coding as AWS signs it, strict decoding, and fields of queries and forms.
 * Not here: whole URLs (libcurl parses those), HTTP (net/), signatures (aws/sigv4).
 * Threads:  no state.
 * Memory:   encoding appends to a buffer, decoding gives strings in an arena.
 * Errors:   -EINVAL: a '%' without two hex digits; -ENOMEM: past the arena's limit. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"

enum uri_flags {
    URI_PLAIN = 0,
    URI_PLUS_IS_SPACE = 1, /* decode: forms write a space as '+' */
    URI_KEEP_SLASH = 2,    /* encode: '/' stays (paths) */
};

/* Everything but A-Z a-z 0-9 - _ . ~ becomes %XX with upper-case digits. */
void uri_encode(struct str s, enum uri_flags flags, struct buf *out);
/* The result may hold any byte, NUL too. */
MUST_CHECK int uri_decode(struct arena *a, struct str s, enum uri_flags flags, struct str *ret);
/* Takes the next "name=value" of a query or form body off the front of *rest; both are still
 * encoded. A field without '=' has value STR_NONE. Empty fields ("a&&b") are skipped. false at
 * the end. */
bool uri_next_field(struct str *rest, struct str *ret_name, struct str *ret_value);
