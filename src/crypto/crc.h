/* crc.h — the CRCs of S3: CRC32, CRC32C, CRC64NVME, in pieces and put together from parts.
 * Not here: their base64 form in headers; digests that an attacker cannot bend (digest.h).
 * Threads:  any; nothing is shared but tables made at the first use.
 * Memory:   none.
 * Errors:   none.
 *
 * A value is always a finished one: 0 for no bytes, and crc_add() goes on from any of them. CRCs of
 * 32 bits are in the low half. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

enum crc_alg { CRC_32, CRC_32C, CRC_64NVME, CRC_ALG_N };

#define CRC_MAX_SIZE 8

size_t crc_size(enum crc_alg alg); /* 4 or 8 bytes */

/* The CRC of all bytes so far and 'data'. */
uint64_t crc_add(enum crc_alg alg, uint64_t crc, struct str data);

/* The CRC of bytes whose CRC is 'a' followed by 'b_size' bytes whose CRC is 'b'. Takes
 * microseconds, whatever the size. */
uint64_t crc_combine(enum crc_alg alg, uint64_t a, uint64_t b, uint64_t b_size);

/* Big-endian, as S3 writes it before base64; returns crc_size(). */
size_t crc_bytes(enum crc_alg alg, uint64_t crc, uint8_t out[CRC_MAX_SIZE]);
