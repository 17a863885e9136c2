/* keys.h — names of everything in the shared store, and the ids of resources.
 * Not here: what the values hold (instance.h, volume.h, network.h, node.h).
 * Layout:   spec/<kind>/<account>/<id>     desired state; awsgw writes (images: viperblock too)
 *           status/<kind>/<account>/<id>   observed; written by the service that owns the kind
 *           claim/<what>/...               uniqueness: address, name, client token, capacity
 *           iam/account/<account>          iam/user/<account>/<name>   iam/key/<access key id>
 *           node/<node>/facts              what the host has
 *           node/<node>/<service>          under a lease: the service runs (presence.h)
 *           config/...                     cluster-wide settings
 *           Who may write what is checked by spx-state (state/rights.c).
 * Kinds:    instance volume volmod image snapshot ebsdefaults keypair vpc subnet igw rtb acl dopt
 * sg eni
 *           eip tags
 * Threads:  no state.
 * Memory:   keys are made in the arena given.
 * Errors:   key_parse() answers -EINVAL. */
#pragma once
#include "base/arena.h"
#include "base/err.h"

#define ACCOUNT_ID_LEN 12u

/* "spec/<kind>/<account>/<id>" etc.; abort past the arena's limit. */
struct str key_spec(struct arena *a, const char *kind, struct str account, struct str id);
struct str key_status(struct arena *a, const char *kind, struct str account, struct str id);
/* "spec/<kind>/<account>/" ; account STR_NONE: "spec/<kind>/" */
struct str key_spec_prefix(struct arena *a, const char *kind, struct str account);
struct str key_status_prefix(struct arena *a, const char *kind, struct str account);
/* claim/<what>/<x>/<y> or claim/<what>/<x> */
struct str key_claim(struct arena *a, const char *what, struct str x, struct str y);

struct key_parts { /* borrowed from the key */
    struct str root, kind, account, id;
};
MUST_CHECK int key_parse(struct str key, struct key_parts *ret);

/* A new id: id_new(a, "i") -> "i-0123456789abcdef0" (17 hex digits). */
struct str id_new(struct arena *a, const char *prefix);
/* "<prefix>-" and 8 or 17 lower-case hex digits. */
bool id_is_wellformed(struct str id, const char *prefix);
