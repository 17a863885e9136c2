/* Snapshots: Create (of a volume, of an instance), Copy, Delete. */
#include "awsgw/ops.h"

#include "awsgw/ebs.h"
#include "awsgw/region.h"
#include "awsgw/tagset.h"
#include "awsgw/vol.h"
#include "model/keys.h"

#include <errno.h>

#define DESCRIPTION_MAX 255u
#define COPIES_MAX      20u /* under way at once (EBS quota) */

static const char *const tag_types[] = {"snapshot", NULL};

static int check_place(struct str outpost_arn, struct str location, struct err *err)
{
    if (outpost_arn.n > 0) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "An outpost is not supported here.");
    }
    if (location.n > 0 && !str_eqc(location, "regional")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter Location is invalid: the volume is not in a "
                    "Local Zone.",
                    STR_ARG(location));
    }
    return 0;
}

static int check_description(struct str d, struct err *err)
{
    if (str_is_set(d) && str_utf8_len(d) > DESCRIPTION_MAX) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The description must be at most %u characters long.", DESCRIPTION_MAX);
    }
    return 0;
}

static int check_volume(const struct vol *v, struct err *err)
{
    if (!str_eqc(v->state, "available") && !str_eqc(v->state, "in-use")) {
        return fail(err, -EINVAL, "IncorrectState",
                    "The volume '%.*s' is in the '%.*s' state: no snapshot of it can be made.",
                    STR_ARG(v->spec->id), STR_ARG(v->state));
    }
    return 0;
}

int ec2_create_snapshot(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_create_snapshot_request *in = input;
    const struct view_entry *e = find_one(call, AWS_ID_VOLUME, in->volume_id, err);
    struct tag_list tags = {0};
    if (!e || txn_settle(gw_of(call), e, err) < 0) {
        return err->code;
    }
    struct vol v = vol_join(call, e);
    int r = check_volume(&v, err);
    if (r < 0 || (r = check_place(in->outpost_arn, in->location, err)) < 0 ||
        (r = check_description(in->description, err)) < 0 ||
        (r = tags_from_spec(call->arena, &in->tag_specifications, "snapshot", tag_types, &tags,
                            err)) < 0 ||
        (r = snap_check_rate(call, &v.now, true, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    struct snapshot s = snap_of_volume(gw_of(call), call->arena, &v.now, call->now_ns);
    s.description = str_is_set(in->description) ? in->description : STR("");
    struct txn *t = txn_open(call);
    snap_add(t, e, &s, tags);
    if ((r = txn_commit(t, err)) < 0) {
        return r;
    }
    snap_wait_taken(call, &s, 1);
    const struct view_entry *made =
        store_spec(gw_of(call), call->arena, "snapshot", s.account, s.id);
    if (!made) {
        return aws_id_not_found(AWS_ID_SNAPSHOT, &s.id, 1, err);
    }
    struct snap shown = snap_join(call, made);
    struct ec2_snapshot *out = output;
    snap_out(call, &shown, out);
    /* As AWS answers, whatever happened meanwhile. */
    out->state = STR("pending");
    out->progress = STR("");
    out->storage_tier = STR_NONE;
    out->completion_time = (struct opt_time){0};
    out->full_snapshot_size_in_bytes = (struct opt_i64){0};
    return 0;
}

/* ---- CreateSnapshots ---- */

struct multi {
    struct entries volumes; /* to be taken */
    struct snapshot *v;
    struct tag_list *tags;
};

static bool is_in(const struct aws_str_list *l, struct str id)
{
    for (size_t i = 0; i < l->n; i++) {
        if (str_eq(l->v[i], id)) {
            return true;
        }
    }
    return false;
}

static int choose_volumes(struct aws_call *call, const struct ec2_instance_specification *spec,
                          struct multi *m, struct err *err)
{
    const struct view_entry *e = find_one(call, AWS_ID_INSTANCE, spec->instance_id, err);
    if (!e || txn_settle(gw_of(call), e, err) < 0) {
        return err->code;
    }
    struct inst in = inst_join(call, e);
    size_t n_excluded = 0;
    int r = aws_ids_check(AWS_ID_VOLUME, &spec->exclude_data_volume_ids, err);
    if (r < 0) {
        return r;
    }
    if (in.state != INSTANCE_RUNNING && in.state != INSTANCE_STOPPED &&
        in.state != INSTANCE_STOPPING && in.state != INSTANCE_PENDING) {
        return fail(err, -EINVAL, "IncorrectInstanceState",
                    "The instance '%.*s' is not in the 'running' or 'stopped' state.",
                    STR_ARG(spec->instance_id));
    }
    m->volumes.v = arena_xalloc(call->arena, (in.volumes.n + 1) * sizeof(*m->volumes.v));
    for (size_t i = 0; i < in.volumes.n; i++) {
        const struct volume *v = REC(volume, in.volumes.v[i]);
        bool is_root = str_eq(v->device, in.spec->root_device);
        bool is_named = is_in(&spec->exclude_data_volume_ids, v->id);
        if (is_named && is_root) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "The root volume '%.*s' cannot be excluded as a data volume: use "
                        "ExcludeBootVolume.",
                        STR_ARG(v->id));
        }
        n_excluded += is_named;
        if (!is_named && !(is_root && spec->exclude_boot_volume.v) &&
            !str_eqc(volume_attach_state(call, v), "detached")) {
            m->volumes.v[m->volumes.n++] = in.volumes.v[i];
        }
    }
    if (n_excluded < spec->exclude_data_volume_ids.n) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "An excluded volume is not attached to the instance '%.*s'.",
                    STR_ARG(spec->instance_id));
    }
    if (m->volumes.n == 0) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The instance '%.*s' has no volume that is not excluded.",
                    STR_ARG(spec->instance_id));
    }
    return 0;
}

static int plan_snapshots(struct aws_call *call, const struct ec2_create_snapshots_request *in,
                          struct multi *m, struct err *err)
{
    struct tag_list asked = {0};
    int r = tags_from_spec(call->arena, &in->tag_specifications, "snapshot", tag_types, &asked,
                           err);
    m->v = arena_xalloc(call->arena, m->volumes.n * sizeof(*m->v));
    m->tags = arena_xalloc(call->arena, m->volumes.n * sizeof(*m->tags));
    for (size_t i = 0; r == 0 && i < m->volumes.n; i++) {
        struct vol v = vol_join(call, m->volumes.v[i]);
        m->tags[i] = asked;
        if ((r = check_volume(&v, err)) < 0 ||
            (r = snap_check_rate(call, &v.now, true, err)) < 0) {
            return r;
        }
        if (str_is_set(in->copy_tags_from_source)) {
            r = tags_merge(call, asked, v.spec->id, &m->tags[i], err);
        }
        m->v[i] = snap_of_volume(gw_of(call), call->arena, &v.now, call->now_ns);
        m->v[i].description = str_is_set(in->description) ? in->description : STR("");
        if (m->volumes.n > 1) {
            m->v[i].group = m->v[0].id;
            m->v[i].n_group = m->volumes.n;
        }
    }
    return r;
}

static void info_out(struct aws_call *call, const struct snapshot *s, struct tag_list tags,
                     struct ec2_snapshot_info *o)
{
    const struct snapshot_status *st = REC(
        snapshot_status, store_status(gw_of(call), call->arena, "snapshot", s->account, s->id));
    o->snapshot_id = s->id;
    o->volume_id = s->volume_id;
    o->description = s->description;
    o->encrypted = some_bool(s->is_encrypted);
    o->state = STR("pending");
    o->progress = STR("");
    o->volume_size = some_i64((int64_t)s->size_gib);
    o->start_time = some_time(st && st->start_ns ? st->start_ns : s->create_ns);
    o->owner_id = s->account;
    tags_out(call->arena, tags, &o->tags);
}

int ec2_create_snapshots(struct aws_call *call, const void *input, void *output,
                         struct err *err)
{
    const struct ec2_create_snapshots_request *in = input;
    struct ec2_create_snapshots_result *out = output;
    struct multi m = {0};
    int r = choose_volumes(call, in->instance_specification, &m, err);
    if (r < 0 || (r = check_place(in->outpost_arn, in->location, err)) < 0 ||
        (r = check_description(in->description, err)) < 0 ||
        (r = plan_snapshots(call, in, &m, err)) < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    struct txn *t = txn_open(call);
    for (size_t i = 0; i < m.volumes.n; i++) {
        snap_add(t, m.volumes.v[i], &m.v[i], m.tags[i]);
    }
    if ((r = txn_commit(t, err)) < 0) {
        return r;
    }
    snap_wait_taken(call, m.v, m.volumes.n);
    AWS_LIST_MAKE(call->arena, &out->snapshots, m.volumes.n);
    for (size_t i = 0; i < m.volumes.n; i++) {
        info_out(call, &m.v[i], m.tags[i], &out->snapshots.v[i]);
    }
    return 0;
}

/* ---- CopySnapshot ---- */

static int check_copy(struct aws_call *call, const struct ec2_copy_snapshot_request *in,
                      struct err *err)
{
    struct str here = region_name(gw_of(call));
    if (!str_eq(in->source_region, here)) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter sourceRegion is invalid: this installation has "
                    "one region, '%.*s'.",
                    STR_ARG(in->source_region), STR_ARG(here));
    }
    /* SDKs fill in the destination and a presigned URL; within one region the URL says nothing
     * that the request does not. */
    if (in->destination_region.n > 0 && !str_eq(in->destination_region, here)) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter destinationRegion is invalid.",
                    STR_ARG(in->destination_region));
    }
    if (in->destination_outpost_arn.n > 0 || in->destination_availability_zone.n > 0 ||
        in->completion_duration_minutes.is_set) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "An outpost, a Local Zone or a completion duration is not supported here.");
    }
    struct entries all = store_list(gw_of(call), call->arena, "snapshot", call->account);
    unsigned n = 0;
    for (size_t i = 0; i < all.n; i++) {
        n += str_eqc(REC(snapshot, all.v[i])->source, "copy") &&
             str_eqc(snap_join(call, all.v[i]).state, "pending");
    }
    if (n >= COPIES_MAX) {
        return fail(err, -EBUSY, "ResourceLimitExceeded",
                    "Too many snapshot copies in progress. The limit is %u for this "
                    "destination region.",
                    COPIES_MAX);
    }
    return check_description(in->description, err);
}

int ec2_copy_snapshot(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_copy_snapshot_request *in = input;
    struct ec2_copy_snapshot_result *out = output;
    struct tag_list tags = {0};
    int r = check_copy(call, in, err);
    const struct view_entry *e = r < 0 ? NULL : snap_find(call, in->source_snapshot_id, err);
    if (!e) {
        return err->code;
    }
    struct snap from = snap_join(call, e);
    if (!str_eqc(from.state, "completed")) {
        return fail(err, -EINVAL, "IncorrectState", "Snapshot is in invalid state - %.*s",
                    STR_ARG(from.state));
    }
    struct snapshot s = {
        .id = id_new(call->arena, "snap"),
        .account = call->account,
        .description = str_is_set(in->description) ? in->description : STR(""),
        .generation = 1,
        .want = STR("present"),
        .source = STR("copy"),
        .volume_id = STR(SNAPSHOT_NO_VOLUME),
        .from_id = from.spec->id,
        .from_account = from.spec->account,
        .node = str_c(gw_of(call)->cfg->node),
        .size_gib = from.spec->size_gib,
        .size = from.spec->size,
        .create_ns = call->now_ns,
    };
    const struct ebs_crypt_ask ask = {in->encrypted, in->kms_key_id, from.spec->is_encrypted};
    if ((r = ebs_crypt(call, &ask, &s.is_encrypted, &s.kms_key_id, err)) < 0 ||
        (r = tags_from_spec(call->arena, &in->tag_specifications, "snapshot", tag_types, &tags,
                            err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    struct txn *t = txn_open(call);
    txn_expect(t, e->key, e->mod_rev); /* still there, and still shared with the caller */
    txn_create(t, key_spec(t->a, "snapshot", s.account, s.id), &snapshot_desc, &s);
    tags_create(t, s.account, s.id, "snapshot", tags);
    out->snapshot_id = s.id;
    tags_out(call->arena, tags, &out->tags);
    return txn_commit(t, err);
}

/* ---- DeleteSnapshot ---- */

int ec2_delete_snapshot(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_delete_snapshot_request *in = input;
    const struct view_entry *e = snap_find_own(call, in->snapshot_id, err);
    if (!e || txn_settle(gw_of(call), e, err) < 0) {
        return err->code;
    }
    struct snapshot rec = *REC(snapshot, e);
    struct str image = snap_image_of(gw_of(call), call->arena, &rec, NULL);
    if (str_is_set(image)) {
        return fail(err, -EBUSY, "InvalidSnapshot.InUse",
                    "The snapshot %.*s is currently in use by %.*s", STR_ARG(rec.id),
                    STR_ARG(image));
    }
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    rec.want = STR("deleted");
    rec.generation++;
    struct txn *t = txn_open(call);
    txn_update(t, e, &snapshot_desc, &rec);
    return txn_commit(t, err);
}
