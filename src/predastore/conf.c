#include "predastore/conf.h"

#include <errno.h>

#define CONF_MAX (512u << 10) /* the store's limit */

const struct conf_form conf_tags = {OCONF_TAGS, "Tagging", "Tagging"};
const struct conf_form conf_cors = {OCONF_CORS, "CORSConfiguration", "CORSConfiguration"};
const struct conf_form conf_lifecycle = {OCONF_LIFECYCLE, "BucketLifecycleConfiguration",
                                         "LifecycleConfiguration"};
const struct conf_form conf_encryption = {OCONF_ENCRYPTION, "ServerSideEncryptionConfiguration",
                                          "ServerSideEncryptionConfiguration"};

static uint16_t shape_of(const struct conf_form *f)
{
    int i = aws_shape_find(&aws_service_s3, str_c(f->shape));
    return i < 0 ? (uint16_t)AWS_SHAPE_NONE : (uint16_t)i;
}

int conf_put(struct s3_call *c, const struct conf_form *f, const void *v, struct err *err)
{
    AUTO_BUF xml;
    buf_init(&xml, CONF_MAX);
    int r = rest_encode_xml(&aws_service_s3, shape_of(f), f->root, v, &xml, err);
    if (r < 0) {
        return r;
    }
    if (!buf_ok(&xml)) {
        return fail(err, -E2BIG, "EntityTooLarge", "%s", "");
    }
    return ostore_bucket_configure(c->store, c->bucket->name, c->bucket->number, f->which,
                                   buf_str(&xml), err);
}

int conf_remove(struct s3_call *c, const struct conf_form *f, struct err *err)
{
    if (!conf_is_set(c->bucket, f)) {
        return 0;
    }
    return ostore_bucket_configure(c->store, c->bucket->name, c->bucket->number, f->which,
                                   STR_NONE, err);
}

bool conf_is_set(const struct obucket *b, const struct conf_form *f)
{
    return b->conf[f->which].n > 0;
}

int conf_get(struct arena *a, const struct obucket *b, const struct conf_form *f, void *out,
             struct err *err)
{
    struct err why = ERR_INIT;
    int r =
        rest_decode_xml(&aws_service_s3, shape_of(f), f->root, b->conf[f->which], a, out, &why);
    if (r < 0) {
        return fail(err, -EBADMSG, "InternalError", "%s of bucket %.*s cannot be read: %s",
                    f->root, STR_ARG(b->name), why.msg);
    }
    return 0;
}
