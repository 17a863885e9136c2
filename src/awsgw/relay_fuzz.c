/* Heads of answers: nothing crashes, and what is accepted has one meaning. */
#include "awsgw/relay_answer.h"

#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    struct http1_scan s = {0};
    struct relay_answer a;
    long n = http1_scan(&s, p, size, 4096);
    if (n <= 0) {
        assert(n == 0 || n == -EBADMSG);
        return 0;
    }
    int r = relay_answer_parse(p, (size_t)n, &a);
    if (r < 0) {
        assert(r == -EBADMSG);
        return 0;
    }
    assert(a.status >= 100 && a.status <= 999 && a.content_length >= -1);
    assert(!a.is_chunked || a.content_length < 0);
    assert(a.n_headers <= HTTP1_MAX_HEADERS);
    for (size_t i = 0; i < a.n_headers; i++) {
        const struct http_header *h = &a.headers[i];
        assert(http1_is_token(h->name) && http1_is_value(h->value));
        assert(h->name.p >= p && h->value.p + h->value.n <= p + n);
        assert(!str_ieqc(h->name, "Content-Length") && !str_ieqc(h->name, "Connection") &&
               !str_ieqc(h->name, "Transfer-Encoding"));
    }
    return 0;
}
