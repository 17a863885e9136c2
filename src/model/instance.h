/* instance.h — instances, images and key pairs as the store holds them.
 * Not here: API shapes (aws/), QEMU (compute/).
 * Who writes: spec/instance awsgw; status/instance compute; spec/image viperblock at import,
 *             awsgw for changes; status/image viperblock; spec/keypair awsgw.
 * Threads, memory, errors: see codec/rec.h. Times are wall-clock nanoseconds. */
#pragma once
#include "codec/rec.h"
#include "model/tag.h"

/* What the user wants. */
#define INSTANCE_WANT_RUNNING    "running"
#define INSTANCE_WANT_STOPPED    "stopped"
#define INSTANCE_WANT_TERMINATED "terminated"

/* AWS's states with their codes (EC2 API reference, InstanceState). */
enum instance_state {
    INSTANCE_PENDING = 0,
    INSTANCE_RUNNING = 16,
    INSTANCE_SHUTTING_DOWN = 32,
    INSTANCE_TERMINATED = 48,
    INSTANCE_STOPPING = 64,
    INSTANCE_STOPPED = 80,
};
const char *instance_state_name(enum instance_state s);
MUST_CHECK int instance_state_parse(struct str name, enum instance_state *ret);

struct instance { /* spec/instance/<account>/<id> */
    struct rec_head head;
    struct str id, account;
    /* + 1 with every change of what is wanted; compute reports the one it acted on */
    uint64_t generation;
    struct str want;    /* INSTANCE_WANT_* */
    bool is_forced;     /* of the last stop: no ACPI, at once */
    uint64_t n_reboots; /* compute resets the guest when its own count is behind */
    struct str node;    /* where it runs */

    struct str reservation_id, client_token;
    uint64_t launch_index, launch_ns, create_ns;         /* launch_ns: last start */
    struct str image_id, instance_type, arch, boot_mode; /* boot_mode "bios" or "uefi" */
    uint64_t n_vcpus, memory_mib;
    struct str key_name, public_key; /* OpenSSH line, copied at launch */
    struct str user_data;            /* base64, as given; "" = none */
    struct str az, vpc_id, subnet_id;
    struct str root_device; /* "/dev/sda1" or as the image says */

    bool is_termination_protected, is_stop_protected, is_monitored, is_ebs_optimized,
        is_source_dest_checked;
    struct str shutdown_behavior; /* "stop" or "terminate" */
    struct str http_tokens;       /* "required" or "optional" */
    struct str http_endpoint;     /* "enabled" or "disabled" */
    uint64_t http_hop_limit;
    bool is_tags_in_metadata;

    struct str transition_reason;           /* "User initiated (2026-11-30 14:49:10 GMT)" */
    struct str reason_code, reason_message; /* StateReason of the last user action */
    uint64_t terminated_ns;                 /* 0 = not; visible for an hour after it */
    bool is_released;         /* awsgw has given back addresses, capacity, volumes */
    bool is_holding_capacity; /* counted in claim/capacity; given back while stopped */
    bool is_burstable;        /* of the type: how it was counted */
    /* a start gives the interface a public address, a stop takes it back (as AWS does) */
    bool has_auto_public_ip;
    /* the image for which it is stopped just now and started again: users see it run; "" else
     */
    struct str imaging;
};
extern const struct rec_desc instance_desc;

struct instance_status { /* status/instance/<account>/<id> */
    struct rec_head head;
    struct str id;
    uint64_t generation; /* of the spec that this status is the answer to */
    struct str state;    /* instance_state_name() */
    /* "Client.InstanceInitiatedShutdown", "Server.InternalError" ... */
    struct str reason_code, reason_message;
    uint64_t n_reboots, n_starts, n_crashes;
    uint64_t started_ns, changed_ns;
    uint64_t pid;     /* of QEMU; 0 = none */
    struct str accel; /* "kvm" or "tcg" */
    /* "ok", "initializing", "impaired", "not-applicable", "insufficient-data" */
    struct str instance_check, system_check;
    uint64_t impaired_since_ns;
    struct str boot_id; /* of the host, at the last start */
};
extern const struct rec_desc instance_status_desc;

struct image_device { /* one entry of an image's block device mapping */
    struct rec_head head;
    struct str device, snapshot_id, type, kms_key_id;
    uint64_t size_gib, iops, throughput;
    bool is_encrypted, is_kept; /* kept: DeleteOnTermination false */
    struct str volume_id;       /* CreateImage: the volume that the snapshot is of; "" else */
    struct str virtual_name;    /* "ephemeral0", or "" */
    bool is_none;               /* NoDevice */
};
extern const struct rec_desc image_device_desc;

struct image { /* spec/image/<owner account>/<ami id> */
    struct rec_head head;
    struct str id, account;
    struct str name, description, arch, boot_mode, platform; /* platform "" or "windows" */
    struct str root_device, snapshot_id, sha256; /* snapshot_id: of the root device */
    uint64_t size;                               /* bytes of the root disk */
    uint64_t create_ns;
    bool is_public;
    struct str want;          /* "present" or "deleted" */
    struct str source;        /* "" (an import), "instance", "snapshot", "copy" */
    struct str source_id;     /* instance or image */
    struct str_list accounts; /* launchPermission */
    struct {
        struct image_device *v;
        size_t n;
    } devices;                              /* empty: the root alone, as imports had it */
    struct str ena, sriov, tpm, imds, virt; /* as registered; "" = the default */
    struct str deprecate_at;                /* ISO 8601 or "" */
    bool is_protected;                      /* DeregistrationProtection */
    bool is_disabled;                       /* DisableImage */
    /* CreateImage with a reboot: "stopping" (no snapshots yet, the guest is going down),
     * "taking" (of a stopped guest), "" (done, or there was no reboot) */
    struct str phase;
    struct str failure; /* why it never becomes available; "" = it may */
};
extern const struct rec_desc image_desc;

struct image_status { /* status/image/<account>/<id> */
    struct rec_head head;
    struct str id;
    struct str state; /* "pending", "available", "failed", "deregistered" */
    struct str reason, node;
};
extern const struct rec_desc image_status_desc;

struct keypair { /* spec/keypair/<account>/<name>: the name is the key */
    struct rec_head head;
    struct str id, account, name; /* id "key-..." */
    struct str type;              /* "rsa" or "ed25519" */
    struct str fingerprint, public_key;
    uint64_t create_ns;
};
extern const struct rec_desc keypair_desc;
