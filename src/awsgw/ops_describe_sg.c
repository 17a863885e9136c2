/* DescribeSecurityGroups, DescribeSecurityGroupRules. */
#include "awsgw/ops.h"

#include "aws/arn.h"
#include "awsgw/defaults.h"
#include "awsgw/describe.h"
#include "awsgw/sgrule.h"
#include "awsgw/tagset.h"

#include <errno.h>

/* ---- DescribeSecurityGroups ---- */

static const char *const group_filters[] = {
    "description",
    "egress.ip-permission.cidr",
    "egress.ip-permission.from-port",
    "egress.ip-permission.group-id",
    "egress.ip-permission.group-name",
    "egress.ip-permission.ipv6-cidr",
    "egress.ip-permission.prefix-list-id",
    "egress.ip-permission.protocol",
    "egress.ip-permission.to-port",
    "egress.ip-permission.user-id",
    "group-id",
    "group-name",
    "ip-permission.cidr",
    "ip-permission.from-port",
    "ip-permission.group-id",
    "ip-permission.group-name",
    "ip-permission.ipv6-cidr",
    "ip-permission.prefix-list-id",
    "ip-permission.protocol",
    "ip-permission.to-port",
    "ip-permission.user-id",
    "owner-id",
    "vpc-id",
};
enum { EGRESS_FIRST = 1, GROUP_ID = 10, GROUP_NAME = 11, INGRESS_FIRST = 12, OWNER_ID = 21 };

/* 'what' counts from cidr (0) to user-id (8), the same in both directions. */
static void rule_values(struct aws_call *call, const struct sg *g, bool is_egress, size_t what,
                        struct aws_filter_probe *p)
{
    for (size_t i = 0; i < g->rules.n; i++) {
        const struct sg_rule *r = &g->rules.v[i];
        if (r->is_egress != is_egress) {
            continue;
        }
        const struct sg *ref = NULL;
        struct str text = STR_NONE;
        switch (what) {
        case 0: text = r->cidr; break;
        case 1: aws_filter_add_i64(p, r->port_from); break;
        case 2: text = r->group_id; break;
        case 3:
            ref =
                REC(sg, store_spec(gw_of(call), call->arena, "sg", call->account, r->group_id));
            text = ref ? ref->name : STR_NONE;
            break;
        case 4: text = r->cidr6; break;
        case 5: text = r->prefix_list_id; break;
        case 6: text = r->protocol; break;
        case 7: aws_filter_add_i64(p, r->port_to); break;
        default: text = r->group_account; break;
        }
        if (text.n > 0) {
            aws_filter_add(p, text);
        }
    }
}

static void group_values(void *ctx, const void *obj, size_t name_idx,
                         struct aws_filter_probe *p)
{
    const struct sg *g = REC(sg, (const struct view_entry *)obj);
    if (name_idx == 0) {
        aws_filter_add(p, g->description);
    } else if (name_idx == GROUP_ID) {
        aws_filter_add(p, g->id);
    } else if (name_idx == GROUP_NAME) {
        aws_filter_add(p, g->name);
    } else if (name_idx < GROUP_ID) {
        rule_values(ctx, g, true, name_idx - EGRESS_FIRST, p);
    } else if (name_idx < OWNER_ID) {
        rule_values(ctx, g, false, name_idx - INGRESS_FIRST, p);
    } else {
        aws_filter_add(p, name_idx == OWNER_ID ? g->account : g->vpc_id);
    }
}

/* Names mean groups of the default VPC; every one of them must be there. */
static int check_names(struct aws_call *call, const struct aws_str_list *names, struct err *err)
{
    struct account_defaults d;
    bool has_default = defaults_find(gw_of(call), call->arena, call->account, &d);
    struct entries all = store_list(gw_of(call), call->arena, "sg", call->account);
    for (size_t k = 0; k < names->n; k++) {
        bool is_there = false;
        for (size_t i = 0; has_default && i < all.n; i++) {
            const struct sg *g = REC(sg, all.v[i]);
            is_there =
                is_there || (str_eq(g->vpc_id, d.vpc->id) && str_eq(g->name, names->v[k]));
        }
        if (!is_there) {
            return fail(err, -ENOENT, "InvalidGroup.NotFound",
                        "The security group '%.*s' does not exist in default VPC '%.*s'",
                        STR_ARG(names->v[k]), STR_ARG(has_default ? d.vpc->id : STR("none")));
        }
    }
    return 0;
}

static bool is_named(struct aws_call *call, const struct sg *g,
                     const struct aws_str_list *names)
{
    struct account_defaults d;
    for (size_t k = 0; k < names->n; k++) {
        if (str_eq(g->name, names->v[k])) {
            return defaults_find(gw_of(call), call->arena, call->account, &d) &&
                   str_eq(g->vpc_id, d.vpc->id);
        }
    }
    return names->n == 0;
}

int ec2_describe_security_groups(struct aws_call *call, const void *input, void *output,
                                 struct err *err)
{
    const struct ec2_describe_security_groups_request *in = input;
    struct ec2_describe_security_groups_result *out = output;
    struct entries all, shown;
    int r = check_names(call, &in->group_names, err);
    if (r == 0 && in->group_ids.n > 0) {
        r = find_many(call, AWS_ID_SECURITY_GROUP, &in->group_ids, &all, err);
    } else {
        all = store_list(gw_of(call), call->arena, "sg", call->account);
    }
    if (r < 0) {
        return r;
    }
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        if (is_named(call, REC(sg, all.v[i]), &in->group_names)) {
            all.v[n++] = all.v[i];
        }
    }
    all.n = n;
    const struct describe_spec spec = {
        .kind = AWS_ID_SECURITY_GROUP,
        .rec_kind = "sg",
        .filters = group_filters,
        .n_filters = ARRAY_LEN(group_filters),
        .values = group_values,
        .ids_param = "securityGroupSet",
        .page_min = 5,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->group_ids, &in->filters, in->max_results,
                                    in->next_token};
    if ((r = describe_select(call, &spec, &din, all, &shown, &out->next_token, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->security_groups, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        const struct sg *g = REC(sg, shown.v[i]);
        struct ec2_security_group *o = &out->security_groups.v[i];
        o->group_id = g->id;
        o->group_name = g->name;
        o->description = g->description;
        o->owner_id = g->account;
        o->vpc_id = g->vpc_id;
        o->security_group_arn =
            arn_ec2(call->arena, call->region, g->account, "security-group", g->id);
        sgrules_to_permissions(call, g, false, &o->ip_permissions);
        sgrules_to_permissions(call, g, true, &o->ip_permissions_egress);
        tags_out(call->arena, tags_of(gw_of(call), call->arena, call->account, g->id),
                 &o->tags);
    }
    return 0;
}

/* ---- DescribeSecurityGroupRules ---- */

static const char *const rule_filters[] = {"group-id", "security-group-rule-id"};

struct rule_at {
    const struct sg *group;
    const struct sg_rule *rule;
};

static void one_rule_values(void *ctx, const void *obj, size_t name_idx,
                            struct aws_filter_probe *p)
{
    const struct rule_at *r = obj;
    aws_filter_add(p, name_idx == 0 ? r->group->id : r->rule->id);
}

static void one_rule_tags(void *ctx, const void *obj, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    struct tag_list tags = tags_of(gw_of(call), call->arena, call->account,
                                   ((const struct rule_at *)obj)->rule->id);
    for (size_t i = 0; i < tags.n; i++) {
        aws_filter_tag(p, tags.v[i].key, tags.v[i].value);
    }
}

static int by_rule_id(const void *a, const void *b)
{
    return str_cmp(((const struct rule_at *)a)->rule->id,
                   ((const struct rule_at *)b)->rule->id);
}

static struct rule_at *all_rules(struct aws_call *call, size_t *ret_n)
{
    struct entries groups = store_list(gw_of(call), call->arena, "sg", call->account);
    size_t n = 0;
    for (size_t i = 0; i < groups.n; i++) {
        n += REC(sg, groups.v[i])->rules.n;
    }
    struct rule_at *v = arena_xalloc(call->arena, (n + 1) * sizeof(*v));
    size_t k = 0;
    for (size_t i = 0; i < groups.n; i++) {
        const struct sg *g = REC(sg, groups.v[i]);
        for (size_t j = 0; j < g->rules.n; j++) {
            v[k++] = (struct rule_at){g, &g->rules.v[j]};
        }
    }
    qsort(v, n, sizeof(*v), by_rule_id);
    *ret_n = n;
    return v;
}

struct rule_set {
    const struct rule_at *v;
    size_t n;
};

static const void *find_rule(void *ctx, struct str id)
{
    const struct rule_set *s = ctx;
    for (size_t i = 0; i < s->n; i++) {
        if (str_eq(s->v[i].rule->id, id)) {
            return &s->v[i];
        }
    }
    return NULL;
}

int ec2_describe_security_group_rules(struct aws_call *call, const void *input, void *output,
                                      struct err *err)
{
    const struct ec2_describe_security_group_rules_request *in = input;
    struct ec2_describe_security_group_rules_result *out = output;
    const struct aws_filter_spec fs = {.names = rule_filters,
                                       .n_names = ARRAY_LEN(rule_filters),
                                       .has_tags = true,
                                       .values = one_rule_values,
                                       .tags = one_rule_tags};
    const struct aws_page_spec ps = {.min = 5,
                                     .max = 1000,
                                     .ids_param = "securityGroupRuleIdSet",
                                     .has_ids = in->security_group_rule_ids.n > 0};
    struct aws_filter *f = NULL;
    struct aws_page page;
    struct rule_set set = {0};
    const void **named = NULL;
    size_t n_named = 0;
    set.v = all_rules(call, &set.n);
    int r = aws_ids_resolve(AWS_ID_SECURITY_GROUP_RULE, &in->security_group_rule_ids, find_rule,
                            &set, call->arena, &named, &n_named, err);
    if (r < 0 || (r = aws_filter_open(call->arena, &fs, &in->filters, &f, err)) < 0 ||
        (r = aws_page_begin(call, &ps, in->max_results, in->next_token, &page, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    bool is_by_id = in->security_group_rule_ids.n > 0;
    size_t total = is_by_id ? n_named : set.n, n = 0;
    AWS_LIST_MAKE(call->arena, &out->security_group_rules, total);
    for (size_t i = 0; i < total; i++) {
        const struct rule_at *at = is_by_id ? named[i] : &set.v[i];
        bool is_before = str_is_set(page.after) && str_cmp(at->rule->id, page.after) <= 0;
        if (is_before || !aws_filter_match(f, call, at)) {
            continue;
        }
        if (n == page.max) {
            out->next_token =
                aws_page_token(call, out->security_group_rules.v[n - 1].security_group_rule_id);
            break;
        }
        sgrule_out(call, at->group, at->rule, &out->security_group_rules.v[n++]);
    }
    out->security_group_rules.n = n;
    return 0;
}
