#include "codec/base64.h"
#include <errno.h>
#include <stdint.h>

static const char alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct str in, struct buf *out)
{
    char *p = buf_reserve(out, BASE64_LEN(in.n));
    if (!p) {
        return;
    }
    const unsigned char *b = (const unsigned char *)in.p;
    size_t o = 0;
    for (size_t i = 0; i < in.n; i += 3) {
        size_t left = in.n - i;
        uint32_t v = (uint32_t)b[i] << 16;
        v |= left > 1 ? (uint32_t)b[i + 1] << 8 : 0;
        v |= left > 2 ? (uint32_t)b[i + 2] : 0;
        p[o++] = alphabet[v >> 18];
        p[o++] = alphabet[v >> 12 & 63];
        p[o++] = left > 1 ? alphabet[v >> 6 & 63] : '=';
        p[o++] = left > 2 ? alphabet[v & 63] : '=';
    }
    buf_commit(out, o);
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static int decode(struct str in, bool is_lax, struct buf *out)
{
    size_t n_digits = 0;
    for (size_t i = 0; i < in.n; i++) {
        n_digits += value_of(in.p[i]) >= 0;
    }
    char *p = buf_reserve(out, n_digits / 4 * 3 + n_digits % 4 * 3 / 4);
    if (!p) {
        return -E2BIG;
    }
    uint32_t bits = 0;
    unsigned n_chars = 0, n_pad = 0; /* of the current group of four */
    bool is_ended = false;
    size_t o = 0;
    for (size_t i = 0; i < in.n; i++) {
        char c = in.p[i];
        if (is_lax && (c == '\n' || c == '\r' || c == ' ' || c == '\t')) {
            continue;
        }
        if (is_ended) {
            return -EINVAL;
        }
        int v = value_of(c);
        if (c == '=' && n_chars >= 2) {
            n_pad++;
            v = 0;
        } else if (v < 0 || n_pad > 0) {
            return -EINVAL;
        }
        bits = bits << 6 | (uint32_t)v;
        if (++n_chars == 4) {
            if ((n_pad == 1 && (bits & 0xff)) || (n_pad == 2 && (bits & 0xffff))) {
                return -EINVAL;
            }
            for (unsigned k = 0; k < 3 - n_pad; k++) {
                p[o++] = (char)(unsigned char)(bits >> (16 - 8 * k));
            }
            is_ended = n_pad > 0;
            bits = n_chars = n_pad = 0;
        }
    }
    if (n_chars > 0) {
        if (!is_lax || n_chars == 1 || n_pad > 0) {
            return -EINVAL;
        }
        bits <<= 6 * (4 - n_chars);
        if (bits & (n_chars == 2 ? 0xffffu : 0xffu)) {
            return -EINVAL;
        }
        for (unsigned k = 0; k < n_chars - 1; k++) {
            p[o++] = (char)(unsigned char)(bits >> (16 - 8 * k));
        }
    }
    buf_commit(out, o);
    return 0;
}

int base64_decode(struct str in, struct buf *out)
{
    return decode(in, false, out);
}

int base64_decode_lax(struct str in, struct buf *out)
{
    return decode(in, true, out);
}
