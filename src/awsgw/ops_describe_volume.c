/* DescribeVolumes, DescribeVolumeStatus, DescribeVolumeAttribute. */
#include "awsgw/ops.h"

#include "awsgw/describe.h"
#include "awsgw/region.h"
#include "awsgw/vol.h"

#include <errno.h>

static const char *const volume_filters[] = {
    "attachment.attach-time",
    "attachment.delete-on-termination",
    "attachment.device",
    "attachment.instance-id",
    "attachment.status",
    "availability-zone",
    "availability-zone-id",
    "create-time",
    "encrypted",
    "fast-restored",
    "multi-attach-enabled",
    "size",
    "snapshot-id",
    "status",
    "volume-id",
    "volume-type",
    "operator.managed",
    "operator.principal",
};

static void attachment_values(const struct vol *v, size_t name_idx, struct aws_filter_probe *p)
{
    if (str_eqc(v->attachment, "detached")) {
        return;
    }
    switch (name_idx) {
    case 0: aws_filter_add_time(p, v->spec->attach_ns); break;
    case 1: aws_filter_add_bool(p, v->spec->is_deleted_on_termination); break;
    case 2: aws_filter_add(p, v->spec->device); break;
    case 3: aws_filter_add(p, v->spec->instance_id); break;
    default: aws_filter_add(p, v->attachment); break;
    }
}

static void volume_values(void *ctx, const void *obj, size_t name_idx,
                          struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    struct vol v = vol_join(call, obj);
    switch (name_idx) {
    case 5: aws_filter_add(p, v.spec->az); break;
    case 6: aws_filter_add(p, zone_id(gw_of(call), call->arena)); break;
    case 7: aws_filter_add_time(p, v.spec->create_ns); break;
    case 8: aws_filter_add_bool(p, v.spec->is_encrypted); break;
    case 9: aws_filter_add_bool(p, false); break;
    case 10: aws_filter_add_bool(p, false); break;
    case 11: aws_filter_add_i64(p, (int64_t)v.now.size_gib); break;
    case 12:
        if (v.spec->source_volume_id.n == 0) { /* of a copy it is not shown */
            aws_filter_add(p, v.spec->snapshot_id);
        }
        break;
    case 13: aws_filter_add(p, v.state); break;
    case 14: aws_filter_add(p, v.spec->id); break;
    case 15: aws_filter_add(p, v.now.type); break;
    case 16: aws_filter_add_bool(p, false); break;
    case 17: break;
    default: attachment_values(&v, name_idx, p); break;
    }
}

int ec2_describe_volumes(struct aws_call *call, const void *input, void *output,
                         struct err *err)
{
    const struct ec2_describe_volumes_request *in = input;
    struct ec2_describe_volumes_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_VOLUME,
        .rec_kind = "volume",
        .filters = volume_filters,
        .n_filters = ARRAY_LEN(volume_filters),
        .values = volume_values,
        .ids_param = "volumesSet",
        .page_min = 5,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->volume_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->volumes, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        ec2_volume_out(call, shown.v[i], &out->volumes.v[i]);
    }
    return 0;
}

/* ---- DescribeVolumeStatus ---- */

static const char *const status_filters[] = {
    "action.code",          "action.description",         "action.event-id",
    "availability-zone",    "availability-zone-id",       "event.description",
    "event.event-id",       "event.event-type",           "event.not-after",
    "event.not-before",     "volume-status.details-name", "volume-status.details-status",
    "volume-status.status",
};

/* "ok", "impaired", or "insufficient-data" while the volume is being made. */
static struct str health(const struct vol *v)
{
    if (!v->status || str_eqc(v->state, "creating")) {
        return STR("insufficient-data");
    }
    return str_eqc(v->state, "error") || str_eqc(v->status->health, "impaired")
               ? STR("impaired")
               : STR("ok");
}

static struct str io_enabled(struct str health)
{
    return str_eqc(health, "ok")         ? STR("passed")
           : str_eqc(health, "impaired") ? STR("failed")
                                         : STR("insufficient-data");
}

static void status_values(void *ctx, const void *obj, size_t name_idx,
                          struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    struct vol v = vol_join(call, obj);
    switch (name_idx) {
    case 3: aws_filter_add(p, v.spec->az); break;
    case 4: aws_filter_add(p, zone_id(gw_of(call), call->arena)); break;
    case 10:
        aws_filter_addc(p, "io-enabled");
        aws_filter_addc(p, "io-performance");
        break;
    case 11: aws_filter_add(p, io_enabled(health(&v))); break;
    case 12: aws_filter_add(p, health(&v)); break;
    default: break; /* no actions, no events */
    }
}

static void status_out(struct aws_call *call, const struct vol *v,
                       struct ec2_volume_status_item *o)
{
    struct arena *a = call->arena;
    o->volume_id = v->spec->id;
    o->availability_zone = v->spec->az;
    o->availability_zone_id = zone_id(gw_of(call), a);
    AWS_LIST_MAKE(a, &o->actions, 0);
    AWS_LIST_MAKE(a, &o->events, 0);
    o->volume_status = arena_new_of(a, struct ec2_volume_status_info);
    o->volume_status->status = health(v);
    AWS_LIST_MAKE(a, &o->volume_status->details, 2);
    o->volume_status->details.v[0].name = STR("io-enabled");
    o->volume_status->details.v[0].status = io_enabled(health(v));
    o->volume_status->details.v[1].name = STR("io-performance");
    o->volume_status->details.v[1].status = STR("not-applicable");
}

int ec2_describe_volume_status(struct aws_call *call, const void *input, void *output,
                               struct err *err)
{
    const struct ec2_describe_volume_status_request *in = input;
    struct ec2_describe_volume_status_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_VOLUME,
        .rec_kind = "volume",
        .filters = status_filters,
        .n_filters = ARRAY_LEN(status_filters),
        .values = status_values,
        .ids_param = "volumesSet",
        .page_min = 5,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->volume_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->volume_statuses, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        struct vol v = vol_join(call, shown.v[i]);
        status_out(call, &v, &out->volume_statuses.v[i]);
    }
    return 0;
}

int ec2_describe_volume_attribute(struct aws_call *call, const void *input, void *output,
                                  struct err *err)
{
    const struct ec2_describe_volume_attribute_request *in = input;
    struct ec2_describe_volume_attribute_result *out = output;
    const struct view_entry *e = find_one(call, AWS_ID_VOLUME, in->volume_id, err);
    int r = e ? aws_dry_run(call, err) : err->code;
    if (r < 0) {
        return r;
    }
    out->volume_id = REC(volume, e)->id;
    if (str_eqc(in->attribute, "autoEnableIO")) {
        out->auto_enable_io = arena_new_of(call->arena, struct ec2_attribute_boolean_value);
        out->auto_enable_io->value = some_bool(REC(volume, e)->is_auto_io);
    } else {
        AWS_LIST_MAKE(call->arena, &out->product_codes, 0);
    }
    return 0;
}
