/* page.h — MaxResults and NextToken: pages that stay right when things are added or removed
 * between two calls. A token is opaque: the last key that was shown, with a MAC over it, the
 * account and the operation.
 * Not here: the walk itself: objects come in ascending order of a key; show those after
 *           'page.after', at most 'page.max'.
 * Threads:  no state.
 * Memory:   in the call's arena.
 * Errors:   "InvalidParameterValue" (range), "InvalidNextToken", "InvalidParameterCombination"
 *           (ids with MaxResults). */
#pragma once
#include "aws/call.h"

struct aws_page {
    size_t max;       /* show at most so many; SIZE_MAX = all */
    struct str after; /* show keys greater than this; STR_NONE = from the start */
};

struct aws_page_spec {
    int64_t min, max;      /* of MaxResults: 5 and 1000 in most operations */
    int64_t dflt;          /* when MaxResults is absent; 0 = everything */
    const char *ids_param; /* "instancesSet": what the message calls the ids; NULL = ids and
                              MaxResults may come together */
    bool has_ids;          /* ids were given in this call */
};

MUST_CHECK int aws_page_begin(const struct aws_call *call, const struct aws_page_spec *spec,
                              struct opt_i64 max_results, struct str next_token,
                              struct aws_page *ret, struct err *err);
/* The token for the page after 'last_key' (the greatest key shown). Give it only when something
 * is left. */
struct str aws_page_token(const struct aws_call *call, struct str last_key);
