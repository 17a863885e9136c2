/* ebs.h — snapshots, keys and an account's defaults of EBS, as the API shows them.
 * Not here: operations (ops_snapshot.c, ops_ebs_default.c ...), bytes (viperblock/).
 * Threads:  no state.
 * Memory:   in the arena of the call.
 * Errors:   of ids, states and keys, as EC2 answers them. */
#pragma once
#include "awsgw/describe.h"
#include "awsgw/tagset.h"
#include "base/time.h"
#include "model/volume.h"

#define SNAPSHOTS_MAX      100000u         /* of one account (EBS quota) */
#define SNAPSHOT_REST_NS   (15 * NS_PER_S) /* between two of one volume */
#define SNAPSHOT_NO_VOLUME "vol-ffffffff"

struct snap {
    const struct view_entry *entry;
    const struct snapshot *spec;
    const struct snapshot_status *status; /* NULL before viperblock has seen it */
    struct str state;                     /* "pending", "completed", "error" */
};

struct snap snap_join(struct aws_call *call, const struct view_entry *e);
struct snap snap_join_in(struct gw *gw, struct arena *a, const struct view_entry *e);
/* May the caller make volumes of it? Its own, shared with it, public (unless its owner blocks
 * that). */
bool snap_is_visible(struct aws_call *call, const struct snapshot *s);
/* Visible, else NULL and NotFound. */
const struct view_entry *snap_find(struct aws_call *call, struct str id, struct err *err);
/* Visible and the caller's, else NULL and NotFound or AuthFailure. */
const struct view_entry *snap_find_own(struct aws_call *call, struct str id, struct err *err);
/* Id of an image that is there and names this snapshot, or STR_NONE. '*ret_n' (may be NULL):
 * how many do. */
struct str snap_image_of(struct gw *gw, struct arena *a, const struct snapshot *s,
                         size_t *ret_n);
void snap_out(struct aws_call *call, const struct snap *s, struct ec2_snapshot *out);

/* What a new snapshot of a volume is refused for: too soon, too many under way. */
MUST_CHECK int snap_check_rate(struct aws_call *call, const struct volume *v, bool is_rested,
                               struct err *err);
/* A snapshot of 'v' that is yet to be written. */
struct snapshot snap_of_volume(struct gw *gw, struct arena *a, const struct volume *v,
                               uint64_t now_ns);

/* Adds it and its tags. The volume is touched: two requests for one, or a request and its
 * deletion, conflict. */
void snap_add(struct txn *t, const struct view_entry *volume, const struct snapshot *s,
              struct tag_list tags);
/* Until the point in time of all is fixed: what the user writes after the answer is not in them.
 * A block service that is away does not hold up an answer for ever, nor other requests. */
void snap_wait_taken(struct aws_call *call, const struct snapshot *v, size_t n);

/* The defaults of an account; a record with AWS's defaults when nothing was ever set.
 * '*ret_entry' (may be NULL) is NULL then. */
struct ebs_defaults ebs_defaults_of(struct gw *gw, struct arena *a, struct str account,
                                    const struct view_entry **ret_entry);
/* ARN of an account's key "alias/aws/ebs": there is no other yet. */
struct str ebs_key_arn(struct gw *gw, struct arena *a, struct str account);
/* An id, ARN or alias that a user named: only the account's own key is known. */
MUST_CHECK int ebs_key_check(struct aws_call *call, struct str named, struct err *err);

/* What a request says about encryption. */
struct ebs_crypt_ask {
    struct opt_bool encrypted;
    struct str kms_key_id;
    bool is_source_encrypted;
};
/* Sets what the new volume or snapshot is: encrypted when the source is, when asked for, or by
 * default. *ret_key is the key's ARN or "". */
MUST_CHECK int ebs_crypt(struct aws_call *call, const struct ebs_crypt_ask *ask,
                         bool *ret_is_encrypted, struct str *ret_key, struct err *err);
