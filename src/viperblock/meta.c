#include "viperblock/meta.h"

static const struct rec_field volume_fields[] = {
    REC_FIELD(struct volume_meta, REC_STR, id),
    REC_FIELD(struct volume_meta, REC_STR, account),
    REC_FIELD(struct volume_meta, REC_STR, layout),
    REC_FIELD(struct volume_meta, REC_U64, size),
    REC_FIELD(struct volume_meta, REC_STR, image_id),
    REC_FIELD(struct volume_meta, REC_STR, snapshot_id),
    REC_FIELD(struct volume_meta, REC_U64, create_ns),
};
REC_DESC(volume_meta_desc, struct volume_meta, "volume_meta", 1, volume_fields);

static const struct rec_field image_fields[] = {
    REC_FIELD(struct image_meta, REC_STR, id),
    REC_FIELD(struct image_meta, REC_STR, account),
    REC_FIELD(struct image_meta, REC_STR, snapshot_id),
    REC_FIELD(struct image_meta, REC_STR, layout),
    REC_FIELD(struct image_meta, REC_U64, size),
    REC_FIELD(struct image_meta, REC_STR, name),
    REC_FIELD(struct image_meta, REC_STR, description),
    REC_FIELD(struct image_meta, REC_STR, arch),
    REC_FIELD(struct image_meta, REC_STR, boot_mode),
    REC_FIELD(struct image_meta, REC_STR, root_device),
    REC_FIELD(struct image_meta, REC_STR, source_format),
    REC_FIELD(struct image_meta, REC_STR, source_sha256),
    REC_FIELD(struct image_meta, REC_BOOL, is_public),
    REC_FIELD(struct image_meta, REC_U64, create_ns),
};
REC_DESC(image_meta_desc, struct image_meta, "image_meta", 1, image_fields);
