/* meta.h — what lies in meta.json beside the bytes of a volume or an image: enough to know them
 * without the store.
 * Not here: the store's records (model/volume.h, model/instance.h). Format:
 *           docs/formats/volume.md.
 * Threads, memory, errors: see codec/rec.h. */
#pragma once
#include "codec/rec.h"

struct frozen_meta { /* a snapshot whose blocks the volume's maps still hold */
    struct rec_head head;
    struct str id, parent; /* parent "" = all blocks are read */
    uint64_t size;         /* bytes of the volume at that moment */
};

struct volume_meta {
    struct rec_head head;
    struct str id, account;
    struct str layout;                                  /* VOLUME_LAYOUT_* */
    uint64_t size;                                      /* bytes */
    struct str image_id, snapshot_id, snapshot_account; /* as asked for, "" = empty volume */
    uint64_t create_ns;
    /* Since version 2. Where absent pages come from: a base in images/, the store, or nowhere
     * any more ("" both). */
    struct str base, source_id, source_account;
    uint64_t source_size; /* bytes of the source's disk; what lies behind is zeros */
    bool is_encrypted;
    struct str key;  /* 64 bytes wrapped for "volume-key/<id>" */
    struct str last; /* newest snapshot that was frozen: what dirt counts from; "" = none */
    struct {
        struct frozen_meta *v;
        size_t n;
    } frozen; /* oldest first */
};
#define VOLUME_LAYOUT_RAW    "raw"    /* all bytes are in place, no key; version 1 */
#define VOLUME_LAYOUT_MAPPED "mapped" /* 'map' says which are */
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
    struct str snapshot_account; /* since version 2; "" = the account's */
};
extern const struct rec_desc image_meta_desc;
