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
/* Fills all of *ret from a key. */
MUST_CHECK int sshkey_describe(EVP_PKEY *key, enum sshkey_type type, struct str comment,
                               struct sshkey_public *ret);
