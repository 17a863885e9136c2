#include "awsgw/launch.h"

#include "awsgw/defaults.h"
#include "base/num.h"
#include "codec/base64.h"
#include "model/keys.h"

#include <errno.h>

#define USER_DATA_MAX 16384u /* bytes after decoding (EC2 user guide, user data) */
#define SG_PER_ENI    5u

static int refuse(struct err *err, const char *what)
{
    return fail(err, -EOPNOTSUPP, "UnsupportedOperation", "%s is not supported here.", what);
}

static int check_image(struct aws_call *call, struct launch *l, struct err *err)
{
    if (!str_is_set(l->in->image_id)) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter ImageId");
    }
    const struct view_entry *e = image_find(call, l->in->image_id, err);
    if (!e) {
        return err->code;
    }
    l->image = REC(image, e);
    l->image_entry = e;
    if (!str_eqc(image_state(gw_of(call), call->arena, l->image, NULL), "available")) {
        return fail(err, -EINVAL, "InvalidAMIID.Unavailable",
                    "The image id '[%.*s]' is not available", STR_ARG(l->image->id));
    }
    return 0;
}

static int check_type(struct aws_call *call, struct launch *l, struct err *err)
{
    l->facts = node_facts_get(gw_of(call), call->arena);
    struct str name = str_is_set(l->in->instance_type) ? l->in->instance_type : STR("m1.small");
    l->type = node_type_find(l->facts, name);
    if (l->facts && !l->type) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Invalid value '%.*s' for InstanceType.", STR_ARG(name));
    }
    if (!l->facts) {
        return fail(err, -EBUSY, "InsufficientInstanceCapacity",
                    "The compute service has not reported yet: no capacity is known.");
    }
    if (!str_eq(l->image->arch, l->facts->arch)) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The architecture '%.*s' of the specified instance type does not match the "
                    "architecture '%.*s' of the specified AMI.",
                    STR_ARG(l->facts->arch), STR_ARG(l->image->arch));
    }
    return 0;
}

static int check_counts(struct launch *l, struct err *err)
{
    int64_t lo = l->in->min_count.v, hi = l->in->max_count.v;
    if (lo < 1 || hi < 1) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%lld) for parameter %s is invalid. Minimum value is 1.",
                    (long long)(lo < 1 ? lo : hi), lo < 1 ? "minCount" : "maxCount");
    }
    if (lo > hi) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%lld) for parameter minCount is invalid. It must be less than or "
                    "equal to maxCount (%lld).",
                    (long long)lo, (long long)hi);
    }
    l->n_min = (uint64_t)lo;
    l->n_max = (uint64_t)hi;
    return 0;
}

static int check_key(struct aws_call *call, struct launch *l, struct err *err)
{
    if (l->in->key_name.n == 0) {
        return 0;
    }
    l->key = REC(keypair, store_spec(gw_of(call), call->arena, "keypair", call->account,
                                     name_key(call->arena, l->in->key_name)));
    if (!l->key) {
        return fail(err, -ENOENT, "InvalidKeyPair.NotFound",
                    "The key pair '%.*s' does not exist", STR_ARG(l->in->key_name));
    }
    return 0;
}

static int check_user_data(struct launch *l, struct err *err)
{
    struct str text = l->in->user_data;
    if (!str_is_set(text)) {
        l->user_data = STR("");
        return 0;
    }
    AUTO_BUF raw;
    buf_init(&raw, USER_DATA_MAX);
    int r = base64_decode_lax(text, &raw);
    if (r == -E2BIG) {
        return fail(err, r, "InvalidParameterValue", "User data is limited to %u bytes",
                    USER_DATA_MAX);
    }
    if (r < 0) {
        return fail(err, r, "InvalidUserData.Malformed",
                    "Invalid BASE64 encoding of user data.");
    }
    l->user_data = text;
    return 0;
}

/* Groups by id and by name, without duplicates; all of one VPC. */
static int add_group(struct launch *l, const struct view_entry *e, struct err *err)
{
    const struct sg *g = REC(sg, e);
    for (size_t i = 0; i < l->sg_ids.n; i++) {
        if (str_eq(l->sg_ids.v[i], g->id)) {
            return 0;
        }
    }
    if (!str_eq(g->vpc_id, l->vpc->id)) {
        return fail(err, -EINVAL, "InvalidParameter",
                    "Security group %.*s and subnet %.*s belong to different networks.",
                    STR_ARG(g->id), STR_ARG(l->subnet->id));
    }
    if (l->sg_ids.n == SG_PER_ENI) {
        return fail(err, -EINVAL, "SecurityGroupsPerInterfaceLimitExceeded",
                    "The maximum number of security groups per interface has been reached.");
    }
    l->sg_ids.v[l->sg_ids.n++] = g->id;
    return 0;
}

static const struct view_entry *group_by_name(struct aws_call *call, const struct vpc *vpc,
                                              struct str name, struct err *err)
{
    struct entries all = store_list(gw_of(call), call->arena, "sg", call->account);
    for (size_t i = 0; i < all.n; i++) {
        const struct sg *g = REC(sg, all.v[i]);
        if (str_eq(g->vpc_id, vpc->id) && str_eq(g->name, name)) {
            return all.v[i];
        }
    }
    fail(err, -ENOENT, "InvalidGroup.NotFound",
         "The security group '%.*s' does not exist in VPC '%.*s'", STR_ARG(name),
         STR_ARG(vpc->id));
    return NULL;
}

static int check_groups(struct aws_call *call, struct launch *l, const struct aws_str_list *ids,
                        const struct aws_str_list *names, struct err *err)
{
    l->sg_ids.v = arena_xalloc(call->arena, SG_PER_ENI * sizeof(struct str));
    for (size_t i = 0; i < ids->n; i++) {
        const struct view_entry *e = find_one(call, AWS_ID_SECURITY_GROUP, ids->v[i], err);
        if (!e || add_group(l, e, err) < 0) {
            return err->code;
        }
    }
    for (size_t i = 0; names && i < names->n; i++) {
        const struct view_entry *e = group_by_name(call, l->vpc, names->v[i], err);
        if (!e || add_group(l, e, err) < 0) {
            return err->code;
        }
    }
    if (l->sg_ids.n == 0) {
        l->sg_ids.v[l->sg_ids.n++] = l->vpc->default_sg_id;
    }
    return 0;
}

static int check_subnet(struct aws_call *call, struct launch *l, struct str subnet_id,
                        struct err *err)
{
    if (str_is_set(subnet_id)) {
        const struct view_entry *e = find_one(call, AWS_ID_SUBNET, subnet_id, err);
        if (!e) {
            return err->code;
        }
        l->subnet = REC(subnet, e);
        l->vpc = REC(
            vpc, store_spec(gw_of(call), call->arena, "vpc", call->account, l->subnet->vpc_id));
        if (!l->vpc) {
            return fail(err, -ENOENT, "InvalidSubnetID.NotFound",
                        "The subnet ID '%.*s' does not exist", STR_ARG(subnet_id));
        }
        return 0;
    }
    struct account_defaults d;
    if (!defaults_find(gw_of(call), call->arena, call->account, &d)) {
        return fail(err, -EINVAL, "VPCIdNotSpecified", "No default VPC for this user");
    }
    l->vpc = d.vpc;
    l->subnet = d.subnet;
    return 0;
}

static int check_private_ip(struct launch *l, struct str ip, struct err *err)
{
    uint32_t addr = 0, net = 0;
    unsigned len = 0;
    if (!str_is_set(ip)) {
        l->private_ip = STR("");
        return 0;
    }
    if (ip4_parse(ip, &addr) < 0) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter privateIpAddress is invalid.", STR_ARG(ip));
    }
    if (cidr4_parse(l->subnet->cidr, &net, &len) < 0 || ((addr ^ net) >> (32 - len)) != 0) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Address does not fall within the subnet's address range");
    }
    if (l->n_max > 1) {
        return fail(
            err, -EINVAL, "InvalidParameterCombination",
            "A private IP address may not be specified when launching more than one instance");
    }
    l->private_ip = ip;
    return 0;
}

/* What of a network interface specification is not honoured is refused. */
static int check_eni_extras(const struct ec2_instance_network_interface_specification *n,
                            struct err *err)
{
    if (n->device_index.is_set && n->device_index.v != 0) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The network interface must have device index 0.");
    }
    if (n->network_card_index.is_set && n->network_card_index.v != 0) {
        return fail(err, -EINVAL, "InvalidParameterValue", "NetworkCardIndex must be 0.");
    }
    if (str_is_set(n->interface_type) && !str_eqc(n->interface_type, "interface")) {
        return refuse(err, "An InterfaceType other than 'interface'");
    }
    if ((n->ipv6_address_count.is_set && n->ipv6_address_count.v != 0) || n->ipv6_addresses.n ||
        n->ipv6_prefixes.n || (n->ipv6_prefix_count.is_set && n->ipv6_prefix_count.v != 0) ||
        (n->primary_ipv6.is_set && n->primary_ipv6.v)) {
        return refuse(err, "IPv6");
    }
    if ((n->secondary_private_ip_address_count.is_set &&
         n->secondary_private_ip_address_count.v != 0) ||
        n->ipv4_prefixes.n || (n->ipv4_prefix_count.is_set && n->ipv4_prefix_count.v != 0) ||
        n->private_ip_addresses.n > 1) {
        return refuse(err, "More than one private address");
    }
    if ((n->associate_carrier_ip_address.is_set && n->associate_carrier_ip_address.v) ||
        n->ena_srd_specification || n->connection_tracking_specification ||
        n->ena_queue_count.is_set) {
        return refuse(
            err, "A carrier address, ENA Express, connection tracking or ENA queue option");
    }
    return 0;
}

static int check_existing_eni(struct aws_call *call, struct launch *l, struct str id,
                              struct err *err)
{
    l->eni = find_one(call, AWS_ID_ENI, id, err);
    if (!l->eni) {
        return err->code;
    }
    const struct eni *e = REC(eni, l->eni);
    if (e->instance_id.n > 0) {
        return fail(err, -EBUSY, "InvalidNetworkInterface.InUse", "Interface: [%.*s] in use.",
                    STR_ARG(id));
    }
    if (l->n_max > 1) {
        return fail(
            err, -EINVAL, "InvalidParameterCombination",
            "A network interface may not be specified when launching more than one instance");
    }
    l->sg_ids = e->sg_ids;
    return check_subnet(call, l, e->subnet_id, err);
}

static int check_network_interface(struct aws_call *call, struct launch *l, struct err *err)
{
    const struct ec2_run_instances_request *in = l->in;
    const struct ec2_instance_network_interface_specification *n = &in->network_interfaces.v[0];
    if (in->network_interfaces.n > 1) {
        return refuse(err, "More than one network interface at launch");
    }
    if (in->security_group_ids.n > 0 || in->security_groups.n > 0) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "Network interfaces and an instance-level security groups may not be "
                    "specified on the same request");
    }
    if (str_is_set(in->subnet_id)) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "Network interfaces and an instance-level subnet ID may not be specified "
                    "on the same request");
    }
    if (str_is_set(in->private_ip_address)) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "Network interfaces and an instance-level private IP address may not be "
                    "specified on the same request");
    }
    int r = check_eni_extras(n, err);
    if (r < 0) {
        return r;
    }
    l->is_eni_deleted_on_termination = n->delete_on_termination.is_set
                                           ? n->delete_on_termination.v
                                           : !str_is_set(n->network_interface_id);
    l->eni_description = n->description.p ? n->description : STR("");
    if (str_is_set(n->network_interface_id)) {
        return check_existing_eni(call, l, n->network_interface_id, err);
    }
    struct str ip = n->private_ip_address;
    if (!str_is_set(ip) && n->private_ip_addresses.n == 1) {
        ip = n->private_ip_addresses.v[0].private_ip_address;
    }
    if ((r = check_subnet(call, l, n->subnet_id, err)) < 0 ||
        (r = check_private_ip(l, ip, err)) < 0) {
        return r;
    }
    l->has_public_ip = n->associate_public_ip_address.is_set
                           ? n->associate_public_ip_address.v
                           : l->subnet->is_public_ip_on_launch;
    return check_groups(call, l, &n->groups, NULL, err);
}

static int check_network(struct aws_call *call, struct launch *l, struct err *err)
{
    const struct ec2_run_instances_request *in = l->in;
    if (in->network_interfaces.n > 0) {
        return check_network_interface(call, l, err);
    }
    l->is_eni_deleted_on_termination = true;
    l->eni_description = STR("");
    int r = check_subnet(call, l, in->subnet_id, err);
    if (r < 0 || (r = check_private_ip(l, in->private_ip_address, err)) < 0) {
        return r;
    }
    l->has_public_ip = l->subnet->is_public_ip_on_launch;
    return check_groups(call, l, &in->security_group_ids, &in->security_groups, err);
}

static int check_placement(struct aws_call *call, struct launch *l, struct err *err)
{
    const struct ec2_placement *p = l->in->placement;
    if (!p) {
        return 0;
    }
    if (p->availability_zone.n > 0 && !str_eq(p->availability_zone, l->subnet->az)) {
        return fail(err, -EINVAL, "InvalidParameterValue", "Invalid availability zone: [%.*s]",
                    STR_ARG(p->availability_zone));
    }
    if (p->availability_zone_id.n > 0 && !str_eq(p->availability_zone_id, l->subnet->az_id)) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Invalid availability zone id: [%.*s]", STR_ARG(p->availability_zone_id));
    }
    if (p->tenancy.n > 0 && !str_eqc(p->tenancy, "default")) {
        return refuse(err, "A tenancy other than 'default'");
    }
    if (p->group_name.n > 0 || p->group_id.n > 0 || p->host_id.n > 0 ||
        p->host_resource_group_arn.n > 0 || p->affinity.n > 0 || p->partition_number.is_set ||
        p->spread_domain.n > 0) {
        return refuse(err, "A placement group, host or partition");
    }
    return 0;
}

static bool is_one_of(struct str s, const char *a, const char *b)
{
    return str_eqc(s, a) || (b && str_eqc(s, b));
}

static int check_metadata(struct launch *l, struct err *err)
{
    const struct ec2_instance_metadata_options_request *m = l->in->metadata_options;
    l->http_tokens = STR("required");
    l->http_endpoint = STR("enabled");
    l->http_hop_limit = 2;
    if (!m) {
        return 0;
    }
    if (m->http_tokens.n > 0) {
        l->http_tokens = m->http_tokens;
        l->http_hop_limit = str_eqc(m->http_tokens, "optional") ? 1 : 2;
    }
    if (m->http_endpoint.n > 0) {
        l->http_endpoint = m->http_endpoint;
    }
    if (m->http_put_response_hop_limit.is_set) {
        if (m->http_put_response_hop_limit.v < 1 || m->http_put_response_hop_limit.v > 64) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "Value (%lld) for parameter HttpPutResponseHopLimit is invalid. The "
                        "value must be from 1 to 64.",
                        (long long)m->http_put_response_hop_limit.v);
        }
        l->http_hop_limit = (uint64_t)m->http_put_response_hop_limit.v;
    }
    if (m->http_protocol_ipv6.n > 0 && !str_eqc(m->http_protocol_ipv6, "disabled")) {
        return refuse(err, "The metadata service over IPv6");
    }
    l->is_tags_in_metadata = str_eqc(m->instance_metadata_tags, "enabled");
    return 0;
}

/* Everything that is neither AWS's default nor our behaviour. */
static int check_unsupported(const struct ec2_run_instances_request *in, struct err *err)
{
    if (in->launch_template) {
        return refuse(err, "A launch template");
    }
    if (in->iam_instance_profile &&
        (in->iam_instance_profile->arn.n > 0 || in->iam_instance_profile->name.n > 0)) {
        return refuse(err, "An IAM instance profile");
    }
    if (in->instance_market_options) {
        return refuse(err, "A spot or block market option");
    }
    if ((in->ipv6_address_count.is_set && in->ipv6_address_count.v != 0) ||
        in->ipv6_addresses.n > 0 ||
        (in->enable_primary_ipv6.is_set && in->enable_primary_ipv6.v)) {
        return refuse(err, "IPv6");
    }
    if (in->kernel_id.n > 0 || in->ramdisk_id.n > 0) {
        return refuse(err, "A kernel or RAM disk outside the image");
    }
    if (in->elastic_gpu_specification.n > 0 || in->elastic_inference_accelerators.n > 0 ||
        in->license_specifications.n > 0 || in->secondary_interfaces.n > 0 || in->operator) {
        return refuse(err, "An accelerator, licence, secondary interface or operator");
    }
    if (in->hibernation_options && in->hibernation_options->configured.v) {
        return refuse(err, "Hibernation");
    }
    if (in->enclave_options && in->enclave_options->enabled.v) {
        return refuse(err, "An enclave");
    }
    if (in->cpu_options) {
        return refuse(err, "A CPU option");
    }
    if (in->capacity_reservation_specification &&
        (in->capacity_reservation_specification->capacity_reservation_target ||
         !is_one_of(in->capacity_reservation_specification->capacity_reservation_preference,
                    "open", "none"))) {
        return refuse(err, "A capacity reservation");
    }
    if (in->maintenance_options && in->maintenance_options->auto_recovery.n > 0 &&
        !str_eqc(in->maintenance_options->auto_recovery, "default")) {
        return refuse(err, "An automatic recovery other than 'default'");
    }
    const struct ec2_private_dns_name_options_request *d = in->private_dns_name_options;
    if (d &&
        ((d->hostname_type.n > 0 && !str_eqc(d->hostname_type, "ip-name")) ||
         d->enable_resource_name_dns_a_record.v || d->enable_resource_name_dns_aaaa_record.v)) {
        return refuse(err, "A resource name as host name");
    }
    if (in->network_performance_options &&
        in->network_performance_options->bandwidth_weighting.n > 0 &&
        !str_eqc(in->network_performance_options->bandwidth_weighting, "default")) {
        return refuse(err, "A bandwidth weighting");
    }
    return 0;
}

static int check_options(struct aws_call *call, struct launch *l, struct err *err)
{
    const struct ec2_run_instances_request *in = l->in;
    l->shutdown_behavior = in->instance_initiated_shutdown_behavior.n > 0
                               ? in->instance_initiated_shutdown_behavior
                               : STR("stop");
    if (!is_one_of(l->shutdown_behavior, "stop", "terminate")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter instanceInitiatedShutdownBehavior is invalid.",
                    STR_ARG(l->shutdown_behavior));
    }
    if (in->credit_specification && !l->type->is_burstable) {
        return fail(
            err, -EINVAL, "InvalidParameterCombination",
            "The T2/T3/T4g credit specification is not supported for the instance type '%.*s'.",
            STR_ARG(l->type->name));
    }
    if (in->credit_specification &&
        !is_one_of(in->credit_specification->cpu_credits, "unlimited", NULL)) {
        return refuse(err, "CPU credits other than 'unlimited'");
    }
    static const char *const allowed[] = {"instance", "volume", "network-interface", NULL};
    int r = tags_from_spec(call->arena, &in->tag_specifications, "instance", allowed,
                           &l->instance_tags, err);
    if (r < 0 || (r = tags_from_spec(call->arena, &in->tag_specifications, "volume", allowed,
                                     &l->volume_tags, err)) < 0) {
        return r;
    }
    return tags_from_spec(call->arena, &in->tag_specifications, "network-interface", allowed,
                          &l->eni_tags, err);
}

int launch_check(struct aws_call *call, const struct ec2_run_instances_request *in,
                 struct launch *ret, struct err *err)
{
    *ret = (struct launch){.in = in};
    int r = 0;
    if ((r = check_counts(ret, err)) < 0 || (r = check_unsupported(in, err)) < 0 ||
        (r = check_image(call, ret, err)) < 0 || (r = check_type(call, ret, err)) < 0 ||
        (r = check_key(call, ret, err)) < 0 || (r = check_user_data(ret, err)) < 0 ||
        (r = check_network(call, ret, err)) < 0 || (r = check_placement(call, ret, err)) < 0 ||
        (r = check_metadata(ret, err)) < 0 || (r = check_options(call, ret, err)) < 0) {
        return r;
    }
    return launch_disks(call, ret, err);
}
