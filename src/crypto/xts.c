#include "crypto/xts.h"

#include <endian.h>
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

struct xts {
    EVP_CIPHER_CTX *ctx;
};

int xts_new(const uint8_t key[XTS_KEY_SIZE], bool is_encrypt, struct xts **ret)
{
    /* IEEE 1619 and FIPS 140: equal halves make the tweak useless. */
    uint8_t diff = 0;
    for (size_t i = 0; i < XTS_KEY_SIZE / 2; i++) {
        diff |= (uint8_t)(key[i] ^ key[i + XTS_KEY_SIZE / 2]);
    }
    if (diff == 0) {
        return -EINVAL;
    }
    struct xts *x = calloc(1, sizeof(*x));
    if (!x) {
        return -ENOMEM;
    }
    x->ctx = EVP_CIPHER_CTX_new();
    if (!x->ctx ||
        EVP_CipherInit_ex(x->ctx, EVP_aes_256_xts(), NULL, key, NULL, is_encrypt) != 1) {
        xts_free(x);
        return -ENOMEM;
    }
    *ret = x;
    return 0;
}

void xts_free(struct xts *x)
{
    if (x) {
        EVP_CIPHER_CTX_free(x->ctx); /* wipes the schedules */
        free(x);
    }
}

int xts_run(struct xts *x, uint64_t first, size_t unit, const void *in, void *out, size_t n)
{
    uint8_t tweak[16] = {0};
    for (size_t at = 0; at < n; at += unit, first++) {
        uint64_t le = htole64(first);
        memcpy(tweak, &le, sizeof(le));
        int got = 0;
        if (EVP_CipherInit_ex(x->ctx, NULL, NULL, NULL, tweak, -1) != 1 ||
            EVP_CipherUpdate(x->ctx, (uint8_t *)out + at, &got, (const uint8_t *)in + at,
                             (int)unit) != 1 ||
            got != (int)unit) {
            return -EIO;
        }
    }
    return 0;
}
