/* Security groups: Create, Delete, Describe, Authorize, Revoke. */
#include "awsgw/ops.h"

#include "aws/arn.h"
#include "awsgw/defaults.h"
#include "awsgw/describe.h"
#include "awsgw/sgrule.h"
#include "awsgw/tagset.h"
#include "model/keys.h"

#include <errno.h>

#define NAME_MAX_LEN 255u
#define GROUPS_MAX   2500u /* per account (VPC quotas) */

/* By id, or by name in the default VPC. */
static const struct view_entry *find_group(struct aws_call *call, struct str id,
                                           struct str name, struct err *err)
{
    if (str_is_set(id)) {
        return find_one(call, AWS_ID_SECURITY_GROUP, id, err);
    }
    if (!str_is_set(name)) {
        fail(err, -EINVAL, "MissingParameter",
             "The request must contain the parameter groupName or groupId");
        return NULL;
    }
    struct account_defaults d;
    if (defaults_find(gw_of(call), call->arena, call->account, &d)) {
        struct entries all = store_list(gw_of(call), call->arena, "sg", call->account);
        for (size_t i = 0; i < all.n; i++) {
            const struct sg *g = REC(sg, all.v[i]);
            if (str_eq(g->name, name) && str_eq(g->vpc_id, d.vpc->id)) {
                return all.v[i];
            }
        }
    }
    fail(err, -ENOENT, "InvalidGroup.NotFound",
         "The security group '%.*s' does not exist in default VPC", STR_ARG(name));
    return NULL;
}

/* ---- CreateSecurityGroup ---- */

/* The characters that the API reference allows in names and descriptions of VPC groups. */
static bool is_text_ok(struct str s)
{
    static const char extra[] = " ._-:/()#,@[]+=&;{}!$*";
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool is_alnum =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_alnum && (c == '\0' || !strchr(extra, c))) {
            return false;
        }
    }
    return s.n > 0 && s.n <= NAME_MAX_LEN;
}

static int check_new_group(struct aws_call *call,
                           const struct ec2_create_security_group_request *in,
                           const struct vpc **ret_vpc, struct err *err)
{
    if (!is_text_ok(in->group_name) || str_has_prefixc(in->group_name, "sg-")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter GroupName is invalid.",
                    STR_ARG(in->group_name));
    }
    if (!is_text_ok(in->description)) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter GroupDescription is invalid.",
                    STR_ARG(in->description));
    }
    if (str_is_set(in->vpc_id)) {
        const struct view_entry *e = find_one(call, AWS_ID_VPC, in->vpc_id, err);
        if (!e) {
            return err->code;
        }
        *ret_vpc = REC(vpc, e);
    } else {
        struct account_defaults d;
        if (!defaults_find(gw_of(call), call->arena, call->account, &d)) {
            return fail(err, -EINVAL, "VPCIdNotSpecified", "No default VPC for this user");
        }
        *ret_vpc = d.vpc;
    }
    if (str_eqc(in->group_name, "default")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Cannot use reserved security group name: default");
    }
    if (store_has(gw_of(call), key_claim(call->arena, "sgname", (*ret_vpc)->id,
                                         name_key(call->arena, in->group_name)))) {
        return fail(err, -EEXIST, "InvalidGroup.Duplicate",
                    "The security group '%.*s' already exists for VPC '%.*s'",
                    STR_ARG(in->group_name), STR_ARG((*ret_vpc)->id));
    }
    if (store_list(gw_of(call), call->arena, "sg", call->account).n >= GROUPS_MAX) {
        return fail(err, -E2BIG, "SecurityGroupLimitExceeded",
                    "The maximum number of security groups has been reached.");
    }
    return 0;
}

int ec2_create_security_group(struct aws_call *call, const void *input, void *output,
                              struct err *err)
{
    const struct ec2_create_security_group_request *in = input;
    struct ec2_create_security_group_result *out = output;
    static const char *const allowed[] = {"security-group", NULL};
    const struct vpc *vpc = NULL;
    struct tag_list tags = {0};
    int r = check_new_group(call, in, &vpc, err);
    if (r < 0 ||
        (r = tags_from_spec(call->arena, &in->tag_specifications, "security-group", allowed,
                            &tags, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    struct sg_rule egress = {.id = id_new(call->arena, "sgr"),
                             .is_egress = true,
                             .protocol = STR("-1"),
                             .port_from = -1,
                             .port_to = -1,
                             .cidr = STR("0.0.0.0/0")};
    struct sg g = {.id = id_new(call->arena, "sg"),
                   .account = call->account,
                   .vpc_id = vpc->id,
                   .name = in->group_name,
                   .description = in->description,
                   .rules = {&egress, 1}};
    struct txn *t = txn_open(call);
    txn_create(t, key_spec(call->arena, "sg", call->account, g.id), &sg_desc, &g);
    txn_claim(t, key_claim(call->arena, "sgname", vpc->id, name_key(call->arena, g.name)),
              g.id);
    tags_create(t, call->account, g.id, "security-group", tags);
    out->group_id = g.id;
    out->security_group_arn =
        arn_ec2(call->arena, call->region, g.account, "security-group", g.id);
    tags_out(call->arena, tags, &out->tags);
    return txn_commit(t, err);
}

/* ---- DeleteSecurityGroup ---- */

/* Whether there are any or not: somebody may be tagging the rule at this moment. */
static void delete_rule_tags(struct aws_call *call, struct txn *t, const struct sg_rule *r)
{
    txn_delete_key(t, key_spec(call->arena, "tags", call->account, r->id));
}

static bool is_group_used(struct aws_call *call, const struct sg *g)
{
    struct entries enis = store_list(gw_of(call), call->arena, "eni", call->account);
    for (size_t i = 0; i < enis.n; i++) {
        const struct eni *e = REC(eni, enis.v[i]);
        for (size_t k = 0; k < e->sg_ids.n; k++) {
            if (str_eq(e->sg_ids.v[k], g->id)) {
                return true;
            }
        }
    }
    struct entries groups = store_list(gw_of(call), call->arena, "sg", call->account);
    for (size_t i = 0; i < groups.n; i++) {
        const struct sg *o = REC(sg, groups.v[i]);
        for (size_t k = 0; !str_eq(o->id, g->id) && k < o->rules.n; k++) {
            if (str_eq(o->rules.v[k].group_id, g->id)) {
                return true;
            }
        }
    }
    return false;
}

int ec2_delete_security_group(struct aws_call *call, const void *input, void *output,
                              struct err *err)
{
    const struct ec2_delete_security_group_request *in = input;
    struct ec2_delete_security_group_result *out = output;
    const struct view_entry *e = find_group(call, in->group_id, in->group_name, err);
    if (!e) {
        return err->code;
    }
    const struct sg *g = REC(sg, e);
    if (str_eqc(g->name, "default")) {
        return fail(
            err, -EPERM, "CannotDelete",
            "the specified group: \"%.*s\" name: \"default\" cannot be deleted by a user",
            STR_ARG(g->id));
    }
    struct txn *t = txn_open(call);
    txn_lock(t, sg_use_key(call->arena, g->vpc_id));
    if (is_group_used(call, g)) {
        return fail(err, -EBUSY, "DependencyViolation", "resource %.*s has a dependent object",
                    STR_ARG(g->id));
    }
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    txn_delete(t, e);
    txn_delete_key(t,
                   key_claim(call->arena, "sgname", g->vpc_id, name_key(call->arena, g->name)));
    txn_delete_key(t, key_spec(call->arena, "tags", call->account, g->id));
    _Static_assert(2 * SG_RULES_MAX + 4 <= KV_MAX_OPS, "a group with all its rules' tags");
    for (size_t i = 0; i < g->rules.n; i++) {
        delete_rule_tags(call, t, &g->rules.v[i]);
    }
    out->return_ = some_bool(true);
    out->group_id = g->id;
    return txn_commit(t, err);
}

/* ---- Authorize ---- */

static size_t count_rules(const struct sg *g, bool is_egress)
{
    size_t n = 0;
    for (size_t i = 0; i < g->rules.n; i++) {
        n += g->rules.v[i].is_egress == is_egress;
    }
    return n;
}

/* Reads the rules that a request names, in either form. */
static int read_rules(struct aws_call *call, const struct sg *g, bool is_egress,
                      const struct ec2_ip_permission_list *perms, const struct sg_flat *flat,
                      struct sg_rule_list *ret, struct err *err)
{
    size_t cap = 2 * SG_RULES_MAX;
    ret->v = arena_xalloc(call->arena, cap * sizeof(*ret->v));
    ret->n = 0;
    if (perms->n > 0 && sg_flat_is_set(flat)) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "The parameter ipPermissions may not be used with single rule parameters.");
    }
    int r = perms->n > 0 ? sgrules_from_permissions(call, g, is_egress, perms, ret, cap, err)
            : sg_flat_is_set(flat)
                ? sgrules_from_flat(call, g, is_egress, flat, ret, cap, err)
                : fail(err, -EINVAL, "MissingParameter",
                       "Either 'ipPermissions' or 'securityGroupRuleIds' should be provided.");
    return r;
}

struct authorize {
    struct str group_id, group_name;
    bool is_egress;
    const struct ec2_ip_permission_list *perms;
    struct sg_flat flat;
    const struct ec2_tag_specification_list *tag_specs;
};

static int authorize_rules(struct aws_call *call, const struct authorize *q,
                           struct opt_bool *ret_return,
                           struct ec2_security_group_rule_list *ret_rules, struct err *err)
{
    static const char *const allowed[] = {"security-group-rule", NULL};
    const struct view_entry *e = find_group(call, q->group_id, q->group_name, err);
    struct sg_rule_list add;
    struct tag_list tags = {0};
    struct txn *t = txn_open(call);
    if (e) {
        txn_lock(t, sg_use_key(call->arena, REC(sg, e)->vpc_id));
    }
    int r = e ? read_rules(call, REC(sg, e), q->is_egress, q->perms, &q->flat, &add, err)
              : err->code;
    if (r < 0 || (r = tags_from_spec(call->arena, q->tag_specs, "security-group-rule", allowed,
                                     &tags, err)) < 0) {
        return r;
    }
    struct sg g = *REC(sg, e);
    for (size_t i = 0; i < add.n; i++) {
        for (size_t k = 0; k < g.rules.n; k++) {
            if (sgrule_eq(&g.rules.v[k], &add.v[i])) {
                return fail(err, -EEXIST, "InvalidPermission.Duplicate",
                            "the specified rule \"%.*s\" already exists",
                            STR_ARG(sgrule_text(call->arena, &add.v[i])));
            }
        }
    }
    if (count_rules(&g, q->is_egress) + add.n > SG_RULES_MAX) {
        return fail(err, -E2BIG, "RulesPerSecurityGroupLimitExceeded",
                    "The maximum number of rules per security group has been reached.");
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    struct sg_rule *all = arena_xalloc(call->arena, (g.rules.n + add.n) * sizeof(*all));
    memcpy(all, g.rules.v, g.rules.n * sizeof(*all));
    AWS_LIST_MAKE(call->arena, ret_rules, add.n);
    for (size_t i = 0; i < add.n; i++) {
        add.v[i].id = id_new(call->arena, "sgr");
        all[g.rules.n + i] = add.v[i];
        tags_create(t, call->account, add.v[i].id, "security-group-rule", tags);
        sgrule_out(call, &g, &add.v[i], &ret_rules->v[i]);
        tags_out(call->arena, tags, &ret_rules->v[i].tags);
    }
    g.rules = (struct sg_rule_list){all, g.rules.n + add.n};
    txn_update(t, e, &sg_desc, &g);
    *ret_return = some_bool(true);
    return txn_commit(t, err);
}

int ec2_authorize_security_group_ingress(struct aws_call *call, const void *input, void *output,
                                         struct err *err)
{
    const struct ec2_authorize_security_group_ingress_request *in = input;
    struct ec2_authorize_security_group_ingress_result *out = output;
    const struct authorize q = {
        .group_id = in->group_id,
        .group_name = in->group_name,
        .perms = &in->ip_permissions,
        .flat = {in->ip_protocol, in->cidr_ip, in->source_security_group_name,
                 in->source_security_group_owner_id, in->from_port, in->to_port},
        .tag_specs = &in->tag_specifications,
    };
    return authorize_rules(call, &q, &out->return_, &out->security_group_rules, err);
}

int ec2_authorize_security_group_egress(struct aws_call *call, const void *input, void *output,
                                        struct err *err)
{
    const struct ec2_authorize_security_group_egress_request *in = input;
    struct ec2_authorize_security_group_egress_result *out = output;
    const struct authorize q = {
        .group_id = in->group_id,
        .is_egress = true,
        .perms = &in->ip_permissions,
        .flat = {in->ip_protocol, in->cidr_ip, in->source_security_group_name,
                 in->source_security_group_owner_id, in->from_port, in->to_port},
        .tag_specs = &in->tag_specifications,
    };
    return authorize_rules(call, &q, &out->return_, &out->security_group_rules, err);
}

/* ---- Revoke ---- */

struct revoke {
    struct str group_id, group_name;
    bool is_egress;
    const struct ec2_ip_permission_list *perms;
    const struct aws_str_list *rule_ids;
    struct sg_flat flat;
};

static bool is_listed(const struct sg_rule *r, const struct revoke *q,
                      const struct sg_rule_list *named)
{
    for (size_t i = 0; i < q->rule_ids->n; i++) {
        if (str_eq(q->rule_ids->v[i], r->id)) {
            return true;
        }
    }
    for (size_t i = 0; i < named->n; i++) {
        if (sgrule_eq(&named->v[i], r)) {
            return true;
        }
    }
    return false;
}

/* Every rule that is named must be there. */
static int check_named(struct aws_call *call, const struct sg *g, const struct revoke *q,
                       const struct sg_rule_list *named, struct err *err)
{
    int r = aws_ids_check(AWS_ID_SECURITY_GROUP_RULE, q->rule_ids, err);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < q->rule_ids->n; i++) {
        bool is_there = false;
        for (size_t k = 0; k < g->rules.n; k++) {
            is_there = is_there || (g->rules.v[k].is_egress == q->is_egress &&
                                    str_eq(g->rules.v[k].id, q->rule_ids->v[i]));
        }
        if (!is_there) {
            return aws_id_not_found(AWS_ID_SECURITY_GROUP_RULE, &q->rule_ids->v[i], 1, err);
        }
    }
    for (size_t i = 0; i < named->n; i++) {
        bool is_there = false;
        for (size_t k = 0; k < g->rules.n; k++) {
            is_there = is_there || sgrule_eq(&g->rules.v[k], &named->v[i]);
        }
        if (!is_there) {
            return fail(err, -ENOENT, "InvalidPermission.NotFound",
                        "The specified rule does not exist in this security group.");
        }
    }
    return 0;
}

static void revoked_out(const struct sg *g, const struct sg_rule *r,
                        struct ec2_revoked_security_group_rule *o)
{
    o->security_group_rule_id = r->id;
    o->group_id = g->id;
    o->is_egress = some_bool(r->is_egress);
    o->ip_protocol = r->protocol;
    o->from_port = some_i64(r->port_from);
    o->to_port = some_i64(r->port_to);
    o->cidr_ipv4 = r->cidr.n > 0 ? r->cidr : STR_NONE;
    o->cidr_ipv6 = r->cidr6.n > 0 ? r->cidr6 : STR_NONE;
    o->referenced_group_id = r->group_id.n > 0 ? r->group_id : STR_NONE;
    o->description = r->description.n > 0 ? r->description : STR_NONE;
}

static int revoke_rules(struct aws_call *call, const struct revoke *q,
                        struct opt_bool *ret_return,
                        struct ec2_revoked_security_group_rule_list *ret_rules, struct err *err)
{
    const struct view_entry *e = find_group(call, q->group_id, q->group_name, err);
    struct sg_rule_list named = {0};
    int r = e ? 0 : err->code;
    if (r == 0 && (q->rule_ids->n == 0 || q->perms->n > 0 || sg_flat_is_set(&q->flat))) {
        r = read_rules(call, REC(sg, e), q->is_egress, q->perms, &q->flat, &named, err);
    }
    if (r < 0 || (r = check_named(call, REC(sg, e), q, &named, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    struct sg g = *REC(sg, e);
    struct sg_rule *left = arena_xalloc(call->arena, (g.rules.n + 1) * sizeof(*left));
    size_t n_left = 0;
    struct txn *t = txn_open(call);
    AWS_LIST_MAKE(call->arena, ret_rules, g.rules.n);
    ret_rules->n = 0;
    for (size_t i = 0; i < g.rules.n; i++) {
        const struct sg_rule *rule = &g.rules.v[i];
        if (rule->is_egress != q->is_egress || !is_listed(rule, q, &named)) {
            left[n_left++] = *rule;
            continue;
        }
        revoked_out(&g, rule, &ret_rules->v[ret_rules->n++]);
        delete_rule_tags(call, t, rule);
    }
    g.rules = (struct sg_rule_list){left, n_left};
    txn_update(t, e, &sg_desc, &g);
    *ret_return = some_bool(true);
    return txn_commit(t, err);
}

int ec2_revoke_security_group_ingress(struct aws_call *call, const void *input, void *output,
                                      struct err *err)
{
    const struct ec2_revoke_security_group_ingress_request *in = input;
    struct ec2_revoke_security_group_ingress_result *out = output;
    const struct revoke q = {
        .group_id = in->group_id,
        .group_name = in->group_name,
        .perms = &in->ip_permissions,
        .rule_ids = &in->security_group_rule_ids,
        .flat = {in->ip_protocol, in->cidr_ip, in->source_security_group_name,
                 in->source_security_group_owner_id, in->from_port, in->to_port},
    };
    AWS_LIST_MAKE(call->arena, &out->unknown_ip_permissions, 0);
    return revoke_rules(call, &q, &out->return_, &out->revoked_security_group_rules, err);
}

int ec2_revoke_security_group_egress(struct aws_call *call, const void *input, void *output,
                                     struct err *err)
{
    const struct ec2_revoke_security_group_egress_request *in = input;
    struct ec2_revoke_security_group_egress_result *out = output;
    const struct revoke q = {
        .group_id = in->group_id,
        .is_egress = true,
        .perms = &in->ip_permissions,
        .rule_ids = &in->security_group_rule_ids,
        .flat = {in->ip_protocol, in->cidr_ip, in->source_security_group_name,
                 in->source_security_group_owner_id, in->from_port, in->to_port},
    };
    AWS_LIST_MAKE(call->arena, &out->unknown_ip_permissions, 0);
    return revoke_rules(call, &q, &out->return_, &out->revoked_security_group_rules, err);
}
