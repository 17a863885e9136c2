/* aead_int.h — the cipher that the files of aead.h share. Inside the room only.
 * Not here: sealing and opening (aead.h).
 * Threads:  any.
 * Memory:   lives as long as the process.
 * Errors:   aborts when the library has no AES-256-GCM. */
#pragma once
#include <openssl/evp.h>

EVP_CIPHER *aead_gcm(void) __attribute__((returns_nonnull));
