/* responders.h — one responder process per VPC: started, adopted after a restart, told what it
 * must know, replaced when it dies.
 * Not here: what it does (resp_*.c).
 * Threads:  the reconciler's; responders_wait_fd() may be watched by any.
 * Memory:   responders_new() gives; responders_free() leaves the processes running.
 * Errors:   negative errno; the next call tries again. */
#pragma once
#include "model/config.h"
#include "vpcd/native.h"

struct responders;

MUST_CHECK int responders_new(const struct config *cfg, struct responders **ret,
                              struct err *err);
void responders_free(struct responders *r);
DEFINE_CLEANUP(struct responders *, responders_free);

/* Readable when a responder has died: call responders_apply() for all. */
int responders_wait_fd(const struct responders *r);
/* Runs, and knows everything about the VPC. Sends only what changed since the last call; with
 * 'is_full' it must answer in any case. */
MUST_CHECK int responders_apply(struct responders *r, struct native *n,
                                const struct plan_vpc *v, bool is_full, struct err *err);
/* Ends the VPC's responder and removes its files. */
void responders_remove(struct responders *r, struct str vpc_id);
/* Ends all, also those that an earlier vpcd started. */
MUST_CHECK int responders_teardown(const struct config *cfg, struct err *err);
