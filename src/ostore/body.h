/* body.h — blocks: how the bytes of a body are cut, checked and sealed.
 * Not here: where blocks lie (olog.h for small bodies, shard.h for large ones).
 * Format:   docs/formats/object-log.md, "Body". A stored block is BODY_BLOCK bytes, the last
 *           one shorter: the plain bytes, then a trailer of BODY_TRAILER bytes. Sealed:
 *           AES-256-GCM under the body's own key, nonce = number of the block, trailer = tag.
 *           Open: trailer = CRC32C over (body id, number of the block, bytes), 12 zeros.
 * Threads:  a struct body_codec belongs to one thread at a time.
 * Memory:   body_codec_init() + body_codec_done(), which wipes.
 * Errors:   -EBADMSG: the block is not what was written. */
#pragma once
#include "ostore/record.h"

struct aead_ctx;

#define BODY_BLOCK    16384u
#define BODY_TRAILER  16u
#define BODY_PLAIN    (BODY_BLOCK - BODY_TRAILER)
#define BODY_KEY_SIZE 32

static inline uint64_t body_n_blocks(uint64_t size)
{
    return (size + BODY_PLAIN - 1) / BODY_PLAIN;
}
static inline uint64_t body_stored_size(uint64_t size)
{
    return size + body_n_blocks(size) * BODY_TRAILER;
}

/* The keys that wrap body keys: of one store, in a ring, wrapped under the root key
 * (docs/formats/object-keyring.md). Any thread may use them. */
struct body_keys;
struct keys;
struct drives;
/* Reads the key ring (keyring.json on every drive) or makes it when no drive has one. -EACCES
 * "Locked" while 'keys' is locked (or NULL): may be called again. 'drives' and 'keys' are
 * borrowed until body_keys_close(). */
MUST_CHECK int body_keys_open(struct drives *d, struct keys *keys, struct body_keys **ret,
                              struct err *err);
void body_keys_close(struct body_keys *k); /* wipes; NULL is fine */
/* Writes the ring to drives that have none or an older one: after a drive was replaced. */
MUST_CHECK int body_keys_spread(struct body_keys *k, struct err *err);
/* A fresh key for new bodies, durable on all drives before it is used; old ones stay in the
 * ring. */
MUST_CHECK int body_keys_rotate(struct body_keys *k, struct err *err);
uint32_t body_keys_current(const struct body_keys *k); /* id of the key for new bodies */

struct body_codec {
    bool is_sealed;
    uint8_t id[OREC_ID_SIZE];
    struct aead_ctx *ctx; /* keyed once; NULL when not sealed */
};
/* A new body: draws id and key; fills b->is_set, id, is_sealed, block_size, wrapped_key (in the
 * arena), key_id. 'keys' NULL: not sealed. */
MUST_CHECK int body_codec_new(struct body_codec *c, const struct body_keys *keys,
                              struct arena *a, struct orec_body *b, struct err *err);
/* For reading. -EACCES "Locked" when it is sealed and keys is NULL; -ENOKEY "NoBodyKey" when
 * the ring has no such key; -EBADMSG "BadBodyKey". */
MUST_CHECK int body_codec_open(struct body_codec *c, const struct body_keys *keys,
                               const struct orec_body *b, struct err *err);
void body_codec_done(struct body_codec *c);

/* Plain bytes (at most BODY_PLAIN) to a stored block of n + BODY_TRAILER bytes; may be in
 * place. */
void body_seal(struct body_codec *c, uint64_t block, const void *plain, size_t n, uint8_t *out);
/* n: of the stored block. Writes n - BODY_TRAILER bytes; may be in place. */
MUST_CHECK int body_open(struct body_codec *c, uint64_t block, const uint8_t *stored, size_t n,
                         void *out);
