/* blk_crypt.h — AES-256-XTS over the layer below: sector size 4,096, tweak = number of the page.
 * Not here: whose key it is (keys/, viperblock/): it comes as 64 bytes.
 * Threads:  shared by all queues; cipher contexts are per queue.
 * Memory:   copies the key into locked memory, wiped when freed.
 * Errors:   as the layer below; -EIO "CipherFailed" is a bug of the machine.
 * Rules:    IEEE 1619. XTS does not authenticate: who can write the disk can replace pages.
 *           The two halves of a key must differ (-EINVAL "BadKey"). A page that was never written
 *           (a hole) reads as what decrypting zeros gives: the layer above knows which pages are
 *           present (blk_cow.h) and never asks for one that is not; DISCARD and ZEROES that punch
 *           are therefore allowed only above a blk_cow layer with a presence map. */
#pragma once
#include "blk/blk.h"
#include "crypto/secret.h"

#define BLK_KEY_SIZE 64u

/* Takes 'below' (freed with it); on failure it stays the caller's. Sub-page writes read, decrypt,
 * change, encrypt and write the page under the page's lock. Data of the guest is never changed in
 * place: encrypting goes to a buffer. ZEROES are written. */
MUST_CHECK int blk_crypt_new(struct blk_layer *below, const uint8_t key[BLK_KEY_SIZE],
                             struct blk_layer **ret, struct err *err);
