#include "aws/call.h"

#include "aws/http.h"
#include <errno.h>

int aws_dry_run(const struct aws_call *call, struct err *err)
{
    if (!call->is_dry_run) {
        return 0;
    }
    return fail(err, -ECANCELED, "DryRunOperation",
                "Request would have succeeded, but DryRun flag is set.");
}

struct str aws_http_header(const struct aws_http *rq, const char *name)
{
    for (size_t i = 0; i < rq->n_headers; i++) {
        if (str_ieqc(rq->headers[i].name, name)) {
            return rq->headers[i].value.p ? rq->headers[i].value : STR("");
        }
    }
    return STR_NONE;
}

size_t aws_http_header_count(const struct aws_http *rq, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < rq->n_headers; i++) {
        n += str_ieqc(rq->headers[i].name, name) ? 1 : 0;
    }
    return n;
}
