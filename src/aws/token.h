/* token.h — ClientToken: the same request sent twice, or twice at once, makes one thing.
 * The claim is a key of the store, written in the transaction that makes the thing. Of two
 * requests at once one loses its transaction (-EAGAIN), is run again by the dispatcher, and
 * finds the claim of the other. A handler
 *   1. calls aws_token_begin();
 *   2. when it is a replay: lets its view reach tok.mod_rev (view_wait(): the claim was read from
 *      the store, which is ahead of any view) and answers with what tok.result names;
 *   3. else: expects tok.mod_rev of tok.key, puts aws_token_value() there, and commits.
 * Not here: what is made. Old claims are swept by the gateway (aws_token_is_old()).
 * Threads:  no state.
 * Memory:   in the call's arena.
 * Errors:   "IdempotentParameterMismatch"; "InvalidParameterValue" for a token that is too
 *           long; those of the store. */
#pragma once
#include "aws/call.h"
#include "kv/kv.h"

#define AWS_TOKEN_MAX_LEN 64u
#define AWS_TOKEN_LIFE_NS (UINT64_C(86400) * 1000000000)

struct aws_token {
    struct str key;   /* STR_NONE: no ClientToken was given, nothing to claim */
    uint64_t mod_rev; /* expect this revision of the key (0 = absent; else an old claim is
                         replaced) */
    bool is_replay;
    struct str result; /* of the first request, with is_replay */
    struct str hash;   /* of the parameters, hex */
};

/* 'input' is the decoded input of call->op: its parameters, but for the token and DryRun, must
 * be those of the first request. */
MUST_CHECK int aws_token_begin(const struct aws_call *call, struct kv *kv,
                               struct str client_token, const void *input,
                               struct aws_token *ret, struct err *err);
/* The value to store under the key. */
struct str aws_token_value(const struct aws_call *call, const struct aws_token *tok,
                           struct str result);
/* True when a stored claim ("claim/token/...") may be forgotten. */
bool aws_token_is_old(struct str value, uint64_t now_ns);
