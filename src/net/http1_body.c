#include "net/http1_body.h"

#include "net/http1_parse.h"

#include <errno.h>

/*   B_LENGTH ─> B_DONE
 *   B_SIZE ─> (B_EXT) ─> B_SIZE_LF ─> B_DATA ─> B_DATA_CR ─> B_DATA_LF ─> B_SIZE
 *                            └─ size 0 ─> B_TRAILER_START ─> B_TRAILER ─> B_TRAILER_LF ─> back
 *                                               └─ CR ─> B_END_LF ─> B_DONE */
enum {
    B_DONE,
    B_LENGTH,
    B_SIZE,
    B_EXT,
    B_SIZE_LF,
    B_DATA,
    B_DATA_CR,
    B_DATA_LF,
    B_TRAILER_START,
    B_TRAILER,
    B_TRAILER_LF,
    B_END_LF
};

void http1_body_init(struct http1_body *b, bool is_chunked, int64_t content_length)
{
    *b = (struct http1_body){.state = B_DONE};
    if (is_chunked) {
        b->state = B_SIZE;
    } else if (content_length > 0) {
        b->state = B_LENGTH;
        b->left = (uint64_t)content_length;
    }
}

int64_t http1_body_left(const struct http1_body *b)
{
    return b->state == B_LENGTH ? (int64_t)b->left : b->state == B_DONE ? 0 : -1;
}

bool http1_body_is_done(const struct http1_body *b)
{
    return b->state == B_DONE;
}

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool is_text(unsigned char c)
{
    return (c >= 0x20 || c == '\t') && c != 0x7f;
}

static int size_byte(struct http1_body *b, unsigned char c)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (++b->n_digits > HTTP1_MAX_CHUNK_DIGIT) {
            return -EBADMSG;
        }
        b->left = b->left * 16 + (unsigned)digit;
        return 0;
    }
    if (b->n_digits == 0 || (c != ';' && c != '\r')) {
        return -EBADMSG;
    }
    b->state = c == ';' ? B_EXT : B_SIZE_LF;
    b->n_ext = 0;
    return 0;
}

static int ext_byte(struct http1_body *b, unsigned char c)
{
    if (c == '\r') {
        b->state = B_SIZE_LF;
        return 0;
    }
    b->n_ext++;
    b->n_exts++;
    bool is_ok =
        is_text(c) && b->n_ext <= HTTP1_MAX_CHUNK_EXT && b->n_exts <= HTTP1_MAX_CHUNK_EXTS;
    return is_ok ? 0 : -EBADMSG;
}

/* Trailer fields: token ":" text. Names are checked byte by byte, so that any split gives the
 * same result. */
static int trailer_byte(struct http1_body *b, unsigned char c)
{
    if (++b->n_trailer > HTTP1_MAX_TRAILER) {
        return -EBADMSG;
    }
    if (c == '\r') {
        b->state = B_TRAILER_LF;
        return b->has_colon ? 0 : -EBADMSG;
    }
    if (c == ':' && !b->has_colon) {
        b->has_colon = true;
        return b->n_line > 0 ? 0 : -EBADMSG;
    }
    b->n_line++;
    char byte = (char)c;
    return (b->has_colon ? is_text(c) : http1_is_token(str_n(&byte, 1))) ? 0 : -EBADMSG;
}

/* One byte of framing. Returns 0 or -EBADMSG. */
static int frame_byte(struct http1_body *b, unsigned char c)
{
    switch (b->state) {
    case B_SIZE: return size_byte(b, c);
    case B_EXT: return ext_byte(b, c);
    case B_SIZE_LF:
        b->state = b->left ? B_DATA : B_TRAILER_START;
        return c == '\n' ? 0 : -EBADMSG;
    case B_DATA_CR: b->state = B_DATA_LF; return c == '\r' ? 0 : -EBADMSG;
    case B_DATA_LF:
        b->state = B_SIZE;
        b->n_digits = 0;
        return c == '\n' ? 0 : -EBADMSG;
    case B_TRAILER_START:
        if (c == '\r') {
            b->state = B_END_LF;
            return 0;
        }
        b->state = B_TRAILER;
        b->n_line = 0;
        b->has_colon = false;
        return trailer_byte(b, c);
    case B_TRAILER: return trailer_byte(b, c);
    case B_TRAILER_LF: b->state = B_TRAILER_START; return c == '\n' ? 0 : -EBADMSG;
    case B_END_LF: b->state = B_DONE; return c == '\n' ? 0 : -EBADMSG;
    default: return -EBADMSG;
    }
}

int http1_body_next(struct http1_body *b, const char *p, size_t n, size_t *ret_used,
                    struct str *ret_data)
{
    size_t i = 0;
    while (b->state != B_DONE && i < n) {
        if (b->state == B_DATA || b->state == B_LENGTH) {
            size_t take = n - i < b->left ? n - i : (size_t)b->left;
            *ret_data = str_n(p + i, take);
            *ret_used = i + take;
            b->left -= take;
            if (b->left == 0) {
                b->state = b->state == B_DATA ? B_DATA_CR : B_DONE;
            }
            return HTTP1_BODY_DATA;
        }
        int r = frame_byte(b, (unsigned char)p[i++]);
        if (r < 0) {
            *ret_used = i;
            return r;
        }
    }
    *ret_used = i;
    return b->state == B_DONE ? HTTP1_BODY_END : HTTP1_BODY_MORE;
}
