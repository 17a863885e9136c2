/* olog_frame.h — the bytes of the log: headers, frames, end blocks, names of segments.
 * Not here: files (olog_int.h), heads of records (record.h).
 * Format:   docs/formats/object-log.md.
 * Threads:  no state.
 * Memory:   encodes into and decodes from buffers of the caller.
 * Errors:   -EBADMSG: not that; -ENOTSUP: of a newer program. */
#pragma once
#include "ostore/olog.h"

#define SEG_HEADER    4096u
#define SEG_MIN       65536u
#define SEG_DEFAULT   (64u << 20)
#define SEG_MAX       (1u << 30)
#define SEG_NAME_SIZE 32u
#define FRAME_SIZE    64u
#define END_SIZE      64u
#define LOG_ID_SIZE   16u
#define REC_MAX       (FRAME_SIZE + OREC_HEAD_MAX + OREC_BODY_MAX)

struct seg_header {
    uint8_t log_id[LOG_ID_SIZE];
    uint64_t segment, first_lsn, prev_end, prev_lsn, epoch, create_ns;
    uint32_t size; /* of the segment while it is written */
};
/* The block that ends a closed segment. */
struct seg_end {
    uint64_t first_lsn, last_lsn; /* last: first - 1 when there is no record */
    uint64_t end;                 /* where it lies itself */
};
struct frame {
    uint16_t kind, group;
    uint8_t flags;
    uint32_t head_size, body_size, head_crc, body_crc;
    uint64_t lsn, synced_lsn, epoch, time_ns;
};

static inline uint32_t pad8(uint32_t n)
{
    return (n + 7u) & ~7u;
}
static inline uint32_t frame_record_size(const struct frame *f)
{
    return FRAME_SIZE + pad8(f->head_size) + pad8(f->body_size);
}
/* What the CRC of each frame of a segment begins with. */
uint32_t seg_base_crc(const uint8_t log_id[LOG_ID_SIZE], uint64_t segment);
void seg_header_encode(const struct seg_header *h, uint8_t out[SEG_HEADER]);
/* -EBADMSG: no header; -ENOTSUP: of a newer program. */
MUST_CHECK int seg_header_decode(const uint8_t p[SEG_HEADER], struct seg_header *ret);
void seg_end_encode(const struct seg_end *e, uint32_t base_crc, uint8_t out[END_SIZE]);
MUST_CHECK int seg_end_decode(const uint8_t p[END_SIZE], uint32_t base_crc, uint64_t off,
                              struct seg_end *ret);
void frame_encode(const struct frame *f, uint32_t base_crc, uint32_t off,
                  uint8_t out[FRAME_SIZE]);
/* -EBADMSG: no frame of this place; -ENOTSUP: one of a newer program. */
MUST_CHECK int frame_decode(const uint8_t p[FRAME_SIZE], uint32_t base_crc, uint32_t off,
                            struct frame *ret);
void seg_name(uint64_t segment, bool is_tmp, char out[SEG_NAME_SIZE]);
/* -EINVAL: another file. */
MUST_CHECK int seg_name_parse(const char *name, uint64_t *ret, bool *ret_is_tmp);
