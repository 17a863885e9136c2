#include "aws/ids.h"

#include "base/buf.h"
#include <errno.h>

struct kind {
    const char *prefix, *resource_type;
    const char *malformed, *not_found; /* error codes */
    const char *one, *many;            /* texts: before the id, with "%s" for the list */
    const char *one_end, *many_end;
};

/* Codes and texts as EC2 answers them; they follow no rule. */
static const struct kind kinds[AWS_ID_N] = {
    [AWS_ID_INSTANCE] = {"i", "instance", "InvalidInstanceID.Malformed",
                         "InvalidInstanceID.NotFound", "The instance ID '",
                         "The instance IDs '", "' does not exist", "' do not exist"},
    [AWS_ID_VOLUME] = {"vol", "volume", "InvalidVolumeID.Malformed", "InvalidVolume.NotFound",
                       "The volume '", "The volumes '", "' does not exist.", "' do not exist."},
    [AWS_ID_SNAPSHOT] = {"snap", "snapshot", "InvalidSnapshotID.Malformed",
                         "InvalidSnapshot.NotFound", "The snapshot '", "The snapshots '",
                         "' does not exist.", "' do not exist."},
    [AWS_ID_IMAGE] = {"ami", "image", "InvalidAMIID.Malformed", "InvalidAMIID.NotFound",
                      "The image id '[", "The image ids '[", "]' does not exist",
                      "]' do not exist"},
    [AWS_ID_KEY_PAIR] = {"key", "key-pair", "InvalidKeyPair.Format", "InvalidKeyPair.NotFound",
                         "The key pair '", "The key pairs '", "' does not exist",
                         "' do not exist"},
    [AWS_ID_VPC] = {"vpc", "vpc", "InvalidVpcID.Malformed", "InvalidVpcID.NotFound",
                    "The vpc ID '", "The vpc IDs '", "' does not exist", "' do not exist"},
    [AWS_ID_SUBNET] = {"subnet", "subnet", "InvalidSubnetID.Malformed",
                       "InvalidSubnetID.NotFound", "The subnet ID '", "The subnet IDs '",
                       "' does not exist", "' do not exist"},
    [AWS_ID_SECURITY_GROUP] = {"sg", "security-group", "InvalidGroupId.Malformed",
                               "InvalidGroup.NotFound", "The security group '",
                               "The security groups '", "' does not exist", "' do not exist"},
    [AWS_ID_SECURITY_GROUP_RULE] = {"sgr", "security-group-rule",
                                    "InvalidSecurityGroupRuleId.Malformed",
                                    "InvalidSecurityGroupRuleId.NotFound",
                                    "The security group rule ID '",
                                    "The security group rule IDs '", "' does not exist",
                                    "' do not exist"},
    [AWS_ID_ENI] = {"eni", "network-interface", "InvalidNetworkInterfaceID.Malformed",
                    "InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '",
                    "The networkInterface IDs '", "' does not exist", "' do not exist"},
    [AWS_ID_IGW] = {"igw", "internet-gateway", "InvalidInternetGatewayID.Malformed",
                    "InvalidInternetGatewayID.NotFound", "The internetGateway ID '",
                    "The internetGateway IDs '", "' does not exist", "' do not exist"},
    [AWS_ID_ROUTE_TABLE] = {"rtb", "route-table", "InvalidRouteTableID.Malformed",
                            "InvalidRouteTableID.NotFound", "The routeTable ID '",
                            "The routeTable IDs '", "' does not exist", "' do not exist"},
    [AWS_ID_ACL] = {"acl", "network-acl", "InvalidNetworkAclID.Malformed",
                    "InvalidNetworkAclID.NotFound", "The networkAcl ID '",
                    "The networkAcl IDs '", "' does not exist", "' do not exist"},
    [AWS_ID_DHCP_OPTIONS] = {"dopt", "dhcp-options", "InvalidDhcpOptionsID.Malformed",
                             "InvalidDhcpOptionID.NotFound", "The dhcpOption ID '",
                             "The dhcpOption IDs '", "' does not exist", "' do not exist"},
    [AWS_ID_ALLOCATION] = {"eipalloc", "elastic-ip", "InvalidAllocationID.Malformed",
                           "InvalidAllocationID.NotFound", "The allocation ID '",
                           "The allocation IDs '", "' does not exist", "' do not exist"},
    [AWS_ID_ASSOCIATION] = {"eipassoc", "elastic-ip-association",
                            "InvalidAssociationID.Malformed", "InvalidAssociationID.NotFound",
                            "The association ID '", "The association IDs '", "' does not exist",
                            "' do not exist"},
};

const char *aws_id_prefix(enum aws_id_kind k)
{
    return kinds[k].prefix;
}

const char *aws_id_resource_type(enum aws_id_kind k)
{
    return kinds[k].resource_type;
}

int aws_id_kind_of(struct str id, enum aws_id_kind *ret)
{
    struct str prefix = str_cut(id, '-');
    for (int k = 0; prefix.n < id.n && k < AWS_ID_N; k++) {
        if (str_eqc(prefix, kinds[k].prefix)) {
            *ret = (enum aws_id_kind)k;
            return 0;
        }
    }
    return -ENOENT;
}

static bool is_wellformed(struct str id, const char *prefix)
{
    size_t n = strlen(prefix);
    if (!str_has_prefixc(id, prefix) || id.n <= n || id.p[n] != '-') {
        return false;
    }
    struct str hex = str_skip(id, n + 1);
    for (size_t i = 0; i < hex.n; i++) {
        if (!((hex.p[i] >= '0' && hex.p[i] <= '9') || (hex.p[i] >= 'a' && hex.p[i] <= 'f'))) {
            return false;
        }
    }
    return hex.n == 8 || hex.n == 17;
}

int aws_id_check(enum aws_id_kind k, struct str id, struct err *err)
{
    if (is_wellformed(id, kinds[k].prefix)) {
        return 0;
    }
    struct str shown = id.n > 128 ? str_n(id.p, 128) : id;
    return fail(err, -EINVAL, kinds[k].malformed, "Invalid id: \"%.*s\" (expecting \"%s-...\")",
                STR_ARG(shown), kinds[k].prefix);
}

int aws_ids_check(enum aws_id_kind k, const struct aws_str_list *ids, struct err *err)
{
    for (size_t i = 0; i < ids->n; i++) {
        int rc = aws_id_check(k, ids->v[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int aws_id_not_found(enum aws_id_kind k, const struct str *ids, size_t n, struct err *err)
{
    const struct kind *d = &kinds[k];
    AUTO_BUF list;
    buf_init(&list, ERR_MSG_MAX - 100);
    for (size_t i = 0; i < n; i++) {
        size_t len = ids[i].n + (i ? 2 : 0);
        if (list.n + len + 5 > list.max) {
            buf_addc(&list, ", ...");
            break;
        }
        buf_addc(&list, i ? ", " : "");
        buf_add(&list, ids[i]);
    }
    return fail(err, -ENOENT, d->not_found, "%s%s%s", n == 1 ? d->one : d->many,
                buf_cstr(&list), n == 1 ? d->one_end : d->many_end);
}

static bool has_before(const struct aws_str_list *ids, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (str_eq(ids->v[k], ids->v[i])) {
            return true;
        }
    }
    return false;
}

int aws_ids_resolve(enum aws_id_kind k, const struct aws_str_list *ids, aws_id_find_fn find,
                    void *ctx, struct arena *a, const void ***ret, size_t *ret_n,
                    struct err *err)
{
    int rc = aws_ids_check(k, ids, err);
    if (rc < 0) {
        return rc;
    }
    const void **v = arena_array(a, ids->n ? ids->n : 1, sizeof(*v));
    struct str *lost = arena_array(a, ids->n ? ids->n : 1, sizeof(*lost));
    if (!v || !lost) {
        return fail(err, -ENOMEM, "RequestTooLarge",
                    "The request is larger than this service accepts.");
    }
    size_t n = 0, n_lost = 0;
    for (size_t i = 0; i < ids->n; i++) {
        if (has_before(ids, i)) {
            continue;
        }
        const void *obj = find(ctx, ids->v[i]);
        if (obj) {
            v[n++] = obj;
        } else {
            lost[n_lost++] = ids->v[i];
        }
    }
    if (n_lost > 0) {
        return aws_id_not_found(k, lost, n_lost, err);
    }
    *ret = v;
    *ret_n = n;
    return 0;
}

int aws_id_resolve(enum aws_id_kind k, struct str id, aws_id_find_fn find, void *ctx,
                   const void **ret, struct err *err)
{
    int rc = aws_id_check(k, id, err);
    if (rc < 0) {
        return rc;
    }
    const void *obj = find(ctx, id);
    if (!obj) {
        return aws_id_not_found(k, &id, 1, err);
    }
    *ret = obj;
    return 0;
}
