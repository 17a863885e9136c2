/* User metadata: x-amz-meta-* headers in and out. */
#include "aws/s3_name.h"

#include "codec/base64.h"
#include "codec/hex.h"
#include <errno.h>

enum { MAX_META = 256 /* 2 KiB hold no more that make sense */ };

static int full(struct err *err)
{
    return fail(err, -ENOMEM, "RequestHeaderSectionTooLarge",
                "Your request header and query string sizes exceed the maximum allowed size.");
}

/* ---- RFC 2047 ---- */

static bool put_q(struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '_') {
            c = ' ';
        } else if (c == '=') {
            int hi = text.n - i > 2 ? hex_digit(text.p[i + 1]) : -1;
            int lo = text.n - i > 2 ? hex_digit(text.p[i + 2]) : -1;
            if (hi < 0 || lo < 0) {
                return false;
            }
            c = (char)(unsigned char)(hi << 4 | lo);
            i += 2;
        }
        buf_add_char(out, c);
    }
    return true;
}

/* Takes "=?UTF-8?B?...?=" off the front of *rest and appends what it says. */
static bool take_word(struct str *rest, struct buf *out)
{
    static const struct str head = {"=?UTF-8?", 8};
    if (rest->n < head.n + 4 || !str_ieq(str_n(rest->p, head.n), head) ||
        rest->p[head.n + 1] != '?') {
        return false;
    }
    char how = rest->p[head.n];
    struct str text = str_skip(*rest, head.n + 2);
    ptrdiff_t end = str_find_str(text, STR("?="));
    if (end < 0) {
        return false;
    }
    text.n = (size_t)end;
    size_t n_before = out->n;
    bool is_ok = how == 'B' || how == 'b'   ? base64_decode(text, out) == 0
                 : how == 'Q' || how == 'q' ? put_q(text, out)
                                            : false;
    if (!is_ok) {
        out->n = n_before;
        return false;
    }
    *rest = str_skip(*rest, head.n + 2 + text.n + 2);
    return true;
}

/* Words are decoded; what stands between two of them and is only space goes (RFC 2047 section
 * 6.2). What does not decode to UTF-8 without control bytes is kept as it was sent. */
static struct str decode_words(struct arena *a, struct str value)
{
    AUTO_BUF out;
    struct str rest = value;
    bool was_word = false;
    buf_init(&out, value.n + 16);
    if (str_find_str(value, STR("=?")) < 0) {
        return value.p ? value : STR("");
    }
    while (rest.n) {
        ptrdiff_t at = str_find_str(rest, STR("=?"));
        struct str plain = at < 0 ? rest : str_n(rest.p, (size_t)at);
        struct str tail = str_skip(rest, plain.n);
        size_t n_before = out.n;
        if (!was_word || str_trim(plain).n) {
            buf_add(&out, plain);
        }
        if (tail.n == 0) {
            if (was_word && str_trim(plain).n == 0) {
                buf_add(&out, plain);
            }
            break;
        }
        was_word = take_word(&tail, &out);
        if (!was_word) {
            out.n = n_before;
            buf_add(&out, plain);
            buf_add(&out, STR("=?"));
            tail = str_skip(tail, 2);
        }
        rest = tail;
    }
    for (size_t i = 0; i < out.n; i++) {
        if ((unsigned char)out.p[i] < 0x20 || out.p[i] == 0x7f) {
            return value;
        }
    }
    return buf_ok(&out) && str_utf8_len(buf_str(&out)) != SIZE_MAX
               ? arena_str_dup(a, buf_str(&out))
               : value;
}

struct str s3_meta_header_value(struct arena *a, struct str value)
{
    bool is_plain = true;
    for (size_t i = 0; i < value.n; i++) {
        unsigned char ch = (unsigned char)value.p[i];
        is_plain = is_plain && ch >= 0x20 && ch < 0x7f;
    }
    if (is_plain || str_utf8_len(value) == SIZE_MAX) {
        return value; /* bytes that are no UTF-8 go as they came */
    }
    AUTO_BUF out;
    buf_init(&out, BASE64_LEN(value.n) + 16);
    buf_addc(&out, "=?UTF-8?B?");
    base64_encode(value, &out);
    buf_addc(&out, "?=");
    return arena_str_dup(a, buf_str(&out));
}

/* ---- headers ---- */

bool s3_is_token(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c <= ' ' || c >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", c)) {
            return false;
        }
    }
    return s.n > 0;
}

static struct str lower(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, s.n + 1);
    for (size_t i = 0; p && i < s.n; i++) {
        p[i] = s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char)(s.p[i] + 32) : s.p[i];
    }
    return p ? str_n(p, s.n) : STR_NONE;
}

static struct s3_tag *find(const struct s3_meta *m, struct str name)
{
    for (size_t i = 0; i < m->n; i++) {
        if (str_ieq(m->v[i].key, name)) {
            return &m->v[i];
        }
    }
    return NULL;
}

static int too_large(struct arena *a, size_t size, struct s3_extra *extra, struct err *err)
{
    s3_extra_add(extra, "Size", arena_fmt(a, "%zu", size));
    s3_extra_add(extra, "MaxSizeAllowed", STR("2048"));
    return fail(err, -E2BIG, "MetadataTooLarge",
                "Your metadata headers exceed the maximum allowed metadata size");
}

int s3_meta_parse(struct arena *a, const struct http_header *headers, size_t n_headers,
                  struct s3_meta *ret, struct s3_extra *extra, struct err *err)
{
    static const struct str prefix = {"x-amz-meta-", 11};
    struct s3_meta m = {.n = 0};
    size_t size = 0, cap = 0;
    for (size_t i = 0; i < n_headers; i++) {
        struct str name = headers[i].name;
        cap += name.n > prefix.n && str_ieq(str_n(name.p, prefix.n), prefix) ? 1 : 0;
    }
    m.v = cap ? arena_array(a, MIN(cap, (size_t)MAX_META), sizeof(*m.v)) : NULL;
    if (cap && !m.v) {
        return full(err);
    }
    for (size_t i = 0; cap && i < n_headers; i++) {
        struct str name = headers[i].name;
        if (name.n <= prefix.n || !str_ieq(str_n(name.p, prefix.n), prefix)) {
            continue;
        }
        name = str_skip(name, prefix.n);
        struct str value = decode_words(a, headers[i].value);
        struct s3_tag *have = find(&m, name);
        if (have) {
            size += value.n + 1;
            have->value = arena_fmt(a, "%.*s,%.*s", STR_ARG(have->value), STR_ARG(value));
        } else if (m.n == MAX_META) {
            return too_large(a, size + name.n, extra, err);
        } else {
            size += name.n + value.n;
            have = &m.v[m.n++];
            *have = (struct s3_tag){lower(a, name), value};
        }
        if (size > S3_META_MAX) {
            return too_large(a, size, extra, err);
        }
        if (!have->key.p || !have->value.p) {
            return full(err);
        }
    }
    *ret = m;
    return 0;
}
