/* rest.h — the rest-xml protocol of S3: a request to its operation, its input structure, an
 * output structure to an answer, an error to its body.
 * Not here: signatures (sigv4.h, s3_*.h), streaming bodies, handlers. Streaming payload members
 *           (PutObject's Body) are left unset and are not written.
 * Threads:  no state.
 * Memory:   everything lives in the arena but the answer's body: rest_answer_done().
 * Errors:   S3's codes by name; what its bodies carry beside the message (ArgumentName, ...)
 *           goes into target->extra. After a failed rest_route() the target still holds what
 *           was found out (bucket, key, resource, allow). */
#pragma once
#include "aws/api/s3.h"
#include "aws/codec_in.h"
#include "aws/http.h"
#include "aws/s3_extra.h"
#include "base/buf.h"
#include "base/err.h"

#define REST_MAX_KEY     1024u
#define REST_MAX_XML     (8u << 20)  /* 10,000 parts with their checksums need 4 MiB */
#define REST_MAX_DECODED (12u << 20) /* of the arena: give it that and what handlers take */
#define REST_MAX_DEPTH   10u
#define REST_MAX_ITEMS   10000u /* of a list in XML; handlers have smaller limits */
#define REST_MAX_HEADERS 256u
#define REST_MAX_ANSWER  (16u << 20) /* 1,000 versions of keys of 1,024 escaped bytes */

/* Pseudo-operations: no row of the tables. */
enum {
    REST_OP_NONE = -1,
    REST_OP_POST_FORM =
        S3_OP_N,      /* a browser's upload: POST of multipart/form-data to a bucket */
    REST_OP_PREFLIGHT /* OPTIONS */
};

/* Adds an element unless there is one of that name: who knew first was nearest to the cause. */
void rest_extra_add(struct s3_extra *x, const char *name, struct str value);

struct rest_opts {
    /* Names under which the service is known, without port. "films.<domain>" means the bucket
     * "films"; every other host is path style. Any order: the longest that fits counts. */
    const struct str *domains;
    size_t n_domains;
};

struct rest_target {
    int op;                  /* enum s3_op or REST_OP_... */
    struct str bucket, key;  /* decoded; STR_NONE when the request names none */
    struct str host;         /* lower case, without port */
    struct str resource;     /* as error bodies show it: "/key" or "/bucket/key", as sent */
    struct aws_params query; /* decoded, in order */
    const char *sub;         /* the sub-resource: "uploads", "" = none */
    const char *allow;       /* of MethodNotAllowed: "GET, PUT", else NULL */
    bool is_vhost, is_head;
    struct s3_extra extra; /* more elements of an error body */
};

/* "InvalidURI", "KeyTooLongError", "MethodNotAllowed", "InvalidArgument", "InvalidRequest".
 * Operations whose state is 'no' are found as others: see rest_is_there(). */
MUST_CHECK int rest_route(const struct rest_opts *o, const struct aws_http *rq, struct arena *a,
                          struct rest_target *ret, struct err *err);
/* True when the operation is implemented (or a pseudo-operation). */
bool rest_is_there(int op);
/* "PutObject"; "PostObject" and "Preflight" for the pseudo-operations. */
const char *rest_op_name(int op);
/* The operation reads its body as a stream: rest_decode() wants no rq->body. */
bool rest_op_streams(int op);
/* The request must carry Content-MD5 or a checksum. */
bool rest_op_wants_checksum(int op);

/* *ret_input: the zeroed and filled input structure of the operation (s3.ops[op].in). An XML
 * body is expected in rq->body, whole and without transfer framing. 's' is &aws_service_s3. */
MUST_CHECK int rest_decode(const struct aws_service *s, int op, const struct aws_http *rq,
                           struct rest_target *t, struct arena *a, void **ret_input,
                           struct err *err);
/* An XML body alone, into a structure of 'shape' whose root element is 'root'. */
MUST_CHECK int rest_decode_xml(const struct aws_service *s, uint16_t shape, const char *root,
                               struct str body, struct arena *a, void *out, struct err *err);

struct rest_answer {
    int status;
    struct arena *arena;
    struct http_header *headers; /* in the arena; at most REST_MAX_HEADERS */
    size_t n;
    struct buf body;
    bool is_stream; /* the body comes from elsewhere: Content-Length is among the headers or
                       the caller's to say */
};
/* A fresh answer, 200, with x-amz-request-id and x-amz-id-2. */
void rest_answer_init(struct rest_answer *ans, struct arena *a, struct str request_id,
                      struct str host_id);
void rest_answer_done(struct rest_answer *ans); /* AUTO(rest_answer_done) struct rest_answer */
/* Adds one; replaces one of that name. 'value' borrowed (arena). Values with control characters
 * are left out; false then and when there is no room. */
bool rest_header(struct rest_answer *ans, const char *name, struct str value);

/* Fills status, headers and body from 'output' (NULL when the operation has none). Content-Type
 * application/xml comes with every body. A ContentLength member becomes a header and
 * 'is_stream' is set for streaming payloads. */
MUST_CHECK int rest_encode(const struct aws_service *s, int op, const void *output,
                           struct arena *a, struct rest_answer *ret, struct err *err);
/* The XML of a structure, with this root element. */
MUST_CHECK int rest_encode_xml(const struct aws_service *s, uint16_t shape, const char *root,
                               const void *v, struct buf *out, struct err *err);

/* Turns 'err' into an answer: status, body (none for HEAD and 304), Allow. 't' may be NULL when
 * nothing was routed. 'ret' is initialised; what was in it is dropped, so headers that errors
 * carry too (CORS, x-amz-delete-marker) are added afterwards. */
void rest_error(const struct err *err, const struct rest_target *t, struct str request_id,
                struct str host_id, struct rest_answer *ret);
/* HTTP status of an S3 error code; 0 when there is no such code. */
int rest_status(const char *code);
/* The text AWS says with this code, or NULL. */
const char *rest_message(const char *code);
/* The code to show for 'err': errors that are no S3 codes are InternalError. */
const char *rest_code(const struct err *err);

/* What the caller must be allowed to do: each action on its resource. */
struct rest_need {
    struct str action; /* "s3:GetObjectVersion" */
    struct str arn;    /* "arn:aws:s3:::films/a.mkv" */
};
/* From the .ops file, the input (NULL when it is not decoded yet), and what the operation touches
 * beside its target (the source of a copy, tags that a PUT sets). None for PREFLIGHT; POST forms
 * and DeleteObjects name their keys in the body: their handlers ask rest_need_key(). */
MUST_CHECK int rest_needs(const struct aws_service *s, int op, struct rest_target *t,
                          const void *input, struct arena *a, const struct rest_need **ret,
                          size_t *ret_n, struct err *err);
/* "s3:<action>" on one key of a bucket. arn is STR_NONE when the arena is full: refuse. */
struct rest_need rest_need_key(struct arena *a, const char *action, struct str bucket,
                               struct str key);
