#include "crypto/sshkey_int.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/param_build.h>
#include <string.h>

#define MIN_BITS 1024
#define MAX_BITS 16384

DEFINE_CLEANUP(OSSL_PARAM_BLD *, OSSL_PARAM_BLD_free);
DEFINE_CLEANUP(OSSL_PARAM *, OSSL_PARAM_free);
DEFINE_CLEANUP(BIGNUM *, BN_free);

static int bad(struct err *err, const char *why)
{
    return fail(err, -EINVAL, "InvalidKey.Format",
                "Key is not in valid OpenSSH public key format: %s", why);
}

static int base64_value(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Strict base64 with its padding; line ends may stand anywhere, as in RFC 4716. The bits behind
 * the last byte must be zero: one key has one text. */
static int decode(struct str in, struct buf *out)
{
    uint32_t acc = 0;
    unsigned n_bits = 0, n_chars = 0, n_pad = 0;
    for (size_t i = 0; i < in.n; i++) {
        unsigned char c = (unsigned char)in.p[i];
        if (c == '\n' || c == '\r') {
            continue;
        }
        n_chars++;
        if (c == '=') {
            n_pad++;
            continue;
        }
        int v = base64_value(c);
        if (v < 0 || n_pad) {
            return -EINVAL;
        }
        acc = (acc << 6 | (unsigned)v) & 0xffffff;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            buf_add_char(out, (char)(acc >> n_bits));
        }
    }
    bool is_clean = n_chars > 0 && n_chars % 4 == 0 && n_pad <= 2 && n_bits == 2 * n_pad &&
                    (acc & ((1u << n_bits) - 1)) == 0;
    return is_clean && buf_ok(out) ? 0 : -EINVAL;
}

/* ---- the blob ---- */

static bool take_string(struct str *rest, struct str *ret)
{
    if (rest->n < 4) {
        return false;
    }
    const unsigned char *p = (const unsigned char *)rest->p;
    size_t n = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
    if (n > rest->n - 4) {
        return false;
    }
    *ret = str_n(rest->p + 4, n);
    *rest = str_skip(*rest, 4 + n);
    return true;
}

/* A positive number in its only form (RFC 4251 §5). */
static BIGNUM *take_mpint(struct str *rest)
{
    struct str s = STR_NONE;
    if (!take_string(rest, &s) || s.n == 0 || s.n > MAX_BITS / 8 + 1) {
        return NULL;
    }
    const unsigned char *p = (const unsigned char *)s.p;
    bool is_negative = p[0] & 0x80;
    bool is_padded_for_nothing = p[0] == 0 && (s.n == 1 || !(p[1] & 0x80));
    return is_negative || is_padded_for_nothing ? NULL : BN_bin2bn(p, (int)s.n, NULL);
}

static EVP_PKEY *make_rsa(const BIGNUM *n, const BIGNUM *e)
{
    AUTO(OSSL_PARAM_BLD_freep) OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    AUTO(EVP_PKEY_CTX_freep) EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    if (!bld || !ctx || OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_N, n) != 1 ||
        OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_E, e) != 1) {
        return NULL;
    }
    AUTO(OSSL_PARAM_freep) OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(bld);
    EVP_PKEY *key = NULL;
    if (!params || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) != 1) {
        return NULL;
    }
    return key;
}

static int check_rsa(const BIGNUM *n, const BIGNUM *e, struct err *err)
{
    int bits = BN_num_bits(n);
    if (bits < MIN_BITS || bits > MAX_BITS) {
        return bad(err, "an RSA key has 1024 to 16384 bits");
    }
    if (!BN_is_odd(n) || !BN_is_odd(e) || BN_is_one(e) || BN_num_bits(e) > 64) {
        return bad(err, "not an RSA key");
    }
    return 0;
}

static int from_blob(struct str blob, EVP_PKEY **ret, enum sshkey_type *ret_type,
                     struct err *err)
{
    struct str name = STR_NONE, rest = blob;
    if (!take_string(&rest, &name)) {
        return bad(err, "the key is cut short");
    }
    if (str_eqc(name, "ssh-ed25519")) {
        struct str pub = STR_NONE;
        if (!take_string(&rest, &pub) || pub.n != 32 || rest.n) {
            return bad(err, "not an ED25519 key");
        }
        *ret = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, (const unsigned char *)pub.p,
                                           pub.n);
        *ret_type = SSHKEY_ED25519;
        return *ret ? 0 : bad(err, "not an ED25519 key");
    }
    if (!str_eqc(name, "ssh-rsa")) {
        return bad(err, "only RSA and ED25519 keys are supported");
    }
    AUTO(BN_freep) BIGNUM *e = take_mpint(&rest);
    AUTO(BN_freep) BIGNUM *n = e ? take_mpint(&rest) : NULL;
    if (!n || rest.n) {
        return bad(err, "not an RSA key");
    }
    int r = check_rsa(n, e, err);
    if (r < 0) {
        return r;
    }
    *ret = make_rsa(n, e);
    *ret_type = SSHKEY_RSA;
    return *ret ? 0 : bad(err, "not an RSA key");
}

static int from_der(struct str der, EVP_PKEY **ret, enum sshkey_type *ret_type, struct err *err)
{
    const unsigned char *p = (const unsigned char *)der.p;
    AUTO(EVP_PKEY_freep) EVP_PKEY *key = d2i_PUBKEY(NULL, &p, (long)der.n);
    if (!key || p != (const unsigned char *)der.p + der.n) {
        return bad(err, "not a public key");
    }
    if (EVP_PKEY_is_a(key, "ED25519")) {
        *ret_type = SSHKEY_ED25519;
        *ret = steal(&key);
        return 0;
    }
    if (!EVP_PKEY_is_a(key, "RSA")) {
        return bad(err, "only RSA and ED25519 keys are supported");
    }
    BIGNUM *n_raw = NULL, *e_raw = NULL;
    int ok = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &n_raw) == 1 &&
             EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &e_raw) == 1;
    AUTO(BN_freep) BIGNUM *n = n_raw;
    AUTO(BN_freep) BIGNUM *e = e_raw;
    int r = ok ? check_rsa(n, e, err) : bad(err, "not an RSA key");
    if (r == 0) {
        *ret_type = SSHKEY_RSA;
        *ret = steal(&key);
    }
    return r;
}

/* ---- the texts around it ---- */

/* The lines between "-----BEGIN x-----" and "-----END x-----". */
static bool strip_pem(struct str text, struct str *ret)
{
    static const char begin[] = "-----BEGIN PUBLIC KEY-----",
                      end[] = "-----END PUBLIC KEY-----";
    if (!str_has_prefixc(text, begin) || !str_has_suffix(text, str_c(end)) ||
        text.n < sizeof(begin) + sizeof(end)) {
        return false;
    }
    *ret = str_n(text.p + sizeof(begin) - 1, text.n - sizeof(begin) - sizeof(end) + 2);
    return true;
}

/* RFC 4716: markers, headers ("Comment: x", continued by a backslash), base64. */
static bool strip_rfc4716(struct str text, struct str *ret, struct str *ret_comment)
{
    static const char begin[] = "---- BEGIN SSH2 PUBLIC KEY ----",
                      end[] = "---- END SSH2 PUBLIC KEY ----";
    if (!str_has_prefixc(text, begin) || !str_has_suffix(text, str_c(end)) ||
        text.n < sizeof(begin) + sizeof(end)) {
        return false;
    }
    struct str rest =
        str_n(text.p + sizeof(begin) - 1, text.n - sizeof(begin) - sizeof(end) + 2);
    rest = str_trim(rest);
    bool is_continued = false;
    while (rest.n) {
        struct str line = str_cut(rest, '\n');
        ptrdiff_t colon = str_find(line, ':', 0);
        if (colon < 0 && !is_continued) {
            break;
        }
        struct str trimmed = str_trim(line);
        if (colon >= 0 && !is_continued &&
            str_ieq(str_n(line.p, (size_t)colon), STR("Comment"))) {
            *ret_comment = str_trim(str_skip(trimmed, (size_t)colon + 1));
        }
        is_continued = str_has_suffix(trimmed, STR("\\"));
        rest = str_skip(rest, line.n + 1);
    }
    *ret = rest;
    return true;
}

static struct str first_word(struct str s)
{
    return str_cut(str_cut(s, ' '), '\t');
}

/* "ssh-rsa AAAA... comment": one line. */
static bool strip_openssh(struct str text, struct str *ret_name, struct str *ret,
                          struct str *ret_comment)
{
    if (str_find(text, '\n', 0) >= 0) {
        return false;
    }
    struct str name = first_word(text);
    if (name.n == text.n) {
        return false;
    }
    struct str rest = str_trim(str_skip(text, name.n));
    *ret_name = name;
    *ret = first_word(rest);
    *ret_comment = str_trim(str_skip(rest, ret->n));
    return true;
}

static bool is_plain_text(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool is_line_end = c == '\n' || (c == '\r' && i + 1 < s.n && s.p[i + 1] == '\n');
        if ((c < 0x20 && !is_line_end && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return str_utf8_len(s) != SIZE_MAX;
}

int sshkey_parse(struct str text, struct sshkey_public *ret, struct err *err)
{
    text = str_trim(text);
    if (text.n == 0 || text.n > SSHKEY_MAX_TEXT || !is_plain_text(text)) {
        return bad(err, text.n == 0 ? "it is empty" : "it is not text, or too long");
    }
    if (str_find_str(text, STR("PRIVATE KEY")) >= 0) {
        return bad(err, "this is a private key; keep it, and give the .pub file");
    }
    struct str name = STR_NONE, body = text, comment = STR("");
    bool is_blob = strip_rfc4716(text, &body, &comment);
    if (!is_blob && !strip_pem(text, &body)) {
        is_blob = strip_openssh(text, &name, &body, &comment);
    }
    AUTO_BUF raw;
    buf_init(&raw, SSHKEY_MAX_TEXT);
    if (decode(body, &raw) < 0) {
        return bad(err, "bad base64");
    }
    AUTO(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    enum sshkey_type type = SSHKEY_RSA;
    int r = is_blob ? from_blob(buf_str(&raw), &key, &type, err)
                    : from_der(buf_str(&raw), &key, &type, err);
    if (r < 0) {
        return r;
    }
    if (str_is_set(name) && !str_eqc(name, type == SSHKEY_RSA ? "ssh-rsa" : "ssh-ed25519")) {
        return bad(err, "the type in front is not the key's");
    }
    r = sshkey_describe(key, type, comment, ret);
    return r < 0 ? crypto_fail(err, r, "KeyFailed", "reading a key") : 0;
}
