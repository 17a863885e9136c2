#include "codec/hex.h"
#include <errno.h>

static const char digits[] = "0123456789abcdef";

void hex_encode_to(const void *p, size_t n, char *out)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[b[i] >> 4];
        out[2 * i + 1] = digits[b[i] & 15];
    }
    out[2 * n] = 0;
}

void hex_encode(const void *p, size_t n, struct buf *out)
{
    char *to = buf_reserve(out, 2 * n + 1);
    if (to) {
        hex_encode_to(p, n, to);
        buf_commit(out, 2 * n);
    }
}

int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int hex_decode(struct str s, void *out, size_t n)
{
    if (s.n != 2 * n) {
        return -EINVAL;
    }
    unsigned char *b = out;
    for (size_t i = 0; i < n; i++) {
        int hi = hex_digit(s.p[2 * i]), lo = hex_digit(s.p[2 * i + 1]);
        if (hi < 0 || lo < 0) {
            return -EINVAL;
        }
        b[i] = (unsigned char)(hi << 4 | lo);
    }
    return 0;
}
