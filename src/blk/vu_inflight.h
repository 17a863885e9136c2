/* vu_inflight.h — the log of requests under way, in memory that the frontend keeps while this
 *                 process is dead: what must be done again after a crash, and what must not.
 * Not here: the ring itself (vu_ring.h), passing the region (vu.c).
 * Threads:  one ring's part belongs to that ring's thread.
 * Memory:   borrows the region.
 * Errors:   -EPROTO: the region contradicts the ring; it is a hostile or broken frontend's.
 * Source:   vhost-user protocol, "Inflight I/O tracking", split virtqueue.
 *
 * Order that recovery relies on (a process dies between any two stores):
 *   fetch:    counter, inflight = 1, then the request is made;
 *   complete: per request next = last_batch_head, last_batch_head = head; then the ring's used
 *             idx; then inflight = 0 of each; then used_idx. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vu_inflight_desc {
    uint8_t inflight, pad[5];
    uint16_t next;
    uint64_t counter;
};
struct vu_inflight_region {
    uint64_t features;
    uint16_t version, desc_num, last_batch_head, used_idx;
    struct vu_inflight_desc desc[];
};

/* Bytes of one ring's part, of all parts. */
uint64_t vu_inflight_part(uint16_t queue_size);
uint64_t vu_inflight_size(unsigned n_queues, uint16_t queue_size);

struct vu_inflight {
    struct vu_inflight_region *r; /* NULL: the frontend has no log */
    uint16_t num;                 /* entries; the region's own count is not believed */
    uint64_t counter;
};

/* At the start of a ring whose used idx is 'used_idx' and that has 'ring_num' entries. Repairs
 * a torn batch (*ret_n_torn = its size), fills 'heads' (room for 'ring_num') with what is
 * under way in the order in which it was fetched, and returns how many. */
MUST_CHECK int vu_inflight_recover(struct vu_inflight *f, uint16_t ring_num, uint16_t used_idx,
                                   uint16_t *heads, unsigned *ret_n_torn);
void vu_inflight_fetched(struct vu_inflight *f, uint16_t head);
void vu_inflight_batch(struct vu_inflight *f,
                       uint16_t head); /* before the used idx is stored */
void vu_inflight_clear(struct vu_inflight *f, uint16_t head);         /* after it */
void vu_inflight_published(struct vu_inflight *f, uint16_t used_idx); /* after all clears */
