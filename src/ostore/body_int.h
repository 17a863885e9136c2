/* body_int.h — what the key ring does for body.c; inside the room only.
 * Not here: the ring's door (body.h).
 * Threads:  any.
 * Memory:   buffers of the caller.
 * Errors:   -EACCES "Locked", -ENOKEY "NoBodyKey", -EBADMSG "BadBodyKey". */
#pragma once
#include "crypto/keywrap.h"
#include "ostore/body.h"

#define BODY_WRAPPED_SIZE  (BODY_KEY_SIZE + KEYWRAP_EXTRA)
#define BODY_KEYS_MAX      256u
#define BODY_RING_SIZE_MAX (256u << 10)

MUST_CHECK int body_keys_wrap(const struct body_keys *k, const uint8_t key[BODY_KEY_SIZE],
                              uint8_t out[BODY_WRAPPED_SIZE], uint32_t *ret_id);
MUST_CHECK int body_keys_unwrap(const struct body_keys *k, uint32_t id, struct str wrapped,
                                uint8_t ret_key[BODY_KEY_SIZE], struct err *err);

/* The text of a ring (docs/formats/object-keyring.md), for the file and its tests. */
struct body_ring_key {
    uint32_t id;
    uint64_t create_ns;
    struct str wrapped; /* as keys_wrap() gave it */
};
struct body_ring {
    uint8_t set_id[16];
    uint64_t seq; /* grows with each change */
    uint32_t current;
    struct body_ring_key v[BODY_KEYS_MAX];
    size_t n;
};
void body_ring_write(const struct body_ring *r, struct buf *out);
/* Strings are copied into the arena. -EBADMSG "BadKeyRing", -ENOTSUP for a later version. */
MUST_CHECK int body_ring_read(struct str text, struct arena *a, struct body_ring *ret,
                              struct err *err);
