#include "viperblock/meta.h"

static const struct rec_field frozen_fields[] = {
    REC_FIELD(struct frozen_meta, REC_STR, id),
    REC_FIELD(struct frozen_meta, REC_STR, parent),
    REC_FIELD(struct frozen_meta, REC_U64, size),
};
static REC_DESC(frozen_desc, struct frozen_meta, "frozen", 1, frozen_fields);

static const struct rec_field volume_fields[] = {
    REC_FIELD(struct volume_meta, REC_STR, id),
    REC_FIELD(struct volume_meta, REC_STR, account),
    REC_FIELD(struct volume_meta, REC_STR, layout),
    REC_FIELD(struct volume_meta, REC_U64, size),
    REC_FIELD(struct volume_meta, REC_STR, image_id),
    REC_FIELD(struct volume_meta, REC_STR, snapshot_id),
    REC_FIELD(struct volume_meta, REC_STR, snapshot_account),
    REC_FIELD(struct volume_meta, REC_U64, create_ns),
    REC_FIELD(struct volume_meta, REC_STR, base),
    REC_FIELD(struct volume_meta, REC_STR, source_id),
    REC_FIELD(struct volume_meta, REC_STR, source_account),
    REC_FIELD(struct volume_meta, REC_U64, source_size),
    REC_FIELD(struct volume_meta, REC_BOOL, is_encrypted),
    REC_FIELD(struct volume_meta, REC_STR, key),
    REC_FIELD(struct volume_meta, REC_STR, last),
    REC_FIELD_SUB(struct volume_meta, REC_OBJ_LIST, frozen, &frozen_desc),
};
REC_DESC(volume_meta_desc, struct volume_meta, "volume_meta", 2, volume_fields);

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
    REC_FIELD(struct image_meta, REC_STR, snapshot_account),
};
REC_DESC(image_meta_desc, struct image_meta, "image_meta", 2, image_fields);
