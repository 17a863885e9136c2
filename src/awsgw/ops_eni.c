/* DescribeNetworkInterfaces, DescribeAddresses, DescribeAddressesAttribute. */
#include "awsgw/ops.h"

#include "awsgw/describe.h"
#include "awsgw/inst.h"
#include "awsgw/region.h"
#include "awsgw/tagset.h"

#include <errno.h>

static const char *const filters[] = {
    "association.allocation-id",
    "association.association-id",
    "addresses.association.owner-id",
    "addresses.association.public-ip",
    "addresses.primary",
    "addresses.private-ip-address",
    "association.ip-owner-id",
    "association.public-ip",
    "association.public-dns-name",
    "attachment.attach-time",
    "attachment.attachment-id",
    "attachment.delete-on-termination",
    "attachment.device-index",
    "attachment.instance-id",
    "attachment.instance-owner-id",
    "attachment.nat-gateway-id",
    "attachment.status",
    "availability-zone",
    "availability-zone-id",
    "description",
    "group-id",
    "group-name",
    "ipv6-addresses.ipv6-address",
    "interface-type",
    "mac-address",
    "network-interface-id",
    "operator.managed",
    "operator.principal",
    "owner-id",
    "private-dns-name",
    "private-ip-address",
    "requester-id",
    "requester-managed",
    "source-dest-check",
    "status",
    "subnet-id",
    "vpc-id",
};

static void address_values(struct aws_call *call, const struct eni *e, size_t name_idx,
                           struct aws_filter_probe *p)
{
    switch (name_idx) {
    case 4: aws_filter_add_bool(p, true); return;
    case 5: aws_filter_add(p, e->private_ip); return;
    default: break;
    }
    if (e->public_ip.n == 0) {
        return;
    }
    switch (name_idx) {
    case 2:
    case 6: aws_filter_addc(p, "amazon"); break;
    case 3:
    case 7: aws_filter_add(p, e->public_ip); break;
    case 8: aws_filter_add(p, public_dns_name(gw_of(call), call->arena, e->public_ip)); break;
    default: break; /* not an allocated address */
    }
}

static void attachment_values(const struct eni *e, size_t name_idx, struct aws_filter_probe *p)
{
    if (e->instance_id.n == 0) {
        return;
    }
    switch (name_idx) {
    case 9: aws_filter_add_time(p, e->attach_ns); break;
    case 10: aws_filter_add(p, e->attachment_id); break;
    case 11: aws_filter_add_bool(p, e->is_deleted_on_termination); break;
    case 12: aws_filter_add_i64(p, (int64_t)e->device_index); break;
    case 13: aws_filter_add(p, e->instance_id); break;
    case 14: aws_filter_add(p, e->account); break;
    case 16: aws_filter_addc(p, "attached"); break;
    default: break;
    }
}

static void group_values(struct aws_call *call, const struct eni *e, bool is_by_id,
                         struct aws_filter_probe *p)
{
    for (size_t i = 0; i < e->sg_ids.n; i++) {
        const struct sg *g =
            REC(sg, store_spec(gw_of(call), call->arena, "sg", call->account, e->sg_ids.v[i]));
        if (is_by_id || g) {
            aws_filter_add(p, is_by_id ? e->sg_ids.v[i] : g->name);
        }
    }
}

static void values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    const struct eni *e = REC(eni, (const struct view_entry *)obj);
    switch (name_idx) {
    case 17: aws_filter_add(p, e->az); break;
    case 18: aws_filter_add(p, zone_id(gw_of(call), call->arena)); break;
    case 19: aws_filter_add(p, e->description); break;
    case 20:
    case 21: group_values(call, e, name_idx == 20, p); break;
    case 23: aws_filter_addc(p, "interface"); break;
    case 24: aws_filter_add(p, e->mac); break;
    case 25: aws_filter_add(p, e->id); break;
    case 26: aws_filter_add_bool(p, false); break;
    case 28: aws_filter_add(p, e->account); break;
    case 29: aws_filter_add(p, e->private_dns); break;
    case 30: aws_filter_add(p, e->private_ip); break;
    case 31:
        if (e->requester_id.n > 0) {
            aws_filter_add(p, e->requester_id);
        }
        break;
    case 32: aws_filter_add_bool(p, e->is_requester_managed); break;
    case 33: aws_filter_add_bool(p, e->is_source_dest_checked); break;
    case 34: aws_filter_addc(p, e->instance_id.n > 0 ? "in-use" : "available"); break;
    case 35: aws_filter_add(p, e->subnet_id); break;
    case 36: aws_filter_add(p, e->vpc_id); break;
    default:
        if (name_idx < 9) {
            address_values(call, e, name_idx, p);
        } else {
            attachment_values(e, name_idx, p);
        }
        break;
    }
}

static void association_out(struct aws_call *call, const struct eni *e,
                            struct ec2_network_interface_association **out)
{
    if (e->public_ip.n == 0) {
        return;
    }
    *out = arena_new_of(call->arena, struct ec2_network_interface_association);
    (*out)->ip_owner_id = STR("amazon");
    (*out)->public_ip = e->public_ip;
    (*out)->public_dns_name = public_dns_name(gw_of(call), call->arena, e->public_ip);
}

static void attachment_out(struct arena *a, const struct eni *e,
                           struct ec2_network_interface_attachment **out)
{
    if (e->instance_id.n == 0) {
        return;
    }
    *out = arena_new_of(a, struct ec2_network_interface_attachment);
    (*out)->attach_time = some_time(e->attach_ns);
    (*out)->attachment_id = e->attachment_id;
    (*out)->delete_on_termination = some_bool(e->is_deleted_on_termination);
    (*out)->device_index = some_i64((int64_t)e->device_index);
    (*out)->network_card_index = some_i64(0);
    (*out)->instance_id = e->instance_id;
    (*out)->instance_owner_id = e->account;
    (*out)->status = STR("attached");
}

static void eni_out(struct aws_call *call, const struct eni *e, struct ec2_network_interface *o)
{
    struct arena *a = call->arena;
    association_out(call, e, &o->association);
    attachment_out(a, e, &o->attachment);
    o->availability_zone = e->az;
    o->availability_zone_id = zone_id(gw_of(call), a);
    o->description = e->description;
    groups_out(call, e->sg_ids, &o->groups);
    o->interface_type = STR("interface");
    AWS_LIST_MAKE(a, &o->ipv6_addresses, 0);
    o->mac_address = e->mac;
    o->network_interface_id = e->id;
    o->owner_id = e->account;
    o->private_dns_name = e->private_dns;
    o->private_ip_address = e->private_ip;
    AWS_LIST_MAKE(a, &o->private_ip_addresses, 1);
    o->private_ip_addresses.v[0].primary = some_bool(true);
    o->private_ip_addresses.v[0].private_ip_address = e->private_ip;
    o->private_ip_addresses.v[0].private_dns_name = e->private_dns;
    association_out(call, e, &o->private_ip_addresses.v[0].association);
    o->requester_id = e->requester_id.n > 0 ? e->requester_id : STR_NONE;
    o->requester_managed = some_bool(e->is_requester_managed);
    o->source_dest_check = some_bool(e->is_source_dest_checked);
    o->status = e->instance_id.n > 0 ? STR("in-use") : STR("available");
    o->subnet_id = e->subnet_id;
    o->vpc_id = e->vpc_id;
    o->deny_all_igw_traffic = some_bool(false);
    o->ipv6_native = some_bool(false);
    tags_out(a, tags_of(gw_of(call), a, call->account, e->id), &o->tag_set);
    if (!o->tag_set.is_set) {
        AWS_LIST_MAKE(a, &o->tag_set, 0); /* here EC2 shows an empty set */
    }
}

int ec2_describe_network_interfaces(struct aws_call *call, const void *input, void *output,
                                    struct err *err)
{
    const struct ec2_describe_network_interfaces_request *in = input;
    struct ec2_describe_network_interfaces_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_ENI,
        .rec_kind = "eni",
        .filters = filters,
        .n_filters = ARRAY_LEN(filters),
        .values = values,
        .ids_param = "networkInterfaceIdSet",
        .page_min = 5,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->network_interface_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->network_interfaces, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        eni_out(call, REC(eni, shown.v[i]), &out->network_interfaces.v[i]);
    }
    return 0;
}

/* ---- addresses: none is allocated yet, so every id is unknown and every list is empty ---- */

static const char *const address_filters[] = {
    "allocation-id",        "association-id",
    "instance-id",          "network-border-group",
    "network-interface-id", "network-interface-owner-id",
    "private-ip-address",   "public-ip",
};

static void no_values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
}

static int check_allocations(const struct aws_str_list *ids, struct err *err)
{
    int r = aws_ids_check(AWS_ID_ALLOCATION, ids, err);
    return r < 0 || ids->n == 0 ? r : aws_id_not_found(AWS_ID_ALLOCATION, ids->v, ids->n, err);
}

int ec2_describe_addresses(struct aws_call *call, const void *input, void *output,
                           struct err *err)
{
    const struct ec2_describe_addresses_request *in = input;
    struct ec2_describe_addresses_result *out = output;
    const struct aws_filter_spec fs = {.names = address_filters,
                                       .n_names = ARRAY_LEN(address_filters),
                                       .has_tags = true,
                                       .values = no_values,
                                       .tags = describe_tags};
    struct aws_filter *f = NULL;
    int r = check_allocations(&in->allocation_ids, err);
    if (r == 0 && in->public_ips.n > 0) {
        r = fail(err, -ENOENT, "InvalidAddress.NotFound", "Address '%.*s' not found.",
                 STR_ARG(in->public_ips.v[0]));
    }
    if (r < 0 || (r = aws_filter_open(call->arena, &fs, &in->filters, &f, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->addresses, 0);
    return 0;
}

int ec2_describe_addresses_attribute(struct aws_call *call, const void *input, void *output,
                                     struct err *err)
{
    const struct ec2_describe_addresses_attribute_request *in = input;
    struct ec2_describe_addresses_attribute_result *out = output;
    int r = check_allocations(&in->allocation_ids, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->addresses, 0);
    return 0;
}
