/* perm.h — who else may use a snapshot or an image: changes of a list of accounts and of "all".
 * Not here: whether the thing may be shared at all (ops_snapshot_attr.c, ops_image_attr.c).
 * Threads:  no state.
 * Memory:   in the arena of the call; names are borrowed from the request.
 * Errors:   "InvalidUserID.Malformed", "InvalidParameterValue", "ResourceCountExceeded". */
#pragma once
#include "aws/call.h"
#include "codec/rec.h"

#define PERM_CHANGES_MAX 500u  /* in one request (EC2 API reference) */
#define PERM_MAX         5000u /* accounts in one list */

struct perm_change {
    struct str add[PERM_CHANGES_MAX], remove[PERM_CHANGES_MAX];
    size_t n_add, n_remove;
    bool is_all_added, is_all_removed;
};

/* One entry of a request: a user, a group, or both. */
MUST_CHECK int perm_note(struct perm_change *c, bool is_removal, struct str user_id,
                         struct str group, struct err *err);
/* OperationType with UserId.N and UserGroup.N: the older form. */
MUST_CHECK int perm_note_lists(struct perm_change *c, struct str operation,
                               const struct aws_str_list *users,
                               const struct aws_str_list *groups, struct err *err);
bool perm_is_empty(const struct perm_change *c);
/* Applies the change: what is there already stays, what is not there is not missed. */
MUST_CHECK int perm_apply(struct arena *a, const struct perm_change *c,
                          struct str_list *accounts, bool *is_public, struct err *err);
bool perm_has(struct str_list accounts, struct str account);
