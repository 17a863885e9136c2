/* Numbers and times from text. */
#include "base/num.h"

#include "base/test.h"
#include "base/time.h"

#include <errno.h>

static void numbers_are_strict(void **state)
{
    static const struct {
        const char *s;
        int want;
        uint64_t v;
    } rows[] = {
        {"0", 0, 0},
        {"007", 0, 7},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"99999999999999999999999", -ERANGE, 0},
        {"", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 ", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t v = 42;
        int r = num_u64(str_c(rows[i].s), UINT64_MAX, &v);
        if (r != rows[i].want || v != (r == 0 ? rows[i].v : 42)) {
            fail_msg("\"%s\": %d", rows[i].s, r);
        }
    }
    uint64_t v = 0;
    assert_int_equal(num_u64(STR("11"), 10, &v), -ERANGE);
    assert_int_equal(num_hex_u64(STR("fFff"), UINT64_MAX, &v), 0);
    assert_int_equal(v, 0xffff);
    assert_int_equal(num_hex_u64(STR("10000000000000000"), UINT64_MAX, &v), -ERANGE);
    int64_t i = 0;
    assert_int_equal(num_i64(STR("-9223372036854775808"), INT64_MIN, INT64_MAX, &i), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(num_i64(STR("9223372036854775808"), INT64_MIN, INT64_MAX, &i), -ERANGE);
    assert_int_equal(num_i64(STR("--1"), INT64_MIN, INT64_MAX, &i), -EINVAL);
}

static void times_print_as_aws_prints_them(void **state)
{
    char b[TIME_ISO_SIZE];
    uint64_t t = UINT64_C(1440938160) * NS_PER_S + 7 * NS_PER_MS; /* 2015-08-30T12:36:00.007Z */
    assert_string_equal(time_iso_ms(t, b), "2015-08-30T12:36:00.007Z");
    assert_string_equal(time_iso_s(t, b), "2015-08-30T12:36:00Z");
    assert_string_equal(time_basic(t, b), "20150830T123600Z");
    assert_string_equal(time_http(t, b), "Sun, 30 Aug 2015 12:36:00 GMT");
}

static void times_are_read_strictly(void **state)
{
    static const struct {
        const char *s;
        int want;
        uint64_t sec;
    } iso[] = {
        {"2015-08-30T12:36:00Z", 0, 1440938160},
        {"2015-08-30T12:36:00.5Z", 0, 1440938160},
        {"2015-08-30T14:36:00+02:00", 0, 1440938160},
        {"2015-08-30T07:06:00-0530", 0, 1440938160},
        {"2015-08-30", 0, 1440892800},
        {"2015-02-29", -EINVAL, 0},
        {"2015-13-01", -EINVAL, 0},
        {"2015-08-30T12:36", -EINVAL, 0},
        {"2015-08-30T12:36:00", -EINVAL, 0},
        {"2015-08-30T12:36:00Zx", -EINVAL, 0},
        {"2015-08-30T25:00:00Z", -EINVAL, 0},
        {"", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(iso); i++) {
        uint64_t t = 0;
        int r = time_parse_iso(str_c(iso[i].s), &t);
        if (r != iso[i].want || t / NS_PER_S != iso[i].sec) {
            fail_msg("\"%s\": %d %llu", iso[i].s, r, (unsigned long long)(t / NS_PER_S));
        }
    }
    uint64_t t = 0;
    assert_int_equal(time_parse_basic(STR("20150830T123600Z"), &t), 0);
    assert_int_equal(t / NS_PER_S, 1440938160);
    assert_int_equal(time_parse_basic(STR("20150230T123600Z"), &t), -EINVAL);
    assert_int_equal(time_parse_basic(STR("20150830123600Z"), &t), -EINVAL);
    assert_int_equal(time_parse_http(STR("Sun, 30 Aug 2015 12:36:00 GMT"), &t), 0);
    assert_int_equal(t / NS_PER_S, 1440938160);
    assert_int_equal(time_parse_http(STR("Sun, 30 Xxx 2015 12:36:00 GMT"), &t), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(times_print_as_aws_prints_them),
        cmocka_unit_test(times_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
