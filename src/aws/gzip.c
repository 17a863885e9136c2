#include "aws/gzip.h"

#include <errno.h>
#include <stdint.h>
#include <zlib.h>

int gzip_inflate(struct str in, struct buf *out)
{
    enum { GZIP_ONLY = 15 + 16, STEP = 16384 };
    unsigned char *src = NULL;
    z_stream z = {0};
    int rc = 0;
    if (in.n == 0 || in.n > UINT32_MAX) {
        return -EINVAL;
    }
    if (inflateInit2(&z, GZIP_ONLY) != Z_OK) {
        return -ENOMEM;
    }
    memcpy(&src, &in.p, sizeof(src)); /* zlib does not write to it, but its type is not const */
    z.next_in = src;
    z.avail_in = (unsigned)in.n;
    for (;;) {
        char *p = buf_reserve(out, STEP);
        if (!p) {
            rc = -E2BIG;
            break;
        }
        z.next_out = (unsigned char *)p;
        z.avail_out = STEP;
        int zr = inflate(&z, Z_NO_FLUSH);
        buf_commit(out, STEP - z.avail_out);
        if (zr == Z_STREAM_END) {
            rc = z.avail_in ? -EINVAL : 0; /* nothing may follow */
            break;
        }
        if (zr != Z_OK || (z.avail_in == 0 && z.avail_out != 0)) {
            rc = -EINVAL;
            break;
        }
    }
    inflateEnd(&z);
    return rc;
}
