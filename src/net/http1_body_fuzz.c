/* Bodies: one piece and any pieces give the same data and end at the same byte; the end is
 * where it is said to be. */
#include "net/http1_body.h"

#include "base/buf.h"

#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_DATA (1u << 20)

/* Returns the last step or -EBADMSG; '*ret_used' is set for the end only. */
static int run(bool is_chunked, int64_t length, const char *p, size_t n, size_t step,
               struct buf *out, size_t *ret_used)
{
    struct http1_body b;
    http1_body_init(&b, is_chunked, length);
    size_t at = 0, have = 0;
    for (;;) {
        size_t used = 0;
        struct str piece = STR_NONE;
        int r = http1_body_next(&b, p + at, have - at, &used, &piece);
        assert(used <= have - at);
        if (r == HTTP1_BODY_DATA) {
            assert(piece.n > 0 && piece.p >= p + at && piece.p + piece.n == p + at + used);
            buf_add(out, piece);
            at += used;
            continue;
        }
        at += used;
        if (r == HTTP1_BODY_MORE && have < n) {
            assert(at == have && !http1_body_is_done(&b));
            have = n - have < step ? n : have + step;
            continue;
        }
        if (r == HTTP1_BODY_END) {
            assert(http1_body_is_done(&b) && http1_body_left(&b) == 0);
            *ret_used = at;
        }
        return r;
    }
}

/* The data sent anew in chunks of 'size' comes out as it was. */
static void check_rechunked(struct str data, size_t size)
{
    AUTO_BUF raw, out;
    buf_init(&raw, 8 * MAX_DATA);
    buf_init(&out, MAX_DATA);
    for (struct str rest = data; rest.n; rest = str_skip(rest, size)) {
        struct str piece = str_n(rest.p, MIN(rest.n, size));
        buf_fmt(&raw, "%zX\r\n", piece.n);
        buf_add(&raw, piece);
        buf_addc(&raw, "\r\n");
    }
    buf_addc(&raw, "0\r\n\r\n");
    size_t used = 0;
    assert(run(true, -1, raw.p, raw.n, 7, &out, &used) == HTTP1_BODY_END);
    assert(used == raw.n && str_eq(buf_str(&out), data));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > MAX_DATA) {
        return 0;
    }
    bool is_chunked = data[0] & 1;
    int64_t length = data[0] >> 1;
    size_t step = (size_t)data[1] % 32 + 1, n = size - 2;
    char *p = malloc(n ? n : 1);
    if (!p) {
        return 0;
    }
    memcpy(p, data + 2, n);
    AUTO_BUF a, b;
    buf_init(&a, MAX_DATA);
    buf_init(&b, MAX_DATA);
    size_t a_used = 0, b_used = 0;
    int ra = run(is_chunked, length, p, n, n + 1, &a, &a_used);
    int rb = run(is_chunked, length, p, n, step, &b, &b_used);
    assert(ra == rb && a_used == b_used && str_eq(buf_str(&a), buf_str(&b)));
    assert(is_chunked || ra != -EBADMSG);
    if (ra == HTTP1_BODY_END) {
        assert(is_chunked || (a.n == (size_t)length && a_used == (size_t)length));
        /* Everything up to the end is the body, and nothing less is. */
        AUTO_BUF c;
        buf_init(&c, MAX_DATA);
        size_t used = 0;
        assert(run(is_chunked, length, p, a_used, a_used + 1, &c, &used) == HTTP1_BODY_END);
        if (a_used > 0) {
            buf_clear(&c);
            assert(run(is_chunked, length, p, a_used - 1, a_used, &c, &used) ==
                   HTTP1_BODY_MORE);
        }
        check_rechunked(buf_str(&a), step);
    }
    free(p);
    return 0;
}
