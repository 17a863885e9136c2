/* network.h — VPCs and what is in them, as the store holds them.
 * Not here: namespaces, taps, nftables (vpcd/).
 * Who writes: all specs awsgw; status/eni vpcd. Addresses are text, CIDRs "172.31.0.0/16".
 * Threads, memory, errors: see codec/rec.h. */
#pragma once
#include "codec/rec.h"

struct vpc { /* spec/vpc/<account>/<id> */
    struct rec_head head;
    struct str id, account, cidr, dhcp_options_id, tenancy;
    bool is_default, is_dns_support, is_dns_hostnames;
    struct str main_rtb_id, default_acl_id, default_sg_id;
    uint64_t create_ns;
};
extern const struct rec_desc vpc_desc;

struct subnet { /* spec/subnet/<account>/<id> */
    struct rec_head head;
    struct str id, account, vpc_id, cidr, az, az_id;
    bool is_default_for_az, is_public_ip_on_launch;
    struct str rtb_id; /* "" = the VPC's main table */
    struct str acl_id, acl_association_id;
    uint64_t create_ns;
};
extern const struct rec_desc subnet_desc;

struct igw { /* spec/igw/<account>/<id> */
    struct rec_head head;
    struct str id, account, vpc_id; /* vpc_id "" = not attached */
};
extern const struct rec_desc igw_desc;

struct route {
    struct rec_head head;
    /* target: "local", "igw-...", ...; origin as DescribeRouteTables prints it */
    struct str dest, target, origin;
};
struct route_list {
    struct route *v;
    size_t n;
};
struct rtb { /* spec/rtb/<account>/<id> */
    struct rec_head head;
    /* main_association_id "" = not the main table */
    struct str id, account, vpc_id, main_association_id;
    struct route_list routes;
};
extern const struct rec_desc rtb_desc;

struct acl_entry {
    struct rec_head head;
    uint64_t number; /* 1..32767 */
    struct str protocol, action, cidr;
    bool is_egress;
    int64_t port_from, port_to, icmp_type, icmp_code; /* -1 = none */
};
struct acl_entry_list {
    struct acl_entry *v;
    size_t n;
};
struct acl { /* spec/acl/<account>/<id> */
    struct rec_head head;
    struct str id, account, vpc_id;
    bool is_default;
    struct acl_entry_list entries;
};
extern const struct rec_desc acl_desc;

struct sg_rule {
    struct rec_head head;
    struct str id; /* "sgr-..." */
    bool is_egress;
    struct str protocol;        /* "tcp", "udp", "icmp", "icmpv6", "-1", or a number */
    int64_t port_from, port_to; /* -1 -1 = all; for ICMP type and code */
    /* exactly one is set */
    struct str cidr, cidr6, group_id, prefix_list_id;
    struct str group_account, description;
};
struct sg_rule_list {
    struct sg_rule *v;
    size_t n;
};
struct sg { /* spec/sg/<account>/<id>; name unique per VPC by claim/sgname/<vpc>/<name> */
    struct rec_head head;
    struct str id, account, vpc_id, name, description;
    struct sg_rule_list rules;
};
extern const struct rec_desc sg_desc;

struct eni { /* spec/eni/<account>/<id> */
    struct rec_head head;
    struct str id, account, vpc_id, subnet_id, az, description;
    struct str mac, private_ip, private_dns;
    struct str_list sg_ids;
    struct str
        public_ip; /* "" = none; claim/publicip/<address> holds the id of the interface */
    struct str instance_id, attachment_id;
    uint64_t device_index, attach_ns, create_ns;
    bool is_deleted_on_termination, is_source_dest_checked, is_requester_managed;
    struct str requester_id;
    uint64_t generation;
    struct str want; /* "present" or "deleted" */
    struct str node;
};
extern const struct rec_desc eni_desc;

struct eni_status { /* status/eni/<account>/<id>, by vpcd */
    struct rec_head head;
    struct str id;
    uint64_t generation;
    struct str state; /* "ready", "error", "deleted" */
    struct str reason;
};
extern const struct rec_desc eni_status_desc;

/* IPv4 text helpers, host byte order. */
MUST_CHECK int ip4_parse(struct str s, uint32_t *ret);
struct str ip4_fmt(struct arena *a, uint32_t ip);
/* host bits must be 0: -EINVAL */
MUST_CHECK int cidr4_parse(struct str s, uint32_t *ret_net, unsigned *ret_len);
