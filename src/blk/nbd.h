/* nbd.h — NBD server over disks: for tools (qemu-img, nbdcopy, fio).
 * Not here: rings (vu.h), who may connect (the socket's folder, SO_PEERCRED).
 * Threads:  one thread per connection with a blk_queue of its own; the accepting side on the loop.
 * Memory:   nbd_new() gives; buffers of a connection are bounded (16 requests, 64 MiB).
 * Errors:   a peer that breaks the protocol is disconnected.
 * Source:   the NBD protocol (proto.md): fixed newstyle, NO_ZEROES, EXPORT_NAME, GO, INFO, LIST,
 *           ABORT, STRUCTURED_REPLY, LIST_ and SET_META_CONTEXT (base:allocation; spx:dirty for
 *           incremental copies: 1 = changed since the last snapshot), READ, WRITE, FLUSH, TRIM,
 *           WRITE_ZEROES, BLOCK_STATUS, FUA, DF, CAN_MULTI_CONN. Not CACHE, not FAST_ZERO; STARTTLS
 *           is refused: the socket is local. */
#pragma once
#include "blk/disk.h"
#include "loop/loop.h"
#include <sys/types.h>

#define NBD_MAX_CONNS 16u

struct nbd;
struct nbd_opts {
    struct loop *loop;
    struct disk *disk;
    const char *name; /* of the export: the volume's id; "" is it too */
    int listen_fd;    /* borrowed */
    bool is_read_only;
    uid_t peer_uid;    /* SO_PEERCRED must be this or root; (uid_t)-1 = anybody (tests) */
    uint64_t stall_ns; /* 0 = NBD_STALL_NS */
    void (*on_change)(void *ctx); /* a connection came or went; may be NULL */
    void *ctx;
};
/* Nothing is heard for this long from a peer that owes us the rest of a request, or does not take
 * our answers: disconnected. Between requests it may be silent for ever. */
#define NBD_STALL_NS UINT64_C(120000000000)

MUST_CHECK int nbd_new(const struct nbd_opts *o, struct nbd **ret, struct err *err);
/* Ends the connections, takes no others: fn(ctx) on the loop when nothing is under way any more
 * (from inside the call when that is so already). For owners whose disks need the loop to get their
 * bytes. */
void nbd_stop(struct nbd *n, void (*fn)(void *ctx), void *ctx);
/* Waits until nothing is under way (at once after nbd_stop()'s call-back). NULL is fine. */
void nbd_free(struct nbd *n);
unsigned nbd_n_conns(const struct nbd *n); /* any thread */
