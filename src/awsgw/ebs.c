#include "awsgw/ebs.h"

#include "aws/arn.h"
#include "awsgw/region.h"
#include "awsgw/tagset.h"
#include "base/time.h"
#include "crypto/digest.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/volume_type.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#define KEY_ALIAS     "alias/aws/ebs"

#define TAKEN_WAIT_NS (5 * NS_PER_S)
#define TAKEN_LOOK_NS (10 * NS_PER_MS)
#define TAKEN_WAITERS 4u /* half of the pool: the other requests go on */

/* ---- snapshots ---- */

struct snap snap_join_in(struct gw *gw, struct arena *a, const struct view_entry *e)
{
    struct snap s = {.entry = e, .spec = REC(snapshot, e), .state = STR("pending")};
    s.status =
        REC(snapshot_status, store_status(gw, a, "snapshot", s.spec->account, s.spec->id));
    if (s.status && s.status->state.n > 0) {
        s.state = s.status->state;
    } else if (str_eqc(s.spec->state, "completed")) {
        s.state = STR("completed"); /* a record from before there were statuses */
    }
    return s;
}

struct snap snap_join(struct aws_call *call, const struct view_entry *e)
{
    return snap_join_in(gw_of(call), call->arena, e);
}

static bool is_there(const struct snapshot *s)
{
    return !str_eqc(s->want, "deleted") && !s->is_hidden;
}

bool snap_is_visible(struct aws_call *call, const struct snapshot *s)
{
    if (!is_there(s)) {
        return false;
    }
    if (str_eq(s->account, call->account)) {
        return true;
    }
    for (size_t i = 0; i < s->accounts.n; i++) {
        if (str_eq(s->accounts.v[i], call->account)) {
            return true;
        }
    }
    if (!s->is_public) {
        return false;
    }
    struct ebs_defaults d = ebs_defaults_of(gw_of(call), call->arena, s->account, NULL);
    return !str_eqc(d.block_public_access, "block-all-sharing");
}

const struct view_entry *snap_find(struct aws_call *call, struct str id, struct err *err)
{
    if (aws_id_check(AWS_ID_SNAPSHOT, id, err) < 0) {
        return NULL;
    }
    struct gw *gw = gw_of(call);
    const struct view_entry *own = store_spec(gw, call->arena, "snapshot", call->account, id);
    if (own && own->obj) {
        if (snap_is_visible(call, REC(snapshot, own))) {
            return own;
        }
    } else {
        struct entries all = store_list(gw, call->arena, "snapshot", STR_NONE);
        for (size_t i = 0; i < all.n; i++) {
            const struct snapshot *s = REC(snapshot, all.v[i]);
            if (str_eq(s->id, id) && snap_is_visible(call, s)) {
                return all.v[i];
            }
        }
    }
    aws_id_not_found(AWS_ID_SNAPSHOT, &id, 1, err);
    return NULL;
}

const struct view_entry *snap_find_own(struct aws_call *call, struct str id, struct err *err)
{
    const struct view_entry *e = snap_find(call, id, err);
    if (e && !str_eq(REC(snapshot, e)->account, call->account)) {
        fail(err, -EPERM, "AuthFailure", "Not authorized for snapshot:%.*s", STR_ARG(id));
        return NULL;
    }
    return e;
}

static bool names_snapshot(const struct image *i, struct str id)
{
    bool is_hit = str_eq(i->snapshot_id, id);
    for (size_t k = 0; k < i->devices.n; k++) {
        is_hit = is_hit || str_eq(i->devices.v[k].snapshot_id, id);
    }
    return is_hit;
}

struct str snap_image_of(struct gw *gw, struct arena *a, const struct snapshot *s,
                         size_t *ret_n)
{
    struct entries all = store_list(gw, a, "image", s->account);
    struct str ret = STR_NONE;
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        const struct image *img = REC(image, all.v[i]);
        if (!str_eqc(img->want, "deleted") && names_snapshot(img, s->id)) {
            ret = str_is_set(ret) ? ret : img->id;
            n++;
        }
    }
    if (ret_n) {
        *ret_n = n;
    }
    return ret;
}

void snap_out(struct aws_call *call, const struct snap *s, struct ec2_snapshot *out)
{
    const struct snapshot *spec = s->spec;
    const struct snapshot_status *st = s->status;
    bool is_completed = str_eqc(s->state, "completed");
    bool is_own = str_eq(spec->account, call->account);
    out->snapshot_id = spec->id;
    out->volume_id = spec->volume_id.n > 0 ? spec->volume_id : STR(SNAPSHOT_NO_VOLUME);
    out->state = s->state;
    out->state_message =
        str_eqc(s->state, "error") && st && st->reason.n > 0 ? st->reason : STR_NONE;
    out->start_time = some_time(st && st->start_ns ? st->start_ns : spec->create_ns);
    uint64_t percent = is_completed ? 100 : st ? MIN(st->progress, UINT64_C(99)) : 0;
    out->progress = arena_fmt(call->arena, "%u%%", (unsigned)percent);
    out->owner_id = spec->account;
    out->description = spec->description.p ? spec->description : STR("");
    out->volume_size = some_i64((int64_t)spec->size_gib);
    out->encrypted = some_bool(spec->is_encrypted);
    if (spec->is_encrypted) {
        out->kms_key_id = spec->kms_key_id;
    }
    out->storage_tier = STR("standard");
    if (str_eqc(spec->source, "copy")) {
        out->transfer_type = STR("standard");
    }
    if (is_completed && st && st->complete_ns) {
        out->completion_time = some_time(st->complete_ns);
    }
    if (is_completed && st && st->full_bytes) {
        out->full_snapshot_size_in_bytes = some_i64((int64_t)st->full_bytes);
    }
    if (is_own) { /* tags are their owner's */
        tags_out(call->arena, tags_of(gw_of(call), call->arena, spec->account, spec->id),
                 &out->tags);
    }
}

int snap_check_rate(struct aws_call *call, const struct volume *v, bool is_rested,
                    struct err *err)
{
    struct entries all = store_list(gw_of(call), call->arena, "snapshot", call->account);
    const struct volume_type *t = volume_type_find(v->type);
    unsigned n_pending = 0, max = t ? t->n_snapshots : 1;
    if (all.n >= SNAPSHOTS_MAX) {
        return fail(err, -E2BIG, "SnapshotLimitExceeded",
                    "The maximum number of snapshots (%u) has been reached.", SNAPSHOTS_MAX);
    }
    for (size_t i = 0; i < all.n; i++) {
        const struct snapshot *spec = REC(snapshot, all.v[i]);
        if (!str_eq(spec->volume_id, v->id) || spec->is_hidden) {
            continue; /* most: their state is not looked up */
        }
        struct snap s = snap_join(call, all.v[i]);
        n_pending += str_eqc(s.state, "pending");
        if (is_rested && call->now_ns < s.spec->create_ns + SNAPSHOT_REST_NS) {
            return fail(err, -EBUSY, "SnapshotCreationPerVolumeRateExceeded",
                        "The maximum per volume CreateSnapshot request rate has been exceeded. "
                        "Use an increasing or variable sleep interval between requests.");
        }
    }
    if (n_pending >= max) {
        return fail(err, -EBUSY, "ConcurrentSnapshotLimitExceeded",
                    "Maximum allowed in-progress snapshots for a single volume exceeded.");
    }
    return 0;
}

struct snapshot snap_of_volume(struct gw *gw, struct arena *a, const struct volume *v,
                               uint64_t now_ns)
{
    return (struct snapshot){
        .id = id_new(a, "snap"),
        .account = v->account,
        .description = STR(""),
        .generation = 1,
        .want = STR("present"),
        .source = STR("volume"),
        .volume_id = v->id,
        .group = STR(""),
        .from_id = STR(""),
        .from_account = STR(""),
        .image_id = STR(""),
        .node = str_c(gw->cfg->node),
        .size_gib = v->size_gib,
        .size = v->size_gib << 30,
        .create_ns = now_ns,
        .is_encrypted = v->is_encrypted,
        .kms_key_id = v->kms_key_id.p ? v->kms_key_id : STR(""),
        .checksum = STR(""),
        .state = STR(""),
    };
}

static bool is_taken(struct aws_call *call, const struct snapshot *s)
{
    const struct snapshot_status *st = REC(
        snapshot_status, store_status(gw_of(call), call->arena, "snapshot", s->account, s->id));
    return st && (st->start_ns != 0 || !str_eqc(st->state, "pending"));
}

void snap_wait_taken(struct aws_call *call, const struct snapshot *v, size_t n)
{
    static atomic_uint n_waiters;
    const struct timespec nap = {.tv_nsec = TAKEN_LOOK_NS};
    uint64_t end = time_mono_ns() + TAKEN_WAIT_NS;
    size_t k = 0;
    if (atomic_fetch_add(&n_waiters, 1) < TAKEN_WAITERS) {
        while (k < n && time_mono_ns() < end) {
            if (is_taken(call, &v[k])) {
                k++;
            } else {
                nanosleep(&nap, NULL);
            }
        }
    }
    atomic_fetch_sub(&n_waiters, 1);
}

void snap_add(struct txn *t, const struct view_entry *volume, const struct snapshot *s,
              struct tag_list tags)
{
    txn_update(t, volume, &volume_desc, REC(volume, volume));
    txn_create(t, key_spec(t->a, "snapshot", s->account, s->id), &snapshot_desc, s);
    tags_create(t, s->account, s->id, "snapshot", tags);
}

/* ---- defaults and keys ---- */

struct ebs_defaults ebs_defaults_of(struct gw *gw, struct arena *a, struct str account,
                                    const struct view_entry **ret_entry)
{
    const struct view_entry *e = store_spec(gw, a, "ebsdefaults", account, STR("default"));
    const struct ebs_defaults *d = REC(ebs_defaults, e);
    if (ret_entry) {
        *ret_entry = d ? e : NULL;
    }
    return d ? *d
             : (struct ebs_defaults){
                   .account = account, .kms_key_id = STR(""), .block_public_access = STR("")};
}

/* The key's id is a UUID (version 8: made from a digest) of the account and the region: the
 * same on every node, and after a loss of the store. */
static struct str key_uuid(struct gw *gw, struct arena *a, struct str account)
{
    uint8_t h[SHA256_SIZE];
    sha256(arena_fmt(a, "%.*s/%s/" KEY_ALIAS, STR_ARG(account), gw->cfg->region), h);
    h[6] = (uint8_t)((h[6] & 0x0f) | 0x80);
    h[8] = (uint8_t)((h[8] & 0x3f) | 0x80);
    return arena_fmt(a, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                     h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8], h[9], h[10], h[11],
                     h[12], h[13], h[14], h[15]);
}

struct str ebs_key_arn(struct gw *gw, struct arena *a, struct str account)
{
    return arn_make(a, STR("kms"), region_name(gw), account,
                    arena_fmt(a, "key/%.*s", STR_ARG(key_uuid(gw, a, account))));
}

int ebs_key_check(struct aws_call *call, struct str named, struct err *err)
{
    struct gw *gw = gw_of(call);
    struct arena *a = call->arena;
    if (str_eqc(named, KEY_ALIAS) || str_eq(named, key_uuid(gw, a, call->account)) ||
        str_eq(named, ebs_key_arn(gw, a, call->account)) ||
        str_eq(named,
               arn_make(a, STR("kms"), region_name(gw), call->account, STR(KEY_ALIAS)))) {
        return 0;
    }
    return fail(err, -EINVAL, "InvalidKMSKey.InvalidState",
                "The KMS key provided is in an incorrect state");
}

int ebs_crypt(struct aws_call *call, const struct ebs_crypt_ask *ask, bool *ret_is_encrypted,
              struct str *ret_key, struct err *err)
{
    struct gw *gw = gw_of(call);
    struct ebs_defaults d = ebs_defaults_of(gw, call->arena, call->account, NULL);
    bool is_asked = ask->encrypted.is_set && ask->encrypted.v;
    if (ask->kms_key_id.n > 0) {
        if (!is_asked && !d.is_encrypted) {
            return fail(err, -EINVAL, "InvalidParameterDependency",
                        "The parameter KmsKeyId requires the parameter Encrypted to be set.");
        }
        int r = ebs_key_check(call, ask->kms_key_id, err);
        if (r < 0) {
            return r;
        }
    }
    *ret_is_encrypted = is_asked || d.is_encrypted || ask->is_source_encrypted;
    *ret_key = *ret_is_encrypted ? ebs_key_arn(gw, call->arena, call->account) : STR("");
    return 0;
}
