/* vu.h — vhost-user-blk server: one socket, one guest's virtio-blk device, over one disk.
 * Not here: the frontend for tests and benchmarks (vu_client.h), NBD (nbd.h).
 * Threads:  vu_new() and the socket on the process's main loop; each started ring has a thread
 * with a
 *           blk_queue of its own, at most VU_MAX_QUEUES.
 * Memory:   vu_new() gives. The guest's memory is mapped while the frontend has it set.
 * Errors:   a peer that breaks the protocol is disconnected; a ring that breaks the rules of
 *           virtio (addresses outside memory, loops, chains too long, a head twice) is stopped
 *           alone, its error eventfd signalled, and counted; nothing else is harmed.
 * Source:   vhost-user protocol (QEMU docs/interop/vhost-user), virtio 1.2 sections 2.7, 5.2.
 *
 * Protocol features: MQ, REPLY_ACK, CONFIG, INFLIGHT_SHMFD, CONFIGURE_MEM_SLOTS not. Virtio:
 * VERSION_1,
 * EVENT_IDX, INDIRECT_DESC, SEG_MAX, SIZE_MAX not, BLK_SIZE, FLUSH, MQ, DISCARD, WRITE_ZEROES,
 * CONFIG_WCE not, TOPOLOGY, RO when read-only. Layouts are free: headers are gathered.
 * Live: SET_MEM_TABLE with running rings (stop, drain, map, resolve), resize by config-change
 * message on the backend channel when the frontend negotiated it, else at the next
 * GET_CONFIG. */
#pragma once
#include "blk/disk.h"
#include "loop/loop.h"
#include <sys/types.h>

#define VU_MAX_QUEUES 8u
#define VU_QUEUE_SIZE 1024u /* entries at most */
#define VU_SERIAL     20u

struct vu;
struct vu_opts {
    struct loop *loop;
    struct disk *disk;
    int listen_fd;  /* borrowed; SOCK_STREAM. One frontend at a time; a new one waits until the
                              * old connection ended */
    uid_t peer_uid; /* SO_PEERCRED must be this (or root); (uid_t)-1 = anybody (tests) */
    unsigned n_queues; /* 1 ... VU_MAX_QUEUES */
    char serial[VU_SERIAL + 1];
    uint64_t poll_ns; /* adaptive polling: longest spin before sleeping, 0 = off */
    /* May be NULL. false: the last is gone, its rings have stopped. */
    void (*on_change)(void *ctx, bool is_connected);
    void *ctx;
};

MUST_CHECK int vu_new(const struct vu_opts *o, struct vu **ret, struct err *err);
/* Ends the connection, takes no other: fn(ctx) on the loop when nothing is under way any more
 * (from inside the call when that is so already). For owners whose disks need the loop to get
 * their bytes.
 */
void vu_stop(struct vu *v, void (*fn)(void *ctx), void *ctx);
/* Forced detach: lets go of the disk, which may be closed when fn(ctx) is called (on the loop;
 * from inside the call when nothing runs). The frontend stays connected; from then on every
 * request is answered with VIRTIO_BLK_S_IOERR. */
void vu_cut(struct vu *v, void (*fn)(void *ctx), void *ctx);
/* Waits until nothing is under way (at once after vu_stop()'s call-back). */
void vu_free(struct vu *v);
/* The disk has grown: tells the guest. */
void vu_resized(struct vu *v);
/* The counters of a hostile or broken guest. */
struct vu_stats {
    uint64_t n_connects, n_ring_faults, n_bad_requests, n_resubmitted, n_torn_batches;
    bool is_connected;
    unsigned n_rings;
};
void vu_stats(const struct vu *v, struct vu_stats *ret);

/* Tests: _exit(137) at this point of the n-th request (research/block.md section 5). */
enum vu_crash {
    VU_CRASH_NONE,
    VU_CRASH_LOGGED,
    VU_CRASH_DONE,
    VU_CRASH_PUBLISHED,
    VU_CRASH_HALF,
    VU_CRASH_CLEARED
};
void vu_crash_at(struct vu *v, enum vu_crash at, uint64_t n);
