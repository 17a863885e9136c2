#include "crypto/aead.h"

#include "crypto/digest.h"
#include "crypto/secret.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const uint8_t zero_key[AEAD_KEY_SIZE];

/* Cases 13 and 14 of the GCM proposal (McGrew, Viega): AES-256, zero key and nonce. */
static void test_known(void **state)
{
    uint8_t nonce[AEAD_NONCE_SIZE] = {0}, out[32];
    char hex[65];
    assert_int_equal(aead_seal(zero_key, nonce, STR_NONE, STR_NONE, out), 0);
    digest_hex(out, AEAD_TAG_SIZE, hex);
    assert_string_equal(hex, "530f8afbc74536b9a963b4f1c4cb738b");
    char text[16] = {0};
    assert_int_equal(aead_seal(zero_key, nonce, STR_NONE, str_n(text, sizeof(text)), out), 0);
    digest_hex(out, 32, hex);
    assert_string_equal(hex,
                        "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919");
}

static void test_round_trip_in_place(void **state)
{
    uint8_t key[AEAD_KEY_SIZE] = {1, 2, 3}, nonce[AEAD_NONCE_SIZE] = {9};
    for (size_t n = 0; n < 100; n++) {
        uint8_t b[128], want[128];
        memset(want, (int)n, sizeof(want));
        memcpy(b, want, sizeof(b));
        assert_int_equal(aead_seal(key, nonce, STR("id"), str_n((char *)b, n), b), 0);
        assert_int_equal(
            aead_open(key, nonce, STR("id"), str_n((char *)b, n + AEAD_TAG_SIZE), b), 0);
        assert_memory_equal(b, want, n);
    }
}

/* Every single flipped bit of the box, another name and another key are noticed; nothing comes
 * out. */
static void test_box_tampered(void **state)
{
    uint8_t key[AEAD_KEY_SIZE] = {7};
    struct str text = STR("attack at dawn");
    AUTO_BUF box;
    buf_init(&box, 1024);
    assert_int_equal(aead_box_seal(key, STR("a"), text, &box), 0);
    assert_int_equal(box.n, text.n + AEAD_BOX_EXTRA);
    AUTO_BUF out;
    buf_init(&out, 1024);
    assert_int_equal(aead_box_open(key, STR("a"), buf_str(&box), &out), 0);
    assert_true(str_eq(buf_str(&out), text));
    buf_clear(&out);
    for (size_t bit = 0; bit < box.n * 8; bit++) {
        box.p[bit / 8] = (char)(box.p[bit / 8] ^ (1 << bit % 8));
        assert_int_equal(aead_box_open(key, STR("a"), buf_str(&box), &out), -EBADMSG);
        assert_int_equal(out.n, 0);
        box.p[bit / 8] = (char)(box.p[bit / 8] ^ (1 << bit % 8));
    }
    assert_int_equal(aead_box_open(key, STR("b"), buf_str(&box), &out), -EBADMSG);
    assert_int_equal(aead_box_open(key, STR_NONE, buf_str(&box), &out), -EBADMSG);
    assert_int_equal(aead_box_open(zero_key, STR("a"), buf_str(&box), &out), -EBADMSG);
    for (size_t n = 0; n < box.n; n++) {
        int want = n < AEAD_BOX_EXTRA ? -EINVAL : -EBADMSG;
        assert_int_equal(aead_box_open(key, STR("a"), str_n(box.p, n), &out), want);
    }
    assert_int_equal(out.n, 0);
}

static void test_box_limits(void **state)
{
    AUTO_BUF small;
    buf_init(&small, AEAD_BOX_EXTRA + 3);
    assert_int_equal(aead_box_seal(zero_key, STR_NONE, STR("1234"), &small), -ENOMEM);
    buf_clear(&small);
    assert_int_equal(aead_box_seal(zero_key, STR_NONE, STR("123"), &small), 0);
    AUTO_BUF out;
    buf_init(&out, 3);
    assert_int_equal(aead_box_open(zero_key, STR_NONE, buf_str(&small), &out), 0);
    assert_true(str_eqc(buf_str(&out), "123"));
}

static void test_secret(void **state)
{
    AUTO_SECRET s = SECRET_INIT;
    assert_false(secret_is_set(&s));
    assert_false(secret_eq(&s, STR("")));
    assert_int_equal(secret_set(&s, STR("hunter2")), 0);
    assert_true(secret_eq(&s, STR("hunter2")));
    assert_false(secret_eq(&s, STR("hunter")));
    assert_false(secret_eq(&s, STR_NONE));
    assert_int_equal(secret_set(&s, str_skip(secret_str(&s), 6)), 0); /* a part of itself */
    assert_true(secret_eq(&s, STR("2")));
    assert_int_equal(secret_random(&s, 32), 0);
    assert_int_equal(secret_str(&s).n, 32);
    assert_int_equal(secret_random(&s, SECRET_MAX + 1), -ENOMEM);
    assert_int_equal(secret_str(&s).n, 32);
    secret_done(&s);
    assert_false(secret_is_set(&s));
}

/* A context says the same as the bare calls, whichever way and key it had before. */
static void test_ctx(void **state)
{
    for (unsigned i = 0; i < 40; i++) {
        uint8_t key[AEAD_KEY_SIZE] = {(uint8_t)(i / 2)}, tag[AEAD_TAG_SIZE], b[300], text[300];
        AUTO(aead_ctx_freep) struct aead_ctx *c = aead_ctx_new(key);
        AUTO(aead_ctx_freep) struct aead_ctx *other = aead_ctx_new(zero_key);
        assert_non_null(c);
        for (size_t n = 0; n < 270; n += 1 + n / 7) {
            uint8_t nonce[AEAD_NONCE_SIZE] = {9, (uint8_t)n}, want[300 + AEAD_TAG_SIZE];
            memset(text, (int)(i + n), sizeof(text));
            memcpy(b, text, sizeof(b));
            assert_int_equal(
                aead_seal(key, nonce, STR_NONE, str_n((const char *)text, n), want), 0);
            assert_int_equal(aead_ctx_seal(c, nonce, b, n, b, tag), 0);
            assert_memory_equal(b, want, n);
            assert_memory_equal(tag, want + n, sizeof(tag));
            assert_int_equal(aead_ctx_open(c, nonce, b, n, tag, b), 0);
            assert_memory_equal(b, text, n);
            assert_int_equal(aead_ctx_open(other, nonce, want, n, tag, b),
                             i < 2 ? 0 : -EBADMSG);
            tag[n % sizeof(tag)] ^= 4;
            memset(b, 1, sizeof(b));
            assert_int_equal(aead_ctx_open(c, nonce, want, n, tag, b), -EBADMSG);
            for (size_t k = 0; k < n; k++) {
                assert_int_equal(b[k], 0);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),        cmocka_unit_test(test_round_trip_in_place),
        cmocka_unit_test(test_box_tampered), cmocka_unit_test(test_box_limits),
        cmocka_unit_test(test_secret),       cmocka_unit_test(test_ctx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
