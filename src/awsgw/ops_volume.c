/* Volumes: Create, Delete, Attach, Detach. */
#include "awsgw/ops.h"

#include "aws/token.h"
#include "awsgw/launch.h"
#include "awsgw/region.h"
#include "awsgw/vol.h"
#include "model/keys.h"

#include <errno.h>

#define ATTACHMENTS_MAX 15u /* root ports of a guest that are kept for disks */
#define DEVICE_MAX_LEN  32u
#define VOLUMES_MAX     5000u /* of one account */

static int commit(struct aws_call *call, struct txn *t, struct err *err)
{
    int r = aws_dry_run(call, err);
    return r < 0 ? r : txn_commit(t, err);
}

/* ---- CreateVolume ---- */

static int check_zone(struct aws_call *call, const struct ec2_create_volume_request *in,
                      struct err *err)
{
    struct gw *gw = gw_of(call);
    if (!str_is_set(in->availability_zone) && !str_is_set(in->availability_zone_id)) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter AvailabilityZone");
    }
    if (str_is_set(in->availability_zone) && !str_eq(in->availability_zone, zone_name(gw))) {
        return fail(err, -EINVAL, "InvalidZone.NotFound", "The zone '%.*s' does not exist.",
                    STR_ARG(in->availability_zone));
    }
    if (str_is_set(in->availability_zone_id) &&
        !str_eq(in->availability_zone_id, zone_id(gw, call->arena))) {
        return fail(err, -EINVAL, "InvalidZone.NotFound", "The zone '%.*s' does not exist.",
                    STR_ARG(in->availability_zone_id));
    }
    return 0;
}

static int check_extras(const struct ec2_create_volume_request *in, struct err *err)
{
    const char *what = in->encrypted.v || in->kms_key_id.n > 0 ? "An encrypted volume"
                       : in->multi_attach_enabled.v            ? "Multi-attach"
                       : in->outpost_arn.n > 0                 ? "An outpost"
                       : in->volume_initialization_rate.is_set ? "A volume initialization rate"
                       : in->operator                          ? "An operator"
                                                               : NULL;
    return what ? fail(err, -EOPNOTSUPP, "UnsupportedOperation", "%s is not supported here.",
                       what)
                : 0;
}

/* The snapshot's own account, or an image that the caller may use. */
static int check_snapshot(struct aws_call *call, struct str id, struct volume *v,
                          const struct view_entry **ret_image, uint64_t *ret_least,
                          struct err *err)
{
    *ret_least = 0;
    *ret_image = NULL;
    v->snapshot_id = v->image_id = STR("");
    if (!str_is_set(id)) {
        return 0;
    }
    int r = aws_id_check(AWS_ID_SNAPSHOT, id, err);
    if (r < 0) {
        return r;
    }
    struct entries images = store_list(gw_of(call), call->arena, "image", STR_NONE);
    for (size_t i = 0; i < images.n; i++) {
        const struct image *img = REC(image, images.v[i]);
        if (str_eq(img->snapshot_id, id) && image_is_visible(call, img) &&
            str_eqc(img->want, "present")) {
            v->snapshot_id = id;
            v->image_id = img->id;
            *ret_image = images.v[i];
            *ret_least = MAX((img->size + (UINT64_C(1) << 30) - 1) >> 30, UINT64_C(1));
            return 0;
        }
    }
    return aws_id_not_found(AWS_ID_SNAPSHOT, &id, 1, err);
}

static int check_size(const struct ec2_create_volume_request *in, uint64_t least, uint64_t *ret,
                      struct err *err)
{
    if (!in->size.is_set && least == 0) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter size or snapshotId");
    }
    if (in->size.is_set && in->size.v < 1) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%lld) for parameter size is invalid. It must be greater than 0.",
                    (long long)in->size.v);
    }
    *ret = in->size.is_set ? (uint64_t)in->size.v : least;
    if (*ret < least) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The size of a volume can't be smaller than its snapshot (%llu GiB).",
                    (unsigned long long)least);
    }
    return 0;
}

static void volume_out(struct aws_call *call, const struct vol *v, struct tag_list tags,
                       struct ec2_volume *o)
{
    const struct volume *s = v->spec;
    o->volume_id = s->id;
    o->size = some_i64((int64_t)s->size_gib);
    o->snapshot_id = s->snapshot_id.p ? s->snapshot_id : STR("");
    o->availability_zone = s->az;
    o->availability_zone_id = zone_id(gw_of(call), call->arena);
    o->state = v->state;
    o->create_time = some_time(s->create_ns);
    o->encrypted = some_bool(s->is_encrypted);
    o->volume_type = s->type;
    o->multi_attach_enabled = some_bool(false);
    if (s->iops > 0) {
        o->iops = some_i64((int64_t)s->iops);
    }
    if (s->throughput > 0) {
        o->throughput = some_i64((int64_t)s->throughput);
    }
    bool is_attached = !str_eqc(v->attachment, "detached");
    AWS_LIST_MAKE(call->arena, &o->attachments, is_attached ? 1 : 0);
    if (is_attached) {
        vol_attachment_out(v, &o->attachments.v[0]);
    }
    tags_out(call->arena, tags, &o->tags);
}

void ec2_volume_out(struct aws_call *call, const struct view_entry *e, struct ec2_volume *out)
{
    struct vol v = vol_join(call, e);
    volume_out(call, &v, tags_of(gw_of(call), call->arena, call->account, v.spec->id), out);
}

static int create_replay(struct aws_call *call, struct str id, void *output, struct err *err)
{
    const struct view_entry *e =
        store_spec(gw_of(call), call->arena, "volume", call->account, id);
    if (!e) {
        return aws_id_not_found(AWS_ID_VOLUME, &id, 1, err);
    }
    ec2_volume_out(call, e, output);
    return 0;
}

int ec2_create_volume(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_create_volume_request *in = input;
    static const char *const allowed[] = {"volume", NULL};
    struct tag_list tags = {0};
    struct aws_token tok;
    uint64_t least = 0;
    const struct view_entry *image = NULL;
    struct volume v = {
        .account = call->account,
        .generation = 1,
        .want = STR("present"),
        .node = str_c(gw_of(call)->cfg->node),
        .az = zone_name(gw_of(call)),
        .type = in->volume_type.n > 0 ? in->volume_type : STR("gp2"),
        .create_ns = call->now_ns,
        .instance_id = STR(""),
    };
    int r = check_zone(call, in, err);
    if (r < 0 || (r = check_extras(in, err)) < 0 ||
        (r = check_snapshot(call, in->snapshot_id, &v, &image, &least, err)) < 0 ||
        (r = check_size(in, least, &v.size_gib, err)) < 0 ||
        (r = volume_type_check(v.type, v.size_gib, in->iops, in->throughput, &v.iops,
                               &v.throughput, err)) < 0 ||
        (r = tags_from_spec(call->arena, &in->tag_specifications, "volume", allowed, &tags,
                            err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0 ||
        (r = txn_token_begin(call, in->client_token, in, &tok, err)) < 0) {
        return r;
    }
    if (tok.is_replay) {
        return create_replay(call, tok.result, output, err);
    }
    if (store_list(gw_of(call), call->arena, "volume", call->account).n >= VOLUMES_MAX) {
        return fail(err, -E2BIG, "VolumeLimitExceeded",
                    "The maximum number of volumes (%u) has been reached.", VOLUMES_MAX);
    }
    v.id = id_new(call->arena, "vol");
    struct txn *t = txn_open(call);
    txn_token(t, call, &tok, v.id);
    if (image) {
        txn_expect(t, image->key, image->mod_rev); /* its bytes must not go meanwhile */
    }
    txn_create(t, key_spec(call->arena, "volume", call->account, v.id), &volume_desc, &v);
    tags_create(t, call->account, v.id, "volume", tags);
    if ((r = txn_commit(t, err)) < 0) {
        return r;
    }
    return create_replay(call, v.id, output, err);
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

static int check_attachable(const struct vol *v, const struct inst *in, struct err *err)
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
    if (in->volumes.n >= ATTACHMENTS_MAX) {
        return fail(err, -EINVAL, "AttachmentLimitExceeded",
                    "Instance '%.*s' has %zu volumes attached already.", STR_ARG(in->spec->id),
                    in->volumes.n);
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
    int r = check_attachable(&v, &i, err);
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
