/* sshkey_int.h — what making and reading SSH keys share.
 * Not here: anything for other rooms.
 * Threads:  no state.
 * Memory:   appends to buffers of the caller.
 * Errors:   negative errno. */
#pragma once
#include "base/buf.h"
#include "crypto/crypto_int.h"
#include "crypto/sshkey.h"

MUST_CHECK int sshkey_blob(EVP_PKEY *key, enum sshkey_type type, struct buf *out);
void sshkey_base64(struct buf *out, struct str raw);
/* The wire forms of RFC 4251 §5. */
void sshkey_put_str(struct buf *b, struct str s);
void sshkey_put_mpint(struct buf *b, const BIGNUM *v); /* not negative */
/* For AUTO(): frees a buffer that held a key. */
void sshkey_wipe_buf(struct buf *b);
MUST_CHECK int sshkey_ppk(EVP_PKEY *key, enum sshkey_type type, struct str comment,
                          struct secret *ret);
/* Fills all of *ret from a key. */
MUST_CHECK int sshkey_describe(EVP_PKEY *key, enum sshkey_type type, struct str comment,
                               struct sshkey_public *ret);
