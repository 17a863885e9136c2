/* nbd.h — NBD server over disks: for tools (qemu-img, nbdcopy, fio).
 * Not here: rings (vu.h), who may connect (the socket's folder, SO_PEERCRED).
 * Threads:  one thread per connection with a blk_queue of its own; the accepting side on the loop.
 * Memory:   nbd_new() gives; buffers of a connection are bounded (16 requests of 4 MiB).
 * Errors:   a peer that breaks the protocol is disconnected.
 * Source:   the NBD protocol (proto.md): fixed newstyle, NO_ZEROES, EXPORT_NAME, GO, INFO, LIST,
 *           ABORT, STRUCTURED_REPLY, SET_META_CONTEXT (base:allocation; spx:dirty for incremental
 *           copies), READ, WRITE, FLUSH, TRIM, WRITE_ZEROES, CACHE not, BLOCK_STATUS, FUA, DF,
 *           FAST_ZERO not, CAN_MULTI_CONN. STARTTLS is refused: the socket is local. */
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
    uid_t peer_uid; /* SO_PEERCRED must be this or root; (uid_t)-1 = anybody (tests) */
};
MUST_CHECK int nbd_new(const struct nbd_opts *o, struct nbd **ret, struct err *err);
void nbd_free(struct nbd *n); /* ends its connections */
unsigned nbd_n_conns(const struct nbd *n);
