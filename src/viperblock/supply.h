/* supply.h — blocks between data processes and the store: an absent block is fetched, a frozen
 *            one is stored.
 * Not here: the store (snap/), which volume may ask for what (vols.h), bases (base.h).
 * Threads:  supply_take() on the loop's thread; the work on two pools, so that what a guest
 *           waits for does not stand behind uploads.
 * Memory:   a buffer of one block for each thread.
 * Errors:   answered to the process: -EIO absent or corrupt, for good; -EAGAIN to be asked
 *           again. */
#pragma once
#include "blk/ctl.h"

struct vb;
struct proc;

/* A FETCH or an UPLOAD; 'h' is copied. */
void supply_take(struct vb *vb, struct proc *p, const struct ctl_head *h);
