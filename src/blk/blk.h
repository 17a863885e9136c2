/* blk.h — the block engine's two ideas: a request that goes down a stack of layers, and the queue
 *         (one thread, one io_uring) that carries it.
 * Not here: the layers (blk_file.h, blk_crypt.h, blk_cow.h, blk_throttle.h), who makes requests
 *           (vu.h, nbd.h), the stack of one volume (disk.h).
 * Threads:  a request lives on one queue, and everything about it, done() too, happens on that
 *           queue's thread. Layers are shared by all queues. blk_queue_post() is for any thread.
 * Memory:   requests come from the queue's pool; buffers of the pool are aligned for O_DIRECT and
 *           are never malloc'ed while the engine runs.
 * Errors:   done() gets 0 or a negative errno: -EIO, -ENOSPC, -EROFS, -EINVAL (range, alignment),
 *           -ESTALE (the volume is faulted). A request is done exactly once.
 *
 * A layer may answer at once, pass the request down as it is (blk_submit() of the layer below), or
 * make requests of its own and answer later. blk_done() never calls done() from inside the
 * blk_submit() of the same request's maker: it is put on the queue's list, so that stacks stay
 * flat. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define BLK_SECTOR  512u       /* what guests may address */
#define BLK_PAGE    4096u      /* what a file is written in */
#define BLK_MAX_LEN (4u << 20) /* of one request; front ends split longer ones */
#define BLK_MAX_IOV 128u

enum blk_op { BLK_READ, BLK_WRITE, BLK_FLUSH, BLK_DISCARD, BLK_ZEROES, BLK_OP_N };

enum blk_flag {
    BLK_FUA = 1,      /* WRITE, ZEROES: durable when done */
    BLK_NO_UNMAP = 2, /* ZEROES: keep the space */
    BLK_INNER = 4,    /* made by the engine (filler, upload, copies aside): not throttled */
};

struct blk_queue;
struct blk_layer;
struct blk_req;
typedef void (*blk_done_fn)(struct blk_req *r, int rc);

struct blk_req {
    enum blk_op op;
    unsigned flags;
    uint64_t off, len; /* bytes, multiples of BLK_SECTOR, within the layer's size */
    const struct iovec
        *iov; /* len bytes in all; any alignment. Not for FLUSH, DISCARD, ZEROES */
    int n_iov;
    blk_done_fn done;
    void *ctx; /* the maker's */

    /* The queue's and the layers' own; a maker leaves them alone. */
    struct blk_queue *q;
    struct blk_req *next;
    int rc;
    uint64_t start_ns, state[8]; /* 'state' belongs to the layer that holds the request now */
    void *buf;                   /* bounce buffer of the pool, or NULL */
    struct iovec own;            /* the maker's, for an iov of one piece */
};

struct blk_ops {
    const char *name;
    void (*submit)(struct blk_layer *l, struct blk_req *r);
    void (*free)(struct blk_layer *l); /* frees this layer only */
};
struct blk_layer {
    const struct blk_ops *ops;
    struct blk_layer *below; /* NULL at the bottom */
    uint64_t size;           /* bytes; grows only (atomic) */
};

/* Checks range and alignment, counts, hands the request to the layer. 'r->q' must be set. */
void blk_submit(struct blk_layer *l, struct blk_req *r);
/* A layer says that a request is over. */
void blk_done(struct blk_req *r, int rc);
/* Frees a stack from the top down. No request may be under way. */
void blk_stack_free(struct blk_layer *top);

/* ---- queues ---- */

struct blk_queue_opts {
    unsigned depth;     /* requests under way in the ring, 0 = 256 */
    unsigned n_reqs;    /* of the pool, for front ends (layers have more), 0 = 1,024 */
    unsigned n_buffers; /* bounce buffers of BLK_BUFFER bytes, 0 = 32, at least 8 */
};
#define BLK_BUFFER (512u << 10)

/* Makes n rings now, which can only do what queues do; from then on this process's queues use these
 * and no others, again and again. For a process that closes its sandbox afterwards: a ring made
 * later could open files past any filter. */
MUST_CHECK int blk_queue_reserve(unsigned n, unsigned depth, struct err *err);

/* -ENOMEM, -EMFILE (the reserve is used up), "RingFailed" (the kernel gives no io_uring). Its owner
 * thread runs it; it may be made and freed elsewhere. */
MUST_CHECK int blk_queue_new(const struct blk_queue_opts *o, struct blk_queue **ret,
                             struct err *err);
void blk_queue_free(struct blk_queue *q); /* nothing may be under way */

/* Owner thread: submits what was queued, waits for something (a completion, a post, a watched
 * eventfd) for at most timeout_ns (UINT64_MAX = for ever; 0 = do not wait), runs what is due.
 * One io_uring_enter in the common case. */
/* Returns how many things it ran (0: the time was up), negative: the ring is broken (never in
 * practice). */
int blk_queue_run(struct blk_queue *q, uint64_t timeout_ns);
/* Owner thread: fn(ctx) whenever the eventfd was signalled; the caller need not read it (its count
 * is not looked at, only that it is written). One watch per eventfd, at most BLK_MAX_WATCHES
 * (-EMFILE); id for blk_queue_unwatch(), after which fn is not called. */
#define BLK_MAX_WATCHES 32u
typedef void (*blk_watch_fn)(void *ctx);
MUST_CHECK int blk_queue_watch(struct blk_queue *q, int event_fd, blk_watch_fn fn, void *ctx,
                               unsigned *ret_id);
void blk_queue_unwatch(struct blk_queue *q, unsigned id);
/* Owner thread: fn(ctx) at that monotonic time, once. */
void blk_queue_at(struct blk_queue *q, uint64_t mono_ns, blk_watch_fn fn, void *ctx);
/* Any thread: runs m->fn(m) on the queue's thread. The message is the caller's until it ran. */
struct blk_msg {
    struct blk_msg *next;
    void (*fn)(struct blk_msg *m);
};
void blk_queue_post(struct blk_queue *q, struct blk_msg *m);

/* The time at which the turn of the loop began or its wait ended: one reading of the clock for all
 * that is done at once. For latencies and limits, not for deadlines. */
uint64_t blk_queue_now(const struct blk_queue *q);

/* Who takes from the pools. Each tier leaves something for those below it, so that requests of the
 * guest can never hold all that a layer needs to finish them. */
enum blk_tier { BLK_FRONT, BLK_COW, BLK_CRYPT, BLK_BOTTOM, BLK_TIER_N };

/* Owner thread. NULL when the pool is empty for that tier: wait for one to come back with
 * blk_queue_wait(), which calls fn(ctx) as soon as there is one (fair among those who wait; try
 * again, and wait again when it is gone already). */
struct blk_req *blk_req_get(struct blk_queue *q);                          /* for front ends */
struct blk_req *blk_req_get_tier(struct blk_queue *q, enum blk_tier tier); /* for layers */
void blk_req_put(struct blk_req *r);
/* BLK_BUFFER bytes, page-aligned, or NULL */
void *blk_buffer_get(struct blk_queue *q);
void *blk_buffer_get_tier(struct blk_queue *q, enum blk_tier tier);
/* At least 'size' bytes (<= BLK_BUFFER): a small one (BLK_SMALL) when that is enough. */
#define BLK_SMALL (16u << 10)
void *blk_buffer_get_size(struct blk_queue *q, enum blk_tier tier, size_t size);
void blk_buffer_put(struct blk_queue *q, void *buf); /* of any size */
/* For a request or buffer; front ends. */
void blk_queue_wait(struct blk_queue *q, blk_watch_fn fn, void *ctx);
void blk_queue_wait_tier(struct blk_queue *q, enum blk_tier tier, blk_watch_fn fn, void *ctx);

/* ---- bytes of a request: from 'pos' of its iov to a buffer and back ---- */
void blk_iov_read(const struct iovec *iov, int n_iov, uint64_t pos, void *to, size_t n);
void blk_iov_write(const struct iovec *iov, int n_iov, uint64_t pos, const void *from,
                   size_t n);
void blk_iov_zero(const struct iovec *iov, int n_iov, uint64_t pos, size_t n);

struct blk_queue_stats {
    uint64_t n_enter, n_sqe, n_bounced, n_waits;
};
void blk_queue_stats(const struct blk_queue *q, struct blk_queue_stats *ret);
