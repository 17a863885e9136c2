#include "blk/nbd_int.h"
#include <errno.h>
#include <string.h>

static void put(struct buf *out, uint64_t v, unsigned n)
{
    for (unsigned i = n; i > 0; i--) {
        buf_add_char(out, (char)(uint8_t)(v >> (8 * (i - 1))));
    }
}

static uint64_t get(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

/* ---- requests ---- */

int nbd_request_parse(const uint8_t p[NBD_REQUEST_SIZE], struct nbd_request *ret)
{
    if (get(p, 4) != NBD_REQUEST_MAGIC) {
        return -EPROTO;
    }
    ret->flags = (uint16_t)get(p + 4, 2);
    ret->type = (uint16_t)get(p + 6, 2);
    ret->cookie = get(p + 8, 8);
    ret->off = get(p + 16, 8);
    ret->len = (uint32_t)get(p + 24, 4);
    /* The rest of such a write would have to be read to the end before the next request. */
    return ret->type == NBD_CMD_WRITE && ret->len > NBD_MAX_PAYLOAD ? -EPROTO : 0;
}

static unsigned known_flags(unsigned type, const struct nbd_hs *h)
{
    switch (type) {
    case NBD_CMD_READ: return NBD_FUA | (h->is_structured ? NBD_DF : 0);
    case NBD_CMD_WRITE_ZEROES: return NBD_FUA | NBD_NO_HOLE; /* FAST_ZERO was not offered */
    case NBD_CMD_BLOCK_STATUS: return NBD_FUA | NBD_REQ_ONE;
    default: return NBD_FUA;
    }
}

uint32_t nbd_request_check(const struct nbd_request *r, const struct nbd_export *x,
                           const struct nbd_hs *h)
{
    bool is_change =
        r->type == NBD_CMD_WRITE || r->type == NBD_CMD_TRIM || r->type == NBD_CMD_WRITE_ZEROES;
    bool is_status = r->type == NBD_CMD_BLOCK_STATUS;
    if (r->type > NBD_CMD_BLOCK_STATUS || r->type == NBD_CMD_CACHE ||
        (r->flags & ~known_flags(r->type, h)) != 0) {
        return NBD_EINVAL;
    }
    if (is_change && x->is_read_only) {
        return NBD_EPERM;
    }
    if (r->type == NBD_CMD_FLUSH) {
        return r->off == 0 && r->len == 0 ? 0 : NBD_EINVAL;
    }
    if (r->len > x->size || r->off > x->size - r->len) {
        return is_change ? NBD_ENOSPC : NBD_EINVAL;
    }
    if (r->off % BLK_SECTOR != 0 || r->len % BLK_SECTOR != 0) {
        return NBD_EINVAL;
    }
    if ((is_status && (h->ctx == 0 || r->len == 0)) ||
        (r->type == NBD_CMD_READ && r->len > NBD_MAX_PAYLOAD)) {
        return NBD_EINVAL;
    }
    return 0;
}

uint32_t nbd_error(int rc)
{
    switch (rc) {
    case 0: return 0;
    case -EPERM:
    case -EACCES:
    case -EROFS: return NBD_EPERM;
    case -ENOMEM: return NBD_ENOMEM;
    case -EINVAL: return NBD_EINVAL;
    case -ENOSPC:
    case -EDQUOT:
    case -EFBIG: return NBD_ENOSPC;
    default: return NBD_EIO;
    }
}

/* ---- answers ---- */

static void chunk(struct nbd_job *j, bool is_last, unsigned type, uint64_t len)
{
    put(&j->head, NBD_CHUNK_MAGIC, 4);
    put(&j->head, is_last ? NBD_CHUNK_DONE : 0, 2);
    put(&j->head, type, 2);
    put(&j->head, j->r.cookie, 8);
    put(&j->head, len, 4);
}

static void simple(struct nbd_job *j)
{
    put(&j->head, NBD_SIMPLE_MAGIC, 4);
    put(&j->head, j->error, 4);
    put(&j->head, j->r.cookie, 8);
}

static void structured_error(struct nbd_job *j)
{
    bool has_off = j->r.type == NBD_CMD_READ && j->error_off != UINT64_MAX;
    chunk(j, true, has_off ? NBD_CHUNK_ERROR_OFFSET : NBD_CHUNK_ERROR, has_off ? 14 : 6);
    put(&j->head, j->error, 4);
    put(&j->head, 0, 2); /* no text */
    if (has_off) {
        put(&j->head, j->error_off, 8);
    }
}

/* ---- data with holes ---- */

struct part {
    uint32_t off, len;
    bool is_hole;
};

static bool is_zero(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i += 64) { /* most data says so in its first bytes */
        uint64_t w[8];
        memcpy(w, p + i, sizeof(w));
        v = w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7];
        if (v != 0) {
            return false;
        }
    }
    return true;
}

/* Length of the run of zero blocks at 'off', in steps of NBD_HOLE_MIN. */
static uint32_t hole_at(const struct nbd_job *j, uint32_t off)
{
    uint32_t n = 0;
    while (off + n < j->r.len) {
        uint32_t step = MIN(NBD_HOLE_MIN, j->r.len - off - n);
        if (!is_zero(j->data + off + n, step)) {
            break;
        }
        n += step;
    }
    return n;
}

static unsigned split(const struct nbd_job *j, struct part v[NBD_MAX_CHUNKS])
{
    unsigned n = 0;
    uint32_t off = 0;
    while (off < j->r.len) {
        uint32_t hole = n + 2 < NBD_MAX_CHUNKS ? hole_at(j, off) : 0;
        uint32_t len = hole > 0 ? hole : MIN(NBD_HOLE_MIN, j->r.len - off);
        if (n + 2 >= NBD_MAX_CHUNKS) {
            len = j->r.len - off;
        }
        if (n > 0 && v[n - 1].is_hole == (hole > 0)) {
            v[n - 1].len += len;
        } else {
            v[n++] = (struct part){.off = off, .len = len, .is_hole = hole > 0};
        }
        off += len;
    }
    return n;
}

static void structured_data(struct nbd_job *j)
{
    struct part v[NBD_MAX_CHUNKS];
    size_t heads[NBD_MAX_CHUNKS]; /* where in j->head each begins: it moves while it grows */
    unsigned n = 1;
    v[0] = (struct part){.len = j->r.len};
    if ((j->r.flags & NBD_DF) == 0) {
        n = split(j, v);
    }
    for (unsigned i = 0; i < n; i++) {
        heads[i] = j->head.n;
        bool is_last = i + 1 == n;
        if (v[i].is_hole) {
            chunk(j, is_last, NBD_CHUNK_HOLE, 12);
            put(&j->head, j->r.off + v[i].off, 8);
            put(&j->head, v[i].len, 4);
        } else {
            chunk(j, is_last, NBD_CHUNK_DATA, 8 + (uint64_t)v[i].len);
            put(&j->head, j->r.off + v[i].off, 8);
        }
    }
    for (unsigned i = 0; i < n; i++) {
        size_t end = i + 1 < n ? heads[i + 1] : j->head.n;
        j->out[j->n_iov++] =
            (struct iovec){.iov_base = j->head.p + heads[i], .iov_len = end - heads[i]};
        if (!v[i].is_hole) {
            j->out[j->n_iov++] =
                (struct iovec){.iov_base = j->data + v[i].off, .iov_len = v[i].len};
        }
    }
}

void nbd_reply(struct nbd_job *j, const struct nbd_hs *h)
{
    bool is_read = j->r.type == NBD_CMD_READ, is_status = j->r.type == NBD_CMD_BLOCK_STATUS;
    j->n_iov = j->iov_idx = 0;
    if (h->is_structured && (is_read || is_status)) {
        if (j->error != 0) {
            buf_clear(&j->head);
            structured_error(j);
        } else if (is_read && j->r.len > 0) {
            structured_data(j);
            return;
        } else if (is_read) {
            chunk(j, true, NBD_CHUNK_NONE, 0);
        }
    } else {
        simple(j);
    }
    j->out[j->n_iov++] = (struct iovec){.iov_base = j->head.p, .iov_len = j->head.n};
    if (is_read && !h->is_structured && j->error == 0 && j->r.len > 0) {
        j->out[j->n_iov++] = (struct iovec){.iov_base = j->data, .iov_len = j->r.len};
    }
}

void nbd_job_free(struct nbd_job *j)
{
    if (j) {
        free(j->data);
        buf_done(&j->head);
        free(j);
    }
}

/* ---- block status ---- */

static void status_chunk(struct nbd_job *j, bool is_last, unsigned ctx, const uint32_t (*v)[2],
                         unsigned n)
{
    chunk(j, is_last, NBD_CHUNK_STATUS, 4 + (uint64_t)n * 8);
    put(&j->head, ctx + 1, 4);
    for (unsigned i = 0; i < n; i++) {
        put(&j->head, v[i][0], 4);
        put(&j->head, v[i][1], 4);
    }
}

void nbd_status_put(struct nbd_job *j, const struct nbd_hs *h,
                    const struct nbd_extents v[NBD_CTX_N])
{
    for (unsigned c = 0; c < NBD_CTX_N; c++) {
        if (h->ctx & (1u << c)) {
            bool is_last = h->ctx >> (c + 1) == 0;
            status_chunk(j, is_last, c, v[c].v, v[c].n);
        }
    }
}

/* Adds a run to the extents; false when they are full. */
bool nbd_extents_add(struct nbd_extents *x, uint32_t len, uint32_t flags, unsigned max)
{
    if (x->n > 0 && x->v[x->n - 1][1] == flags) {
        x->v[x->n - 1][0] += len;
        return true;
    }
    if (x->n == max) {
        return false;
    }
    x->v[x->n][0] = len;
    x->v[x->n][1] = flags;
    x->n++;
    return true;
}
