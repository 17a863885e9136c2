/* olog_scan.h — walking a segment: records whole, in order, from whichever copy has them.
 * Not here: which segments there are (olog_open.c), writing.
 * Threads:  a struct oscan belongs to one thread.
 * Memory:   scan_open() + scan_done(); a window of 1 MiB (and at most one record) per copy.
 * Errors:   as in olog.h. A copy that cannot be read is one that does not have the record. */
#pragma once
#include "ostore/olog_frame.h"

struct seg_file;
struct scan_copy;
typedef ssize_t (*scan_read_fn)(struct scan_copy *c, void *p, size_t n, uint64_t off);
struct scan_copy {
    unsigned drive;
    scan_read_fn read;
    void *ctx; /* its own */
    struct seg_file *file;
    uint8_t *buf;
    size_t cap, have;
    uint64_t base; /* offset of buf */
};
struct oscan {
    uint64_t segment;
    uint32_t base_crc;
    uint64_t limit; /* nothing behind it is looked at */
    struct scan_copy c[DRIVES_MAX];
    unsigned n, first; /* first: which copy is asked first */
    uint32_t bad;      /* copies (index) that did not have the record asked for last */
    bool is_all;       /* every copy is looked at, not only the first good one */
};
struct scan_range {
    uint64_t first_lsn;     /* of the segment */
    uint64_t end, last_lsn; /* in: of a closed segment; out: where the log ends */
    bool is_closed;
    /* out */
    uint64_t n_records, n_lost, lost_lsn; /* lost_lsn: the first one */
    uint64_t n_repaired;
    uint32_t repaired; /* copies (index) that were written */
};
/* Of one segment; 'drives' are the copies to read. */
MUST_CHECK int scan_open(struct olog *l, uint64_t segment, uint32_t drives, struct oscan *ret);
void scan_done(struct oscan *s);
/* Bytes of one copy, borrowed until the next call for that copy. -ENODATA: behind the end. */
MUST_CHECK int scan_bytes(struct scan_copy *c, uint64_t off, size_t n, const uint8_t **ret);
/* The whole record at 'off' with this lsn, from the first copy that has it. -EBADMSG: none. */
MUST_CHECK int scan_record(struct oscan *s, uint64_t off, uint64_t lsn, struct olog_rec *ret,
                           struct frame *ret_frame);
typedef int (*scan_repair_fn)(void *ctx, struct oscan *s, const struct olog_rec *r,
                              struct err *err);
/* All whole records of complete groups from 'from_lsn' on go to 'fn' (NULL: nobody). Copies that
 * are bad are given to 'repair' (NULL: left). */
MUST_CHECK int scan_walk(struct oscan *s, struct scan_range *io, uint64_t from_lsn, olog_fn fn,
                         scan_repair_fn repair, void *ctx, struct err *err);
