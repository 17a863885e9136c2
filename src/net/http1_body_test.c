#include "net/http1_body.h"

#include "base/buf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define CHUNKED -1

static const struct {
    int64_t length;
    const char *raw;
    int want; /* an enum http1_body_step or -EBADMSG */
    const char *data;
    size_t used; /* bytes of raw that belong to the body; 0 = all */
} rows[] = {
    {0, "", HTTP1_BODY_END, ""},
    {0, "GET /next", HTTP1_BODY_END, "", .used = 0},
    {5, "hello", HTTP1_BODY_END, "hello"},
    {5, "helloGET", HTTP1_BODY_END, "hello", 5},
    {5, "hell", HTTP1_BODY_MORE, "hell"},
    {CHUNKED, "0\r\n\r\n", HTTP1_BODY_END, ""},
    {CHUNKED, "5\r\nhello\r\n0\r\n\r\n", HTTP1_BODY_END, "hello"},
    {CHUNKED, "5\r\nhello\r\n0\r\n\r\nGET / ", HTTP1_BODY_END, "hello", 15},
    {CHUNKED, "3\r\nabc\r\n0002\r\nde\r\n000\r\n\r\n", HTTP1_BODY_END, "abcde"},
    {CHUNKED, "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", HTTP1_BODY_END,
     "01234567890123456789"},
    {CHUNKED, "4\r\n\r\n\r\n\r\n0\r\n\r\n", HTTP1_BODY_END, "\r\n\r\n"},
    {CHUNKED, "1;a\r\nx\r\n0;b=\"c d\";e\r\n\r\n", HTTP1_BODY_END, "x"},
    {CHUNKED, "1;\r\nx\r\n0\r\n\r\n", HTTP1_BODY_END, "x"},
    {CHUNKED, "0\r\nX-A: 1\r\nX-B:\r\n\r\n", HTTP1_BODY_END, ""},
    {CHUNKED, "0\r\nContent-Length: 9\r\n\r\n", HTTP1_BODY_END, ""},
    {CHUNKED, "", HTTP1_BODY_MORE, ""},
    {CHUNKED, "5", HTTP1_BODY_MORE, ""},
    {CHUNKED, "5\r", HTTP1_BODY_MORE, ""},
    {CHUNKED, "5\r\nhello", HTTP1_BODY_MORE, "hello"},
    {CHUNKED, "5\r\nhello\r\n", HTTP1_BODY_MORE, "hello"},
    {CHUNKED, "0\r\n", HTTP1_BODY_MORE, ""},
    {CHUNKED, "0\r\n\r", HTTP1_BODY_MORE, ""},
    {CHUNKED, "0\r\nA: b\r\n", HTTP1_BODY_MORE, ""},
    /* Malformed. */
    {CHUNKED, "\r\n", -EBADMSG, ""},
    {CHUNKED, "x\r\n", -EBADMSG, ""},
    {CHUNKED, "0x5\r\nhello\r\n", -EBADMSG, ""},
    {CHUNKED, "-1\r\n", -EBADMSG, ""},
    {CHUNKED, "+1\r\n", -EBADMSG, ""},
    {CHUNKED, " 1\r\nx\r\n", -EBADMSG, ""},
    {CHUNKED, "1 \r\nx\r\n", -EBADMSG, ""},
    {CHUNKED, "1 ;a\r\nx\r\n", -EBADMSG, ""},
    {CHUNKED, ";a\r\n", -EBADMSG, ""},
    {CHUNKED, "1\nx\r\n", -EBADMSG, ""},
    {CHUNKED, "1\rx", -EBADMSG, ""},
    {CHUNKED, "1\r\nx\n0\r\n\r\n", -EBADMSG, "x"},
    {CHUNKED, "1\r\nxy\r\n", -EBADMSG, "x"},
    {CHUNKED, "1\r\nx\r0", -EBADMSG, "x"},
    {CHUNKED, "5\r\nhello0\r\n\r\n", -EBADMSG, "hello"},
    {CHUNKED, "1;a\nb\r\nx\r\n", -EBADMSG, ""},
    {CHUNKED, "1;a\x01\r\nx\r\n", -EBADMSG, ""},
    {CHUNKED, "1;a\rb\r\nx\r\n", -EBADMSG, ""},
    {CHUNKED, "fffffffffffffff\r\n", HTTP1_BODY_MORE, ""},
    {CHUNKED, "ffffffffffffffff\r\n", -EBADMSG, ""},
    {CHUNKED, "0000000000000005\r\nhello\r\n", -EBADMSG, ""},
    {CHUNKED, "10000000000000005\r\nhello\r\n", -EBADMSG, ""},
    {CHUNKED, "0\r\n: v\r\n\r\n", -EBADMSG, ""},
    {CHUNKED, "0\r\nnocolon\r\n\r\n", -EBADMSG, ""},
    {CHUNKED, "0\r\nA : v\r\n\r\n", -EBADMSG, ""},
    {CHUNKED, "0\r\n A: v\r\n\r\n", -EBADMSG, ""},
    {CHUNKED, "0\r\nA: v\r\n folded\r\n\r\n", -EBADMSG, ""},
    {CHUNKED, "0\r\nA: v\n\r\n", -EBADMSG, ""},
    {CHUNKED, "0\r\nA: v\x7f\r\n\r\n", -EBADMSG, ""},
    {CHUNKED, "0\r\n\n", -EBADMSG, ""},
    {CHUNKED, "0\r\n\r\r", -EBADMSG, ""},
    {CHUNKED, "0\n\n", -EBADMSG, ""},
};

/* Runs the body over pieces of 'step' bytes; returns the last result. */
static int feed(struct http1_body *b, const char *p, size_t n, size_t step, struct buf *data,
                size_t *ret_used)
{
    size_t done = 0, have = 0;
    int r = HTTP1_BODY_MORE;
    for (;;) {
        size_t used = 0;
        struct str piece = STR_NONE;
        r = http1_body_next(b, p + done, have - done, &used, &piece);
        done += used;
        assert_true(done <= have);
        if (r == HTTP1_BODY_DATA) {
            assert_true(piece.n > 0);
            buf_add(data, piece);
            continue;
        }
        if (r != HTTP1_BODY_MORE || have == n) {
            break;
        }
        assert_int_equal(done, have); /* "more" means that all was used */
        have = n - have < step ? n : have + step;
    }
    *ret_used = done;
    return r;
}

static void test_rows(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t n = strlen(rows[i].raw);
        for (size_t step = 1; step <= n + 1; step++) {
            struct http1_body b;
            http1_body_init(&b, rows[i].length == CHUNKED, rows[i].length);
            AUTO_BUF data;
            buf_init(&data, 4096);
            size_t used = 0;
            int r = feed(&b, rows[i].raw, n, step, &data, &used);
            if (r != rows[i].want || !str_eqc(buf_str(&data), rows[i].data)) {
                fail_msg("row %zu in steps of %zu: %d, data \"%s\": %s", i, step, r,
                         buf_cstr(&data), rows[i].raw);
            }
            if (r == HTTP1_BODY_END) {
                size_t want = rows[i].used ? rows[i].used : rows[i].length == 0 ? 0 : n;
                assert_int_equal(used, want);
                assert_true(http1_body_is_done(&b));
                assert_int_equal(http1_body_left(&b), 0);
            }
        }
    }
}

static int try_text(const char *before, size_t n, const char *after, unsigned n_times)
{
    AUTO_BUF raw, data;
    buf_init(&raw, 1 << 20);
    buf_init(&data, 1 << 20);
    for (unsigned k = 0; k < n_times; k++) {
        buf_addc(&raw, before);
        for (size_t i = 0; i < n; i++) {
            buf_add_char(&raw, 'e');
        }
        buf_addc(&raw, after);
    }
    struct http1_body b;
    http1_body_init(&b, true, 0);
    size_t used = 0;
    return feed(&b, raw.p, raw.n, 100, &data, &used);
}

static void test_limits(void **state)
{
    assert_int_equal(try_text("1;", HTTP1_MAX_CHUNK_EXT, "\r\nx\r\n", 1), HTTP1_BODY_MORE);
    assert_int_equal(try_text("1;", HTTP1_MAX_CHUNK_EXT + 1, "\r\nx\r\n", 1), -EBADMSG);
    assert_int_equal(try_text("1;", 256, "\r\nx\r\n", HTTP1_MAX_CHUNK_EXTS / 256),
                     HTTP1_BODY_MORE);
    assert_int_equal(try_text("1;", 256, "\r\nx\r\n", HTTP1_MAX_CHUNK_EXTS / 256 + 1),
                     -EBADMSG);
    assert_int_equal(try_text("0\r\nA:", HTTP1_MAX_TRAILER - 3, "\r\n\r\n", 1), HTTP1_BODY_END);
    assert_int_equal(try_text("0\r\nA:", HTTP1_MAX_TRAILER - 2, "\r\n\r\n", 1), -EBADMSG);
}

static void test_left(void **state)
{
    struct http1_body b;
    http1_body_init(&b, false, INT64_MAX);
    assert_int_equal(http1_body_left(&b), INT64_MAX);
    http1_body_init(&b, true, -1);
    assert_int_equal(http1_body_left(&b), -1);
    http1_body_init(&b, false, -1);
    assert_true(http1_body_is_done(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
