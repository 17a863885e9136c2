/* DescribeImages, DeregisterImage. Import is the operator's (spx admin images). */
#include "awsgw/ops.h"

#include "awsgw/image.h"
#include "awsgw/perm.h"
#include "awsgw/region.h"
#include "awsgw/tagset.h"
#include "base/time.h"
#include "model/keys.h"
#include "model/volume_type.h"

#include <errno.h>

#define OWNER_ALIAS  "spinifex" /* of images of the system, besides their account */
#define FAILURE_CODE "Client.InternalError"

/* The operator's public images; what users share has no alias. */
static struct str image_owner_alias(const struct image *i)
{
    return i->is_public && i->source.n == 0 ? STR(OWNER_ALIAS) : STR("");
}

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

static struct str location(struct arena *a, const struct image *i)
{
    return arena_fmt(a, "%.*s/%.*s", STR_ARG(i->account), STR_ARG(i->name));
}

static void add_set(struct aws_filter_probe *p, struct str v)
{
    if (v.n > 0) {
        aws_filter_add(p, v);
    }
}

/* Filters of the block device mapping: any device of the image may match. */
static void device_values(struct aws_call *call, const struct image *i, size_t name_idx,
                          struct aws_filter_probe *p)
{
    if (name_idx == 0 || name_idx > 6) {
        return; /* nothing here has these */
    }
    struct img_devices d = image_devices(gw_of(call), call->arena, i);
    for (size_t k = 0; k < d.n; k++) {
        const struct image_device *m = &d.v[k];
        bool is_ebs = m->virtual_name.n == 0 && !m->is_none;
        if (name_idx == 2) {
            aws_filter_add(p, m->device);
        }
        if (!is_ebs) {
            continue;
        }
        switch (name_idx) {
        case 1: aws_filter_add_bool(p, !m->is_kept); break;
        case 3: add_set(p, m->snapshot_id); break;
        case 4: aws_filter_add_i64(p, (int64_t)m->size_gib); break;
        case 5: add_set(p, m->type); break;
        case 6: aws_filter_add_bool(p, m->is_encrypted); break;
        default: break;
        }
    }
}

static void values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    const struct image *i = REC(image, (const struct view_entry *)obj);
    struct str reason = STR("");
    switch (name_idx) {
    case 0: aws_filter_add(p, i->arch); break;
    case 7: aws_filter_add_time(p, i->create_ns); break;
    case 8: aws_filter_add(p, i->description); break;
    case 9: aws_filter_add_bool(p, !str_eqc(i->ena, "false")); break;
    case 10: aws_filter_addc(p, "xen"); break;
    case 11: aws_filter_add_bool(p, true); break;
    case 12: aws_filter_add(p, i->id); break;
    case 13: aws_filter_addc(p, "machine"); break;
    case 14: aws_filter_add_bool(p, i->is_public); break;
    case 16: aws_filter_add(p, location(call->arena, i)); break;
    case 17: aws_filter_add(p, i->name); break;
    case 18: add_set(p, image_owner_alias(i)); break;
    case 19: aws_filter_add(p, i->account); break;
    case 20: add_set(p, i->platform); break;
    case 24: aws_filter_add(p, i->root_device); break;
    case 25: aws_filter_addc(p, "ebs"); break;
    case 26: add_set(p, str_eqc(i->source, "copy") ? i->source_id : STR("")); break;
    case 27: add_set(p, str_eqc(i->source, "copy") ? region_name(gw_of(call)) : STR("")); break;
    case 28: add_set(p, str_eqc(i->source, "instance") ? i->source_id : STR("")); break;
    case 29: aws_filter_add(p, image_state(gw_of(call), call->arena, i, NULL)); break;
    case 30:
        if (str_eqc(image_state(gw_of(call), call->arena, i, NULL), "failed")) {
            aws_filter_addc(p, FAILURE_CODE);
        }
        break;
    case 31:
        image_state(gw_of(call), call->arena, i, &reason);
        add_set(p, reason);
        break;
    case 32: add_set(p, i->sriov); break;
    case 33: aws_filter_addc(p, "hvm"); break;
    case 34: add_set(p, image_boot_mode(i)); break;
    default: device_values(call, i, name_idx, p); break;
    }
}

/* Figures are told for the types that have them as parameters. */
static void ebs_out(const struct image_device *m, struct ec2_ebs_block_device *o)
{
    const struct volume_type *t = volume_type_find(m->type);
    o->delete_on_termination = some_bool(!m->is_kept);
    o->snapshot_id = m->snapshot_id.n > 0 ? m->snapshot_id : STR_NONE;
    o->volume_size = some_i64((int64_t)m->size_gib);
    o->volume_type = m->type;
    if (t && t->iops_max > 0 && m->iops > 0) {
        o->iops = some_i64((int64_t)m->iops);
    }
    if (t && t->throughput_max > 0 && m->throughput > 0) {
        o->throughput = some_i64((int64_t)m->throughput);
    }
    o->encrypted = some_bool(m->is_encrypted);
    if (m->kms_key_id.n > 0) {
        o->kms_key_id = m->kms_key_id;
    }
}

void image_mapping_out(struct aws_call *call, const struct image *i,
                       struct ec2_block_device_mapping_list *out)
{
    struct img_devices d = image_devices(gw_of(call), call->arena, i);
    AWS_LIST_MAKE(call->arena, out, d.n);
    for (size_t k = 0; k < d.n; k++) {
        const struct image_device *m = &d.v[k];
        out->v[k].device_name = m->device;
        if (m->is_none) {
            out->v[k].no_device = STR("");
        } else if (m->virtual_name.n > 0) {
            out->v[k].virtual_name = m->virtual_name;
        } else {
            out->v[k].ebs = arena_new_of(call->arena, struct ec2_ebs_block_device);
            ebs_out(m, out->v[k].ebs);
        }
    }
}

static struct str if_set(struct str v)
{
    return v.n > 0 ? v : STR_NONE;
}

static void origin_out(struct aws_call *call, const struct image *i, struct ec2_image *o)
{
    if (str_eqc(i->source, "copy")) {
        o->source_image_id = i->source_id;
        o->source_image_region = region_name(gw_of(call));
    } else if (str_eqc(i->source, "instance")) {
        o->source_instance_id = i->source_id;
    }
    if (str_eqc(o->state, "failed")) {
        o->state_reason = arena_new_of(call->arena, struct ec2_state_reason);
        o->state_reason->code = STR(FAILURE_CODE);
        image_state(gw_of(call), call->arena, i, &o->state_reason->message);
    }
}

static void image_out(struct aws_call *call, const struct image *i, struct ec2_image *o)
{
    char iso[TIME_ISO_SIZE];
    bool is_own = str_eq(i->account, call->account);
    o->image_id = i->id;
    o->image_location = location(call->arena, i);
    o->state = image_state(gw_of(call), call->arena, i, NULL);
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
    image_mapping_out(call, i, &o->block_device_mappings);
    o->description = if_set(i->description);
    if (!str_eqc(i->ena, "false")) {
        o->ena_support = some_bool(true);
    }
    o->sriov_net_support = if_set(i->sriov);
    o->tpm_support = if_set(i->tpm);
    o->imds_support = if_set(i->imds);
    o->hypervisor = STR("xen");
    o->image_owner_alias = if_set(image_owner_alias(i));
    o->name = i->name;
    o->root_device_name = i->root_device;
    o->root_device_type = STR("ebs");
    o->virtualization_type = STR("hvm");
    o->boot_mode = image_boot_mode(i);
    o->image_allowed = some_bool(true);
    o->deprecation_time = if_set(i->deprecate_at);
    o->deregistration_protection =
        i->is_protected ? STR("enabled-without-cooldown") : STR("disabled");
    origin_out(call, i, o);
    if (is_own) { /* tags are their owner's */
        tags_out(call->arena, tags_of(gw_of(call), call->arena, i->account, i->id), &o->tags);
    }
}

static bool is_owned_by(const struct aws_call *call, const struct image *i,
                        const struct aws_str_list *owners)
{
    for (size_t k = 0; k < owners->n; k++) {
        struct str o = owners->v[k];
        bool is_alias = image_owner_alias(i).n > 0 && str_eqc(o, OWNER_ALIAS);
        bool is_self = str_eqc(o, "self") && str_eq(i->account, call->account);
        if (is_alias || is_self || str_eq(o, i->account)) {
            return true;
        }
    }
    return owners->n == 0;
}

/* ExecutableUsers: "all" = public, "self" or the caller's id = explicitly shared with it, another
 * account = of the caller's own those that are shared with it. */
static bool is_executable_by(const struct aws_call *call, const struct image *i,
                             const struct aws_str_list *users)
{
    for (size_t k = 0; k < users->n; k++) {
        struct str u = users->v[k];
        bool is_self = str_eqc(u, "self") || str_eq(u, call->account);
        if ((str_eqc(u, "all") && i->is_public) ||
            (is_self && perm_has(i->accounts, call->account)) ||
            (!is_self && str_eq(i->account, call->account) && perm_has(i->accounts, u))) {
            return true;
        }
    }
    return users->n == 0;
}

/* Deprecated images of others are not listed, only found by their id; disabled ones are found by
 * those who ask for them. */
static bool is_listed(struct aws_call *call, const struct image *i,
                      const struct ec2_describe_images_request *in)
{
    uint64_t at = 0;
    bool is_deprecated = i->deprecate_at.n > 0 && time_parse_iso(i->deprecate_at, &at) == 0 &&
                         at <= call->now_ns;
    if (is_deprecated && !in->include_deprecated.v && in->image_ids.n == 0 &&
        !str_eq(i->account, call->account)) {
        return false;
    }
    return !i->is_disabled || in->include_disabled.v;
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
        if (is_there && is_listed(call, img, in) && is_owned_by(call, img, &in->owners) &&
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

/* ---- DeregisterImage ---- */

/* Each snapshot of the image once: deleted, or skipped when another image names it too. */
static void delete_snapshots(struct aws_call *call, struct txn *t, const struct image *i,
                             struct ec2_delete_snapshot_result_set *out)
{
    struct gw *gw = gw_of(call);
    struct img_devices d = image_devices(gw, call->arena, i);
    AWS_LIST_MAKE(call->arena, out, d.n);
    out->n = 0;
    for (size_t k = 0; k < d.n; k++) {
        struct str id = d.v[k].snapshot_id;
        bool is_again = id.n == 0;
        for (size_t j = 0; j < out->n; j++) {
            is_again = is_again || str_eq(out->v[j].snapshot_id, id);
        }
        if (is_again) {
            continue;
        }
        const struct view_entry *e = store_spec(gw, call->arena, "snapshot", call->account, id);
        struct ec2_delete_snapshot_return_code *o = &out->v[out->n++];
        size_t n_images = 0;
        o->snapshot_id = id;
        if (!e || !e->obj) {
            o->return_code = STR("client-error");
            continue;
        }
        struct snapshot rec = *REC(snapshot, e);
        snap_image_of(gw, call->arena, &rec, &n_images);
        o->return_code = n_images > 1 ? STR("skipped") : STR("success");
        if (n_images <= 1) {
            rec.want = STR("deleted");
            rec.generation++;
            txn_update(t, e, &snapshot_desc, &rec);
        }
    }
}

int ec2_deregister_image(struct aws_call *call, const void *input, void *output,
                         struct err *err)
{
    const struct ec2_deregister_image_request *in = input;
    struct ec2_deregister_image_result *out = output;
    const struct view_entry *e = image_find_own(call, in->image_id, err);
    if (!e) {
        return err->code;
    }
    struct image rec = *REC(image, e);
    if (rec.is_protected) {
        return fail(err, -EPERM, "OperationNotPermitted",
                    "The image '%.*s' is protected: disable its deregistration protection "
                    "first.",
                    STR_ARG(rec.id));
    }
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    struct txn *t = txn_open(call);
    if (in->delete_associated_snapshots.v) {
        delete_snapshots(call, t, &rec, &out->delete_snapshot_results);
    }
    for (size_t k = 0; str_eqc(rec.phase, "stopping") && k < rec.devices.n; k++) {
        if (rec.devices.v[k].volume_id.n > 0) { /* tags of snapshots that will not come */
            txn_delete_key(
                t, key_spec(call->arena, "tags", call->account, rec.devices.v[k].snapshot_id));
        }
    }
    rec.want = STR("deleted");
    txn_update(t, e, &image_desc, &rec);
    txn_delete_key(t, key_claim(call->arena, "imagename", call->account, rec.name));
    out->return_ = some_bool(true);
    return txn_commit(t, err);
}
