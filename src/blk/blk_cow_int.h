/* blk_cow_int.h — what the files of the cow layer share.
 * Not here: the map (blk_map_int.h); inside the room only.
 * Threads:  a queue's thread runs cow_submit() and the ends of its own reads and writes. All else
 *           (maps on disk, copies, fills, zeroes, uploads) is the owner's, on l->inner, in turns.
 * Memory:   the layer owns everything here. A request that waits is parked in its own state[].
 * Errors:   l->fault is set once, for good: everything that would change something is -ESTALE.
 *
 * Order that makes it right:
 *  - Between cow_enter() and cow_leave() a queue decides about one write, or marks pages. The owner
 *    sets 'hold' or takes something away, then cow_quiesce(): afterwards nobody is still acting on
 *    what was there before. Nothing waits in between.
 *  - A block's dirty bit of this epoch is set only when its region is durably touched and no frozen
 *    set needs a copy of it: then the bit alone is the permission to write.
 *  - Pages leave MAP_ABSENT/MAP_ZERO under 'lock': shared by guests' writes of whole pages, alone
 *    for fills, completions, copies and zeroes. Pages in MAP_DATA are written without it.
 *  - Lock order: there is one lock; nothing is locked twice. */
#pragma once
#include "blk/blk_base.h"
#include "blk/blk_file.h"
#include "blk/blk_lock.h"
#include "blk/blk_map_int.h"
#include <errno.h>
#include <string.h>

#define COW_EPOCHS      8u /* counters of writes under way, by epoch */
#define COW_QUEUES      (BLK_COW_MAX_QUEUES + 1)
#define COW_BUFFERS     8u /* of BLK_BLOCK bytes, for copies aside and fills from a base */
#define COW_WINDOW      16u
#define COW_TICK_NS     UINT64_C(20000000)
#define COW_RETRY_TICKS 25u /* what could not be had is asked for again after half a second */

struct cow;
struct cow_q;

/* A request of ours to a layer below. */
struct cow_io {
    struct blk_req r; /* first */
    struct cow *l;
    struct cow_q *cq;
    struct cow_io *next;
    struct blk_req *parent;
    void (*end)(struct cow_io *io, int rc); /* puts the io back itself */
    void *ctx;
    uint64_t epoch;
    bool is_locked, is_flushed;
    struct iovec iov;
};

struct cow_q {
    _Atomic(struct blk_queue *) q;
    _Atomic uint32_t busy;
    _Atomic uint32_t has_held, release_sent;
    _Atomic uint64_t in_flight[COW_EPOCHS];
    _Atomic uint64_t n_seen; /* requests; written by its thread alone */
    struct cow *l;
    struct blk_req *held, **held_tail;
    struct blk_msg release;
    struct cow_io *free_ios;
    struct cow_split *free_splits;
} __attribute__((aligned(64)));

/* A request that waits, in its state[]. */
struct cow_park {
    union {
        struct blk_msg m; /* first in both */
        struct blk_lock_wait lw;
    };
    struct cow *l;
    int rc;
    uint32_t given; /* READ: bit per block it touches, whose absent pages it has got already */
};
_Static_assert(BLK_MAX_LEN / BLK_BLOCK + 1 <= 32, "given");
_Static_assert(sizeof(struct cow_park) <= sizeof(((struct blk_req *)0)->state), "state");

struct cow_list {
    struct blk_msg *head, **tail;
};

enum cow_op_kind { COW_COPY, COW_COMPLETE, COW_FILL, COW_ZERO };
/* Work of the owner on one block (COW_ZERO: of one request). */
struct cow_op {
    enum cow_op_kind kind;
    struct cow *l;
    struct cow_op *next; /* of l->ops */
    struct cow_op *next_stalled;
    void (*step)(struct cow_op *op);
    uint64_t block, page;
    struct blk_lock_wait lw;
    struct blk_msg committed;
    struct cow_list waiters;
    struct blk_req *req;
    void *buf;
    uint32_t need, slot, gen[BLK_MAX_FROZEN];
    uint64_t state[4];  /* COPY: of the pages; FILL: those to be marked */
    uint64_t punch[16]; /* ZERO: bit per page */
    unsigned n_io;
    int rc;
    uint64_t epoch;
    bool is_locked, owns_buf;
};

enum cow_miss_state {
    MISS_FREE,
    MISS_QUEUED,
    MISS_WANTED,
    MISS_ANSWERED,
    MISS_FILLING,
    MISS_RETRY
};
struct cow_miss {
    struct cow_miss *next;
    uint64_t block;
    enum cow_miss_state state;
    bool is_background;
    unsigned ticks;
    struct cow_want *want;
    struct cow_list waiters; /* requests */
    struct cow_list readers; /* uploads that want the bytes themselves (struct cow_up_slot.m) */
};
struct cow_want { /* one question to the supplier */
    struct blk_msg m;
    struct cow *l;
    _Atomic uint64_t asked; /* block + 1; 0 = none */
    int rc;
    bool is_zero, is_in_base;
    struct cow_miss *miss;
    void *buf;
};

enum cow_up_state {
    UP_FREE,
    UP_READING,
    UP_WAITING,
    UP_SENT,
    UP_RETRY
}; /* WAITING: for a miss */
struct cow_up_slot {
    struct blk_msg m, sub; /* 'm': answers; 'sub': waits for a miss */
    struct cow *l;
    unsigned k;
    _Atomic uint64_t sent; /* block + 1 */
    enum cow_up_state state;
    uint64_t block, pages[4];
    int rc;
    unsigned ticks;
    uint64_t start_ns, n_seen; /* of the read from below */
    bool is_locked, is_stalled, is_reread, has_source;
    struct blk_lock_wait lw;
    char *buf;
    void *tmp;
};
struct cow_set { /* a frozen set, as queues see it; 'gen' is set last and cleared first */
    _Atomic uint32_t gen;
    bool is_full, is_swept, is_durable, is_reading, is_end_told;
    bool is_ending, is_gone; /* given up, not durably yet; durably, to be wiped */
    unsigned bitmap;
    uint64_t n_blocks; /* of the volume then */
    uint64_t n_frozen, n_stored;
    _Atomic uint64_t *set;
    uint64_t epoch; /* that ended with it */
    uint64_t cursor, n_aside;
    unsigned window;
    struct cow_up_slot *slots;
};

struct cow_fill { /* the filler copies a block of the base */
    uint64_t block;
    void *buf;
    bool is_busy;
};

struct cow_commit {
    bool is_running, is_wanted, has_flush, is_flush_next, is_first, is_last;
    struct cow_list now, next;
    unsigned n, n_done, n_io;
    void *buf;
};

struct cow {
    struct blk_layer base; /* first */
    struct blk_cow_opts o;
    struct blk_map *m;
    struct blk_layer *map_layer;
    struct base_map *base_map;
    _Atomic(_Atomic uint64_t *) dirty; /* the bitmap of this epoch */
    _Atomic uint64_t epoch;
    _Atomic uint32_t hold, n_frozen, kick_sent;
    _Atomic int fault;
    _Atomic uint64_t n_misses, n_waiting, n_aside_writes, n_inner; /* for stats */
    struct cow_q qs[COW_QUEUES];                                   /* [0] is the owner's */
    struct blk_lock lock;
    struct cow_set sets[BLK_MAX_FROZEN];

    /* The owner's. */
    struct blk_msg kick, start, begun;
    bool is_begun_sent;
    unsigned frozen_bitmap;                      /* the newest frozen one */
    _Atomic uint64_t wanted[MAP_MAX_CHUNKS * 4]; /* regions that somebody waits for */
    struct cow_op *ops, *stalled;
    struct cow_miss *misses;
    unsigned n_wanted;
    struct cow_want wants[BLK_MAX_WANTED];
    struct cow_commit commit;
    bool is_touch_reduced, is_aside_dirty, is_closing, is_tick_armed, is_kicking;
    bool is_rest_armed;
    uint64_t rest_until_ns; /* no block is read for an upload until then */
    unsigned n_unstored;    /* stored bits that are not durable yet */
    void *buffers[COW_BUFFERS];
    unsigned n_buffers, n_buffers_made;
    uint32_t n_slots, slot_hint, *slot_next, *slot_head; /* aside: by block */
    uint64_t *slot_used;
    uint64_t fill_rate, fill_tokens, fill_ns, fill_cursor;
    struct cow_fill fills[2];
    unsigned n_fills, n_dropping; /* slots of 'aside' on their way to being holes */
    struct blk_msg pump;
    bool is_pump_sent, is_clone_refused;
    _Atomic uint64_t n_clones;
};

static inline struct cow *cow_of(struct blk_layer *l)
{
    return (struct cow *)l;
}
static inline struct cow_park *cow_park(struct blk_req *r)
{
    return (struct cow_park *)(void *)r->state;
}
static inline struct blk_req *cow_parked(struct blk_msg *m)
{
    return (struct blk_req *)(void *)((char *)m - offsetof(struct blk_req, state));
}

static inline void cow_enter(struct cow_q *cq)
{
    atomic_store(&cq->busy, 1);
}
static inline void cow_leave(struct cow_q *cq)
{
    atomic_store_explicit(&cq->busy, 0, memory_order_release);
}

/* ---- blk_cow.c ---- */
struct cow_q *cow_q_of(struct cow *l, struct blk_queue *q);
struct cow_io *cow_io_get(struct cow *l, struct cow_q *cq);
void cow_io_put(struct cow_io *io);
void cow_io_send(struct cow_io *io, struct blk_layer *to); /* sets done */
/* One buffer; 'end' on the same queue's thread. */
void cow_io_start(struct cow *l, struct cow_q *cq, struct blk_layer *to, enum blk_op op,
                  uint64_t off, void *p, uint64_t len, void (*end)(struct cow_io *, int),
                  void *ctx);
void cow_submit(struct blk_layer *base, struct blk_req *r);
void cow_quiesce(struct cow *l);                                             /* owner */
void cow_write_begins(struct cow *l, struct cow_q *cq, uint64_t *ret_epoch); /* when entered */
void cow_write_ended(struct cow *l, struct cow_q *cq, uint64_t epoch);
bool cow_is_drained(struct cow *l, uint64_t epoch); /* no write of that or an older epoch */
void cow_kick(struct cow *l); /* any thread: the owner looks at what stalls */
void cow_fault(struct cow *l, int rc);
void cow_tick(struct cow *l); /* owner: arms the clock */
/* Frozen sets (bits) that need the old bytes of the block before it is written; *ret_wait: stored
 * already, but not durably. */
uint32_t cow_needs_copy(struct cow *l, uint64_t block, bool *ret_wait);
/* ABSENT here: has to come from base or supplier. */
static inline bool cow_is_absent(const struct cow *l, uint64_t page)
{
    return page < l->m->source_pages && map_state(l->m, page) == MAP_ABSENT;
}

/* ---- blk_cow_prep.c: what a request needs before it can go on ---- */
void cow_to_inner(struct cow *l, struct blk_req *r, void (*fn)(struct blk_msg *m));
void cow_prep(struct blk_msg *m);                 /* owner: of a parked request */
void cow_again(struct cow *l, struct blk_req *r); /* back to its queue, from the top */
void cow_fail(struct cow *l, struct blk_req *r, int rc);
/* True: nothing is missing. False: r is parked and comes to 'fn' again. */
bool cow_ready_to_write(struct cow *l, struct blk_req *r, void (*fn)(struct blk_msg *m));
void cow_list_init(struct cow_list *l);
void cow_list_add(struct cow_list *l, struct blk_msg *m);
void cow_list_wake(struct cow *l, struct cow_list *w); /* posts all to the owner's queue */

/* ---- blk_cow_ops.c ---- */
struct cow_op *cow_op_find(struct cow *l, enum cow_op_kind k, uint64_t block);
struct cow_op *cow_op_new(struct cow *l, enum cow_op_kind k, uint64_t block);
void cow_op_lock(struct cow_op *op, uint64_t off, uint64_t len, void (*step)(struct cow_op *));
void cow_op_unlock(struct cow_op *op, uint64_t off, uint64_t len);
void cow_op_stall(struct cow_op *op, void (*step)(struct cow_op *)); /* till the next kick */
void cow_op_commit(struct cow_op *op, void (*step)(struct cow_op *));
void cow_op_io(struct cow_op *op, struct blk_layer *to, enum blk_op what, uint64_t off, void *p,
               uint64_t len, void (*step)(struct cow_op *)); /* step when all n_io have ended */
void cow_op_end(struct cow_op *op);
void *cow_buffer_get(struct cow *l); /* or NULL: stall */
void cow_buffer_put(struct cow *l, void *buf);
void cow_complete(struct cow *l, uint64_t page); /* part of it will be written */
static inline uint64_t cow_block_len(const struct cow *l, uint64_t block)
{
    uint64_t off = block * BLK_BLOCK, size = __atomic_load_n(&l->base.size, __ATOMIC_ACQUIRE);
    return size - off < BLK_BLOCK ? size - off : BLK_BLOCK;
}

/* ---- blk_cow_read.c ---- */
void cow_read(struct cow *l, struct cow_q *cq, struct blk_req *r);
void cow_splits_free(struct cow_q *cq);
/* Absent pages of one block straight to a parked read: 'buf' is the block. */
void cow_read_give(struct cow *l, struct blk_req *r, uint64_t block, const char *buf);
static inline bool cow_is_given(const struct blk_req *r, uint64_t block)
{
    const struct cow_park *p = (const struct cow_park *)(const void *)r->state;
    return p->given >> (block - r->off / BLK_BLOCK) & 1;
}

/* ---- blk_cow_zero.c ---- */
void cow_zero(
    struct blk_msg *m); /* owner: DISCARD, ZEROES on a volume whose pages have states */

/* ---- blk_cow_miss.c ---- */
struct cow_miss *cow_miss_start(struct cow *l, uint64_t block, bool is_background);
void cow_miss_tick(struct cow *l);
bool cow_base_has(const struct cow *l, uint64_t block);
/* FILL: 'buf' holds the block; pages still absent are written. */
struct cow_op *cow_fill_start(struct cow *l, uint64_t block, void *buf, bool is_zero);
void cow_miss_filled(struct cow *l, uint64_t block, int rc);
void cow_pump_later(struct cow *l);

/* ---- blk_cow_fill.c ---- */
void cow_fill_tick(struct cow *l);
bool cow_fill_was(struct cow *l, uint64_t block); /* one of the filler's ended */

/* ---- blk_cow_commit.c ---- */
void cow_commit(struct cow *l, struct blk_msg *m); /* m (may be NULL) is posted when durable */
void cow_flush(struct blk_msg *m);                 /* owner: of a parked FLUSH or FUA write */
void cow_commit_init(struct cow *l);

/* ---- blk_cow_aside.c ---- */
MUST_CHECK int cow_aside_init(struct cow *l, struct err *err);
void cow_copy(struct cow *l, uint64_t block);
bool cow_aside_find(struct cow *l, unsigned k, uint64_t block, uint32_t *ret_slot);
void cow_aside_drop(struct cow *l, unsigned k); /* entries of a set that is gone */

/* ---- blk_cow_snap.c ---- */
void cow_snap_attach(struct cow *l); /* sets from the head, after opening */
void cow_snap_kick(struct cow *l);
void cow_snap_durable(struct cow *l, const struct map_head *h); /* this head is durable */
void cow_snap_swept(
    struct cow *l); /* a sweep has begun: it takes along what sets are made of */
void cow_snap_reduce(struct cow *l); /* before a sweep: regions not written in the last epoch */
void cow_snap_free(struct cow *l);
bool cow_head_may_go(struct cow *l);
bool cow_snap_is_idle(struct cow *l);

/* ---- blk_cow_up.c: reading for uploads ---- */
void cow_up_pump(struct cow *l, unsigned k);
void cow_up_kick(struct cow *l);
void cow_up_tick(struct cow *l);
void cow_up_source(struct cow_up_slot *s,
                   const void *buf); /* the source's bytes; NULL: zeros */
void cow_up_stop(struct cow *l, unsigned k);
bool cow_up_is_idle(struct cow *l, unsigned k); /* no read of ours under way */
bool cow_up_is_free(struct cow *l, unsigned k); /* nor an answer awaited */
