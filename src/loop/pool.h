/* pool.h — a bounded pool of threads for work that blocks.
 * Not here: ordering: two jobs may run at once and end in any order.
 * Threads:  submit from any thread; work runs on a pool thread; done runs on the loop given (or
 *           not at all when NULL).
 * Memory:   'ctx' is the caller's and must live until done (or until work ends when there is no
 *           loop).
 * Errors:   -EAGAIN when the queue is full: the caller answers "slow down". */
#pragma once
#include "loop/loop.h"

struct pool;

struct pool *pool_new(const char *name, unsigned n_threads, unsigned max_queue);
/* Waits for the running jobs; queued ones are run first. Free the pool before the loops that
 * its jobs end on. NULL is fine. */
void pool_free(struct pool *p);
MUST_CHECK int pool_submit(struct pool *p, loop_fn work, struct loop *done_loop, loop_fn done,
                           void *ctx);
