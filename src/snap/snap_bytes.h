/* snap_bytes.h — little-endian numbers in bytes.
 * Not here: anything else. Threads, memory, errors: none. */
#pragma once
#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void snap_put64(uint8_t *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof(v));
}
static inline void snap_put32(uint8_t *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, sizeof(v));
}
static inline uint64_t snap_get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return le64toh(v);
}
static inline uint32_t snap_get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return le32toh(v);
}
