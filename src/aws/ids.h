/* ids.h — ids that a user named: well-formed, present, and the user's own; else the exact error
 * of EC2.
 * Not here: making ids (model/keys.h), finding objects (the caller's look-up, which must answer
 *           NULL for another account's).
 * Threads:  no state.
 * Memory:   results in the arena.
 * Errors:   "InvalidInstanceID.Malformed", "InvalidInstanceID.NotFound" and so on, per kind. */
#pragma once
#include "aws/shape.h"
#include "base/err.h"
#include "base/macro.h"

enum aws_id_kind {
    AWS_ID_INSTANCE,
    AWS_ID_VOLUME,
    AWS_ID_SNAPSHOT,
    AWS_ID_IMAGE,
    AWS_ID_KEY_PAIR, /* "key-..."; key names: aws_id_not_found() alone */
    AWS_ID_VPC,
    AWS_ID_SUBNET,
    AWS_ID_SECURITY_GROUP,
    AWS_ID_SECURITY_GROUP_RULE,
    AWS_ID_ENI,
    AWS_ID_IGW,
    AWS_ID_ROUTE_TABLE,
    AWS_ID_ACL,
    AWS_ID_DHCP_OPTIONS,
    AWS_ID_ALLOCATION,
    AWS_ID_ASSOCIATION,
    AWS_ID_N
};

const char *aws_id_prefix(enum aws_id_kind k); /* "i", "vol" */
const char *aws_id_resource_type(
    enum aws_id_kind k); /* "instance", "volume": as in tags and ARNs */
/* By its prefix; -ENOENT when no kind has it. */
MUST_CHECK int aws_id_kind_of(struct str id, enum aws_id_kind *ret);

/* "<prefix>-" and 8 or 17 lower-case hex digits, else Malformed. */
MUST_CHECK int aws_id_check(enum aws_id_kind k, struct str id, struct err *err);
MUST_CHECK int aws_ids_check(enum aws_id_kind k, const struct aws_str_list *ids,
                             struct err *err);
/* NotFound with EC2's text: singular for one id, plural naming all of them. Returns -ENOENT. */
int aws_id_not_found(enum aws_id_kind k, const struct str *ids, size_t n, struct err *err);

/* The object of this account with this id, or NULL. */
typedef const void *(*aws_id_find_fn)(void *ctx, struct str id);
/* Checks and finds all ids (duplicates once, in the order given). On success *ret has *ret_n
 * objects. All ids that are absent are named in one error. */
MUST_CHECK int aws_ids_resolve(enum aws_id_kind k, const struct aws_str_list *ids,
                               aws_id_find_fn find, void *ctx, struct arena *a,
                               const void ***ret, size_t *ret_n, struct err *err);
MUST_CHECK int aws_id_resolve(enum aws_id_kind k, struct str id, aws_id_find_fn find, void *ctx,
                              const void **ret, struct err *err);
