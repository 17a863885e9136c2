/* DescribeInstances, DescribeInstanceStatus. */
#include "awsgw/ops.h"

#include "awsgw/describe.h"
#include "awsgw/inst.h"
#include "awsgw/region.h"
#include "awsgw/tagset.h"
#include "model/keys.h"

#include <assert.h>
#include <errno.h>

/* ---- filters of DescribeInstances ---- */

/* One row per filter of the API reference that this installation has values for. */
#define INSTANCE_FILTERS(F)                                                                    \
    F("affinity", (void)0)                                                                     \
    F("architecture", aws_filter_add(p, s->arch))                                              \
    F("availability-zone", aws_filter_add(p, s->az))                                           \
    F("availability-zone-id", aws_filter_add(p, zone_id(gw_of(call), call->arena)))            \
    F("block-device-mapping.attach-time", volume_filter(call, in, 0, p))                       \
    F("block-device-mapping.delete-on-termination", volume_filter(call, in, 1, p))             \
    F("block-device-mapping.device-name", volume_filter(call, in, 2, p))                       \
    F("block-device-mapping.status", volume_filter(call, in, 3, p))                            \
    F("block-device-mapping.volume-id", volume_filter(call, in, 4, p))                         \
    F("boot-mode", aws_filter_addc(p, str_eqc(s->boot_mode, "uefi") ? "uefi" : "legacy-bios")) \
    F("client-token", aws_filter_add(p, s->client_token))                                      \
    F("current-instance-boot-mode",                                                            \
      aws_filter_addc(p, str_eqc(s->boot_mode, "uefi") ? "uefi" : "legacy-bios"))              \
    F("dns-name", eni_filter(call, eni, 0, p))                                                 \
    F("ebs-optimized", aws_filter_add_bool(p, s->is_ebs_optimized))                            \
    F("ena-support", aws_filter_add_bool(p, true))                                             \
    F("hibernation-options.configured", aws_filter_add_bool(p, false))                         \
    F("hypervisor", aws_filter_addc(p, "xen"))                                                 \
    F("image-id", aws_filter_add(p, s->image_id))                                              \
    F("instance-id", aws_filter_add(p, s->id))                                                 \
    F("instance-lifecycle", (void)0)                                                           \
    F("instance-state-code", aws_filter_add_i64(p, (int64_t)in->state))                        \
    F("instance-state-name", aws_filter_addc(p, instance_state_name(in->state)))               \
    F("instance-type", aws_filter_add(p, s->instance_type))                                    \
    F("instance.group-id", eni_filter(call, eni, 1, p))                                        \
    F("instance.group-name", eni_filter(call, eni, 2, p))                                      \
    F("ip-address", eni_filter(call, eni, 3, p))                                               \
    F("key-name", aws_filter_add(p, s->key_name))                                              \
    F("launch-index", aws_filter_add_i64(p, (int64_t)s->launch_index))                         \
    F("launch-time", aws_filter_add_time(p, s->launch_ns))                                     \
    F("maintenance-options.auto-recovery", aws_filter_addc(p, "default"))                      \
    F("metadata-options.http-endpoint", aws_filter_add(p, s->http_endpoint))                   \
    F("metadata-options.http-put-response-hop-limit",                                          \
      aws_filter_add_i64(p, (int64_t)s->http_hop_limit))                                       \
    F("metadata-options.http-tokens", aws_filter_add(p, s->http_tokens))                       \
    F("metadata-options.instance-metadata-tags",                                               \
      aws_filter_addc(p, s->is_tags_in_metadata ? "enabled" : "disabled"))                     \
    F("monitoring-state", aws_filter_addc(p, s->is_monitored ? "enabled" : "disabled"))        \
    F("network-interface.addresses.association.public-ip", eni_filter(call, eni, 3, p))        \
    F("network-interface.addresses.private-ip-address", eni_filter(call, eni, 4, p))           \
    F("network-interface.addresses.primary", aws_filter_add_bool(p, true))                     \
    F("network-interface.association.public-ip", eni_filter(call, eni, 3, p))                  \
    F("network-interface.attachment.attachment-id", eni_filter(call, eni, 5, p))               \
    F("network-interface.attachment.device-index", eni_filter(call, eni, 6, p))                \
    F("network-interface.attachment.status", aws_filter_addc(p, "attached"))                   \
    F("network-interface.availability-zone", aws_filter_add(p, s->az))                         \
    F("network-interface.description", eni_filter(call, eni, 7, p))                            \
    F("network-interface.group-id", eni_filter(call, eni, 1, p))                               \
    F("network-interface.group-name", eni_filter(call, eni, 2, p))                             \
    F("network-interface.mac-address", eni_filter(call, eni, 8, p))                            \
    F("network-interface.network-interface-id", eni_filter(call, eni, 9, p))                   \
    F("network-interface.owner-id", aws_filter_add(p, s->account))                             \
    F("network-interface.private-dns-name", eni_filter(call, eni, 10, p))                      \
    F("network-interface.source-dest-check",                                                   \
      aws_filter_add_bool(p, s->is_source_dest_checked))                                       \
    F("network-interface.status", aws_filter_addc(p, "in-use"))                                \
    F("network-interface.subnet-id", aws_filter_add(p, s->subnet_id))                          \
    F("network-interface.vpc-id", aws_filter_add(p, s->vpc_id))                                \
    F("owner-id", aws_filter_add(p, s->account))                                               \
    F("placement-group-name", (void)0)                                                         \
    F("platform", (void)0)                                                                     \
    F("platform-details", aws_filter_addc(p, "Linux/UNIX"))                                    \
    F("private-dns-name", eni_filter(call, eni, 10, p))                                        \
    F("private-ip-address", eni_filter(call, eni, 4, p))                                       \
    F("product-code", (void)0)                                                                 \
    F("product-code.type", (void)0)                                                            \
    F("reason", aws_filter_add(p, s->transition_reason))                                       \
    F("requester-id", (void)0)                                                                 \
    F("reservation-id", aws_filter_add(p, s->reservation_id))                                  \
    F("root-device-name", aws_filter_add(p, s->root_device))                                   \
    F("root-device-type", aws_filter_addc(p, "ebs"))                                           \
    F("source-dest-check", aws_filter_add_bool(p, s->is_source_dest_checked))                  \
    F("state-reason-code", aws_filter_add(p, s->reason_code))                                  \
    F("state-reason-message", aws_filter_add(p, s->reason_message))                            \
    F("subnet-id", aws_filter_add(p, s->subnet_id))                                            \
    F("tenancy", aws_filter_addc(p, "default"))                                                \
    F("usage-operation", aws_filter_addc(p, "RunInstances"))                                   \
    F("virtualization-type", aws_filter_addc(p, "hvm"))                                        \
    F("vpc-id", aws_filter_add(p, s->vpc_id))

#define FILTER_NAME(name, value) name,
static const char *const instance_filters[] = {INSTANCE_FILTERS(FILTER_NAME)};
#undef FILTER_NAME

static void volume_filter(struct aws_call *call, const struct inst *in, int what,
                          struct aws_filter_probe *p)
{
    for (size_t i = 0; i < in->volumes.n; i++) {
        const struct volume *v = REC(volume, in->volumes.v[i]);
        switch (what) {
        case 0: aws_filter_add_time(p, v->attach_ns); break;
        case 1: aws_filter_add_bool(p, v->is_deleted_on_termination); break;
        case 2: aws_filter_add(p, v->device); break;
        case 3: aws_filter_add(p, volume_attach_state(call, v)); break;
        default: aws_filter_add(p, v->id); break;
        }
    }
}

static void group_names(struct aws_call *call, const struct eni *e, struct aws_filter_probe *p)
{
    for (size_t i = 0; i < e->sg_ids.n; i++) {
        const struct sg *g =
            REC(sg, store_spec(gw_of(call), call->arena, "sg", call->account, e->sg_ids.v[i]));
        if (g) {
            aws_filter_add(p, g->name);
        }
    }
}

static void eni_filter(struct aws_call *call, const struct eni *e, int what,
                       struct aws_filter_probe *p)
{
    if (!e) {
        return;
    }
    switch (what) {
    case 0:
        if (e->public_ip.n > 0) {
            aws_filter_add(p, public_dns_name(gw_of(call), call->arena, e->public_ip));
        }
        break;
    case 1:
        for (size_t i = 0; i < e->sg_ids.n; i++) {
            aws_filter_add(p, e->sg_ids.v[i]);
        }
        break;
    case 2: group_names(call, e, p); break;
    case 3:
        if (e->public_ip.n > 0) {
            aws_filter_add(p, e->public_ip);
        }
        break;
    case 4: aws_filter_add(p, e->private_ip); break;
    case 5: aws_filter_add(p, e->attachment_id); break;
    case 6: aws_filter_add_i64(p, (int64_t)e->device_index); break;
    case 7: aws_filter_add(p, e->description); break;
    case 8: aws_filter_add(p, e->mac); break;
    case 9: aws_filter_add(p, e->id); break;
    default: aws_filter_add(p, e->private_dns); break;
    }
}

struct joined { /* filter context: the instances of this request, looked up by entry */
    struct aws_call *call;
    const struct inst *v;
    size_t n, at; /* filters ask in order: 'at' is where the last one was */
};

static const struct inst *joined_find(struct joined *j, const struct view_entry *e)
{
    for (size_t i = 0; i < j->n; i++) {
        size_t k = (j->at + i) % j->n;
        if (j->v[k].entry == e) {
            j->at = k;
            return &j->v[k];
        }
    }
    return NULL;
}

static void instance_values(void *ctx, const void *obj, size_t name_idx,
                            struct aws_filter_probe *p)
{
    struct joined *j = ctx;
    struct aws_call *call = j->call;
    const struct inst *in = joined_find(j, obj);
    assert(in); /* filters are asked about the joined instances only */
    const struct instance *s = in->spec;
    const struct eni *eni = in->state == INSTANCE_TERMINATED ? NULL : REC(eni, in->eni);
    size_t row = 0;
#define FILTER_CASE(name, value) \
    if (name_idx == row++) {     \
        value;                   \
        return;                  \
    }
    INSTANCE_FILTERS(FILTER_CASE)
#undef FILTER_CASE
}

static void instance_tags(void *ctx, const void *obj, struct aws_filter_probe *p)
{
    describe_tags(((struct joined *)ctx)->call, obj, p);
}

/* ---- DescribeInstances ---- */

static int by_reservation(const void *a, const void *b)
{
    const struct instance *x = ((const struct inst *)a)->spec,
                          *y = ((const struct inst *)b)->spec;
    int r = str_cmp(x->reservation_id, y->reservation_id);
    return r != 0 ? r
                  : (x->launch_index > y->launch_index) - (x->launch_index < y->launch_index);
}

static void reservations_out(struct aws_call *call, struct inst *v, size_t n,
                             struct ec2_reservation_list *out)
{
    qsort(v, n, sizeof(*v), by_reservation);
    size_t n_groups = 0;
    for (size_t i = 0; i < n; i++) {
        n_groups += i == 0 || !str_eq(v[i].spec->reservation_id, v[i - 1].spec->reservation_id);
    }
    AWS_LIST_MAKE(call->arena, out, n_groups);
    for (size_t i = 0, g = 0; i < n; g++) {
        size_t k = i + 1;
        while (k < n && str_eq(v[k].spec->reservation_id, v[i].spec->reservation_id)) {
            k++;
        }
        reservation_out(call, &v[i], k - i, &out->v[g]);
        i = k;
    }
}

int ec2_describe_instances(struct aws_call *call, const void *input, void *output,
                           struct err *err)
{
    const struct ec2_describe_instances_request *in = input;
    struct ec2_describe_instances_result *out = output;
    struct entries all = {0};
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    if (in->instance_ids.n > 0) {
        if ((r = find_many(call, AWS_ID_INSTANCE, &in->instance_ids, &all, err)) < 0) {
            return r;
        }
    } else {
        all = store_list(gw_of(call), call->arena, "instance", call->account);
    }
    struct inst *v = arena_xalloc(call->arena, (all.n ? all.n : 1) * sizeof(*v));
    inst_join_all(call, all, v);

    const struct aws_filter_spec fs = {.names = instance_filters,
                                       .n_names = ARRAY_LEN(instance_filters),
                                       .has_tags = true,
                                       .values = instance_values,
                                       .tags = instance_tags};
    const struct aws_page_spec ps = {.min = 5,
                                     .max = 1000,
                                     .dflt = 0,
                                     .ids_param = "instancesSet",
                                     .has_ids = in->instance_ids.n > 0};
    struct aws_filter *f = NULL;
    struct aws_page page;
    if ((r = aws_filter_open(call->arena, &fs, &in->filters, &f, err)) < 0 ||
        (r = aws_page_begin(call, &ps, in->max_results, in->next_token, &page, err)) < 0) {
        return r;
    }
    struct joined j = {call, v, all.n, 0};
    struct inst *shown = arena_xalloc(call->arena, (all.n ? all.n : 1) * sizeof(*shown));
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        if ((str_is_set(page.after) && str_cmp(all.v[i]->key, page.after) <= 0) ||
            !aws_filter_match(f, &j, all.v[i])) {
            continue;
        }
        if (n == page.max) {
            out->next_token = aws_page_token(call, shown[n - 1].entry->key);
            break;
        }
        shown[n++] = v[i];
    }
    reservations_out(call, shown, n, &out->reservations);
    return 0;
}

/* ---- DescribeInstanceStatus ---- */

static const char *const status_filters[] = {
    "availability-zone",          "availability-zone-id",         "event.code",
    "event.description",          "event.instance-event-id",      "event.not-after",
    "event.not-before",           "event.not-before-deadline",    "instance-state-code",
    "instance-state-name",        "instance-status.reachability", "instance-status.status",
    "system-status.reachability", "system-status.status",         "attached-ebs-status.status",
};

/* "ok" -> "passed" and so on (InstanceStatusDetails). */
static const char *reachability(struct str check)
{
    return str_eqc(check, "ok")             ? "passed"
           : str_eqc(check, "impaired")     ? "failed"
           : str_eqc(check, "initializing") ? "initializing"
                                            : "insufficient-data";
}

static struct str check_of(const struct inst *in, bool is_system)
{
    if (in->state != INSTANCE_RUNNING) {
        return STR("not-applicable");
    }
    struct str c = !in->status ? STR_NONE
                   : is_system ? in->status->system_check
                               : in->status->instance_check;
    return c.n > 0 ? c : STR("initializing");
}

static void status_values(void *ctx, const void *obj, size_t name_idx,
                          struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    struct inst in = inst_brief(call, obj);
    switch (name_idx) {
    case 0: aws_filter_add(p, in.spec->az); break;
    case 1: aws_filter_add(p, zone_id(gw_of(call), call->arena)); break;
    case 8: aws_filter_add_i64(p, (int64_t)in.state); break;
    case 9: aws_filter_addc(p, instance_state_name(in.state)); break;
    case 10: aws_filter_addc(p, reachability(check_of(&in, false))); break;
    case 11: aws_filter_add(p, check_of(&in, false)); break;
    case 12: aws_filter_addc(p, reachability(check_of(&in, true))); break;
    case 13: aws_filter_add(p, check_of(&in, true)); break;
    case 14: aws_filter_addc(p, in.state == INSTANCE_RUNNING ? "ok" : "not-applicable"); break;
    default: break; /* no scheduled events */
    }
}

static void summary_out(struct arena *a, struct str check, uint64_t since_ns,
                        struct ec2_instance_status_summary **out)
{
    *out = arena_new_of(a, struct ec2_instance_status_summary);
    (*out)->status = check;
    if (str_eqc(check, "not-applicable")) {
        return;
    }
    AWS_LIST_MAKE(a, &(*out)->details, 1);
    (*out)->details.v[0].name = STR("reachability");
    (*out)->details.v[0].status = str_c(reachability(check));
    if (str_eqc(check, "impaired")) {
        (*out)->details.v[0].impaired_since = some_time(since_ns);
    }
}

static void status_out(struct aws_call *call, const struct inst *in,
                       struct ec2_instance_status *out)
{
    struct arena *a = call->arena;
    uint64_t since = in->status ? in->status->impaired_since_ns : 0;
    out->availability_zone = in->spec->az;
    out->availability_zone_id = zone_id(gw_of(call), a);
    out->instance_id = in->spec->id;
    inst_state_out(a, in->state, &out->instance_state);
    summary_out(a, check_of(in, false), since, &out->instance_status);
    summary_out(a, check_of(in, true), since, &out->system_status);
    out->attached_ebs_status = arena_new_of(a, struct ec2_ebs_status_summary);
    out->attached_ebs_status->status =
        in->state == INSTANCE_RUNNING ? STR("ok") : STR("not-applicable");
    if (in->state == INSTANCE_RUNNING) {
        AWS_LIST_MAKE(a, &out->attached_ebs_status->details, 1);
        out->attached_ebs_status->details.v[0].name = STR("reachability");
        out->attached_ebs_status->details.v[0].status = STR("passed");
    }
}

static bool is_running(struct aws_call *call, const struct view_entry *e)
{
    return inst_brief(call, e).state == INSTANCE_RUNNING;
}

int ec2_describe_instance_status(struct aws_call *call, const void *input, void *output,
                                 struct err *err)
{
    const struct ec2_describe_instance_status_request *in = input;
    struct ec2_describe_instance_status_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_INSTANCE,
        .rec_kind = "instance",
        .filters = status_filters,
        .n_filters = ARRAY_LEN(status_filters),
        .values = status_values,
        .ids_param = "instancesSet",
        .page_min = 5,
        .page_max = 1000,
        .page_dflt = 100,
        .is_visible = in->include_all_instances.v ? NULL : is_running,
    };
    const struct describe_in din = {&in->instance_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    struct inst *v = arena_xalloc(call->arena, (shown.n ? shown.n : 1) * sizeof(*v));
    inst_join_all(call, shown, v);
    AWS_LIST_MAKE(call->arena, &out->instance_statuses, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        status_out(call, &v[i], &out->instance_statuses.v[i]);
    }
    return 0;
}
