/* meta.h — what lies in meta.json beside the bytes of a volume or an image: enough to know them
 * without the store.
 * Not here: the store's records (model/volume.h, model/instance.h). Format:
 *           docs/formats/volume.md.
 * Threads, memory, errors: see codec/rec.h. */
#pragma once
#include "codec/rec.h"

struct volume_meta {
    struct rec_head head;
    struct str id, account;
    struct str layout;                /* "raw": the bytes of the disk in place */
    uint64_t size;                    /* bytes */
    struct str image_id, snapshot_id; /* where they came from, "" = empty volume */
    uint64_t create_ns;
};
extern const struct rec_desc volume_meta_desc;

struct image_meta {
    struct rec_head head;
    struct str id, account, snapshot_id;
    struct str layout;
    uint64_t size;
    struct str name, description, arch, boot_mode, root_device;
    struct str source_format, source_sha256; /* of what was imported */
    bool is_public;
    uint64_t create_ns;
};
extern const struct rec_desc image_meta_desc;
