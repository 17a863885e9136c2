/* codec_in.h — parameters of the ec2 and query protocols into the generated structures, and the
 * checks of the model.
 * Not here: HTTP, Action and Version (dispatch.c).
 * Limits:   AWS_MAX_PARAMS parameters, list index <= 1000 and at most 64 beyond the present
 *           end, depth 16, AWS_MAX_DECODED bytes.
 * Threads:  no state.
 * Memory:   everything in the arena. A parameter that comes twice: the last wins. Gaps in lists
 *           are closed.
 * Errors:   EC2: "UnknownParameter", "MissingParameter", "InvalidParameterValue",
 *           "MalformedQueryString", "RequestTooLarge"; query: "ValidationError" where EC2 says
 *           Missing or Invalid. */
#pragma once
#include "aws/shape.h"
#include "aws/table.h"
#include "base/err.h"

#define AWS_MAX_PARAMS     10000u
#define AWS_MAX_LIST       1000u
#define AWS_MAX_LIST_AHEAD 64u
#define AWS_MAX_DEPTH      16u
#define AWS_MAX_DECODED    (8u << 20) /* bytes of the arena */

struct aws_param {
    struct str name, value; /* decoded */
};
struct aws_params {
    struct aws_param *v;
    size_t n, cap;
};

/* Adds the fields of a query string or a form body. */
MUST_CHECK int aws_params_parse(struct arena *a, struct aws_params *ps, struct str form,
                                struct err *err);
/* The last value of 'name', or STR_NONE. */
struct str aws_params_get(const struct aws_params *ps, const char *name);

/* Fills 'out', a zeroed structure of 'shape', and checks it. Parameters of the protocol itself
 * (Action, Version, X-Amz-...) are passed over; any other that the shape does not have is an
 * error. */
MUST_CHECK int aws_decode(const struct aws_service *s, uint16_t shape,
                          const struct aws_params *ps, struct arena *a, void *out,
                          struct err *err);
/* The same without the checks of required members, enums and limits: for tests of the codec.
 * Lists are compacted. */
MUST_CHECK int aws_decode_unchecked(const struct aws_service *s, uint16_t shape,
                                    const struct aws_params *ps, struct arena *a, void *out,
                                    struct err *err);
