/* volume_make.h — a new volume: where its bytes come from, and its files.
 * Not here: its life afterwards (volume.c), reading what is absent (supply.h).
 * Threads:  pool threads.
 * Memory:   descriptions live in the arena given.
 * Errors:   -EAGAIN "SnapshotNotReady", "StoreUnavailable"; -EACCES "Locked": it waits; -ENOSPC
 *           "DiskFull"; EC2's names for what cannot be. */
#pragma once
#include "viperblock/meta.h"
#include "viperblock/vb_int.h"

struct volume;
MUST_CHECK int volume_make(struct vb *vb, struct arena *a, const struct volume *v,
                           struct err *err);
