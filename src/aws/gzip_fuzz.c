/* Compressed bodies of strangers: bounded, and damaged ones are refused. The second half of an
 * input, after a line, is also used as a pattern and its text (aws/pattern.h). */
#include "aws/gzip.h"

#include "aws/pattern.h"
#include <assert.h>
#include <errno.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = {(const char *)data, size};
    AUTO_BUF out;
    buf_init(&out, 1u << 20);
    int rc = size ? gzip_inflate(in, &out) : 0;
    assert(rc == 0 || rc == -EINVAL || rc == -E2BIG);
    assert(out.n <= 1u << 20);
    struct str pattern = str_cut(in, '\n');
    char text[256];
    if (pattern.n < sizeof(text) && size < 4096) {
        memcpy(text, pattern.n ? pattern.p : "", pattern.n);
        text[pattern.n] = '\0';
        (void)pattern_match(text, str_skip(in, pattern.n + 1));
    }
    return 0;
}
