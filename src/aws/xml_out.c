#include "aws/xml_out.h"

#include <stdint.h>

static void put(struct buf *out, const char *a, const char *name, size_t n, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    char *p = buf_reserve(out, na + n + nb);
    if (p) {
        memcpy(p, a, na);
        memcpy(p + na, name, n);
        memcpy(p + na + n, b, nb);
        buf_commit(out, na + n + nb);
    }
}

void xml_open(struct buf *out, const char *name)
{
    put(out, "<", name, strlen(name), ">");
}

void xml_close(struct buf *out, const char *name)
{
    put(out, "</", name, strlen(name), ">");
}

void xml_empty(struct buf *out, const char *name)
{
    put(out, "<", name, strlen(name), "/>");
}

/* Length of the XML character at p, 0 when there is none. */
static size_t char_len(const unsigned char *p, size_t n)
{
    unsigned char c = p[0];
    if (c < 0x80) {
        return c >= 0x20 || c == '\t' || c == '\n' || c == '\r' ? 1 : 0;
    }
    size_t len = c >= 0xc2 && c < 0xe0   ? 2
                 : (c & 0xf0) == 0xe0    ? 3
                 : c >= 0xf0 && c < 0xf5 ? 4
                                         : 0;
    if (len == 0 || len > n || str_utf8_len(str_n((const char *)p, len)) != 1) {
        return 0;
    }
    /* U+FFFE and U+FFFF are no characters of XML. */
    return len == 3 && p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe ? 0 : len;
}

static const char *escape_of(unsigned char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\r': return "&#13;"; /* a bare CR would be read as LF */
    default: return NULL;
    }
}

/* Most text is only of these: printable ASCII that stands for itself. */
static bool is_plain(unsigned char c)
{
    static const uint32_t set[8] = {
        [1] = ~(UINT32_C(1) << ('&' - 32) | UINT32_C(1) << ('<' - 32) |
                UINT32_C(1) << ('>' - 32) | UINT32_C(1) << ('"' - 32)),
        [2] = ~UINT32_C(0),
        [3] = ~UINT32_C(0)};
    return set[c >> 5] >> (c & 31) & 1;
}

void xml_text(struct buf *out, struct str text)
{
    const unsigned char *p = (const unsigned char *)text.p;
    size_t from = 0, i = 0;
    while (i < text.n) {
        unsigned char c = p[i];
        if (is_plain(c)) {
            i++;
            continue;
        }
        const char *esc = c < 0x40 ? escape_of(c) : NULL;
        size_t len = c >= 0x20 && c < 0x80 ? 1 : char_len(p + i, text.n - i);
        if (len > 0 && !esc) {
            i += len;
            continue;
        }
        buf_add(out, str_n(text.p + from, i - from));
        buf_addc(out, esc ? esc : "\xef\xbf\xbd");
        from = ++i;
    }
    if (text.n > from) {
        buf_add(out, str_n(text.p + from, text.n - from));
    }
}

void xml_elem(struct buf *out, const char *name, struct str text)
{
    xml_open(out, name);
    xml_text(out, text);
    xml_close(out, name);
}

void xml_elemc(struct buf *out, const char *name, const char *text)
{
    xml_elem(out, name, str_c(text));
}
