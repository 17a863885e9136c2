/* xts.h — AES-256-XTS over units of one size (IEEE 1619): sectors and pages of a disk.
 * Not here: which unit has which number (blk/blk_crypt.c), where keys come from (keys/).
 * Threads:  a struct xts belongs to one thread at a time.
 * Memory:   xts_new() gives; the key schedules are wiped when it is freed.
 * Errors:   -EINVAL: the halves of the key are equal; -ENOMEM; -EIO: the library failed.
 *
 * XTS hides and does not authenticate: a changed unit decrypts to noise, not to an error. */
#pragma once
#include "base/macro.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XTS_KEY_SIZE 64 /* data key, then tweak key */

struct xts;
/* One direction: set up once, used for any number of units. */
MUST_CHECK int xts_new(const uint8_t key[XTS_KEY_SIZE], bool is_encrypt, struct xts **ret);
void xts_free(struct xts *x);
DEFINE_CLEANUP(struct xts *, xts_free);
/* 'n' bytes are units of 'unit' bytes (16 ... 2^20), the first with number 'first'; the tweak is
 * the number in little-endian. 'out' may be 'in'. */
MUST_CHECK int xts_run(struct xts *x, uint64_t first, size_t unit, const void *in, void *out,
                       size_t n);
