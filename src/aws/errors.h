/* errors.h — the names of errors and what they are on the wire: HTTP status, and the body of
 * each protocol.
 * Not here: when they happen.
 * Threads:  no state.
 * Memory:   bodies are appended to a buffer of the caller.
 * Errors:   none: a name that is not an error code of AWS (a library's "OpenFailed") is shown
 *           as InternalError, without its text. */
#pragma once
#include "aws/table.h"
#include "base/buf.h"
#include "base/err.h"

/* 400..599; 0 when 'code' is not an error code of AWS. 's' (may be NULL) adds the service's
 * modelled errors. */
int aws_error_status(const struct aws_service *s, const char *code);

struct aws_error_out { /* what the client sees */
    int status;
    const char *code;
    const char *msg;
    const char *reason; /* REST-JSON: the member Reason, or NULL */
};
/* Decides what is shown of 'err'. */
struct aws_error_out aws_error_show(const struct aws_service *s, const struct err *err);

/* REST-JSON: {"Message": ..., "Reason": ...}: the reason is the hint of the error.
 * EC2: <Response><Errors><Error><Code/><Message/></Error></Errors><RequestID/></Response>
 * query: <ErrorResponse
 * xmlns><Error><Type/><Code/><Message/></Error><RequestId/></ErrorResponse>; 's' NULL: the
 * query form. */
void aws_error_body(const struct aws_service *s, const struct aws_error_out *e,
                    struct str request_id, struct buf *out);
