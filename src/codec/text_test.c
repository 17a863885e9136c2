#include "base/test.h"
#include "codec/base64.h"
#include "codec/hex.h"
#include "codec/metric.h"
#include "codec/uri.h"
#include <errno.h>

static void test_base64(void **state)
{
    static const struct {
        const char *text, *bytes; /* bytes NULL = refused when strict */
        const char *lax;          /* NULL = refused when lax */
    } cases[] = {
        {"", "", ""},
        {"Zg==", "f", "f"},
        {"Zm8=", "fo", "fo"},
        {"Zm9v", "foo", "foo"},
        {"Zm9vYmFy", "foobar", "foobar"},
        {"Zg", NULL, "f"},
        {"Zm8", NULL, "fo"},
        {"Zm9v\nYmFy\r\n", NULL, "foobar"},
        {"Z", NULL, NULL},
        {"Zh==", NULL, NULL}, /* stray bits */
        {"Zm9=", NULL, NULL},
        {"Zg=", NULL, NULL},
        {"Zg==Zg==", NULL, NULL},
        {"Zm=v", NULL, NULL},
        {"=Zm9", NULL, NULL},
        {"Zm9v====", NULL, NULL},
        {"Zm9-", NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int is_lax = 0; is_lax < 2; is_lax++) {
            const char *want = is_lax ? cases[i].lax : cases[i].bytes;
            AUTO_BUF out;
            buf_init(&out, 6);
            int r = is_lax ? base64_decode_lax(str_c(cases[i].text), &out)
                           : base64_decode(str_c(cases[i].text), &out);
            if (r != (want ? 0 : -EINVAL)) {
                fail_msg("'%s' lax %d: %d", cases[i].text, is_lax, r);
            }
            assert_string_equal(buf_cstr(&out), want ? want : "");
        }
        if (cases[i].bytes) {
            AUTO_BUF out;
            buf_init(&out, 100);
            base64_encode(str_c(cases[i].bytes), &out);
            assert_string_equal(buf_cstr(&out), cases[i].text);
        }
    }
    AUTO_BUF out;
    buf_init(&out, 5);
    assert_int_equal(base64_decode(STR("Zm9vYmFy"), &out), -E2BIG);
}

static void test_base64_all_bytes(void **state)
{
    char all[256];
    for (size_t i = 0; i < sizeof(all); i++) {
        all[i] = (char)(unsigned char)i;
    }
    for (size_t n = 0; n <= sizeof(all); n++) {
        AUTO_BUF text;
        AUTO_BUF back;
        buf_init(&text, BASE64_LEN(n));
        buf_init(&back, n);
        base64_encode(str_n(all, n), &text);
        assert_int_equal(base64_decode(buf_str(&text), &back), 0);
        assert_true(str_eq(buf_str(&back), str_n(all, n)));
    }
}

static void test_hex(void **state)
{
    AUTO_BUF out;
    buf_init(&out, 100);
    hex_encode("\x00\xffZ", 3, &out);
    assert_string_equal(buf_cstr(&out), "00ff5a");
    unsigned char b[3] = {1, 2, 3};
    assert_int_equal(hex_decode(STR("00fF5a"), b, 3), 0);
    assert_memory_equal(b, "\x00\xffZ", 3);
    assert_int_equal(hex_decode(STR("00ff5"), b, 3), -EINVAL);
    assert_int_equal(hex_decode(STR("00ff5g"), b, 3), -EINVAL);
    assert_int_equal(hex_decode(STR("00ff5a00"), b, 3), -EINVAL);
}

static void test_uri(void **state)
{
    AUTO_BUF out;
    buf_init(&out, 100);
    uri_encode(STR("aZ9-_.~ /+\xc3\xa4%"), URI_PLAIN, &out);
    assert_string_equal(buf_cstr(&out), "aZ9-_.~%20%2F%2B%C3%A4%25");
    buf_clear(&out);
    uri_encode(STR("/a b/"), URI_KEEP_SLASH, &out);
    assert_string_equal(buf_cstr(&out), "/a%20b/");

    static const struct {
        const char *in, *plain, *form; /* NULL = refused */
    } cases[] = {
        {"a+b%20c", "a+b c", "a b c"},
        {"%41%7e%7E", "A~~", "A~~"},
        {"%", NULL, NULL},
        {"%4", NULL, NULL},
        {"%4g", NULL, NULL},
        {"a%%41", NULL, NULL},
        {"", "", ""},
        {"%2b", "+", "+"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int is_form = 0; is_form < 2; is_form++) {
            AUTO(arena_freep) struct arena *a = arena_new(1000);
            const char *want = is_form ? cases[i].form : cases[i].plain;
            struct str got = STR_NONE;
            int r = uri_decode(a, str_c(cases[i].in), is_form ? URI_PLUS_IS_SPACE : URI_PLAIN,
                               &got);
            assert_int_equal(r, want ? 0 : -EINVAL);
            assert_true(!want || str_eqc(got, want));
        }
    }
}

static void test_fields(void **state)
{
    struct str rest = STR("a=1&&b&c==x&=v&"), name = STR_NONE, value = STR_NONE;
    static const struct {
        const char *name, *value;
    } want[] = {{"a", "1"}, {"b", NULL}, {"c", "=x"}, {"", "v"}};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_true(uri_next_field(&rest, &name, &value));
        assert_true(str_eqc(name, want[i].name));
        assert_true(want[i].value ? str_eqc(value, want[i].value) : !str_is_set(value));
    }
    assert_false(uri_next_field(&rest, &name, &value));
    rest = STR_NONE;
    assert_false(uri_next_field(&rest, &name, &value));
}

static void test_metrics(void **state)
{
    AUTO_BUF b;
    buf_init(&b, 4096);
    const struct metric_label labels[] = {{"volume", STR("vol-1")},
                                          {"why", STR("a \"b\"\\\nc")}};
    metric_family(&b, "x_total", "counter", "What it is.");
    metric_u64(&b, "x_total", NULL, 0, 0);
    metric_u64(&b, "x_total", labels, 2, UINT64_MAX);
    metric_seconds(&b, "x_seconds", labels, 1, UINT64_C(1500000001));
    assert_string_equal(buf_cstr(&b), "# HELP x_total What it is.\n# TYPE x_total counter\n"
                                      "x_total 0\n"
                                      "x_total{volume=\"vol-1\",why=\"a \\\"b\\\"\\\\\\nc\"} "
                                      "18446744073709551615\n"
                                      "x_seconds{volume=\"vol-1\"} 1.500000001\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base64), cmocka_unit_test(test_base64_all_bytes),
        cmocka_unit_test(test_hex),    cmocka_unit_test(test_uri),
        cmocka_unit_test(test_fields), cmocka_unit_test(test_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
