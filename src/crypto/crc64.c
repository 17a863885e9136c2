#include "crypto/crc_int.h"

#include <endian.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define POLY UINT64_C(0x9a6c9329ac4bc9b5) /* reflected: bit 63 is x^0 */

/* Made once, at the first use: 16 KiB that nobody has to read as a literal. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t table[8][256];
/* x^(d + 63) and x^(d - 1): what the halves of 128 bits are multiplied by to move on by d bits. */
static uint64_t fold_2048[2], fold_512[2], fold_128[2];

static uint64_t times_x(uint64_t v)
{
    return v & 1 ? (v >> 1) ^ POLY : v >> 1;
}

static uint64_t power_of_x(unsigned n)
{
    uint64_t v = UINT64_C(1) << 63;
    while (n-- > 0) {
        v = times_x(v);
    }
    return v;
}

static void make_tables(void)
{
    for (unsigned i = 0; i < 256; i++) {
        uint64_t v = i;
        for (unsigned bit = 0; bit < 8; bit++) {
            v = times_x(v);
        }
        table[0][i] = v;
    }
    for (unsigned i = 0; i < 256; i++) {
        for (unsigned t = 1; t < 8; t++) {
            uint64_t before = table[t - 1][i];
            table[t][i] = (before >> 8) ^ table[0][before & 0xff];
        }
    }
    fold_2048[0] = power_of_x(2048 + 63);
    fold_2048[1] = power_of_x(2048 - 1);
    fold_512[0] = power_of_x(512 + 63);
    fold_512[1] = power_of_x(512 - 1);
    fold_128[0] = power_of_x(128 + 63);
    fold_128[1] = power_of_x(128 - 1);
}

static void need_tables(void)
{
    if (pthread_once(&once, make_tables) != 0) {
        abort();
    }
}

uint64_t crc64nvme_plain(uint64_t state, const uint8_t *p, size_t n)
{
    need_tables();
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        v = le64toh(v) ^ state;
        state = table[7][v & 0xff] ^ table[6][(v >> 8) & 0xff] ^ table[5][(v >> 16) & 0xff] ^
                table[4][(v >> 24) & 0xff] ^ table[3][(v >> 32) & 0xff] ^
                table[2][(v >> 40) & 0xff] ^ table[1][(v >> 48) & 0xff] ^ table[0][v >> 56];
    }
    for (; n > 0; n--, p++) {
        state = (state >> 8) ^ table[0][(state ^ *p) & 0xff];
    }
    return state;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define CLMUL __attribute__((target("pclmul,sse2")))

bool crc64nvme_has_clmul(void)
{
    return __builtin_cpu_supports("pclmul") != 0;
}

CLMUL static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* The bits of 'x' moved on, added to the next 'data'. In reflected order the first eight bytes, the
 * low half, are the higher powers; a product of two reflected 64-bit values comes out one bit short
 * of 128, which is the -1 in the powers of the factors. */
CLMUL static inline __m128i fold(__m128i x, __m128i factors, __m128i data)
{
    __m128i low = _mm_clmulepi64_si128(x, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(x, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), data);
}

/* Four times 128 bits to one, the rest of the message behind it, and the remainder. */
CLMUL static uint64_t finish(const __m128i last[4], const uint8_t *p, size_t n)
{
    const __m128i by_128 = _mm_set_epi64x((long long)fold_128[1], (long long)fold_128[0]);
    __m128i a = last[0];
    for (unsigned i = 1; i < 4; i++) {
        a = fold(a, by_128, last[i]);
    }
    for (; n >= 16; p += 16, n -= 16) {
        a = fold(a, by_128, load(p));
    }
    /* What is left is a message of 16 bytes with the same remainder. */
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)(void *)rest, a);
    return crc64nvme_plain(crc64nvme_plain(0, rest, sizeof(rest)), p, n);
}

CLMUL uint64_t crc64nvme_clmul(uint64_t state, const uint8_t *p, size_t n)
{
    if (n < 128) {
        return crc64nvme_plain(state, p, n);
    }
    need_tables();
    const __m128i by_512 = _mm_set_epi64x((long long)fold_512[1], (long long)fold_512[0]);
    __m128i a = _mm_xor_si128(load(p), _mm_set_epi64x(0, (long long)state));
    __m128i b = load(p + 16), c = load(p + 32), d = load(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        a = fold(a, by_512, load(p));
        b = fold(b, by_512, load(p + 16));
        c = fold(c, by_512, load(p + 32));
        d = fold(d, by_512, load(p + 48));
    }
    const __m128i last[4] = {a, b, c, d};
    return finish(last, p, n);
}

#define WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse2")))

bool crc64nvme_has_wide(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
           crc64nvme_has_clmul();
}

WIDE static inline __m512i fold_wide(__m512i x, __m512i factors, __m512i data)
{
    __m512i low = _mm512_clmulepi64_epi128(x, factors, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(x, factors, 0x11);
    return _mm512_ternarylogic_epi64(low, high, data, 0x96); /* all three added */
}

WIDE static inline __m512i both(const uint64_t factors[2])
{
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)factors[1], (long long)factors[0]));
}

WIDE uint64_t crc64nvme_wide(uint64_t state, const uint8_t *p, size_t n)
{
    if (n < 512) {
        return crc64nvme_clmul(state, p, n);
    }
    need_tables();
    const __m512i by_2048 = both(fold_2048), by_512 = both(fold_512);
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p),
                                 _mm512_zextsi128_si512(_mm_set_epi64x(0, (long long)state)));
    __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128);
    __m512i d = _mm512_loadu_si512(p + 192);
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        a = fold_wide(a, by_2048, _mm512_loadu_si512(p));
        b = fold_wide(b, by_2048, _mm512_loadu_si512(p + 64));
        c = fold_wide(c, by_2048, _mm512_loadu_si512(p + 128));
        d = fold_wide(d, by_2048, _mm512_loadu_si512(p + 192));
    }
    a = fold_wide(fold_wide(fold_wide(a, by_512, b), by_512, c), by_512, d);
    for (; n >= 64; p += 64, n -= 64) {
        a = fold_wide(a, by_512, _mm512_loadu_si512(p));
    }
    /* In four pieces: one store of 64 bytes makes gcc want a stack variable that is aligned so,
     * which its AddressSanitizer (14) does not give it. */
    const __m128i last[4] = {_mm512_extracti32x4_epi32(a, 0), _mm512_extracti32x4_epi32(a, 1),
                             _mm512_extracti32x4_epi32(a, 2), _mm512_extracti32x4_epi32(a, 3)};
    return finish(last, p, n);
}
#else
bool crc64nvme_has_clmul(void)
{
    return false;
}

uint64_t crc64nvme_clmul(uint64_t state, const uint8_t *p, size_t n)
{
    return crc64nvme_plain(state, p, n);
}

bool crc64nvme_has_wide(void)
{
    return false;
}

uint64_t crc64nvme_wide(uint64_t state, const uint8_t *p, size_t n)
{
    return crc64nvme_plain(state, p, n);
}
#endif
