#include "snap/snap_block.h"

#include "base/rand.h"
#include "codec/hex.h"
#include "crypto/aead.h"
#include "crypto/digest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_word(struct str s, size_t max)
{
    bool is_fine = s.n > 0 && s.n <= max;
    for (size_t i = 0; is_fine && i < s.n; i++) {
        char c = s.p[i];
        is_fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-';
    }
    return is_fine;
}

int snap_check_account(struct str account, struct err *err)
{
    return is_word(account, sizeof((struct snap_info *)0)->account - 1)
               ? 0
               : fail(err, -EINVAL, "BadName", "no account: \"%.*s\"", STR_ARG(account));
}

int snap_check_id(struct str id, struct err *err)
{
    return is_word(id, sizeof((struct snap_info *)0)->id - 1)
               ? 0
               : fail(err, -EINVAL, "BadName", "no id of a snapshot: \"%.*s\"", STR_ARG(id));
}

void snap_key_name(char kind, struct str account, const uint8_t name[SNAP_NAME],
                   char ret[SNAP_KEY_MAX])
{
    char hex[2 * SNAP_NAME + 1];
    hex_encode_to(name, SNAP_NAME, hex);
    snprintf(ret, SNAP_KEY_MAX, "%c/%.*s/%s", kind, STR_ARG(account), hex);
}

void snap_key_id(char kind, struct str account, struct str id, char ret[SNAP_KEY_MAX])
{
    snprintf(ret, SNAP_KEY_MAX, "%c/%.*s%s%.*s", kind, STR_ARG(account), id.n ? "/" : "",
             STR_ARG(id));
}

bool snap_key_parse(const char *key, char kind, struct str account, uint8_t ret[SNAP_NAME])
{
    char again[SNAP_KEY_MAX];
    struct str k = str_c(key);
    if (k.n != 3 + account.n + 2 * SNAP_NAME ||
        hex_decode(str_skip(k, 3 + account.n), ret, SNAP_NAME) < 0) {
        return false;
    }
    snap_key_name(kind, account, ret, again);
    return strcmp(key, again) == 0;
}

bool snap_block_is_zero(const void *data)
{
    const char *p = data;
    /* The first bytes are zero, and each equals the one sixteen further on. */
    static const char zero[16];
    return memcmp(p, zero, sizeof(zero)) == 0 && memcmp(p, p + 16, SNAP_BLOCK - 16) == 0;
}

void snap_block_name(const struct snap_keys_pair *keys, const void *data,
                     uint8_t ret[SNAP_NAME])
{
    struct str text = str_n(data, SNAP_BLOCK);
    if (keys) {
        hmac_sha256(str_n((const char *)keys->name, sizeof(keys->name)), text, ret);
    } else {
        sha256(text, ret);
    }
}

/* A sealed block opens under its own name only. */
static struct str bound_to(char key[SNAP_KEY_MAX], struct str account,
                           const uint8_t name[SNAP_NAME])
{
    snap_key_name('b', account, name, key);
    return str_c(key);
}

int snap_block_seal(const struct snap_keys_pair *keys, struct str account,
                    const uint8_t name[SNAP_NAME], const void *data, uint8_t *out,
                    struct err *err)
{
    char key[SNAP_KEY_MAX];
    rand_bytes(out, AEAD_NONCE_SIZE);
    int r = aead_seal(keys->block, out, bound_to(key, account, name), str_n(data, SNAP_BLOCK),
                      out + AEAD_NONCE_SIZE);
    return r < 0 ? fail(err, r, "SealFailed", "a block cannot be sealed") : 0;
}

int snap_block_open(const struct snap_keys_pair *keys, struct str account,
                    const uint8_t name[SNAP_NAME], struct str object, void *out,
                    struct err *err)
{
    char key[SNAP_KEY_MAX];
    struct str aad = bound_to(key, account, name);
    if (object.n != (keys ? SNAP_SEALED : SNAP_BLOCK)) {
        return fail(err, -EBADMSG, "BlockDamaged", "%s has %zu bytes", key, object.n);
    }
    if (keys) {
        int r = aead_open(keys->block, (const uint8_t *)object.p, aad,
                          str_skip(object, AEAD_NONCE_SIZE), out);
        return r < 0 ? fail(err, r, "BlockDamaged", "%s is not what was sealed", key) : 0;
    }
    uint8_t real[SNAP_NAME];
    snap_block_name(NULL, object.p, real);
    if (memcmp(real, name, SNAP_NAME) != 0) {
        return fail(err, -EBADMSG, "BlockDamaged", "%s is not what its name says", key);
    }
    if (out && out != (const void *)object.p) {
        memcpy(out, object.p, SNAP_BLOCK);
    }
    return 0;
}
