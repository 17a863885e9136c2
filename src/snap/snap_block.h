/* snap_block.h — what a block is called, and how it lies in the store.
 * Not here: requests (snap_s3.h), where keys come from (snap_keys.h).
 * Threads:  no state.
 * Memory:   results go into buffers of the caller.
 * Errors:   -EBADMSG "BlockDamaged"; -EINVAL "BadName" for an account or id that cannot be
 *           part of a key. */
#pragma once
#include "snap/snap.h"
#include "snap/snap_s3.h"

#define SNAP_SEALED (12u + SNAP_BLOCK + 16u) /* nonce, text, tag */

struct snap_keys_pair { /* of an account */
    uint8_t block[32], name[32];
};

/* Accounts and ids are letters, digits and '-', shorter than 16 and 24. */
MUST_CHECK int snap_check_account(struct str account, struct err *err);
MUST_CHECK int snap_check_id(struct str id, struct err *err);

/* "b/<account>/<name>"; kind 'b' or 'p'. Checked words only. */
void snap_key_name(char kind, struct str account, const uint8_t name[SNAP_NAME],
                   char ret[SNAP_KEY_MAX]);
/* "m/<account>/<id>"; kind 'm' or 'r'; 'k' has no id. */
void snap_key_id(char kind, struct str account, struct str id, char ret[SNAP_KEY_MAX]);
/* The name at the end of such a key; false: it is none of ours. */
bool snap_key_parse(const char *key, char kind, struct str account, uint8_t ret[SNAP_NAME]);

bool snap_block_is_zero(const void *data);
/* keys NULL: not encrypted. */
void snap_block_name(const struct snap_keys_pair *keys, const void *data,
                     uint8_t ret[SNAP_NAME]);
/* 'out' takes SNAP_SEALED bytes. */
MUST_CHECK int snap_block_seal(const struct snap_keys_pair *keys, struct str account,
                               const uint8_t name[SNAP_NAME], const void *data, uint8_t *out,
                               struct err *err);
/* Checks that 'object' is the block 'name'. keys NULL: its bytes are 'object' itself, and
 * 'out' may be NULL. Nothing of the text is given out on failure. */
MUST_CHECK int snap_block_open(const struct snap_keys_pair *keys, struct str account,
                               const uint8_t name[SNAP_NAME], struct str object, void *out,
                               struct err *err);
