/* digest.h — SHA-256, SHA-1 and MD5, whole or in pieces, and HMAC-SHA-256.
 * Not here: CRCs, password hashing. MD5 and SHA-1 are for formats that ask for them (ETag, key
 *           fingerprints), never for safety.
 * Threads:  no shared state after the first call; a struct digest belongs to one thread at a
 *           time.
 * Memory:   digest_new() gives, digest_free() takes; results go into buffers of the caller.
 * Errors:   none: aborts when the library has no such digest or no memory, for nothing can go
 *           on without. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

enum digest_alg { DIGEST_SHA256, DIGEST_SHA1, DIGEST_MD5, DIGEST_ALG_N };

#define SHA256_SIZE     32
#define SHA1_SIZE       20
#define MD5_SIZE        16
#define DIGEST_MAX_SIZE 32

size_t digest_size(enum digest_alg alg);

void sha256(struct str data, uint8_t out[SHA256_SIZE]);
void sha1(struct str data, uint8_t out[SHA1_SIZE]);
void md5(struct str data, uint8_t out[MD5_SIZE]);

struct digest;
struct digest *digest_new(enum digest_alg alg) __attribute__((returns_nonnull));
void digest_free(struct digest *d); /* NULL is fine */
DEFINE_CLEANUP(struct digest *, digest_free);
void digest_add(struct digest *d, struct str data);
/* Writes digest_size() bytes and starts anew. */
void digest_end(struct digest *d, uint8_t *out);

/* 'out' may be the memory of 'key' (chains as in SigV4). */
void hmac_sha256(struct str key, struct str data, uint8_t out[SHA256_SIZE]);
/* The MAC of several pieces one after the other. */
void hmac_sha256_parts(struct str key, const struct str *parts, size_t n_parts,
                       uint8_t out[SHA256_SIZE]);

/* Lower-case hex: 2 * n characters and a NUL. */
void digest_hex(const uint8_t *p, size_t n, char *out);
/* "aa:bb:cc": 3 * n bytes with the NUL; n > 0. */
void digest_hex_colons(const uint8_t *p, size_t n, char *out);
