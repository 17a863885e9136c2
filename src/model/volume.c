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
    REC_FIELD(struct volume_status, REC_U64, allocated),
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

static const struct rec_field snapshot_fields[] = {
    REC_FIELD(struct snapshot, REC_STR, id),
    REC_FIELD(struct snapshot, REC_STR, account),
    REC_FIELD(struct snapshot, REC_STR, volume_id),
    REC_FIELD(struct snapshot, REC_STR, description),
    REC_FIELD(struct snapshot, REC_STR, image_id),
    REC_FIELD(struct snapshot, REC_U64, size_gib),
    REC_FIELD(struct snapshot, REC_U64, create_ns),
    REC_FIELD(struct snapshot, REC_STR, state),
};
REC_DESC(snapshot_desc, struct snapshot, "snapshot", 1, snapshot_fields);
