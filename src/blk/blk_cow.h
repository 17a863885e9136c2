/* blk_cow.h — presence, dirt and points in time: what is in the volume's file, what has to come
 * from
 *             its base or its snapshot, what changed since the last snapshot, and what must be
 *             copied
 *             aside because a snapshot that is still being read froze it.
 * Not here: the object store (the supplier answers misses; snap/), encryption (below).
 * Threads:  submits on all queues; the calls below on the owner (main) thread unless said. The fast
 *           path (block present, dirty already, nothing frozen) takes no lock: two atomic loads.
 * Memory:   takes 'below', 'aside' and 'base'.
 * Errors:   as below; -EIO when the supplier says that bytes are absent or corrupt: never zeros. A
 *           supplier that cannot reach them makes the request wait.
 * Format:   docs/formats/volume-map.md.
 *
 * Units: a page of 4 KiB is present or absent; a block of 512 KiB (SNAP_BLOCK) is dirty or clean.
 * Invariants (numbered in the room's README, named by tests):
 *  C1 a page is marked present durably only after its data is durable (FLUSH: data, map, then
 *  answer);
 *  C2 an unclean stop never makes a changed block look clean: a region of 64 MiB is marked touched
 *     durably before its first write; after a power cut all blocks of touched regions count as
 *     dirty;
 *  C3 no write overwrites a frozen block before its old bytes are durable aside (or uploaded);
 *  C4 a guest's write wins over every fill, a discard too;
 *  C5 process death alone (kill -9) loses no mark: the run-time map is a shared mapping in the run
 *     folder, the durable map a file beside the data. */
#pragma once
#include "blk/blk.h"

#define BLK_BLOCK      (512u << 10) /* of snapshots: the unit of the EBS direct APIs */
#define BLK_REGION     (64u << 20)
#define BLK_MAX_FROZEN 4u /* snapshots of one volume that are being read at once */
#define BLK_SNAP_ID    24u

struct blk_cow;

/* Asks for block 'block' of the source (any queue's thread; must not block). Answer with
 * blk_cow_supplied() from any thread, once. At most BLK_MAX_WANTED are asked for at once. */
#define BLK_MAX_WANTED 16u
struct blk_supplier {
    void (*want)(void *ctx, uint64_t block, bool is_background);
    /* An upload: take block 'block' of snapshot 'snap': 'data' (BLK_BLOCK bytes, the last block of
     * a
     * volume padded with zeros) is borrowed until blk_cow_uploaded() is called, from any thread. */
    void (*upload)(void *ctx, unsigned frozen_idx, uint64_t block, const void *data);
    /* All blocks of the frozen set are uploaded. */
    void (*upload_end)(void *ctx, unsigned frozen_idx);
    void *ctx;
};

struct blk_cow_opts {
    int map_fd;   /* durable map, O_RDWR; made by blk_map_create() */
    int run_fd;   /* run-time map, a file on tmpfs, O_RDWR; empty = new boot */
    int aside_fd; /* sparse file of the same offsets for blocks copied aside */
    struct blk_layer
        *aside; /* stack over aside_fd: crypt over file when the volume is encrypted */
    struct blk_layer
        *base;       /* read-only base of the image, or NULL. Pages absent in the volume are
                              * read here once the base has them */
    int base_map_fd; /* bit per BLK_BLOCK that the base has (blk_base.h), shared mapping */
    bool has_source; /* absent pages come from base or supplier; else absent reads as zeros */
    struct blk_supplier supplier;
    unsigned n_queues; /* that may submit */
};

MUST_CHECK int blk_cow_new(struct blk_layer *below, const struct blk_cow_opts *o,
                           struct blk_layer **ret, struct err *err);
/* Writes the maps and marks a clean stop; nothing may be under way. */
MUST_CHECK int blk_cow_close(struct blk_layer *l, struct err *err);

/* Makes the durable map of a new volume, synced. 'is_all_present': no source. */
MUST_CHECK int blk_map_create(int fd, uint64_t size, bool is_all_present, struct err *err);
MUST_CHECK int blk_map_grow(struct blk_layer *l, uint64_t size, struct err *err);

/* rc: 0 with BLK_BLOCK bytes at 'data' (NULL = a block of zeros), or data == BLK_IN_BASE: the base
 * has it now; -EIO: absent or corrupt, for good; -EAGAIN: not reachable, asked again later. */
#define BLK_IN_BASE ((const void *)1)
void blk_cow_supplied(struct blk_layer *l, uint64_t block, int rc, const void *data);

/* --- snapshots ---
 * begin: the epoch changes for all layers given at one point in time: submissions are held (<= 10
 * ms),
 * nothing is drained. After it, 'snap' owns a frozen set: the blocks dirty since the last snapshot.
 * 'is_full': all allocated blocks. -EBUSY: BLK_MAX_FROZEN are under way. */
MUST_CHECK int blk_cow_snap_begin(struct blk_layer *const *l, const char *const *snap, size_t n,
                                  bool is_full, unsigned *ret_idx, struct err *err);
/* Starts (or after a restart goes on) handing blocks to supplier.upload, at most 'window' at once. */
MUST_CHECK int blk_cow_snap_read(struct blk_layer *l, unsigned idx, unsigned window,
                                 struct err *err);
/* Block is in the store (rc 0), or try again later (-EAGAIN). Any thread. */
void blk_cow_uploaded(struct blk_layer *l, unsigned idx, uint64_t block, int rc);
/* The manifest is durable in the store: the frozen set is forgotten, 'aside' space freed. */
MUST_CHECK int blk_cow_snap_end(struct blk_layer *l, unsigned idx, struct err *err);
/* What is under way, e.g. after a restart: ids ("" = free), blocks in all and left. */
struct blk_frozen {
    char snap[BLK_SNAP_ID];
    uint64_t n_blocks, n_left, n_aside;
};
void blk_cow_frozen(struct blk_layer *l, struct blk_frozen ret[BLK_MAX_FROZEN]);

/* --- the filler --- blocks per second; 0 = stopped. Low-priority. */
void blk_cow_fill(struct blk_layer *l, uint64_t bytes_per_s);
struct blk_cow_stats {
    uint64_t n_absent_pages; /* 0: the source is not needed any more */
    uint64_t n_dirty_blocks, n_aside_writes, n_misses, n_waiting;
};
void blk_cow_stats(struct blk_layer *l, struct blk_cow_stats *ret);
