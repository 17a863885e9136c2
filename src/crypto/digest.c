#include "crypto/digest.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <pthread.h>
#include <stdlib.h>

/* Fetched once: a fetch takes locks and costs more than hashing a short string. */
static struct {
    EVP_MD *md[DIGEST_ALG_N];
    EVP_MAC_CTX *hmac; /* a template: copied, never used itself */
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

static void lib_init(void)
{
    for (int i = 0; i < DIGEST_ALG_N; i++) {
        lib.md[i] = EVP_MD_fetch(NULL, algs[i].name, NULL);
        must(lib.md[i] != NULL);
    }
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    must(mac != NULL);
    lib.hmac = EVP_MAC_CTX_new(mac);
    EVP_MAC_free(mac);
    char name[] = "SHA2-256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
        OSSL_PARAM_construct_end(),
    };
    must(lib.hmac && EVP_MAC_CTX_set_params(lib.hmac, params));
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
    must(pthread_once(&lib_once, lib_init) == 0);
    must(EVP_Digest(data.p ? data.p : "", data.n, out, NULL, lib.md[alg], NULL) == 1);
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

void hmac_sha256_parts(struct str key, const struct str *parts, size_t n_parts,
                       uint8_t out[SHA256_SIZE])
{
    must(pthread_once(&lib_once, lib_init) == 0);
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_dup(lib.hmac);
    must(ctx != NULL);
    /* A NULL key would mean "the key of before": an empty key needs an address. */
    must(EVP_MAC_init(ctx, (const unsigned char *)(key.p ? key.p : ""), key.n, NULL) == 1);
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].n) {
            must(EVP_MAC_update(ctx, (const unsigned char *)parts[i].p, parts[i].n) == 1);
        }
    }
    size_t n = 0;
    must(EVP_MAC_final(ctx, out, &n, SHA256_SIZE) == 1 && n == SHA256_SIZE);
    EVP_MAC_CTX_free(ctx);
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
