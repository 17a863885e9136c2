/* blk_pool.h — requests and buffers of one queue, and who waits for them; inside the room only.
 * Not here: the queue (blk_queue.c).
 * Threads:  the queue's owner.
 * Memory:   everything is there from the start, in memory that is touched only when used: the
 *           one that came back last is given out first.
 * Errors:   -ENOMEM at the start; NULL when a tier's part is used up. */
#pragma once
#include "blk/blk.h"

#define BLK_N_SMALL 256u

struct blk_stack { /* of what is free */
    void **v;
    unsigned n, keep[BLK_TIER_N]; /* a tier leaves so many to those below */
};
struct blk_waiter {
    blk_watch_fn fn;
    void *ctx;
};
struct blk_wait_list {
    struct blk_waiter *v;
    size_t head, n, max; /* a ring */
};
struct blk_pool {
    struct blk_stack reqs, inner; /* of front ends; of layers */
    struct blk_stack small, big;
    struct blk_req *all_reqs; /* those of front ends first */
    unsigned n_reqs;
    char *mem; /* small buffers, then big ones */
    size_t mem_size;
    unsigned n_touched; /* big buffers that have memory */
    unsigned low;       /* the fewest that were free since the last trim */
    bool *is_touched;
    uint64_t trim_ns;
    uint64_t n_put, n_put_seen;
    unsigned n_waiting;
    struct blk_wait_list waiting[BLK_TIER_N];
};

MUST_CHECK int blk_pool_init(struct blk_pool *p, struct blk_queue *q, unsigned n_reqs,
                             unsigned n_buffers);
void blk_pool_done(struct blk_pool *p);
struct blk_req *blk_pool_req(struct blk_pool *p, enum blk_tier tier);
void blk_pool_put_req(struct blk_pool *p, struct blk_req *r);
void *blk_pool_buffer(struct blk_pool *p, enum blk_tier tier, size_t size);
void blk_pool_put_buffer(struct blk_pool *p, void *buf);
void blk_pool_wait(struct blk_pool *p, enum blk_tier tier, blk_watch_fn fn, void *ctx);
/* Memory of large buffers that nobody used for a while (BLK_TRIM_NS) goes back to the system.
 * Returns how long to sleep at most, so that an idle queue does it too; UINT64_MAX: nothing to give
 * back. */
#define BLK_TRIM_NS UINT64_C(500000000)
uint64_t blk_pool_trim(struct blk_pool *p, uint64_t now_ns);
/* Something came back that somebody waits for: calls all who wait, lower layers first. */
bool blk_pool_has_due(const struct blk_pool *p);
int blk_pool_run(struct blk_pool *p);
