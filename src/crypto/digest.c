#include "crypto/digest.h"

#include "crypto/secret.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Fetched once: a fetch takes locks and costs more than hashing a short string. */
static struct {
    EVP_MD *md[DIGEST_ALG_N];
    pthread_key_t
        ctx; /* an EVP_MD_CTX of each thread: making one costs more than a short hash */
} lib;
static pthread_once_t lib_once = PTHREAD_ONCE_INIT;

static const struct {
    const char *name;
    size_t size;
} algs[DIGEST_ALG_N] = {
    [DIGEST_SHA256] = {"SHA2-256", SHA256_SIZE},
    [DIGEST_SHA1] = {"SHA1", SHA1_SIZE},
    [DIGEST_MD5] = {"MD5", MD5_SIZE},
};

#define SHA256_BLOCK 64

struct digest {
    EVP_MD_CTX *ctx;
    enum digest_alg alg;
};

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void free_ctx(void *ctx)
{
    EVP_MD_CTX_free(ctx);
}

static void lib_init(void)
{
    for (int i = 0; i < DIGEST_ALG_N; i++) {
        lib.md[i] = EVP_MD_fetch(NULL, algs[i].name, NULL);
        must(lib.md[i] != NULL);
    }
    must(pthread_key_create(&lib.ctx, free_ctx) == 0);
}

static EVP_MD_CTX *thread_ctx(void)
{
    must(pthread_once(&lib_once, lib_init) == 0);
    EVP_MD_CTX *ctx = pthread_getspecific(lib.ctx);
    if (!ctx) {
        ctx = EVP_MD_CTX_new();
        must(ctx && pthread_setspecific(lib.ctx, ctx) == 0);
    }
    return ctx;
}

static void start(struct digest *d)
{
    must(EVP_DigestInit_ex2(d->ctx, lib.md[d->alg], NULL) == 1);
}

size_t digest_size(enum digest_alg alg)
{
    return algs[alg].size;
}

static void digest_one(enum digest_alg alg, struct str data, uint8_t *out)
{
    EVP_MD_CTX *ctx = thread_ctx();
    must(EVP_DigestInit_ex2(ctx, lib.md[alg], NULL) == 1);
    must(data.n == 0 || EVP_DigestUpdate(ctx, data.p, data.n) == 1);
    must(EVP_DigestFinal_ex(ctx, out, NULL) == 1);
}

void sha256(struct str data, uint8_t out[SHA256_SIZE])
{
    digest_one(DIGEST_SHA256, data, out);
}

void sha1(struct str data, uint8_t out[SHA1_SIZE])
{
    digest_one(DIGEST_SHA1, data, out);
}

void md5(struct str data, uint8_t out[MD5_SIZE])
{
    digest_one(DIGEST_MD5, data, out);
}

struct digest *digest_new(enum digest_alg alg)
{
    must(pthread_once(&lib_once, lib_init) == 0);
    struct digest *d = malloc(sizeof(*d));
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!d || !ctx) {
        abort();
    }
    *d = (struct digest){ctx, alg};
    start(d);
    return d;
}

void digest_free(struct digest *d)
{
    if (d) {
        EVP_MD_CTX_free(d->ctx);
        free(d);
    }
}

void digest_add(struct digest *d, struct str data)
{
    if (data.n) {
        must(EVP_DigestUpdate(d->ctx, data.p, data.n) == 1);
    }
}

void digest_end(struct digest *d, uint8_t *out)
{
    must(EVP_DigestFinal_ex(d->ctx, out, NULL) == 1);
    start(d);
}

/* RFC 2104, one half: H(key ^ pad, parts). */
static void hmac_half(EVP_MD_CTX *ctx, const uint8_t key[SHA256_BLOCK], uint8_t pad,
                      const struct str *parts, size_t n_parts, uint8_t out[SHA256_SIZE])
{
    uint8_t block[SHA256_BLOCK];
    for (size_t i = 0; i < sizeof(block); i++) {
        block[i] = key[i] ^ pad;
    }
    must(EVP_DigestInit_ex2(ctx, lib.md[DIGEST_SHA256], NULL) == 1);
    must(EVP_DigestUpdate(ctx, block, sizeof(block)) == 1);
    secret_wipe(block, sizeof(block));
    for (size_t i = 0; i < n_parts; i++) {
        must(parts[i].n == 0 || EVP_DigestUpdate(ctx, parts[i].p, parts[i].n) == 1);
    }
    must(EVP_DigestFinal_ex(ctx, out, NULL) == 1);
}

void hmac_sha256_parts(struct str key, const struct str *parts, size_t n_parts,
                       uint8_t out[SHA256_SIZE])
{
    EVP_MD_CTX *ctx = thread_ctx();
    uint8_t block[SHA256_BLOCK] = {0}, inner[SHA256_SIZE];
    if (key.n > sizeof(block)) {
        digest_one(DIGEST_SHA256, key, block);
    } else if (key.n) {
        memcpy(block, key.p, key.n);
    }
    hmac_half(ctx, block, 0x36, parts, n_parts, inner);
    const struct str last = str_n((const char *)inner, sizeof(inner));
    hmac_half(ctx, block, 0x5c, &last, 1, out);
    secret_wipe(block, sizeof(block));
    secret_wipe(inner, sizeof(inner));
    must(EVP_MD_CTX_reset(ctx) == 1); /* wipes what the key left in it */
}

void hmac_sha256(struct str key, struct str data, uint8_t out[SHA256_SIZE])
{
    hmac_sha256_parts(key, &data, 1, out);
}

void digest_hex(const uint8_t *p, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[p[i] >> 4];
        *out++ = digits[p[i] & 15];
    }
    *out = '\0';
}

void digest_hex_colons(const uint8_t *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        digest_hex(p + i, 1, out + 3 * i);
        if (i + 1 < n) {
            out[3 * i + 2] = ':';
        }
    }
}
