/* vu_request.h — what a chain of descriptors asks of a virtio-blk device.
 * Not here: descriptors (vu_ring.h), doing it (vu_queue.c).
 * Threads:  no state.
 * Memory:   borrows the chain's buffers, which are the guest's and change at any time: the
 *           header and the ranges of DISCARD and WRITE_ZEROES are copied before they are
 *           looked at.
 * Errors:   -EPROTO: no room for a header or a status, the ring is broken. What virtio answers
 *           with a status is no error here.
 * Source:   virtio 1.2 section 5.2.6. Where a driver cuts its buffers is free: header, data
 *           and status are gathered. */
#pragma once
#include "blk/vu_ring.h"

#define VU_MAX_RANGES 16u /* of one DISCARD or WRITE_ZEROES */

enum vu_do {
    VU_DO_ANSWER, /* nothing to do: 'status' is the answer */
    VU_DO_IO, /* READ, WRITE or FLUSH of off, len with the pieces iov[first ... first + n) */
    VU_DO_RANGES, /* ops over ranges[] */
};

struct vu_device { /* what requests are checked against */
    uint64_t size;
    bool is_read_only;
    const char *serial;
};

struct vu_range {
    uint64_t off, len;
    unsigned flags; /* BLK_NO_UNMAP */
};

struct vu_request {
    enum vu_do what;
    enum blk_op op;
    uint8_t status; /* VIRTIO_BLK_S_*, of VU_DO_ANSWER */
    uint8_t *ret_status;
    uint32_t written; /* bytes that the device writes, for the used ring */
    uint64_t off, len;
    unsigned first, n; /* of chain->iov */
    unsigned n_ranges;
    struct vu_range ranges[VU_MAX_RANGES];
};

/* Takes header and status off the chain's pieces (they are changed). */
MUST_CHECK int vu_request_read(struct vu_chain *c, const struct vu_device *d,
                               struct vu_request *ret);
/* The next part of 'left' pieces, when a request is longer, or in more pieces, than the engine
 * takes at once: whole sectors. The last piece is cut; *ret_rest is what was cut off (NULL:
 * nothing), to be put in its place when the part is done. false: BLK_MAX_IOV pieces are less
 * than a sector. */
bool vu_request_part(struct iovec *v, unsigned left, unsigned *ret_n, uint64_t *ret_len,
                     struct iovec *ret_rest);
/* The status for an end of the engine. */
uint8_t vu_request_status(int rc);
