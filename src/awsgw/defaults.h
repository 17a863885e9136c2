/* defaults.h — what every account has from its first moment: a default VPC with subnet,
 * gateway, routes, ACL and group.
 * Not here: accounts (admin.c).
 * Threads:  any.
 * Memory:   in the transaction's arena.
 * Errors:   of the transaction. */
#pragma once
#include "awsgw/txn.h"

/* Adds the default VPC of 'account' to the transaction (AWS: 172.31.0.0/16, one /20 subnet per
 * zone). */
void defaults_add(struct txn *t, struct str account);
/* The default VPC, subnet and group of an account; false when they were deleted. */
struct account_defaults {
    const struct vpc *vpc;
    const struct subnet *subnet;
};
bool defaults_find(struct gw *gw, struct arena *a, struct str account,
                   struct account_defaults *ret);
