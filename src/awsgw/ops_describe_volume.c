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

#define IO_EVENT_TYPE  "potential-data-inconsistency"
#define IO_ACTION      "enable-volume-io"
#define IO_ACTION_TEXT "Enable volume I/O"

/* "ok", "impaired", or "insufficient-data" while the volume is being made. */
static struct str health(const struct vol *v)
{
    if (!v->status || str_eqc(v->state, "creating") ||
        str_eqc(v->status->health, "insufficient-data")) {
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

/* Types whose speed is provisioned have it watched while a guest uses them. */
static struct str io_performance(const struct vol *v)
{
    bool is_provisioned = str_eqc(v->now.type, "io1") || str_eqc(v->now.type, "io2") ||
                          str_eqc(v->now.type, "gp3");
    return is_provisioned && str_eqc(v->attachment, "attached") && str_eqc(health(v), "ok")
               ? STR("normal")
               : STR("not-applicable");
}

/* What happened to an impaired volume: the event and the action go by one id. */
struct io_event {
    bool is_there;
    struct str id, description;
    uint64_t since_ns;
};

static struct io_event io_event_of(struct arena *a, const struct vol *v)
{
    static const struct {
        const char *fault, *text;
    } texts[] = {
        {"sync-failed", "A write could not be made durable; I/O is stopped"},
        {"lost", "The data of the volume is missing or damaged"},
        {"crashed-twice", "The process that serves the volume ended twice"},
        {"store-away", "The store that the volume is filled from cannot be reached"},
    };
    struct io_event e = {.is_there = str_eqc(health(v), "impaired") && v->status};
    if (!e.is_there) {
        return e;
    }
    /* vol-0123... -> evol-0123... */
    e.id = arena_fmt(a, "e%.*s", STR_ARG(v->spec->id));
    e.description = STR("The data of the volume may be inconsistent");
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (str_eqc(v->status->fault, texts[i].fault)) {
            e.description = str_c(texts[i].text);
        }
    }
    e.since_ns = v->status->fault_ns;
    return e;
}

static void status_values(void *ctx, const void *obj, size_t name_idx,
                          struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    struct vol v = vol_join(call, obj);
    struct io_event e = io_event_of(call->arena, &v);
    if (name_idx != 3 && name_idx != 4 && name_idx < 10 && !e.is_there) {
        return;
    }
    switch (name_idx) {
    case 0: aws_filter_addc(p, IO_ACTION); break;
    case 1: aws_filter_addc(p, IO_ACTION_TEXT); break;
    case 2: aws_filter_add(p, e.id); break;
    case 3: aws_filter_add(p, v.spec->az); break;
    case 4: aws_filter_add(p, zone_id(gw_of(call), call->arena)); break;
    case 5: aws_filter_add(p, e.description); break;
    case 6: aws_filter_add(p, e.id); break;
    case 7: aws_filter_addc(p, IO_EVENT_TYPE); break;
    case 8: break; /* it has no end */
    case 9: aws_filter_add_time(p, e.since_ns); break;
    case 10:
        aws_filter_addc(p, "io-enabled");
        aws_filter_addc(p, "io-performance");
        break;
    case 11:
        aws_filter_add(p, io_enabled(health(&v)));
        aws_filter_add(p, io_performance(&v));
        break;
    default: aws_filter_add(p, health(&v)); break;
    }
}

static void events_out(struct arena *a, const struct vol *v, struct ec2_volume_status_item *o)
{
    struct io_event e = io_event_of(a, v);
    AWS_LIST_MAKE(a, &o->actions, e.is_there ? 1 : 0);
    AWS_LIST_MAKE(a, &o->events, e.is_there ? 1 : 0);
    if (!e.is_there) {
        return;
    }
    o->actions.v[0].code = STR(IO_ACTION);
    o->actions.v[0].description = STR(IO_ACTION_TEXT);
    o->actions.v[0].event_id = e.id;
    o->actions.v[0].event_type = STR(IO_EVENT_TYPE);
    o->events.v[0].description = e.description;
    o->events.v[0].event_id = e.id;
    o->events.v[0].event_type = STR(IO_EVENT_TYPE);
    o->events.v[0].not_before = some_time(e.since_ns);
    if (v->spec->instance_id.n > 0) {
        o->events.v[0].instance_id = v->spec->instance_id;
    }
}

/* How much of a volume of a snapshot has come by now. */
static void initialization_out(struct arena *a, const struct vol *v,
                               struct ec2_volume_status_item *o)
{
    uint64_t size = v->now.size_gib << 30;
    if (v->spec->snapshot_id.n == 0 || !v->status || size == 0) {
        return;
    }
    uint64_t absent = MIN(v->status->absent, size);
    o->initialization_status_details =
        arena_new_of(a, struct ec2_initialization_status_details);
    o->initialization_status_details->initialization_type =
        v->spec->source_volume_id.n > 0 ? STR("volume-copy") : STR("default");
    o->initialization_status_details->progress =
        some_i64((int64_t)((size - absent) / (size / 100)));
}

static void status_out(struct aws_call *call, const struct vol *v,
                       struct ec2_volume_status_item *o)
{
    struct arena *a = call->arena;
    o->volume_id = v->spec->id;
    o->availability_zone = v->spec->az;
    o->availability_zone_id = zone_id(gw_of(call), a);
    events_out(a, v, o);
    initialization_out(a, v, o);
    o->volume_status = arena_new_of(a, struct ec2_volume_status_info);
    o->volume_status->status = health(v);
    AWS_LIST_MAKE(a, &o->volume_status->details, 2);
    o->volume_status->details.v[0].name = STR("io-enabled");
    o->volume_status->details.v[0].status = io_enabled(health(v));
    o->volume_status->details.v[1].name = STR("io-performance");
    o->volume_status->details.v[1].status = io_performance(v);
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
