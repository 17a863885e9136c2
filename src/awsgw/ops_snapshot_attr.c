/* Attributes of snapshots (who may make volumes of them), and the account's block of public
 * sharing. */
#include "awsgw/ops.h"

#include "awsgw/ebs.h"
#include "awsgw/perm.h"
#include "model/keys.h"

#include <errno.h>

int ec2_describe_snapshot_attribute(struct aws_call *call, const void *input, void *output,
                                    struct err *err)
{
    const struct ec2_describe_snapshot_attribute_request *in = input;
    struct ec2_describe_snapshot_attribute_result *out = output;
    const struct view_entry *e = snap_find_own(call, in->snapshot_id, err);
    int r = e ? aws_dry_run(call, err) : err->code;
    if (r < 0) {
        return r;
    }
    const struct snapshot *s = REC(snapshot, e);
    out->snapshot_id = s->id;
    if (str_eqc(in->attribute, "productCodes")) {
        AWS_LIST_MAKE(call->arena, &out->product_codes, s->products.n);
        for (size_t i = 0; i < s->products.n; i++) {
            out->product_codes.v[i].product_code_id = s->products.v[i];
            out->product_codes.v[i].product_code_type = STR("marketplace");
        }
        return 0;
    }
    AWS_LIST_MAKE(call->arena, &out->create_volume_permissions,
                  s->accounts.n + (s->is_public ? 1 : 0));
    for (size_t i = 0; i < s->accounts.n; i++) {
        out->create_volume_permissions.v[i].user_id = s->accounts.v[i];
    }
    if (s->is_public) {
        out->create_volume_permissions.v[s->accounts.n].group = STR("all");
    }
    return 0;
}

static int note_all(const struct ec2_modify_snapshot_attribute_request *in,
                    struct perm_change *c, struct err *err)
{
    const struct ec2_create_volume_permission_modifications *m = in->create_volume_permission;
    int r = perm_note_lists(c, in->operation_type, &in->user_ids, &in->group_names, err);
    for (size_t i = 0; m && r == 0 && i < m->add.n; i++) {
        r = perm_note(c, false, m->add.v[i].user_id, m->add.v[i].group, err);
    }
    for (size_t i = 0; m && r == 0 && i < m->remove.n; i++) {
        r = perm_note(c, true, m->remove.v[i].user_id, m->remove.v[i].group, err);
    }
    if (r < 0) {
        return r;
    }
    if (str_eqc(in->attribute, "productCodes")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (productCodes) for parameter attribute is invalid. Only "
                    "createVolumePermission can be modified.");
    }
    if (perm_is_empty(c)) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter CreateVolumePermission");
    }
    if ((c->n_add > 0 || c->is_all_added) && (c->n_remove > 0 || c->is_all_removed)) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "Permissions can be added or removed by one request, not both.");
    }
    return 0;
}

/* What the account, or the key, does not allow to be shared. */
static int check_sharing(struct aws_call *call, const struct snapshot *s,
                         const struct perm_change *c, struct err *err)
{
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, call->account, NULL);
    if (s->is_encrypted && (c->n_add > 0 || c->is_all_added)) {
        return fail(err, -EPERM, "OperationNotPermitted",
                    "Encrypted snapshots with EBS default key cannot be shared");
    }
    if (c->is_all_added && d.block_public_access.n > 0) {
        return fail(err, -EPERM, "OperationNotPermitted",
                    "The snapshot cannot be shared publicly: block public access for snapshots "
                    "is enabled for this account (DisableSnapshotBlockPublicAccess).");
    }
    return 0;
}

static int save(struct aws_call *call, const struct view_entry *e, const struct snapshot *rec,
                struct err *err)
{
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    struct txn *t = txn_open(call);
    txn_update(t, e, &snapshot_desc, rec);
    return txn_commit(t, err);
}

int ec2_modify_snapshot_attribute(struct aws_call *call, const void *input, void *output,
                                  struct err *err)
{
    const struct ec2_modify_snapshot_attribute_request *in = input;
    struct perm_change *c = arena_new_of(call->arena, struct perm_change);
    int r = aws_id_check(AWS_ID_SNAPSHOT, in->snapshot_id, err);
    if (r < 0 || (r = note_all(in, c, err)) < 0) {
        return r;
    }
    const struct view_entry *e = snap_find_own(call, in->snapshot_id, err);
    if (!e) {
        return err->code;
    }
    struct snapshot rec = *REC(snapshot, e);
    if ((r = check_sharing(call, &rec, c, err)) < 0 ||
        (r = perm_apply(call->arena, c, &rec.accounts, &rec.is_public, err)) < 0) {
        return r;
    }
    return save(call, e, &rec, err);
}

int ec2_reset_snapshot_attribute(struct aws_call *call, const void *input, void *output,
                                 struct err *err)
{
    const struct ec2_reset_snapshot_attribute_request *in = input;
    const struct view_entry *e = snap_find_own(call, in->snapshot_id, err);
    if (!e) {
        return err->code;
    }
    if (!str_eqc(in->attribute, "createVolumePermission")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter attribute is invalid. Only "
                    "createVolumePermission can be reset.",
                    STR_ARG(in->attribute));
    }
    struct snapshot rec = *REC(snapshot, e);
    rec.accounts = (struct str_list){0};
    rec.is_public = false;
    return save(call, e, &rec, err);
}

/* ---- block public access ---- */

static int set_block(struct aws_call *call, struct str state, struct err *err)
{
    const struct view_entry *e = NULL;
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, call->account, &e);
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    d.block_public_access = state;
    struct txn *t = txn_open(call);
    txn_set(t, e, key_spec(call->arena, "ebsdefaults", call->account, STR("default")),
            &ebs_defaults_desc, &d);
    return txn_commit(t, err);
}

int ec2_enable_snapshot_block_public_access(struct aws_call *call, const void *input,
                                            void *output, struct err *err)
{
    const struct ec2_enable_snapshot_block_public_access_request *in = input;
    struct ec2_enable_snapshot_block_public_access_result *out = output;
    if (str_eqc(in->state, "unblocked")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (unblocked) for parameter State is invalid. Use "
                    "DisableSnapshotBlockPublicAccess.");
    }
    out->state = in->state;
    return set_block(call, in->state, err);
}

int ec2_disable_snapshot_block_public_access(struct aws_call *call, const void *input,
                                             void *output, struct err *err)
{
    struct ec2_disable_snapshot_block_public_access_result *out = output;
    out->state = STR("unblocked");
    return set_block(call, STR(""), err);
}

int ec2_get_snapshot_block_public_access_state(struct aws_call *call, const void *input,
                                               void *output, struct err *err)
{
    struct ec2_get_snapshot_block_public_access_state_result *out = output;
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, call->account, NULL);
    out->state = d.block_public_access.n > 0 ? d.block_public_access : STR("unblocked");
    out->managed_by = STR("account");
    return aws_dry_run(call, err);
}
