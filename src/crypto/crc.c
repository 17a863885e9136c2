#include "crypto/crc.h"

#include "crypto/crc_int.h"

#include <isa-l/crc.h>

/* Reflected: the highest bit is x^0. */
static const struct {
    uint64_t poly;
    unsigned bits;
} params[CRC_ALG_N] = {
    [CRC_32] = {UINT64_C(0xedb88320), 32},
    [CRC_32C] = {UINT64_C(0x82f63b78), 32},
    [CRC_64NVME] = {UINT64_C(0x9a6c9329ac4bc9b5), 64},
};

/* ISA-L's CRC32C takes an int. */
#define STEP_MAX ((size_t)1 << 30)

size_t crc_size(enum crc_alg alg)
{
    return params[alg].bits / 8;
}

static uint32_t crc32c_add(uint32_t crc, struct str data)
{
    crc = ~crc;
    while (data.n > 0) {
        size_t n = MIN(data.n, STEP_MAX);
        unsigned char *p = NULL;
        memcpy(&p, &data.p, sizeof(p)); /* it is not written to */
        crc = crc32_iscsi(p, (int)n, crc);
        data = str_n(data.p + n, data.n - n);
    }
    return ~crc;
}

uint64_t crc_add(enum crc_alg alg, uint64_t crc, struct str data)
{
    const uint8_t *p = (const uint8_t *)data.p;
    if (data.n == 0) {
        return crc;
    }
    switch (alg) {
    case CRC_32: return crc32_gzip_refl((uint32_t)crc, p, data.n);
    case CRC_32C: return crc32c_add((uint32_t)crc, data);
    default:
        if (crc64nvme_has_wide()) {
            return ~crc64nvme_wide(~crc, p, data.n);
        }
        return crc64nvme_has_clmul() ? ~crc64nvme_clmul(~crc, p, data.n)
                                     : ~crc64nvme_plain(~crc, p, data.n);
    }
}

/* a * b modulo the polynomial. */
static uint64_t mul(enum crc_alg alg, uint64_t a, uint64_t b)
{
    uint64_t sum = 0, poly = params[alg].poly;
    for (uint64_t bit = UINT64_C(1) << (params[alg].bits - 1); bit && a; bit >>= 1) {
        sum ^= a & bit ? b : 0;
        a &= ~bit;
        b = b & 1 ? (b >> 1) ^ poly : b >> 1;
    }
    return sum;
}

/* Bytes behind A multiply what A left by x^8 each. The inversions at both ends cancel out. */
uint64_t crc_combine(enum crc_alg alg, uint64_t a, uint64_t b, uint64_t b_size)
{
    uint64_t square = UINT64_C(1) << (params[alg].bits - 1 - 8); /* x^8 */
    for (uint64_t n = b_size; n > 0; n >>= 1) {
        if (n & 1) {
            a = mul(alg, square, a);
        }
        square = mul(alg, square, square);
    }
    return a ^ b;
}

size_t crc_bytes(enum crc_alg alg, uint64_t crc, uint8_t out[CRC_MAX_SIZE])
{
    size_t n = crc_size(alg);
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)(crc >> (8 * (n - 1 - i)));
    }
    return n;
}
