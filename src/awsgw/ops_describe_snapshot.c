/* DescribeSnapshots, DescribeSnapshotTierStatus, ListSnapshotsInRecycleBin. */
#include "awsgw/ops.h"

#include "awsgw/ebs.h"
#include "awsgw/tagset.h"

#include <errno.h>

static const char *const filters[] = {
    "description", "encrypted", "owner-alias",  "owner-id",  "progress",    "snapshot-id",
    "start-time",  "status",    "storage-tier", "volume-id", "volume-size", "transfer-type",
};

static void values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    struct snap s = snap_join(call, obj);
    struct ec2_snapshot o = {0};
    snap_out(call, &s, &o);
    switch (name_idx) {
    case 0: aws_filter_add(p, o.description); break;
    case 1: aws_filter_add_bool(p, o.encrypted.v); break;
    case 2: break; /* nobody here is on AWS's list */
    case 3: aws_filter_add(p, o.owner_id); break;
    case 4: aws_filter_add(p, o.progress); break;
    case 5: aws_filter_add(p, o.snapshot_id); break;
    case 6: aws_filter_add_time(p, o.start_time.ns); break;
    case 7: aws_filter_add(p, o.state); break;
    case 8: aws_filter_add(p, o.storage_tier); break;
    case 9: aws_filter_add(p, o.volume_id); break;
    case 10: aws_filter_add_i64(p, o.volume_size.v); break;
    default: aws_filter_add(p, o.transfer_type); break;
    }
}

static bool is_owned_by(struct aws_call *call, const struct snapshot *s,
                        const struct aws_str_list *owners)
{
    for (size_t i = 0; i < owners->n; i++) {
        if (str_eq(owners->v[i], s->account) ||
            (str_eqc(owners->v[i], "self") && str_eq(s->account, call->account))) {
            return true;
        }
    }
    return owners->n == 0;
}

static bool is_shared_with(const struct snapshot *s, struct str account)
{
    for (size_t i = 0; i < s->accounts.n; i++) {
        if (str_eq(s->accounts.v[i], account)) {
            return true;
        }
    }
    return false;
}

/* "self": owned or explicitly shared; "all": public; an account id: of those that the caller
 * owns, the ones that the account may restore. */
static bool is_restorable_by(struct aws_call *call, const struct snapshot *s,
                             const struct aws_str_list *users)
{
    for (size_t i = 0; i < users->n; i++) {
        struct str u = users->v[i];
        bool is_caller = str_eqc(u, "self") || str_eq(u, call->account);
        if ((str_eqc(u, "all") && s->is_public) ||
            (is_caller &&
             (str_eq(s->account, call->account) || is_shared_with(s, call->account))) ||
            (str_eq(s->account, call->account) && is_shared_with(s, u))) {
            return true;
        }
    }
    return users->n == 0;
}

/* Named ones, or all that the caller may see. */
static int candidates(struct aws_call *call, const struct aws_str_list *ids,
                      struct entries *ret, struct err *err)
{
    if (ids->n == 0) {
        *ret = store_list(gw_of(call), call->arena, "snapshot", STR_NONE);
        return 0;
    }
    int r = aws_ids_check(AWS_ID_SNAPSHOT, ids, err);
    if (r < 0) {
        return r;
    }
    ret->n = 0;
    ret->v = arena_array(call->arena, ids->n, sizeof(*ret->v));
    for (size_t i = 0; ret->v && i < ids->n; i++) {
        const struct view_entry *e = snap_find(call, ids->v[i], err);
        bool is_again = false;
        for (size_t k = 0; k < ret->n; k++) {
            is_again = is_again || ret->v[k] == e;
        }
        if (!e) {
            return err->code;
        }
        if (!is_again) {
            ret->v[ret->n++] = e;
        }
    }
    return ret->v
               ? 0
               : fail(err, -ENOMEM, "InvalidParameterValue", "Too many snapshots are named.");
}

int ec2_describe_snapshots(struct aws_call *call, const void *input, void *output,
                           struct err *err)
{
    const struct ec2_describe_snapshots_request *in = input;
    struct ec2_describe_snapshots_result *out = output;
    struct entries all = {0}, shown = {0};
    int r = candidates(call, &in->snapshot_ids, &all, err);
    if (r < 0) {
        return r;
    }
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        const struct snapshot *s = REC(snapshot, all.v[i]);
        if (snap_is_visible(call, s) && is_owned_by(call, s, &in->owner_ids) &&
            is_restorable_by(call, s, &in->restorable_by_user_ids)) {
            all.v[n++] = all.v[i];
        }
    }
    all.n = n;
    const struct describe_spec spec = {
        .kind = AWS_ID_SNAPSHOT,
        .rec_kind = "snapshot",
        .filters = filters,
        .n_filters = ARRAY_LEN(filters),
        .values = values,
        .ids_param = "snapshotSet",
        .page_min = 5,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->snapshot_ids, &in->filters, in->max_results,
                                    in->next_token};
    if ((r = describe_select(call, &spec, &din, all, &shown, &out->next_token, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->snapshots, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        struct snap s = snap_join(call, shown.v[i]);
        snap_out(call, &s, &out->snapshots.v[i]);
    }
    return 0;
}

/* ---- DescribeSnapshotTierStatus: everything is in the standard tier ---- */

static const char *const tier_filters[] = {"snapshot-id", "volume-id",
                                           "last-tiering-operation"};

static void tier_values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    const struct snapshot *s = REC(snapshot, (const struct view_entry *)obj);
    if (name_idx < 2) {
        aws_filter_add(p, name_idx == 0 ? s->id : s->volume_id);
    }
}

static bool tier_is_visible(struct aws_call *call, const struct view_entry *e)
{
    return snap_is_visible(call, REC(snapshot, e));
}

int ec2_describe_snapshot_tier_status(struct aws_call *call, const void *input, void *output,
                                      struct err *err)
{
    const struct ec2_describe_snapshot_tier_status_request *in = input;
    struct ec2_describe_snapshot_tier_status_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_SNAPSHOT,
        .rec_kind = "snapshot",
        .filters = tier_filters,
        .n_filters = ARRAY_LEN(tier_filters),
        .values = tier_values,
        .page_min = 5,
        .page_max = 1000,
        .is_visible = tier_is_visible,
    };
    const struct describe_in din = {NULL, &in->filters, in->max_results, in->next_token};
    struct entries shown = {0};
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->snapshot_tier_statuses, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        struct snap s = snap_join(call, shown.v[i]);
        struct ec2_snapshot_tier_status *o = &out->snapshot_tier_statuses.v[i];
        o->snapshot_id = s.spec->id;
        o->volume_id = s.spec->volume_id;
        o->status = s.state;
        o->owner_id = s.spec->account;
        o->storage_tier = STR("standard");
        tags_out(call->arena, tags_of(gw_of(call), call->arena, s.spec->account, s.spec->id),
                 &o->tags);
    }
    return 0;
}

/* ---- the recycle bin: there are no retention rules, so nothing is ever in it ---- */

int ec2_list_snapshots_in_recycle_bin(struct aws_call *call, const void *input, void *output,
                                      struct err *err)
{
    const struct ec2_list_snapshots_in_recycle_bin_request *in = input;
    struct ec2_list_snapshots_in_recycle_bin_result *out = output;
    int r = aws_ids_check(AWS_ID_SNAPSHOT, &in->snapshot_ids, err);
    if (r == 0 && in->snapshot_ids.n > 0) {
        r = aws_id_not_found(AWS_ID_SNAPSHOT, in->snapshot_ids.v, in->snapshot_ids.n, err);
    }
    AWS_LIST_MAKE(call->arena, &out->snapshots, 0);
    return r < 0 ? r : aws_dry_run(call, err);
}
