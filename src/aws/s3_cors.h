/* s3_cors.h — a bucket's CORS configuration: is it valid, and what does it say to a request.
 * Not here: XML, where it is kept.
 * Threads:  no state.
 * Memory:   plain structs that borrow; results live in the arena.
 * Errors:   "MalformedXML", "InvalidRequest", "AccessForbidden" (403), "BadRequest". */
#pragma once
#include "aws/http.h"
#include "aws/s3_extra.h"
#include "aws/shape.h"
#include "base/err.h"

enum { S3_CORS_RULES_MAX = 100, S3_CORS_ID_MAX = 255 };

struct s3_cors_entry {
    struct str id; /* STR_NONE when absent */
    struct aws_str_list methods, origins, headers, expose;
    struct opt_i64 max_age_s;
};
struct s3_cors {
    const struct s3_cors_entry *rules;
    size_t n_rules;
};
MUST_CHECK int s3_cors_check(const struct s3_cors *c, struct err *err);

/* Headers to add to an answer: *ret_n of them, 0 when no rule fits (or there is no Origin). */
MUST_CHECK int s3_cors_simple(struct arena *a, const struct s3_cors *c, struct str origin,
                              struct str method, const struct http_header **ret, size_t *ret_n,
                              struct err *err);
/* OPTIONS. 'c' NULL: the bucket has no configuration (403 "CORS is not enabled for this
 * bucket."). */
MUST_CHECK int s3_cors_preflight(struct arena *a, const struct s3_cors *c, struct str origin,
                                 struct str method, struct str request_headers,
                                 const struct http_header **ret, size_t *ret_n,
                                 struct s3_extra *extra, struct err *err);
