/* guests.h — all guests of this node, stopped in order.
 * Not here: how a guest is stopped (compute/).
 * Threads:  one.
 * Memory:   in the command's arena.
 * Errors:   of the store; -ETIMEDOUT "GuestsRun" names those that still run. */
#pragma once
#include "spx/cmd.h"

/* Asks every instance of this node that shall run to stop, as StopInstances does, and waits until
 * compute reports them stopped. */
MUST_CHECK int guests_stop(struct spx *s, uint64_t limit_ns, struct err *err);
