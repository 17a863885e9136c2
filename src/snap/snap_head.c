#include "snap/snap_head.h"

#include "base/buf.h"
#include "base/num.h"
#include "codec/base64.h"

#include <errno.h>

size_t snap_head_end(struct str bytes)
{
    ptrdiff_t at = str_find_str(bytes, STR("\r\n\r\n"));
    return at < 0 ? 0 : (size_t)at + 4;
}

static int status_line(struct str line, struct snap_head *h)
{
    uint64_t status = 0;
    if (!str_has_prefixc(line, "HTTP/1.1 ") || line.n < 12 ||
        num_u64(str_n(line.p + 9, 3), 599, &status) < 0 || status < 100 ||
        (line.n > 12 && line.p[12] != ' ')) {
        return -EBADMSG;
    }
    h->status = (int)status;
    return 0;
}

static int one_length(struct str value, struct snap_head *h)
{
    uint64_t n = 0;
    if (h->content_length >= 0 || num_u64(value, INT64_MAX, &n) < 0) {
        return -EBADMSG;
    }
    h->content_length = (int64_t)n;
    return 0;
}

static int one_crc(struct str value, struct snap_head *h)
{
    AUTO_BUF b;
    buf_init(&b, 16);
    if (base64_decode(value, &b) < 0 || b.n != 4) {
        return -EBADMSG;
    }
    const unsigned char *p = (const unsigned char *)b.p;
    h->crc = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    h->has_crc = true;
    return 0;
}

static int one_header(struct str name, struct str value, struct snap_head *h)
{
    if (str_ieqc(name, "content-length")) {
        return one_length(value, h);
    }
    if (str_ieqc(name, "transfer-encoding")) {
        h->is_chunked = true;
        return str_ieqc(value, "chunked") ? 0 : -EBADMSG;
    }
    if (str_ieqc(name, "connection")) {
        h->is_close |= str_ieqc(value, "close");
    }
    return str_ieqc(name, "x-amz-checksum-crc32c") ? one_crc(value, h) : 0;
}

int snap_head_parse(struct str head, struct snap_head *ret)
{
    struct snap_head h = {.content_length = -1};
    bool is_first = true;
    if (head.n < 4 || !str_has_suffix(head, STR("\r\n\r\n"))) {
        return -EBADMSG;
    }
    head.n -= 2;
    while (head.n) {
        ptrdiff_t end = str_find_str(head, STR("\r\n"));
        struct str line = str_n(head.p, (size_t)end);
        ptrdiff_t colon = str_find(line, ':', 0);
        head = str_skip(head, line.n + 2);
        if (!is_first && colon <= 0) {
            return -EBADMSG;
        }
        int r = is_first ? status_line(line, &h)
                         : one_header(str_n(line.p, (size_t)colon),
                                      str_trim(str_skip(line, (size_t)colon + 1)), &h);
        if (r < 0) {
            return r;
        }
        is_first = false;
    }
    if (is_first || (h.is_chunked && h.content_length >= 0)) {
        return -EBADMSG;
    }
    *ret = h;
    return 0;
}
