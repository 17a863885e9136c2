/* snapshot.h — snapshots on their way to "completed" and away again.
 * Not here: blocks (supply.h, snap/), frozen sets (blk/blk_cow.h), who may (awsgw).
 * Threads:  jobs of pool threads, one for each record; long copies on a pool of their own.
 * Memory:   a job's strings live in its arena.
 * Errors:   0: nothing to do until something changes; -EAGAIN: come back; else "error" was
 *           written.
 *
 * Of a volume: frozen (status "pending" with start_ns) -> blocks uploaded -> committed in the
 * store -> the frozen set is given up -> "completed". What has been reached is read from the
 * store, the data process and the description of the volume, never remembered: a manager that
 * is killed at any step goes on with the next. */
#pragma once
#include "model/volume.h"
#include "snap/snap.h"
#include "viperblock/vb_int.h"

struct snap_job {
    struct vb *vb;
    struct arena *a;
    const struct snapshot *spec;
    const struct snapshot_status *status; /* NULL: none yet */
};

struct longs; /* copies that run longer than a job may */
struct longs *longs_new(void);
void longs_free(struct longs *l); /* after its pool */
/* Starts fn for the snapshot unless it runs already; 'key' is touched when it ends. */
void long_start(struct snap_job *j, void (*fn)(struct snap_job *j));

MUST_CHECK int snap_job_pending(struct snap_job *j, uint64_t start_ns, uint64_t progress);
MUST_CHECK int snap_job_failed(struct snap_job *j, const char *reason);
MUST_CHECK int snap_job_completed(struct snap_job *j, const struct snap_info *info);
/* True when the record says so; for snapshots that others depend on. */
bool snap_is_completed(struct vb *vb, struct arena *a, struct str account, struct str id);
bool snap_has_failed(struct vb *vb, struct arena *a, struct str account, struct str id);
bool snap_is_deleted(struct vb *vb, struct arena *a, struct str account, struct str id);

/* One step; the snapshot is not in the store yet. */
int snapshot_volume_step(struct snap_job *j, struct snap_store *store);
/* It is: the volume lets go of what it held for it. */
MUST_CHECK int snapshot_volume_end(struct snap_job *j, struct err *err);
int snapshot_copy_step(struct snap_job *j, struct snap_store *store);
int snapshot_ebs_step(struct snap_job *j, struct snap_store *store);
int snapshot_image_step(struct snap_job *j, struct snap_store *store);
/* Every so often: what waits for time to pass. Loop thread. */
void snapshot_tick(struct vb *vb);

/* EBS direct: what was written so far (snapshot_ebs.c). */
MUST_CHECK int ebs_note(struct vb *vb, struct str id, uint64_t block, const uint8_t sha256[32],
                        struct err *err);
void ebs_forget(struct vb *vb, struct str id);
