/* find.h — from ids that a user named to records, with the exact errors of EC2.
 * Not here: the texts (aws/ids.h).
 * Threads:  no state.
 * Memory:   as store.h.
 * Errors:   Malformed, NotFound (unknown or somebody else's): aws/ids.h. */
#pragma once
#include "aws/ids.h"
#include "awsgw/store.h"

/* The caller's resource, or NULL with *err set. */
const struct view_entry *find_one(struct aws_call *call, enum aws_id_kind kind, struct str id,
                                  struct err *err);
/* All of them, in the order given, without duplicates; one error names all that are unknown. */
MUST_CHECK int find_many(struct aws_call *call, enum aws_id_kind kind,
                         const struct aws_str_list *ids, struct entries *ret, struct err *err);
