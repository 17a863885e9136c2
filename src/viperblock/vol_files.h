/* vol_files.h — the files of one volume: its description, map, aside and key; making and
 *               growing them.
 * Not here: folders (folder.h), who has it open (vols.h).
 * Threads:  any; the volume is taken (vols.h) by the caller where something is written.
 * Memory:   descriptions live in the arena given.
 * Errors:   -EIO "VolumeDamaged"; -EACCES "Locked"; as folder.h. */
#pragma once
#include "crypto/secret.h"
#include "viperblock/meta.h"
#include "viperblock/vb_int.h"

struct volume;
struct vol;

MUST_CHECK int vol_meta_load(struct vb *vb, struct arena *a, struct str id,
                             struct volume_meta *ret, struct err *err);
MUST_CHECK int vol_meta_save(struct vb *vb, const struct volume_meta *m, struct err *err);
/* The key of an encrypted volume. */
MUST_CHECK int vol_key(struct vb *vb, const struct volume_meta *m, struct secret *ret,
                       struct err *err);
/* Opened for a data process; made when a volume of version 1 has none. */
MUST_CHECK int vol_open_map(struct vb *vb, const struct volume_meta *m, int *ret,
                            struct err *err);
MUST_CHECK int vol_open_aside(struct vb *vb, const struct volume_meta *m, int *ret,
                              struct err *err);
/* What is remembered of an open volume, from its description. Under the lock of the volumes. */
void vol_set_source(struct vol *v, const struct volume_meta *m);
/* Makes data, map, aside and meta.json in a folder that was begun. */
MUST_CHECK int vol_make_files(const struct volume_meta *m, int dir, struct err *err);
/* A fresh key, wrapped, in the arena. */
MUST_CHECK int vol_new_key(struct vb *vb, struct arena *a, struct str id, struct str *ret,
                           struct err *err);
