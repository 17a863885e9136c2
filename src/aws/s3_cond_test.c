/* Ranges and conditions: tables of what is asked, what is there, what is answered. */
#include "aws/s3_cond.h"

#include "aws/s3_range.h"
#include "base/test.h"
#include "base/time.h"
#include <stdio.h>

/* ---- ranges ---- */

static const struct {
    const char *header;
    uint64_t size;
    int status; /* 200, 206, 416 */
    uint64_t first, n;
} ranges[] = {
    {NULL, 100, 200, 0, 100},
    {"bytes=0-9", 100, 206, 0, 10},
    {"bytes=0-0", 100, 206, 0, 1},
    {"bytes=10-", 100, 206, 10, 90},
    {"bytes=99-99", 100, 206, 99, 1},
    {"bytes=0-1000", 100, 206, 0, 100},
    {"bytes=50-18446744073709551616", 100, 206, 50, 50},
    {"bytes=-10", 100, 206, 90, 10},
    {"bytes=-100", 100, 206, 0, 100},
    {"bytes=-1000", 100, 206, 0, 100},
    {"Bytes=0-9", 100, 206, 0, 10},
    {"bytes= 0-9 ", 100, 206, 0, 10},
    {"bytes=100-", 100, 416, 0, 0},
    {"bytes=100-200", 100, 416, 0, 0},
    {"bytes=99999999999999999999-", 100, 416, 0, 0},
    {"bytes=-0", 100, 416, 0, 0},
    {"bytes=0-", 0, 416, 0, 0},
    {"bytes=40-50", 0, 416, 0, 0},
    {"bytes=-5", 0, 200, 0, 0},
    /* what AWS does not take for one range */
    {"bytes=0-9,20-29", 100, 200, 0, 100},
    {"bytes=9-0", 100, 200, 0, 100},
    {"bytes=", 100, 200, 0, 100},
    {"bytes=-", 100, 200, 0, 100},
    {"bytes=a-b", 100, 200, 0, 100},
    {"bytes=1", 100, 200, 0, 100},
    {"bytes=1-2-3", 100, 200, 0, 100},
    {"bytes=+1-2", 100, 200, 0, 100},
    {"bytes=--5", 100, 200, 0, 100},
    {"items=0-9", 100, 200, 0, 100},
    {"0-9", 100, 200, 0, 100},
    {"", 100, 200, 0, 100},
};

static void test_ranges(void **state)
{
    struct arena *a = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
        struct s3_range r;
        struct s3_extra extra = {.n = 0};
        struct err err = ERR_INIT;
        int rc = s3_range_parse(a, str_c(ranges[i].header), ranges[i].size, &r, &extra, &err);
        int status = rc < 0 ? 416 : r.is_partial ? 206 : 200;
        if (status != ranges[i].status) {
            fail_msg("case %zu: %d", i, status);
        }
        if (rc < 0) {
            assert_string_equal(err.name, "InvalidRange");
            assert_string_equal(extra.v[0].name, "RangeRequested");
            assert_str(extra.v[0].value, ranges[i].header);
            assert_string_equal(extra.v[1].name, "ActualObjectSize");
        } else {
            assert_int_equal(r.first, ranges[i].first);
            assert_int_equal(r.size, ranges[i].n);
        }
    }
    struct s3_range r = {.is_partial = true, .first = 5, .size = 10};
    char text[S3_CONTENT_RANGE_SIZE];
    assert_string_equal(s3_content_range(&r, 100, text), "bytes 5-14/100");
    arena_free(a);
}

static void test_copy_ranges(void **state)
{
    static const struct {
        const char *header, *code;
        uint64_t first, n;
    } cases[] = {
        {NULL, NULL, 0, 5},
        {"bytes=0-4", NULL, 0, 5},
        {"bytes=4-4", NULL, 4, 1},
        {"bytes=0-5", "InvalidRange", 0, 0},
        {"bytes=0-21", "InvalidRange", 0, 0},
        {"bytes=0", "InvalidArgument", 0, 0},
        {"bytes=0-", "InvalidArgument", 0, 0},
        {"bytes=-3", "InvalidArgument", 0, 0},
        {"bytes=hello-", "InvalidArgument", 0, 0},
        {"bytes=0-bar", "InvalidArgument", 0, 0},
        {"0-2", "InvalidArgument", 0, 0},
        {"bytes=0-2,3-4", "InvalidArgument", 0, 0},
        {"bytes=3-2", "InvalidArgument", 0, 0},
        {"bytes=0-99999999999999999999", "InvalidArgument", 0, 0},
        {"", "InvalidArgument", 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct s3_range r;
        struct err err = ERR_INIT;
        int rc = s3_copy_range_parse(str_c(cases[i].header), 5, &r, &err);
        assert_int_equal(rc == 0, cases[i].code == NULL);
        if (rc < 0) {
            assert_string_equal(err.name, cases[i].code);
        } else {
            assert_int_equal(r.first, cases[i].first);
            assert_int_equal(r.size, cases[i].n);
        }
    }
}

static void test_part_numbers(void **state)
{
    struct arena *a = arena_new(1u << 20);
    static const struct {
        const char *text, *range, *code;
    } cases[] = {{"1", NULL, NULL},
                 {"10000", NULL, NULL},
                 {"0", NULL, "InvalidArgument"},
                 {"10001", NULL, "InvalidArgument"},
                 {"-1", NULL, "InvalidArgument"},
                 {"x", NULL, "InvalidArgument"},
                 {"", NULL, "InvalidArgument"},
                 {"1", "bytes=0-1", "InvalidRequest"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        unsigned n = 0;
        struct err err = ERR_INIT;
        int rc = s3_part_number(str_c(cases[i].text), str_c(cases[i].range), &n, &err);
        assert_int_equal(rc == 0, cases[i].code == NULL);
        assert_true(rc == 0 || strcmp(err.name, cases[i].code) == 0);
    }
    struct s3_extra extra = {.n = 0};
    struct err err = ERR_INIT;
    assert_int_equal(s3_part_check(a, 1, 0, &extra, &err), 0);
    assert_int_equal(s3_part_check(a, 3, 3, &extra, &err), 0);
    assert_true(s3_part_check(a, 4, 3, &extra, &err) < 0);
    assert_string_equal(err.name, "InvalidPartNumber");
    assert_str(extra.v[0].value, "4");
    assert_str(extra.v[1].value, "3");
    arena_free(a);
}

/* ---- conditions ---- */

#define ETAG   "abcd"
#define BEFORE "Mon, 30 Nov 2026 11:59:59 GMT"
#define AT     "Mon, 30 Nov 2026 12:00:00 GMT"
#define AFTER  "Mon, 30 Nov 2026 12:00:01 GMT"
#define FUTURE "Mon, 30 Nov 2026 14:00:00 GMT"

static void test_etag_lists(void **state)
{
    static const struct {
        const char *list;
        bool is_in;
    } cases[] = {
        {"\"abcd\"", true},   {"abcd", true},
        {"W/\"abcd\"", true}, {"\"abcd", true},
        {"abcd\"", true},     {"*", true},
        {" * ", true},        {"\"x\", \"abcd\"", true},
        {"x,abcd", true},     {"\"x\"", false},
        {"", false},          {"\"\"", false},
        {",", false},         {"ABCD", false},
        {"\"abc\"", false},   {"\"abcde\"", false},
        {"\"*\"", false},     {"x, W/\"abcd\" , y", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (s3_etag_in(str_c(cases[i].list), STR(ETAG)) != cases[i].is_in) {
            fail_msg("%s", cases[i].list);
        }
    }
    assert_false(s3_etag_in(STR_NONE, STR(ETAG)));
    assert_str(s3_etag_bare(STR(" W/\"a-1\" ")), "a-1");
}

/* The object's ETag is "abcd", its time 12:00:00.5. */
static const struct {
    const char *match, *none, *modified, *unmodified;
    int read; /* 200, 304, 412 */
    const char *condition;
} reads[] = {
    {NULL, NULL, NULL, NULL, 200, NULL},
    {ETAG, NULL, NULL, NULL, 200, NULL},
    {"x", NULL, NULL, NULL, 412, "If-Match"},
    {"*", NULL, NULL, NULL, 200, NULL},
    {NULL, ETAG, NULL, NULL, 304, "If-None-Match"},
    {NULL, "*", NULL, NULL, 304, "If-None-Match"},
    {NULL, "x", NULL, NULL, 200, NULL},
    {NULL, NULL, BEFORE, NULL, 200, NULL},
    {NULL, NULL, AT, NULL, 304, "If-Modified-Since"},
    {NULL, NULL, AFTER, NULL, 304, "If-Modified-Since"},
    {NULL, NULL, FUTURE, NULL, 200, NULL}, /* a date to come is no condition */
    {NULL, NULL, "garbage", NULL, 200, NULL},
    {NULL, NULL, "2026-11-30T12:00:00Z", NULL, 304, "If-Modified-Since"},
    {NULL, NULL, "Monday, 30-Nov-26 12:00:00 GMT", NULL, 304, "If-Modified-Since"},
    {NULL, NULL, "Mon Nov 30 12:00:00 2026", NULL, 304, "If-Modified-Since"},
    {NULL, NULL, "Mon Nov 30 11:59:59 2026", NULL, 200, NULL},
    {NULL, NULL, "Mon Nov 30 12:00:00 2026 x", NULL, 200, NULL},
    {NULL, NULL, NULL, BEFORE, 412, "If-Unmodified-Since"},
    {NULL, NULL, NULL, AT, 200, NULL},
    {NULL, NULL, NULL, AFTER, 200, NULL},
    {NULL, NULL, NULL, "garbage", 200, NULL},
    /* precedence: a true If-Match beats If-Unmodified-Since, If-None-Match If-Modified-Since */
    {ETAG, NULL, NULL, BEFORE, 200, NULL},
    {"x", NULL, NULL, AFTER, 412, "If-Match"},
    {NULL, "x", AFTER, NULL, 200, NULL},
    {NULL, ETAG, BEFORE, NULL, 304, "If-None-Match"},
    /* 412 before 304 */
    {"x", ETAG, NULL, NULL, 412, "If-Match"},
    {ETAG, ETAG, NULL, NULL, 304, "If-None-Match"},
    {NULL, ETAG, NULL, BEFORE, 412, "If-Unmodified-Since"},
    {NULL, NULL, AFTER, BEFORE, 412, "If-Unmodified-Since"},
};

static size_t headers_of(struct http_header *h, const char *prefix, size_t i)
{
    static char names[4][64];
    static const char *const plain[] = {"If-Match", "If-None-Match", "If-Modified-Since",
                                        "If-Unmodified-Since"};
    const char *const v[] = {reads[i].match, reads[i].none, reads[i].modified,
                             reads[i].unmodified};
    size_t n = 0;
    for (size_t k = 0; k < 4; k++) {
        if (v[k]) {
            snprintf(names[k], sizeof(names[k]), "%s%s", prefix, plain[k]);
            h[n++] = (struct http_header){str_c(names[k]), str_c(v[k])};
        }
    }
    return n;
}

static void test_reads_and_copies(void **state)
{
    uint64_t at = 0, now = 0;
    assert_int_equal(time_parse_http(STR(AT), &at), 0);
    now = at + 3600 * NS_PER_S;
    at += 500 * NS_PER_MS;
    for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
        for (int is_copy = 0; is_copy < 2; is_copy++) {
            struct http_header h[4];
            struct s3_cond c;
            struct s3_extra extra = {.n = 0};
            struct err err = ERR_INIT;
            size_t n = headers_of(h, is_copy ? "X-Amz-Copy-Source-" : "", i);
            int rc;
            if (is_copy) {
                s3_cond_parse_copy(h, n, &c);
                rc = s3_cond_copy(&c, STR(ETAG), at, now, &extra, &err);
            } else {
                s3_cond_parse(h, n, &c);
                rc = s3_cond_read(&c, STR(ETAG), at, now, &extra, &err);
            }
            int want = is_copy && reads[i].read == 304 ? 412 : reads[i].read;
            int got = rc < 0 ? 412 : rc == 1 ? 304 : 200;
            if (got != want) {
                fail_msg("case %zu%s: %d", i, is_copy ? " (copy)" : "", got);
            }
            if (got == 412) {
                assert_string_equal(err.name, "PreconditionFailed");
                assert_string_equal(extra.v[0].name, "Condition");
                assert_true(str_has_suffix(extra.v[0].value, str_c(reads[i].condition)));
            }
        }
    }
}

static const struct {
    const char *match, *none;
    int absent, present; /* 200, 404, 412, 501 */
} writes[] = {
    {NULL, NULL, 200, 200}, {NULL, "*", 200, 412},        {NULL, " * ", 200, 412},
    {ETAG, NULL, 404, 200}, {"\"abcd\"", NULL, 404, 200}, {"x", NULL, 404, 412},
    {"*", NULL, 412, 200},  {NULL, ETAG, 200, 412},       {NULL, "x", 200, 200},
    {ETAG, "*", 501, 501},
};

static int status_of(int rc, const struct err *err)
{
    return rc == 0                                        ? 200
           : strcmp(err->name, "PreconditionFailed") == 0 ? 412
           : strcmp(err->name, "NoSuchKey") == 0          ? 404
           : strcmp(err->name, "NotImplemented") == 0     ? 501
                                                          : 400;
}

static void test_writes(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(writes); i++) {
        for (int exists = 0; exists < 2; exists++) {
            struct http_header h[2];
            struct s3_cond_write w;
            struct err err = ERR_INIT;
            const struct s3_cond_now now = {.exists = exists, .etag = STR(ETAG)};
            size_t n = 0;
            if (writes[i].match) {
                h[n++] = (struct http_header){STR("if-match"), str_c(writes[i].match)};
            }
            if (writes[i].none) {
                h[n++] = (struct http_header){STR("If-None-Match"), str_c(writes[i].none)};
            }
            int rc = s3_cond_write_parse(h, n, &w, &err);
            rc = rc < 0 ? rc : s3_cond_write_check(&w, &now, NULL, &err);
            int want = exists ? writes[i].present : writes[i].absent;
            if (status_of(rc, &err) != want) {
                fail_msg("case %zu, exists %d: %s", i, exists, err.name ? err.name : "good");
            }
        }
    }
    struct http_header date = {STR("If-Unmodified-Since"), STR(AT)};
    struct s3_cond_write w;
    struct err err = ERR_INIT;
    assert_true(s3_cond_write_parse(&date, 1, &w, &err) < 0);
    assert_string_equal(err.name, "NotImplemented");
}

static void test_deletes(void **state)
{
    static const struct {
        const char *match, *mtime, *size;
        int absent, present;
    } cases[] = {
        {NULL, NULL, NULL, 200, 200},  {ETAG, NULL, NULL, 200, 200},
        {"x", NULL, NULL, 200, 412},   {"*", NULL, NULL, 200, 200},
        {NULL, AT, NULL, 200, 200},    {NULL, BEFORE, NULL, 200, 412},
        {NULL, AFTER, NULL, 200, 412}, {NULL, NULL, "7", 200, 200},
        {NULL, NULL, "8", 200, 412},   {ETAG, AT, "7", 200, 200},
        {ETAG, AT, "6", 200, 412},     {NULL, NULL, "-1", 400, 400},
        {NULL, NULL, "x", 400, 400},   {NULL, "never", NULL, 400, 400},
    };
    uint64_t at = 0;
    assert_int_equal(time_parse_http(STR(AT), &at), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int exists = 0; exists < 2; exists++) {
            struct http_header h[3];
            struct s3_cond_write w;
            struct err err = ERR_INIT;
            const struct s3_cond_now now = {
                .exists = exists, .etag = STR(ETAG), .mtime_ns = at + 7, .size = 7};
            size_t n = 0;
            if (cases[i].match) {
                h[n++] = (struct http_header){STR("If-Match"), str_c(cases[i].match)};
            }
            if (cases[i].mtime) {
                h[n++] = (struct http_header){STR("x-amz-if-match-last-modified-time"),
                                              str_c(cases[i].mtime)};
            }
            if (cases[i].size) {
                h[n++] = (struct http_header){STR("x-amz-if-match-size"), str_c(cases[i].size)};
            }
            int rc = s3_cond_delete_parse(h, n, &w, &err);
            rc = rc < 0 ? rc : s3_cond_delete_check(&w, &now, NULL, &err);
            int want = exists ? cases[i].present : cases[i].absent;
            if (status_of(rc, &err) != want) {
                fail_msg("case %zu, exists %d: %s", i, exists, err.name ? err.name : "good");
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),           cmocka_unit_test(test_copy_ranges),
        cmocka_unit_test(test_part_numbers),     cmocka_unit_test(test_etag_lists),
        cmocka_unit_test(test_reads_and_copies), cmocka_unit_test(test_writes),
        cmocka_unit_test(test_deletes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
