/* Images: Describe, Deregister, DescribeImageAttribute. Import is the operator's (spx admin
 * images). */
#include "awsgw/ops.h"

#include "awsgw/describe.h"
#include "awsgw/launch.h"
#include "awsgw/tagset.h"
#include "awsgw/txn.h"
#include "base/time.h"
#include "model/keys.h"

#include <errno.h>

#define GIB         (UINT64_C(1) << 30)
#define OWNER_ALIAS "spinifex" /* of images that everybody may use, besides their account */

static const char *const filters[] = {
    "architecture",
    "block-device-mapping.delete-on-termination",
    "block-device-mapping.device-name",
    "block-device-mapping.snapshot-id",
    "block-device-mapping.volume-size",
    "block-device-mapping.volume-type",
    "block-device-mapping.encrypted",
    "creation-date",
    "description",
    "ena-support",
    "hypervisor",
    "image-allowed",
    "image-id",
    "image-type",
    "is-public",
    "kernel-id",
    "manifest-location",
    "name",
    "owner-alias",
    "owner-id",
    "platform",
    "product-code",
    "product-code.type",
    "ramdisk-id",
    "root-device-name",
    "root-device-type",
    "source-image-id",
    "source-image-region",
    "source-instance-id",
    "state",
    "state-reason-code",
    "state-reason-message",
    "sriov-net-support",
    "virtualization-type",
    "boot-mode",
};

static struct str image_state(struct aws_call *call, const struct image *i)
{
    const struct image_status *st =
        REC(image_status, store_status(gw_of(call), call->arena, "image", i->account, i->id));
    return st && st->state.n > 0 ? st->state : STR("pending");
}

static int64_t size_gib(const struct image *i)
{
    return (int64_t)MAX((i->size + GIB - 1) / GIB, (uint64_t)1);
}

static const char *boot_mode(const struct image *i)
{
    return str_eqc(i->boot_mode, "uefi") ? "uefi" : "legacy-bios";
}

static void values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    const struct image *i = REC(image, (const struct view_entry *)obj);
    switch (name_idx) {
    case 0: aws_filter_add(p, i->arch); break;
    case 1: aws_filter_add_bool(p, true); break;
    case 2: aws_filter_add(p, i->root_device); break;
    case 3: aws_filter_add(p, i->snapshot_id); break;
    case 4: aws_filter_add_i64(p, size_gib(i)); break;
    case 5: aws_filter_addc(p, "gp3"); break;
    case 6: aws_filter_add_bool(p, false); break;
    case 7: aws_filter_add_time(p, i->create_ns); break;
    case 8: aws_filter_add(p, i->description); break;
    case 9: aws_filter_add_bool(p, true); break;
    case 10: aws_filter_addc(p, "xen"); break;
    case 11: aws_filter_add_bool(p, true); break;
    case 12: aws_filter_add(p, i->id); break;
    case 13: aws_filter_addc(p, "machine"); break;
    case 14: aws_filter_add_bool(p, i->is_public); break;
    case 16:
        aws_filter_add(
            p, arena_fmt(call->arena, "%.*s/%.*s", STR_ARG(i->account), STR_ARG(i->name)));
        break;
    case 17: aws_filter_add(p, i->name); break;
    case 18:
        if (i->is_public) {
            aws_filter_addc(p, OWNER_ALIAS);
        }
        break;
    case 19: aws_filter_add(p, i->account); break;
    case 20:
        if (i->platform.n > 0) {
            aws_filter_add(p, i->platform);
        }
        break;
    case 24: aws_filter_add(p, i->root_device); break;
    case 25: aws_filter_addc(p, "ebs"); break;
    case 29: aws_filter_add(p, image_state(call, i)); break;
    case 33: aws_filter_addc(p, "hvm"); break;
    case 34: aws_filter_addc(p, boot_mode(i)); break;
    default: break; /* nothing here has these */
    }
}

static void mapping_out(struct aws_call *call, const struct image *i,
                        struct ec2_block_device_mapping_list *out)
{
    AWS_LIST_MAKE(call->arena, out, 1);
    out->v[0].device_name = i->root_device;
    out->v[0].ebs = arena_new_of(call->arena, struct ec2_ebs_block_device);
    out->v[0].ebs->delete_on_termination = some_bool(true);
    out->v[0].ebs->snapshot_id = i->snapshot_id;
    out->v[0].ebs->volume_size = some_i64(size_gib(i));
    out->v[0].ebs->volume_type = STR("gp3");
    out->v[0].ebs->iops = some_i64(3000);
    out->v[0].ebs->throughput = some_i64(125);
    out->v[0].ebs->encrypted = some_bool(false);
}

static void image_out(struct aws_call *call, const struct image *i, struct ec2_image *o)
{
    char iso[TIME_ISO_SIZE];
    o->image_id = i->id;
    o->image_location =
        arena_fmt(call->arena, "%.*s/%.*s", STR_ARG(i->account), STR_ARG(i->name));
    o->state = image_state(call, i);
    o->owner_id = i->account;
    o->creation_date = arena_str_dup(call->arena, str_c(time_iso_ms(i->create_ns, iso)));
    o->public = some_bool(i->is_public);
    AWS_LIST_MAKE(call->arena, &o->product_codes, 0);
    o->architecture = i->arch;
    o->image_type = STR("machine");
    bool is_windows = str_eqc(i->platform, "windows");
    o->platform = is_windows ? STR("windows") : STR_NONE;
    o->platform_details = is_windows ? STR("Windows") : STR("Linux/UNIX");
    o->usage_operation = is_windows ? STR("RunInstances:0002") : STR("RunInstances");
    mapping_out(call, i, &o->block_device_mappings);
    o->description = i->description.n > 0 ? i->description : STR_NONE;
    o->ena_support = some_bool(true);
    o->hypervisor = STR("xen");
    o->image_owner_alias = i->is_public ? STR(OWNER_ALIAS) : STR_NONE;
    o->name = i->name;
    o->root_device_name = i->root_device;
    o->root_device_type = STR("ebs");
    o->virtualization_type = STR("hvm");
    o->boot_mode = str_c(boot_mode(i));
    o->image_allowed = some_bool(true);
    tags_out(call->arena, tags_of(gw_of(call), call->arena, i->account, i->id), &o->tags);
}

static bool is_owned_by(const struct aws_call *call, const struct image *i,
                        const struct aws_str_list *owners)
{
    for (size_t k = 0; k < owners->n; k++) {
        struct str o = owners->v[k];
        bool is_alias = i->is_public && str_eqc(o, OWNER_ALIAS);
        bool is_self = str_eqc(o, "self") && str_eq(i->account, call->account);
        if (is_alias || is_self || str_eq(o, i->account)) {
            return true;
        }
    }
    return owners->n == 0;
}

/* ExecutableUsers: "all" = public, "self" = explicit launch permission (nobody has one here),
 * an account id. */
static bool is_executable_by(const struct aws_call *call, const struct image *i,
                             const struct aws_str_list *users)
{
    for (size_t k = 0; k < users->n; k++) {
        if ((str_eqc(users->v[k], "all") && i->is_public) ||
            (str_eqc(users->v[k], "self") && !i->is_public &&
             str_eq(i->account, call->account))) {
            return true;
        }
    }
    return users->n == 0;
}

static int named_images(struct aws_call *call, const struct aws_str_list *ids,
                        struct entries *ret, struct err *err)
{
    ret->v = arena_array(call->arena, ids->n, sizeof(*ret->v));
    ret->n = 0;
    for (size_t i = 0; ret->v && i < ids->n; i++) {
        const struct view_entry *e = image_find(call, ids->v[i], err);
        if (!e) {
            return err->code;
        }
        ret->v[ret->n++] = e;
    }
    return ret->v ? 0
                  : fail(err, -ENOMEM, "InvalidParameterValue", "Too many images are named.");
}

int ec2_describe_images(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_describe_images_request *in = input;
    struct ec2_describe_images_result *out = output;
    struct entries all, shown;
    int r = 0;
    if (in->image_ids.n > 0) {
        if ((r = named_images(call, &in->image_ids, &all, err)) < 0) {
            return r;
        }
    } else {
        all = store_list(gw_of(call), call->arena, "image", STR_NONE);
    }
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        const struct image *img = REC(image, all.v[i]);
        bool is_there = str_eqc(img->want, "present") && image_is_visible(call, img);
        if (is_there && is_owned_by(call, img, &in->owners) &&
            is_executable_by(call, img, &in->executable_users)) {
            all.v[n++] = all.v[i];
        }
    }
    all.n = n;
    const struct describe_spec spec = {
        .kind = AWS_ID_IMAGE,
        .rec_kind = "image",
        .filters = filters,
        .n_filters = ARRAY_LEN(filters),
        .values = values,
        .ids_param = "imagesSet",
        .page_min = 1,
        .page_max = 1000,
    };
    const struct describe_in din = {&in->image_ids, &in->filters, in->max_results,
                                    in->next_token};
    if ((r = describe_select(call, &spec, &din, all, &shown, &out->next_token, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->images, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        image_out(call, REC(image, shown.v[i]), &out->images.v[i]);
    }
    return 0;
}

/* Visible to the caller and its own, else AWS's two different errors. */
static const struct view_entry *own_image(struct aws_call *call, struct str id, struct err *err)
{
    const struct view_entry *e = image_find(call, id, err);
    if (e && !str_eq(REC(image, e)->account, call->account)) {
        fail(err, -EPERM, "AuthFailure", "Not authorized for image:%.*s", STR_ARG(id));
        return NULL;
    }
    return e;
}

int ec2_deregister_image(struct aws_call *call, const void *input, void *output,
                         struct err *err)
{
    const struct ec2_deregister_image_request *in = input;
    struct ec2_deregister_image_result *out = output;
    const struct view_entry *e = own_image(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    struct image rec = *REC(image, e);
    if (!str_eqc(rec.want, "present")) {
        return fail(err, -ENOENT, "InvalidAMIID.Unavailable",
                    "The image ID '%.*s' is no longer available", STR_ARG(in->image_id));
    }
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    rec.want = STR("deleted");
    struct txn *t = txn_open(call);
    txn_update(t, e, &image_desc, &rec);
    txn_delete_key(t, key_claim(call->arena, "imagename", call->account, rec.name));
    out->return_ = some_bool(true);
    return txn_commit(t, err);
}

static void attribute_value(struct arena *a, struct str v, struct ec2_attribute_value **out)
{
    *out = arena_new_of(a, struct ec2_attribute_value);
    (*out)->value = v;
}

int ec2_describe_image_attribute(struct aws_call *call, const void *input, void *output,
                                 struct err *err)
{
    const struct ec2_describe_image_attribute_request *in = input;
    struct ec2_image_attribute *out = output;
    const struct view_entry *e = own_image(call, in->image_id, err);
    int r = e ? aws_dry_run(call, err) : err->code;
    if (r < 0) {
        return r;
    }
    const struct image *i = REC(image, e);
    struct arena *a = call->arena;
    struct str what = in->attribute;
    out->image_id = i->id;
    if (str_eqc(what, "description")) {
        attribute_value(a, i->description, &out->description);
    } else if (str_eqc(what, "bootMode")) {
        attribute_value(a, str_c(boot_mode(i)), &out->boot_mode);
    } else if (str_eqc(what, "blockDeviceMapping")) {
        mapping_out(call, i, &out->block_device_mappings);
    } else if (str_eqc(what, "launchPermission")) {
        AWS_LIST_MAKE(a, &out->launch_permissions, i->is_public ? 1 : 0);
        if (i->is_public) {
            out->launch_permissions.v[0].group = STR("all");
        }
    } else if (str_eqc(what, "productCodes")) {
        AWS_LIST_MAKE(a, &out->product_codes, 0);
    } else if (str_eqc(what, "deregistrationProtection")) {
        attribute_value(a, STR("disabled"), &out->deregistration_protection);
    }
    /* kernel, ramdisk, sriovNetSupport, tpmSupport, uefiData, lastLaunchedTime, imdsSupport:
     * not set, so no element, as on AWS */
    return 0;
}
