/* aead.h — AES-256-GCM: seal and open with associated data.
 * Not here: where keys come from (keys/), nonce policy beyond the box form.
 * Threads:  no state; a struct aead_ctx belongs to one thread at a time.
 * Memory:   results go into buffers of the caller; plain text is wiped from scratch memory.
 * Errors:   -EBADMSG when the tag does not match (nothing of the plain text is given out then),
 *           -EINVAL for input that is too short or longer than AEAD_MAX, -ENOMEM. */
#pragma once
#include "base/buf.h"
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

#define AEAD_KEY_SIZE   32
#define AEAD_NONCE_SIZE 12
#define AEAD_TAG_SIZE   16
#define AEAD_MAX        (1u << 30)

/* 'out' takes plain.n + AEAD_TAG_SIZE bytes; it may be the memory of 'plain'. A nonce must
 * never be used twice with one key: both texts and the authentication key are lost then. */
MUST_CHECK int aead_seal(const uint8_t key[AEAD_KEY_SIZE], const uint8_t nonce[AEAD_NONCE_SIZE],
                         struct str aad, struct str plain, uint8_t *out);
/* 'sealed' ends in the tag; 'out' takes sealed.n - AEAD_TAG_SIZE bytes; it may be the memory of
 * 'sealed'. */
MUST_CHECK int aead_open(const uint8_t key[AEAD_KEY_SIZE], const uint8_t nonce[AEAD_NONCE_SIZE],
                         struct str aad, struct str sealed, uint8_t *out);

/* A key that seals or opens many texts: set up once. Contexts are kept for the next key, as
 * making one costs more than sealing 4 KiB. NULL when memory is out. */
struct aead_ctx;
MUST_CHECK struct aead_ctx *aead_ctx_new(const uint8_t key[AEAD_KEY_SIZE]);
void aead_ctx_free(struct aead_ctx *c); /* wipes the key; NULL is fine */
DEFINE_CLEANUP(struct aead_ctx *, aead_ctx_free);
/* As aead_seal() and aead_open(), without associated data. Text and tag apart: a tag may be
 * kept where it suits. 'out' may be 'text'. */
MUST_CHECK int aead_ctx_seal(struct aead_ctx *c, const uint8_t nonce[AEAD_NONCE_SIZE],
                             const uint8_t *text, size_t n, uint8_t *out,
                             uint8_t ret_tag[AEAD_TAG_SIZE]);
MUST_CHECK int aead_ctx_open(struct aead_ctx *c, const uint8_t nonce[AEAD_NONCE_SIZE],
                             const uint8_t *text, size_t n, const uint8_t tag[AEAD_TAG_SIZE],
                             uint8_t *out);

/* The box form: a random nonce, the sealed text and the tag in one piece, appended to 'out'. At
 * most 2^32 boxes per key (NIST SP 800-38D, 8.3). */
#define AEAD_BOX_EXTRA (AEAD_NONCE_SIZE + AEAD_TAG_SIZE)
MUST_CHECK int aead_box_seal(const uint8_t key[AEAD_KEY_SIZE], struct str aad, struct str plain,
                             struct buf *out);
MUST_CHECK int aead_box_open(const uint8_t key[AEAD_KEY_SIZE], struct str aad, struct str box,
                             struct buf *out);
