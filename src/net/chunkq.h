/* chunkq.h — bytes that wait to be sent: a queue of blocks, filled at the end, sent from the
 * front.
 * Not here: the sockets they go to.
 * Threads:  belongs to one thread at a time, or to the holder of its owner's lock.
 * Memory:   chunkq_add() copies; chunkq_move() hands blocks over; chunkq_done() frees. The
 *           owner bounds n_bytes.
 * Errors:   aborts when memory is out: a queue is as long as its owner lets it get. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <sys/uio.h>

struct chunkq_block;

/* All zero is an empty queue. */
struct chunkq {
    struct chunkq_block *first, *last;
    size_t n_bytes;
};

void chunkq_add(struct chunkq *q, struct str bytes);
void chunkq_addc(struct chunkq *q, const char *c);
/* A block that its maker fills: no copy. chunkq_add_block() takes it, n of its bytes are used. */
struct chunkq_block *chunkq_block_new(size_t size) __attribute__((returns_nonnull));
char *chunkq_block_bytes(struct chunkq_block *b);
void chunkq_block_free(struct chunkq_block *b); /* NULL is fine */
void chunkq_add_block(struct chunkq *q, struct chunkq_block *b, size_t n);
/* Appends all of 'from', which is empty afterwards. */
void chunkq_move(struct chunkq *q, struct chunkq *from);
/* The front as at most max_iov pieces; returns how many. */
size_t chunkq_iov(const struct chunkq *q, struct iovec *iov, size_t max_iov);
void chunkq_drop(struct chunkq *q, size_t n); /* n <= n_bytes */
void chunkq_done(struct chunkq *q);
