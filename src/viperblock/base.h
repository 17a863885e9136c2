/* base.h — node-local bases of images: one copy of an image's blocks, which its volumes read
 *          through.
 * Not here: the map's format (blk/blk_base.h), reading through it (blk/blk_cow.h).
 * Threads:  pool threads. A base is made, filled and removed under one lock each; volumes are
 *           made between base_hold() and base_release(), so that none begins to need a base
 *           that goes.
 * Memory:   facts live in the arena given.
 * Errors:   -EAGAIN the store cannot be reached; -EIO absent or corrupt, for good.
 *
 * A base is the folder images/ami-…: data, map, meta.json. An import's is complete; that of an
 * image made of a snapshot begins empty and is filled block by block as volumes ask. Encrypted
 * snapshots never have one. */
#pragma once
#include "viperblock/vb_int.h"

struct base_facts {
    struct str account, snapshot_id; /* of the image's root device */
    uint64_t size;                   /* bytes of its disk */
};

struct bases;
struct bases *bases_new(void);
void bases_free(struct bases *b);

/* 0: usable from now on (made when need be); 1: this image has none, read the snapshot itself;
 * -ENOENT: no such image. */
MUST_CHECK int base_get(struct vb *vb, struct arena *a, struct str image_id,
                        struct base_facts *ret, struct err *err);
/* Brings block 'block' of snapshot (account, id) into the base. */
MUST_CHECK int base_fetch(struct vb *vb, struct str image_id, struct str account, struct str id,
                          uint64_t block, void *buf, struct err *err);
void base_hold(struct vb *vb);
void base_release(struct vb *vb);
/* Removes it unless a volume reads through it: -EBUSY then. */
MUST_CHECK int base_remove(struct vb *vb, struct str image_id, struct err *err);
/* A base of version 1 gets its map; the data is padded to whole blocks. */
MUST_CHECK int base_complete(struct vb *vb, struct str image_id, uint64_t size,
                             struct err *err);
/* True when all of its blocks are here. */
bool base_is_complete(struct vb *vb, struct str image_id);
