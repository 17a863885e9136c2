/* Switches of a bucket: versioning, encryption, who pays, acceleration. */
#include "predastore/ops.h"

#include "model/config.h"
#include "predastore/conf.h"

#include <errno.h>

/* ---- versioning ---- */

int op_get_bucket_versioning(struct s3_call *c, const void *input, void *output,
                             struct err *err)
{
    struct s3_get_bucket_versioning_output *out = output;
    if (c->bucket->versioning != OSTORE_UNVERSIONED) {
        out->status =
            c->bucket->versioning == OSTORE_ENABLED ? STR("Enabled") : STR("Suspended");
    }
    return 0;
}

int op_put_bucket_versioning(struct s3_call *c, const void *input, void *output,
                             struct err *err)
{
    const struct s3_put_bucket_versioning_request *in = input;
    const struct s3_versioning_configuration *v = in->versioning_configuration;
    bool is_enabled = v && str_eqc(v->status, "Enabled");
    if (!v || (!is_enabled && !str_eqc(v->status, "Suspended"))) {
        return fail(err, -EINVAL, "IllegalVersioningConfigurationException", "%s", "");
    }
    if (str_is_set(in->mfa) || (v->mfa_delete.n && !str_eqc(v->mfa_delete, "Disabled"))) {
        return fail(err, -ENOSYS, "NotImplemented", "MFA delete is not implemented");
    }
    const char byte = is_enabled ? OSTORE_ENABLED : OSTORE_SUSPENDED;
    return ostore_bucket_configure(c->store, c->bucket->name, c->bucket->number,
                                   OCONF_VERSIONING, str_n(&byte, 1), err);
}

/* ---- encryption: everything is sealed with AES-256, or nothing is ---- */

int op_get_bucket_encryption(struct s3_call *c, const void *input, void *output,
                             struct err *err)
{
    struct s3_get_bucket_encryption_output *out = output;
    struct s3_server_side_encryption_configuration *conf =
        arena_new_of(c->arena, struct s3_server_side_encryption_configuration);
    if (!c->s3->cfg->predastore.is_encrypted) {
        rest_extra_add(&c->t.extra, "BucketName", c->bucket->name);
        return fail(err, -ENOENT, "ServerSideEncryptionConfigurationNotFoundError", "%s", "");
    }
    out->server_side_encryption_configuration = conf;
    if (conf_is_set(c->bucket, &conf_encryption)) {
        return conf_get(c->arena, c->bucket, &conf_encryption, conf, err);
    }
    AWS_LIST_MAKE(c->arena, &conf->rules, 1);
    struct s3_server_side_encryption_rule *rule = &conf->rules.v[0];
    rule->apply_server_side_encryption_by_default =
        arena_new_of(c->arena, struct s3_server_side_encryption_by_default);
    rule->apply_server_side_encryption_by_default->sse_algorithm = STR("AES256");
    rule->bucket_key_enabled = some_bool(false);
    return 0;
}

int op_put_bucket_encryption(struct s3_call *c, const void *input, void *output,
                             struct err *err)
{
    const struct s3_put_bucket_encryption_request *in = input;
    const struct s3_server_side_encryption_configuration *conf =
        in->server_side_encryption_configuration;
    if (!conf || conf->rules.n != 1) {
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    const struct s3_server_side_encryption_by_default *by =
        conf->rules.v[0].apply_server_side_encryption_by_default;
    if (!by || !by->sse_algorithm.n) {
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    if (!str_eqc(by->sse_algorithm, "AES256")) {
        return fail(err, -ENOSYS, "NotImplemented",
                    "Encryption with keys of a key service is not implemented");
    }
    if (by->kms_master_key_id.n) {
        rest_extra_add(&c->t.extra, "ArgumentName", STR("ApplyServerSideEncryptionByDefault"));
        return fail(err, -EINVAL, "InvalidArgument",
                    "a KMSMasterKeyID is not applicable if the default sse algorithm is not "
                    "aws:kms or aws:kms:dsse");
    }
    if (!c->s3->cfg->predastore.is_encrypted) {
        return fail(err, -ENOSYS, "NotImplemented",
                    "This store is configured not to encrypt what it keeps");
    }
    return conf_put(c, &conf_encryption, conf, err);
}

int op_delete_bucket_encryption(struct s3_call *c, const void *input, void *output,
                                struct err *err)
{
    return conf_remove(c, &conf_encryption, err);
}

/* ---- who pays: always the owner ---- */

int op_get_bucket_request_payment(struct s3_call *c, const void *input, void *output,
                                  struct err *err)
{
    struct s3_get_bucket_request_payment_output *out = output;
    out->payer = STR("BucketOwner");
    return 0;
}

int op_put_bucket_request_payment(struct s3_call *c, const void *input, void *output,
                                  struct err *err)
{
    const struct s3_put_bucket_request_payment_request *in = input;
    const struct s3_request_payment_configuration *conf = in->request_payment_configuration;
    if (conf && str_eqc(conf->payer, "BucketOwner")) {
        return 0;
    }
    if (conf && str_eqc(conf->payer, "Requester")) {
        return fail(err, -ENOSYS, "NotImplemented", "Requester Pays is not implemented");
    }
    return fail(err, -EINVAL, "MalformedXML", "%s", "");
}

/* ---- acceleration: never on ---- */

int op_get_bucket_accelerate(struct s3_call *c, const void *input, void *output,
                             struct err *err)
{
    return 0;
}
