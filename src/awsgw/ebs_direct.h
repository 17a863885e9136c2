/* ebs_direct.h — what the EBS direct APIs need beside EC2's snapshots: tokens of blocks and
 *           pages, errors
 * in their words, the block service.
 * Not here: the operations (ops_ebs_read.c, ops_ebs_write.c), bytes (viperblock/).
 * Threads:  no state.
 * Memory:   in the arena of the call.
 * Errors:   "ValidationException" and friends; the hint is the Reason (aws/errors.h). */
#pragma once
#include "aws/api/ebs.h"
#include "awsgw/ebs.h"
#include "codec/json.h"

#define EBS_BLOCK         524288u
#define EBS_MAX_BLOCKS    10000u /* of one page */
#define EBS_TOKEN_LIFE_NS (UINT64_C(7) * 86400 * NS_PER_S)
#define EBS_PAGE_LIFE_NS  (UINT64_C(3600) * NS_PER_S)

/* Opaque: when it ends, and a MAC of that, the caller, what it is for. 'what' is "block" or the
 * name of an operation. */
struct ebs_token_of {
    const char *what;
    struct str snapshot, other; /* other: ListChangedBlocks' first, or "" */
    uint64_t block;             /* the block; the page's first */
};
struct str ebs_token_make(const struct aws_call *call, const struct ebs_token_of *of,
                          uint64_t life_ns);
/* Is it that, and not over? A page's 'block' is in the token: *ret_block. */
bool ebs_token_check(const struct aws_call *call, const struct ebs_token_of *of,
                     struct str token);
bool ebs_page_check(const struct aws_call *call, struct ebs_token_of *of, struct str token);

/* "ValidationException" with a Reason. */
int ebs_invalid(struct err *err, const char *reason, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* A visible snapshot, or NULL: malformed, unknown. */
const struct view_entry *ebs_find(struct aws_call *call, struct str id, struct err *err);
/* The same, and it can be read. */
const struct view_entry *ebs_find_readable(struct aws_call *call, struct str id,
                                           struct err *err);

/* Asks the block service; its refusals in our words. '*ret' (may be NULL) is freed by the
 * caller. */
MUST_CHECK int ebs_ask(struct aws_call *call, const char *method, struct str args,
                       const int *fd, struct rpc_reply *ret, struct err *err);
