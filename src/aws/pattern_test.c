#include "aws/pattern.h"

#include "base/test.h"
#include "base/time.h"

static void test_patterns(void **state)
{
    static const struct {
        const char *pattern, *text;
        enum pattern_verdict want;
    } cases[] = {
        {"[\\w+=,.@-]+", "a.b-C_9@x", PATTERN_MATCHES},
        {"[\\w+=,.@-]+", "", PATTERN_DIFFERS},
        {"[\\w+=,.@-]+", "a b", PATTERN_DIFFERS},
        {"[\\w+=,.@-]*", "", PATTERN_MATCHES},
        {"\\d{12}", "123456789012", PATTERN_MATCHES},
        {"\\d{12}", "12345678901", PATTERN_DIFFERS},
        {"\\d{12}", "1234567890123", PATTERN_DIFFERS},
        {"^o-[a-z0-9]{10,32}$", "o-0123456789", PATTERN_MATCHES},
        {"^o-[a-z0-9]{10,32}$", "o-012345678", PATTERN_DIFFERS},
        {"^o-[a-z0-9]{10,32}$", "p-0123456789", PATTERN_DIFFERS},
        {"[\\u0009\\u000A\\u000D\\u0020-\\u007E\\u00A1-\\u00FF]*", "tab\t, \xc3\xa9, line\n",
         PATTERN_MATCHES},
        {"[\\u0009\\u000A\\u000D\\u0020-\\u007E\\u00A1-\\u00FF]*", "\xe6\x97\xa5",
         PATTERN_DIFFERS},
        {"\\u002F[\\u0021-\\u007F]*", "/x/", PATTERN_MATCHES},
        {"\\u002F[\\u0021-\\u007F]*", "x/", PATTERN_DIFFERS},
        {"[ -~]+", "plain text", PATTERN_MATCHES},
        {"a?b{2,}c", "bbbc", PATTERN_MATCHES},
        {"a?b{2,}c", "abc", PATTERN_DIFFERS},
        {"[^x]{1,3}", "ab", PATTERN_MATCHES},
        {"[^x]{1,3}", "axb", PATTERN_DIFFERS},
        {"a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", PATTERN_DIFFERS},
        {"a.c", "a\nc", PATTERN_DIFFERS},
        /* Not judged. */
        {"^[a-z0-9]([a-z0-9]|-(?!-)){1,61}[a-z0-9]$", "x", PATTERN_UNKNOWN},
        {"(\\u002F)|(\\u002F[\\u0021-\\u007E]+\\u002F)", "x", PATTERN_UNKNOWN},
        {"[\\p{L}]+", "x", PATTERN_UNKNOWN},
        {"a+?", "a", PATTERN_UNKNOWN},
        {"[a", "a", PATTERN_UNKNOWN},
        {"a{", "a", PATTERN_UNKNOWN},
        {"a{2", "aa", PATTERN_UNKNOWN},
        {"a\\", "a", PATTERN_UNKNOWN},
        {"\\u00", "a", PATTERN_UNKNOWN},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum pattern_verdict got = pattern_match(cases[i].pattern, str_c(cases[i].text));
        if (got != cases[i].want) {
            fail_msg("%s on '%s': %d, not %d", cases[i].pattern, cases[i].text, got,
                     cases[i].want);
        }
    }
}

/* A pattern that a naive matcher would need hours for ends at once. */
static void test_time_is_bounded(void **state)
{
    static char text[200001];
    memset(text, 'a', sizeof(text) - 1);
    uint64_t begin = time_mono_ns();
    assert_int_equal(pattern_match("a*a*a*a*a*a*b", str_c(text)), PATTERN_UNKNOWN);
    assert_int_equal(pattern_match("[ab]+", str_c(text)), PATTERN_MATCHES);
    assert_true(time_mono_ns() - begin < 5 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_time_is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
