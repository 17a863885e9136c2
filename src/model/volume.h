/* volume.h — volumes and snapshots as the store holds them.
 * Not here: bytes of a volume (viperblock/), plugging into a guest (compute/).
 * Who writes: spec/volume awsgw; status/volume viperblock (does the file exist);
 *             status/attachment compute (is it plugged). A volume is in-use while its spec
 *             names an instance and status/attachment is not "detached".
 * Threads, memory, errors: see codec/rec.h. */
#pragma once
#include "codec/rec.h"

struct volume { /* spec/volume/<account>/<id> */
    struct rec_head head;
    struct str id, account;
    uint64_t generation;
    struct str want; /* "present" or "deleted" */
    struct str node, az;
    uint64_t size_gib, iops, throughput;
    struct str type; /* "gp3", "gp2", "io1", "io2", "st1", "sc1", "standard" */
    bool is_encrypted;
    struct str snapshot_id, image_id; /* where the bytes come from; "" = empty volume */
    uint64_t create_ns;

    /* The one attachment; instance_id "" = none. */
    struct str instance_id, device;
    /* "attached" or "detached": detaching keeps instance_id until compute says detached */
    struct str attach_want;
    bool is_detach_forced;
    uint64_t attach_ns;
    bool is_deleted_on_termination;
};
extern const struct rec_desc volume_desc;

struct volume_status { /* status/volume/<account>/<id>, by viperblock */
    struct rec_head head;
    struct str id;
    uint64_t generation;
    /* "creating", "available" (the bytes are there), "deleting", "deleted", "error" */
    struct str state;
    struct str reason;
    struct str health;  /* "ok", "impaired" */
    uint64_t allocated; /* bytes on disk, last time looked */
};
extern const struct rec_desc volume_status_desc;

struct attachment_status { /* status/attachment/<account>/<volume id>, by compute */
    struct rec_head head;
    struct str volume_id, instance_id;
    uint64_t generation; /* of the volume's spec */
    struct str state;    /* "attaching", "attached", "detaching", "detached", "busy" */
    struct str reason;
    uint64_t slot; /* root port that the disk sits on, kept for the life of the attachment */
    uint64_t changed_ns;
};
extern const struct rec_desc attachment_status_desc;

struct snapshot { /* spec/snapshot/<account>/<id>: today only those that images name */
    struct rec_head head;
    struct str id, account, volume_id, description, image_id;
    uint64_t size_gib, create_ns;
    struct str state; /* "completed" */
};
extern const struct rec_desc snapshot_desc;
