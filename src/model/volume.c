#include "model/volume.h"

static const struct rec_field volume_fields[] = {
    REC_FIELD(struct volume, REC_STR, id),
    REC_FIELD(struct volume, REC_STR, account),
    REC_FIELD(struct volume, REC_U64, generation),
    REC_FIELD(struct volume, REC_STR, want),
    REC_FIELD(struct volume, REC_STR, node),
    REC_FIELD(struct volume, REC_STR, az),
    REC_FIELD(struct volume, REC_U64, size_gib),
    REC_FIELD(struct volume, REC_U64, iops),
    REC_FIELD(struct volume, REC_U64, throughput),
    REC_FIELD(struct volume, REC_STR, type),
    REC_FIELD(struct volume, REC_BOOL, is_encrypted),
    REC_FIELD(struct volume, REC_STR, snapshot_id),
    REC_FIELD(struct volume, REC_STR, image_id),
    REC_FIELD(struct volume, REC_STR, snapshot_account),
    REC_FIELD(struct volume, REC_STR, kms_key_id),
    REC_FIELD(struct volume, REC_BOOL, is_auto_io),
    REC_FIELD(struct volume, REC_U64, io_enabled_ns),
    REC_FIELD(struct volume, REC_STR, source_volume_id),
    REC_FIELD(struct volume, REC_U64, create_ns),
    REC_FIELD(struct volume, REC_STR, instance_id),
    REC_FIELD(struct volume, REC_STR, device),
    REC_FIELD(struct volume, REC_STR, attach_want),
    REC_FIELD(struct volume, REC_BOOL, is_detach_forced),
    REC_FIELD(struct volume, REC_U64, attach_ns),
    REC_FIELD(struct volume, REC_BOOL, is_deleted_on_termination),
};
REC_DESC(volume_desc, struct volume, "volume", 1, volume_fields);

static const struct rec_field volume_status_fields[] = {
    REC_FIELD(struct volume_status, REC_STR, id),
    REC_FIELD(struct volume_status, REC_U64, generation),
    REC_FIELD(struct volume_status, REC_STR, state),
    REC_FIELD(struct volume_status, REC_STR, reason),
    REC_FIELD(struct volume_status, REC_STR, health),
    REC_FIELD(struct volume_status, REC_STR, fault),
    REC_FIELD(struct volume_status, REC_U64, fault_ns),
    REC_FIELD(struct volume_status, REC_U64, allocated),
    REC_FIELD(struct volume_status, REC_U64, size_gib),
    REC_FIELD(struct volume_status, REC_U64, absent),
};
REC_DESC(volume_status_desc, struct volume_status, "volume status", 1, volume_status_fields);

static const struct rec_field attachment_status_fields[] = {
    REC_FIELD(struct attachment_status, REC_STR, volume_id),
    REC_FIELD(struct attachment_status, REC_STR, instance_id),
    REC_FIELD(struct attachment_status, REC_U64, generation),
    REC_FIELD(struct attachment_status, REC_STR, state),
    REC_FIELD(struct attachment_status, REC_STR, reason),
    REC_FIELD(struct attachment_status, REC_U64, slot),
    REC_FIELD(struct attachment_status, REC_U64, changed_ns),
};
REC_DESC(attachment_status_desc, struct attachment_status, "attachment status", 1,
         attachment_status_fields);

static const struct rec_field volume_mod_fields[] = {
    REC_FIELD(struct volume_mod, REC_STR, id),
    REC_FIELD(struct volume_mod, REC_STR, account),
    REC_FIELD(struct volume_mod, REC_U64, generation),
    REC_FIELD(struct volume_mod, REC_U64, start_ns),
    REC_FIELD(struct volume_mod, REC_U64, from_size_gib),
    REC_FIELD(struct volume_mod, REC_U64, from_iops),
    REC_FIELD(struct volume_mod, REC_U64, from_throughput),
    REC_FIELD(struct volume_mod, REC_U64, size_gib),
    REC_FIELD(struct volume_mod, REC_U64, iops),
    REC_FIELD(struct volume_mod, REC_U64, throughput),
    REC_FIELD(struct volume_mod, REC_STR, from_type),
    REC_FIELD(struct volume_mod, REC_STR, type),
    REC_FIELD(struct volume_mod, REC_STR, recent),
};
REC_DESC(volume_mod_desc, struct volume_mod, "volume modification", 1, volume_mod_fields);

static const struct rec_field volume_mod_status_fields[] = {
    REC_FIELD(struct volume_mod_status, REC_STR, id),
    REC_FIELD(struct volume_mod_status, REC_U64, generation),
    REC_FIELD(struct volume_mod_status, REC_STR, state),
    REC_FIELD(struct volume_mod_status, REC_STR, reason),
    REC_FIELD(struct volume_mod_status, REC_U64, progress),
    REC_FIELD(struct volume_mod_status, REC_U64, end_ns),
};
REC_DESC(volume_mod_status_desc, struct volume_mod_status, "volume modification status", 1,
         volume_mod_status_fields);

static const struct rec_field snapshot_fields[] = {
    REC_FIELD(struct snapshot, REC_STR, id),
    REC_FIELD(struct snapshot, REC_STR, account),
    REC_FIELD(struct snapshot, REC_STR, description),
    REC_FIELD(struct snapshot, REC_U64, generation),
    REC_FIELD(struct snapshot, REC_STR, want),
    REC_FIELD(struct snapshot, REC_STR, source),
    REC_FIELD(struct snapshot, REC_STR, volume_id),
    REC_FIELD(struct snapshot, REC_STR, group),
    REC_FIELD(struct snapshot, REC_U64, n_group),
    REC_FIELD(struct snapshot, REC_STR, from_id),
    REC_FIELD(struct snapshot, REC_STR, from_account),
    REC_FIELD(struct snapshot, REC_STR, image_id),
    REC_FIELD(struct snapshot, REC_STR, node),
    REC_FIELD(struct snapshot, REC_U64, size_gib),
    REC_FIELD(struct snapshot, REC_U64, size),
    REC_FIELD(struct snapshot, REC_U64, create_ns),
    REC_FIELD(struct snapshot, REC_BOOL, is_encrypted),
    REC_FIELD(struct snapshot, REC_STR, kms_key_id),
    REC_FIELD(struct snapshot, REC_BOOL, is_public),
    REC_FIELD(struct snapshot, REC_STR_LIST, accounts),
    REC_FIELD(struct snapshot, REC_STR_LIST, products),
    REC_FIELD(struct snapshot, REC_U64, last_put_ns),
    REC_FIELD(struct snapshot, REC_U64, timeout_min),
    REC_FIELD(struct snapshot, REC_BOOL, is_complete_wanted),
    REC_FIELD(struct snapshot, REC_U64, changed_blocks),
    REC_FIELD(struct snapshot, REC_STR, checksum),
    REC_FIELD(struct snapshot, REC_BOOL, is_hidden),
    REC_FIELD(struct snapshot, REC_STR, state),
};
REC_DESC(snapshot_desc, struct snapshot, "snapshot", 2, snapshot_fields);

static const struct rec_field snapshot_status_fields[] = {
    REC_FIELD(struct snapshot_status, REC_STR, id),
    REC_FIELD(struct snapshot_status, REC_U64, generation),
    REC_FIELD(struct snapshot_status, REC_STR, state),
    REC_FIELD(struct snapshot_status, REC_STR, reason),
    REC_FIELD(struct snapshot_status, REC_U64, progress),
    REC_FIELD(struct snapshot_status, REC_U64, start_ns),
    REC_FIELD(struct snapshot_status, REC_U64, complete_ns),
    REC_FIELD(struct snapshot_status, REC_U64, full_bytes),
    REC_FIELD(struct snapshot_status, REC_U64, new_bytes),
};
REC_DESC(snapshot_status_desc, struct snapshot_status, "snapshot status", 1,
         snapshot_status_fields);

static const struct rec_field ebs_defaults_fields[] = {
    REC_FIELD(struct ebs_defaults, REC_STR, account),
    REC_FIELD(struct ebs_defaults, REC_BOOL, is_encrypted),
    REC_FIELD(struct ebs_defaults, REC_STR, kms_key_id),
    REC_FIELD(struct ebs_defaults, REC_STR, block_public_access),
    REC_FIELD(struct ebs_defaults, REC_BOOL, is_image_sharing_blocked),
};
REC_DESC(ebs_defaults_desc, struct ebs_defaults, "ebs defaults", 1, ebs_defaults_fields);
