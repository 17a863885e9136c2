#include "keys/keys.h"
#include "codec/base64.h"
#include "crypto/aead.h"
#include "crypto/digest.h"
#include <errno.h>
#include <pthread.h>

#define MAX_PLAIN 4096u
#define TAG       "spxw1." /* version of the wrapped form */

struct keys {
    const struct keys_provider *provider;
    void *ctx;
    pthread_mutex_t lock; /* guards what follows */
    bool is_locked;
    uint8_t wrap_key[AEAD_KEY_SIZE];
    char id[KEYS_ID_SIZE];
};

/* The root key itself encrypts nothing: what does is derived from it. */
static void derive(struct keys *k, const struct secret *root)
{
    uint8_t id[SHA256_SIZE];
    hmac_sha256(secret_str(root), STR("spinifex wrapping key 1"), k->wrap_key);
    hmac_sha256(secret_str(root), STR("spinifex root key id"), id);
    digest_hex(id, (KEYS_ID_SIZE - 1) / 2, k->id);
    k->is_locked = false;
}

int keys_unlock(struct keys *k, struct err *err)
{
    AUTO_SECRET root = SECRET_INIT;
    int r = k->provider->fetch(k->ctx, &root, err);
    if (r < 0) {
        return r;
    }
    if (secret_str(&root).n != KEYS_ROOT_SIZE) {
        return fail(err, -EINVAL, "BadRootKey", "the root key of %s has a wrong size",
                    k->provider->name);
    }
    pthread_mutex_lock(&k->lock);
    derive(k, &root);
    pthread_mutex_unlock(&k->lock);
    return 0;
}

int keys_open(const struct keys_provider *provider, void *ctx, struct keys **ret,
              struct err *err)
{
    struct keys *k = calloc(1, sizeof(*k));
    if (!k) {
        abort();
    }
    k->provider = provider;
    k->ctx = ctx;
    k->is_locked = true;
    pthread_mutex_init(&k->lock, NULL);
    struct err why = ERR_INIT;
    int r = keys_unlock(k, &why);
    if (r < 0 && r != -EACCES) {
        keys_close(k);
        return fail(err, r, why.name, "%s", why.msg);
    }
    *ret = k;
    return 0;
}

void keys_close(struct keys *k)
{
    if (!k) {
        return;
    }
    if (k->provider->free) {
        k->provider->free(k->ctx);
    }
    secret_wipe(k->wrap_key, sizeof(k->wrap_key));
    pthread_mutex_destroy(&k->lock);
    free(k);
}

bool keys_is_locked(struct keys *k)
{
    pthread_mutex_lock(&k->lock);
    bool is_locked = k->is_locked;
    pthread_mutex_unlock(&k->lock);
    return is_locked;
}

void keys_lock(struct keys *k)
{
    pthread_mutex_lock(&k->lock);
    secret_wipe(k->wrap_key, sizeof(k->wrap_key));
    k->is_locked = true;
    pthread_mutex_unlock(&k->lock);
}

/* Copies the key out, so that no lock is held while it works. */
static int take_key(struct keys *k, uint8_t key[AEAD_KEY_SIZE], char id[KEYS_ID_SIZE],
                    struct err *err)
{
    pthread_mutex_lock(&k->lock);
    bool is_locked = k->is_locked;
    memcpy(key, k->wrap_key, AEAD_KEY_SIZE);
    memcpy(id, k->id, KEYS_ID_SIZE);
    pthread_mutex_unlock(&k->lock);
    return is_locked ? fail(err, -EACCES, "Locked", "the keys are locked") : 0;
}

int keys_wrap(struct keys *k, struct str purpose, struct str plain, struct buf *out,
              struct err *err)
{
    uint8_t key[AEAD_KEY_SIZE];
    char id[KEYS_ID_SIZE];
    AUTO_BUF box;
    buf_init(&box, MAX_PLAIN + AEAD_BOX_EXTRA);
    if (plain.n > MAX_PLAIN) {
        return fail(err, -E2BIG, "TooLarge", "a secret of %zu bytes is too large to wrap",
                    plain.n);
    }
    int r = take_key(k, key, id, err);
    if (r < 0) {
        return r;
    }
    r = aead_box_seal(key, purpose, plain, &box);
    secret_wipe(key, sizeof(key));
    if (r < 0) {
        return fail(err, r, "WrapFailed", "wrapping a secret failed");
    }
    buf_fmt(out, TAG "%s.", id);
    base64_encode(buf_str(&box), out);
    return buf_ok(out) ? 0 : fail(err, -E2BIG, "TooLarge", "no room for a wrapped secret");
}

int keys_unwrap(struct keys *k, struct str purpose, struct str wrapped, struct secret *ret,
                struct err *err)
{
    uint8_t key[AEAD_KEY_SIZE];
    char id[KEYS_ID_SIZE];
    int r = take_key(k, key, id, err);
    if (r < 0) {
        return r;
    }
    AUTO_BUF box;
    AUTO_BUF plain;
    buf_init(&box, MAX_PLAIN + AEAD_BOX_EXTRA);
    buf_init(&plain, MAX_PLAIN);
    struct str rest = str_skip(wrapped, sizeof(TAG) - 1), key_id = STR_NONE;
    if (!str_has_prefixc(wrapped, TAG) || !str_next(&rest, '.', &key_id) || !rest.p ||
        base64_decode(rest, &box) < 0) {
        r = fail(err, -EINVAL, "BadWrappedKey", "a wrapped secret is damaged");
    } else if (!str_eqc(key_id, id)) {
        r = fail(err, -EBADMSG, "WrongKey",
                 "a secret was wrapped under root key %.*s, but this is root key %s",
                 STR_ARG(key_id), id);
    } else if (aead_box_open(key, purpose, buf_str(&box), &plain) < 0) {
        r = fail(err, -EBADMSG, "WrongKey", "a wrapped secret does not open for this purpose");
    } else {
        r = secret_set(ret, buf_str(&plain));
        if (r < 0) {
            fail(err, r, "TooLarge", "a wrapped secret is too large");
        }
    }
    secret_wipe(key, sizeof(key));
    if (plain.p) {
        secret_wipe(plain.p, plain.cap);
    }
    return r;
}
