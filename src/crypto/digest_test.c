#include "crypto/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void hex_is(const uint8_t *p, size_t n, const char *want)
{
    char hex[2 * DIGEST_MAX_SIZE + 1];
    digest_hex(p, n, hex);
    assert_string_equal(hex, want);
}

/* FIPS 180-2 appendix B and A, RFC 1321 appendix A.5. */
static const struct {
    enum digest_alg alg;
    const char *text, *want;
} digests[] = {
    {DIGEST_SHA256, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {DIGEST_SHA256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {DIGEST_SHA256, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {DIGEST_SHA1, "", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
    {DIGEST_SHA1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
    {DIGEST_MD5, "", "d41d8cd98f00b204e9800998ecf8427e"},
    {DIGEST_MD5, "message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
};

static void test_digests(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(digests); i++) {
        struct str text = str_c(digests[i].text);
        uint8_t out[DIGEST_MAX_SIZE];
        switch (digests[i].alg) {
        case DIGEST_SHA256: sha256(text, out); break;
        case DIGEST_SHA1: sha1(text, out); break;
        default: md5(text, out); break;
        }
        hex_is(out, digest_size(digests[i].alg), digests[i].want);

        /* In two pieces, cut at every place; the context is used again and again. */
        AUTO(digest_freep) struct digest *d = digest_new(digests[i].alg);
        for (size_t cut = 0; cut <= text.n; cut++) {
            digest_add(d, str_n(text.p, cut));
            digest_add(d, str_skip(text, cut));
            digest_end(d, out);
            hex_is(out, digest_size(digests[i].alg), digests[i].want);
        }
    }
}

/* RFC 4231, cases 1, 2 and 6. */
static void test_hmac(void **state)
{
    static const struct {
        const char *key;
        size_t key_n;
        const char *data, *want;
    } rows[] = {
        {"\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b", 20,
         "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", 4, "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {NULL, 131, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
    };
    char long_key[131];
    memset(long_key, 0xaa, sizeof(long_key));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str key = str_n(rows[i].key ? rows[i].key : long_key, rows[i].key_n);
        struct str data = str_c(rows[i].data);
        uint8_t out[SHA256_SIZE];
        hmac_sha256(key, data, out);
        hex_is(out, sizeof(out), rows[i].want);
        struct str parts[] = {str_n(data.p, 3), STR(""), str_skip(data, 3)};
        hmac_sha256_parts(key, parts, ARRAY_LEN(parts), out);
        hex_is(out, sizeof(out), rows[i].want);
    }
    /* Empty key and data, after a call with another key: nothing of that may remain. */
    uint8_t out[SHA256_SIZE];
    hmac_sha256(STR_NONE, STR_NONE, out);
    hex_is(out, sizeof(out),
           "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void test_hmac_in_place(void **state)
{
    uint8_t key[SHA256_SIZE], want[SHA256_SIZE];
    hmac_sha256(STR("k"), STR("1"), key);
    hmac_sha256(str_n((char *)key, sizeof(key)), STR("2"), want);
    hmac_sha256(str_n((char *)key, sizeof(key)), STR("2"), key);
    assert_memory_equal(key, want, sizeof(key));
}

static void test_hex(void **state)
{
    char out[12];
    digest_hex_colons((const uint8_t *)"\x00\xff\x1a", 3, out);
    assert_string_equal(out, "00:ff:1a");
    digest_hex(NULL, 0, out);
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digests),
        cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_hmac_in_place),
        cmocka_unit_test(test_hex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
