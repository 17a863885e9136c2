/* keys.h — the root key of the cloud and what is wrapped under it: every secret that the store
 *          holds is sealed, so that a copy of the store alone opens nothing.
 * Not here: which secrets there are (model/identity.h), certificates (crypto/x509.h).
 * Threads:  a struct keys may be used from any thread.
 * Memory:   keys_open() gives, keys_close() takes and wipes.
 * Errors:   -EACCES "Locked" while the provider gives no root key; -EBADMSG "WrongKey" for text
 *           that another root key or another purpose wrapped; -EINVAL "BadWrappedKey". */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "crypto/secret.h"
#include <stdbool.h>
#include <sys/types.h>

#define KEYS_ROOT_SIZE 32
#define KEYS_ID_SIZE   9 /* 8 hex digits and a NUL: which root key wrapped something */

struct keys;

/* Where the root key comes from: a file today, an unlock code or a TPM later. */
struct keys_provider {
    const char *name;
    /* Sets KEYS_ROOT_SIZE bytes; -EACCES when it needs something from a person first. */
    int (*fetch)(void *ctx, struct secret *ret_root, struct err *err);
    void (*free)(void *ctx); /* may be NULL */
};

/* Asks the provider once. A locked provider is no error: see keys_is_locked(). */
MUST_CHECK int keys_open(const struct keys_provider *provider, void *ctx, struct keys **ret,
                         struct err *err);
void keys_close(struct keys *k); /* NULL is fine */
DEFINE_CLEANUP(struct keys *, keys_close);

bool keys_is_locked(struct keys *k);
/* Asks the provider again; 0 when the key is there now. */
MUST_CHECK int keys_unlock(struct keys *k, struct err *err);
/* Forgets the root key: everything that needs it answers "Locked" until keys_unlock(). */
void keys_lock(struct keys *k);

/* Appends one word of text. 'purpose' names what the secret is for and whose it is
 * ("access-key/AKIA..."): the text opens for the same purpose only. */
MUST_CHECK int keys_wrap(struct keys *k, struct str purpose, struct str plain, struct buf *out,
                         struct err *err);
MUST_CHECK int keys_unwrap(struct keys *k, struct str purpose, struct str wrapped,
                           struct secret *ret, struct err *err);

/* The provider that reads a file of mode 0600 (docs/formats/root-key.md). */
MUST_CHECK int keys_open_file(const char *path, struct keys **ret, struct err *err);
/* The same, but a file that is not there (a medium that is not plugged in) is a provider that is
 * locked: keys_unlock() looks again. */
MUST_CHECK int keys_open_file_or_wait(const char *path, struct keys **ret, struct err *err);
/* Makes such a file with a fresh key. -EEXIST "RootKeyExists": an old one is never replaced,
 * for everything that it wrapped would be lost. uid, gid: the owner, -1 = leave. */
MUST_CHECK int keys_create_file(const char *path, uid_t uid, gid_t gid, struct err *err);
