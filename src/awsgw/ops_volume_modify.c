/* ModifyVolume, DescribeVolumesModifications, ModifyVolumeAttribute, EnableVolumeIO. */
#include "awsgw/ops.h"

#include "awsgw/describe.h"
#include "awsgw/txn.h"
#include "awsgw/vol.h"
#include "base/buf.h"
#include "base/num.h"
#include "base/time.h"
#include "model/keys.h"
#include "model/volume_type.h"

#include <errno.h>

#define DAY_NS        (UINT64_C(86400) * NS_PER_S)
#define MODS_PER_DAY  4u /* of one volume (EC2 API reference, ModifyVolume) */
#define GP3_IOPS      3000u
#define GP2_SLOW_GIB  170u /* EBS user guide: 128 MiB/s up to it, 250 above */
#define GP2_SLOW_MIBS 128u
#define GP2_MIBS      250u

static void mod_out(const struct volume_mod *m, const struct volume_mod_status *st,
                    struct ec2_volume_modification *o)
{
    o->volume_id = m->id;
    o->modification_state = vol_mod_state(m, st);
    o->status_message =
        str_eqc(o->modification_state, "failed") && st->reason.n > 0 ? st->reason : STR_NONE;
    o->target_size = some_i64((int64_t)m->size_gib);
    o->target_volume_type = m->type;
    o->target_multi_attach_enabled = some_bool(false);
    o->original_size = some_i64((int64_t)m->from_size_gib);
    o->original_volume_type = m->from_type;
    o->original_multi_attach_enabled = some_bool(false);
    if (m->iops > 0) {
        o->target_iops = some_i64((int64_t)m->iops);
    }
    if (m->throughput > 0) {
        o->target_throughput = some_i64((int64_t)m->throughput);
    }
    if (m->from_iops > 0) {
        o->original_iops = some_i64((int64_t)m->from_iops);
    }
    if (m->from_throughput > 0) {
        o->original_throughput = some_i64((int64_t)m->from_throughput);
    }
    bool is_done = str_eqc(o->modification_state, "completed");
    bool is_new = st && st->generation == m->generation;
    o->progress = some_i64(is_done  ? 100
                           : is_new ? (int64_t)MIN(st->progress, UINT64_C(99))
                                    : 0);
    o->start_time = some_time(m->start_ns);
    if (is_new && st->end_ns > 0) {
        o->end_time = some_time(st->end_ns);
    }
}

/* ---- ModifyVolume ---- */

/* What was not said follows from what the volume is (EC2 API reference; EBS user guide: from gp2
 * to gp3 a volume keeps what it had when that is more). */
static int choose(const struct volume *now, const struct ec2_modify_volume_request *in,
                  struct volume *to, struct err *err)
{
    to->type = in->volume_type.n > 0 ? in->volume_type : now->type;
    bool is_same_type = str_eq(to->type, now->type);
    const struct volume_type *t = volume_type_find(to->type);
    bool is_from_gp2 = str_eqc(now->type, "gp2") && str_eqc(to->type, "gp3");
    struct volume_ask ask = {.type = to->type,
                             .size_gib = now->size_gib,
                             .has_iops = in->iops.is_set,
                             .iops = in->iops.v,
                             .has_throughput = in->throughput.is_set,
                             .throughput = in->throughput.v};
    if (in->size.is_set) {
        if (in->size.v < 0 || (uint64_t)in->size.v < now->size_gib) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "New size cannot be smaller than existing size");
        }
        ask.size_gib = (uint64_t)in->size.v;
    }
    if (!ask.has_iops && t && t->iops_max > 0) {
        ask.has_iops = true;
        ask.iops = is_same_type  ? (int64_t)now->iops
                   : is_from_gp2 ? (int64_t)MAX(now->iops, (uint64_t)GP3_IOPS)
                                 : (int64_t)GP3_IOPS;
    }
    if (!ask.has_throughput && t && t->throughput_max > 0) {
        ask.has_throughput = true;
        ask.throughput = is_same_type                    ? (int64_t)now->throughput
                         : !is_from_gp2                  ? (int64_t)t->throughput_default
                         : now->size_gib <= GP2_SLOW_GIB ? GP2_SLOW_MIBS
                                                         : GP2_MIBS;
    }
    to->size_gib = ask.size_gib;
    return volume_type_check(&ask, &to->iops, &to->throughput, err);
}

static int check_type_change(struct aws_call *call, const struct vol *v, struct str to,
                             struct err *err)
{
    if (str_eqc(v->now.type, "standard") || str_eqc(to, "standard")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Volumes of type standard cannot be modified, and no volume can become "
                    "one.");
    }
    const struct volume_type *t = volume_type_find(to);
    const struct instance *i = REC(instance, store_spec(gw_of(call), call->arena, "instance",
                                                        call->account, v->spec->instance_id));
    if (t && !t->is_bootable && i && str_eq(i->root_device, v->spec->device)) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "A root volume cannot be modified to type %s.", t->name);
    }
    return 0;
}

/* Starts within a day, the newest last: at most MODS_PER_DAY. */
struct recent {
    uint64_t v[MODS_PER_DAY];
    size_t n;
};

static struct recent recent_parse(struct str text, uint64_t now_ns)
{
    struct recent r = {.n = 0};
    struct str rest = text, part = STR_NONE;
    while (r.n < MODS_PER_DAY && str_next(&rest, ',', &part)) {
        uint64_t ns = 0;
        if (num_u64(part, UINT64_MAX, &ns) == 0 && ns + DAY_NS > now_ns) {
            r.v[r.n++] = ns;
        }
    }
    return r;
}

static struct str recent_text(struct arena *a, const struct recent *r, uint64_t now_ns)
{
    AUTO_BUF b;
    buf_init(&b, 256);
    for (size_t i = 0; i < r->n; i++) {
        buf_fmt(&b, "%llu,", (unsigned long long)r->v[i]);
    }
    buf_fmt(&b, "%llu", (unsigned long long)now_ns);
    return arena_str_dup(a, buf_str(&b));
}

static int check_modifiable(const struct vol *v, const struct recent *recent, uint64_t now_ns,
                            struct err *err)
{
    if (!str_eqc(v->state, "available") && !str_eqc(v->state, "in-use")) {
        return fail(err, -EINVAL, "IncorrectState",
                    "The volume '%.*s' is in the '%.*s' state: it cannot be modified.",
                    STR_ARG(v->spec->id), STR_ARG(v->state));
    }
    struct str state = v->mod ? vol_mod_state(v->mod, v->mod_status) : STR("completed");
    if (str_eqc(state, "modifying") || str_eqc(state, "optimizing")) {
        return fail(err, -EBUSY, "IncorrectModificationState",
                    "Volume %.*s cannot be modified in modification state %s",
                    STR_ARG(v->spec->id),
                    str_eqc(state, "modifying") ? "MODIFYING" : "OPTIMIZING");
    }
    if (recent->n >= MODS_PER_DAY) {
        uint64_t s = (recent->v[0] + DAY_NS - now_ns) / NS_PER_S;
        return fail(err, -EBUSY, "VolumeModificationRateExceeded",
                    "You've reached the maximum modification rate per volume limit. Wait "
                    "%llu hours and %llu minutes before the next modification of volume %.*s.",
                    (unsigned long long)(s / 3600), (unsigned long long)(s / 60 % 60 + 1),
                    STR_ARG(v->spec->id));
    }
    return 0;
}

static struct volume_mod mod_of(struct aws_call *call, const struct vol *v,
                                const struct volume *to, const struct recent *recent)
{
    return (struct volume_mod){
        .id = v->spec->id,
        .account = v->spec->account,
        .generation = to->generation,
        .start_ns = call->now_ns,
        .from_size_gib = v->now.size_gib,
        .from_iops = v->now.iops,
        .from_throughput = v->now.throughput,
        .size_gib = to->size_gib,
        .iops = to->iops,
        .throughput = to->throughput,
        .from_type = v->now.type,
        .type = to->type,
        .recent = recent_text(call->arena, recent, call->now_ns),
    };
}

int ec2_modify_volume(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_modify_volume_request *in = input;
    struct ec2_modify_volume_result *out = output;
    const struct view_entry *e = find_one(call, AWS_ID_VOLUME, in->volume_id, err);
    if (!e || txn_settle(gw_of(call), e, err) < 0) {
        return err->code;
    }
    struct vol v = vol_join(call, e);
    struct volume to = *v.spec;
    struct recent recent =
        recent_parse(v.mod && v.mod->recent.p ? v.mod->recent : STR(""), call->now_ns);
    int r = 0;
    if (in->multi_attach_enabled.v) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "Multi-attach is not supported here.");
    }
    if ((r = choose(&v.now, in, &to, err)) < 0 ||
        (r = check_type_change(call, &v, to.type, err)) < 0 ||
        (r = check_modifiable(&v, &recent, call->now_ns, err)) < 0) {
        return r;
    }
    if (!in->size.is_set && in->volume_type.n == 0 && !in->iops.is_set &&
        !in->throughput.is_set && !in->multi_attach_enabled.is_set) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The request must contain a size, a volume type, IOPS or a throughput.");
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    to.generation++;
    struct volume_mod m = mod_of(call, &v, &to, &recent);
    if (v.mod) {
        m.head = v.mod->head;
    }
    struct txn *t = txn_open(call);
    txn_update(t, e, &volume_desc, &to);
    txn_set(t, v.mod_entry, key_spec(call->arena, "volmod", m.account, m.id), &volume_mod_desc,
            &m);
    out->volume_modification = arena_new_of(call->arena, struct ec2_volume_modification);
    mod_out(&m, NULL, out->volume_modification);
    return txn_commit(t, err);
}

/* ---- DescribeVolumesModifications ---- */

static const char *const filters[] = {
    "modification-state",
    "original-iops",
    "original-size",
    "original-volume-type",
    "start-time",
    "target-iops",
    "target-size",
    "target-volume-type",
    "volume-id",
    "originalMultiAttachEnabled",
    "targetMultiAttachEnabled",
};

static void values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    const struct volume_mod *m = REC(volume_mod, (const struct view_entry *)obj);
    switch (name_idx) {
    case 0:
        aws_filter_add(p, vol_mod_state(m, REC(volume_mod_status,
                                               store_status(gw_of(call), call->arena, "volmod",
                                                            m->account, m->id))));
        break;
    case 1: aws_filter_add_i64(p, (int64_t)m->from_iops); break;
    case 2: aws_filter_add_i64(p, (int64_t)m->from_size_gib); break;
    case 3: aws_filter_add(p, m->from_type); break;
    case 4: aws_filter_add_time(p, m->start_ns); break;
    case 5: aws_filter_add_i64(p, (int64_t)m->iops); break;
    case 6: aws_filter_add_i64(p, (int64_t)m->size_gib); break;
    case 7: aws_filter_add(p, m->type); break;
    case 8: aws_filter_add(p, m->id); break;
    default: aws_filter_add_bool(p, false); break;
    }
}

static int named_mods(struct aws_call *call, const struct aws_str_list *ids,
                      struct entries *ret, struct err *err)
{
    struct entries volumes = {0};
    int r = find_many(call, AWS_ID_VOLUME, ids, &volumes, err);
    if (r < 0) {
        return r;
    }
    ret->v = arena_xalloc(call->arena, (volumes.n + 1) * sizeof(*ret->v));
    for (size_t i = 0; i < volumes.n; i++) {
        struct str id = REC(volume, volumes.v[i])->id;
        const struct view_entry *e =
            store_spec(gw_of(call), call->arena, "volmod", call->account, id);
        if (!e || !e->obj) {
            return fail(err, -ENOENT, "InvalidVolumeModification.NotFound",
                        "Modification for volume '%.*s' does not exist.", STR_ARG(id));
        }
        ret->v[ret->n++] = e;
    }
    return 0;
}

int ec2_describe_volumes_modifications(struct aws_call *call, const void *input, void *output,
                                       struct err *err)
{
    const struct ec2_describe_volumes_modifications_request *in = input;
    struct ec2_describe_volumes_modifications_result *out = output;
    struct entries all = {0}, shown = {0};
    int r = 0;
    if (in->volume_ids.n > 0) {
        r = named_mods(call, &in->volume_ids, &all, err);
    } else {
        all = store_list(gw_of(call), call->arena, "volmod", call->account);
    }
    const struct describe_spec spec = {
        .kind = AWS_ID_VOLUME,
        .rec_kind = "volmod",
        .filters = filters,
        .n_filters = ARRAY_LEN(filters),
        .values = values,
        .page_min = 1,
        .page_max = 500,
    };
    const struct describe_in din = {&in->volume_ids, &in->filters, in->max_results,
                                    in->next_token};
    if (r < 0 ||
        (r = describe_select(call, &spec, &din, all, &shown, &out->next_token, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->volumes_modifications, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        const struct volume_mod *m = REC(volume_mod, shown.v[i]);
        mod_out(m,
                REC(volume_mod_status,
                    store_status(gw_of(call), call->arena, "volmod", m->account, m->id)),
                &out->volumes_modifications.v[i]);
    }
    return 0;
}

/* ---- attributes ---- */

static int save(struct aws_call *call, const struct view_entry *e, struct volume *rec,
                struct err *err)
{
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    struct txn *t = txn_open(call);
    txn_update(t, e, &volume_desc, rec);
    return txn_commit(t, err);
}

int ec2_modify_volume_attribute(struct aws_call *call, const void *input, void *output,
                                struct err *err)
{
    const struct ec2_modify_volume_attribute_request *in = input;
    const struct view_entry *e = find_one(call, AWS_ID_VOLUME, in->volume_id, err);
    if (!e) {
        return err->code;
    }
    if (!in->auto_enable_io || !in->auto_enable_io->value.is_set) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter AutoEnableIO");
    }
    struct volume rec = *REC(volume, e);
    rec.is_auto_io = in->auto_enable_io->value.v;
    return save(call, e, &rec, err);
}

int ec2_enable_volume_io(struct aws_call *call, const void *input, void *output,
                         struct err *err)
{
    const struct ec2_enable_volume_io_request *in = input;
    const struct view_entry *e = find_one(call, AWS_ID_VOLUME, in->volume_id, err);
    if (!e) {
        return err->code;
    }
    struct vol v = vol_join(call, e);
    if (!v.status || !str_eqc(v.status->health, "impaired")) {
        return aws_dry_run(call, err); /* it is enabled */
    }
    struct volume rec = *v.spec;
    rec.io_enabled_ns = call->now_ns;
    rec.generation++;
    return save(call, e, &rec, err);
}
