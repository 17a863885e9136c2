/* conf.h — what a bucket is configured to: XML in the store, structures here.
 * Not here: what the configurations mean (cors.c, lifecycle.c, config.c).
 * Threads:  no state.
 * Memory:   decoded configurations live in the arena.
 * Errors:   those of the store; "InternalError" when stored bytes cannot be read. */
#pragma once
#include "predastore/s3.h"

/* How one configuration is kept: the model's shape and the root element of its XML. */
struct conf_form {
    enum obucket_conf which;
    const char *shape, *root;
};
extern const struct conf_form conf_tags, conf_cors, conf_lifecycle, conf_encryption;

/* 'v' is a structure of the form's shape. Blocks. */
MUST_CHECK int conf_put(struct s3_call *c, const struct conf_form *f, const void *v,
                        struct err *err);
/* Fine when there is none. Blocks. */
MUST_CHECK int conf_remove(struct s3_call *c, const struct conf_form *f, struct err *err);
bool conf_is_set(const struct obucket *b, const struct conf_form *f);
/* 'out': a zeroed structure of the form's shape. Call it when conf_is_set(). Does not block. */
MUST_CHECK int conf_get(struct arena *a, const struct obucket *b, const struct conf_form *f,
                        void *out, struct err *err);
