/* policy.h — may this principal do this action on these resources? An explicit deny wins over
 * everything, an allow is needed for each resource, the default is deny.
 * Not here: where statements are kept (a source gives them), conditions and trust policies
 *           (they come with IAM policies).
 * Threads:  no state.
 * Memory:   statements are borrowed during the call.
 * Errors:   "UnauthorizedOperation" (EC2) or "AccessDenied" (others), both HTTP 403; those of
 *           the source. */
#pragma once
#include "aws/call.h"

struct aws_statement {
    bool is_deny;
    const struct str *actions; /* patterns: "ec2:Describe*"; case does not matter */
    size_t n_actions;
    const struct str *resources; /* patterns over ARNs */
    size_t n_resources;
};

struct aws_ctx_kv { /* condition keys of the request: "aws:SourceIp", "ec2:Region" */
    struct str key, value;
};

struct aws_authz {
    const struct aws_principal *who;
    struct str action;      /* "ec2:RunInstances" */
    const struct str *arns; /* at least one; "*" when the operation names no resource */
    size_t n_arns;
    const struct aws_ctx_kv *ctx;
    size_t n_ctx;
};

/* Gives the statements that apply to the principal. */
typedef int (*aws_policy_source_fn)(void *ctx, const struct aws_principal *who, struct arena *a,
                                    const struct aws_statement **ret, size_t *ret_n,
                                    struct err *err);

enum aws_verdict { AWS_ALLOWED, AWS_DENIED_EXPLICITLY, AWS_DENIED_BY_DEFAULT };
/* *ret_arn (may be NULL): the first resource that is not allowed. */
enum aws_verdict aws_evaluate(const struct aws_authz *z, const struct aws_statement *st,
                              size_t n_st, struct str *ret_arn);

/* The source of an installation without policies: root and the user "admin" have
 * AdministratorAccess, nobody else anything. */
int aws_policy_builtin(void *ctx, const struct aws_principal *who, struct arena *a,
                       const struct aws_statement **ret, size_t *ret_n, struct err *err);

MUST_CHECK int aws_authorize(const struct aws_authz *z, const struct aws_service *s,
                             aws_policy_source_fn source, void *ctx, struct arena *a,
                             struct err *err);
/* The ARNs that call's operation touches with this input, from the templates of the .ops file.
 */
void aws_call_arns(const struct aws_call *call, const void *input, const struct str **ret,
                   size_t *ret_n);
