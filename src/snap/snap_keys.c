/* The keys of accounts: two random ones each, wrapped under the root key, made once. */
#include "snap/snap_int.h"

#include "base/rand.h"
#include "crypto/crc.h"
#include "crypto/secret.h"

#include <errno.h>
#include <stdio.h>

#define WRAPPED_MAX 1024u

void snap_keys_done(struct snap_store *s)
{
    struct omap_node *n = NULL;
    while (s->keys && (n = omap_seek(s->keys, STR("")))) {
        char account[16];
        snprintf(account, sizeof(account), "%.*s", STR_ARG(omap_key(n)));
        struct snap_keys_pair *k = omap_remove(s->keys, str_c(account));
        secret_wipe(k, sizeof(*k));
        free(k);
    }
}

/* Under store.mu. */
static bool cached(struct snap_store *s, struct str account, struct snap_keys_pair *ret)
{
    const struct snap_keys_pair *k = omap_get(s->keys, account);
    if (k) {
        *ret = *k;
    }
    return k != NULL;
}

static void keep(struct snap_store *s, struct str account, const struct snap_keys_pair *pair)
{
    struct snap_keys_pair *k = malloc(sizeof(*k));
    if (!k) {
        return;
    }
    *k = *pair;
    pthread_mutex_lock(&s->mu);
    k = omap_put(s->keys, account, k);
    pthread_mutex_unlock(&s->mu);
    if (k) {
        secret_wipe(k, sizeof(*k));
        free(k);
    }
}

static void purpose_of(struct str account, char ret[64])
{
    snprintf(ret, 64, "snapshot-keys/%.*s", STR_ARG(account));
}

static int unwrap(struct snap_store *s, struct str account, struct str text,
                  struct snap_keys_pair *ret, struct err *err)
{
    char purpose[64];
    AUTO_SECRET plain = SECRET_INIT;
    purpose_of(account, purpose);
    int r = keys_unwrap(s->o.keys, str_c(purpose), text, &plain, err);
    if (r < 0) {
        return r;
    }
    struct str k = secret_str(&plain);
    if (k.n != sizeof(*ret)) {
        return fail(err, -EBADMSG, "KeysDamaged", "the keys of account %.*s are damaged",
                    STR_ARG(account));
    }
    memcpy(ret, k.p, sizeof(*ret));
    return 0;
}

/* Two makers agree: the second finds what the first stored. */
static int make(struct snap_store *s, struct str account, const char *key, struct err *err)
{
    char purpose[64];
    struct snap_keys_pair pair;
    AUTO_BUF text;
    struct err e = ERR_INIT;
    buf_init(&text, WRAPPED_MAX);
    purpose_of(account, purpose);
    rand_bytes(&pair, sizeof(pair));
    int r = keys_wrap(s->o.keys, str_c(purpose), str_n((const char *)&pair, sizeof(pair)),
                      &text, err);
    secret_wipe(&pair, sizeof(pair));
    if (r < 0) {
        return r;
    }
    const struct snap_s3_put put = {.key = key,
                                    .body = buf_str(&text),
                                    .crc = (uint32_t)crc_add(CRC_32C, 0, buf_str(&text)),
                                    .is_if_none = true};
    r = snap_s3_put(s->s3, &put, &e);
    return r == 0 || r == -EEXIST ? 0 : fail(err, r, e.name, "%s", e.msg);
}

static int fetch(struct snap_store *s, struct str account, bool is_made,
                 struct snap_keys_pair *ret, struct err *err)
{
    char key[SNAP_KEY_MAX];
    AUTO_BUF text;
    struct err e = ERR_INIT;
    buf_init(&text, WRAPPED_MAX);
    snap_key_id('k', account, STR(""), key);
    int r = snap_s3_get_buf(s->s3, key, &text, &e);
    if (r == -ENOENT && is_made) {
        err_clear(&e);
        if ((r = make(s, account, key, &e)) == 0) {
            r = snap_s3_get_buf(s->s3, key, &text, &e);
        }
    }
    if (r == -ENOENT) {
        return fail(err, -EBADMSG, "KeysDamaged", "the keys of account %.*s are not there",
                    STR_ARG(account));
    }
    return r < 0 ? fail(err, r, e.name, "%s", e.msg)
                 : unwrap(s, account, buf_str(&text), ret, err);
}

int snap_keys_get(struct snap_store *s, struct str account, bool is_made,
                  struct snap_keys_pair *ret, struct err *err)
{
    bool is_locked = !s->o.keys || keys_is_locked(s->o.keys);
    pthread_mutex_lock(&s->mu);
    if (is_locked) {
        snap_keys_done(s); /* nor is anything kept that was unlocked once */
    }
    bool is_there = !is_locked && cached(s, account, ret);
    pthread_mutex_unlock(&s->mu);
    if (is_locked) {
        return fail(err, -EACCES, "Locked",
                    "encrypted snapshots need the root key: the node is locked");
    }
    if (is_there) {
        return 0;
    }
    int r = fetch(s, account, is_made, ret, err);
    if (r == 0) {
        keep(s, account, ret);
    }
    return r;
}
