/* crypto_int.h — OpenSSL's objects with scope-bound cleanup, and its errors as ours; inside the
 * room only.
 * Not here: anything for other rooms.
 * Threads:  no state.
 * Memory:   AUTO(x_freep) as in base/macro.h.
 * Errors:   crypto_fail() empties OpenSSL's error queue. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "crypto/secret.h"
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

DEFINE_CLEANUP(EVP_PKEY *, EVP_PKEY_free);
DEFINE_CLEANUP(EVP_PKEY_CTX *, EVP_PKEY_CTX_free);
DEFINE_CLEANUP(X509 *, X509_free);
DEFINE_CLEANUP(BIO *, BIO_free_all);

/* fail() with the reason of the library's first error at the end of the message. */
int crypto_fail(struct err *err, int code, const char *name, const char *what);
/* What was written to a memory BIO; borrowed from it. */
struct str crypto_bio_str(BIO *b);
/* A key from PEM without asking for a pass phrase at the terminal. */
EVP_PKEY *crypto_read_key(struct str pem);
