/* s3.h — one S3 request as its handlers see it, and the table from operations to handlers.
 * Not here: how it got there and how it is answered (front.h), objects' bodies (body.h, get.c).
 * Threads:  a handler runs on one thread of the pool, from start to end, and may block. The
 *           service is constant after its start.
 * Memory:   everything a handler makes lives in c->arena (big enough for what the model allows;
 *           what a client's numbers decide is checked).
 * Errors:   negative errno and *err with S3's code as its name (aws/rest.h says the status and,
 *           when the message is "", AWS's own text); more elements of the error body by
 *           rest_extra_add(&c->t.extra, ...). Errors of ostore go up unchanged. */
#pragma once
#include "aws/api/s3.h"
#include "aws/call.h"
#include "aws/rest.h"
#include "aws/s3_auth.h"
#include "aws/s3_sum.h"
#include "ostore/ostore.h"

struct config;
struct identity;
struct keys;
struct pool;

/* Owner of the hidden buckets of services; no account can have this id. */
#define S3_SYSTEM_ACCOUNT "000000000000"
#define S3_ARENA_MAX      (256u << 20)
#define S3_OBJECT_MAX     (UINT64_C(5) << 30)  /* of one PUT, of one part, of one copy */
#define S3_UPLOAD_MAX     (UINT64_C(50) << 40) /* of a multipart object */

struct s3 { /* the service */
    const struct config *cfg;
    struct ostore *store;
    struct identity *identity;
    struct keys *keys;
    struct rules *rules; /* of buckets, parsed (rules.h) */
    struct pool *pool;   /* handlers */
    struct pool *bulk;   /* work that moves many bytes: copies */
    struct str region, partition;
    struct str host_id; /* x-amz-id-2 */
};

struct s3_call {
    struct s3 *s3;
    struct ostore *store; /* = s3->store */
    struct arena *arena;
    struct aws_http rq;       /* rq.body: of XML operations, unframed, checked */
    struct rest_target t;     /* op, bucket, key, query, extra */
    struct aws_principal who; /* authenticated and allowed to do this */
    bool is_system;           /* another service of this node, on the unix socket */
    struct str request_id;
    uint64_t now_ns; /* wall clock when the head arrived */
    /* The target's bucket at that moment (it exists and is the caller's), NULL for operations
     * without one and for CreateBucket. */
    const struct obucket *bucket;
    /* Becomes the answer. rest_header(&c->answer, ...) adds what no member of the output says. */
    struct rest_answer answer;
    int status;      /* when not 0: instead of the model's */
    bool is_encoded; /* the handler wrote the body of the answer itself */
};

/* 'input' is struct s3_<op>_request; 'output' the zeroed output structure, NULL when the
 * operation has none. */
typedef int (*s3_fn)(struct s3_call *c, const void *input, void *output, struct err *err);

/* Operations that run on the pool: X(operation, handler, largest XML body; 0: none). The list of
 * a file stands in ops.h. */
struct s3_op_row {
    s3_fn fn;
    uint32_t body_max;
};

/* OPTIONS: c->who is not set. Fills c->answer. (cors.c) */
int s3_preflight(struct s3_call *c, struct err *err);
/* Adds Access-Control-... to an answer of whatever kind when the bucket's rules and the
 * request's Origin say so. Does not block. (cors.c) */
void s3_cors_headers(const struct s3_call *c, struct rest_answer *ans);
/* x-amz-expiration of a version, STR_NONE when no rule of the bucket matches. Does not block.
 * (lifecycle.c) */
struct str s3_expiration(const struct s3_call *c, const struct oversion *v);

/* ---- for handlers (call.c) ---- */

/* A change of this call's bucket and key: conditions none, account and principal set. */
void s3_change_init(const struct s3_call *c, struct ochange *ch, enum ochange_kind kind);
/* ?versionId=: sets *ret_is when the text is set. "InvalidArgument" as AWS says it. */
MUST_CHECK int s3_version(struct s3_call *c, struct str text, uint8_t ret[16], bool *ret_is,
                          struct err *err);
struct str s3_version_text(struct arena *a, const uint8_t version[16]);
/* The id that an answer to a write of an object shows: none without versions, and none of the
 * null version that a bucket makes whose versioning is suspended. */
struct str s3_made_version(struct arena *a, const struct ochange *ch);
/* 32 hex digits; anything else is "NoSuchUpload". */
MUST_CHECK int s3_upload_id(struct str text, uint8_t ret[16], struct err *err);
/* Of a part that is to be put: 1 to 10,000; the error names what was given. */
MUST_CHECK int s3_upload_part_number(struct s3_call *c, struct opt_i64 number, unsigned *ret,
                                     struct err *err);
struct str s3_upload_text(struct arena *a, const uint8_t upload[16]);
/* "\"9b2c...\"" */
struct str s3_quoted(struct arena *a, struct str etag);
/* Canonical user id of an account: 64 hex digits; and with a name. */
struct str s3_owner_id(struct arena *a, struct str account);
struct s3_owner *s3_owner_of(struct arena *a, struct str account);
/* "STANDARD" when the record names none. */
struct str s3_class(const struct orec *r);
/* aws/s3_extra.h to aws/rest.h: what the pure parts say beside an error. */
void s3_take_extra(struct s3_call *c, const struct s3_extra *x);

/* enum orec_sum_alg and enum s3_sum_alg are the same numbers. Base64, "-N" when composite. */
struct str s3_osum_text(struct arena *a, const struct orec_sum *sum, size_t n_parts);
struct str s3_osum_type(const struct orec_sum *sum); /* "COMPOSITE", "FULL_OBJECT", STR_NONE */
/* Into the arena. */
struct orec_sum s3_osum(struct arena *a, const struct s3_sum_value *v, bool is_composite);

/* ---- what a request says about a new object beside its body (meta.c); from c->rq.headers ---- */

/* Refuses what is not there: ACLs but "private", grants, SSE-C, SSE-KMS, object lock. */
MUST_CHECK int s3_refuse_features(struct s3_call *c, struct err *err);
/* rec->system and rec->meta. */
MUST_CHECK int s3_take_meta(struct s3_call *c, struct orec *rec, struct err *err);
/* rec->tags from x-amz-tagging. */
MUST_CHECK int s3_take_tags(struct s3_call *c, struct orec *rec, struct err *err);
/* rec->tags from <Tagging>: the field "tagging" of forms. (tagging.c) */
MUST_CHECK int s3_take_tags_xml(struct s3_call *c, struct str xml, struct orec *rec,
                                struct err *err);
/* rec->storage_class from x-amz-storage-class. */
MUST_CHECK int s3_take_class(struct s3_call *c, struct orec *rec, struct err *err);
/* All of the above, for PutObject, CreateMultipartUpload and forms. */
MUST_CHECK int s3_take_all(struct s3_call *c, struct orec *rec, struct err *err);
/* A pair by name (lower case), or STR_NONE. */
struct str s3_pair(const struct orec_pairs *l, const char *name);

/* Fills the five checksum members of any output structure that has them. */
#define S3_SUM_OUT(out, a, sum, n_parts)                                    \
    do {                                                                    \
        struct str sum_text_ = s3_osum_text((a), (sum), (n_parts));         \
        switch ((sum)->alg) {                                               \
        case OSUM_CRC32: (out)->checksum_crc32 = sum_text_; break;          \
        case OSUM_CRC32C: (out)->checksum_crc32_c = sum_text_; break;       \
        case OSUM_CRC64NVME: (out)->checksum_crc64_nvme = sum_text_; break; \
        case OSUM_SHA1: (out)->checksum_sha1 = sum_text_; break;            \
        case OSUM_SHA256: (out)->checksum_sha256 = sum_text_; break;        \
        default: break;                                                     \
        }                                                                   \
    } while (0)
