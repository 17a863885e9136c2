/* Describe/ModifyInstanceAttribute, ModifyInstanceMetadataOptions. */
#include "awsgw/ops.h"

#include "awsgw/alloc.h"
#include "awsgw/inst.h"
#include "awsgw/sgrule.h"
#include "awsgw/txn.h"
#include "codec/base64.h"
#include "model/keys.h"

#include <errno.h>

#define USER_DATA_MAX 16384u
#define SG_PER_ENI    5u

static void text_out(struct arena *a, struct str v, struct ec2_attribute_value **out)
{
    *out = arena_new_of(a, struct ec2_attribute_value);
    (*out)->value = v.n > 0 ? v : STR_NONE; /* "not set" is an element without a value */
}

static void bool_out(struct arena *a, bool v, struct ec2_attribute_boolean_value **out)
{
    *out = arena_new_of(a, struct ec2_attribute_boolean_value);
    (*out)->value = some_bool(v);
}

static void disks_out(struct aws_call *call, const struct inst *in,
                      struct ec2_instance_attribute *out)
{
    struct ec2_instance shown = {0};
    inst_out(call, in, &shown);
    out->block_device_mappings = shown.block_device_mappings;
}

/* Every name of the model is answered: with its value, or as AWS answers one that is not set. */
int ec2_describe_instance_attribute(struct aws_call *call, const void *input, void *output,
                                    struct err *err)
{
    const struct ec2_describe_instance_attribute_request *in = input;
    struct ec2_instance_attribute *out = output;
    const struct view_entry *e = find_one(call, AWS_ID_INSTANCE, in->instance_id, err);
    int r = e ? aws_dry_run(call, err) : err->code;
    if (r < 0) {
        return r;
    }
    struct inst m = inst_join(call, e);
    const struct instance *s = m.spec;
    struct arena *a = call->arena;
    struct str what = in->attribute;
    out->instance_id = s->id;
    if (str_eqc(what, "instanceType")) {
        text_out(a, s->instance_type, &out->instance_type);
    } else if (str_eqc(what, "kernel")) {
        text_out(a, STR(""), &out->kernel_id);
    } else if (str_eqc(what, "ramdisk")) {
        text_out(a, STR(""), &out->ramdisk_id);
    } else if (str_eqc(what, "userData")) {
        text_out(a, s->user_data, &out->user_data);
    } else if (str_eqc(what, "disableApiTermination")) {
        bool_out(a, s->is_termination_protected, &out->disable_api_termination);
    } else if (str_eqc(what, "disableApiStop")) {
        bool_out(a, s->is_stop_protected, &out->disable_api_stop);
    } else if (str_eqc(what, "instanceInitiatedShutdownBehavior")) {
        text_out(a, s->shutdown_behavior, &out->instance_initiated_shutdown_behavior);
    } else if (str_eqc(what, "rootDeviceName")) {
        text_out(a, s->root_device, &out->root_device_name);
    } else if (str_eqc(what, "blockDeviceMapping")) {
        disks_out(call, &m, out);
    } else if (str_eqc(what, "productCodes")) {
        AWS_LIST_MAKE(a, &out->product_codes, 0);
    } else if (str_eqc(what, "sourceDestCheck")) {
        bool_out(a, s->is_source_dest_checked, &out->source_dest_check);
    } else if (str_eqc(what, "groupSet")) {
        const struct eni *eni = REC(eni, m.eni);
        groups_out(call, eni ? eni->sg_ids : (struct str_list){0}, &out->groups);
    } else if (str_eqc(what, "ebsOptimized")) {
        bool_out(a, s->is_ebs_optimized, &out->ebs_optimized);
    } else if (str_eqc(what, "sriovNetSupport")) {
        text_out(a, STR(""), &out->sriov_net_support);
    } else if (str_eqc(what, "enaSupport")) {
        bool_out(a, true, &out->ena_support);
    } else if (str_eqc(what, "enclaveOptions")) {
        out->enclave_options = arena_new_of(a, struct ec2_enclave_options);
        out->enclave_options->enabled = some_bool(false);
    }
    return 0;
}

/* ---- ModifyInstanceAttribute ---- */

struct change {
    struct aws_call *call;
    struct inst m;
    struct instance rec;
    struct txn *t;
    bool is_for_compute; /* the generation moves */
    struct eni eni;      /* of its interface, when there is one */
    bool is_eni_changed;
};

static int need_stopped(const struct change *c, const char *what, struct err *err)
{
    if (c->m.state == INSTANCE_STOPPED) {
        return 0;
    }
    return fail(err, -EINVAL, "IncorrectInstanceState",
                "The instance '%.*s' is not in the 'stopped' state: %s cannot be changed.",
                STR_ARG(c->m.spec->id), what);
}

static int change_type(struct change *c, struct str name, struct err *err)
{
    struct gw *gw = gw_of(c->call);
    const struct node_facts *f = node_facts_get(gw, c->call->arena);
    const struct instance_type *t = node_type_find(f, name);
    if (!t) {
        return fail(err, -EINVAL, "InvalidInstanceAttributeValue",
                    "Invalid value '%.*s' for InstanceType.", STR_ARG(name));
    }
    int r = need_stopped(c, "the instance type", err);
    if (r < 0) {
        return r;
    }
    /* A stopped instance may hold its capacity for a moment more: give that back in the old
     * type's measure. */
    if (c->rec.is_holding_capacity) {
        uint64_t n = c->rec.n_vcpus;
        r = capacity_change(c->t, f, str_c(gw->cfg->node), c->rec.is_burstable ? 0 : n,
                            c->rec.is_burstable ? n : 0, c->rec.memory_mib, false, err);
        c->rec.is_holding_capacity = false;
        /* The janitor, who parks what holds capacity, will pass it by: its address goes too. */
        if (c->rec.has_auto_public_ip && c->m.eni && c->eni.public_ip.n > 0) {
            txn_delete_key(c->t, claim_public_ip_key(c->call->arena, c->eni.public_ip));
            c->eni.public_ip = STR("");
            c->is_eni_changed = true;
        }
    }
    c->rec.instance_type = t->name;
    c->rec.n_vcpus = t->n_vcpus;
    c->rec.memory_mib = t->memory_mib;
    c->rec.is_burstable = t->is_burstable;
    return r;
}

static int change_user_data(struct change *c, struct str raw, struct err *err)
{
    int r = need_stopped(c, "user data", err);
    if (r < 0) {
        return r;
    }
    if (raw.n > USER_DATA_MAX) {
        return fail(err, -EINVAL, "InvalidParameterValue", "User data is limited to %u bytes",
                    USER_DATA_MAX);
    }
    AUTO_BUF b;
    buf_init(&b, BASE64_LEN(USER_DATA_MAX) + 8);
    base64_encode(raw, &b);
    c->rec.user_data = arena_str_dup(c->call->arena, buf_str(&b));
    return 0;
}

static int change_shutdown(struct change *c, struct str v, struct err *err)
{
    if (!str_eqc(v, "stop") && !str_eqc(v, "terminate")) {
        return fail(err, -EINVAL, "InvalidInstanceAttributeValue",
                    "Invalid value '%.*s' for instanceInitiatedShutdownBehavior.", STR_ARG(v));
    }
    c->rec.shutdown_behavior = v;
    c->is_for_compute = true;
    return 0;
}

static int change_groups(struct change *c, const struct aws_str_list *ids, struct err *err)
{
    struct entries found;
    txn_lock(c->t, sg_use_key(c->call->arena, c->rec.vpc_id));
    int r = find_many(c->call, AWS_ID_SECURITY_GROUP, ids, &found, err);
    if (r < 0) {
        return r;
    }
    if (!c->m.eni) {
        return fail(err, -EINVAL, "IncorrectInstanceState",
                    "The instance '%.*s' has no network interface.", STR_ARG(c->rec.id));
    }
    if (found.n > SG_PER_ENI) {
        return fail(err, -EINVAL, "SecurityGroupsPerInterfaceLimitExceeded",
                    "The maximum number of security groups per interface has been reached.");
    }
    struct str *ids_v = arena_xalloc(c->call->arena, found.n * sizeof(*ids_v));
    for (size_t i = 0; i < found.n; i++) {
        const struct sg *g = REC(sg, found.v[i]);
        if (!str_eq(g->vpc_id, c->eni.vpc_id)) {
            return fail(err, -EINVAL, "InvalidGroup.NotFound",
                        "The security group '%.*s' does not exist in VPC '%.*s'",
                        STR_ARG(g->id), STR_ARG(c->eni.vpc_id));
        }
        ids_v[i] = g->id;
    }
    c->eni.sg_ids = (struct str_list){ids_v, found.n};
    c->is_eni_changed = true;
    return 0;
}

static int change_source_dest_check(struct change *c, bool v, struct err *err)
{
    if (!v) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "Switching off the source/destination check is not supported here.");
    }
    c->rec.is_source_dest_checked = true;
    return 0;
}

static int change_disks(struct change *c,
                        const struct ec2_instance_block_device_mapping_specification_list *l,
                        struct err *err)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct view_entry *hit = NULL;
        for (size_t k = 0; k < c->m.volumes.n; k++) {
            hit = str_eq(REC(volume, c->m.volumes.v[k])->device, l->v[i].device_name)
                      ? c->m.volumes.v[k]
                      : hit;
        }
        if (!hit) {
            return fail(err, -EINVAL, "InvalidInstanceAttributeValue",
                        "No device is currently mapped at %.*s", STR_ARG(l->v[i].device_name));
        }
        if (l->v[i].ebs && l->v[i].ebs->delete_on_termination.is_set) {
            struct volume v = *REC(volume, hit);
            v.is_deleted_on_termination = l->v[i].ebs->delete_on_termination.v;
            txn_update(c->t, hit, &volume_desc, &v);
        }
    }
    return 0;
}

/* Attribute=name&Value=text: the older form of the same request. */
static int change_by_name(struct change *c, struct str name, struct str value, struct err *err)
{
    bool is_true = str_ieqc(value, "true"), is_bool = is_true || str_ieqc(value, "false");
    if (str_eqc(name, "instanceType")) {
        return change_type(c, value, err);
    }
    if (str_eqc(name, "instanceInitiatedShutdownBehavior")) {
        return change_shutdown(c, value, err);
    }
    if (str_eqc(name, "userData")) {
        AUTO_BUF raw;
        buf_init(&raw, USER_DATA_MAX);
        if (base64_decode_lax(value, &raw) < 0) {
            return fail(err, -EINVAL, "InvalidUserData.Malformed",
                        "Invalid BASE64 encoding of user data.");
        }
        return change_user_data(c, buf_str(&raw), err);
    }
    if (is_bool && str_eqc(name, "disableApiTermination")) {
        c->rec.is_termination_protected = is_true;
        return 0;
    }
    if (is_bool && str_eqc(name, "disableApiStop")) {
        c->rec.is_stop_protected = is_true;
        return 0;
    }
    if (is_bool && str_eqc(name, "sourceDestCheck")) {
        return change_source_dest_check(c, is_true, err);
    }
    if (is_bool && str_eqc(name, "ebsOptimized")) {
        c->rec.is_ebs_optimized = is_true;
        return need_stopped(c, "ebsOptimized", err);
    }
    return fail(err, -EINVAL, "InvalidParameterValue",
                "Value (%.*s) for attribute %.*s is not supported.", STR_ARG(value),
                STR_ARG(name));
}

static int change_all(struct change *c, const struct ec2_modify_instance_attribute_request *in,
                      struct err *err)
{
    int r = 0;
    if (in->kernel || in->ramdisk || in->sriov_net_support ||
        (in->ena_support && !in->ena_support->value.v)) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "Kernel, RAM disk, SR-IOV and ENA attributes are not supported here.");
    }
    if (str_is_set(in->attribute) && str_is_set(in->value)) {
        r = change_by_name(c, in->attribute, in->value, err);
    }
    if (r == 0 && in->instance_type) {
        r = change_type(c, in->instance_type->value, err);
    }
    if (r == 0 && in->user_data) {
        r = change_user_data(c, in->user_data->value, err);
    }
    if (r == 0 && in->instance_initiated_shutdown_behavior) {
        r = change_shutdown(c, in->instance_initiated_shutdown_behavior->value, err);
    }
    if (r == 0 && in->source_dest_check) {
        r = change_source_dest_check(c, in->source_dest_check->value.v, err);
    }
    if (r == 0 && in->groups.n > 0) {
        r = change_groups(c, &in->groups, err);
    }
    if (r == 0 && in->block_device_mappings.n > 0) {
        r = change_disks(c, &in->block_device_mappings, err);
    }
    if (r == 0 && in->ebs_optimized) {
        c->rec.is_ebs_optimized = in->ebs_optimized->value.v;
        r = need_stopped(c, "ebsOptimized", err);
    }
    if (in->disable_api_termination) {
        c->rec.is_termination_protected = in->disable_api_termination->value.v;
    }
    if (in->disable_api_stop) {
        c->rec.is_stop_protected = in->disable_api_stop->value.v;
    }
    return r;
}

static int change_open(struct aws_call *call, struct str id, struct change *c, struct err *err)
{
    const struct view_entry *e = find_one(call, AWS_ID_INSTANCE, id, err);
    if (!e) {
        return err->code;
    }
    *c = (struct change){.call = call, .m = inst_join(call, e), .t = txn_open(call)};
    if (c->m.state == INSTANCE_TERMINATED || c->m.state == INSTANCE_SHUTTING_DOWN) {
        return fail(err, -EINVAL, "IncorrectInstanceState",
                    "The instance '%.*s' is terminated: it cannot be changed.", STR_ARG(id));
    }
    c->rec = *c->m.spec;
    if (c->m.eni) {
        c->eni = *REC(eni, c->m.eni);
    }
    return 0;
}

static int change_commit(struct change *c, struct err *err)
{
    int r = aws_dry_run(c->call, err);
    if (r < 0) {
        return r;
    }
    /* A guest that switched itself off stays off: compute takes a newer wish to run for a start. */
    if (c->is_for_compute && c->m.state == INSTANCE_STOPPED) {
        c->rec.want = STR(INSTANCE_WANT_STOPPED);
    }
    c->rec.generation += c->is_for_compute;
    if (c->is_eni_changed) {
        c->eni.generation++;
        txn_update(c->t, c->m.eni, &eni_desc, &c->eni);
    }
    txn_update(c->t, c->m.entry, &instance_desc, &c->rec);
    return txn_commit(c->t, err);
}

int ec2_modify_instance_attribute(struct aws_call *call, const void *input, void *output,
                                  struct err *err)
{
    const struct ec2_modify_instance_attribute_request *in = input;
    struct change *c = arena_new_of(call->arena, struct change);
    int r = change_open(call, in->instance_id, c, err);
    if (r < 0 || (r = change_all(c, in, err)) < 0) {
        return r;
    }
    return change_commit(c, err);
}

int ec2_modify_instance_metadata_options(struct aws_call *call, const void *input, void *output,
                                         struct err *err)
{
    const struct ec2_modify_instance_metadata_options_request *in = input;
    struct ec2_modify_instance_metadata_options_result *out = output;
    struct change *c = arena_new_of(call->arena, struct change);
    int r = change_open(call, in->instance_id, c, err);
    if (r < 0) {
        return r;
    }
    if (in->http_put_response_hop_limit.is_set &&
        (in->http_put_response_hop_limit.v < 1 || in->http_put_response_hop_limit.v > 64)) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%lld) for parameter HttpPutResponseHopLimit is invalid. The value "
                    "must be from 1 to 64.",
                    (long long)in->http_put_response_hop_limit.v);
    }
    if (in->http_protocol_ipv6.n > 0 && !str_eqc(in->http_protocol_ipv6, "disabled")) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "The metadata service over IPv6 is not supported here.");
    }
    c->rec.http_tokens = in->http_tokens.n > 0 ? in->http_tokens : c->rec.http_tokens;
    c->rec.http_endpoint = in->http_endpoint.n > 0 ? in->http_endpoint : c->rec.http_endpoint;
    if (in->http_put_response_hop_limit.is_set) {
        c->rec.http_hop_limit = (uint64_t)in->http_put_response_hop_limit.v;
    }
    if (in->instance_metadata_tags.n > 0) {
        c->rec.is_tags_in_metadata = str_eqc(in->instance_metadata_tags, "enabled");
    }
    out->instance_id = c->rec.id;
    struct ec2_instance shown = {0};
    struct inst m = c->m;
    m.spec = &c->rec;
    inst_out(call, &m, &shown);
    out->instance_metadata_options = shown.metadata_options;
    return change_commit(c, err);
}
