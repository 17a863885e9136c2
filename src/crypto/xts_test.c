#include "crypto/xts.h"

#include "base/rand.h"
#include "base/test.h"
#include <errno.h>
#include <string.h>

static void unhex(const char *hex, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned v = 0;
        for (size_t k = 0; k < 2; k++) {
            char c = hex[2 * i + k];
            v = v * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
        }
        out[i] = (uint8_t)v;
    }
}

/* IEEE Std 1619-2007, annex B: the vectors of XTS-AES-256. Key 1 is e, key 2 pi, in decimal. */
#define KEY_1 "2718281828459045235360287471352662497757247093699959574966967627"
#define KEY_2 "3141592653589793238462643383279502884197169399375105820974944592"

static const struct {
    const char *name;
    uint64_t number;
    const char *begin; /* of the cipher text of 512 bytes 00 01 02 ... ff 00 01 ... ff */
} vectors[] = {
    {"vector 10", 0xff, "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b"},
    {"vector 11", 0xffff, "77a31251618a15e6b92d1d66dffe7b50b50bad552305ba0217a610688eff7e11"},
    {"vector 12", 0xffffff, "e387aaa58ba483afa7e8eb469778317ecf4cf573aa9d4eac23f2cdf914e4e200"},
};

static void make(struct xts **enc, struct xts **dec)
{
    uint8_t key[XTS_KEY_SIZE];
    unhex(KEY_1 KEY_2, key, sizeof(key));
    assert_int_equal(xts_new(key, true, enc), 0);
    assert_int_equal(xts_new(key, false, dec), 0);
}

static void test_vectors_of_the_standard(void **state)
{
    uint8_t plain[512], out[512], want[32];
    struct xts *enc = NULL, *dec = NULL;
    make(&enc, &dec);
    for (size_t i = 0; i < sizeof(plain); i++) {
        plain[i] = (uint8_t)i;
    }
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        assert_int_equal(xts_run(enc, vectors[i].number, 512, plain, out, 512), 0);
        unhex(vectors[i].begin, want, 32);
        assert_memory_equal(out, want, 32);
        assert_int_equal(xts_run(dec, vectors[i].number, 512, out, out, 512), 0);
        assert_memory_equal(out, plain, 512);
    }
    xts_free(enc);
    xts_free(dec);
}

/* Made with another program (Python's cryptography 48): two pages, one after the other. */
static void test_pages_have_their_own_numbers(void **state)
{
    static const char *const want[2][2] = {
        {"812661c649d9fbf691884a3b2c1dbd9a", "656512da5b3fb8231304802826a3ce73"},
        {"bd009a021fb41e88577088185a586994", "6cbdf29ef94a6676e08de50b089272a5"},
    };
    uint8_t plain[8192], out[8192], part[16];
    struct xts *enc = NULL, *dec = NULL;
    make(&enc, &dec);
    for (size_t i = 0; i < sizeof(plain); i++) {
        plain[i] = (uint8_t)(i * 7 + i / 256);
    }
    assert_int_equal(xts_run(enc, 0x123456789, 4096, plain, out, sizeof(out)), 0);
    for (size_t i = 0; i < 2; i++) {
        unhex(want[i][0], part, 16);
        assert_memory_equal(out + i * 4096, part, 16);
        unhex(want[i][1], part, 16);
        assert_memory_equal(out + i * 4096 + 4080, part, 16);
    }
    /* The second page alone, in place. */
    assert_int_equal(xts_run(dec, 0x12345678a, 4096, out + 4096, out + 4096, 4096), 0);
    assert_memory_equal(out + 4096, plain + 4096, 4096);
    xts_free(enc);
    xts_free(dec);
}

static void test_equal_halves_are_refused(void **state)
{
    uint8_t key[XTS_KEY_SIZE];
    struct xts *x = NULL;
    rand_bytes(key, 32);
    memcpy(key + 32, key, 32);
    assert_int_equal(xts_new(key, true, &x), -EINVAL);
    assert_null(x);
    key[63] ^= 1;
    assert_int_equal(xts_new(key, true, &x), 0);
    xts_free(x);
    xts_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_the_standard),
        cmocka_unit_test(test_pages_have_their_own_numbers),
        cmocka_unit_test(test_equal_halves_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
