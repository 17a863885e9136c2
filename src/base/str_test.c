#include "base/str.h"

#include "base/test.h"

static void slices_and_fields(void **state)
{
    struct str s = STR("a,,b"), f;
    assert_true(str_next(&s, ',', &f));
    assert_str(f, "a");
    assert_true(str_next(&s, ',', &f));
    assert_str(f, "");
    assert_true(str_next(&s, ',', &f));
    assert_str(f, "b");
    assert_false(str_next(&s, ',', &f));

    struct str empty = STR("");
    assert_true(str_next(&empty, ',', &f));
    assert_int_equal(f.n, 0);
    assert_false(str_next(&empty, ',', &f));

    assert_str(str_trim(STR(" \t x y\r\n")), "x y");
    assert_str(str_skip(STR("abc"), 99), "");
    assert_str(str_cut(STR("k=v=w"), '='), "k");
    assert_int_equal(str_find_str(STR("hello"), STR("lo")), 3);
    assert_int_equal(str_find_str(STR(""), STR("x")), -1);
    assert_true(str_ieq(STR("Host"), STR("hOST")));
    assert_false(str_eq(STR("a"), STR("ab")));
}

static void order_is_bytewise_and_prefix_first(void **state)
{
    assert_int_equal(str_cmp(STR("a"), STR("ab")), -1);
    assert_int_equal(str_cmp(STR("ab"), STR("a")), 1);
    assert_int_equal(str_cmp(STR("\xff"), STR("a")), 1);
    assert_int_equal(str_cmp(STR(""), STR("")), 0);
}

static void glob_follows_aws_filters_and_policies(void **state)
{
    static const struct {
        const char *pattern, *s;
        unsigned flags;
        bool want;
    } rows[] = {
        {"*", "", 0, true},
        {"", "", 0, true},
        {"", "a", 0, false},
        {"web*", "web-1", 0, true},
        {"web?", "web1", 0, true},
        {"web?", "web", 0, false},
        {"*a*b*", "xxaxxb", 0, true},
        {"*a*b", "xxaxxbx", 0, false},
        {"***a", "a", 0, true},
        {"a?*?", "abc", 0, true},
        {"a?*?", "ab", 0, false},
        {"\\*x", "*x", STR_GLOB_QUOTES, true},
        {"\\*x", "yx", STR_GLOB_QUOTES, false},
        {"a\\?", "a?", STR_GLOB_QUOTES, true},
        {"a\\?", "ab", STR_GLOB_QUOTES, false},
        {"a\\", "a\\", STR_GLOB_QUOTES, true}, /* nothing to quote */
        {"a\\?", "a\\b", 0, true},
        {"ec2:Run*", "EC2:runInstances", 0, false},
        {"ec2:Run*", "EC2:runInstances", STR_GLOB_IGNORES_CASE, true},
        {"a[", "A{", STR_GLOB_IGNORES_CASE, false}, /* letters only */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (str_glob(str_c(rows[i].pattern), str_c(rows[i].s), rows[i].flags) != rows[i].want) {
            fail_msg("glob \"%s\" on \"%s\" (%u)", rows[i].pattern, rows[i].s, rows[i].flags);
        }
    }
}

/* A pattern that makes a naive matcher exponential ends at once. */
static void glob_is_not_exponential(void **state)
{
    char s[2000], p[400];
    memset(s, 'a', sizeof(s));
    for (size_t i = 0; i < sizeof(p); i += 2) {
        p[i] = '*';
        p[i + 1] = 'a';
    }
    p[sizeof(p) - 1] = 'b';
    assert_false(str_glob(str_n(p, sizeof(p)), str_n(s, sizeof(s)), 0));
}

static void utf8_counts_code_points_and_refuses_bad_bytes(void **state)
{
    assert_int_equal(str_utf8_len(STR("h\xc3\xa9llo")), 5);
    assert_int_equal(str_utf8_len(STR("\xf0\x9f\x98\x80")), 1);
    static const char *bad[] = {"\xc0\x80",     "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                "\xe0\x80\x80", "\xff",         "\xc3"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(str_utf8_len(str_c(bad[i])), SIZE_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_and_fields),
        cmocka_unit_test(order_is_bytewise_and_prefix_first),
        cmocka_unit_test(glob_follows_aws_filters_and_policies),
        cmocka_unit_test(glob_is_not_exponential),
        cmocka_unit_test(utf8_counts_code_points_and_refuses_bad_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
