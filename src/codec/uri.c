#include "codec/uri.h"
#include "codec/hex.h"
#include <errno.h>

static bool is_unreserved(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '_' || c == '.' || c == '~';
}

void uri_encode(struct str s, enum uri_flags flags, struct buf *out)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (is_unreserved(s.p[i]) || (c == '/' && (flags & URI_KEEP_SLASH))) {
            buf_add_char(out, s.p[i]);
        } else {
            const char esc[3] = {'%', digits[c >> 4], digits[c & 15]};
            buf_add(out, str_n(esc, sizeof(esc)));
        }
    }
}

int uri_decode(struct arena *a, struct str s, enum uri_flags flags, struct str *ret)
{
    char *p = arena_alloc(a, s.n + 1);
    if (!p) {
        return -ENOMEM;
    }
    size_t o = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            int hi = s.n - i > 2 ? hex_digit(s.p[i + 1]) : -1;
            int lo = s.n - i > 2 ? hex_digit(s.p[i + 2]) : -1;
            if (hi < 0 || lo < 0) {
                return -EINVAL;
            }
            c = (char)(unsigned char)(hi << 4 | lo);
            i += 2;
        } else if (c == '+' && (flags & URI_PLUS_IS_SPACE)) {
            c = ' ';
        }
        p[o++] = c;
    }
    *ret = str_n(p, o);
    return 0;
}

bool uri_next_field(struct str *rest, struct str *ret_name, struct str *ret_value)
{
    while (rest->p && rest->n > 0) {
        struct str field = str_cut(*rest, '&');
        *rest = str_skip(*rest, field.n + 1);
        if (field.n == 0) {
            continue;
        }
        *ret_name = str_cut(field, '=');
        *ret_value = ret_name->n < field.n ? str_skip(field, ret_name->n + 1) : STR_NONE;
        return true;
    }
    return false;
}
