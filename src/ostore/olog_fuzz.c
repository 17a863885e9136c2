/* An image of a segment: the header says how its frames are bound, the rest is walked as the newest
 * segment and, when that ended, as a closed one with that end: as it is, and once more with the
 * checksums of its frames made right, so that a mutation reaches what lies behind them. What is
 * delivered is whole, in order, and the same both times. */
#include "ostore/olog_int.h"

#include "base/bytes.h"
#include "crypto/crc.h"
#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct image {
    const uint8_t *p;
    size_t n;
    uint64_t lsn, digest, n_records;
    bool is_in_group;
};

static ssize_t read_image(struct scan_copy *c, void *p, size_t n, uint64_t off)
{
    const struct image *m = c->ctx;
    size_t have = off < m->n ? m->n - (size_t)off : 0;
    n = MIN(n, have);
    if (n > 0) {
        memcpy(p, m->p + off, n);
    }
    return (ssize_t)n;
}

static int on_record(void *ctx, const struct olog_rec *r, struct err *err)
{
    struct image *m = ctx;
    assert(r->lsn > m->lsn && r->size % 8 == 0 && r->at.off % 8 == 0);
    assert(r->at.off + (uint64_t)r->size <= m->n);
    assert(r->head.n <= OREC_HEAD_MAX && r->body.n <= OREC_BODY_MAX);
    m->lsn = r->lsn;
    m->n_records++;
    m->is_in_group = (r->flags & OLOG_GROUP) && !(r->flags & OLOG_GROUP_END);
    m->digest =
        m->digest * 31 + crc_add(CRC_32C, crc_add(CRC_32C, r->lsn & 0xffff, r->head), r->body);
    return 0;
}

static int walk(struct image *m, const struct seg_header *h, struct scan_range *r)
{
    struct oscan s = {.segment = h->segment,
                      .base_crc = seg_base_crc(h->log_id, h->segment),
                      .limit = MAX((uint64_t)m->n, SEG_HEADER)};
    struct err err = ERR_INIT;
    s.c[0] = (struct scan_copy){.read = read_image, .ctx = m};
    s.n = 1;
    m->lsn = m->digest = m->n_records = 0;
    int rc = scan_walk(&s, r, 0, on_record, NULL, m, &err);
    assert(rc == 0 || (err.code == rc && err.name));
    assert(rc < 0 || !m->is_in_group);
    scan_done(&s);
    return rc;
}

/* Frames whose sizes fit get checksums that do, too. */
static void make_right(uint8_t *p, size_t n, const struct seg_header *h)
{
    uint32_t base = seg_base_crc(h->log_id, h->segment);
    for (size_t at = SEG_HEADER; at + FRAME_SIZE <= n; at += 8) {
        struct frame f = {0};
        uint32_t head = get_u32(p + at + 8), body = get_u32(p + at + 12);
        if (memcmp(p + at, "OREC", 4) != 0 || head > n || body > n) {
            continue;
        }
        size_t body_at = at + FRAME_SIZE + pad8(head);
        if (body_at + body > n) {
            continue;
        }
        f = (struct frame){.kind = get_u16(p + at + 4),
                           .flags = p[at + 7] & 7,
                           .head_size = head,
                           .body_size = body,
                           .lsn = get_u64(p + at + 16),
                           .synced_lsn = get_u64(p + at + 24)};
        f.head_crc = (uint32_t)crc_add(CRC_32C, 0, str_n((char *)p + at + FRAME_SIZE, head));
        f.body_crc = (uint32_t)crc_add(CRC_32C, 0, str_n((char *)p + body_at, body));
        frame_encode(&f, base, (uint32_t)at, p + at);
    }
}

static void look(const uint8_t *p, size_t size, const struct seg_header *h)
{
    struct image m = {.p = p, .n = size};
    struct scan_range r = {.first_lsn = h->first_lsn};
    if (walk(&m, h, &r) < 0 || r.n_lost > 0) {
        return;
    }
    assert(r.end >= SEG_HEADER && r.end <= MAX(size, (size_t)SEG_HEADER));
    assert(r.last_lsn + 1 - h->first_lsn == r.n_records);
    uint64_t digest = m.digest, n = m.n_records;
    struct scan_range closed = {
        .first_lsn = h->first_lsn, .end = r.end, .last_lsn = r.last_lsn, .is_closed = true};
    int rc = walk(&m, h, &closed);
    assert(rc == 0 && closed.n_lost == 0 && m.digest == digest && m.n_records == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The header is short in the input: log id, number and first lsn; its form is tried as well. */
    struct seg_header h = {.segment = 1, .first_lsn = 1, .size = SEG_MIN};
    struct seg_end e;
    if (size >= SEG_HEADER) {
        struct seg_header other;
        int rc = seg_header_decode(data, &other);
        assert(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP);
        h = rc == 0 ? other : h;
    }
    for (size_t at = 0; at + END_SIZE <= size && at < 8 * END_SIZE; at += END_SIZE) {
        if (seg_end_decode(data + at, seg_base_crc(h.log_id, h.segment), at, &e) == 0) {
            assert(e.end == at && e.last_lsn + 1 >= e.first_lsn);
        }
    }
    look(data, size, &h);
    if (size > 0) {
        uint8_t *p = malloc(size);
        assert(p);
        memcpy(p, data, size);
        make_right(p, size, &h);
        look(p, size, &h);
        free(p);
    }
    return 0;
}
