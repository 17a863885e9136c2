/* snap_s3_int.h — one request to the object store, between snap_s3.c (the wire) and
 *           snap_s3_op.c (what
 * is asked).
 * Not here: anybody else. Threads, memory, errors: snap_s3.h. */
#pragma once
#include "snap/snap_s3.h"

struct snap_s3_req {
    const char *method, *key; /* "" = the bucket */
    const char *query;        /* without '?'; may be NULL */
    const char *headers;      /* whole lines; may be NULL */
    struct str body;          /* STR_NONE: none */
    uint32_t crc;             /* of the body */
    void *p;                  /* the answer goes here, or into 'out' (cleared by the caller) */
    size_t cap;
    struct buf *out;
};
struct snap_s3_got {
    size_t n;
    int64_t content_length;
    bool has_crc;
    uint32_t crc;
};
MUST_CHECK int snap_s3_call(struct snap_s3 *c, const struct snap_s3_req *rq,
                            struct snap_s3_got *got, struct err *err);
