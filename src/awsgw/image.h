/* image.h — images as the API shows them: state, devices, who may use them.
 * Not here: operations (ops_image*.c), bytes (viperblock/).
 * Threads:  no state.
 * Memory:   in the arena of the call.
 * Errors:   "InvalidAMIID.*", "AuthFailure". */
#pragma once
#include "awsgw/ebs.h"
#include "model/instance.h"

struct img_devices {
    struct image_device *v;
    size_t n;
};

/* The block device mapping, root first. An import has only a root: it is made up from the
 * record. */
struct img_devices image_devices(struct gw *gw, struct arena *a, const struct image *i);

/* "pending", "available", "failed", "disabled", "deregistered". '*ret_reason' (may be NULL): of
 * a failed one. */
struct str image_state(struct gw *gw, struct arena *a, const struct image *i,
                       struct str *ret_reason);

void image_mapping_out(struct aws_call *call, const struct image *i,
                       struct ec2_block_device_mapping_list *out);

/* Is 'image' one that this account may use? */
bool image_is_visible(const struct aws_call *call, const struct image *image);
/* The image, visible to the caller, or NULL with AWS's error. */
const struct view_entry *image_find(struct aws_call *call, struct str id, struct err *err);
/* Visible, the caller's, and not deregistered. */
const struct view_entry *image_find_own(struct aws_call *call, struct str id, struct err *err);
/* "Created by CreateImage(i-...) for ami-...": the description of its snapshots. */
struct str image_snapshot_text(struct arena *a, const struct image *i);
/* As users say it: "legacy-bios", "uefi", "uefi-preferred"; STR_NONE when nobody said. */
struct str image_boot_mode(const struct image *i);
/* What its instances start with: "bios" or "uefi". */
struct str image_firmware(const struct image *i);
/* Present image whose root device this snapshot is, and that the caller may use; or NULL. */
const struct view_entry *image_of_root(struct aws_call *call, struct str snapshot_id);

/* Where the bytes of a new volume come from. */
struct disk_source {
    struct str snapshot_id, snapshot_account, image_id; /* image: when it is its root's */
    uint64_t size_gib;
    bool is_encrypted;
    const struct view_entry *entry; /* must be unchanged when the volume is written */
};
/* A snapshot that a user named: completed, and the caller's, shared with it, public, or the root
 * of an image that the caller may use. */
MUST_CHECK int disk_source_find(struct aws_call *call, struct str snapshot_id,
                                struct disk_source *ret, struct err *err);
