#include "awsgw/image.h"

#include "awsgw/perm.h"
#include "model/keys.h"

#include <errno.h>

#define GIB (UINT64_C(1) << 30)

/* gp3 with its defaults is what imports are launched on. */
static struct image_device import_root(const struct image *i)
{
    return (struct image_device){.device = i->root_device,
                                 .snapshot_id = i->snapshot_id,
                                 .type = STR("gp3"),
                                 .size_gib = MAX((i->size + GIB - 1) / GIB, UINT64_C(1)),
                                 .iops = 3000,
                                 .throughput = 125};
}

struct img_devices image_devices(struct gw *gw, struct arena *a, const struct image *i)
{
    struct img_devices ret = {.v = arena_xalloc(a, (i->devices.n + 1) * sizeof(*ret.v))};
    if (i->devices.n == 0) {
        ret.v[ret.n++] = import_root(i);
    }
    for (size_t pass = 0; pass < 2; pass++) { /* the root first */
        for (size_t k = 0; k < i->devices.n; k++) {
            bool is_root = str_eq(i->devices.v[k].device, i->root_device);
            if (is_root == (pass == 0)) {
                ret.v[ret.n++] = i->devices.v[k];
            }
        }
    }
    return ret;
}

/* Of an image that is made of snapshots: what they are. */
static struct str state_of_snapshots(struct gw *gw, struct arena *a, const struct image *i,
                                     struct str *ret_reason)
{
    struct str ret = STR("available");
    for (size_t k = 0; k < i->devices.n; k++) {
        struct str id = i->devices.v[k].snapshot_id;
        if (id.n == 0) {
            continue;
        }
        const struct view_entry *e = store_spec(gw, a, "snapshot", i->account, id);
        if (!e || !e->obj) {
            *ret_reason = arena_fmt(a, "Snapshot (%.*s) is gone", STR_ARG(id));
            return STR("failed");
        }
        struct snap s = snap_join_in(gw, a, e);
        if (str_eqc(s.state, "error")) {
            *ret_reason = arena_fmt(a, "Snapshot (%.*s) failed", STR_ARG(id));
            return STR("failed");
        }
        if (!str_eqc(s.state, "completed")) {
            ret = STR("pending");
        }
    }
    return ret;
}

struct str image_state(struct gw *gw, struct arena *a, const struct image *i,
                       struct str *ret_reason)
{
    struct str reason = STR("");
    struct str *why = ret_reason ? ret_reason : &reason;
    *why = STR("");
    if (str_eqc(i->want, "deleted")) {
        return STR("deregistered");
    }
    if (i->failure.n > 0) {
        *why = i->failure;
        return STR("failed");
    }
    if (i->phase.n > 0) {
        return STR("pending");
    }
    struct str ret = STR_NONE;
    if (i->source.n > 0) {
        ret = state_of_snapshots(gw, a, i, why);
    } else {
        const struct image_status *st =
            REC(image_status, store_status(gw, a, "image", i->account, i->id));
        ret = st && st->state.n > 0 ? st->state : STR("pending");
        *why = st && st->reason.n > 0 ? st->reason : *why;
    }
    return i->is_disabled && str_eqc(ret, "available") ? STR("disabled") : ret;
}

bool image_is_visible(const struct aws_call *call, const struct image *image)
{
    return str_eq(image->account, call->account) || image->is_public ||
           perm_has(image->accounts, call->account);
}

static const struct view_entry *find_visible(struct aws_call *call, struct str id)
{
    struct gw *gw = gw_of(call);
    const struct view_entry *own = store_spec(gw, call->arena, "image", call->account, id);
    if (own && own->obj) {
        return own;
    }
    struct entries all = store_list(gw, call->arena, "image", STR_NONE);
    for (size_t i = 0; i < all.n; i++) {
        const struct image *img = REC(image, all.v[i]);
        if (str_eq(img->id, id) && image_is_visible(call, img)) {
            return all.v[i];
        }
    }
    return NULL;
}

const struct view_entry *image_find(struct aws_call *call, struct str id, struct err *err)
{
    if (aws_id_check(AWS_ID_IMAGE, id, err) < 0) {
        return NULL;
    }
    const struct view_entry *e = find_visible(call, id);
    if (!e) {
        fail(err, -ENOENT, "InvalidAMIID.NotFound", "The image id '[%.*s]' does not exist",
             STR_ARG(id));
    }
    return e;
}

const struct view_entry *image_find_own(struct aws_call *call, struct str id, struct err *err)
{
    const struct view_entry *e = image_find(call, id, err);
    const struct image *i = REC(image, e);
    if (!i) {
        return NULL;
    }
    if (!str_eq(i->account, call->account)) {
        fail(err, -EPERM, "AuthFailure", "Not authorized for image:%.*s", STR_ARG(id));
        return NULL;
    }
    if (str_eqc(i->want, "deleted")) {
        fail(err, -ENOENT, "InvalidAMIID.Unavailable",
             "The image ID '%.*s' is no longer available", STR_ARG(id));
        return NULL;
    }
    return e;
}

struct str image_snapshot_text(struct arena *a, const struct image *i)
{
    return arena_fmt(a, "Created by CreateImage(%.*s) for %.*s", STR_ARG(i->source_id),
                     STR_ARG(i->id));
}

struct str image_boot_mode(const struct image *i)
{
    return i->boot_mode.n == 0                     ? STR_NONE
           : str_has_prefixc(i->boot_mode, "uefi") ? i->boot_mode
                                                   : STR("legacy-bios");
}

struct str image_firmware(const struct image *i)
{
    bool is_uefi = str_has_prefixc(i->boot_mode, "uefi") ||
                   (i->boot_mode.n == 0 && str_eqc(i->arch, "arm64"));
    return is_uefi ? STR("uefi") : STR("bios");
}

const struct view_entry *image_of_root(struct aws_call *call, struct str snapshot_id)
{
    struct entries all = store_list(gw_of(call), call->arena, "image", STR_NONE);
    for (size_t i = 0; i < all.n; i++) {
        const struct image *img = REC(image, all.v[i]);
        if (str_eq(img->snapshot_id, snapshot_id) && image_is_visible(call, img) &&
            str_eqc(img->want, "present") && img->phase.n == 0) {
            return all.v[i];
        }
    }
    return NULL;
}

int disk_source_find(struct aws_call *call, struct str snapshot_id, struct disk_source *ret,
                     struct err *err)
{
    int r = aws_id_check(AWS_ID_SNAPSHOT, snapshot_id, err);
    if (r < 0) {
        return r;
    }
    struct gw *gw = gw_of(call);
    const struct view_entry *e = image_of_root(call, snapshot_id);
    const struct image *i = REC(image, e);
    if (i && str_eqc(image_state(gw, call->arena, i, NULL), "available")) {
        const struct image_device root = image_devices(gw, call->arena, i).v[0];
        *ret = (struct disk_source){.snapshot_id = snapshot_id,
                                    .snapshot_account = i->account,
                                    .image_id = i->id,
                                    .size_gib = MAX((i->size + GIB - 1) / GIB, UINT64_C(1)),
                                    .is_encrypted = root.is_encrypted,
                                    .entry = e};
        return 0;
    }
    e = snap_find(call, snapshot_id, err);
    if (!e) {
        return err->code;
    }
    struct snap s = snap_join(call, e);
    if (!str_eqc(s.state, "completed")) {
        return fail(err, -EINVAL, "IncorrectState", "Snapshot is in invalid state - %.*s",
                    STR_ARG(s.state));
    }
    *ret = (struct disk_source){.snapshot_id = snapshot_id,
                                .snapshot_account = s.spec->account,
                                .image_id = STR(""),
                                .size_gib = s.spec->size_gib,
                                .is_encrypted = s.spec->is_encrypted,
                                .entry = e};
    return 0;
}
