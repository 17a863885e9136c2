#include "awsgw/vol.h"

struct vol vol_join(struct aws_call *call, const struct view_entry *e)
{
    struct vol v = {.entry = e, .spec = REC(volume, e)};
    v.status = REC(volume_status, store_status(gw_of(call), call->arena, "volume",
                                               v.spec->account, v.spec->id));
    v.attachment =
        v.spec->instance_id.n > 0 ? volume_attach_state(call, v.spec) : STR("detached");
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
