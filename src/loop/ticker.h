/* ticker.h — a thread that does one thing again and again: every so often, and soon when poked.
 * Not here: work of many kinds (pool.h), timers of a loop (loop.h).
 * Threads:  turns run on the ticker's own thread, one after the other; ticker_poke() may be called
 *           from any thread, also by a turn. The thread takes no signals.
 * Memory:   ticker_start() gives, ticker_stop() takes; 'ctx' is the caller's and must live until
 *           then.
 * Errors:   none: aborts when there is no thread to be had. */
#pragma once
#include "base/macro.h"
#include <stdint.h>

struct ticker;

/* The first turn runs at once; the next 'every_ns' after the end of the one before, or right after
 * it when it was poked meanwhile. */
struct ticker *ticker_start(void (*turn)(void *ctx), void *ctx, uint64_t every_ns);
void ticker_poke(struct ticker *t);
/* Waits for the turn under way; no turn runs after that. NULL is fine. */
void ticker_stop(struct ticker *t);
DEFINE_CLEANUP(struct ticker *, ticker_stop);
