#include "crypto/x509.h"

#include "base/file.h"
#include "base/rand.h"
#include "base/time.h"
#include "crypto/crypto_int.h"
#include "crypto/digest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_PEM  (256u * 1024)
#define MAX_DAYS 36500u
#define CLOCK_SLACK \
    300 /* seconds: a client whose clock is a little behind still likes a fresh certificate */

DEFINE_CLEANUP(X509_EXTENSION *, X509_EXTENSION_free);
DEFINE_CLEANUP(GENERAL_NAMES *, GENERAL_NAMES_free);
DEFINE_CLEANUP(X509_STORE *, X509_STORE_free);
DEFINE_CLEANUP(X509_STORE_CTX *, X509_STORE_CTX_free);

void x509_pair_done(struct x509_pair *p)
{
    free(p->cert_pem);
    p->cert_pem = NULL;
    secret_done(&p->key_pem);
}

static X509 *read_cert(struct str pem)
{
    if (pem.n > MAX_PEM) {
        return NULL;
    }
    AUTO(BIO_free_allp) BIO *b = BIO_new_mem_buf(pem.p ? pem.p : "", (int)pem.n);
    return b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
}

/* ---- making ---- */

static int add_ext(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    AUTO(X509_EXTENSION_freep) X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    return e && X509_add_ext(cert, e, -1) == 1 ? 0 : -EINVAL;
}

/* RFC 5280 §4.1.2.2: positive, at most 20 bytes, not to be guessed. */
static int set_serial(X509 *cert)
{
    unsigned char raw[16];
    rand_bytes(raw, sizeof(raw));
    raw[0] = (unsigned char)((raw[0] & 0x7f) | 0x40);
    BIGNUM *n = BN_bin2bn(raw, sizeof(raw), NULL);
    int r = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert)) ? 0 : -ENOMEM;
    BN_free(n);
    return r;
}

static int set_name(X509_NAME *name, struct str common_name)
{
    static const unsigned char org[] = "Spinifex";
    /* 64 characters at most (X.520 ub-common-name). Clients look at the alternative names only.
     */
    int n = (int)MIN(common_name.n, (size_t)64);
    return X509_NAME_add_entry_by_NID(name, NID_organizationName, MBSTRING_UTF8, org,
                                      sizeof(org) - 1, -1, 0) == 1 &&
                   X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8,
                                              (const unsigned char *)common_name.p, n, -1,
                                              0) == 1
               ? 0
               : -EINVAL;
}

/* What authority and server certificates have in common. 'ca' NULL: self-signed. */
static X509 *new_cert(EVP_PKEY *key, X509 *ca, struct str common_name, unsigned days)
{
    AUTO(X509_freep) X509 *cert = X509_new();
    if (!cert || X509_set_version(cert, X509_VERSION_3) != 1 || set_serial(cert) < 0 ||
        set_name(X509_get_subject_name(cert), common_name) < 0 ||
        X509_set_issuer_name(cert, X509_get_subject_name(ca ? ca : cert)) != 1 ||
        X509_set_pubkey(cert, key) != 1 ||
        !X509_gmtime_adj(X509_getm_notBefore(cert), -CLOCK_SLACK) ||
        !X509_gmtime_adj(X509_getm_notAfter(cert), (long)days * 86400)) {
        return NULL;
    }
    if (ca && ASN1_TIME_compare(X509_get0_notAfter(cert), X509_get0_notAfter(ca)) > 0 &&
        X509_set1_notAfter(cert, X509_get0_notAfter(ca)) != 1) {
        return NULL;
    }
    return steal(&cert);
}

static int give(X509 *cert, EVP_PKEY *key, struct x509_pair *ret, struct err *err)
{
    AUTO(BIO_free_allp) BIO *c = BIO_new(BIO_s_mem());
    AUTO(BIO_free_allp) BIO *k = BIO_new(BIO_s_secmem()); /* wiped when freed */
    if (!c || !k || PEM_write_bio_X509(c, cert) != 1 ||
        PEM_write_bio_PKCS8PrivateKey(k, key, NULL, NULL, 0, NULL, NULL) != 1) {
        return crypto_fail(err, -ENOMEM, "BadCertificate", "writing a certificate");
    }
    struct str text = crypto_bio_str(c);
    struct x509_pair p = {.cert_pem = strndup(text.p, text.n)};
    if (!p.cert_pem || secret_set(&p.key_pem, crypto_bio_str(k)) < 0) {
        x509_pair_done(&p);
        return fail(err, -ENOMEM, "BadCertificate", "out of memory");
    }
    *ret = p;
    return 0;
}

static int check_args(struct str common_name, unsigned days, struct err *err)
{
    if (common_name.n == 0 || days == 0 || days > MAX_DAYS) {
        return fail(err, -EINVAL, "BadName", "a certificate needs a name and 1 to %u days",
                    MAX_DAYS);
    }
    return 0;
}

int x509_make_ca(struct str common_name, unsigned days, struct x509_pair *ret, struct err *err)
{
    int r = check_args(common_name, days, err);
    if (r < 0) {
        return r;
    }
    AUTO(EVP_PKEY_freep) EVP_PKEY *key = EVP_EC_gen("P-256");
    AUTO(X509_freep) X509 *cert = key ? new_cert(key, NULL, common_name, days) : NULL;
    if (!cert || add_ext(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") < 0 ||
        add_ext(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") < 0 ||
        add_ext(cert, cert, NID_subject_key_identifier, "hash") < 0 ||
        X509_sign(cert, key, EVP_sha256()) <= 0) {
        return crypto_fail(err, -EINVAL, "BadCertificate", "making an authority");
    }
    return give(cert, key, ret, err);
}

/* RFC 1123 host names, with "*." in front allowed. */
static bool is_dns_name(struct str s)
{
    if (str_has_prefixc(s, "*.")) {
        s = str_skip(s, 2);
    }
    if (s.n == 0 || s.n > 253) {
        return false;
    }
    struct str label = STR_NONE;
    bool is_number =
        str_find(s, '.', 0) >= 0; /* digits and dots alone are an address mistyped */
    while (str_next(&s, '.', &label)) {
        if (label.n == 0 || label.n > 63 || label.p[0] == '-' || label.p[label.n - 1] == '-') {
            return false;
        }
        for (size_t i = 0; i < label.n; i++) {
            unsigned char c = (unsigned char)label.p[i];
            if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-' || c == '_')) {
                return false;
            }
            is_number = is_number && c >= '0' && c <= '9';
        }
    }
    return !is_number;
}

/* The bytes of an address: 4, 16, or 0 when it is not one. */
static int parse_ip(struct str s, unsigned char out[16])
{
    char text[64];
    if (s.n >= sizeof(text)) {
        return 0;
    }
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    return inet_pton(AF_INET, text, out) == 1    ? 4
           : inet_pton(AF_INET6, text, out) == 1 ? 16
                                                 : 0;
}

static int add_alt_name(GENERAL_NAMES *list, struct str name, struct err *err)
{
    unsigned char ip[16];
    int ip_n = parse_ip(name, ip);
    if (!ip_n && !is_dns_name(name)) {
        return fail(err, -EINVAL, "BadName", "\"%.*s\" is neither a DNS name nor an IP address",
                    STR_ARG(name));
    }
    GENERAL_NAME *g = GENERAL_NAME_new();
    ASN1_STRING *v = ip_n ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
    if (!g || !v ||
        ASN1_STRING_set(v, ip_n ? (const void *)ip : name.p, ip_n ? ip_n : (int)name.n) != 1) {
        GENERAL_NAME_free(g);
        ASN1_STRING_free(v);
        return fail(err, -ENOMEM, "BadName", "out of memory");
    }
    GENERAL_NAME_set0_value(g, ip_n ? GEN_IPADD : GEN_DNS, v); /* takes v */
    if (sk_GENERAL_NAME_push(list, g) <= 0) {
        GENERAL_NAME_free(g);
        return fail(err, -ENOMEM, "BadName", "out of memory");
    }
    return 0;
}

static int add_alt_names(X509 *cert, const struct str *names, size_t n_names, struct err *err)
{
    AUTO(GENERAL_NAMES_freep) GENERAL_NAMES *list = GENERAL_NAMES_new();
    if (!list) {
        return fail(err, -ENOMEM, "BadName", "out of memory");
    }
    for (size_t i = 0; i < n_names; i++) {
        int r = add_alt_name(list, names[i], err);
        if (r < 0) {
            return r;
        }
    }
    return X509_add1_ext_i2d(cert, NID_subject_alt_name, list, 0, 0) == 1
               ? 0
               : crypto_fail(err, -ENOMEM, "BadName", "alternative names");
}

int x509_issue(const struct x509_pair *ca, const struct str *names, size_t n_names,
               unsigned days, struct x509_pair *ret, struct err *err)
{
    if (n_names == 0 || n_names > X509_MAX_NAMES) {
        return fail(err, -EINVAL, "BadName", "a server certificate needs 1 to %d names",
                    X509_MAX_NAMES);
    }
    int r = check_args(names[0], days, err);
    if (r < 0) {
        return r;
    }
    AUTO(X509_freep) X509 *ca_cert = read_cert(str_c(ca->cert_pem));
    AUTO(EVP_PKEY_freep) EVP_PKEY *ca_key = crypto_read_key(secret_str(&ca->key_pem));
    if (!ca_cert || !ca_key || X509_check_private_key(ca_cert, ca_key) != 1) {
        return crypto_fail(err, -EINVAL, "BadCertificate",
                           "the authority's certificate and key");
    }
    AUTO(EVP_PKEY_freep) EVP_PKEY *key = EVP_EC_gen("P-256");
    AUTO(X509_freep) X509 *cert = key ? new_cert(key, ca_cert, names[0], days) : NULL;
    if (!cert) {
        return crypto_fail(err, -EINVAL, "BadCertificate", "making a certificate");
    }
    r = add_alt_names(cert, names, n_names, err);
    if (r < 0) {
        return r;
    }
    if (add_ext(cert, ca_cert, NID_basic_constraints, "critical,CA:FALSE") < 0 ||
        add_ext(cert, ca_cert, NID_key_usage, "critical,digitalSignature") < 0 ||
        add_ext(cert, ca_cert, NID_ext_key_usage, "serverAuth") < 0 ||
        add_ext(cert, ca_cert, NID_subject_key_identifier, "hash") < 0 ||
        add_ext(cert, ca_cert, NID_authority_key_identifier, "keyid:always") < 0 ||
        X509_sign(cert, ca_key, EVP_sha256()) <= 0) {
        return crypto_fail(err, -EINVAL, "BadCertificate", "signing a certificate");
    }
    return give(cert, key, ret, err);
}

/* ---- reading ---- */

static uint64_t to_ns(const ASN1_TIME *t)
{
    struct tm tm = {0};
    if (ASN1_TIME_to_tm(t, &tm) != 1) {
        return 0;
    }
    time_t v = timegm(&tm);
    return v > 0 ? (uint64_t)v * NS_PER_S : 0;
}

int x509_read(struct str cert_pem, struct x509_info *ret, struct err *err)
{
    AUTO(X509_freep) X509 *cert = read_cert(cert_pem);
    unsigned char hash[SHA256_SIZE];
    unsigned n = 0;
    if (!cert || X509_digest(cert, EVP_sha256(), hash, &n) != 1 || n != sizeof(hash)) {
        return crypto_fail(err, -EINVAL, "BadCertificate", "not a certificate");
    }
    *ret = (struct x509_info){
        .not_before_ns = to_ns(X509_get0_notBefore(cert)),
        .not_after_ns = to_ns(X509_get0_notAfter(cert)),
        .is_ca = X509_check_ca(cert) == 1,
    };
    digest_hex_colons(hash, sizeof(hash), ret->fingerprint);
    return 0;
}

static int check_chain(X509 *cert, X509 *ca, uint64_t at_ns, struct err *err)
{
    AUTO(X509_STORE_freep) X509_STORE *store = X509_STORE_new();
    AUTO(X509_STORE_CTX_freep) X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    if (!store || !ctx || X509_STORE_add_cert(store, ca) != 1 ||
        X509_STORE_CTX_init(ctx, store, cert, NULL) != 1) {
        return crypto_fail(err, -ENOMEM, "BadCertificate", "checking a certificate");
    }
    X509_STORE_CTX_set_time(ctx, 0, (time_t)(at_ns / NS_PER_S));
    X509_STORE_CTX_set_purpose(ctx, X509_PURPOSE_SSL_SERVER);
    if (X509_verify_cert(ctx) != 1) {
        int e = X509_STORE_CTX_get_error(ctx);
        return fail(err, -EINVAL, "BadCertificate", "%s", X509_verify_cert_error_string(e));
    }
    return 0;
}

static bool covers(X509 *cert, struct str name)
{
    unsigned char ip[16];
    int ip_n = parse_ip(name, ip);
    if (ip_n) {
        return X509_check_ip(cert, ip, (size_t)ip_n, 0) == 1;
    }
    char host[256];
    if (!str_has_prefixc(name, "*.")) {
        return X509_check_host(cert, name.p, name.n, 0, NULL) == 1;
    }
    /* A wildcard is there when any one name below it is covered. */
    if (name.n >= sizeof(host)) {
        return false;
    }
    memcpy(host, name.p, name.n);
    host[0] = 'w';
    return X509_check_host(cert, host, name.n, 0, NULL) == 1;
}

static int check_names(X509 *cert, const struct str *names, size_t n_names, struct err *err)
{
    for (size_t i = 0; i < n_names; i++) {
        if (!covers(cert, names[i])) {
            return fail(err, -EINVAL, "BadCertificate", "it does not cover %.*s",
                        STR_ARG(names[i]));
        }
    }
    return 0;
}

int x509_check(struct str cert_pem, struct str key_pem, struct str ca_pem,
               const struct str *names, size_t n_names, uint64_t at_ns, struct err *err)
{
    AUTO(X509_freep) X509 *cert = read_cert(cert_pem);
    AUTO(X509_freep) X509 *ca = read_cert(ca_pem);
    if (!cert || !ca) {
        return crypto_fail(err, -EINVAL, "BadCertificate", "not a certificate");
    }
    if (str_is_set(key_pem)) {
        AUTO(EVP_PKEY_freep) EVP_PKEY *key = crypto_read_key(key_pem);
        if (!key || X509_check_private_key(cert, key) != 1) {
            return crypto_fail(err, -EINVAL, "BadCertificate", "the key does not belong to it");
        }
    }
    int r = check_chain(cert, ca, at_ns, err);
    return r < 0 ? r : check_names(cert, names, n_names, err);
}

/* ---- files ---- */

int x509_save(const struct x509_pair *p, const char *cert_path, const char *key_path,
              struct err *err)
{
    int r = file_write_atomic(key_path, secret_str(&p->key_pem), 0600, err);
    return r < 0 ? r : file_write_atomic(cert_path, str_c(p->cert_pem), 0644, err);
}

int x509_load(const char *cert_path, const char *key_path, struct x509_pair *ret,
              struct err *err)
{
    AUTO_FREE char *cert = NULL, *key = NULL;
    size_t cert_n = 0, key_n = 0;
    int r = file_read(cert_path, MAX_PEM, &cert, &cert_n, err);
    if (r == 0) {
        r = file_read(key_path, SECRET_MAX, &key, &key_n, err);
    }
    struct x509_pair p = {0};
    if (r == 0) {
        r = secret_set(&p.key_pem, str_n(key, key_n));
        secret_wipe(key, key_n);
    }
    if (r < 0) {
        return fail(err, r, "BadCertificate", "%s", cert_path);
    }
    AUTO(X509_freep) X509 *c = read_cert(str_n(cert, cert_n));
    AUTO(EVP_PKEY_freep) EVP_PKEY *k = crypto_read_key(secret_str(&p.key_pem));
    if (!c || !k || X509_check_private_key(c, k) != 1) {
        secret_done(&p.key_pem);
        return crypto_fail(err, -EINVAL, "BadCertificate",
                           "the certificate and its key do not fit");
    }
    p.cert_pem = steal(&cert);
    *ret = p;
    return 0;
}
