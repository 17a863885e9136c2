/* gc.h — what nothing needs any more: bases of images, kept snapshots, blocks in the store.
 * Not here: mark and sweep (snap/snap.h).
 * Threads:  any; the work is a job ("gc/...").
 * Memory:   nothing is kept.
 * Errors:   a job that fails is tried again. */
#pragma once
#include "viperblock/meta.h"
#include "viperblock/vb_int.h"

/* The volume is deleted, or has all its bytes: what it came from may go. */
void gc_volume_gone(struct vb *vb, const struct volume_meta *m);
/* A snapshot was deleted, given up or superseded as a parent: look whether it is needed. */
void gc_snapshot(struct vb *vb, struct str account, struct str id);
void gc_base(struct vb *vb, struct str image_id);
/* A volume that reads through the base was opened. */
void gc_opened(struct vb *vb, struct str image_id);
/* True when a volume here hydrates from it or counts its dirt from it. */
bool gc_is_needed(struct vb *vb, struct str account, struct str id);
/* At start: everything is looked at once. */
void gc_start(struct vb *vb);
