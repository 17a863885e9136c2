#include "crypto/aead.h"

#include "base/rand.h"
#include "crypto/aead_int.h"
#include "crypto/secret.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>

static EVP_CIPHER *gcm;
static pthread_once_t gcm_once = PTHREAD_ONCE_INIT;

static void gcm_init(void)
{
    gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    if (!gcm) {
        abort();
    }
}

EVP_CIPHER *aead_gcm(void)
{
    if (pthread_once(&gcm_once, gcm_init)) {
        abort();
    }
    return gcm;
}

static void ctx_freep(EVP_CIPHER_CTX **ctx)
{
    EVP_CIPHER_CTX_free(*ctx);
}

/* A context with key, nonce and associated data in it; NULL when memory is out. */
static EVP_CIPHER_CTX *begin(const uint8_t *key, const uint8_t *nonce, struct str aad,
                             int is_seal)
{
    EVP_CIPHER *cipher = aead_gcm();
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    if (!ctx) {
        return NULL;
    }
    int n = 0;
    if (EVP_CipherInit_ex2(ctx, cipher, key, nonce, is_seal, NULL) != 1 ||
        (aad.n &&
         EVP_CipherUpdate(ctx, NULL, &n, (const unsigned char *)aad.p, (int)aad.n) != 1)) {
        EVP_CIPHER_CTX_free(ctx);
        return NULL;
    }
    return ctx;
}

int aead_seal(const uint8_t key[AEAD_KEY_SIZE], const uint8_t nonce[AEAD_NONCE_SIZE],
              struct str aad, struct str plain, uint8_t *out)
{
    if (plain.n > AEAD_MAX || aad.n > AEAD_MAX) {
        return -EINVAL;
    }
    AUTO(ctx_freep) EVP_CIPHER_CTX *ctx = begin(key, nonce, aad, 1);
    int n = 0, tail = 0;
    if (!ctx ||
        (plain.n &&
         EVP_CipherUpdate(ctx, out, &n, (const unsigned char *)plain.p, (int)plain.n) != 1) ||
        EVP_CipherFinal_ex(ctx, out + n, &tail) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_SIZE, out + plain.n) != 1) {
        return -ENOMEM;
    }
    return 0;
}

int aead_open(const uint8_t key[AEAD_KEY_SIZE], const uint8_t nonce[AEAD_NONCE_SIZE],
              struct str aad, struct str sealed, uint8_t *out)
{
    if (sealed.n < AEAD_TAG_SIZE || sealed.n - AEAD_TAG_SIZE > AEAD_MAX || aad.n > AEAD_MAX) {
        return -EINVAL;
    }
    size_t text_n = sealed.n - AEAD_TAG_SIZE;
    uint8_t tag[AEAD_TAG_SIZE];
    memcpy(tag, sealed.p + text_n, sizeof(tag));
    AUTO(ctx_freep) EVP_CIPHER_CTX *ctx = begin(key, nonce, aad, 0);
    int n = 0, tail = 0;
    if (!ctx || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_SIZE, tag) != 1 ||
        (text_n &&
         EVP_CipherUpdate(ctx, out, &n, (const unsigned char *)sealed.p, (int)text_n) != 1)) {
        secret_wipe(out, text_n);
        return -ENOMEM;
    }
    if (EVP_CipherFinal_ex(ctx, out + n, &tail) != 1) {
        secret_wipe(out, text_n);
        return -EBADMSG;
    }
    return 0;
}

int aead_box_seal(const uint8_t key[AEAD_KEY_SIZE], struct str aad, struct str plain,
                  struct buf *out)
{
    if (plain.n > AEAD_MAX) {
        return -EINVAL;
    }
    uint8_t *p = (uint8_t *)buf_reserve(out, plain.n + AEAD_BOX_EXTRA);
    if (!p) {
        return -ENOMEM;
    }
    rand_bytes(p, AEAD_NONCE_SIZE);
    int r = aead_seal(key, p, aad, plain, p + AEAD_NONCE_SIZE);
    if (r == 0) {
        buf_commit(out, plain.n + AEAD_BOX_EXTRA);
    }
    return r;
}

int aead_box_open(const uint8_t key[AEAD_KEY_SIZE], struct str aad, struct str box,
                  struct buf *out)
{
    if (box.n < AEAD_BOX_EXTRA) {
        return -EINVAL;
    }
    uint8_t *p = (uint8_t *)buf_reserve(out, box.n - AEAD_BOX_EXTRA);
    if (!p) {
        return -ENOMEM;
    }
    int r = aead_open(key, (const uint8_t *)box.p, aad, str_skip(box, AEAD_NONCE_SIZE), p);
    if (r == 0) {
        buf_commit(out, box.n - AEAD_BOX_EXTRA);
    }
    return r;
}
