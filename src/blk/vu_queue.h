/* vu_queue.h — one ring at work: a thread with a blk_queue that takes requests off the ring,
 *              gives them to the disk and gives them back in batches.
 * Not here: when a ring starts and stops (vu.c).
 * Threads:  all calls on the main loop's thread. The ring's thread is made by the first start
 *           and lives until vu_queue_free().
 * Memory:   vu_queue_new() gives. Memory, log and descriptors of a start are borrowed until
 *           the ring is stopped; the call and error eventfds are the queue's own
 *           (vu_queue_set_fd()).
 * Errors:   a ring that breaks the rules takes no more requests, is counted and signals its
 *           error eventfd; it can be stopped and started again like any other. */
#pragma once
#include "blk/vu_inflight.h"
#include "blk/vu_ring.h"

struct vu_queue;

/* What all rings of a device share; atomics. */
struct vu_shared {
    uint64_t n_ring_faults, n_bad_requests, n_resubmitted, n_torn_batches;
    uint64_t crash_at, crash_left; /* enum vu_crash; passages until it happens */
};

struct vu_queue_opts {
    struct disk *disk;
    unsigned idx;
    uint64_t poll_ns;
    const char *serial;
    struct vu_shared *shared;
    int wake_fd; /* eventfd, written when the ring has stopped */
};
MUST_CHECK int vu_queue_new(const struct vu_queue_opts *o, struct vu_queue **ret,
                            struct err *err);
void vu_queue_free(
    struct vu_queue *q); /* stops it, waits for what is under way; NULL is fine */

struct vu_queue_start {
    struct vu_ring_opts ring;
    struct vu_inflight inflight;
    uint16_t base; /* last_avail, when there is no log */
    int kick_fd;
};
/* Must be stopped. Requests of the log are done again, the guest is interrupted once, the ring
 * is looked at once: kicks and interrupts of the time between are lost. */
MUST_CHECK int vu_queue_start(struct vu_queue *q, const struct vu_queue_start *s,
                              struct err *err);
/* No new requests; wake_fd is written when none is under way and all are given back. */
void vu_queue_stop(struct vu_queue *q);
enum vu_queue_state { VU_QUEUE_STOPPED, VU_QUEUE_RUNNING, VU_QUEUE_STOPPING };
enum vu_queue_state vu_queue_state(const struct vu_queue *q);
uint16_t vu_queue_base(const struct vu_queue *q); /* when stopped: next index to take */

/* When stopped: forgets the disk; requests are answered with VIRTIO_BLK_S_IOERR from now on. */
void vu_queue_cut(struct vu_queue *q);

/* Replaces the call or error eventfd at any time, without stopping: the number in use stays,
 * what it means changes. fd is borrowed; -1: nobody is told. */
enum vu_queue_fd { VU_QUEUE_CALL, VU_QUEUE_ERR, VU_QUEUE_FD_N };
MUST_CHECK int vu_queue_set_fd(struct vu_queue *q, enum vu_queue_fd which, int fd);
