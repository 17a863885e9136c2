#include "blk/vu_request.h"
#include <errno.h>
#include <linux/virtio_blk.h>
#include <string.h>

/* Takes 'n' bytes off the front of the pieces from *first on, to 'to'; false when there are
 * fewer. */
static bool take_front(struct iovec *iov, unsigned *first, unsigned *n_iov, void *to, size_t n)
{
    uint8_t *p = to;
    while (n > 0) {
        if (*n_iov == 0) {
            return false;
        }
        struct iovec *v = &iov[*first];
        size_t m = MIN(n, v->iov_len);
        memcpy(p, v->iov_base, m);
        p += m;
        n -= m;
        v->iov_base = (uint8_t *)v->iov_base + m;
        v->iov_len -= m;
        if (v->iov_len == 0) {
            *first += 1;
            *n_iov -= 1;
        }
    }
    return true;
}

static void put_front(const struct iovec *iov, unsigned n_iov, const void *from, size_t n)
{
    const uint8_t *p = from;
    for (unsigned i = 0; i < n_iov && n > 0; i++) {
        size_t m = MIN(n, iov[i].iov_len);
        memcpy(iov[i].iov_base, p, m);
        p += m;
        n -= m;
    }
}

static void answer(struct vu_request *r, uint8_t status)
{
    r->what = VU_DO_ANSWER;
    r->status = status;
}

/* Whole sectors within the disk, without overflow. */
static bool is_in_disk(const struct vu_device *d, uint64_t sector, uint64_t len, uint64_t *ret)
{
    uint64_t n_sectors = d->size / BLK_SECTOR;
    if (len % BLK_SECTOR != 0 || sector > n_sectors || len / BLK_SECTOR > n_sectors - sector) {
        return false;
    }
    *ret = sector * BLK_SECTOR;
    return true;
}

static void read_ranges(struct vu_chain *c, const struct vu_device *d, bool is_discard,
                        uint64_t len, struct vu_request *r)
{
    struct virtio_blk_discard_write_zeroes v;
    if (d->is_read_only || len == 0 || len % sizeof(v) != 0 ||
        len / sizeof(v) > VU_MAX_RANGES) {
        answer(r, VIRTIO_BLK_S_IOERR);
        return;
    }
    r->what = VU_DO_RANGES;
    r->op = is_discard ? BLK_DISCARD : BLK_ZEROES;
    for (uint64_t i = 0; i < len / sizeof(v); i++) {
        if (!take_front(c->iov, &r->first, &r->n, &v, sizeof(v))) {
            answer(r, VIRTIO_BLK_S_IOERR);
            return;
        }
        struct vu_range *to = &r->ranges[r->n_ranges];
        bool is_unmap = (v.flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP) != 0;
        /* Reserved flags, and 'unmap' of a discard, are "not supported" (5.2.6.2). */
        if ((v.flags & ~(uint32_t)VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP) != 0 ||
            (is_discard && is_unmap)) {
            answer(r, VIRTIO_BLK_S_UNSUPP);
            return;
        }
        to->len = (uint64_t)v.num_sectors * BLK_SECTOR;
        to->flags = is_discard || is_unmap ? 0 : BLK_NO_UNMAP;
        if (!is_in_disk(d, v.sector, to->len, &to->off)) {
            answer(r, VIRTIO_BLK_S_IOERR);
            return;
        }
        r->n_ranges += to->len > 0 ? 1 : 0;
    }
    if (r->n_ranges == 0) {
        answer(r, VIRTIO_BLK_S_OK);
    }
}

static void read_io(const struct vu_device *d, enum blk_op op, uint64_t sector, uint64_t len,
                    struct vu_request *r)
{
    r->what = VU_DO_IO;
    r->op = op;
    r->len = len;
    if ((op == BLK_WRITE && d->is_read_only) || !is_in_disk(d, sector, len, &r->off)) {
        answer(r, VIRTIO_BLK_S_IOERR);
    } else if (len == 0) {
        answer(r, VIRTIO_BLK_S_OK);
    }
}

int vu_request_read(struct vu_chain *c, const struct vu_device *d, struct vu_request *ret)
{
    struct virtio_blk_outhdr h;
    unsigned first = 0, n_out = c->n_out;
    if (!take_front(c->iov, &first, &n_out, &h, sizeof(h)) || c->in_len == 0) {
        return -EPROTO;
    }
    struct iovec *last = &c->iov[c->n_out + c->n_in - 1];
    last->iov_len--; /* no descriptor is empty */
    unsigned n_in = c->n_in - (last->iov_len == 0 ? 1 : 0);
    uint64_t out_len = c->out_len - sizeof(h), in_len = c->in_len - 1;

    ret->what = VU_DO_ANSWER;
    ret->ret_status = (uint8_t *)last->iov_base + last->iov_len;
    ret->written = 1;
    ret->off = ret->len = 0;
    ret->first = first;
    ret->n = n_out;
    ret->n_ranges = 0;
    switch (h.type) {
    case VIRTIO_BLK_T_IN:
        ret->first = c->n_out;
        ret->n = n_in;
        read_io(d, BLK_READ, h.sector, in_len, ret);
        /* The status is the last byte: all before it counts as written. */
        ret->written = (uint32_t)MIN(c->in_len, UINT32_MAX);
        break;
    case VIRTIO_BLK_T_OUT: read_io(d, BLK_WRITE, h.sector, out_len, ret); break;
    case VIRTIO_BLK_T_FLUSH:
        ret->what = VU_DO_IO;
        ret->op = BLK_FLUSH;
        break;
    case VIRTIO_BLK_T_GET_ID: {
        char id[VIRTIO_BLK_ID_BYTES] = {0};
        memcpy(id, d->serial, MIN(strlen(d->serial), sizeof(id)));
        put_front(&c->iov[c->n_out], n_in, id, sizeof(id));
        ret->written = (uint32_t)MIN(c->in_len, UINT32_MAX);
        answer(ret, VIRTIO_BLK_S_OK);
        break;
    }
    case VIRTIO_BLK_T_DISCARD:
    case VIRTIO_BLK_T_WRITE_ZEROES:
        read_ranges(c, d, h.type == VIRTIO_BLK_T_DISCARD, out_len, ret);
        break;
    default: answer(ret, VIRTIO_BLK_S_UNSUPP); break;
    }
    return 0;
}

bool vu_request_part(struct iovec *v, unsigned left, unsigned *ret_n, uint64_t *ret_len,
                     struct iovec *ret_rest)
{
    unsigned n = 0;
    uint64_t len = 0;
    ret_rest->iov_base = NULL;
    while (n < left && n < BLK_MAX_IOV && len < BLK_MAX_LEN) {
        len += v[n++].iov_len;
    }
    uint64_t want = MIN(len, (uint64_t)BLK_MAX_LEN) / BLK_SECTOR * BLK_SECTOR;
    if (want == 0) {
        return false;
    }
    while (len - v[n - 1].iov_len >= want) {
        len -= v[--n].iov_len;
    }
    if (len > want) {
        uint64_t keep = v[n - 1].iov_len - (len - want);
        *ret_rest =
            (struct iovec){(uint8_t *)v[n - 1].iov_base + keep, v[n - 1].iov_len - keep};
        v[n - 1].iov_len = keep;
    }
    *ret_n = n;
    *ret_len = want;
    return true;
}

uint8_t vu_request_status(int rc)
{
    if (rc == 0) {
        return VIRTIO_BLK_S_OK;
    }
    return rc == -EOPNOTSUPP ? VIRTIO_BLK_S_UNSUPP : VIRTIO_BLK_S_IOERR;
}
