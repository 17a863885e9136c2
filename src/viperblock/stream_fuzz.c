#include "viperblock/imgfmt.h"
#include "viperblock/stream.h"
#include <assert.h>
#include <sys/mman.h>

#define READ_MAX (16u << 20) /* enough of a bomb */

/* The first byte chooses the layer, the rest is the file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t buf[65536];
    if (size < 1) {
        return 0;
    }
    AUTO_FD fd = memfd_create("fuzz", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1) &&
           lseek(fd, 0, SEEK_SET) == 0);
    struct stream *in = stream_fd(fd, NULL, NULL);
    AUTO(stream_freep) struct stream *s = NULL;
    switch (data[0] % 4) {
    case 0: s = stream_gz(in); break;
    case 1: s = stream_xz(in); break;
    case 2: s = stream_zst(in); break;
    default: s = stream_tar(in); break;
    }
    s = stream_peek(s);
    struct err err = ERR_INIT;
    struct str head;
    int rc = stream_head(s, IMG_HEAD_SIZE, &head, &err);
    assert(rc <= 0 && (rc == 0) == (err.code == 0));
    size_t total = 0;
    while (rc == 0 && total < READ_MAX) {
        ssize_t n = stream_read(s, buf, sizeof(buf), &err);
        assert(n <= (ssize_t)sizeof(buf) && (n >= 0) == (err.code == 0));
        if (n <= 0) {
            break;
        }
        if (total < head.n) { /* what was looked at is what is read */
            assert(memcmp(head.p + total, buf, MIN((size_t)n, head.n - total)) == 0);
        }
        total += (size_t)n;
    }
    return 0;
}
