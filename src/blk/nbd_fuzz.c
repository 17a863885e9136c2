#include "blk/nbd_int.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct nbd_export plain = {.name = "vol-1", .size = UINT64_C(1) << 30};
static const struct nbd_export dirty = {
    .name = "vol-2", .size = 4096, .is_read_only = true, .has_dirty = true};

static uint64_t get(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

/* What a server says before it serves by GO is a row of replies, each as long as it says. */
static void check_replies(const uint8_t *p, size_t n)
{
    while (n > 0) {
        assert(n >= 20 && get(p, 8) == NBD_REP_MAGIC);
        size_t len = get(p + 16, 4);
        assert(len <= n - 20 && len <= NBD_MAX_NAME + 64);
        p += 20 + len;
        n -= 20 + len;
    }
}

static void check_handshake(const uint8_t *p, size_t n, const struct nbd_export *x)
{
    struct nbd_hs h;
    AUTO_BUF out;
    buf_init(&out, 1 << 20);
    nbd_hs_begin(&h, x, &out);
    assert(out.n == 18);
    while (!h.is_serving && !h.is_over) {
        uint32_t opt = n >= 12 && h.has_flags && h.skip == 0 ? (uint32_t)get(p + 8, 4) : 0;
        buf_clear(&out);
        ssize_t used = nbd_hs_step(&h, p, n, &out);
        if (used <= 0) {
            assert(used == -EPROTO || n < NBD_MAX_OPT + 16);
            return;
        }
        assert((size_t)used <= n && buf_ok(&out) && h.n_opts <= NBD_MAX_OPTS);
        if (opt == NBD_OPT_EXPORT_NAME) {
            assert(h.is_over ? out.n == 0 : out.n == (h.no_zeroes ? 10u : 134u));
        } else {
            check_replies((const uint8_t *)out.p, out.n);
        }
        assert((h.ctx & 2u) == 0 || x->has_dirty);
        assert(h.ctx == 0 || h.is_structured);
        p += used;
        n -= (size_t)used;
    }
}

/* The answer to a read covers it, once, and has its bytes. */
static void check_read(const struct nbd_job *j, const struct nbd_hs *h)
{
    AUTO_BUF all;
    uint64_t covered = 0;
    bool is_done = false;
    buf_init(&all, 1 << 20);
    for (unsigned i = 0; i < j->n_iov; i++) {
        buf_add(&all, str_n(j->out[i].iov_base, j->out[i].iov_len));
    }
    assert(buf_ok(&all));
    const uint8_t *p = (const uint8_t *)all.p;
    size_t n = all.n;
    if (!h->is_structured) {
        assert(n == 16 + (j->error ? 0 : j->r.len) && get(p, 4) == NBD_SIMPLE_MAGIC);
        assert(j->error || memcmp(p + 16, j->data, j->r.len) == 0);
        return;
    }
    while (n > 0) {
        assert(!is_done && n >= 20 && get(p, 4) == NBD_CHUNK_MAGIC);
        unsigned flags = (unsigned)get(p + 4, 2), type = (unsigned)get(p + 6, 2);
        size_t len = get(p + 16, 4);
        assert(len <= n - 20 && get(p + 8, 8) == j->r.cookie);
        is_done = flags == NBD_CHUNK_DONE;
        if (type == NBD_CHUNK_DATA || type == NBD_CHUNK_HOLE) {
            uint64_t off = get(p + 20, 8) - j->r.off;
            size_t bytes = type == NBD_CHUNK_HOLE ? get(p + 28, 4) : len - 8;
            assert(off == covered && bytes > 0 && off + bytes <= j->r.len);
            for (size_t i = 0; i < bytes; i++) {
                assert(j->data[off + i] == (type == NBD_CHUNK_HOLE ? 0 : p[28 + i]));
            }
            covered += bytes;
        }
        p += 20 + len;
        n -= 20 + len;
    }
    assert(is_done && (j->error || covered == j->r.len));
}

static void check_request(const uint8_t *p, size_t n, const struct nbd_export *x,
                          unsigned choice)
{
    struct nbd_hs h = {.x = x, .has_flags = true, .is_structured = (choice & 1) != 0};
    h.ctx = h.is_structured ? (choice >> 1 & 1) | (x->has_dirty ? choice >> 1 & 2 : 0) : 0;
    struct nbd_job j = {.error_off = UINT64_MAX};
    if (n < NBD_REQUEST_SIZE || nbd_request_parse(p, &j.r) != 0) {
        return;
    }
    j.error = nbd_request_check(&j.r, x, &h);
    if (j.error == 0) {
        assert(j.r.type != NBD_CMD_CACHE && j.r.type <= NBD_CMD_BLOCK_STATUS);
        assert(j.r.len <= x->size && j.r.off <= x->size - j.r.len);
        assert(j.r.off % 512 == 0 && j.r.len % 512 == 0);
        assert(!x->is_read_only || j.r.type == NBD_CMD_READ || j.r.type == NBD_CMD_FLUSH ||
               j.r.type == NBD_CMD_BLOCK_STATUS || j.r.type == NBD_CMD_DISC);
    }
    if (j.r.type != NBD_CMD_READ || j.r.len > 1 << 19) {
        return;
    }
    buf_init(&j.head, 16384);
    j.data = calloc(1, (size_t)j.r.len + 1);
    assert(j.data);
    for (size_t i = NBD_REQUEST_SIZE; i + 3 < n && j.r.len > 0; i += 4) {
        size_t at = (size_t)(get(p + i, 3) % j.r.len); /* some bytes that are not zero */
        j.data[at] = p[i + 3];
    }
    nbd_reply(&j, &h);
    assert(buf_ok(&j.head) && j.n_iov <= ARRAY_LEN(j.out));
    check_read(&j, &h);
    free(j.data);
    buf_done(&j.head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const struct nbd_export *x = (data[0] & 1) ? &dirty : &plain;
    if (data[0] & 2) {
        check_request(data + 1, size - 1, x, data[0] >> 2);
    } else {
        check_handshake(data + 1, size - 1, x);
    }
    return 0;
}
