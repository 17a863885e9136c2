/* DescribeRouteTables, DescribeInternetGateways, DescribeNetworkAcls. */
#include "awsgw/ops.h"

#include "awsgw/describe.h"
#include "awsgw/tagset.h"
#include "model/network.h"

#include <errno.h>

/* ---- DescribeRouteTables ---- */

static const char *const rtb_filters[] = {
    "association.gateway-id",
    "association.main",
    "association.route-table-association-id",
    "association.route-table-id",
    "association.subnet-id",
    "owner-id",
    "route-table-id",
    "route.carrier-gateway-id",
    "route.destination-cidr-block",
    "route.destination-ipv6-cidr-block",
    "route.destination-prefix-list-id",
    "route.egress-only-internet-gateway-id",
    "route.gateway-id",
    "route.instance-id",
    "route.nat-gateway-id",
    "route.origin",
    "route.state",
    "route.transit-gateway-id",
    "route.vpc-peering-connection-id",
    "transit-gateway-id",
    "vpc-id",
};

/* Subnets that name the table themselves. */
static struct entries explicit_subnets(struct aws_call *call, const struct rtb *t)
{
    struct entries all = store_list(gw_of(call), call->arena, "subnet", call->account);
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        if (str_eq(REC(subnet, all.v[i])->rtb_id, t->id)) {
            all.v[n++] = all.v[i];
        }
    }
    all.n = n;
    return all;
}

static struct str subnet_association_id(struct arena *a, const struct subnet *s)
{
    return arena_fmt(a, "rtbassoc-%.*s", STR_ARG(str_skip(s->id, strlen("subnet-"))));
}

static void association_values(struct aws_call *call, const struct rtb *t, size_t name_idx,
                               struct aws_filter_probe *p)
{
    bool is_main = t->main_association_id.n > 0;
    struct entries subnets = explicit_subnets(call, t);
    switch (name_idx) {
    case 1: aws_filter_add_bool(p, is_main); break;
    case 2:
        if (is_main) {
            aws_filter_add(p, t->main_association_id);
        }
        break;
    case 3:
        if (is_main || subnets.n > 0) {
            aws_filter_add(p, t->id);
        }
        break;
    default: break;
    }
    for (size_t i = 0; i < subnets.n && (name_idx == 2 || name_idx == 4); i++) {
        const struct subnet *s = REC(subnet, subnets.v[i]);
        aws_filter_add(p, name_idx == 2 ? subnet_association_id(call->arena, s) : s->id);
    }
}

static void route_values(const struct rtb *t, size_t name_idx, struct aws_filter_probe *p)
{
    for (size_t i = 0; i < t->routes.n; i++) {
        const struct route *r = &t->routes.v[i];
        switch (name_idx) {
        case 8: aws_filter_add(p, r->dest); break;
        case 12: aws_filter_add(p, r->target); break;
        case 15: aws_filter_add(p, r->origin); break;
        case 16: aws_filter_addc(p, "active"); break;
        default: break; /* no such targets */
        }
    }
}

static void rtb_values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    const struct rtb *t = REC(rtb, (const struct view_entry *)obj);
    switch (name_idx) {
    case 5: aws_filter_add(p, t->account); break;
    case 6: aws_filter_add(p, t->id); break;
    case 20: aws_filter_add(p, t->vpc_id); break;
    default:
        if (name_idx < 5) {
            association_values(ctx, t, name_idx, p);
        } else {
            route_values(t, name_idx, p);
        }
        break;
    }
}

static void association_out(struct arena *a, const struct rtb *t, struct str id,
                            struct str subnet_id, bool is_main,
                            struct ec2_route_table_association *o)
{
    o->main = some_bool(is_main);
    o->route_table_association_id = id;
    o->route_table_id = t->id;
    o->subnet_id = subnet_id;
    o->association_state = arena_new_of(a, struct ec2_route_table_association_state);
    o->association_state->state = STR("associated");
}

static void rtb_out(struct aws_call *call, const struct rtb *t, struct ec2_route_table *o)
{
    struct arena *a = call->arena;
    bool is_main = t->main_association_id.n > 0;
    struct entries subnets = explicit_subnets(call, t);
    o->route_table_id = t->id;
    o->vpc_id = t->vpc_id;
    o->owner_id = t->account;
    AWS_LIST_MAKE(a, &o->propagating_vgws, 0);
    AWS_LIST_MAKE(a, &o->associations, subnets.n + (is_main ? 1 : 0));
    if (is_main) {
        association_out(a, t, t->main_association_id, STR_NONE, true,
                        &o->associations.v[subnets.n]);
    }
    for (size_t i = 0; i < subnets.n; i++) {
        const struct subnet *s = REC(subnet, subnets.v[i]);
        association_out(a, t, subnet_association_id(a, s), s->id, false, &o->associations.v[i]);
    }
    AWS_LIST_MAKE(a, &o->routes, t->routes.n);
    for (size_t i = 0; i < t->routes.n; i++) {
        o->routes.v[i].destination_cidr_block = t->routes.v[i].dest;
        o->routes.v[i].gateway_id = t->routes.v[i].target;
        o->routes.v[i].origin = t->routes.v[i].origin;
        o->routes.v[i].state = STR("active");
    }
    tags_out(a, tags_of(gw_of(call), a, call->account, t->id), &o->tags);
}

int ec2_describe_route_tables(struct aws_call *call, const void *input, void *output,
                              struct err *err)
{
    const struct ec2_describe_route_tables_request *in = input;
    struct ec2_describe_route_tables_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_ROUTE_TABLE,
        .rec_kind = "rtb",
        .filters = rtb_filters,
        .n_filters = ARRAY_LEN(rtb_filters),
        .values = rtb_values,
        .page_min = 5,
        .page_max = 100,
    };
    const struct describe_in din = {&in->route_table_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->route_tables, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        rtb_out(call, REC(rtb, shown.v[i]), &out->route_tables.v[i]);
    }
    return 0;
}

/* ---- DescribeInternetGateways ---- */

static const char *const igw_filters[] = {"attachment.state", "attachment.vpc-id",
                                          "internet-gateway-id", "owner-id"};

static void igw_values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    const struct igw *g = REC(igw, (const struct view_entry *)obj);
    if (name_idx < 2) {
        if (g->vpc_id.n > 0) {
            aws_filter_add(p, name_idx == 0 ? STR("available") : g->vpc_id);
        }
        return;
    }
    aws_filter_add(p, name_idx == 2 ? g->id : g->account);
}

int ec2_describe_internet_gateways(struct aws_call *call, const void *input, void *output,
                                   struct err *err)
{
    const struct ec2_describe_internet_gateways_request *in = input;
    struct ec2_describe_internet_gateways_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_IGW,
        .rec_kind = "igw",
        .filters = igw_filters,
        .n_filters = ARRAY_LEN(igw_filters),
        .values = igw_values,
        .page_min = 5,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->internet_gateway_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->internet_gateways, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        const struct igw *g = REC(igw, shown.v[i]);
        struct ec2_internet_gateway *o = &out->internet_gateways.v[i];
        o->internet_gateway_id = g->id;
        o->owner_id = g->account;
        AWS_LIST_MAKE(call->arena, &o->attachments, g->vpc_id.n > 0 ? 1 : 0);
        if (g->vpc_id.n > 0) {
            o->attachments.v[0].state =
                STR("available"); /* what AWS answers for a gateway that is attached */
            o->attachments.v[0].vpc_id = g->vpc_id;
        }
        tags_out(call->arena, tags_of(gw_of(call), call->arena, call->account, g->id),
                 &o->tags);
    }
    return 0;
}

/* ---- DescribeNetworkAcls ---- */

static const char *const acl_filters[] = {
    "association.association-id",
    "association.network-acl-id",
    "association.subnet-id",
    "default",
    "entry.cidr",
    "entry.icmp.code",
    "entry.icmp.type",
    "entry.ipv6-cidr",
    "entry.port-range.from",
    "entry.port-range.to",
    "entry.protocol",
    "entry.rule-action",
    "entry.egress",
    "entry.rule-number",
    "network-acl-id",
    "owner-id",
    "vpc-id",
};

static struct entries acl_subnets(struct aws_call *call, const struct acl *l)
{
    struct entries all = store_list(gw_of(call), call->arena, "subnet", call->account);
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        if (str_eq(REC(subnet, all.v[i])->acl_id, l->id)) {
            all.v[n++] = all.v[i];
        }
    }
    all.n = n;
    return all;
}

static void entry_values(const struct acl *l, size_t name_idx, struct aws_filter_probe *p)
{
    for (size_t i = 0; i < l->entries.n; i++) {
        const struct acl_entry *e = &l->entries.v[i];
        switch (name_idx) {
        case 4: aws_filter_add(p, e->cidr); break;
        case 5: aws_filter_add_i64(p, e->icmp_code); break;
        case 6: aws_filter_add_i64(p, e->icmp_type); break;
        case 8: aws_filter_add_i64(p, e->port_from); break;
        case 9: aws_filter_add_i64(p, e->port_to); break;
        case 10: aws_filter_add(p, e->protocol); break;
        case 11: aws_filter_add(p, e->action); break;
        case 12: aws_filter_add_bool(p, e->is_egress); break;
        case 13: aws_filter_add_i64(p, (int64_t)e->number); break;
        default: break;
        }
    }
}

static void acl_values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    const struct acl *l = REC(acl, (const struct view_entry *)obj);
    if (name_idx < 3) {
        struct entries subnets = acl_subnets(ctx, l);
        for (size_t i = 0; i < subnets.n; i++) {
            const struct subnet *s = REC(subnet, subnets.v[i]);
            aws_filter_add(p, name_idx == 0   ? s->acl_association_id
                              : name_idx == 1 ? l->id
                                              : s->id);
        }
        return;
    }
    switch (name_idx) {
    case 3: aws_filter_add_bool(p, l->is_default); break;
    case 14: aws_filter_add(p, l->id); break;
    case 15: aws_filter_add(p, l->account); break;
    case 16: aws_filter_add(p, l->vpc_id); break;
    default: entry_values(l, name_idx, p); break;
    }
}

static void acl_out(struct aws_call *call, const struct acl *l, struct ec2_network_acl *o)
{
    struct arena *a = call->arena;
    struct entries subnets = acl_subnets(call, l);
    o->network_acl_id = l->id;
    o->vpc_id = l->vpc_id;
    o->owner_id = l->account;
    o->is_default = some_bool(l->is_default);
    AWS_LIST_MAKE(a, &o->associations, subnets.n);
    for (size_t i = 0; i < subnets.n; i++) {
        o->associations.v[i].network_acl_association_id =
            REC(subnet, subnets.v[i])->acl_association_id;
        o->associations.v[i].network_acl_id = l->id;
        o->associations.v[i].subnet_id = REC(subnet, subnets.v[i])->id;
    }
    AWS_LIST_MAKE(a, &o->entries, l->entries.n);
    for (size_t i = 0; i < l->entries.n; i++) {
        const struct acl_entry *e = &l->entries.v[i];
        struct ec2_network_acl_entry *oe = &o->entries.v[i];
        oe->cidr_block = e->cidr;
        oe->egress = some_bool(e->is_egress);
        oe->protocol = e->protocol;
        oe->rule_action = e->action;
        oe->rule_number = some_i64((int64_t)e->number);
        if (e->port_from >= 0) {
            oe->port_range = arena_new_of(a, struct ec2_port_range);
            oe->port_range->from = some_i64(e->port_from);
            oe->port_range->to = some_i64(e->port_to);
        }
    }
    tags_out(a, tags_of(gw_of(call), a, call->account, l->id), &o->tags);
}

int ec2_describe_network_acls(struct aws_call *call, const void *input, void *output,
                              struct err *err)
{
    const struct ec2_describe_network_acls_request *in = input;
    struct ec2_describe_network_acls_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_ACL,
        .rec_kind = "acl",
        .filters = acl_filters,
        .n_filters = ARRAY_LEN(acl_filters),
        .values = acl_values,
        .page_min = 5,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->network_acl_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->network_acls, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        acl_out(call, REC(acl, shown.v[i]), &out->network_acls.v[i]);
    }
    return 0;
}
