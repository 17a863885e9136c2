#include "model/tag.h"

static const struct rec_field tag_fields[] = {
    REC_FIELD(struct tag, REC_STR, key),
    REC_FIELD(struct tag, REC_STR, value),
};
REC_DESC(tag_desc, struct tag, "tag", 1, tag_fields);

static const struct rec_field tags_fields[] = {
    REC_FIELD(struct tags, REC_STR, id),
    REC_FIELD(struct tags, REC_STR, account),
    REC_FIELD(struct tags, REC_STR, resource_type),
    REC_FIELD_SUB(struct tags, REC_OBJ_LIST, tags, &tag_desc),
};
REC_DESC(tags_desc, struct tags, "tags", 1, tags_fields);
