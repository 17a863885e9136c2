#include "ostore/olog_frame.h"

#include "base/bytes.h"
#include "base/num.h"
#include "crypto/crc.h"
#include <errno.h>
#include <stdio.h>

#define SEG_MAGIC   "SPXOLOG1"
#define FRAME_MAGIC "OREC"
#define END_MAGIC   "OEND"
#define FLAGS_KNOWN (OLOG_MOVED | OLOG_GROUP | OLOG_GROUP_END)

static uint32_t crc(uint32_t seed, const void *p, size_t n)
{
    return (uint32_t)crc_add(CRC_32C, seed, str_n(p, n));
}

uint32_t seg_base_crc(const uint8_t log_id[LOG_ID_SIZE], uint64_t segment)
{
    uint8_t b[LOG_ID_SIZE + 8];
    memcpy(b, log_id, LOG_ID_SIZE);
    put_u64(b + LOG_ID_SIZE, segment);
    return crc(0, b, sizeof(b));
}

/* Of a block of 64 bytes whose last four are the CRC: bound to its log, segment and place. */
static uint32_t block_crc(const uint8_t *p, uint32_t base_crc, uint64_t off)
{
    uint8_t place[4];
    put_u32(place, (uint32_t)off);
    return crc(crc(base_crc, place, sizeof(place)), p, 60);
}

void seg_header_encode(const struct seg_header *h, uint8_t out[SEG_HEADER])
{
    memset(out, 0, SEG_HEADER);
    memcpy(out, SEG_MAGIC, 8);
    put_u32(out + 8, 1);
    put_u32(out + 12, SEG_HEADER);
    memcpy(out + 16, h->log_id, LOG_ID_SIZE);
    put_u64(out + 32, h->segment);
    put_u64(out + 40, h->first_lsn);
    put_u64(out + 48, h->prev_end);
    put_u64(out + 56, h->epoch);
    put_u64(out + 64, h->create_ns);
    put_u32(out + 72, 0);
    put_u32(out + 76, h->size);
    put_u64(out + 80, h->prev_lsn);
    put_u32(out + SEG_HEADER - 4, crc(0, out, SEG_HEADER - 4));
}

int seg_header_decode(const uint8_t p[SEG_HEADER], struct seg_header *ret)
{
    if (memcmp(p, SEG_MAGIC, 8) != 0 ||
        get_u32(p + SEG_HEADER - 4) != crc(0, p, SEG_HEADER - 4)) {
        return -EBADMSG;
    }
    if (get_u32(p + 8) != 1 || get_u32(p + 12) != SEG_HEADER || get_u32(p + 72) != 0) {
        return -ENOTSUP;
    }
    struct seg_header h = {.segment = get_u64(p + 32),
                           .first_lsn = get_u64(p + 40),
                           .prev_end = get_u64(p + 48),
                           .epoch = get_u64(p + 56),
                           .create_ns = get_u64(p + 64),
                           .size = get_u32(p + 76),
                           .prev_lsn = get_u64(p + 80)};
    memcpy(h.log_id, p + 16, LOG_ID_SIZE);
    bool has_prev = h.prev_end != 0;
    if (h.segment == 0 || h.first_lsn == 0 || h.first_lsn <= h.prev_lsn || h.size < SEG_MIN ||
        h.size > SEG_MAX ||
        (has_prev && (h.prev_end < SEG_HEADER || h.prev_end > SEG_MAX || h.prev_end % 8))) {
        return -EBADMSG;
    }
    *ret = h;
    return 0;
}

void seg_end_encode(const struct seg_end *e, uint32_t base_crc, uint8_t out[END_SIZE])
{
    memset(out, 0, END_SIZE);
    memcpy(out, END_MAGIC, 4);
    put_u16(out + 4, 1);
    put_u64(out + 8, e->first_lsn);
    put_u64(out + 16, e->last_lsn);
    put_u64(out + 24, e->end);
    put_u32(out + 60, block_crc(out, base_crc, e->end));
}

int seg_end_decode(const uint8_t p[END_SIZE], uint32_t base_crc, uint64_t off,
                   struct seg_end *ret)
{
    if (memcmp(p, END_MAGIC, 4) != 0 || get_u32(p + 60) != block_crc(p, base_crc, off)) {
        return -EBADMSG;
    }
    if (get_u16(p + 4) != 1) {
        return -ENOTSUP;
    }
    struct seg_end e = {get_u64(p + 8), get_u64(p + 16), get_u64(p + 24)};
    if (e.end != off || e.end < SEG_HEADER || e.end % 8 || e.first_lsn == 0 ||
        e.last_lsn + 1 < e.first_lsn) {
        return -EBADMSG;
    }
    *ret = e;
    return 0;
}

void frame_encode(const struct frame *f, uint32_t base_crc, uint32_t off,
                  uint8_t out[FRAME_SIZE])
{
    memcpy(out, FRAME_MAGIC, 4);
    put_u16(out + 4, f->kind);
    out[6] = 1;
    out[7] = f->flags;
    put_u32(out + 8, f->head_size);
    put_u32(out + 12, f->body_size);
    put_u64(out + 16, f->lsn);
    put_u64(out + 24, f->synced_lsn);
    put_u64(out + 32, f->epoch);
    put_u64(out + 40, f->time_ns);
    put_u16(out + 48, f->group);
    put_u16(out + 50, 0);
    put_u32(out + 52, f->head_crc);
    put_u32(out + 56, f->body_crc);
    put_u32(out + 60, block_crc(out, base_crc, off));
}

int frame_decode(const uint8_t p[FRAME_SIZE], uint32_t base_crc, uint32_t off,
                 struct frame *ret)
{
    if (memcmp(p, FRAME_MAGIC, 4) != 0 || get_u32(p + 60) != block_crc(p, base_crc, off)) {
        return -EBADMSG;
    }
    if (p[6] != 1 || (p[7] & ~(unsigned)FLAGS_KNOWN)) {
        return -ENOTSUP;
    }
    struct frame f = {.kind = get_u16(p + 4),
                      .flags = p[7],
                      .head_size = get_u32(p + 8),
                      .body_size = get_u32(p + 12),
                      .lsn = get_u64(p + 16),
                      .synced_lsn = get_u64(p + 24),
                      .epoch = get_u64(p + 32),
                      .time_ns = get_u64(p + 40),
                      .group = get_u16(p + 48),
                      .head_crc = get_u32(p + 52),
                      .body_crc = get_u32(p + 56)};
    if (f.head_size > OREC_HEAD_MAX || f.body_size > OREC_BODY_MAX || f.lsn == 0 ||
        f.synced_lsn >= f.lsn) {
        return -EBADMSG;
    }
    *ret = f;
    return 0;
}

void seg_name(uint64_t segment, bool is_tmp, char out[SEG_NAME_SIZE])
{
    (void)snprintf(out, SEG_NAME_SIZE, "%sseg-%016llx", is_tmp ? ".tmp-" : "",
                   (unsigned long long)segment);
}

int seg_name_parse(const char *name, uint64_t *ret, bool *ret_is_tmp)
{
    struct str s = str_c(name);
    *ret_is_tmp = str_has_prefixc(s, ".tmp-");
    s = *ret_is_tmp ? str_skip(s, 5) : s;
    uint64_t n = 0;
    char back[SEG_NAME_SIZE];
    if (!str_has_prefixc(s, "seg-") || s.n != 20 ||
        num_hex_u64(str_skip(s, 4), UINT64_MAX, &n) < 0 || n == 0) {
        return -EINVAL;
    }
    seg_name(n, *ret_is_tmp, back); /* one way to write it */
    *ret = n;
    return strcmp(back, name) == 0 ? 0 : -EINVAL;
}
