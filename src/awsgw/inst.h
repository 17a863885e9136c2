/* inst.h — an instance as the API shows it: its spec, its status, its volumes and interface,
 * joined.
 * Not here: operations (ops_*.c), the machine itself (compute/).
 * Threads:  no state.
 * Memory:   in the arena of the call.
 * Errors:   none. */
#pragma once
#include "aws/api/ec2.h"
#include "awsgw/find.h"
#include "model/instance.h"
#include "model/network.h"
#include "model/volume.h"

struct inst {
    const struct view_entry *entry; /* of the spec */
    const struct instance *spec;
    const struct instance_status *status; /* NULL before compute has seen it */
    enum instance_state state;            /* as users see it: their last wish shows at once */
    struct entries volumes;               /* attached, by device name */
    const struct view_entry *eni;         /* the interface with device index 0, or NULL */
};

struct inst inst_join(struct aws_call *call, const struct view_entry *spec);
/* Spec, status and state only: cheap. */
struct inst inst_brief(struct aws_call *call, const struct view_entry *spec);
/* Joins many with one walk over volumes and interfaces; 'ret' has specs.n elements. */
void inst_join_all(struct aws_call *call, struct entries specs, struct inst *ret);
/* The state that users see, from a wish and what compute last reported. */
enum instance_state inst_state(const struct instance *spec,
                               const struct instance_status *status);

/* "attaching", "attached", "detaching", "detached", "busy" */
struct str volume_attach_state(struct aws_call *call, const struct volume *v);

void inst_state_out(struct arena *a, enum instance_state s, struct ec2_instance_state **out);
void inst_out(struct aws_call *call, const struct inst *in, struct ec2_instance *out);
void groups_out(struct aws_call *call, struct str_list sg_ids,
                struct ec2_group_identifier_list *out);
/* Reservations with their instances from a list of instance entries; all of one account. */
void reservation_out(struct aws_call *call, const struct inst *members, size_t n,
                     struct ec2_reservation *out);

/* "ec2-198-51-100-5.ap-southeast-2.compute.internal": the name that the VPC's DNS resolves. */
struct str public_dns_name(struct gw *gw, struct arena *a, struct str ip);
struct str private_dns_name(struct gw *gw, struct arena *a, struct str ip);
