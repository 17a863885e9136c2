/* layout.h — how the bytes of an object lie in stripes, and stripes in the shards of its drives.
 * Not here: parity (rs.h), files, checksums.
 * Threads:  plain values.
 * Memory:   none.
 * Errors:   negative errno with *err set ("InvalidLayout").
 *
 * An object of k * unit bytes fills one stripe: unit j of stripe s holds the object's bytes from
 * (s * k + j) * unit and lies in shard j at s * unit; parity i in shard k + i at the same place.
 * The last stripe has shorter units, so that a small object is not padded: ceil(rest / k) bytes,
 * rounded up to LAYOUT_GRAIN. Of data only real bytes are stored: the last units of the last stripe
 * may be short or empty, and count as zeros for parity, whose units are whole. With k == 1 the
 * shard is the object. This is part of the format of stored objects. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define LAYOUT_GRAIN    4096u
#define LAYOUT_UNIT_MIN (64u << 10)
#define LAYOUT_UNIT_MAX (256u << 10)
#define LAYOUT_SIZE_MAX (UINT64_C(64) << 40)

struct layout {
    uint64_t size; /* of the object */
    uint32_t unit;
    uint8_t k, m;
};

/* 'unit' is 64, 128 or 256 KiB; k and m as in rs.h. -EINVAL, or -EFBIG past LAYOUT_SIZE_MAX. */
MUST_CHECK int layout_init(struct layout *l, uint64_t size, unsigned k, unsigned m,
                           uint32_t unit, struct err *err);

struct layout_stripe {
    uint64_t off;       /* its first byte in the object */
    uint64_t shard_off; /* of its units, in every shard */
    uint32_t size;      /* bytes of the object in it */
    uint32_t unit_size; /* what parity is computed over */
};

uint64_t layout_n_stripes(const struct layout *l); /* 0 for an empty object */
/* 'idx' < layout_n_stripes(). */
struct layout_stripe layout_stripe(const struct layout *l, uint64_t idx);
/* Bytes that 'shard' (0..k+m-1) stores of a stripe: the unit's size, or less in the last stripe. */
uint32_t layout_unit_stored(const struct layout *l, const struct layout_stripe *s,
                            unsigned shard);
/* Bytes of the whole shard. */
uint64_t layout_shard_size(const struct layout *l, unsigned shard);

/* A run of the object's bytes that lies in one piece in one shard. */
struct layout_piece {
    uint64_t off;       /* in the object */
    uint64_t shard_off; /* in the shard */
    uint64_t n;
    uint64_t stripe;
    unsigned shard;
};

/* The piece at *off, cut at 'end' (exclusive) and at the object's end; moves *off behind it. False
 * when nothing is left. */
bool layout_next(const struct layout *l, uint64_t *off, uint64_t end, struct layout_piece *ret);
