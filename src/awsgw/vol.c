#include "awsgw/vol.h"

#include "awsgw/region.h"
#include "awsgw/tagset.h"

struct str vol_mod_state(const struct volume_mod *m, const struct volume_mod_status *st)
{
    return st && st->generation == m->generation && st->state.n > 0 ? st->state
                                                                    : STR("modifying");
}

static void join_mod(struct aws_call *call, struct vol *v)
{
    struct gw *gw = gw_of(call);
    v->now = *v->spec;
    v->mod_entry = store_spec(gw, call->arena, "volmod", v->spec->account, v->spec->id);
    v->mod = REC(volume_mod, v->mod_entry);
    if (!v->mod) {
        return;
    }
    v->mod_status = REC(volume_mod_status,
                        store_status(gw, call->arena, "volmod", v->spec->account, v->spec->id));
    struct str state = vol_mod_state(v->mod, v->mod_status);
    if (str_eqc(state, "modifying") || str_eqc(state, "failed")) {
        v->now.size_gib = v->mod->from_size_gib;
        v->now.type = v->mod->from_type;
        v->now.iops = v->mod->from_iops;
        v->now.throughput = v->mod->from_throughput;
    }
}

struct vol vol_join(struct aws_call *call, const struct view_entry *e)
{
    struct vol v = {.entry = e, .spec = REC(volume, e)};
    v.status = REC(volume_status, store_status(gw_of(call), call->arena, "volume",
                                               v.spec->account, v.spec->id));
    v.attachment =
        v.spec->instance_id.n > 0 ? volume_attach_state(call, v.spec) : STR("detached");
    join_mod(call, &v);
    bool is_made = v.status && str_eqc(v.status->state, "available");
    if (str_eqc(v.spec->want, "deleted")) {
        v.state = STR("deleting");
    } else if (v.status && str_eqc(v.status->state, "error")) {
        v.state = STR("error");
    } else if (!is_made) {
        v.state = STR("creating");
    } else {
        v.state = str_eqc(v.attachment, "detached") ? STR("available") : STR("in-use");
    }
    return v;
}

void vol_attachment_out(const struct vol *v, struct ec2_volume_attachment *out)
{
    out->volume_id = v->spec->id;
    out->instance_id = v->spec->instance_id;
    out->device = v->spec->device;
    out->state = v->attachment;
    out->attach_time = some_time(v->spec->attach_ns);
    out->delete_on_termination = some_bool(v->spec->is_deleted_on_termination);
}

void ec2_volume_out(struct aws_call *call, const struct view_entry *e, struct ec2_volume *o)
{
    struct vol v = vol_join(call, e);
    const struct volume *s = &v.now;
    o->volume_id = s->id;
    o->size = some_i64((int64_t)s->size_gib);
    o->snapshot_id = s->snapshot_id.p ? s->snapshot_id : STR("");
    o->availability_zone = s->az;
    o->availability_zone_id = zone_id(gw_of(call), call->arena);
    o->state = v.state;
    o->create_time = some_time(s->create_ns);
    o->encrypted = some_bool(s->is_encrypted);
    if (s->is_encrypted) {
        o->kms_key_id = s->kms_key_id;
    }
    if (s->source_volume_id.n > 0) {
        o->source_volume_id = s->source_volume_id;
        o->snapshot_id = STR(""); /* a step on the way that nobody sees */
    }
    o->volume_type = s->type;
    o->multi_attach_enabled = some_bool(false);
    if (s->iops > 0) {
        o->iops = some_i64((int64_t)s->iops);
    }
    if (s->throughput > 0) {
        o->throughput = some_i64((int64_t)s->throughput);
    }
    bool is_attached = !str_eqc(v.attachment, "detached");
    AWS_LIST_MAKE(call->arena, &o->attachments, is_attached ? 1 : 0);
    if (is_attached) {
        vol_attachment_out(&v, &o->attachments.v[0]);
    }
    tags_out(call->arena, tags_of(gw_of(call), call->arena, call->account, s->id), &o->tags);
}
