/* blk_int.h — the ring of a queue, for the layer at the bottom; inside the room only.
 * Not here: what layers and front ends use (blk.h).
 * Threads:  the queue's owner, but for the list of posts.
 * Memory:   a token (struct blk_io) belongs to the caller until its fn is called.
 * Errors:   results of the kernel as they are. */
#pragma once
#include "blk/blk.h"
#include <liburing.h>

struct blk_io {
    void (*fn)(struct blk_io *io, int res);
};

/* An sqe, or NULL: too much is under way; then blk_queue_starve(). After preparing it the caller
 * sets a token (struct blk_io *) as its data. */
struct io_uring_sqe *blk_queue_sqe(struct blk_queue *q);
/* again(r) is called when there is an sqe, in order. Uses r->next. */
void blk_queue_starve(struct blk_queue *q, struct blk_req *r, void (*again)(struct blk_req *r));
void blk_queue_count_bounce(struct blk_queue *q);
unsigned blk_queue_n_io(const struct blk_queue *q); /* calls under way */

/* Sums of sizes and alignments of an iov. */
uint64_t blk_iov_len(const struct iovec *iov, int n_iov);
/* Where byte 'pos' is, and how many follow it in one piece. */
char *blk_iov_at(const struct iovec *iov, int n_iov, uint64_t pos, size_t *ret_n);
