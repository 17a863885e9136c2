#include "awsgw/inst.h"

#include "awsgw/region.h"
#include "awsgw/tagset.h"
#include "model/keys.h"

enum instance_state inst_state(const struct instance *spec,
                               const struct instance_status *status)
{
    bool is_terminating = str_eqc(spec->want, INSTANCE_WANT_TERMINATED);
    if (!status && is_terminating) {
        return spec->is_released ? INSTANCE_TERMINATED : INSTANCE_SHUTTING_DOWN;
    }
    /* Stopped for an image, and soon started again: a reboot, as users see it. */
    if (spec->imaging.n > 0 && !is_terminating) {
        return INSTANCE_RUNNING;
    }
    if (!status) {
        return str_eqc(spec->want, INSTANCE_WANT_STOPPED) ? INSTANCE_STOPPING
                                                          : INSTANCE_PENDING;
    }
    enum instance_state seen = INSTANCE_PENDING;
    if (instance_state_parse(status->state, &seen) < 0 || seen == INSTANCE_TERMINATED) {
        return seen;
    }
    if (status->generation >= spec->generation) {
        return seen;
    }
    /* The wish is newer than what compute has acted on: show where it leads, as AWS does in the
     * answer itself. */
    if (is_terminating) {
        return INSTANCE_SHUTTING_DOWN;
    }
    if (str_eqc(spec->want, INSTANCE_WANT_STOPPED)) {
        return seen == INSTANCE_STOPPED ? INSTANCE_STOPPED : INSTANCE_STOPPING;
    }
    return seen == INSTANCE_RUNNING ? INSTANCE_RUNNING : INSTANCE_PENDING;
}

static int by_instance_and_device(const void *a, const void *b)
{
    const struct volume *x = REC(volume, *(const struct view_entry *const *)a);
    const struct volume *y = REC(volume, *(const struct view_entry *const *)b);
    int r = str_cmp(x->instance_id, y->instance_id);
    return r != 0 ? r : str_cmp(x->device, y->device);
}

static int by_instance_and_index(const void *a, const void *b)
{
    const struct eni *x = REC(eni, *(const struct view_entry *const *)a);
    const struct eni *y = REC(eni, *(const struct view_entry *const *)b);
    int r = str_cmp(x->instance_id, y->instance_id);
    return r != 0 ? r
                  : (x->device_index > y->device_index) - (x->device_index < y->device_index);
}

/* Volumes and interfaces sorted by the instance that has them. */
struct links {
    struct entries volumes, enis;
};

static struct links links_load(struct aws_call *call)
{
    struct gw *gw = gw_of(call);
    struct links l = {store_list(gw, call->arena, "volume", call->account),
                      store_list(gw, call->arena, "eni", call->account)};
    qsort(l.volumes.v, l.volumes.n, sizeof(*l.volumes.v), by_instance_and_device);
    qsort(l.enis.v, l.enis.n, sizeof(*l.enis.v), by_instance_and_index);
    return l;
}

/* The first position whose instance id is not below 'id'. */
static size_t lower_bound(struct entries e, struct str id,
                          struct str (*instance_of)(const struct view_entry *))
{
    size_t lo = 0, hi = e.n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (str_cmp(instance_of(e.v[mid]), id) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static struct str volume_instance(const struct view_entry *e)
{
    return REC(volume, e)->instance_id;
}

static struct str eni_instance(const struct view_entry *e)
{
    return REC(eni, e)->instance_id;
}

struct inst inst_brief(struct aws_call *call, const struct view_entry *spec)
{
    struct inst in = {.entry = spec, .spec = REC(instance, spec)};
    in.status = REC(instance_status, store_status(gw_of(call), call->arena, "instance",
                                                  in.spec->account, in.spec->id));
    in.state = inst_state(in.spec, in.status);
    return in;
}

static struct inst join_one(struct aws_call *call, const struct view_entry *spec,
                            const struct links *l)
{
    struct inst in = inst_brief(call, spec);
    size_t first = lower_bound(l->volumes, in.spec->id, volume_instance), last = first;
    while (last < l->volumes.n && str_eq(volume_instance(l->volumes.v[last]), in.spec->id)) {
        last++;
    }
    in.volumes = (struct entries){l->volumes.v + first, last - first};
    size_t e = lower_bound(l->enis, in.spec->id, eni_instance);
    in.eni =
        e < l->enis.n && str_eq(eni_instance(l->enis.v[e]), in.spec->id) ? l->enis.v[e] : NULL;
    return in;
}

struct inst inst_join(struct aws_call *call, const struct view_entry *spec)
{
    struct links l = links_load(call);
    return join_one(call, spec, &l);
}

void inst_join_all(struct aws_call *call, struct entries specs, struct inst *ret)
{
    struct links l = links_load(call);
    for (size_t i = 0; i < specs.n; i++) {
        ret[i] = join_one(call, specs.v[i], &l);
    }
}

struct str volume_attach_state(struct aws_call *call, const struct volume *v)
{
    bool is_leaving = str_eqc(v->attach_want, "detached");
    const struct attachment_status *st =
        REC(attachment_status,
            store_status(gw_of(call), call->arena, "attachment", v->account, v->id));
    if (!st || !str_eq(st->instance_id, v->instance_id) || st->generation < v->generation) {
        return is_leaving ? STR("detaching") : STR("attaching");
    }
    return st->state;
}

void inst_state_out(struct arena *a, enum instance_state s, struct ec2_instance_state **out)
{
    *out = arena_new_of(a, struct ec2_instance_state);
    (*out)->code = some_i64((int64_t)s);
    (*out)->name = str_c(instance_state_name(s));
}

static struct str dashed(struct arena *a, struct str ip)
{
    struct str s = arena_str_dup(a, ip);
    char *p = (char *)(uintptr_t)s.p;
    for (size_t i = 0; p && i < s.n; i++) {
        p[i] = p[i] == '.' ? '-' : p[i];
    }
    return s;
}

struct str public_dns_name(struct gw *gw, struct arena *a, struct str ip)
{
    return arena_fmt(a, "ec2-%.*s.%s.compute.internal", STR_ARG(dashed(a, ip)),
                     gw->cfg->region);
}

struct str private_dns_name(struct gw *gw, struct arena *a, struct str ip)
{
    return arena_fmt(a, "ip-%.*s.%s.compute.internal", STR_ARG(dashed(a, ip)), gw->cfg->region);
}

void groups_out(struct aws_call *call, struct str_list sg_ids,
                struct ec2_group_identifier_list *out)
{
    AWS_LIST_MAKE(call->arena, out, sg_ids.n);
    for (size_t i = 0; i < sg_ids.n; i++) {
        const struct sg *g =
            REC(sg, store_spec(gw_of(call), call->arena, "sg", call->account, sg_ids.v[i]));
        out->v[i].group_id = sg_ids.v[i];
        out->v[i].group_name = g ? g->name : STR("");
    }
}

static void volumes_out(struct aws_call *call, struct entries vols, struct ec2_instance *out)
{
    AWS_LIST_MAKE(call->arena, &out->block_device_mappings, vols.n);
    for (size_t i = 0; i < vols.n; i++) {
        const struct volume *v = REC(volume, vols.v[i]);
        struct ec2_instance_block_device_mapping *m = &out->block_device_mappings.v[i];
        m->device_name = v->device;
        m->ebs = arena_new_of(call->arena, struct ec2_ebs_instance_block_device);
        m->ebs->volume_id = v->id;
        m->ebs->status = volume_attach_state(call, v);
        m->ebs->attach_time = some_time(v->attach_ns);
        m->ebs->delete_on_termination = some_bool(v->is_deleted_on_termination);
    }
}

static void association_out(struct aws_call *call, const struct eni *e,
                            struct ec2_instance_network_interface_association **out)
{
    *out = arena_new_of(call->arena, struct ec2_instance_network_interface_association);
    (*out)->ip_owner_id =
        STR("amazon"); /* AWS's word for an address that was not allocated by the account */
    (*out)->public_dns_name = public_dns_name(gw_of(call), call->arena, e->public_ip);
    (*out)->public_ip = e->public_ip;
}

static void interface_out(struct aws_call *call, const struct eni *e, struct ec2_instance *out)
{
    struct arena *a = call->arena;
    AWS_LIST_MAKE(a, &out->network_interfaces, e ? 1 : 0);
    if (!e) {
        return;
    }
    struct ec2_instance_network_interface *n = &out->network_interfaces.v[0];
    n->network_interface_id = e->id;
    n->description = e->description;
    n->mac_address = e->mac;
    n->owner_id = e->account;
    n->private_dns_name = e->private_dns;
    n->private_ip_address = e->private_ip;
    n->source_dest_check = some_bool(e->is_source_dest_checked);
    n->status = STR("in-use");
    n->subnet_id = e->subnet_id;
    n->vpc_id = e->vpc_id;
    n->interface_type = STR("interface");
    groups_out(call, e->sg_ids, &n->groups);
    AWS_LIST_MAKE(a, &n->ipv6_addresses, 0);
    n->attachment = arena_new_of(a, struct ec2_instance_network_interface_attachment);
    n->attachment->attachment_id = e->attachment_id;
    n->attachment->attach_time = some_time(e->attach_ns);
    n->attachment->delete_on_termination = some_bool(e->is_deleted_on_termination);
    n->attachment->device_index = some_i64((int64_t)e->device_index);
    n->attachment->network_card_index = some_i64(0);
    n->attachment->status = STR("attached");
    AWS_LIST_MAKE(a, &n->private_ip_addresses, 1);
    n->private_ip_addresses.v[0].primary = some_bool(true);
    n->private_ip_addresses.v[0].private_ip_address = e->private_ip;
    n->private_ip_addresses.v[0].private_dns_name = e->private_dns;
    if (e->public_ip.n > 0) {
        association_out(call, e, &n->association);
        n->private_ip_addresses.v[0].association = n->association;
        out->public_ip_address = e->public_ip;
        out->public_dns_name = n->association->public_dns_name;
    }
    out->private_ip_address = e->private_ip;
    out->private_dns_name = e->private_dns;
    out->subnet_id = e->subnet_id;
    out->vpc_id = e->vpc_id;
    out->security_groups = n->groups;
}

static void options_out(struct arena *a, const struct instance *s, struct ec2_instance *out)
{
    out->metadata_options = arena_new_of(a, struct ec2_instance_metadata_options_response);
    out->metadata_options->state = STR("applied");
    out->metadata_options->http_tokens = s->http_tokens;
    out->metadata_options->http_put_response_hop_limit = some_i64((int64_t)s->http_hop_limit);
    out->metadata_options->http_endpoint = s->http_endpoint;
    out->metadata_options->http_protocol_ipv6 = STR("disabled");
    out->metadata_options->instance_metadata_tags =
        s->is_tags_in_metadata ? STR("enabled") : STR("disabled");
    out->cpu_options = arena_new_of(a, struct ec2_cpu_options);
    out->cpu_options->core_count = some_i64((int64_t)s->n_vcpus);
    out->cpu_options->threads_per_core = some_i64(1);
    out->capacity_reservation_specification =
        arena_new_of(a, struct ec2_capacity_reservation_specification_response);
    out->capacity_reservation_specification->capacity_reservation_preference = STR("open");
    out->hibernation_options = arena_new_of(a, struct ec2_hibernation_options);
    out->hibernation_options->configured = some_bool(false);
    out->enclave_options = arena_new_of(a, struct ec2_enclave_options);
    out->enclave_options->enabled = some_bool(false);
    out->maintenance_options = arena_new_of(a, struct ec2_instance_maintenance_options);
    out->maintenance_options->auto_recovery = STR("default");
    out->private_dns_name_options =
        arena_new_of(a, struct ec2_private_dns_name_options_response);
    out->private_dns_name_options->hostname_type = STR("ip-name");
    out->private_dns_name_options->enable_resource_name_dns_a_record = some_bool(false);
    out->private_dns_name_options->enable_resource_name_dns_aaaa_record = some_bool(false);
    out->monitoring = arena_new_of(a, struct ec2_monitoring);
    out->monitoring->state = s->is_monitored ? STR("enabled") : STR("disabled");
}

/* StateReason: what compute says wins over the user's last action once it has acted on that. */
static void reason_out(struct arena *a, const struct inst *in, struct ec2_instance *out)
{
    const struct instance *s = in->spec;
    struct str code = s->reason_code, message = s->reason_message;
    if (in->status && in->status->generation >= s->generation &&
        in->status->reason_code.n > 0) {
        code = in->status->reason_code;
        message = in->status->reason_message;
    }
    if (code.n > 0 && in->state != INSTANCE_RUNNING) {
        out->state_reason = arena_new_of(a, struct ec2_state_reason);
        out->state_reason->code = code;
        out->state_reason->message = message;
    }
    out->state_transition_reason = s->transition_reason.p ? s->transition_reason : STR("");
}

void inst_out(struct aws_call *call, const struct inst *in, struct ec2_instance *out)
{
    struct arena *a = call->arena;
    struct gw *gw = gw_of(call);
    const struct instance *s = in->spec;
    out->instance_id = s->id;
    out->image_id = s->image_id;
    inst_state_out(a, in->state, &out->state);
    out->private_dns_name = STR("");
    out->public_dns_name = STR("");
    reason_out(a, in, out);
    out->key_name = s->key_name.n > 0 ? s->key_name : STR_NONE;
    out->ami_launch_index = some_i64((int64_t)s->launch_index);
    AWS_LIST_MAKE(a, &out->product_codes, 0);
    out->instance_type = s->instance_type;
    out->launch_time = some_time(s->launch_ns);
    out->placement = arena_new_of(a, struct ec2_placement);
    out->placement->availability_zone = s->az;
    out->placement->availability_zone_id = zone_id(gw, a);
    out->placement->group_name = STR("");
    out->placement->tenancy = STR("default");
    out->architecture = s->arch;
    out->client_token = s->client_token.p ? s->client_token : STR("");
    out->ebs_optimized = some_bool(s->is_ebs_optimized);
    out->ena_support = some_bool(true);
    out->hypervisor = STR("xen"); /* what AWS answers for its KVM hosts too */
    out->root_device_name = s->root_device;
    out->root_device_type = STR("ebs");
    out->source_dest_check = some_bool(s->is_source_dest_checked);
    out->virtualization_type = STR("hvm");
    out->platform_details = STR("Linux/UNIX");
    out->usage_operation = STR("RunInstances");
    out->usage_operation_update_time = some_time(s->create_ns);
    out->current_instance_boot_mode =
        str_eqc(s->boot_mode, "uefi") ? STR("uefi") : STR("legacy-bios");
    options_out(a, s, out);
    AWS_LIST_MAKE(a, &out->security_groups, 0);
    volumes_out(call, in->volumes, out);
    /* A terminated instance has given its interface back, and shows no address. */
    interface_out(call, in->state == INSTANCE_TERMINATED ? NULL : REC(eni, in->eni), out);
    tags_out(a, tags_of(gw, a, s->account, s->id), &out->tags);
}

void reservation_out(struct aws_call *call, const struct inst *members, size_t n,
                     struct ec2_reservation *out)
{
    out->reservation_id = members[0].spec->reservation_id;
    out->owner_id = members[0].spec->account;
    AWS_LIST_MAKE(call->arena, &out->groups, 0);
    AWS_LIST_MAKE(call->arena, &out->instances, n);
    for (size_t i = 0; i < n; i++) {
        inst_out(call, &members[i], &out->instances.v[i]);
    }
}
