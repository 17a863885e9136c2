/* shard_form.h — the bytes of a shard's header and footer, and its file's name.
 * Not here: reading and writing files (shard.h). Inside the room and its tests.
 * Format:   docs/formats/object-shard.md.
 * Threads:  plain values.
 * Memory:   buffers of the caller.
 * Errors:   -EBADMSG for bytes that are not what was written, -ENOTSUP for a later version. */
#pragma once
#include "base/macro.h"
#include "ostore/record.h"

#define SHARD_HEAD_SIZE 4096u /* units are at multiples of a page */
#define SHARD_HEAD_USED 128u  /* the rest is zeros */
#define SHARD_FOOT_SIZE 128u
#define SHARD_NAME_SIZE 48u

struct shard_head {
    uint8_t set_id[16], id[OREC_ID_SIZE];
    uint8_t k, m, shard;
    uint32_t unit;
};
/* Behind the units: n_units CRC32C of 4 bytes each, then this at the very end of the file. */
struct shard_foot {
    struct shard_head head;
    uint64_t stored_size; /* of the whole body, as in its record */
    uint64_t data_size;   /* of the units in this file */
    uint32_t n_units;     /* that are not empty */
    uint32_t table_crc;
};

void shard_head_encode(const struct shard_head *h, uint8_t out[SHARD_HEAD_USED]);
MUST_CHECK int shard_head_decode(const uint8_t p[SHARD_HEAD_SIZE], struct shard_head *ret);
void shard_foot_encode(const struct shard_foot *f, uint8_t out[SHARD_FOOT_SIZE]);
/* Also checks that the numbers fit each other as layout.h says. */
MUST_CHECK int shard_foot_decode(const uint8_t p[SHARD_FOOT_SIZE], struct shard_foot *ret);
bool shard_head_eq(const struct shard_head *a, const struct shard_head *b);

/* "<32 hex>.<shard>"; what is not yet whole has ".tmp-" in front. */
void shard_name(const uint8_t id[OREC_ID_SIZE], unsigned shard, bool is_tmp,
                char buf[SHARD_NAME_SIZE]);
/* False when it is no name of ours. */
bool shard_name_parse(const char *name, uint8_t ret_id[OREC_ID_SIZE], unsigned *ret_shard,
                      bool *ret_is_tmp);
