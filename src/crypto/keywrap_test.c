#include "crypto/keywrap.h"

#include "crypto/digest.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* RFC 3394, 4.3, 4.5 and 4.6. */
static void test_known(void **state)
{
    static const char *const want[] = {
        "64e8c3f9ce0f5ba263e9777905818a2a93c8191e7d6e8ae7",
        "a8f9bc1612c68b3ff6e6f4fbe30e71e4769c8b80a32cb8958cd5d17d6b254da1",
        "28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21",
    };
    uint8_t key[KEYWRAP_KEY_SIZE], plain[32];
    for (unsigned i = 0; i < 32; i++) {
        key[i] = (uint8_t)i;
        plain[i] = (uint8_t)(i < 16 ? 0x11 * i : i - 16);
    }
    AUTO(keywrap_freep) struct keywrap *w = keywrap_new(key);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        uint8_t got[72];
        char hex[145];
        size_t n = 16 + 8 * i;
        assert_int_equal(keywrap_wrap(w, plain, n, got), 0);
        digest_hex(got, n + KEYWRAP_EXTRA, hex);
        assert_string_equal(hex, want[i]);
        assert_int_equal(keywrap_unwrap(w, got, n + KEYWRAP_EXTRA, got), 0);
        assert_memory_equal(got, plain, n);
    }
}

/* Every flipped bit and another key are noticed, and nothing comes out. */
static void test_tampered(void **state)
{
    uint8_t key[KEYWRAP_KEY_SIZE] = {5}, plain[32], text[40], out[32];
    static const uint8_t zeros[32];
    memset(plain, 0x77, sizeof(plain));
    AUTO(keywrap_freep) struct keywrap *w = keywrap_new(key);
    key[31] = 1;
    AUTO(keywrap_freep) struct keywrap *other = keywrap_new(key);
    assert_int_equal(keywrap_wrap(w, plain, sizeof(plain), text), 0);
    for (size_t bit = 0; bit < 8 * sizeof(text); bit++) {
        text[bit / 8] = (uint8_t)(text[bit / 8] ^ (1 << bit % 8));
        assert_int_equal(keywrap_unwrap(w, text, sizeof(text), out), -EBADMSG);
        assert_memory_equal(out, zeros, sizeof(out));
        text[bit / 8] = (uint8_t)(text[bit / 8] ^ (1 << bit % 8));
    }
    assert_int_equal(keywrap_unwrap(other, text, sizeof(text), out), -EBADMSG);
    assert_int_equal(keywrap_unwrap(w, text, sizeof(text), out), 0);
    assert_memory_equal(out, plain, sizeof(plain));
}

static void test_sizes(void **state)
{
    uint8_t key[KEYWRAP_KEY_SIZE] = {5}, in[96] = {0}, out[96];
    AUTO(keywrap_freep) struct keywrap *w = keywrap_new(key);
    for (size_t n = 0; n <= 80; n++) {
        bool is_fit = n >= 16 && n <= KEYWRAP_MAX && n % 8 == 0;
        assert_int_equal(keywrap_wrap(w, in, n, out), is_fit ? 0 : -EINVAL);
        bool is_text = n >= 24 && n <= KEYWRAP_MAX + KEYWRAP_EXTRA && n % 8 == 0;
        assert_int_equal(keywrap_unwrap(w, in, n, out), is_text ? -EBADMSG : -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_tampered),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
