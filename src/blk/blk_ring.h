/* blk_ring.h — where a queue's io_uring comes from: made when it is wanted, or before the sandbox
 *              closed, from a reserve; inside the room only.
 * Not here: using it (blk_queue.c).
 * Threads:  any; the reserve has a lock of its own.
 * Memory:   blk_ring_open() gives; a ring of the reserve goes back to it.
 * Errors:   "RingFailed". */
#pragma once
#include "base/err.h"
#include <liburing.h>
#include <stdbool.h>

struct blk_ring {
    struct io_uring ring;
    int wake_fd; /* eventfd that other threads write to */
    bool is_reserved;
};
MUST_CHECK int blk_ring_open(unsigned depth, struct blk_ring *ret, struct err *err);
/* Nothing may be under way in it. */
void blk_ring_close(struct blk_ring *r);
