/* ops.h — which handler does which operation: X(operation, handler, largest XML body).
 * Not here: operations whose bodies are streams (front.c knows them).
 * Threads:  const.
 * Memory:   static.
 * Errors:   the start compares this with the states of aws/api/s3.ops. */
#pragma once
#include "predastore/s3.h"

#define S3_BODY_SMALL  (64u << 10)
#define S3_BODY_CONF   (512u << 10)
#define S3_BODY_DELETE (4u << 20) /* 1,000 keys of 1,024 bytes, escaped */

/* bucket.c, list.c, multipart.c, delete.c, tagging.c, config.c, cors.c, lifecycle.c */
#define S3_OPS_API(X)                                                                  \
    X(S3_OP_LIST_BUCKETS, op_list_buckets, 0)                                          \
    X(S3_OP_CREATE_BUCKET, op_create_bucket, S3_BODY_SMALL)                            \
    X(S3_OP_HEAD_BUCKET, op_head_bucket, 0)                                            \
    X(S3_OP_DELETE_BUCKET, op_delete_bucket, 0)                                        \
    X(S3_OP_GET_BUCKET_LOCATION, op_get_bucket_location, 0)                            \
    X(S3_OP_GET_BUCKET_VERSIONING, op_get_bucket_versioning, 0)                        \
    X(S3_OP_PUT_BUCKET_VERSIONING, op_put_bucket_versioning, S3_BODY_SMALL)            \
    X(S3_OP_GET_BUCKET_TAGGING, op_get_bucket_tagging, 0)                              \
    X(S3_OP_PUT_BUCKET_TAGGING, op_put_bucket_tagging, S3_BODY_CONF)                   \
    X(S3_OP_DELETE_BUCKET_TAGGING, op_delete_bucket_tagging, 0)                        \
    X(S3_OP_GET_BUCKET_CORS, op_get_bucket_cors, 0)                                    \
    X(S3_OP_PUT_BUCKET_CORS, op_put_bucket_cors, S3_BODY_SMALL)                        \
    X(S3_OP_DELETE_BUCKET_CORS, op_delete_bucket_cors, 0)                              \
    X(S3_OP_GET_BUCKET_LIFECYCLE_CONFIGURATION, op_get_bucket_lifecycle, 0)            \
    X(S3_OP_PUT_BUCKET_LIFECYCLE_CONFIGURATION, op_put_bucket_lifecycle, S3_BODY_CONF) \
    X(S3_OP_DELETE_BUCKET_LIFECYCLE, op_delete_bucket_lifecycle, 0)                    \
    X(S3_OP_GET_BUCKET_ENCRYPTION, op_get_bucket_encryption, 0)                        \
    X(S3_OP_PUT_BUCKET_ENCRYPTION, op_put_bucket_encryption, S3_BODY_SMALL)            \
    X(S3_OP_DELETE_BUCKET_ENCRYPTION, op_delete_bucket_encryption, 0)                  \
    X(S3_OP_GET_BUCKET_REQUEST_PAYMENT, op_get_bucket_request_payment, 0)              \
    X(S3_OP_PUT_BUCKET_REQUEST_PAYMENT, op_put_bucket_request_payment, S3_BODY_SMALL)  \
    X(S3_OP_GET_BUCKET_ACCELERATE_CONFIGURATION, op_get_bucket_accelerate, 0)          \
    X(S3_OP_LIST_OBJECTS, op_list_objects, 0)                                          \
    X(S3_OP_LIST_OBJECTS_V2, op_list_objects_v2, 0)                                    \
    X(S3_OP_LIST_OBJECT_VERSIONS, op_list_object_versions, 0)                          \
    X(S3_OP_LIST_MULTIPART_UPLOADS, op_list_multipart_uploads, 0)                      \
    X(S3_OP_LIST_PARTS, op_list_parts, 0)                                              \
    X(S3_OP_CREATE_MULTIPART_UPLOAD, op_create_multipart_upload, 0)                    \
    X(S3_OP_COMPLETE_MULTIPART_UPLOAD, op_complete_multipart_upload, REST_MAX_XML)     \
    X(S3_OP_ABORT_MULTIPART_UPLOAD, op_abort_multipart_upload, 0)                      \
    X(S3_OP_DELETE_OBJECTS, op_delete_objects, S3_BODY_DELETE)                         \
    X(S3_OP_GET_OBJECT_TAGGING, op_get_object_tagging, 0)                              \
    X(S3_OP_PUT_OBJECT_TAGGING, op_put_object_tagging, S3_BODY_SMALL)                  \
    X(S3_OP_DELETE_OBJECT_TAGGING, op_delete_object_tagging, 0)

/* object.c, copy.c */
#define S3_OPS_OBJECT(X)                              \
    X(S3_OP_COPY_OBJECT, op_copy_object, 0)           \
    X(S3_OP_UPLOAD_PART_COPY, op_upload_part_copy, 0) \
    X(S3_OP_RENAME_OBJECT, op_rename_object, 0)       \
    X(S3_OP_GET_OBJECT_ATTRIBUTES, op_get_object_attributes, 0)

#define S3_OP_PROTO(op, fn, max) \
    int fn(struct s3_call *c, const void *in, void *out, struct err *err);
S3_OPS_API(S3_OP_PROTO)
S3_OPS_OBJECT(S3_OP_PROTO)
#undef S3_OP_PROTO
