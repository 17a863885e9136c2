/* crc_int.h — the ways to compute CRC64NVME, for crc.c to choose and for tests to compare.
 * Not here: the door (crc.h).
 * Threads:  any.
 * Memory:   none.
 * Errors:   none. States are raw: not inverted at either end. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t crc64nvme_plain(uint64_t state, const uint8_t *p, size_t n);
/* Carry-less multiplication: only where crc64nvme_has_clmul(). */
uint64_t crc64nvme_clmul(uint64_t state, const uint8_t *p, size_t n);
bool crc64nvme_has_clmul(void);
/* The same, 512 bits at a time: only where crc64nvme_has_wide(). */
uint64_t crc64nvme_wide(uint64_t state, const uint8_t *p, size_t n);
bool crc64nvme_has_wide(void);
