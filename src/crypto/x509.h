/* x509.h — the certificate authority of a cluster and the server certificates it issues.
 * Not here: TLS itself (net/tls.h), where the files are and when to renew (spx admin), client
 *           certificates.
 * Threads:  no state.
 * Memory:   results are given to the caller (x509_pair_done()); private keys are struct secret.
 * Errors:   -EINVAL ("BadCertificate", "BadName") with the reason, -ENOMEM. Keys are ECDSA
 *           P-256, signatures SHA-256. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "crypto/secret.h"
#include <stdint.h>

#define X509_MAX_NAMES 256

/* A certificate and its private key, both PEM. */
struct x509_pair {
    char *cert_pem; /* NUL-terminated */
    struct secret key_pem;
};
void x509_pair_done(struct x509_pair *p);

/* A new self-signed authority that may sign server certificates and nothing below. */
MUST_CHECK int x509_make_ca(struct str common_name, unsigned days, struct x509_pair *ret,
                            struct err *err);

/* A server certificate with a new key. 'names' are DNS names (one leading "*." is allowed),
 * IPv4 or IPv6 addresses; the first is the common name too. It never outlives the authority. */
MUST_CHECK int x509_issue(const struct x509_pair *ca, const struct str *names, size_t n_names,
                          unsigned days, struct x509_pair *ret, struct err *err);

struct x509_info {
    uint64_t not_before_ns, not_after_ns; /* wall clock */
    bool is_ca;
    char fingerprint[32 * 3]; /* SHA-256 of the DER form, with colons */
};
/* Of the first certificate in the text. */
MUST_CHECK int x509_read(struct str cert_pem, struct x509_info *ret, struct err *err);
/* 0 when the certificate is signed by 'ca_pem', belongs to the key (STR_NONE: not checked), is
 * valid at 'at_ns' and covers all names; else -EINVAL, and *err says which is missing: the
 * reason to renew. */
MUST_CHECK int x509_check(struct str cert_pem, struct str key_pem, struct str ca_pem,
                          const struct str *names, size_t n_names, uint64_t at_ns,
                          struct err *err);

/* Files: the certificate 0644, the key 0600, each replaced in one step, the key first. */
MUST_CHECK int x509_save(const struct x509_pair *p, const char *cert_path, const char *key_path,
                         struct err *err);
MUST_CHECK int x509_load(const char *cert_path, const char *key_path, struct x509_pair *ret,
                         struct err *err);
