#include "crypto/crc.h"

#include "base/test.h"
#include "crypto/crc_int.h"

#include <pthread.h>
#include <sys/mman.h>

/* By the definition, a bit at a time. */
static uint64_t by_hand(enum crc_alg alg, const uint8_t *p, size_t n)
{
    static const uint64_t poly[] = {0xedb88320, 0x82f63b78, UINT64_C(0x9a6c9329ac4bc9b5)};
    uint64_t all = alg == CRC_64NVME ? UINT64_MAX : UINT32_MAX, v = all;
    for (size_t i = 0; i < n; i++) {
        v ^= p[i];
        for (int bit = 0; bit < 8; bit++) {
            v = v & 1 ? (v >> 1) ^ poly[alg] : v >> 1;
        }
    }
    return v ^ all;
}

static uint64_t state = 7;
static uint64_t next(void)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return state >> 33;
}

static void known_answers(void **st)
{
    uint8_t zeros[4096] = {0}, ones[4096], up[4096], down[4096];
    memset(ones, 0xff, sizeof(ones));
    for (size_t i = 0; i < sizeof(up); i++) {
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(255 - i % 256);
    }
    const struct str check = STR("123456789"), none = STR("");
    const struct {
        enum crc_alg alg;
        struct str data;
        uint64_t want;
    } t[] = {
        {CRC_32, none, 0},
        {CRC_32C, none, 0},
        {CRC_64NVME, none, 0},
        {CRC_32, check, 0xcbf43926},
        {CRC_32C, check, 0xe3069283},
        {CRC_64NVME, check, UINT64_C(0xae8b14860a799888)},
        {CRC_32, STR("The quick brown fox jumps over the lazy dog"), 0x414fa339},
        /* RFC 3720 appendix B.4 */
        {CRC_32C, str_n((char *)zeros, 32), 0x8a9136aa},
        {CRC_32C, str_n((char *)ones, 32), 0x62a8ab43},
        {CRC_32C, str_n((char *)up, 32), 0x46dd794e},
        /* NVM Express, NVM command set, 64b CRC test cases */
        {CRC_64NVME, str_n((char *)zeros, 4096), UINT64_C(0x6482d367eb22b64e)},
        {CRC_64NVME, str_n((char *)ones, 4096), UINT64_C(0xc0ddba7302eca3ac)},
        {CRC_64NVME, str_n((char *)up, 4096), UINT64_C(0x3e729f5f6750449c)},
        {CRC_64NVME, str_n((char *)down, 4096), UINT64_C(0x9a2df64b8e9e517e)},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        uint64_t got = crc_add(t[i].alg, 0, t[i].data);
        if (got != t[i].want) {
            fail_msg("case %zu: got %llx, want %llx", i, (unsigned long long)got,
                     (unsigned long long)t[i].want);
        }
    }
}

static void bytes_are_big_endian(void **st)
{
    uint8_t out[CRC_MAX_SIZE];
    assert_int_equal(crc_bytes(CRC_32, 0xcbf43926, out), 4);
    assert_memory_equal(out, "\xcb\xf4\x39\x26", 4);
    assert_int_equal(crc_bytes(CRC_64NVME, UINT64_C(0xae8b14860a799888), out), 8);
    assert_memory_equal(out, "\xae\x8b\x14\x86\x0a\x79\x98\x88", 8);
    assert_int_equal(crc_size(CRC_32C), 4);
}

/* Every length up to several folds, at every alignment to 16. */
static void lengths_and_alignments(void **st)
{
    uint8_t mem[2048];
    for (size_t i = 0; i < sizeof(mem); i++) {
        mem[i] = (uint8_t)next();
    }
    for (int alg = 0; alg < CRC_ALG_N; alg++) {
        for (size_t n = 0; n <= 600; n++) {
            const uint8_t *p = mem + n % 16;
            assert_int_equal(crc_add((enum crc_alg)alg, 0, str_n((const char *)p, n)),
                             by_hand((enum crc_alg)alg, p, n));
        }
    }
    for (size_t n = 0; n <= 1900; n++) {
        uint64_t from = next() << 32 | next(), want = crc64nvme_plain(from, mem, n);
        if (crc64nvme_has_clmul()) {
            assert_int_equal(crc64nvme_clmul(from, mem, n), want);
        }
        if (crc64nvme_has_wide()) {
            assert_int_equal(crc64nvme_wide(from, mem + n % 64, n),
                             crc64nvme_plain(from, mem + n % 64, n));
        }
        uint64_t slow = from;
        for (size_t i = 0; i < n; i++) {
            slow = crc64nvme_plain(slow, mem + i, 1);
        }
        assert_int_equal(slow, want);
    }
}

static void pieces_and_parts(void **st)
{
    enum { SIZE = 20000 };
    AUTO_FREE uint8_t *mem = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) {
        mem[i] = (uint8_t)next();
    }
    for (int a = 0; a < CRC_ALG_N; a++) {
        enum crc_alg alg = (enum crc_alg)a;
        for (int round = 0; round < 200; round++) {
            size_t n = next() % SIZE;
            uint64_t want = crc_add(alg, 0, str_n((char *)mem, n)), added = 0, combined = 0;
            for (size_t at = 0; at < n;) {
                size_t part = (size_t)next() % (round % 2 ? 5000 : 300);
                part = MIN(n - at, part);
                struct str s = str_n((char *)mem + at, part);
                added = crc_add(alg, added, s);
                combined = crc_combine(alg, combined, crc_add(alg, 0, s), part);
                at += part;
            }
            assert_int_equal(added, want);
            assert_int_equal(combined, want);
        }
        assert_int_equal(by_hand(alg, mem, SIZE), crc_add(alg, 0, str_n((char *)mem, SIZE)));
    }
}

static void combine_edges(void **st)
{
    for (int a = 0; a < CRC_ALG_N; a++) {
        enum crc_alg alg = (enum crc_alg)a;
        uint64_t x = crc_add(alg, 0, STR("abc"));
        assert_int_equal(crc_combine(alg, x, 0, 0), x);
        assert_int_equal(crc_combine(alg, 0, x, 3), x);
        /* Order matters. */
        uint64_t y = crc_add(alg, 0, STR("xyzt"));
        assert_int_not_equal(crc_combine(alg, x, y, 4), crc_combine(alg, y, x, 3));
        /* (A B) C == A (B C), with sizes that no memory holds. */
        uint64_t big = UINT64_C(1) << 62, b = 0x1234567, c = 0x7654321;
        assert_int_equal(crc_combine(alg, crc_combine(alg, x, b, big), c, big + 3),
                         crc_combine(alg, x, crc_combine(alg, b, c, big + 3), 2 * big + 3));
    }
}

/* More than an int counts, of zeros that take no memory. */
static void very_long(void **st)
{
    size_t n = ((size_t)1 << 31) + 4097;
    char *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    (void)madvise(p, n, MADV_HUGEPAGE);
    for (int a = 0; a < CRC_ALG_N; a++) {
        enum crc_alg alg = (enum crc_alg)a;
        uint64_t part = crc_add(alg, 0, str_n(p, (size_t)1 << 20));
        for (size_t size = (size_t)1 << 20; size < (size_t)1 << 31; size *= 2) {
            part = crc_combine(alg, part, part, size);
        }
        part = crc_combine(alg, part, crc_add(alg, 0, str_n(p, 4097)), 4097);
        assert_int_equal(crc_add(alg, 0, str_n(p, n)), part);
    }
    assert_int_equal(munmap(p, n), 0);
}

static void *add_in_thread(void *p)
{
    struct str *s = p;
    return crc_add(CRC_64NVME, 0, *s) == UINT64_C(0xae8b14860a799888) ? p : NULL;
}

static void first_use_by_many(void **st)
{
    pthread_t t[4];
    struct str s = STR("123456789");
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        assert_int_equal(pthread_create(&t[i], NULL, add_in_thread, &s), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        void *r = NULL;
        assert_int_equal(pthread_join(t[i], &r), 0);
        assert_non_null(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_use_by_many), /* first: it makes the tables */
        cmocka_unit_test(known_answers),          cmocka_unit_test(bytes_are_big_endian),
        cmocka_unit_test(lengths_and_alignments), cmocka_unit_test(pieces_and_parts),
        cmocka_unit_test(combine_edges),          cmocka_unit_test(very_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
