/* volume.h — volumes, their modifications, snapshots and an account's defaults as the store holds
 * them.
 * Not here: bytes of a volume (viperblock/), plugging into a guest (compute/), limits of types
 *           (volume_type.h).
 * Who writes: spec/volume, spec/volmod, spec/ebsdefaults awsgw; spec/snapshot awsgw, and viperblock
 * for
 *             those of an import; status/volume, status/volmod, status/snapshot viperblock;
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
    struct str snapshot_account;      /* owner of the snapshot; "" = the volume's account */
    struct str kms_key_id;            /* ARN; "" when not encrypted */
    bool is_auto_io;                  /* AutoEnableIO */
    uint64_t io_enabled_ns;           /* EnableVolumeIO: a fault before this is accepted */
    struct str source_volume_id;      /* CopyVolumes; "" else */
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
    struct str health; /* "ok", "impaired", "insufficient-data" */
    struct str
        fault; /* why it is impaired: "sync-failed", "lost", "crashed-twice", "store-away" */
    uint64_t fault_ns;
    uint64_t allocated; /* bytes on disk, last time looked */
    uint64_t size_gib;  /* what the guest may see by now: follows the spec after a growth */
    uint64_t absent;    /* bytes that still have to come from the snapshot (hydration) */
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

struct volume_mod { /* spec/volmod/<account>/<volume id>: the newest modification of a volume */
    struct rec_head head;
    struct str id, account; /* of the volume */
    uint64_t generation;    /* of the volume's spec that carries the new values */
    uint64_t start_ns;
    uint64_t from_size_gib, from_iops, from_throughput, size_gib, iops, throughput;
    struct str from_type, type;
    struct str
        recent; /* starts within 24 h, as decimal nanoseconds with commas: at most four */
};
extern const struct rec_desc volume_mod_desc;

struct volume_mod_status { /* status/volmod/<account>/<volume id> */
    struct rec_head head;
    struct str id;
    uint64_t generation;
    struct str state; /* "modifying", "optimizing", "completed", "failed" */
    struct str reason;
    uint64_t progress, end_ns;
};
extern const struct rec_desc volume_mod_status_desc;

struct snapshot { /* spec/snapshot/<account>/<id> */
    struct rec_head head;
    struct str id, account, description;
    uint64_t generation;
    struct str
        want; /* "present" or "deleted"; "" (written before there was a choice) = present */
    struct str source;    /* "volume", "copy", "ebs" (StartSnapshot), "image" (an import) */
    struct str volume_id; /* "vol-ffffffff" when there is none, as AWS answers */
    struct str
        group; /* CreateSnapshots: all with this word are of one point in time; "" = alone */
    uint64_t n_group;                 /* how many the group has */
    struct str from_id, from_account; /* copy: the source; ebs: the parent */
    struct str image_id;              /* the image that it was imported with, "" else */
    struct str node;
    uint64_t size_gib, size; /* size: bytes of the disk (an import may end within a GiB) */
    uint64_t create_ns;
    bool is_encrypted;
    struct str kms_key_id;
    bool is_public;
    struct str_list accounts; /* createVolumePermission */
    struct str_list products;
    uint64_t last_put_ns;    /* ebs: of the newest block, coarse; Timeout counts from it */
    uint64_t timeout_min;    /* ebs: minutes without a block until it becomes "error" */
    bool is_complete_wanted; /* ebs: CompleteSnapshot was called, with: */
    uint64_t changed_blocks;
    struct str checksum; /* base64 SHA-256 LINEAR, "" = not given */
    bool is_hidden;      /* a step of CopyVolumes: goes when its volume is made */
    struct str state;    /* of records before version 2: "completed"; see status */
};
extern const struct rec_desc snapshot_desc;

struct snapshot_status { /* status/snapshot/<account>/<id>, by viperblock */
    struct rec_head head;
    struct str id;
    uint64_t generation;
    struct str state; /* "pending", "completed", "error", "deleted" */
    struct str reason;
    uint64_t progress; /* percent */
    uint64_t start_ns; /* the point in time */
    uint64_t complete_ns;
    uint64_t full_bytes; /* FullSnapshotSizeInBytes */
    uint64_t new_bytes;  /* stored for this snapshot alone */
};
extern const struct rec_desc snapshot_status_desc;

struct ebs_defaults { /* spec/ebsdefaults/<account>/default */
    struct rec_head head;
    struct str account;
    bool is_encrypted;              /* EnableEbsEncryptionByDefault */
    struct str kms_key_id;          /* "" = alias/aws/ebs */
    struct str block_public_access; /* "", "block-all-sharing", "block-new-sharing" */
    bool is_image_sharing_blocked;  /* EnableImageBlockPublicAccess */
};
extern const struct rec_desc ebs_defaults_desc;
