#include "base/test.h"
#include "spx/bundle.h"
#include <stdio.h>

static void no_planted_secret_is_in_the_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *secret; /* secret NULL: the text stays as it is */
    } t[] = {
        {"key AKIAIOSFODNN7EXAMPLE of bob", "AKIAIOSFODNN7"},
        {"ran ASIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7"},
        {"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "K7MDENG"},
        {"{\"secret_access_key\":\"short\",\"a\":1}", "short"},
        {"Password = hunter2", "hunter2"},
        {"user_data=IyEvYmluL3NoCg==", "IyEvYmlu"},
        {"at https://bob:hunter2@10.0.0.1/x", "hunter2"},
        {"-----BEGIN PRIVATE KEY-----\nMIGH\nAgEA\n-----END PRIVATE KEY-----\n", "AgEA"},
        {"-----BEGIN RSA PRIVATE KEY-----\nMIGH cut", "MIGH"},
        {"root 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", "8899aabb"},
        {"QUtJQUlPU0ZPRE5ON0VYQU1QTEU=", "QUtJQUlP"},
        {"aHVudGVyMi1odW50ZXIyLWh1bnRlcjI", "aHVudGVy"},
        {"X-Amz-Signature=abcd&x", "abcd"},
        {"status/instance/000000000001/i-0123456789abcdef0", NULL},
        {"took 1733011200000000000 ns in /var/lib/spinifex/volumes", NULL},
        {"request 6fd1a2b3-0c4d-4e5f-8a9b-0123456789ab failed: http://10.0.0.1:9999/", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        AUTO_BUF out;
        buf_init(&out, 65536);
        bundle_redact(str_c(t[i].text), &out);
        assert_true(buf_ok(&out));
        if (!t[i].secret) {
            assert_str(str_trim(buf_str(&out)), t[i].text);
        } else if (str_find_str(buf_str(&out), str_c(t[i].secret)) >= 0 ||
                   str_find_str(buf_str(&out), STR("[removed")) < 0) {
            fail_msg("\"%s\" became \"%s\"", t[i].text, buf_cstr(&out));
        }
    }
}

/* Offsets and the sum: POSIX.1-1988, "ustar Interchange Format". */
static void a_tar_file_is_as_the_standard_says(void **state)
{
    (void)state;
    AUTO_BUF tar;
    buf_init(&tar, 1u << 20);
    bundle_add(&tar, "d/a.txt", STR("hello"), 1);
    bundle_end(&tar);
    assert_true(buf_ok(&tar));
    assert_int_equal(tar.n, 4 * 512);
    assert_string_equal(tar.p, "d/a.txt");
    assert_string_equal(tar.p + 124, "00000000005");
    assert_memory_equal(tar.p + 257, "ustar\00000", 8);
    assert_memory_equal(tar.p + 512, "hello", 6);
    unsigned sum = 0;
    for (size_t i = 0; i < 512; i++) {
        sum += i >= 148 && i < 156 ? ' ' : (unsigned char)tar.p[i];
    }
    char want[8];
    (void)snprintf(want, sizeof(want), "%06o", sum & 0777777);
    assert_string_equal(tar.p + 148, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_planted_secret_is_in_the_text),
        cmocka_unit_test(a_tar_file_is_as_the_standard_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
