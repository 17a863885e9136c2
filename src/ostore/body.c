#include "ostore/body.h"

#include "base/bytes.h"
#include "base/rand.h"
#include "crypto/aead.h"
#include "crypto/crc.h"
#include "crypto/secret.h"
#include "ostore/body_int.h"

#include <assert.h>
#include <errno.h>

_Static_assert(BODY_TRAILER == AEAD_TAG_SIZE, "the tag is the trailer");

int body_codec_new(struct body_codec *c, const struct body_keys *keys, struct arena *a,
                   struct orec_body *b, struct err *err)
{
    struct {
        uint8_t id[OREC_ID_SIZE], key[BODY_KEY_SIZE];
    } drawn;
    *c = (struct body_codec){.is_sealed = keys != NULL};
    rand_bytes(&drawn, keys ? sizeof(drawn) : OREC_ID_SIZE);
    memcpy(c->id, drawn.id, sizeof(c->id));
    *b =
        (struct orec_body){.is_set = true, .is_sealed = c->is_sealed, .block_size = BODY_BLOCK};
    memcpy(b->id, drawn.id, sizeof(b->id));
    if (!keys) {
        return 0;
    }
    char *wrapped = arena_alloc(a, BODY_WRAPPED_SIZE);
    c->ctx = wrapped ? aead_ctx_new(drawn.key) : NULL;
    int r = c->ctx ? body_keys_wrap(keys, drawn.key, (uint8_t *)wrapped, &b->key_id) : -ENOMEM;
    secret_wipe(&drawn, sizeof(drawn));
    if (r < 0) {
        body_codec_done(c);
        return fail(err, r, "NoMemory", "no memory for the key of a body");
    }
    b->wrapped_key = str_n(wrapped, BODY_WRAPPED_SIZE);
    return 0;
}

int body_codec_open(struct body_codec *c, const struct body_keys *keys,
                    const struct orec_body *b, struct err *err)
{
    *c = (struct body_codec){.is_sealed = b->is_sealed};
    memcpy(c->id, b->id, sizeof(c->id));
    if (b->block_size != BODY_BLOCK) {
        return fail(err, -ENOTSUP, "UnknownRecord", "a body in blocks of %u bytes",
                    (unsigned)b->block_size);
    }
    if (!b->is_sealed) {
        return 0;
    }
    uint8_t key[BODY_KEY_SIZE];
    int r = body_keys_unwrap(keys, b->key_id, b->wrapped_key, key, err);
    if (r < 0) {
        return r;
    }
    c->ctx = aead_ctx_new(key);
    secret_wipe(key, sizeof(key));
    return c->ctx ? 0 : fail(err, -ENOMEM, "NoMemory", "no memory for a cipher");
}

void body_codec_done(struct body_codec *c)
{
    aead_ctx_free(c->ctx);
    *c = (struct body_codec){.ctx = NULL};
}

static uint32_t block_crc(const struct body_codec *c, uint64_t block, const void *p, size_t n)
{
    uint8_t head[OREC_ID_SIZE + 8];
    memcpy(head, c->id, OREC_ID_SIZE);
    put_u64(head + OREC_ID_SIZE, block);
    uint64_t crc = crc_add(CRC_32C, 0, str_n((const char *)head, sizeof(head)));
    return (uint32_t)crc_add(CRC_32C, crc, str_n(p, n));
}

static void block_nonce(uint64_t block, uint8_t nonce[AEAD_NONCE_SIZE])
{
    uint64_t be = htobe64(block);
    memset(nonce, 0, AEAD_NONCE_SIZE);
    memcpy(nonce + AEAD_NONCE_SIZE - sizeof(be), &be, sizeof(be));
}

void body_seal(struct body_codec *c, uint64_t block, const void *plain, size_t n, uint8_t *out)
{
    assert(n <= BODY_PLAIN);
    if (c->is_sealed) {
        uint8_t nonce[AEAD_NONCE_SIZE];
        block_nonce(block, nonce);
        /* It fails when the library is broken only, and half a block must not be stored. */
        if (aead_ctx_seal(c->ctx, nonce, plain, n, out, out + n) < 0) {
            abort();
        }
        return;
    }
    if (out != plain) {
        memcpy(out, plain, n);
    }
    memset(out + n, 0, BODY_TRAILER);
    put_u32(out + n, block_crc(c, block, out, n));
}

int body_open(struct body_codec *c, uint64_t block, const uint8_t *stored, size_t n, void *out)
{
    if (n < BODY_TRAILER || n > BODY_BLOCK) {
        return -EBADMSG;
    }
    n -= BODY_TRAILER;
    if (c->is_sealed) {
        uint8_t nonce[AEAD_NONCE_SIZE];
        block_nonce(block, nonce);
        return aead_ctx_open(c->ctx, nonce, stored, n, stored + n, out);
    }
    static const uint8_t zeros[BODY_TRAILER - 4];
    if (get_u32(stored + n) != block_crc(c, block, stored, n) ||
        memcmp(stored + n + 4, zeros, sizeof(zeros)) != 0) {
        return -EBADMSG;
    }
    if (out != stored) {
        memcpy(out, stored, n);
    }
    return 0;
}
