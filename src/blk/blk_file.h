/* blk_file.h — the bottom of a stack: a file or block device, O_DIRECT through io_uring; and two
 *              others: memory (protocol costs, tests) and a file behind fault.h (power cuts).
 * Not here: encryption, presence of blocks. Whose file it is: the caller took its flock before.
 * Threads:  shared by all queues.
 * Memory:   borrows the descriptor until it is freed.
 * Errors:   -EIO, -ENOSPC; -ESTALE after a failed sync: a sync that failed is never called again,
 *           the volume is faulted and on_fault is told once (any queue's thread). */
#pragma once
#include "base/fault.h"
#include "blk/blk.h"

struct blk_file_opts {
    int fd;        /* O_RDWR or O_RDONLY; O_DIRECT is tried and kept when reads work with it */
    uint64_t size; /* bytes served */
    bool is_read_only;
    bool may_be_short; /* the file is extended by writes behind its end (maps) */
    /* ENOSPC: true = the request waits and is tried again once a second ("stop"), false = the
     * guest gets -ENOSPC ("report"). */
    bool is_full_waited_for;
    void (*on_fault)(void *ctx, int errnum); /* may be NULL */
    void *ctx;
    struct fault_fs *fs; /* tests: NULL = io_uring; else whole synchronous calls of fault.h */
    unsigned min_align; /* tests: as if the file system wanted this alignment; 0 = as it says */
};

/* FLUSH is fdatasync; those of all queues that wait at the same time share one. FUA writes count as
 * write and flush. DISCARD punches holes (page-aligned inner part; the rest stays), ZEROES punches
 * or
 * writes. Unaligned buffers and sub-page writes go through bounce buffers; two sub-page writes to
 * one
 * page are ordered by a lock of that page (no write is lost). */
MUST_CHECK int blk_file_new(const struct blk_file_opts *o, struct blk_layer **ret,
                            struct err *err);
/* Live growth: the file was extended by the caller. */
void blk_file_grow(struct blk_layer *l, uint64_t size);
bool blk_file_is_faulted(const struct blk_layer *l);
/* The layer above found that something of the volume is lost (a map that cannot be synced). */
void blk_file_fault(struct blk_layer *l, int errnum);
/* Requests that wait for space, and those to come, get -ENOSPC (within a second). Any thread. */
void blk_file_give_up(struct blk_layer *l);
struct blk_file_stats {
    uint64_t n_flushes, n_syncs; /* asked for; done */
    unsigned align;              /* of offsets and lengths: 512, 4,096; 1 = any */
    bool is_direct;
};
void blk_file_stats(const struct blk_layer *l, struct blk_file_stats *ret);

/* 'size' bytes of anonymous memory; done() comes at the next turn of the queue. */
MUST_CHECK int blk_mem_new(uint64_t size, struct blk_layer **ret, struct err *err);
