/* Start, Stop, Reboot, TerminateInstances, monitoring. */
#include "awsgw/ops.h"

#include "awsgw/alloc.h"
#include "awsgw/inst.h"
#include "base/time.h"
#include "model/keys.h"

#include <errno.h>

#define IDS_MAX 100u /* instances changed by one request: one transaction */

/* One request over several instances: all are checked before any is changed. */
struct batch {
    struct aws_call *call;
    struct inst *v;
    size_t n;
    struct txn *t;
};

static int batch_open(struct aws_call *call, const struct aws_str_list *ids, struct batch *b,
                      struct err *err)
{
    struct entries found = {0};
    if (ids->n == 0) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter InstanceId");
    }
    if (ids->n > IDS_MAX) {
        return fail(err, -E2BIG, "InvalidParameterValue",
                    "At most %u instances can be named in one request.", IDS_MAX);
    }
    int r = find_many(call, AWS_ID_INSTANCE, ids, &found, err);
    for (size_t i = 0; r == 0 && i < found.n; i++) {
        r = txn_settle(gw_of(call), found.v[i], err); /* volumes and interfaces come next */
    }
    if (r < 0) {
        return r;
    }
    *b = (struct batch){.call = call, .n = found.n};
    b->v = arena_xalloc(call->arena, found.n * sizeof(*b->v));
    inst_join_all(call, found, b->v);
    b->t = txn_open(call);
    return 0;
}

/* "User initiated (2026-11-30 14:49:10 GMT)" */
static struct str user_initiated(const struct aws_call *call)
{
    char iso[TIME_ISO_SIZE];
    time_iso_s(call->now_ns, iso);
    return arena_fmt(call->arena, "User initiated (%.10s %.8s GMT)", iso, iso + 11);
}

static void change(struct batch *b, const struct inst *in, struct instance *rec)
{
    rec->generation++;
    txn_update(b->t, in->entry, &instance_desc, rec);
}

static void state_change_out(struct batch *b, const struct inst *in, enum instance_state now,
                             struct ec2_instance_state_change *out)
{
    out->instance_id = in->spec->id;
    inst_state_out(b->call->arena, in->state, &out->previous_state);
    inst_state_out(b->call->arena, now, &out->current_state);
}

static int wrong_state(const struct inst *in, const char *verb, struct err *err)
{
    return fail(err, -EINVAL, "IncorrectInstanceState",
                "The instance '%.*s' is not in a state from which it can be %s.",
                STR_ARG(in->spec->id), verb);
}

/* A stopped instance gave back its public address: it gets a new one, as on AWS. */
static int give_public_ip(struct batch *b, const struct inst *in, struct ip_picker *p,
                          struct err *err)
{
    const struct eni *old = REC(eni, in->eni);
    uint32_t ip = 0;
    if (!in->spec->has_auto_public_ip || !old || old->public_ip.n > 0) {
        return 0;
    }
    if (ip_pick(p, &ip) < 0) {
        return fail(err, -ENOSPC, "InsufficientAddressCapacity",
                    "There are no free addresses in the external pool.");
    }
    struct eni eni = *old;
    eni.public_ip = ip4_fmt(b->call->arena, ip);
    eni.generation++;
    txn_claim(b->t, claim_public_ip_key(b->call->arena, eni.public_ip), eni.id);
    txn_update(b->t, in->eni, &eni_desc, &eni);
    return 0;
}

struct demand { /* of all instances that start, so that capacity is one change of one record */
    uint64_t vcpus, burstable_vcpus, memory_mib;
};

/* A volume sits at the root device, and nobody asked it to leave. */
static bool has_root(const struct inst *in)
{
    for (size_t i = 0; i < in->volumes.n; i++) {
        const struct volume *v = REC(volume, in->volumes.v[i]);
        if (str_eq(v->device, in->spec->root_device) && str_eqc(v->attach_want, "attached")) {
            return true;
        }
    }
    return false;
}

static int start_one(struct batch *b, const struct inst *in, struct ip_picker *p,
                     struct demand *d, struct err *err)
{
    int r = give_public_ip(b, in, p, err);
    if (r < 0) {
        return r;
    }
    struct instance rec = *in->spec;
    if (!rec.is_holding_capacity) {
        *(rec.is_burstable ? &d->burstable_vcpus : &d->vcpus) += rec.n_vcpus;
        d->memory_mib += rec.memory_mib;
        rec.is_holding_capacity = true;
    }
    rec.want = STR(INSTANCE_WANT_RUNNING);
    rec.is_forced = false;
    rec.launch_ns = b->call->now_ns;
    rec.transition_reason = STR("");
    rec.reason_code = rec.reason_message = STR("");
    change(b, in, &rec);
    return 0;
}

int ec2_start_instances(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_start_instances_request *in = input;
    struct ec2_start_instances_result *out = output;
    struct gw *gw = gw_of(call);
    struct batch b;
    struct ip_picker p;
    struct demand d = {0};
    int r = batch_open(call, &in->instance_ids, &b, err);
    if (r < 0 || (r = ip_picker_public(gw, call->arena, &p, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->starting_instances, b.n);
    for (size_t i = 0; i < b.n; i++) {
        const struct inst *m = &b.v[i];
        bool is_up = m->state == INSTANCE_RUNNING || m->state == INSTANCE_PENDING;
        if (!is_up && m->state != INSTANCE_STOPPED) {
            return wrong_state(m, "started", err);
        }
        if (!is_up && !has_root(m)) {
            return fail(err, -EINVAL, "IncorrectInstanceState",
                        "Instance '%.*s' does not have a volume attached at root (%.*s)",
                        STR_ARG(m->spec->id), STR_ARG(m->spec->root_device));
        }
        if (!is_up && (r = start_one(&b, m, &p, &d, err)) < 0) {
            return r;
        }
        state_change_out(&b, m, is_up ? m->state : INSTANCE_PENDING,
                         &out->starting_instances.v[i]);
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    if (d.memory_mib > 0 &&
        (r = capacity_change(b.t, node_facts_get(gw, call->arena), str_c(gw->cfg->node),
                             d.vcpus, d.burstable_vcpus, d.memory_mib, true, err)) < 0) {
        return r;
    }
    return txn_commit(b.t, err);
}

static int stop_one(struct batch *b, const struct inst *in, bool is_forced, struct err *err)
{
    if (in->spec->is_stop_protected) {
        return fail(err, -EPERM, "OperationNotPermitted",
                    "The instance '%.*s' may not be stopped. Modify its 'disableApiStop' "
                    "instance attribute and try again.",
                    STR_ARG(in->spec->id));
    }
    struct instance rec = *in->spec;
    rec.want = STR(INSTANCE_WANT_STOPPED);
    rec.imaging = STR(""); /* an image on its way is still made, but nobody starts it after */
    rec.is_forced = is_forced;
    rec.transition_reason = user_initiated(b->call);
    rec.reason_code = STR("Client.UserInitiatedShutdown");
    rec.reason_message = STR("Client.UserInitiatedShutdown: User initiated shutdown");
    change(b, in, &rec);
    return 0;
}

int ec2_stop_instances(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_stop_instances_request *in = input;
    struct ec2_stop_instances_result *out = output;
    struct batch b;
    if (in->hibernate.v) {
        return fail(err, -EOPNOTSUPP, "UnsupportedHibernationConfiguration",
                    "Hibernation is not supported here.");
    }
    int r = batch_open(call, &in->instance_ids, &b, err);
    if (r < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->stopping_instances, b.n);
    for (size_t i = 0; i < b.n; i++) {
        const struct inst *m = &b.v[i];
        bool is_going =
            m->state == INSTANCE_STOPPED || (m->state == INSTANCE_STOPPING && !in->force.v);
        if (m->state == INSTANCE_TERMINATED || m->state == INSTANCE_SHUTTING_DOWN) {
            return wrong_state(m, "stopped", err);
        }
        if (!is_going && (r = stop_one(&b, m, in->force.v, err)) < 0) {
            return r;
        }
        state_change_out(&b, m, is_going ? m->state : INSTANCE_STOPPING,
                         &out->stopping_instances.v[i]);
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    return txn_commit(b.t, err);
}

int ec2_reboot_instances(struct aws_call *call, const void *input, void *output,
                         struct err *err)
{
    const struct ec2_reboot_instances_request *in = input;
    struct batch b;
    int r = batch_open(call, &in->instance_ids, &b, err);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < b.n; i++) {
        const struct inst *m = &b.v[i];
        if (m->state != INSTANCE_RUNNING && m->state != INSTANCE_PENDING) {
            return wrong_state(m, "rebooted", err);
        }
        struct instance rec = *m->spec;
        rec.n_reboots++;
        change(&b, m, &rec);
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    return txn_commit(b.t, err);
}

static int terminate_one(struct batch *b, const struct inst *in, bool is_forced,
                         struct err *err)
{
    if (in->spec->is_termination_protected) {
        return fail(err, -EPERM, "OperationNotPermitted",
                    "The instance '%.*s' may not be terminated. Modify its "
                    "'disableApiTermination' instance attribute and try again.",
                    STR_ARG(in->spec->id));
    }
    struct instance rec = *in->spec;
    rec.want = STR(INSTANCE_WANT_TERMINATED);
    rec.is_forced = is_forced;
    rec.transition_reason = user_initiated(b->call);
    rec.reason_code = STR("Client.UserInitiatedShutdown");
    rec.reason_message = STR("Client.UserInitiatedShutdown: User initiated shutdown");
    change(b, in, &rec);
    return 0;
}

int ec2_terminate_instances(struct aws_call *call, const void *input, void *output,
                            struct err *err)
{
    const struct ec2_terminate_instances_request *in = input;
    struct ec2_terminate_instances_result *out = output;
    struct batch b;
    int r = batch_open(call, &in->instance_ids, &b, err);
    if (r < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->terminating_instances, b.n);
    for (size_t i = 0; i < b.n; i++) {
        const struct inst *m = &b.v[i];
        bool is_going = m->state == INSTANCE_TERMINATED ||
                        (m->state == INSTANCE_SHUTTING_DOWN && !in->force.v);
        if (!is_going && (r = terminate_one(&b, m, in->force.v, err)) < 0) {
            return r;
        }
        state_change_out(&b, m, is_going ? m->state : INSTANCE_SHUTTING_DOWN,
                         &out->terminating_instances.v[i]);
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    return txn_commit(b.t, err);
}

static int set_monitoring(struct aws_call *call, const struct aws_str_list *ids, bool is_on,
                          struct ec2_instance_monitoring_list *out, struct err *err)
{
    struct batch b;
    int r = batch_open(call, ids, &b, err);
    if (r < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, out, b.n);
    for (size_t i = 0; i < b.n; i++) {
        const struct inst *m = &b.v[i];
        if (m->state == INSTANCE_TERMINATED || m->state == INSTANCE_SHUTTING_DOWN) {
            return wrong_state(m, is_on ? "monitored" : "unmonitored", err);
        }
        struct instance rec = *m->spec;
        rec.is_monitored = is_on;
        txn_update(b.t, m->entry, &instance_desc,
                   &rec); /* nothing for compute to do: same generation */
        out->v[i].instance_id = m->spec->id;
        out->v[i].monitoring = arena_new_of(call->arena, struct ec2_monitoring);
        out->v[i].monitoring->state = is_on ? STR("enabled") : STR("disabled");
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    return txn_commit(b.t, err);
}

int ec2_monitor_instances(struct aws_call *call, const void *input, void *output,
                          struct err *err)
{
    const struct ec2_monitor_instances_request *in = input;
    struct ec2_monitor_instances_result *out = output;
    return set_monitoring(call, &in->instance_ids, true, &out->instance_monitorings, err);
}

int ec2_unmonitor_instances(struct aws_call *call, const void *input, void *output,
                            struct err *err)
{
    const struct ec2_unmonitor_instances_request *in = input;
    struct ec2_unmonitor_instances_result *out = output;
    return set_monitoring(call, &in->instance_ids, false, &out->instance_monitorings, err);
}
