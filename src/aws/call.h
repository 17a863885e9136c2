/* call.h — one authenticated, authorised API call, as handlers see it.
 * Not here: how it got there (dispatch.h), its input and output (aws/api/<service>.h).
 * Threads:  a call belongs to one thread.
 * Memory:   every slice lives in 'arena', as must everything a handler puts into its output.
 * Errors:   handlers return negative errno and set *err with an AWS error code as its name
 *           (errors.h); -EAGAIN makes the dispatcher run the handler again from its start (a
 *           lost transaction). */
#pragma once
#include "aws/shape.h"
#include "aws/table.h"
#include "base/err.h"

struct aws_principal {
    struct str account;   /* 12 digits */
    struct str arn;       /* arn:aws:iam::<account>:root or :user/<path><name> */
    struct str user_id;   /* "AIDA...", the account for root */
    struct str user_name; /* "" for root */
    bool is_root;
};

struct aws_call {
    struct arena *arena;
    void *app; /* the dispatcher's 'app' */
    struct aws_principal who;
    struct str account; /* = who.account */
    struct str access_key;
    struct str request_id; /* a UUID */
    struct str region, partition;
    struct str source_ip, user_agent;
    bool is_tls;
    uint64_t now_ns; /* wall clock at the start of the request */
    const struct aws_service *service;
    int op; /* index into service->ops: enum <service>_op */
    struct str op_name;
    bool is_dry_run;     /* DryRun of the input */
    struct str page_key; /* secret for paging tokens; page.h uses it */
};

typedef int (*aws_handler_fn)(struct aws_call *call, const void *input, void *output,
                              struct err *err);

/* A handler that changes something calls this after it has checked everything and before it
 * changes anything: 0 = go on, negative = "DryRunOperation" (HTTP 412). Handlers that only read
 * need not: the dispatcher answers a dry run that succeeded. */
MUST_CHECK int aws_dry_run(const struct aws_call *call, struct err *err);
