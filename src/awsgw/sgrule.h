/* sgrule.h — rules of security groups: from IpPermissions to single rules and back.
 * Not here: operations (ops_sg.c), packets (vpcd/).
 * Threads:  no state.
 * Memory:   in the arena of the call.
 * Errors:   "InvalidParameterValue", "InvalidGroup.NotFound", "InvalidPermission.Duplicate" ...
 *           as EC2 answers them. */
#pragma once
#include "aws/api/ec2.h"
#include "awsgw/find.h"
#include "model/network.h"

#define SG_RULES_MAX 60u /* each way (VPC quotas) */

/* Lock of all that makes or removes a use of a group of the VPC (an interface's, a rule's): a
 * group cannot go while somebody begins to use it. See txn_lock(). */
struct str sg_use_key(struct arena *a, struct str vpc_id);

/* Appends one rule per range, group and prefix list of the permissions; ids are not set. 'cap'
 * bounds out->v. */
MUST_CHECK int sgrules_from_permissions(struct aws_call *call, const struct sg *g,
                                        bool is_egress,
                                        const struct ec2_ip_permission_list *perms,
                                        struct sg_rule_list *out, size_t cap, struct err *err);
/* The older form of one permission: IpProtocol, FromPort, ToPort, CidrIp or a source group. */
struct sg_flat {
    struct str protocol, cidr, group_name, group_owner;
    struct opt_i64 from, to;
};
bool sg_flat_is_set(const struct sg_flat *f);
MUST_CHECK int sgrules_from_flat(struct aws_call *call, const struct sg *g, bool is_egress,
                                 const struct sg_flat *f, struct sg_rule_list *out, size_t cap,
                                 struct err *err);

/* Same protocol, ports and peer; descriptions and tags do not count. */
bool sgrule_eq(const struct sg_rule *a, const struct sg_rule *b);
/* "peer: 0.0.0.0/0, TCP, from port: 80, to port: 80, ALLOW" */
struct str sgrule_text(struct arena *a, const struct sg_rule *r);
/* Rules of one direction gathered into permissions, as DescribeSecurityGroups shows them. */
void sgrules_to_permissions(struct aws_call *call, const struct sg *g, bool is_egress,
                            struct ec2_ip_permission_list *out);
void sgrule_out(struct aws_call *call, const struct sg *g, const struct sg_rule *r,
                struct ec2_security_group_rule *out);
