/* Any byte stream, fed whole and in pieces, must give the same messages or the same failure. */
#include "os/qmp.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    uint64_t n, sum;
};

static uint64_t mix(uint64_t h, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        h = (h ^ (uint8_t)s.p[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

static int on_msg(void *ctx, const struct qmp_msg *m)
{
    struct seen *s = ctx;
    assert(m->type <= QMP_EVENT);
    assert(m->type != QMP_EVENT || str_is_set(m->name));
    assert(m->type == QMP_EVENT || m->type == QMP_ERROR || m->data);
    s->n++;
    s->sum = mix(mix(s->sum ^ m->id ^ m->type, m->name), m->desc);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = {0}, parts = {0};
    struct str all = str_n((const char *)data, size);
    AUTO(qmp_freep) struct qmp *a = qmp_new(4096);
    AUTO(qmp_freep) struct qmp *b = qmp_new(4096);
    int ra = qmp_feed(a, all, on_msg, &whole, NULL);
    int rb = 0;
    size_t step = size ? 1 + data[0] % 7 : 1;
    for (size_t off = 0; off < size && rb == 0; off += step) {
        rb = qmp_feed(b, str_n(all.p + off, MIN(step, size - off)), on_msg, &parts, NULL);
    }
    assert(ra == rb && whole.n == parts.n && whole.sum == parts.sum);
    if (ra < 0) {
        assert(qmp_feed(a, STR("{\"return\":{}}\n"), on_msg, &whole, NULL) < 0);
    }
    return 0;
}
