#include "crypto/keywrap.h"

#include "crypto/secret.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>

/* The library's AES-WRAP costs microseconds per call, because it has to be set up each time;
 * with two plain AES contexts that keep their keys it is two short loops. */
struct keywrap {
    pthread_mutex_t lock; /* of the contexts: AES-ECB keeps a buffer in them */
    EVP_CIPHER_CTX *enc, *dec;
};

static EVP_CIPHER_CTX *ecb(const uint8_t *key, int is_enc)
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    if (!c || EVP_CipherInit_ex(c, EVP_aes_256_ecb(), NULL, key, NULL, is_enc) != 1 ||
        EVP_CIPHER_CTX_set_padding(c, 0) != 1) {
        abort();
    }
    return c;
}

struct keywrap *keywrap_new(const uint8_t key[KEYWRAP_KEY_SIZE])
{
    struct keywrap *w = calloc(1, sizeof(*w));
    if (!w || pthread_mutex_init(&w->lock, NULL) != 0) {
        abort();
    }
    w->enc = ecb(key, 1);
    w->dec = ecb(key, 0);
    return w;
}

void keywrap_free(struct keywrap *w)
{
    if (w) {
        EVP_CIPHER_CTX_free(w->enc); /* wipes */
        EVP_CIPHER_CTX_free(w->dec);
        pthread_mutex_destroy(&w->lock);
        free(w);
    }
}

static void block(EVP_CIPHER_CTX *c, uint8_t b[16])
{
    int n = 0;
    if (EVP_CipherUpdate(c, b, &n, b, 16) != 1 || n != 16) {
        abort();
    }
}

static void xor_step(uint8_t a[8], uint64_t t)
{
    for (unsigned i = 0; i < 8; i++) {
        a[7 - i] = (uint8_t)(a[7 - i] ^ (uint8_t)(t >> (8 * i)));
    }
}

static bool is_size(size_t n)
{
    return n % 8 == 0 && n >= 16 && n <= KEYWRAP_MAX;
}

/* RFC 3394, 2.2.1: 'b' is A followed by the R at hand. */
int keywrap_wrap(const struct keywrap *w, const uint8_t *plain, size_t n, uint8_t *out)
{
    if (!is_size(n)) {
        return -EINVAL;
    }
    struct keywrap *m = NULL;
    memcpy(&m, &w, sizeof(m)); /* its lock and buffers are no part of what it is */
    uint8_t b[16];
    memset(b, 0xa6, 8);
    memmove(out + 8, plain, n);
    pthread_mutex_lock(&m->lock);
    for (uint64_t t = 0; t < 6 * (n / 8); t++) {
        uint8_t *r = out + 8 + 8 * (t % (n / 8));
        memcpy(b + 8, r, 8);
        block(m->enc, b);
        xor_step(b, t + 1);
        memcpy(r, b + 8, 8);
    }
    pthread_mutex_unlock(&m->lock);
    memcpy(out, b, 8);
    secret_wipe(b, sizeof(b));
    return 0;
}

/* RFC 3394, 2.2.2. */
int keywrap_unwrap(const struct keywrap *w, const uint8_t *wrapped, size_t n, uint8_t *out)
{
    if (n < KEYWRAP_EXTRA || !is_size(n - KEYWRAP_EXTRA)) {
        return -EINVAL;
    }
    n -= KEYWRAP_EXTRA;
    struct keywrap *m = NULL;
    memcpy(&m, &w, sizeof(m));
    uint8_t b[16], bad = 0;
    memcpy(b, wrapped, 8);
    memmove(out, wrapped + 8, n);
    pthread_mutex_lock(&m->lock);
    for (uint64_t t = 6 * (n / 8); t > 0; t--) {
        uint8_t *r = out + 8 * ((t - 1) % (n / 8));
        xor_step(b, t);
        memcpy(b + 8, r, 8);
        block(m->dec, b);
        memcpy(r, b + 8, 8);
    }
    pthread_mutex_unlock(&m->lock);
    for (unsigned i = 0; i < 8; i++) {
        bad = (uint8_t)(bad | (b[i] ^ 0xa6));
    }
    secret_wipe(b, sizeof(b));
    if (bad) {
        secret_wipe(out, n);
        return -EBADMSG;
    }
    return 0;
}
