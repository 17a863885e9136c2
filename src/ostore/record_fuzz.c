/* A head of any kind: the first byte chooses the kind, the rest is the head. Accepted means: it
 * is written again, and what was written reads as the same and is written as the same bytes. */
#include "base/arena.h"
#include "ostore/record.h"
#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    AUTO(arena_freep) struct arena *a = arena_new(4u << 20);
    struct err err = ERR_INIT;
    struct orec r = {0};
    enum orec_kind kind = (enum orec_kind)data[0];
    int rc = orec_decode(a, kind, str_n((const char *)data + 1, size - 1), &r, &err);
    if (rc < 0) {
        assert((rc == -EBADMSG || rc == -ENOTSUP || rc == -ENOMEM) && err.code == rc);
        return 0;
    }
    AUTO_BUF one;
    AUTO_BUF two;
    buf_init(&one, OREC_HEAD_MAX + 65536);
    buf_init(&two, OREC_HEAD_MAX + 65536);
    rc = orec_encode(&r, &one, &err);
    if (rc == -E2BIG) { /* at the very limit: a field that was not there is written */
        assert(size > OREC_HEAD_MAX - 128);
        return 0;
    }
    assert(rc == 0);
    struct orec back = {0};
    rc = orec_decode(a, kind, buf_str(&one), &back, &err);
    assert(rc == 0 && back.kind == r.kind && back.bucket == r.bucket &&
           str_eq(back.key, r.key));
    assert(back.size == r.size && back.n_parts == r.n_parts && back.meta.n == r.meta.n);
    rc = orec_encode(&back, &two, &err);
    assert(rc == 0 && str_eq(buf_str(&one), buf_str(&two)));
    return 0;
}
