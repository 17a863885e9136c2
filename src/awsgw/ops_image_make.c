/* CreateImage, RegisterImage. */
#include "awsgw/ops.h"

#include "awsgw/alloc.h"
#include "awsgw/image_make.h"
#include "awsgw/inst.h"
#include "awsgw/vol.h"
#include "model/keys.h"
#include "model/volume_type.h"

#include <errno.h>

/* ---- CreateImage ---- */

static int device_of_volume(struct make *m, const struct vol *v, const struct inst *in,
                            struct err *err)
{
    struct image_device *d = NULL;
    int r = 0;
    if (!str_eqc(v->state, "available") && !str_eqc(v->state, "in-use")) {
        return fail(err, -EINVAL, "IncorrectState",
                    "The volume '%.*s' is in the '%.*s' state: no image can be made of it.",
                    STR_ARG(v->spec->id), STR_ARG(v->state));
    }
    if ((r = make_device(m, v->spec->device, &d, err)) < 0) {
        return r;
    }
    d->type = v->now.type;
    d->size_gib = v->now.size_gib;
    d->iops = v->now.iops;
    d->throughput = v->now.throughput;
    d->is_encrypted = v->now.is_encrypted;
    d->is_kept = !v->spec->is_deleted_on_termination;
    d->volume_id = v->spec->id;
    return 0;
}

static int devices_of_instance(struct make *m, const struct inst *in, struct err *err)
{
    bool has_root = false;
    for (size_t i = 0; i < in->volumes.n; i++) {
        struct vol v = vol_join(m->call, in->volumes.v[i]);
        if (str_eqc(v.attachment, "detached") || str_eqc(v.attachment, "detaching")) {
            continue;
        }
        int r = device_of_volume(m, &v, in, err);
        if (r < 0) {
            return r;
        }
        has_root = has_root || str_eq(v.spec->device, in->spec->root_device);
    }
    return has_root ? 0
                    : fail(err, -EINVAL, "IncorrectState",
                           "The instance '%.*s' has no root volume.", STR_ARG(in->spec->id));
}

/* What the instance was launched from says what its disks need of a machine. */
static void traits_of_instance(struct make *m, const struct instance *i)
{
    m->rec.arch = i->arch;
    m->rec.boot_mode = i->boot_mode;
    m->rec.root_device = i->root_device;
    m->rec.source = STR("instance");
    m->rec.source_id = i->id;
    m->rec.ena = STR("true");
    struct entries all = store_list(gw_of(m->call), m->call->arena, "image", STR_NONE);
    for (size_t k = 0; k < all.n; k++) {
        const struct image *from = REC(image, all.v[k]);
        if (str_eq(from->id, i->image_id)) {
            m->rec.platform = from->platform;
            m->rec.boot_mode = from->boot_mode;
            m->rec.ena = from->ena.n > 0 ? from->ena : m->rec.ena;
            m->rec.sriov = from->sriov;
            m->rec.tpm = from->tpm;
            m->rec.imds = from->imds;
        }
    }
}

/* The snapshots of one point in time. Their ids are in the devices; with a reboot the records
 * come when the guest is down (janitor.c), their tags are there already. */
static int add_snapshots(struct make *m, struct txn *t, bool is_later, struct snapshot *ret,
                         size_t *ret_n, struct err *err)
{
    struct aws_call *call = m->call;
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct image_device *d = &m->devices[i];
        if (d->volume_id.n == 0) {
            continue;
        }
        const struct view_entry *e =
            store_spec(gw_of(call), call->arena, "volume", call->account, d->volume_id);
        if (!e || !e->obj) {
            return aws_id_not_found(AWS_ID_VOLUME, &d->volume_id, 1, err);
        }
        struct vol v = vol_join(call, e);
        int r = snap_check_rate(call, &v.now, false, err);
        if (r < 0) {
            return r;
        }
        ret[n] = snap_of_volume(gw_of(call), call->arena, &v.now, call->now_ns);
        ret[n].description = image_snapshot_text(call->arena, &m->rec);
        d->snapshot_id = ret[n].id;
        if (is_later) {
            tags_create(t, call->account, ret[n].id, "snapshot", m->snapshot_tags);
        }
        n++;
    }
    for (size_t i = 0; i < n && !is_later; i++) {
        if (n > 1) {
            ret[i].group = ret[0].id;
            ret[i].n_group = n;
        }
        snap_add(
            t, store_spec(gw_of(call), call->arena, "volume", call->account, ret[i].volume_id),
            &ret[i], m->snapshot_tags);
    }
    *ret_n = n;
    return 0;
}

/* Stops the guest for the image; compute lets it come down by itself first. */
static void begin_reboot(struct make *m, struct txn *t, const struct inst *in)
{
    struct instance rec = *in->spec;
    rec.want = STR(INSTANCE_WANT_STOPPED);
    rec.is_forced = false;
    rec.imaging = m->rec.id;
    rec.generation++;
    m->rec.phase = STR("stopping");
    txn_update(t, in->entry, &instance_desc, &rec);
}

static int check_imaging(const struct inst *in, struct err *err)
{
    if (in->state != INSTANCE_RUNNING && in->state != INSTANCE_STOPPED) {
        return fail(err, -EINVAL, "IncorrectInstanceState",
                    "Instance '%.*s' is not in the 'running' or 'stopped' state.",
                    STR_ARG(in->spec->id));
    }
    if (in->spec->imaging.n > 0) {
        return fail(err, -EBUSY, "IncorrectInstanceState",
                    "Instance '%.*s' is being rebooted for the image '%.*s'.",
                    STR_ARG(in->spec->id), STR_ARG(in->spec->imaging));
    }
    return 0;
}

int ec2_create_image(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_create_image_request *in = input;
    struct ec2_create_image_result *out = output;
    struct make *m = arena_new_of(call->arena, struct make);
    struct snapshot *snaps = arena_xalloc(call->arena, IMAGE_EXTRAS_MAX * sizeof(*snaps));
    size_t n_snaps = 0;
    const struct view_entry *e = find_one(call, AWS_ID_INSTANCE, in->instance_id, err);
    if (!e || txn_settle(gw_of(call), e, err) < 0) {
        return err->code;
    }
    struct inst i = inst_join(call, e);
    struct txn *t = txn_open(call);
    int r = make_open(call, in->name, in->description, &in->tag_specifications, true, m, err);
    if (r < 0 || (r = check_imaging(&i, err)) < 0) {
        return r;
    }
    if (in->snapshot_location.n > 0 && !str_eqc(in->snapshot_location, "regional")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The instance is not in a Local Zone: its snapshots are regional.");
    }
    traits_of_instance(m, i.spec);
    r = devices_of_instance(m, &i, err);
    for (size_t k = 0; r == 0 && k < in->block_device_mappings.n; k++) {
        r = make_mapping(m, &in->block_device_mappings.v[k], t, err);
    }
    bool is_rebooted = i.state == INSTANCE_RUNNING && !in->no_reboot.v;
    if (r < 0 || (r = add_snapshots(m, t, is_rebooted, snaps, &n_snaps, err)) < 0) {
        return r;
    }
    if (is_rebooted) {
        begin_reboot(m, t, &i);
    } else {
        txn_update(t, e, &instance_desc, i.spec); /* touched: its disks stay what they are */
    }
    if ((r = make_write(m, t, err)) < 0 || (r = aws_dry_run(call, err)) < 0 ||
        (r = txn_commit(t, err)) < 0) {
        return r;
    }
    if (!is_rebooted) {
        snap_wait_taken(call, snaps, n_snaps);
    }
    out->image_id = m->rec.id;
    return 0;
}

/* ---- RegisterImage ---- */

static int check_register(const struct ec2_register_image_request *in, struct err *err)
{
    if (in->image_location.n > 0) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "Images that are stored as a manifest are not supported here.");
    }
    if (in->virtualization_type.n > 0 && !str_eqc(in->virtualization_type, "hvm")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter virtualizationType is invalid: only hvm is "
                    "supported here.",
                    STR_ARG(in->virtualization_type));
    }
    if (in->kernel_id.n > 0 || in->ramdisk_id.n > 0 || in->billing_products.n > 0 ||
        in->uefi_data.n > 0) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "A kernel, a RAM disk, billing products or UEFI data are not supported "
                    "here.");
    }
    if (in->sriov_net_support.n > 0 && !str_eqc(in->sriov_net_support, "simple")) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter sriovNetSupport is invalid.",
                    STR_ARG(in->sriov_net_support));
    }
    if (in->architecture.n > 0 && !str_eqc(in->architecture, "x86_64") &&
        !str_eqc(in->architecture, "arm64")) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "The architecture %.*s is not supported here.", STR_ARG(in->architecture));
    }
    if (in->tpm_support.n > 0 && !str_has_prefixc(in->boot_mode, "uefi")) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "NitroTPM needs the boot mode uefi.");
    }
    return 0;
}

static int root_of_register(struct make *m, struct err *err)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct volume_type *t = volume_type_find(m->devices[i].type);
        if (!str_eq(m->devices[i].device, m->rec.root_device)) {
            continue;
        }
        if (m->devices[i].snapshot_id.n == 0) {
            break;
        }
        if (t && !t->is_bootable) {
            return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                        "Volumes of type %s cannot be root devices", t->name);
        }
        return 0;
    }
    return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                "The block device mapping must name a snapshot for the root device %.*s",
                STR_ARG(m->rec.root_device));
}

int ec2_register_image(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_register_image_request *in = input;
    struct ec2_register_image_result *out = output;
    struct make *m = arena_new_of(call->arena, struct make);
    struct txn *t = txn_open(call);
    const struct node_facts *facts = node_facts_get(gw_of(call), call->arena);
    int r = check_register(in, err);
    if (r < 0 || (r = make_open(call, in->name, in->description, &in->tag_specifications, false,
                                m, err)) < 0) {
        return r;
    }
    struct str host = facts ? facts->arch : STR("x86_64");
    m->rec.arch = in->architecture.n > 0 ? in->architecture : host;
    m->rec.root_device = in->root_device_name.n > 0 ? in->root_device_name : STR("/dev/sda1");
    m->rec.boot_mode = str_eqc(in->boot_mode, "legacy-bios") ? STR("bios")
                       : in->boot_mode.n > 0                 ? in->boot_mode
                                                             : STR("");
    m->rec.source = STR("snapshot");
    m->rec.source_id = STR("");
    m->rec.ena = in->ena_support.v ? STR("true") : STR("false");
    m->rec.sriov = in->sriov_net_support.n > 0 ? in->sriov_net_support : STR("");
    m->rec.tpm = in->tpm_support.n > 0 ? in->tpm_support : STR("");
    m->rec.imds = in->imds_support.n > 0 ? in->imds_support : STR("");
    m->rec.virt = STR("hvm");
    for (size_t k = 0; r == 0 && k < in->block_device_mappings.n; k++) {
        r = make_mapping(m, &in->block_device_mappings.v[k], t, err);
    }
    if (r < 0 || (r = root_of_register(m, err)) < 0 || (r = make_write(m, t, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    out->image_id = m->rec.id;
    return txn_commit(t, err);
}
