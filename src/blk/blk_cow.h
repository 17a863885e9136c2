/* blk_cow.h — presence, dirt and points in time: what is in the volume's file, what has to come
 * from
 *             its base or its snapshot, what changed since the last snapshot, and what must be
 *             copied
 *             aside because a snapshot that is still being read froze it.
 * Not here: the object store (the supplier answers misses; snap/), encryption (below).
 * Threads:  submits on all queues; the calls below on the thread that runs opts.inner (the
 *           owner) unless said. The fast path (page present, block dirty) takes no lock: two
 *           atomic loads. Everything else that changes maps happens on the owner's thread, one
 * step at a time.
 * Memory:   takes 'below', 'aside' and 'base'.
 * Errors:   as below; -EIO when the supplier says that bytes are absent or corrupt: never
 *           zeros. A supplier that cannot reach them makes the request wait.
 * Format:   docs/formats/volume-map.md.
 *
 * Units: a page of 4 KiB is present or absent; a block of 512 KiB (SNAP_BLOCK) is dirty or
 * clean. Invariants (numbered in the room's README, named by tests):
 *  C1 a page is marked present durably only after its data is durable (FLUSH: data, map, then
 *  answer);
 *  C2 an unclean stop never makes a changed block look clean: a region of 64 MiB is marked
 *     touched durably before its first write; after a power cut all blocks of touched regions
 *     count as dirty;
 *  C3 no write overwrites a frozen block before its old bytes are durable aside (or uploaded);
 *  C4 a guest's write wins over every fill, a discard too;
 *  C5 process death alone (kill -9) loses no mark: the run-time map is a shared mapping in the
 *     run folder, the durable map a file beside the data. */
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
    /* An upload: take block 'block' of snapshot 'snap': 'data' (BLK_BLOCK bytes, the last
     * block of a
     * volume padded with zeros) is borrowed until blk_cow_uploaded() is called, from any
     * thread. */
    void (*upload)(void *ctx, unsigned frozen_idx, uint64_t block, const void *data);
    /* All blocks of the frozen set are uploaded. */
    void (*upload_end)(void *ctx, unsigned frozen_idx);
    void *ctx;
};

struct blk_cow_opts {
    int map_fd; /* durable map, O_RDWR; made by blk_map_create(); locked (flock) here */
    int run_fd; /* run-time map, a file on tmpfs, O_RDWR; empty or of another boot = made anew;
                 * -1: in memory only (tools, tests) */
    /* For blocks copied aside: crypt over file when the volume is encrypted. Slots of
     * BLK_BLOCK bytes, as many as its size has (at most BLK_ASIDE_SLOTS); when all are taken,
     * first writes to frozen blocks wait for uploads. Four times the volume's size is always
     * enough: it is sparse. NULL: no snapshots
     * (snap_begin is -ENOTSUP). */
    struct blk_layer *aside;
    /* -1, or what 'below' and 'aside' stand on, when neither is encrypted: blocks go aside by
     * FICLONERANGE where the file system can. data_fd alone (any volume): holes are found by
     * SEEK_DATA. */
    int data_fd, aside_fd;
    struct blk_layer
        *base;       /* read-only base of the image, or NULL. Pages absent in the volume are
                              * read here once the base has them */
    int base_map_fd; /* bit per BLK_BLOCK that the base has (blk_base.h), shared mapping */
    struct blk_supplier supplier;
    unsigned n_queues; /* that may submit (BLK_COW_MAX_QUEUES at most), 'inner' not counted */
    /* The owner's queue, run as long as the layer lives: misses, copies aside, map writes,
     * uploads, the filler. Queues of guests only ever do their own reads and writes. */
    struct blk_queue *inner;
    void (*on_fault)(void *ctx, int errnum); /* the map could not be written; may be NULL */
    void *fault_ctx;
    const char *boot_id; /* of this boot; NULL = read here (not possible in a sandbox) */
    struct fault_fs *fs; /* tests: the map goes through fault.h; NULL = io_uring */
};
#define BLK_COW_MAX_QUEUES 24u
#define BLK_ASIDE_SLOTS    (256u << 10)

MUST_CHECK int blk_cow_new(struct blk_layer *below, const struct blk_cow_opts *o,
                           struct blk_layer **ret, struct err *err);
/* Writes the maps and marks a clean stop. No request of a guest may be under way and a FLUSH
 * must have been answered after the last write (-EBUSY "NotFlushed": the stop counts as
 * unclean, which loses nothing but time). Stops filler and uploads; answers of the supplier
 * are not waited for and must not come any more. Runs 'inner' itself until its own work is
 * over (so not from inside one of its callbacks). After any answer the layer may be freed
 * (blk_stack_free()). */
MUST_CHECK int blk_cow_close(struct blk_layer *l, struct err *err);

/* Makes the durable map of a new volume in an empty file, synced. */
struct blk_map_opts {
    uint64_t size; /* of the volume; multiple of BLK_PAGE, at most BLK_MAP_MAX_SIZE */
    uint64_t
        source_size;   /* 0: no source. Else pages below it are absent: they come from the base
                           * or the supplier; those from there on read as zeros. Multiple of
                           * BLK_PAGE: pad bases with zeros */
    bool is_encrypted; /* holes of the file are not zeros: remembers which pages were written.
                           * With neither (a plain volume made empty) no page has a state */
    char since[BLK_SNAP_ID]; /* the snapshot that dirt counts from: the source's id, or "" */
};
#define BLK_MAP_MAX_SIZE (UINT64_C(16) << 40)
MUST_CHECK int blk_map_create(int fd, const struct blk_map_opts *o, struct err *err);
/* 'below' has grown already. A layer opened over a grown 'below' finds out by itself. */
MUST_CHECK int blk_map_grow(struct blk_layer *l, uint64_t size, struct err *err);

/* Any thread, never from inside want(). 'data' is copied.
 * rc: 0 with BLK_BLOCK bytes at 'data' (NULL = a block of zeros), or data == BLK_IN_BASE: the
 * base has it now; -EIO: absent or corrupt, for good; -EAGAIN: not reachable, asked again
 * later. */
#define BLK_IN_BASE ((const void *)1)
void blk_cow_supplied(struct blk_layer *l, uint64_t block, int rc, const void *data);

/* --- snapshots ---
 * begin: the epoch changes for all n layers at one point in time: submissions are held
 * (microseconds), nothing is drained. After it snap[i] owns the frozen set ret_idx[i]: the
 * blocks dirty since the last snapshot; 'is_full': all allocated blocks. All layers or none:
 * -EBUSY (BLK_MAX_FROZEN are under way, or what a finished one held is still being given back:
 * again in a moment). A snapshot that is under way already is left as it is and its index
 * told. Threads of the other layers' owners are parked. The set is durable when 'is_durable'
 * of struct blk_frozen says so: a power cut before that loses the snapshot (its id is not
 * among blk_cow_frozen()), never data. */
MUST_CHECK int blk_cow_snap_begin(struct blk_layer *const *l, const char *const *snap, size_t n,
                                  bool is_full, unsigned *ret_idx, struct err *err);
/* Starts (or after a restart goes on) handing blocks to supplier.upload, at most 'window' at
 * once. */
MUST_CHECK int blk_cow_snap_read(struct blk_layer *l, unsigned idx, unsigned window,
                                 struct err *err);
/* Block is in the store (rc 0), or try again later (-EAGAIN). Any thread. */
void blk_cow_uploaded(struct blk_layer *l, unsigned idx, uint64_t block, int rc);
/* The manifest is durable in the store: the frozen set is forgotten, 'aside' space freed
 * (soon; a power cut in between brings the set back: end it again). */
MUST_CHECK int blk_cow_snap_end(struct blk_layer *l, unsigned idx, struct err *err);
/* The snapshot is given up: its blocks are dirty again and dirt counts from its parent.
 * -EBUSY: a newer one is under way, whose parent it is: give that up first. */
MUST_CHECK int blk_cow_snap_abort(struct blk_layer *l, unsigned idx, struct err *err);
/* The snapshot that the next one will be an increment of ("" = of nothing). */
void blk_cow_since(struct blk_layer *l, char ret[BLK_SNAP_ID]);
/* What is under way, e.g. after a restart: ids ("" = free), blocks in all and left (of a full
 * one, blocks not looked at yet count). 'parent': unnamed blocks are its; "" = zeros. */
struct blk_frozen {
    char snap[BLK_SNAP_ID], parent[BLK_SNAP_ID];
    uint64_t n_blocks, n_left, n_aside;
    uint32_t is_full, is_durable;
};
void blk_cow_frozen(struct blk_layer *l, struct blk_frozen ret[BLK_MAX_FROZEN]);

/* --- the filler --- blocks per second; 0 = stopped. Low-priority. */
void blk_cow_fill(struct blk_layer *l, uint64_t bytes_per_s);
struct blk_cow_stats {
    uint64_t n_absent_pages; /* 0: the source is not needed any more */
    uint64_t n_dirty_blocks, n_aside_writes, n_misses, n_waiting;
};
void blk_cow_stats(struct blk_layer *l, struct blk_cow_stats *ret); /* any thread */

/* Any thread: the run from 'off' of which all pages are alike (bounded work, not always the
 * longest): reads as zeros without a look at the file; changed since the last snapshot. */
void blk_cow_extent(struct blk_layer *l, uint64_t off, uint64_t len, uint64_t *ret_len,
                    bool *ret_is_zero, bool *ret_is_dirty);
