/* launch.h — a checked RunInstances request: everything that can be refused has been, nothing
 * has been written.
 * Not here: writing (ops_run.c).
 * Threads:  no state.
 * Memory:   in the arena of the call; records stay valid as long.
 * Errors:   those that the EC2 API reference lists for RunInstances. */
#pragma once
#include "aws/api/ec2.h"
#include "awsgw/alloc.h"
#include "awsgw/find.h"
#include "awsgw/tagset.h"
#include "model/instance.h"
#include "model/network.h"
#include "model/volume.h"

#define LAUNCH_DISKS_MAX \
    12u /* root ports of a guest that are kept for disks, less a reserve for later attachments */

struct launch_disk {
    struct str device;
    struct str snapshot_id, image_id; /* where its bytes come from; "" = empty */
    uint64_t size_gib, iops, throughput;
    struct str type;
    bool is_deleted_on_termination, is_root;
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

/* Sizes, IOPS and throughput of a volume type (EBS user guide, volume types); fills in the
 * defaults. */
MUST_CHECK int volume_type_check(struct str type, uint64_t size_gib, struct opt_i64 iops,
                                 struct opt_i64 throughput, uint64_t *ret_iops,
                                 uint64_t *ret_throughput, struct err *err);
/* Is 'image' one that this account may use? */
bool image_is_visible(const struct aws_call *call, const struct image *image);
/* The image, visible to the caller, or NULL with AWS's error. */
const struct view_entry *image_find(struct aws_call *call, struct str id, struct err *err);
