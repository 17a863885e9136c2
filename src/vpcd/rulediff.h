/* rulediff.h — from one nftables document of ruleset.h to another, by the fewest changes, as
 * one transaction. Pure.
 * Not here: what the rules are. It reads ruleset's own layout only: one object after the other,
 *           one line a rule, all elements in one line.
 * Why:      replacing a whole table loses the odd packet. One that is inside the old chains
 *           when the generation changes finds the elements of the old, deleted sets inactive
 *           already, and falls through to "drop". What did not change must not be touched.
 * Threads:  no state.
 * Memory:   the text is appended to a buffer of the caller.
 * Errors:   -EINVAL "BadRules": a text is not of that layout: replace the whole. */
#pragma once
#include "base/buf.h"
#include "base/err.h"

/* Appends nothing when both are the same. */
MUST_CHECK int rulediff(struct str old_text, struct str new_text, struct buf *out,
                        struct err *err);
