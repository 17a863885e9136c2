#include "crypto/aead.h"

#include "crypto/aead_int.h"
#include "crypto/secret.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>

#define KEPT_MAX 64

struct aead_ctx {
    EVP_CIPHER_CTX *evp;
    struct aead_ctx *next; /* while it is kept */
};

static struct {
    pthread_mutex_t lock;
    struct aead_ctx *first;
    unsigned n;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct aead_ctx *make(void)
{
    struct aead_ctx *c = calloc(1, sizeof(*c));
    if (c) {
        c->evp = EVP_CIPHER_CTX_new();
    }
    if (!c || !c->evp || EVP_CipherInit_ex2(c->evp, aead_gcm(), NULL, NULL, 1, NULL) != 1) {
        if (c) {
            EVP_CIPHER_CTX_free(c->evp);
        }
        free(c);
        return NULL;
    }
    return c;
}

struct aead_ctx *aead_ctx_new(const uint8_t key[AEAD_KEY_SIZE])
{
    pthread_mutex_lock(&kept.lock);
    struct aead_ctx *c = kept.first;
    if (c) {
        kept.first = c->next;
        kept.n--;
    }
    pthread_mutex_unlock(&kept.lock);
    c = c ? c : make();
    if (c && EVP_CipherInit_ex2(c->evp, NULL, key, NULL, 1, NULL) != 1) {
        aead_ctx_free(c);
        return NULL;
    }
    return c;
}

void aead_ctx_free(struct aead_ctx *c)
{
    static const uint8_t zeros[AEAD_KEY_SIZE];
    if (!c) {
        return;
    }
    /* Another key in place of this one wipes its schedule and its table. */
    bool is_wiped = EVP_CipherInit_ex2(c->evp, NULL, zeros, zeros, 1, NULL) == 1;
    pthread_mutex_lock(&kept.lock);
    bool is_kept = is_wiped && kept.n < KEPT_MAX;
    if (is_kept) {
        c->next = kept.first;
        kept.first = c;
        kept.n++;
    }
    pthread_mutex_unlock(&kept.lock);
    if (!is_kept) {
        EVP_CIPHER_CTX_free(c->evp);
        free(c);
    }
}

int aead_ctx_seal(struct aead_ctx *c, const uint8_t nonce[AEAD_NONCE_SIZE], const uint8_t *text,
                  size_t n, uint8_t *out, uint8_t ret_tag[AEAD_TAG_SIZE])
{
    if (n > AEAD_MAX) {
        return -EINVAL;
    }
    int done = 0, tail = 0;
    if (EVP_CipherInit_ex2(c->evp, NULL, NULL, nonce, 1, NULL) != 1 ||
        (n && EVP_CipherUpdate(c->evp, out, &done, text, (int)n) != 1) ||
        EVP_CipherFinal_ex(c->evp, out + done, &tail) != 1 ||
        EVP_CIPHER_CTX_ctrl(c->evp, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_SIZE, ret_tag) != 1) {
        return -ENOMEM;
    }
    return 0;
}

int aead_ctx_open(struct aead_ctx *c, const uint8_t nonce[AEAD_NONCE_SIZE], const uint8_t *text,
                  size_t n, const uint8_t tag[AEAD_TAG_SIZE], uint8_t *out)
{
    if (n > AEAD_MAX) {
        return -EINVAL;
    }
    uint8_t want[AEAD_TAG_SIZE];
    memcpy(want, tag, sizeof(want));
    int done = 0, tail = 0;
    if (EVP_CipherInit_ex2(c->evp, NULL, NULL, nonce, 0, NULL) != 1 ||
        EVP_CIPHER_CTX_ctrl(c->evp, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_SIZE, want) != 1 ||
        (n && EVP_CipherUpdate(c->evp, out, &done, text, (int)n) != 1)) {
        secret_wipe(out, n);
        return -ENOMEM;
    }
    if (EVP_CipherFinal_ex(c->evp, out + done, &tail) != 1) {
        secret_wipe(out, n);
        return -EBADMSG;
    }
    return 0;
}
