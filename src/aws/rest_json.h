/* rest_json.h — the rest-json protocol: a request to its operation and input structure, an output
 * structure to an answer.
 * Not here: signatures, errors (errors.h), authorisation (dispatch.c). A payload that streams is a
 *           blob of the structure here: it is small (AWS_MAX_BODY).
 * Threads:  no state.
 * Memory:   everything lives in the arena but the answer's body; a payload borrows the request's.
 * Errors:   "SerializationException" for JSON that is none or of other types than the model's;
 *           "ValidationException" for labels, query and headers. What is required, and limits:
 *           validate.h. Members that the model does not have are passed over, as AWS does. */
#pragma once
#include "aws/codec_in.h"
#include "aws/http.h"
#include "base/buf.h"

#define REST_JSON_LABELS  4u
#define REST_JSON_HEADERS 8u

struct rest_json_route {
    int op; /* -1: no operation has this method and path */
    struct {
        struct str name, value; /* decoded */
    } labels[REST_JSON_LABELS];
    size_t n_labels;
};
MUST_CHECK int rest_json_find(const struct aws_service *s, const struct aws_http *rq,
                              struct arena *a, struct rest_json_route *ret, struct err *err);
/* Its body is a payload of bytes: clients need not sign it. */
bool rest_json_takes_bytes(const struct aws_service *s, int op);
/* 'out': a zeroed structure of the operation's input. */
MUST_CHECK int rest_json_decode(const struct aws_service *s, const struct rest_json_route *t,
                                const struct aws_http *rq, struct arena *a, void *out,
                                struct err *err);

struct rest_json_answer {
    int status;
    bool is_bytes; /* the body is a payload, not JSON */
    struct http_header headers[REST_JSON_HEADERS];
    size_t n;
};
MUST_CHECK int rest_json_encode(const struct aws_service *s, int op, const void *output,
                                struct arena *a, struct rest_json_answer *ret, struct buf *body,
                                struct err *err);
