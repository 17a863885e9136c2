#include "model/network.h"

static const struct rec_field vpc_fields[] = {
    REC_FIELD(struct vpc, REC_STR, id),
    REC_FIELD(struct vpc, REC_STR, account),
    REC_FIELD(struct vpc, REC_STR, cidr),
    REC_FIELD(struct vpc, REC_STR, dhcp_options_id),
    REC_FIELD(struct vpc, REC_STR, tenancy),
    REC_FIELD(struct vpc, REC_BOOL, is_default),
    REC_FIELD(struct vpc, REC_BOOL, is_dns_support),
    REC_FIELD(struct vpc, REC_BOOL, is_dns_hostnames),
    REC_FIELD(struct vpc, REC_STR, main_rtb_id),
    REC_FIELD(struct vpc, REC_STR, default_acl_id),
    REC_FIELD(struct vpc, REC_STR, default_sg_id),
    REC_FIELD(struct vpc, REC_U64, create_ns),
};
REC_DESC(vpc_desc, struct vpc, "vpc", 1, vpc_fields);

static const struct rec_field subnet_fields[] = {
    REC_FIELD(struct subnet, REC_STR, id),
    REC_FIELD(struct subnet, REC_STR, account),
    REC_FIELD(struct subnet, REC_STR, vpc_id),
    REC_FIELD(struct subnet, REC_STR, cidr),
    REC_FIELD(struct subnet, REC_STR, az),
    REC_FIELD(struct subnet, REC_STR, az_id),
    REC_FIELD(struct subnet, REC_BOOL, is_default_for_az),
    REC_FIELD(struct subnet, REC_BOOL, is_public_ip_on_launch),
    REC_FIELD(struct subnet, REC_STR, rtb_id),
    REC_FIELD(struct subnet, REC_STR, acl_id),
    REC_FIELD(struct subnet, REC_STR, acl_association_id),
    REC_FIELD(struct subnet, REC_U64, create_ns),
};
REC_DESC(subnet_desc, struct subnet, "subnet", 1, subnet_fields);

static const struct rec_field igw_fields[] = {
    REC_FIELD(struct igw, REC_STR, id),
    REC_FIELD(struct igw, REC_STR, account),
    REC_FIELD(struct igw, REC_STR, vpc_id),
};
REC_DESC(igw_desc, struct igw, "igw", 1, igw_fields);

static const struct rec_field route_fields[] = {
    REC_FIELD(struct route, REC_STR, dest),
    REC_FIELD(struct route, REC_STR, target),
    REC_FIELD(struct route, REC_STR, origin),
};
static REC_DESC(route_desc, struct route, "route", 1, route_fields);

static const struct rec_field rtb_fields[] = {
    REC_FIELD(struct rtb, REC_STR, id),
    REC_FIELD(struct rtb, REC_STR, account),
    REC_FIELD(struct rtb, REC_STR, vpc_id),
    REC_FIELD(struct rtb, REC_STR, main_association_id),
    REC_FIELD_SUB(struct rtb, REC_OBJ_LIST, routes, &route_desc),
};
REC_DESC(rtb_desc, struct rtb, "rtb", 1, rtb_fields);

static const struct rec_field acl_entry_fields[] = {
    REC_FIELD(struct acl_entry, REC_U64, number),
    REC_FIELD(struct acl_entry, REC_STR, protocol),
    REC_FIELD(struct acl_entry, REC_STR, action),
    REC_FIELD(struct acl_entry, REC_STR, cidr),
    REC_FIELD(struct acl_entry, REC_BOOL, is_egress),
    REC_FIELD(struct acl_entry, REC_I64, port_from),
    REC_FIELD(struct acl_entry, REC_I64, port_to),
    REC_FIELD(struct acl_entry, REC_I64, icmp_type),
    REC_FIELD(struct acl_entry, REC_I64, icmp_code),
};
static REC_DESC(acl_entry_desc, struct acl_entry, "acl entry", 1, acl_entry_fields);

static const struct rec_field acl_fields[] = {
    REC_FIELD(struct acl, REC_STR, id),
    REC_FIELD(struct acl, REC_STR, account),
    REC_FIELD(struct acl, REC_STR, vpc_id),
    REC_FIELD(struct acl, REC_BOOL, is_default),
    REC_FIELD_SUB(struct acl, REC_OBJ_LIST, entries, &acl_entry_desc),
};
REC_DESC(acl_desc, struct acl, "acl", 1, acl_fields);

static const struct rec_field sg_rule_fields[] = {
    REC_FIELD(struct sg_rule, REC_STR, id),
    REC_FIELD(struct sg_rule, REC_BOOL, is_egress),
    REC_FIELD(struct sg_rule, REC_STR, protocol),
    REC_FIELD(struct sg_rule, REC_I64, port_from),
    REC_FIELD(struct sg_rule, REC_I64, port_to),
    REC_FIELD(struct sg_rule, REC_STR, cidr),
    REC_FIELD(struct sg_rule, REC_STR, cidr6),
    REC_FIELD(struct sg_rule, REC_STR, group_id),
    REC_FIELD(struct sg_rule, REC_STR, prefix_list_id),
    REC_FIELD(struct sg_rule, REC_STR, group_account),
    REC_FIELD(struct sg_rule, REC_STR, description),
};
static REC_DESC(sg_rule_desc, struct sg_rule, "sg rule", 1, sg_rule_fields);

static const struct rec_field sg_fields[] = {
    REC_FIELD(struct sg, REC_STR, id),
    REC_FIELD(struct sg, REC_STR, account),
    REC_FIELD(struct sg, REC_STR, vpc_id),
    REC_FIELD(struct sg, REC_STR, name),
    REC_FIELD(struct sg, REC_STR, description),
    REC_FIELD_SUB(struct sg, REC_OBJ_LIST, rules, &sg_rule_desc),
};
REC_DESC(sg_desc, struct sg, "sg", 1, sg_fields);

static const struct rec_field eni_fields[] = {
    REC_FIELD(struct eni, REC_STR, id),
    REC_FIELD(struct eni, REC_STR, account),
    REC_FIELD(struct eni, REC_STR, vpc_id),
    REC_FIELD(struct eni, REC_STR, subnet_id),
    REC_FIELD(struct eni, REC_STR, az),
    REC_FIELD(struct eni, REC_STR, description),
    REC_FIELD(struct eni, REC_STR, mac),
    REC_FIELD(struct eni, REC_STR, private_ip),
    REC_FIELD(struct eni, REC_STR, private_dns),
    REC_FIELD(struct eni, REC_STR_LIST, sg_ids),
    REC_FIELD(struct eni, REC_STR, public_ip),
    REC_FIELD(struct eni, REC_STR, instance_id),
    REC_FIELD(struct eni, REC_STR, attachment_id),
    REC_FIELD(struct eni, REC_U64, device_index),
    REC_FIELD(struct eni, REC_U64, attach_ns),
    REC_FIELD(struct eni, REC_U64, create_ns),
    REC_FIELD(struct eni, REC_BOOL, is_deleted_on_termination),
    REC_FIELD(struct eni, REC_BOOL, is_source_dest_checked),
    REC_FIELD(struct eni, REC_BOOL, is_requester_managed),
    REC_FIELD(struct eni, REC_STR, requester_id),
    REC_FIELD(struct eni, REC_U64, generation),
    REC_FIELD(struct eni, REC_STR, want),
    REC_FIELD(struct eni, REC_STR, node),
};
REC_DESC(eni_desc, struct eni, "eni", 1, eni_fields);

static const struct rec_field eni_status_fields[] = {
    REC_FIELD(struct eni_status, REC_STR, id),
    REC_FIELD(struct eni_status, REC_U64, generation),
    REC_FIELD(struct eni_status, REC_STR, state),
    REC_FIELD(struct eni_status, REC_STR, reason),
};
REC_DESC(eni_status_desc, struct eni_status, "eni status", 1, eni_status_fields);
