/* Volumes: Delete, Attach, Detach. */
#include "awsgw/ops.h"

#include "awsgw/launch.h"
#include "awsgw/vol.h"

#include <errno.h>

#define DEVICE_MAX_LEN 32u

static int commit(struct aws_call *call, struct txn *t, struct err *err)
{
    int r = aws_dry_run(call, err);
    return r < 0 ? r : txn_commit(t, err);
}

/* ---- DeleteVolume ---- */

int ec2_delete_volume(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_delete_volume_request *in = input;
    const struct view_entry *e = find_one(call, AWS_ID_VOLUME, in->volume_id, err);
    if (!e) {
        return err->code;
    }
    struct vol v = vol_join(call, e);
    /* By the attachment: a volume that is still being made, or has failed, may have one too. */
    if (!str_eqc(v.attachment, "detached")) {
        return fail(err, -EBUSY, "VolumeInUse", "Volume %.*s is currently attached to %.*s",
                    STR_ARG(v.spec->id), STR_ARG(v.spec->instance_id));
    }
    if (str_eqc(v.state, "deleting")) {
        return aws_id_not_found(AWS_ID_VOLUME, &v.spec->id, 1, err);
    }
    struct volume rec = *v.spec;
    rec.want = STR("deleted");
    rec.instance_id = STR("");
    rec.generation++;
    struct txn *t = txn_open(call);
    txn_update(t, e, &volume_desc, &rec);
    return commit(call, t, err);
}

/* ---- AttachVolume ---- */

/* What is detached sits in the record until the janitor comes by: its device is free already. */
static struct entries sitting_volumes(struct aws_call *call, const struct inst *in)
{
    struct entries ret = {.v = arena_xalloc(call->arena, (in->volumes.n + 1) * sizeof(*ret.v))};
    for (size_t i = 0; i < in->volumes.n; i++) {
        if (!str_eqc(volume_attach_state(call, REC(volume, in->volumes.v[i])), "detached")) {
            ret.v[ret.n++] = in->volumes.v[i];
        }
    }
    return ret;
}

static int check_device(const struct inst *in, struct str device, struct err *err)
{
    bool is_ok = device.n > 5 && device.n <= DEVICE_MAX_LEN &&
                 (str_has_prefixc(device, "/dev/") || str_has_prefixc(device, "xvd"));
    for (size_t i = 0; i < device.n; i++) {
        char c = device.p[i];
        is_ok = is_ok && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '/');
    }
    if (!is_ok) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter device is invalid. %.*s is not a valid EBS "
                    "device name.",
                    STR_ARG(device), STR_ARG(device));
    }
    for (size_t i = 0; i < in->volumes.n; i++) {
        if (str_eq(REC(volume, in->volumes.v[i])->device, device)) {
            return fail(
                err, -EINVAL, "InvalidParameterValue",
                "Invalid value '%.*s' for unixDevice. Attachment point %.*s is already in use",
                STR_ARG(device), STR_ARG(device));
        }
    }
    return 0;
}

/* A guest has a place for its root and DATA_DISKS_MAX more. */
static bool is_full(const struct inst *in, struct str device)
{
    size_t n_data = 0;
    for (size_t i = 0; i < in->volumes.n; i++) {
        n_data += !str_eq(REC(volume, in->volumes.v[i])->device, in->spec->root_device);
    }
    return !str_eq(device, in->spec->root_device) && n_data >= DATA_DISKS_MAX;
}

static int check_attachable(const struct vol *v, const struct inst *in, struct str device,
                            struct err *err)
{
    if (str_eqc(v->state, "in-use")) {
        return fail(err, -EBUSY, "VolumeInUse", "%.*s is already attached to an instance",
                    STR_ARG(v->spec->id));
    }
    if (!str_eqc(v->state, "available")) {
        return fail(err, -EINVAL, "IncorrectState",
                    "Volume '%.*s' is in the '%.*s' state; it must be 'available'.",
                    STR_ARG(v->spec->id), STR_ARG(v->state));
    }
    if (in->state != INSTANCE_RUNNING && in->state != INSTANCE_STOPPED &&
        in->state != INSTANCE_PENDING) {
        return fail(err, -EINVAL, "IncorrectState", "Instance '%.*s' is not 'running'.",
                    STR_ARG(in->spec->id));
    }
    if (!str_eq(v->spec->az, in->spec->az)) {
        return fail(err, -EINVAL, "InvalidVolume.ZoneMismatch",
                    "The volume '%.*s' is not in the same availability zone as instance '%.*s'",
                    STR_ARG(v->spec->id), STR_ARG(in->spec->id));
    }
    if (is_full(in, device)) {
        return fail(err, -EINVAL, "AttachmentLimitExceeded",
                    "Instance '%.*s' has %u data volumes attached already.",
                    STR_ARG(in->spec->id), DATA_DISKS_MAX);
    }
    return 0;
}

int ec2_attach_volume(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_attach_volume_request *in = input;
    const struct view_entry *ve = find_one(call, AWS_ID_VOLUME, in->volume_id, err);
    const struct view_entry *ie =
        ve ? find_one(call, AWS_ID_INSTANCE, in->instance_id, err) : NULL;
    if (!ie || txn_settle(gw_of(call), ie, err) < 0) {
        return err->code;
    }
    struct vol v = vol_join(call, ve);
    struct inst i = inst_join(call, ie);
    i.volumes = sitting_volumes(call, &i);
    int r = check_attachable(&v, &i, in->device, err);
    if (r < 0 || (r = check_device(&i, in->device, err)) < 0) {
        return r;
    }
    struct volume rec = *v.spec;
    rec.instance_id = i.spec->id;
    rec.device = in->device;
    rec.attach_want = STR("attached");
    rec.attach_ns = call->now_ns;
    rec.is_detach_forced = false;
    rec.is_deleted_on_termination = false;
    rec.generation++;
    struct txn *t = txn_open(call);
    /* The instance must still be what was checked: two requests for one device, or an attach
     * and a terminate, conflict here. */
    txn_update(t, ie, &instance_desc, i.spec);
    txn_update(t, ve, &volume_desc, &rec);
    if ((r = commit(call, t, err)) < 0) {
        return r;
    }
    v.spec = &rec;
    v.attachment = STR("attaching");
    vol_attachment_out(&v, output);
    return 0;
}

/* ---- DetachVolume ---- */

static int check_detachable(const struct vol *v, const struct inst *in,
                            const struct ec2_detach_volume_request *rq, struct err *err)
{
    if (str_eqc(v->attachment, "detached")) {
        return fail(err, -EINVAL, "IncorrectState",
                    "Volume '%.*s' is in the 'available' state.", STR_ARG(v->spec->id));
    }
    if ((str_is_set(rq->instance_id) && !str_eq(rq->instance_id, v->spec->instance_id)) ||
        (str_is_set(rq->device) && !str_eq(rq->device, v->spec->device))) {
        return fail(
            err, -EINVAL, "InvalidAttachment.NotFound",
            "The volume '%.*s' is not attached to instance '%.*s' as device '%.*s'",
            STR_ARG(v->spec->id),
            STR_ARG(str_is_set(rq->instance_id) ? rq->instance_id : v->spec->instance_id),
            STR_ARG(str_is_set(rq->device) ? rq->device : v->spec->device));
    }
    if (in->spec && in->state != INSTANCE_STOPPED &&
        str_eq(v->spec->device, in->spec->root_device)) {
        return fail(err, -EPERM, "OperationNotPermitted",
                    "Unable to detach root volume '%.*s' from instance '%.*s'",
                    STR_ARG(v->spec->id), STR_ARG(in->spec->id));
    }
    return 0;
}

int ec2_detach_volume(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_detach_volume_request *in = input;
    const struct view_entry *ve = find_one(call, AWS_ID_VOLUME, in->volume_id, err);
    int r = ve ? 0 : err->code;
    if (r == 0 && str_is_set(in->instance_id)) {
        r = aws_id_check(AWS_ID_INSTANCE, in->instance_id, err);
    }
    if (r < 0) {
        return r;
    }
    struct vol v = vol_join(call, ve);
    struct inst i = {0};
    const struct view_entry *ie =
        store_spec(gw_of(call), call->arena, "instance", call->account, v.spec->instance_id);
    if (ie) {
        i = inst_brief(call, ie);
    }
    if ((r = check_detachable(&v, &i, in, err)) < 0) {
        return r;
    }
    struct volume rec = *v.spec;
    rec.attach_want = STR("detached");
    rec.is_detach_forced = in->force.v;
    rec.generation++;
    struct txn *t = txn_open(call);
    if (ie) {
        /* Touched, not only expected: a start that has seen this as its root conflicts, whoever
         * of the two commits first. */
        txn_update(t, ie, &instance_desc, i.spec);
    }
    txn_update(t, ve, &volume_desc, &rec);
    if ((r = commit(call, t, err)) < 0) {
        return r;
    }
    v.spec = &rec;
    v.attachment = STR("detaching");
    vol_attachment_out(&v, output);
    return 0;
}
