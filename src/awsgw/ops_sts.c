/* STS: GetCallerIdentity. */
#include "awsgw/ops.h"

int sts_get_caller_identity(struct aws_call *call, const void *input, void *output,
                            struct err *err)
{
    struct sts_get_caller_identity_response *out = output;
    out->account = call->account;
    out->arn = call->who.arn;
    out->user_id = call->who.user_id;
    return 0;
}
