#include "awsgw/defaults.h"

#include "awsgw/region.h"
#include "awsgw/store.h"
#include "base/time.h"
#include "model/keys.h"
#include "model/network.h"

#define DEFAULT_VPC_CIDR    "172.31.0.0/16"
#define DEFAULT_SUBNET_CIDR "172.31.0.0/20"

static void add_acl(struct txn *t, struct str account, struct str vpc_id, struct str acl_id)
{
    struct acl_entry entries[4] = {0};
    for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
        entries[i] = (struct acl_entry){
            .number = i % 2 ? 32767 : 100,
            .protocol = STR("-1"),
            .action = i % 2 ? STR("deny") : STR("allow"),
            .cidr = STR("0.0.0.0/0"),
            .is_egress = i >= 2,
            .port_from = -1,
            .port_to = -1,
            .icmp_type = -1,
            .icmp_code = -1,
        };
    }
    struct acl acl = {.id = acl_id,
                      .account = account,
                      .vpc_id = vpc_id,
                      .is_default = true,
                      .entries = {entries, ARRAY_LEN(entries)}};
    txn_create(t, key_spec(t->a, "acl", account, acl_id), &acl_desc, &acl);
}

/* The default group: everything from its own members, everything out (VPC user guide, default
 * security groups). */
static void add_group(struct txn *t, struct str account, struct str vpc_id, struct str sg_id)
{
    struct sg_rule rules[2] = {
        {.id = id_new(t->a, "sgr"),
         .protocol = STR("-1"),
         .port_from = -1,
         .port_to = -1,
         .group_id = sg_id,
         .group_account = account},
        {.id = id_new(t->a, "sgr"),
         .is_egress = true,
         .protocol = STR("-1"),
         .port_from = -1,
         .port_to = -1,
         .cidr = STR("0.0.0.0/0")},
    };
    struct sg sg = {
        .id = sg_id,
        .account = account,
        .vpc_id = vpc_id,
        .name = STR("default"),
        .description = STR("default VPC security group"),
        .rules = {rules, ARRAY_LEN(rules)},
    };
    txn_create(t, key_spec(t->a, "sg", account, sg_id), &sg_desc, &sg);
    txn_claim(t, key_claim(t->a, "sgname", vpc_id, STR("default")), sg_id);
}

static void add_routes(struct txn *t, struct str account, const struct vpc *vpc,
                       struct str igw_id)
{
    struct route routes[2] = {
        {.dest = vpc->cidr, .target = STR("local"), .origin = STR("CreateRouteTable")},
        {.dest = STR("0.0.0.0/0"), .target = igw_id, .origin = STR("CreateRoute")},
    };
    struct rtb rtb = {
        .id = vpc->main_rtb_id,
        .account = account,
        .vpc_id = vpc->id,
        .main_association_id = id_new(t->a, "rtbassoc"),
        .routes = {routes, ARRAY_LEN(routes)},
    };
    txn_create(t, key_spec(t->a, "rtb", account, rtb.id), &rtb_desc, &rtb);
    struct igw igw = {.id = igw_id, .account = account, .vpc_id = vpc->id};
    txn_create(t, key_spec(t->a, "igw", account, igw_id), &igw_desc, &igw);
}

void defaults_add(struct txn *t, struct str account)
{
    struct arena *a = t->a;
    struct vpc vpc = {
        .id = id_new(a, "vpc"),
        .account = account,
        .cidr = STR(DEFAULT_VPC_CIDR),
        .dhcp_options_id = id_new(a, "dopt"),
        .tenancy = STR("default"),
        .is_default = true,
        .is_dns_support = true,
        .is_dns_hostnames = true,
        .main_rtb_id = id_new(a, "rtb"),
        .default_acl_id = id_new(a, "acl"),
        .default_sg_id = id_new(a, "sg"),
        .create_ns = time_wall_ns(),
    };
    struct subnet subnet = {
        .id = id_new(a, "subnet"),
        .account = account,
        .vpc_id = vpc.id,
        .cidr = STR(DEFAULT_SUBNET_CIDR),
        .az = zone_name(t->gw),
        .az_id = zone_id(t->gw, a),
        .is_default_for_az = true,
        .is_public_ip_on_launch = true,
        .rtb_id = STR(""),
        .acl_id = vpc.default_acl_id,
        .acl_association_id = id_new(a, "aclassoc"),
        .create_ns = vpc.create_ns,
    };
    txn_create(t, key_spec(a, "vpc", account, vpc.id), &vpc_desc, &vpc);
    txn_create(t, key_spec(a, "subnet", account, subnet.id), &subnet_desc, &subnet);
    add_acl(t, account, vpc.id, vpc.default_acl_id);
    add_group(t, account, vpc.id, vpc.default_sg_id);
    add_routes(t, account, &vpc, id_new(a, "igw"));
}

bool defaults_find(struct gw *gw, struct arena *a, struct str account,
                   struct account_defaults *ret)
{
    *ret = (struct account_defaults){0};
    struct entries vpcs = store_list(gw, a, "vpc", account);
    for (size_t i = 0; i < vpcs.n && !ret->vpc; i++) {
        const struct vpc *v = REC(vpc, vpcs.v[i]);
        ret->vpc = v->is_default ? v : NULL;
    }
    struct entries subnets = store_list(gw, a, "subnet", account);
    for (size_t i = 0; ret->vpc && i < subnets.n && !ret->subnet; i++) {
        const struct subnet *s = REC(subnet, subnets.v[i]);
        ret->subnet = s->is_default_for_az && str_eq(s->vpc_id, ret->vpc->id) ? s : NULL;
    }
    return ret->vpc && ret->subnet;
}
