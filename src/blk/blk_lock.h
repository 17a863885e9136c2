/* blk_lock.h — who may write which pages: whole-page writes share, a write of part of a page (read,
 *              change, write) is alone. Without it the reader's copy would undo the other's write.
 * Not here: ordering of whole-page writes (the guest's affair); inside the room only.
 * Threads:  any queue. Sharing costs one atomic addition per 64 KiB and takes no lock.
 * Memory:   a waiter belongs to the caller until it got the lock.
 * Errors:   none. First come, first served among those that overlap, so nobody starves; a waiter
 *           holds nothing, so nothing can lock up. */
#pragma once
#include "blk/blk.h"
#include <pthread.h>

#define BLK_LOCK_SLOTS 1024u /* ranges of 64 KiB, by their number modulo this */

struct blk_lock_wait {
    struct blk_msg msg; /* first */
    struct blk_queue *q;
    uint32_t first;
    uint16_t n;
    bool is_alone;
};

struct blk_lock {
    uint32_t slots[BLK_LOCK_SLOTS]; /* count of sharers, or BLK_LOCK_ALONE */
    unsigned n_waiting;
    pthread_mutex_t lock;
    struct blk_msg *head, **tail; /* of waiters. GUARDED_BY(lock) */
};

void blk_lock_init(struct blk_lock *l);
void blk_lock_done(struct blk_lock *l);
/* True: got it. False: fn(&w->msg) is called on q's thread when it is got. 'len' <= 32 MiB. */
MUST_CHECK bool blk_lock_take(struct blk_lock *l, struct blk_lock_wait *w, struct blk_queue *q,
                              uint64_t off, uint64_t len, bool is_alone,
                              void (*fn)(struct blk_msg *m));
void blk_lock_give(struct blk_lock *l, uint64_t off, uint64_t len, bool is_alone);
