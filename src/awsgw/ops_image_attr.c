/* Attributes of images: who may launch them, description, deprecation, protection, disabling;
 * and the account's block of public sharing. */
#include "awsgw/ops.h"

#include "awsgw/image.h"
#include "awsgw/perm.h"
#include "base/time.h"
#include "model/keys.h"

#include <errno.h>

#define DEPRECATION_MAX_NS (UINT64_C(10) * 366 * 86400 * NS_PER_S)
#define MINUTE_NS          (60 * NS_PER_S)

static int save(struct aws_call *call, const struct view_entry *e, const struct image *rec,
                struct err *err)
{
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    struct txn *t = txn_open(call);
    txn_update(t, e, &image_desc, rec);
    return txn_commit(t, err);
}

/* ---- DescribeImageAttribute ---- */

static void attribute_value(struct arena *a, struct str v, struct ec2_attribute_value **out)
{
    *out = arena_new_of(a, struct ec2_attribute_value);
    (*out)->value = v;
}

static void permissions_out(struct arena *a, const struct image *i,
                            struct ec2_launch_permission_list *out)
{
    AWS_LIST_MAKE(a, out, i->accounts.n + (i->is_public ? 1 : 0));
    for (size_t k = 0; k < i->accounts.n; k++) {
        out->v[k].user_id = i->accounts.v[k];
    }
    if (i->is_public) {
        out->v[i->accounts.n].group = STR("all");
    }
}

int ec2_describe_image_attribute(struct aws_call *call, const void *input, void *output,
                                 struct err *err)
{
    const struct ec2_describe_image_attribute_request *in = input;
    struct ec2_image_attribute *out = output;
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    int r = e ? aws_dry_run(call, err) : err->code;
    if (r < 0) {
        return r;
    }
    const struct image *i = REC(image, e);
    struct arena *a = call->arena;
    struct str what = in->attribute;
    out->image_id = i->id;
    if (str_eqc(what, "description")) {
        attribute_value(a, i->description, &out->description);
    } else if (str_eqc(what, "bootMode") && i->boot_mode.n > 0) {
        attribute_value(a, image_boot_mode(i), &out->boot_mode);
    } else if (str_eqc(what, "blockDeviceMapping")) {
        image_mapping_out(call, i, &out->block_device_mappings);
    } else if (str_eqc(what, "launchPermission")) {
        permissions_out(a, i, &out->launch_permissions);
    } else if (str_eqc(what, "productCodes")) {
        AWS_LIST_MAKE(a, &out->product_codes, 0);
    } else if (str_eqc(what, "deregistrationProtection")) {
        attribute_value(a, i->is_protected ? STR("enabled-without-cooldown") : STR("disabled"),
                        &out->deregistration_protection);
    } else if (str_eqc(what, "tpmSupport") && i->tpm.n > 0) {
        attribute_value(a, i->tpm, &out->tpm_support);
    } else if (str_eqc(what, "imdsSupport") && i->imds.n > 0) {
        attribute_value(a, i->imds, &out->imds_support);
    } else if (str_eqc(what, "sriovNetSupport") && i->sriov.n > 0) {
        attribute_value(a, i->sriov, &out->sriov_net_support);
    }
    /* kernel, ramdisk, uefiData, lastLaunchedTime, and what is not set: no element, as on AWS */
    return 0;
}

/* ---- ModifyImageAttribute, ResetImageAttribute ---- */

static int note_all(const struct ec2_modify_image_attribute_request *in, struct perm_change *c,
                    struct err *err)
{
    const struct ec2_launch_permission_modifications *m = in->launch_permission;
    int r = perm_note_lists(c, in->operation_type, &in->user_ids, &in->user_groups, err);
    bool has_organization = in->organization_arns.n + in->organizational_unit_arns.n > 0;
    for (size_t k = 0; m && r == 0 && k < m->add.n + m->remove.n; k++) {
        bool is_removal = k >= m->add.n;
        const struct ec2_launch_permission *p =
            is_removal ? &m->remove.v[k - m->add.n] : &m->add.v[k];
        has_organization =
            has_organization || p->organization_arn.n > 0 || p->organizational_unit_arn.n > 0;
        r = perm_note(c, is_removal, p->user_id, p->group, err);
    }
    if (r == 0 && has_organization) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "Organizations are not supported here.");
    }
    return r;
}

static int change_permissions(struct aws_call *call, const struct perm_change *c,
                              struct image *rec, struct err *err)
{
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, call->account, NULL);
    struct img_devices dev = image_devices(gw_of(call), call->arena, rec);
    bool is_growing = c->n_add > 0 || c->is_all_added;
    for (size_t k = 0; is_growing && k < dev.n; k++) {
        if (dev.v[k].is_encrypted && dev.v[k].snapshot_id.n > 0) {
            return fail(err, -EPERM, "InvalidParameter",
                        "Snapshots encrypted with the AWS Managed CMK can't be shared. Specify "
                        "another snapshot.");
        }
    }
    if (is_growing && rec->is_disabled) {
        return fail(err, -EINVAL, "OperationNotPermitted",
                    "The image '%.*s' is disabled: it cannot be shared.", STR_ARG(rec->id));
    }
    if (c->is_all_added && d.is_image_sharing_blocked) {
        return fail(err, -EPERM, "OperationNotPermitted",
                    "The image cannot be shared publicly: block public access for AMIs is "
                    "enabled for this account (DisableImageBlockPublicAccess).");
    }
    return perm_apply(call->arena, c, &rec->accounts, &rec->is_public, err);
}

static int change_imds(struct image *rec, struct str v, struct err *err)
{
    if (!str_eqc(v, "v2.0")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter imdsSupport is invalid. The only value is "
                    "'v2.0'; it cannot be taken back.",
                    STR_ARG(v));
    }
    rec->imds = v;
    return 0;
}

/* The one attribute that the request is about. */
static int change_one(struct aws_call *call,
                      const struct ec2_modify_image_attribute_request *in,
                      struct perm_change *c, struct image *rec, struct err *err)
{
    bool is_by_name = str_is_set(in->value);
    bool is_description =
        in->description || (is_by_name && str_eqc(in->attribute, "description"));
    bool is_imds = in->imds_support || (is_by_name && str_eqc(in->attribute, "imdsSupport"));
    bool is_permission = !perm_is_empty(c);
    int n = is_description + is_imds + is_permission;
    if (n > 1) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "One attribute can be modified by one request.");
    }
    if (n == 0 && in->attribute.n > 0 && !str_eqc(in->attribute, "description") &&
        !str_eqc(in->attribute, "imdsSupport") && !str_eqc(in->attribute, "launchPermission")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter attribute is invalid.", STR_ARG(in->attribute));
    }
    if (n == 0) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "The request must contain an attribute and what it shall be.");
    }
    if (is_permission) {
        return change_permissions(call, c, rec, err);
    }
    if (is_imds) {
        return change_imds(rec, in->imds_support ? in->imds_support->value : in->value, err);
    }
    struct str text = in->description ? in->description->value : in->value;
    if (str_utf8_len(text) > 255) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The description must be at most 255 characters long.");
    }
    rec->description = str_is_set(text) ? text : STR("");
    return 0;
}

int ec2_modify_image_attribute(struct aws_call *call, const void *input, void *output,
                               struct err *err)
{
    const struct ec2_modify_image_attribute_request *in = input;
    struct perm_change *c = arena_new_of(call->arena, struct perm_change);
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    struct image rec = *REC(image, e);
    int r = note_all(in, c, err);
    if (r == 0 && in->product_codes.n > 0) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "Product codes are not supported here.");
    }
    if (r < 0 || (r = change_one(call, in, c, &rec, err)) < 0) {
        return r;
    }
    return save(call, e, &rec, err);
}

int ec2_reset_image_attribute(struct aws_call *call, const void *input, void *output,
                              struct err *err)
{
    const struct ec2_reset_image_attribute_request *in = input;
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    struct image rec = *REC(image, e);
    rec.accounts = (struct str_list){0};
    rec.is_public = false;
    return save(call, e, &rec, err);
}

int ec2_cancel_image_launch_permission(struct aws_call *call, const void *input, void *output,
                                       struct err *err)
{
    const struct ec2_cancel_image_launch_permission_request *in = input;
    struct ec2_cancel_image_launch_permission_result *out = output;
    const struct view_entry *e = image_find(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    struct image rec = *REC(image, e);
    struct perm_change *c = arena_new_of(call->arena, struct perm_change);
    if (!perm_has(rec.accounts, call->account)) {
        return fail(err, -EPERM, "AuthFailure", "Not authorized for image:%.*s",
                    STR_ARG(in->image_id));
    }
    c->remove[c->n_remove++] = call->account;
    int r = perm_apply(call->arena, c, &rec.accounts, &rec.is_public, err);
    out->return_ = some_bool(true);
    return r < 0 ? r : save(call, e, &rec, err);
}

/* ---- deprecation ---- */

int ec2_enable_image_deprecation(struct aws_call *call, const void *input, void *output,
                                 struct err *err)
{
    const struct ec2_enable_image_deprecation_request *in = input;
    struct ec2_enable_image_deprecation_result *out = output;
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    char iso[TIME_ISO_SIZE];
    if (!e) {
        return err->code;
    }
    /* To the minute, as AWS rounds. */
    uint64_t at = (in->deprecate_at.ns + MINUTE_NS / 2) / MINUTE_NS * MINUTE_NS;
    if (at + MINUTE_NS < call->now_ns || at > call->now_ns + DEPRECATION_MAX_NS) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The date and time of the deprecation must be in the future, and at most "
                    "10 years from now.");
    }
    struct image rec = *REC(image, e);
    rec.deprecate_at = arena_str_dup(call->arena, str_c(time_iso_ms(at, iso)));
    out->return_ = some_bool(true);
    return save(call, e, &rec, err);
}

int ec2_disable_image_deprecation(struct aws_call *call, const void *input, void *output,
                                  struct err *err)
{
    const struct ec2_disable_image_deprecation_request *in = input;
    struct ec2_disable_image_deprecation_result *out = output;
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    struct image rec = *REC(image, e);
    rec.deprecate_at = STR("");
    out->return_ = some_bool(true);
    return save(call, e, &rec, err);
}

/* ---- deregistration protection ---- */

int ec2_enable_image_deregistration_protection(struct aws_call *call, const void *input,
                                               void *output, struct err *err)
{
    const struct ec2_enable_image_deregistration_protection_request *in = input;
    struct ec2_enable_image_deregistration_protection_result *out = output;
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    if (in->with_cooldown.v) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "A cooldown is not supported here.");
    }
    struct image rec = *REC(image, e);
    rec.is_protected = true;
    out->return_ = STR("enabled-without-cooldown");
    return save(call, e, &rec, err);
}

int ec2_disable_image_deregistration_protection(struct aws_call *call, const void *input,
                                                void *output, struct err *err)
{
    const struct ec2_disable_image_deregistration_protection_request *in = input;
    struct ec2_disable_image_deregistration_protection_result *out = output;
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    struct image rec = *REC(image, e);
    rec.is_protected = false;
    out->return_ = STR("disabled");
    return save(call, e, &rec, err);
}

/* ---- disabling ---- */

int ec2_disable_image(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_disable_image_request *in = input;
    struct ec2_disable_image_result *out = output;
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    struct image rec = *REC(image, e);
    struct str state = image_state(gw_of(call), call->arena, &rec, NULL);
    if (!str_eqc(state, "available") && !str_eqc(state, "disabled")) {
        return fail(err, -EINVAL, "IncorrectState",
                    "The image '%.*s' is in the '%.*s' state: it cannot be disabled.",
                    STR_ARG(rec.id), STR_ARG(state));
    }
    rec.is_disabled = true;
    rec.is_public = false;
    rec.accounts = (struct str_list){0};
    out->return_ = some_bool(true);
    return save(call, e, &rec, err);
}

int ec2_enable_image(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_enable_image_request *in = input;
    struct ec2_enable_image_result *out = output;
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    struct image rec = *REC(image, e);
    rec.is_disabled = false;
    out->return_ = some_bool(true);
    return save(call, e, &rec, err);
}

/* ---- block public access ---- */

static int set_block(struct aws_call *call, bool is_blocked, struct err *err)
{
    const struct view_entry *e = NULL;
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, call->account, &e);
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    d.is_image_sharing_blocked = is_blocked;
    struct txn *t = txn_open(call);
    txn_set(t, e, key_spec(call->arena, "ebsdefaults", call->account, STR("default")),
            &ebs_defaults_desc, &d);
    return txn_commit(t, err);
}

int ec2_enable_image_block_public_access(struct aws_call *call, const void *input, void *output,
                                         struct err *err)
{
    struct ec2_enable_image_block_public_access_result *out = output;
    out->image_block_public_access_state = STR("block-new-sharing");
    return set_block(call, true, err);
}

int ec2_disable_image_block_public_access(struct aws_call *call, const void *input,
                                          void *output, struct err *err)
{
    struct ec2_disable_image_block_public_access_result *out = output;
    out->image_block_public_access_state = STR("unblocked");
    return set_block(call, false, err);
}

int ec2_get_image_block_public_access_state(struct aws_call *call, const void *input,
                                            void *output, struct err *err)
{
    struct ec2_get_image_block_public_access_state_result *out = output;
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, call->account, NULL);
    out->image_block_public_access_state =
        d.is_image_sharing_blocked ? STR("block-new-sharing") : STR("unblocked");
    out->managed_by = STR("account");
    return aws_dry_run(call, err);
}
