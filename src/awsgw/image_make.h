/* image_make.h — an image on its way into the store: name, tags, devices, then one transaction.
 * Not here: operations (ops_image_make.c, ops_image_copy.c).
 * Threads:  of the request.
 * Memory:   in the arena of the call.
 * Errors:   those that the EC2 API reference lists for CreateImage and RegisterImage. */
#pragma once
#include "awsgw/image.h"

#define IMAGE_DISKS_MAX  16u
#define IMAGE_EXTRAS_MAX 32u /* mappings, with those that name no EBS volume */

struct make {
    struct aws_call *call;
    struct image rec;
    struct image_device devices[IMAGE_EXTRAS_MAX];
    size_t n;
    struct tag_list image_tags, snapshot_tags;
};

/* Checks the name and the tags; a new id and an empty record. */
MUST_CHECK int make_open(struct aws_call *call, struct str name, struct str description,
                         const struct ec2_tag_specification_list *tags, bool makes_snapshots,
                         struct make *m, struct err *err);
/* The device of this name; a new one when there is none. */
MUST_CHECK int make_device(struct make *m, struct str name, struct image_device **ret,
                           struct err *err);
/* One entry of BlockDeviceMappings; rec.root_device must be set. */
MUST_CHECK int make_mapping(struct make *m, const struct ec2_block_device_mapping *in,
                            struct txn *t, struct err *err);
/* Adds the record, its name, its tags. The root's figures are the image's. */
MUST_CHECK int make_write(struct make *m, struct txn *t, struct err *err);
