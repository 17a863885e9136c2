#include "crypto/crypto_int.h"

#include <openssl/err.h>
#include <openssl/pem.h>

int crypto_fail(struct err *err, int code, const char *name, const char *what)
{
    unsigned long e = ERR_get_error();
    const char *why = e ? ERR_reason_error_string(e) : NULL;
    ERR_clear_error();
    return fail(err, code, name, "%s%s%s", what, why ? ": " : "", why ? why : "");
}

struct str crypto_bio_str(BIO *b)
{
    char *p = NULL;
    long n = BIO_get_mem_data(b, &p);
    return n > 0 ? str_n(p, (size_t)n) : STR("");
}

/* OpenSSL's own call-back would ask at the terminal of the service. */
static int no_pass_phrase(char *p, int n, int is_write, void *ctx)
{
    return -1;
}

EVP_PKEY *crypto_read_key(struct str pem)
{
    if (pem.n > SECRET_MAX) {
        return NULL;
    }
    AUTO(BIO_free_allp) BIO *b = BIO_new_mem_buf(pem.p ? pem.p : "", (int)pem.n);
    return b ? PEM_read_bio_PrivateKey(b, NULL, no_pass_phrase, NULL) : NULL;
}
