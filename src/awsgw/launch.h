/* launch.h — a checked RunInstances request: everything that can be refused has been, nothing
 * has been written.
 * Not here: writing (ops_run.c).
 * Threads:  no state.
 * Memory:   in the arena of the call; records stay valid as long.
 * Errors:   those that the EC2 API reference lists for RunInstances. */
#pragma once
#include "aws/api/ec2.h"
#include "awsgw/alloc.h"
#include "awsgw/image.h"
#include "awsgw/tagset.h"
#include "model/instance.h"
#include "model/network.h"
#include "model/volume.h"

#define LAUNCH_DISKS_MAX 16u /* root ports of a guest that are kept for disks */
#define DATA_DISKS_MAX   15u /* all of them but the root's */

struct launch_disk {
    struct str device;
    /* Where its bytes come from; "" = empty. The image is named by the root alone. */
    struct str snapshot_id, snapshot_account, image_id;
    uint64_t size_gib, iops, throughput;
    struct str type, kms_key_id;
    bool is_deleted_on_termination, is_root, is_encrypted;
    /* its snapshot, to be there still when the volume is written; NULL = of an image, which is */
    const struct view_entry *snapshot;
};

struct launch {
    const struct ec2_run_instances_request *in;
    uint64_t n_min, n_max;
    const struct image *image;
    const struct view_entry *image_entry;
    const struct node_facts *facts;
    const struct instance_type *type;
    const struct keypair *key; /* NULL = none */
    const struct vpc *vpc;
    const struct subnet *subnet;
    /* an interface that exists already and is attached; NULL = a new one */
    const struct view_entry *eni;
    struct str_list sg_ids;
    bool has_public_ip, is_eni_deleted_on_termination;
    struct str private_ip, eni_description; /* "" = any */
    struct launch_disk disks[LAUNCH_DISKS_MAX];
    size_t n_disks;
    struct tag_list instance_tags, volume_tags, eni_tags;
    struct str http_tokens, http_endpoint, shutdown_behavior, user_data;
    uint64_t http_hop_limit;
    bool is_tags_in_metadata;
};

MUST_CHECK int launch_check(struct aws_call *call, const struct ec2_run_instances_request *in,
                            struct launch *ret, struct err *err);

/* The disks of the launch from the image and BlockDeviceMappings (launch_disk.c); part of
 * launch_check(). */
MUST_CHECK int launch_disks(struct aws_call *call, struct launch *l, struct err *err);

/* "/dev/sdf", "xvdf" and what older tools send (EBS user guide, device names). */
bool device_name_is_good(struct str s);
