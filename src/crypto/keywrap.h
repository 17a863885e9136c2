/* keywrap.h — AES key wrap (RFC 3394): keys of 16 to 64 bytes under a key of 32.
 * Not here: where keys come from (keys/), sealing of anything else (aead.h).
 * Threads:  a struct keywrap may be used from any thread.
 * Memory:   keywrap_new() gives, keywrap_free() takes and wipes.
 * Errors:   -EINVAL for a size that cannot be, -EBADMSG when it was not wrapped under this key
 *           (nothing is given out then).
 *
 * Deterministic and with no nonce: fit for random keys only. */
#pragma once
#include "base/macro.h"
#include <stddef.h>
#include <stdint.h>

#define KEYWRAP_KEY_SIZE 32
#define KEYWRAP_EXTRA    8
#define KEYWRAP_MAX      64

struct keywrap;
struct keywrap *keywrap_new(const uint8_t key[KEYWRAP_KEY_SIZE])
    __attribute__((returns_nonnull));
void keywrap_free(struct keywrap *w); /* NULL is fine */
DEFINE_CLEANUP(struct keywrap *, keywrap_free);

/* n: 16, 24, ... KEYWRAP_MAX. 'out' takes n + KEYWRAP_EXTRA bytes. */
MUST_CHECK int keywrap_wrap(const struct keywrap *w, const uint8_t *plain, size_t n,
                            uint8_t *out);
/* n: of the wrapped text. 'out' takes n - KEYWRAP_EXTRA bytes. */
MUST_CHECK int keywrap_unwrap(const struct keywrap *w, const uint8_t *wrapped, size_t n,
                              uint8_t *out);
