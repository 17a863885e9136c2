#include "crypto/digest.h"
#include "crypto/sshkey_int.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <string.h>

#define PPK_LINE   48                               /* bytes, 64 characters */
#define MAC_KEY    "putty-private-key-file-mac-key" /* with no pass phrase behind it */
#define N_RSA_PART 4

/* RSA: d, p, q and the inverse of q modulo p. ED25519: the seed. */
static int private_blob(EVP_PKEY *key, enum sshkey_type type, struct buf *out)
{
    if (type == SSHKEY_ED25519) {
        unsigned char seed[32];
        size_t n = sizeof(seed);
        if (EVP_PKEY_get_raw_private_key(key, seed, &n) != 1) {
            return -ENOMEM;
        }
        sshkey_put_str(out, str_n((char *)seed, n));
        secret_wipe(seed, sizeof(seed));
        return 0;
    }
    static const char *const parts[N_RSA_PART] = {
        OSSL_PKEY_PARAM_RSA_D, OSSL_PKEY_PARAM_RSA_FACTOR1, OSSL_PKEY_PARAM_RSA_FACTOR2,
        OSSL_PKEY_PARAM_RSA_COEFFICIENT1};
    for (int i = 0; i < N_RSA_PART; i++) {
        BIGNUM *v = NULL;
        if (EVP_PKEY_get_bn_param(key, parts[i], &v) != 1) {
            return -ENOMEM;
        }
        sshkey_put_mpint(out, v);
        BN_clear_free(v);
    }
    return 0;
}

/* HMAC-SHA-1 over everything that the file says, in the wire form. */
static int mac_hex(struct str algorithm, struct str comment, struct str public_,
                   struct str private_, char *ret_hex)
{
    AUTO(sshkey_wipe_buf) struct buf b;
    buf_init(&b, 8192);
    if (!buf_reserve(&b, 4096)) {
        return -ENOMEM;
    }
    sshkey_put_str(&b, algorithm);
    sshkey_put_str(&b, STR("none"));
    sshkey_put_str(&b, comment);
    sshkey_put_str(&b, public_);
    sshkey_put_str(&b, private_);
    unsigned char key[SHA1_SIZE], mac[SHA1_SIZE];
    size_t n = 0;
    sha1(STR(MAC_KEY), key);
    if (!buf_ok(&b) || !EVP_Q_mac(NULL, "HMAC", NULL, "SHA1", NULL, key, sizeof(key),
                                  (const unsigned char *)b.p, b.n, mac, sizeof(mac), &n)) {
        return -ENOMEM;
    }
    digest_hex(mac, sizeof(mac), ret_hex);
    return 0;
}

static void put_lines(struct buf *out, const char *name, struct str raw)
{
    buf_fmt(out, "%s-Lines: %zu\n", name, (raw.n + PPK_LINE - 1) / PPK_LINE);
    while (raw.n) {
        struct str piece = str_n(raw.p, MIN(raw.n, (size_t)PPK_LINE));
        sshkey_base64(out, piece);
        buf_add_char(out, '\n');
        raw = str_skip(raw, piece.n);
    }
}

int sshkey_ppk(EVP_PKEY *key, enum sshkey_type type, struct str comment, struct secret *ret)
{
    struct str algorithm = type == SSHKEY_RSA ? STR("ssh-rsa") : STR("ssh-ed25519");
    AUTO(sshkey_wipe_buf) struct buf private_, text;
    AUTO_BUF public_;
    buf_init(&private_, 4096);
    buf_init(&text, 16384);
    buf_init(&public_, 4096);
    /* Room for all at once: growing would leave copies of the key in freed memory. */
    if (!buf_reserve(&private_, 2048) || !buf_reserve(&text, 8192)) {
        return -ENOMEM;
    }
    char mac[2 * SHA1_SIZE + 1];
    if (sshkey_blob(key, type, &public_) < 0 || private_blob(key, type, &private_) < 0 ||
        mac_hex(algorithm, comment, buf_str(&public_), buf_str(&private_), mac) < 0) {
        return -ENOMEM;
    }
    buf_addc(&text, "PuTTY-User-Key-File-2: ");
    buf_add(&text, algorithm);
    buf_addc(&text, "\nEncryption: none\nComment: ");
    buf_add(&text, comment);
    buf_add_char(&text, '\n');
    put_lines(&text, "Public", buf_str(&public_));
    put_lines(&text, "Private", buf_str(&private_));
    buf_addc(&text, "Private-MAC: ");
    buf_addc(&text, mac);
    buf_add_char(&text, '\n');
    return buf_ok(&text) && buf_ok(&private_) ? secret_set(ret, buf_str(&text)) : -ENOMEM;
}
