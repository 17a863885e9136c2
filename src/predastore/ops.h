/* ops.h — which handler does which operation: X(operation, handler, largest XML body).
 * Not here: operations whose bodies are streams (front.c knows them).
 * Threads:  const.
 * Memory:   static.
 * Errors:   the start compares this with the states of aws/api/s3.ops. */
#pragma once
#include "predastore/s3.h"

/* bucket.c, list.c, multipart.c, config.c, tagging.c, ... */
#define S3_OPS_API(X)

/* object.c, copy.c, attributes.c */
#define S3_OPS_OBJECT(X)

#define S3_OP_PROTO(op, fn, max) \
    int fn(struct s3_call *c, const void *in, void *out, struct err *err);
S3_OPS_API(S3_OP_PROTO)
S3_OPS_OBJECT(S3_OP_PROTO)
#undef S3_OP_PROTO
