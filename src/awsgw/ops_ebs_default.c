/* Encryption by default, and the default key. */
#include "awsgw/ops.h"

#include "awsgw/ebs.h"
#include "model/keys.h"

static int save(struct aws_call *call, const struct view_entry *e, const struct ebs_defaults *d,
                struct err *err)
{
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    struct txn *t = txn_open(call);
    txn_set(t, e, key_spec(call->arena, "ebsdefaults", call->account, STR("default")),
            &ebs_defaults_desc, d);
    return txn_commit(t, err);
}

static int set_encryption(struct aws_call *call, bool is_on, struct err *err)
{
    const struct view_entry *e = NULL;
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, call->account, &e);
    d.is_encrypted = is_on;
    return save(call, e, &d, err);
}

int ec2_enable_ebs_encryption_by_default(struct aws_call *call, const void *input, void *output,
                                         struct err *err)
{
    struct ec2_enable_ebs_encryption_by_default_result *out = output;
    out->ebs_encryption_by_default = some_bool(true);
    return set_encryption(call, true, err);
}

int ec2_disable_ebs_encryption_by_default(struct aws_call *call, const void *input,
                                          void *output, struct err *err)
{
    struct ec2_disable_ebs_encryption_by_default_result *out = output;
    out->ebs_encryption_by_default = some_bool(false);
    return set_encryption(call, false, err);
}

int ec2_get_ebs_encryption_by_default(struct aws_call *call, const void *input, void *output,
                                      struct err *err)
{
    struct ec2_get_ebs_encryption_by_default_result *out = output;
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, call->account, NULL);
    out->ebs_encryption_by_default = some_bool(d.is_encrypted);
    return aws_dry_run(call, err);
}

int ec2_get_ebs_default_kms_key_id(struct aws_call *call, const void *input, void *output,
                                   struct err *err)
{
    struct ec2_get_ebs_default_kms_key_id_result *out = output;
    out->kms_key_id = ebs_key_arn(gw_of(call), call->arena, call->account);
    return aws_dry_run(call, err);
}

/* The account has one key: whatever names it is the same setting. */
static int set_key(struct aws_call *call, struct str *ret_arn, struct err *err)
{
    const struct view_entry *e = NULL;
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, call->account, &e);
    *ret_arn = ebs_key_arn(gw_of(call), call->arena, call->account);
    d.kms_key_id = STR("");
    return save(call, e, &d, err);
}

int ec2_modify_ebs_default_kms_key_id(struct aws_call *call, const void *input, void *output,
                                      struct err *err)
{
    const struct ec2_modify_ebs_default_kms_key_id_request *in = input;
    struct ec2_modify_ebs_default_kms_key_id_result *out = output;
    int r = ebs_key_check(call, in->kms_key_id, err);
    return r < 0 ? r : set_key(call, &out->kms_key_id, err);
}

int ec2_reset_ebs_default_kms_key_id(struct aws_call *call, const void *input, void *output,
                                     struct err *err)
{
    struct ec2_reset_ebs_default_kms_key_id_result *out = output;
    return set_key(call, &out->kms_key_id, err);
}
