/* vu_client.h — vhost-user-blk frontend in user space, in place of QEMU and a guest: load
 * generator,
 *               crash verifier, and client of the benchmarks; the same client drives raw
 *               io_uring.
 * Not here: patterns and statistics (bench/block, spx bench).
 * Threads:  one client, one thread per queue, made by the caller.
 * Memory:   vu_client_new() gives; the memory shared with the server is the client's memfd.
 * Errors:   -ECONNRESET while the server is away: vu_client_reconnect() restores rings and
 *           inflight region as QEMU does. It waits for the call eventfd and never polls the
 *           ring: a server that forgets an interrupt hangs it, as it would a guest. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct vu_client;
struct vu_client_opts {
    const char *path; /* socket of the server */
    unsigned n_queues, queue_size;
    uint64_t mem_size; /* data buffers, all queues together */
    bool has_inflight, has_event_idx, has_indirect;
};
MUST_CHECK int vu_client_new(const struct vu_client_opts *o, struct vu_client **ret,
                             struct err *err);
void vu_client_free(struct vu_client *c);
MUST_CHECK int vu_client_reconnect(struct vu_client *c, uint64_t timeout_ns, struct err *err);
uint64_t vu_client_size(struct vu_client *c); /* bytes, GET_CONFIG */
void *vu_client_mem(struct vu_client *c);     /* mem_size bytes that the server sees */

struct vu_io {
    unsigned type;  /* VIRTIO_BLK_T_* */
    unsigned flags; /* of DISCARD and WRITE_ZEROES */
    uint64_t off, len;
    void *p;      /* in vu_client_mem(); of IN, OUT and GET_ID (whose len is 20) */
    uint64_t tag; /* comes back */
};
struct vu_end {
    uint64_t tag;
    uint8_t status; /* VIRTIO_BLK_S_* */
};
/* -EAGAIN: the ring is full. Not seen by the server before vu_client_kick(). */
MUST_CHECK int vu_client_put(struct vu_client *c, unsigned queue, const struct vu_io *io);
MUST_CHECK int vu_client_kick(struct vu_client *c, unsigned queue);
/* Waits for the call eventfd, takes what is used; 0 = timeout. -EPROTO: the server used a head
 * that was not under way. */
MUST_CHECK int vu_client_wait(struct vu_client *c, unsigned queue, uint64_t timeout_ns,
                              struct vu_end *ret, size_t max);
/* How many fit in the ring at once. */
unsigned vu_client_depth(const struct vu_client *c);
