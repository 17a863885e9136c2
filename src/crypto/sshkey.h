/* sshkey.h — the key pairs of EC2: made here, or a public key that a user brings.
 * Not here: where keys are stored, EC2's limits on names.
 * Threads:  no state.
 * Memory:   results are given to the caller (sshkey_pair_done(), sshkey_public_done()).
 * Errors:   -EINVAL ("InvalidKey.Format") for a public key that is not one of ours, -ENOMEM. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "crypto/secret.h"

enum sshkey_type { SSHKEY_RSA, SSHKEY_ED25519 };

const char *sshkey_type_name(enum sshkey_type t); /* "rsa", "ed25519": EC2's words */

#define SSHKEY_FINGERPRINT_SIZE 64
#define SSHKEY_MAX_TEXT         16384 /* of a public key that is brought */
#define SSHKEY_RSA_BITS         2048  /* of keys made here, as EC2 makes them */

struct sshkey_public {
    enum sshkey_type type;
    unsigned bits;
    char *line;    /* "ssh-rsa AAAA...", without a comment or line end */
    char *comment; /* what stood behind the key; "" when nothing did */
    /* RSA: MD5 of the public key as DER (SubjectPublicKeyInfo), with colons. ED25519: SHA-256
     * of the OpenSSH blob in base64. */
    char fingerprint[SSHKEY_FINGERPRINT_SIZE];
};
void sshkey_public_done(struct sshkey_public *k);

struct sshkey_pair {
    struct secret private_pem; /* RSA: PKCS#1; ED25519: OpenSSH's format */
    struct secret private_ppk; /* PuTTY's format, version 2, which all its versions read */
    struct sshkey_public public_;
    /* RSA: SHA-1 of the private key as DER (PKCS#8), with colons. ED25519: as of the public
     * key. */
    char fingerprint[SSHKEY_FINGERPRINT_SIZE];
};
void sshkey_pair_done(struct sshkey_pair *p);

MUST_CHECK int sshkey_generate(enum sshkey_type type, struct str comment,
                               struct sshkey_pair *ret, struct err *err);

/* Reads an OpenSSH line, RFC 4716 text, or base64 or PEM of a SubjectPublicKeyInfo. RSA of 1024
 * to 16384 bits, or ED25519. */
MUST_CHECK int sshkey_parse(struct str text, struct sshkey_public *ret, struct err *err);
