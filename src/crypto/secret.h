/* secret.h — bytes that must not be seen: wiped when they go, and no log formatter takes them.
 * Not here: where secrets come from (keys/), encryption (aead.h).
 * Threads:  a struct secret belongs to its owner.
 * Memory:   secret_set() and friends give; secret_done() wipes and frees. A copy of the struct
 *           does not own.
 * Errors:   -ENOMEM past SECRET_MAX; the old value is untouched then. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define SECRET_MAX 65536

struct secret {
    uint8_t *secret_p_; /* reach it by secret_str() only, so that every look is easy to find */
    size_t secret_n_;
};

#define SECRET_INIT       \
    {                     \
        .secret_p_ = NULL \
    }

/* Copies 'bytes' in, in place of the old value. A NUL follows the last byte. */
MUST_CHECK int secret_set(struct secret *s, struct str bytes);
/* Fresh random bytes. */
MUST_CHECK int secret_random(struct secret *s, size_t n);
void secret_done(struct secret *s);
#define AUTO_SECRET AUTO(secret_done) struct secret

bool secret_is_set(const struct secret *s);
/* The bytes, borrowed until the secret changes. For cryptography and for the one answer that
 * shows them. */
struct str secret_str(const struct secret *s);
bool secret_eq(const struct secret *s, struct str other); /* time depends on the lengths only */

/* Overwrites memory in a way the compiler keeps. */
void secret_wipe(void *p, size_t n);
