/* DescribeVpcs, DescribeVpcAttribute, DescribeSubnets. */
#include "awsgw/ops.h"

#include "aws/arn.h"
#include "awsgw/alloc.h"
#include "awsgw/describe.h"
#include "awsgw/tagset.h"

#include <errno.h>

/* ---- DescribeVpcs ---- */

static const char *const vpc_filters[] = {
    "cidr",
    "cidr-block-association.cidr-block",
    "cidr-block-association.association-id",
    "cidr-block-association.state",
    "dhcp-options-id",
    "ipv6-cidr-block-association.ipv6-cidr-block",
    "ipv6-cidr-block-association.ipv6-pool",
    "ipv6-cidr-block-association.association-id",
    "ipv6-cidr-block-association.state",
    "is-default",
    "isDefault",
    "owner-id",
    "state",
    "vpc-id",
    "cidr-block",
    "cidrBlock",
};

/* The id of the association of a VPC with its first range: made from the VPC's id, so that it
 * never changes. */
static struct str cidr_association_id(struct arena *a, const struct vpc *v)
{
    return arena_fmt(a, "vpc-cidr-assoc-%.*s", STR_ARG(str_skip(v->id, strlen("vpc-"))));
}

static void vpc_values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    const struct vpc *v = REC(vpc, (const struct view_entry *)obj);
    switch (name_idx) {
    case 0:
    case 1:
    case 14:
    case 15: aws_filter_add(p, v->cidr); break;
    case 2: aws_filter_add(p, cidr_association_id(call->arena, v)); break;
    case 3: aws_filter_addc(p, "associated"); break;
    case 4: aws_filter_add(p, v->dhcp_options_id); break;
    case 9:
    case 10: aws_filter_add_bool(p, v->is_default); break;
    case 11: aws_filter_add(p, v->account); break;
    case 12: aws_filter_addc(p, "available"); break;
    case 13: aws_filter_add(p, v->id); break;
    default: break; /* no IPv6 */
    }
}

static void vpc_out(struct aws_call *call, const struct vpc *v, struct ec2_vpc *o)
{
    struct arena *a = call->arena;
    o->vpc_id = v->id;
    o->owner_id = v->account;
    o->state = STR("available");
    o->cidr_block = v->cidr;
    o->dhcp_options_id = v->dhcp_options_id;
    o->instance_tenancy = v->tenancy;
    o->is_default = some_bool(v->is_default);
    AWS_LIST_MAKE(a, &o->cidr_block_association_set, 1);
    o->cidr_block_association_set.v[0].association_id = cidr_association_id(a, v);
    o->cidr_block_association_set.v[0].cidr_block = v->cidr;
    o->cidr_block_association_set.v[0].cidr_block_state =
        arena_new_of(a, struct ec2_vpc_cidr_block_state);
    o->cidr_block_association_set.v[0].cidr_block_state->state = STR("associated");
    tags_out(a, tags_of(gw_of(call), a, call->account, v->id), &o->tags);
}

int ec2_describe_vpcs(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_describe_vpcs_request *in = input;
    struct ec2_describe_vpcs_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_VPC,
        .rec_kind = "vpc",
        .filters = vpc_filters,
        .n_filters = ARRAY_LEN(vpc_filters),
        .values = vpc_values,
        .ids_param = "vpcSet",
        .page_min = 5,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->vpc_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->vpcs, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        vpc_out(call, REC(vpc, shown.v[i]), &out->vpcs.v[i]);
    }
    return 0;
}

int ec2_describe_vpc_attribute(struct aws_call *call, const void *input, void *output,
                               struct err *err)
{
    const struct ec2_describe_vpc_attribute_request *in = input;
    struct ec2_describe_vpc_attribute_result *out = output;
    const struct view_entry *e = find_one(call, AWS_ID_VPC, in->vpc_id, err);
    int r = e ? aws_dry_run(call, err) : err->code;
    if (r < 0) {
        return r;
    }
    const struct vpc *v = REC(vpc, e);
    struct ec2_attribute_boolean_value *value =
        arena_new_of(call->arena, struct ec2_attribute_boolean_value);
    out->vpc_id = v->id;
    if (str_eqc(in->attribute, "enableDnsSupport")) {
        value->value = some_bool(v->is_dns_support);
        out->enable_dns_support = value;
    } else if (str_eqc(in->attribute, "enableDnsHostnames")) {
        value->value = some_bool(v->is_dns_hostnames);
        out->enable_dns_hostnames = value;
    } else {
        value->value = some_bool(false);
        out->enable_network_address_usage_metrics = value;
    }
    return 0;
}

/* ---- DescribeSubnets ---- */

static const char *const subnet_filters[] = {
    "availability-zone",
    "availabilityZone",
    "availability-zone-id",
    "availabilityZoneId",
    "available-ip-address-count",
    "cidr-block",
    "cidr",
    "cidrBlock",
    "customer-owned-ipv4-pool",
    "default-for-az",
    "defaultForAz",
    "enable-dns64",
    "enable-lni-at-device-index",
    "ipv6-cidr-block-association.ipv6-cidr-block",
    "ipv6-cidr-block-association.association-id",
    "ipv6-cidr-block-association.state",
    "ipv6-native",
    "map-customer-owned-ip-on-launch",
    "map-public-ip-on-launch",
    "outpost-arn",
    "owner-id",
    "private-dns-name-options-on-launch.hostname-type",
    "private-dns-name-options-on-launch.enable-resource-name-dns-a-record",
    "private-dns-name-options-on-launch.enable-resource-name-dns-aaaa-record",
    "state",
    "subnet-arn",
    "subnet-id",
    "vpc-id",
};

static int64_t free_addresses(struct aws_call *call, const struct subnet *s)
{
    struct ip_picker p;
    struct err e = ERR_INIT;
    return ip_picker_subnet(gw_of(call), call->arena, s, &p, &e) < 0 ? 0
                                                                     : (int64_t)ip_n_free(&p);
}

static struct str subnet_arn(const struct aws_call *call, const struct subnet *s)
{
    return arn_ec2(call->arena, call->region, s->account, "subnet", s->id);
}

static void subnet_values(void *ctx, const void *obj, size_t name_idx,
                          struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    const struct subnet *s = REC(subnet, (const struct view_entry *)obj);
    switch (name_idx) {
    case 0:
    case 1: aws_filter_add(p, s->az); break;
    case 2:
    case 3: aws_filter_add(p, s->az_id); break;
    case 4: aws_filter_add_i64(p, free_addresses(call, s)); break;
    case 5:
    case 6:
    case 7: aws_filter_add(p, s->cidr); break;
    case 9:
    case 10: aws_filter_add_bool(p, s->is_default_for_az); break;
    case 11: aws_filter_add_bool(p, false); break;
    case 16: aws_filter_add_bool(p, false); break;
    case 17: aws_filter_add_bool(p, false); break;
    case 18: aws_filter_add_bool(p, s->is_public_ip_on_launch); break;
    case 20: aws_filter_add(p, s->account); break;
    case 21: aws_filter_addc(p, "ip-name"); break;
    case 22: aws_filter_add_bool(p, false); break;
    case 23: aws_filter_add_bool(p, false); break;
    case 24: aws_filter_addc(p, "available"); break;
    case 25: aws_filter_add(p, subnet_arn(call, s)); break;
    case 26: aws_filter_add(p, s->id); break;
    case 27: aws_filter_add(p, s->vpc_id); break;
    default: break;
    }
}

static void subnet_out(struct aws_call *call, const struct subnet *s, struct ec2_subnet *o)
{
    struct arena *a = call->arena;
    o->subnet_id = s->id;
    o->subnet_arn = subnet_arn(call, s);
    o->state = STR("available");
    o->vpc_id = s->vpc_id;
    o->owner_id = s->account;
    o->cidr_block = s->cidr;
    o->available_ip_address_count = some_i64(free_addresses(call, s));
    o->availability_zone = s->az;
    o->availability_zone_id = s->az_id;
    o->default_for_az = some_bool(s->is_default_for_az);
    o->map_public_ip_on_launch = some_bool(s->is_public_ip_on_launch);
    o->map_customer_owned_ip_on_launch = some_bool(false);
    o->assign_ipv6_address_on_creation = some_bool(false);
    AWS_LIST_MAKE(a, &o->ipv6_cidr_block_association_set, 0);
    o->enable_dns64 = some_bool(false);
    o->ipv6_native = some_bool(false);
    o->private_dns_name_options_on_launch =
        arena_new_of(a, struct ec2_private_dns_name_options_on_launch);
    o->private_dns_name_options_on_launch->hostname_type = STR("ip-name");
    o->private_dns_name_options_on_launch->enable_resource_name_dns_a_record = some_bool(false);
    o->private_dns_name_options_on_launch->enable_resource_name_dns_aaaa_record =
        some_bool(false);
    tags_out(a, tags_of(gw_of(call), a, call->account, s->id), &o->tags);
}

int ec2_describe_subnets(struct aws_call *call, const void *input, void *output,
                         struct err *err)
{
    const struct ec2_describe_subnets_request *in = input;
    struct ec2_describe_subnets_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_SUBNET,
        .rec_kind = "subnet",
        .filters = subnet_filters,
        .n_filters = ARRAY_LEN(subnet_filters),
        .values = subnet_values,
        .ids_param = "subnetSet",
        .page_min = 5,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->subnet_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->subnets, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        subnet_out(call, REC(subnet, shown.v[i]), &out->subnets.v[i]);
    }
    return 0;
}
