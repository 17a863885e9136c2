#include "crypto/sshkey.h"

#include "base/buf.h"
#include "base/rand.h"
#include "crypto/crypto_int.h"
#include "crypto/digest.h"
#include "crypto/sshkey_int.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdlib.h>
#include <string.h>

#define ED25519_SIZE 32

const char *sshkey_type_name(enum sshkey_type t)
{
    return t == SSHKEY_RSA ? "rsa" : "ed25519";
}

void sshkey_public_done(struct sshkey_public *k)
{
    free(k->line);
    free(k->comment);
    *k = (struct sshkey_public){0};
}

void sshkey_pair_done(struct sshkey_pair *p)
{
    secret_done(&p->private_pem);
    secret_done(&p->private_ppk);
    sshkey_public_done(&p->public_);
}

/* ---- the wire form of RFC 4251 §5 ---- */

static void put_u32(struct buf *b, size_t v)
{
    char raw[4] = {(char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v};
    buf_add(b, str_n(raw, 4));
}

void sshkey_put_str(struct buf *b, struct str s)
{
    put_u32(b, s.n);
    buf_add(b, s);
}

/* A positive number: a zero in front when the top bit is set. */
void sshkey_put_mpint(struct buf *b, const BIGNUM *v)
{
    size_t n = (size_t)BN_num_bytes(v);
    bool is_padded = BN_num_bits(v) % 8 == 0;
    put_u32(b, n + is_padded);
    if (is_padded) {
        buf_add_char(b, '\0');
    }
    unsigned char *p = (unsigned char *)buf_reserve(b, n);
    if (p) {
        BN_bn2bin(v, p);
        buf_commit(b, n);
    }
}

int sshkey_blob(EVP_PKEY *key, enum sshkey_type type, struct buf *out)
{
    if (type == SSHKEY_ED25519) {
        unsigned char pub[ED25519_SIZE];
        size_t n = sizeof(pub);
        if (EVP_PKEY_get_raw_public_key(key, pub, &n) != 1 || n != sizeof(pub)) {
            return -EINVAL;
        }
        sshkey_put_str(out, STR("ssh-ed25519"));
        sshkey_put_str(out, str_n((char *)pub, n));
    } else {
        BIGNUM *n = NULL, *e = NULL;
        if (EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &n) == 1 &&
            EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &e) == 1) {
            sshkey_put_str(out, STR("ssh-rsa"));
            sshkey_put_mpint(out, e);
            sshkey_put_mpint(out, n);
        }
        BN_free(n);
        BN_free(e);
    }
    return buf_ok(out) && out->n ? 0 : -ENOMEM;
}

void sshkey_base64(struct buf *out, struct str raw)
{
    size_t n = 4 * ((raw.n + 2) / 3);
    char *p = buf_reserve(out, n + 1); /* EVP_EncodeBlock writes a NUL */
    if (p) {
        EVP_EncodeBlock((unsigned char *)p, (const unsigned char *)raw.p, (int)raw.n);
        buf_commit(out, n);
    }
}

/* ---- fingerprints ---- */

static int fingerprint_public(EVP_PKEY *key, enum sshkey_type type, struct str blob, char *out)
{
    unsigned char hash[SHA256_SIZE];
    if (type == SSHKEY_ED25519) {
        sha256(blob, hash);
        EVP_EncodeBlock((unsigned char *)out, hash, sizeof(hash)); /* 44 characters and a NUL */
        return 0;
    }
    unsigned char *der = NULL;
    int n = i2d_PUBKEY(key, &der);
    if (n <= 0) {
        return -ENOMEM;
    }
    md5(str_n((char *)der, (size_t)n), hash);
    OPENSSL_free(der);
    digest_hex_colons(hash, MD5_SIZE, out);
    return 0;
}

static int fingerprint_private(EVP_PKEY *key, char *out)
{
    AUTO(BIO_free_allp) BIO *der = BIO_new(BIO_s_secmem());
    if (!der || i2d_PKCS8PrivateKey_bio(der, key, NULL, NULL, 0, NULL, NULL) != 1) {
        return -ENOMEM;
    }
    unsigned char hash[SHA1_SIZE];
    sha1(crypto_bio_str(der), hash);
    digest_hex_colons(hash, sizeof(hash), out);
    return 0;
}

int sshkey_describe(EVP_PKEY *key, enum sshkey_type type, struct str comment,
                    struct sshkey_public *ret)
{
    AUTO_BUF blob, line;
    buf_init(&blob, SSHKEY_MAX_TEXT);
    buf_init(&line, SSHKEY_MAX_TEXT * 2);
    struct sshkey_public k = {.type = type, .bits = (unsigned)EVP_PKEY_get_bits(key)};
    int r = sshkey_blob(key, type, &blob);
    if (r == 0) {
        r = fingerprint_public(key, type, buf_str(&blob), k.fingerprint);
    }
    if (r < 0) {
        return r;
    }
    buf_addc(&line, type == SSHKEY_RSA ? "ssh-rsa " : "ssh-ed25519 ");
    sshkey_base64(&line, buf_str(&blob));
    k.line = buf_take(&line);
    k.comment = strndup(comment.n ? comment.p : "", comment.n);
    if (!k.line || !k.comment) {
        sshkey_public_done(&k);
        return -ENOMEM;
    }
    *ret = k;
    return 0;
}

/* ---- private keys as text ---- */

static int rsa_pem(EVP_PKEY *key, struct secret *ret)
{
    AUTO(BIO_free_allp) BIO *b = BIO_new(BIO_s_secmem());
    if (!b || PEM_write_bio_PrivateKey_traditional(b, key, NULL, NULL, 0, NULL, NULL) != 1) {
        return -ENOMEM;
    }
    return secret_set(ret, crypto_bio_str(b));
}

void sshkey_wipe_buf(struct buf *b)
{
    secret_wipe(b->p, b->cap);
    buf_done(b);
}

/* The part of the file that a pass phrase would encrypt (OpenSSH's PROTOCOL.key). */
static void put_ed25519_secret(struct buf *b, const unsigned char *seed, struct str pub,
                               struct str comment)
{
    char check[4];
    rand_bytes(check, sizeof(check));
    buf_add(b, str_n(check, 4));
    buf_add(b, str_n(check, 4));
    sshkey_put_str(b, STR("ssh-ed25519"));
    sshkey_put_str(b, pub);
    put_u32(b, (size_t)2 * ED25519_SIZE);
    buf_add(b, str_n((const char *)seed, ED25519_SIZE));
    buf_add(b, pub);
    sshkey_put_str(b, comment);
    for (char pad = 1; b->n % 8; pad++) {
        buf_add_char(b, pad);
    }
}

static int openssh_pem(EVP_PKEY *key, struct str comment, struct secret *ret)
{
    unsigned char seed[ED25519_SIZE], pub[ED25519_SIZE];
    size_t seed_n = sizeof(seed), pub_n = sizeof(pub);
    if (EVP_PKEY_get_raw_private_key(key, seed, &seed_n) != 1 ||
        EVP_PKEY_get_raw_public_key(key, pub, &pub_n) != 1) {
        return -ENOMEM;
    }
    AUTO(sshkey_wipe_buf) struct buf inner, all, text;
    buf_init(&inner, 4096);
    buf_init(&all, 8192);
    buf_init(&text, 16384);
    /* Room for all at once: growing would leave copies of the key in freed memory. */
    if (!buf_reserve(&inner, 2048) || !buf_reserve(&all, 4096) || !buf_reserve(&text, 8192)) {
        return -ENOMEM;
    }
    put_ed25519_secret(&inner, seed, str_n((char *)pub, pub_n), comment);
    secret_wipe(seed, sizeof(seed));
    buf_add(&all, str_n("openssh-key-v1", 15)); /* with its NUL */
    sshkey_put_str(&all, STR("none"));          /* cipher */
    sshkey_put_str(&all, STR("none"));          /* key derivation */
    sshkey_put_str(&all, STR(""));
    put_u32(&all, 1);
    size_t at = all.n;
    put_u32(&all, 0);
    if (sshkey_blob(key, SSHKEY_ED25519, &all) < 0) {
        return -ENOMEM;
    }
    all.p[at + 3] = (char)(all.n - at - 4);
    sshkey_put_str(&all, buf_str(&inner));
    buf_addc(&text, "-----BEGIN OPENSSH PRIVATE KEY-----\n");
    struct str rest = buf_str(&all);
    while (rest.n) { /* 51 bytes are 68 characters */
        struct str piece = str_n(rest.p, MIN(rest.n, (size_t)51));
        sshkey_base64(&text, piece);
        buf_add_char(&text, '\n');
        rest = str_skip(rest, piece.n);
    }
    buf_addc(&text, "-----END OPENSSH PRIVATE KEY-----\n");
    return buf_ok(&text) && buf_ok(&all) && buf_ok(&inner) ? secret_set(ret, buf_str(&text))
                                                           : -ENOMEM;
}

/* A line end in the comment would begin a line of its author's in authorized_keys. */
static bool is_one_line(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f) {
            return false;
        }
    }
    return true;
}

int sshkey_generate(enum sshkey_type type, struct str comment, struct sshkey_pair *ret,
                    struct err *err)
{
    if (comment.n > 255 || !is_one_line(comment)) {
        return fail(err, -EINVAL, "InvalidKey.Format",
                    "the comment is too long, or not one line of text");
    }
    AUTO(EVP_PKEY_freep)
    EVP_PKEY *key = type == SSHKEY_RSA ? EVP_RSA_gen(SSHKEY_RSA_BITS)
                                       : EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (!key) {
        return crypto_fail(err, -ENOMEM, "KeyFailed", "making a key");
    }
    struct sshkey_pair p = {.private_pem = SECRET_INIT};
    int r = sshkey_describe(key, type, comment, &p.public_);
    if (r == 0 && type == SSHKEY_RSA) {
        r = rsa_pem(key, &p.private_pem);
        if (r == 0) {
            r = fingerprint_private(key, p.fingerprint);
        }
    } else if (r == 0) {
        r = openssh_pem(key, comment, &p.private_pem);
        memcpy(p.fingerprint, p.public_.fingerprint, sizeof(p.fingerprint));
    }
    if (r == 0) {
        r = sshkey_ppk(key, type, comment, &p.private_ppk);
    }
    if (r < 0) {
        sshkey_pair_done(&p);
        return crypto_fail(err, r, "KeyFailed", "writing a key");
    }
    *ret = p;
    return 0;
}
