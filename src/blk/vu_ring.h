/* vu_ring.h — a split virtqueue seen from the device: heads taken from the available ring,
 *             chains of descriptors turned into iovecs, heads given back through the used ring.
 * Not here: what a chain means (vu_request.h), threads and eventfds (vu_queue.h).
 * Threads:  belongs to the ring's thread; the guest changes the shared memory at any time:
 *           every value is read once, then checked, then used.
 * Memory:   borrows the guest's memory.
 * Errors:   -EPROTO: the guest broke a rule of virtio 1.2 section 2.7; the ring is not usable
 *           any more.
 * Limits:   a chain has at most VU_MAX_IOV pieces (SEG_MAX says less) and 'num' descriptors, an
 *           indirect table as many; a head is under way at most once. */
#pragma once
#include "blk/vu.h"
#include "blk/vu_mem.h"
#include <sys/uio.h>

#define VU_SEG_MAX 126u               /* data segments of a request, told to the guest */
#define VU_MAX_IOV (VU_SEG_MAX + 10u) /* header, status, and pieces cut by ends of regions */

struct vring_desc;
struct vring_avail;
struct vring_used;

struct vu_ring {
    const struct vu_mem *mem;
    uint16_t num, last_avail, used_idx, signalled;
    bool has_event_idx, has_indirect, is_signal_due;
    unsigned n_in_flight;
    struct vring_desc *desc;
    struct vring_avail *avail;
    struct vring_used *used;
    uint64_t in_flight[VU_QUEUE_SIZE / 64];
};

struct vu_ring_opts {
    const struct vu_mem *mem;
    uint16_t num;
    bool has_event_idx, has_indirect;
    uint64_t desc, avail, used; /* frontend's addresses */
};
/* Resolves the ring; last_avail and used_idx are both the used ring's index. -EPROTO: outside
 * of memory or not aligned. */
MUST_CHECK int vu_ring_init(struct vu_ring *r, const struct vu_ring_opts *o);

/* 1 and the next head, now under way; 0: there is none; -EPROTO. */
MUST_CHECK int vu_ring_next(struct vu_ring *r, uint16_t *ret_head);
/* Marks a head as under way that was taken before a crash. */
MUST_CHECK int vu_ring_again(struct vu_ring *r, uint16_t head);
/* Something may be there that vu_ring_next() has not taken. */
bool vu_ring_has_next(const struct vu_ring *r);

struct vu_chain {
    unsigned n_out, n_in; /* pieces that the device reads, then pieces that it writes */
    uint64_t out_len, in_len;
    struct iovec iov[VU_MAX_IOV];
};
MUST_CHECK int vu_ring_chain(const struct vu_ring *r, uint16_t head, struct vu_chain *ret);

/* Puts a head into the used ring; seen by the guest after vu_ring_publish(). */
void vu_ring_push(struct vu_ring *r, uint16_t head, uint32_t written);
void vu_ring_publish(struct vu_ring *r);
/* After publish: whether the guest wants to be told. 'is_forced': whatever it says. */
bool vu_ring_wants_call(struct vu_ring *r);
/* Asks for a kick at the next head (is_on), or says that none is needed. After asking, look
 * again with vu_ring_has_next(): the fence is inside. */
void vu_ring_ask_kick(struct vu_ring *r, bool is_on);
