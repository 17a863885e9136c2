#include "awsgw/launch.h"

#include "model/volume_type.h"

#include <errno.h>

bool device_name_is_good(struct str s)
{
    static const char *const prefixes[] = {"/dev/sd", "/dev/xvd", "/dev/vd",
                                           "xvd",     "sd",       "/dev/nvme"};
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        struct str rest = str_skip(s, strlen(prefixes[i]));
        bool is_rest_ok = rest.n >= 1 && rest.n <= 6;
        for (size_t k = 0; k < rest.n; k++) {
            char c = rest.p[k];
            is_rest_ok = is_rest_ok && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'));
        }
        if (str_has_prefixc(s, prefixes[i]) && is_rest_ok) {
            return true;
        }
    }
    return false;
}

static struct launch_disk *disk_find(struct launch *l, struct str device)
{
    for (size_t i = 0; i < l->n_disks; i++) {
        if (str_eq(l->disks[i].device, device)) {
            return &l->disks[i];
        }
    }
    return NULL;
}

/* What a mapping is on its way to a disk. */
struct plan {
    struct aws_call *call;
    struct launch *l;
    uint64_t least[LAUNCH_DISKS_MAX]; /* GiB of the snapshot; 0 = empty disk */
    bool is_source_encrypted[LAUNCH_DISKS_MAX];
    struct opt_i64 iops[LAUNCH_DISKS_MAX], throughput[LAUNCH_DISKS_MAX];
    struct opt_bool encrypted[LAUNCH_DISKS_MAX];
    bool is_named[LAUNCH_DISKS_MAX]; /* by BlockDeviceMappings */
};

static int plan_add(struct plan *p, struct str device, size_t *ret, struct err *err)
{
    struct launch *l = p->l;
    size_t n_data = 0;
    for (size_t i = 0; i < l->n_disks; i++) {
        n_data += !l->disks[i].is_root;
    }
    if (l->n_disks == LAUNCH_DISKS_MAX || n_data == DATA_DISKS_MAX + (l->n_disks == 0)) {
        return fail(err, -EINVAL, "AttachmentLimitExceeded",
                    "At most %u data volumes can be attached to an instance.", DATA_DISKS_MAX);
    }
    size_t i = l->n_disks++;
    l->disks[i] = (struct launch_disk){.device = device,
                                       .snapshot_id = STR(""),
                                       .snapshot_account = STR(""),
                                       .image_id = STR(""),
                                       .type = STR("gp3"),
                                       .kms_key_id = STR(""),
                                       .is_deleted_on_termination = true};
    *ret = i;
    return 0;
}

static void plan_remove(struct plan *p, size_t i)
{
    size_t n = --p->l->n_disks - i;
#define SHIFT(v) memmove(&(v)[i], &(v)[i + 1], n * sizeof((v)[0]))
    SHIFT(p->l->disks);
    SHIFT(p->least);
    SHIFT(p->is_source_encrypted);
    SHIFT(p->iops);
    SHIFT(p->throughput);
    SHIFT(p->encrypted);
    SHIFT(p->is_named);
#undef SHIFT
}

static struct opt_i64 some_if(uint64_t v, bool is_there)
{
    return (struct opt_i64){(int64_t)v, is_there};
}

/* The image's own mapping. */
static int plan_image(struct plan *p, struct err *err)
{
    struct launch *l = p->l;
    struct gw *gw = gw_of(p->call);
    struct img_devices d = image_devices(gw, p->call->arena, l->image);
    for (size_t k = 0; k < d.n; k++) {
        const struct image_device *m = &d.v[k];
        size_t i = 0;
        if (m->is_none || m->virtual_name.n > 0) {
            continue;
        }
        int r = plan_add(p, m->device, &i, err);
        if (r < 0) {
            return r;
        }
        struct launch_disk *disk = &l->disks[i];
        const struct volume_type *t = volume_type_find(m->type);
        disk->is_root = str_eq(m->device, l->image->root_device);
        disk->type = m->type.n > 0 ? m->type : disk->type;
        disk->size_gib = m->size_gib;
        disk->is_deleted_on_termination = !m->is_kept;
        p->iops[i] = some_if(m->iops, t && t->iops_max > 0 && m->iops > 0);
        p->throughput[i] = some_if(m->throughput, t && t->throughput_max > 0 && m->throughput);
        p->is_source_encrypted[i] = m->is_encrypted;
        if (m->snapshot_id.n > 0) {
            disk->snapshot_id = m->snapshot_id;
            disk->snapshot_account = l->image->account;
            disk->image_id = disk->is_root ? l->image->id : STR("");
            const struct snapshot *s =
                REC(snapshot, store_spec(gw, p->call->arena, "snapshot", l->image->account,
                                         m->snapshot_id));
            p->least[i] = s ? s->size_gib : m->size_gib;
        }
    }
    return 0;
}

static int plan_snapshot(struct plan *p, size_t i, struct str id, struct err *err)
{
    struct launch_disk *d = &p->l->disks[i];
    if (id.n == 0 || str_eq(id, d->snapshot_id)) {
        return 0;
    }
    if (d->is_root) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                    "The snapshot of the root device %.*s cannot be changed",
                    STR_ARG(d->device));
    }
    struct disk_source src;
    int r = disk_source_find(p->call, id, &src, err);
    if (r < 0) {
        return r;
    }
    d->snapshot_id = src.snapshot_id;
    d->snapshot_account = src.snapshot_account;
    d->image_id = src.image_id;
    d->snapshot = src.entry;
    d->size_gib = MAX(d->size_gib, src.size_gib);
    p->least[i] = src.size_gib;
    p->is_source_encrypted[i] = src.is_encrypted;
    return 0;
}

static int plan_ebs(struct plan *p, size_t i, const struct ec2_ebs_block_device *ebs,
                    struct err *err)
{
    struct launch_disk *d = &p->l->disks[i];
    if (ebs->outpost_arn.n > 0 || ebs->ebs_card_index.is_set ||
        ebs->volume_initialization_rate.is_set) {
        return fail(
            err, -EOPNOTSUPP, "UnsupportedOperation",
            "An outpost, a card index or an initialization rate is not supported here.");
    }
    int r = plan_snapshot(p, i, ebs->snapshot_id, err);
    if (r < 0) {
        return r;
    }
    if (ebs->volume_type.n > 0 && !str_eq(ebs->volume_type, d->type)) {
        d->type = ebs->volume_type; /* figures of another type say nothing */
        p->iops[i] = p->throughput[i] = (struct opt_i64){0};
    }
    p->iops[i] = ebs->iops.is_set ? ebs->iops : p->iops[i];
    p->throughput[i] = ebs->throughput.is_set ? ebs->throughput : p->throughput[i];
    p->encrypted[i] = ebs->encrypted;
    d->kms_key_id = ebs->kms_key_id.n > 0 ? ebs->kms_key_id : d->kms_key_id;
    if (ebs->delete_on_termination.is_set) {
        d->is_deleted_on_termination = ebs->delete_on_termination.v;
    }
    if (ebs->volume_size.is_set) {
        if (ebs->volume_size.v < 1 || (uint64_t)ebs->volume_size.v < p->least[i]) {
            return fail(
                err, -EINVAL, "InvalidBlockDeviceMapping",
                "Volume of size %lldGB is smaller than snapshot '%.*s', expect size >= %lluGB",
                (long long)ebs->volume_size.v, STR_ARG(d->snapshot_id),
                (unsigned long long)MAX(p->least[i], UINT64_C(1)));
        }
        d->size_gib = (uint64_t)ebs->volume_size.v;
    }
    return 0;
}

static int plan_mapping(struct plan *p, const struct ec2_block_device_mapping *m,
                        struct err *err)
{
    if (!device_name_is_good(m->device_name)) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping", "Invalid device name %.*s",
                    STR_ARG(m->device_name));
    }
    struct launch_disk *d = disk_find(p->l, m->device_name);
    size_t i = d ? (size_t)(d - p->l->disks) : 0;
    if (m->no_device.p) { /* an empty text is what CLIs send */
        if (d && d->is_root) {
            return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                        "The root device %.*s cannot be left out", STR_ARG(m->device_name));
        }
        if (d) {
            plan_remove(p, i);
        }
        return 0;
    }
    if (str_is_set(m->virtual_name)) {
        return 0; /* AWS ignores instance-store names for types that have none */
    }
    if (d && p->is_named[i]) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping", "Duplicate device name %.*s",
                    STR_ARG(m->device_name));
    }
    int r = d ? 0 : plan_add(p, m->device_name, &i, err);
    if (r < 0) {
        return r;
    }
    p->is_named[i] = true;
    return m->ebs ? plan_ebs(p, i, m->ebs, err) : 0;
}

/* Everything is known: limits of the type, and encryption. */
static int plan_finish(struct plan *p, size_t i, struct err *err)
{
    struct launch_disk *d = &p->l->disks[i];
    d->size_gib = MAX(d->size_gib, p->least[i]);
    if (d->size_gib == 0) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter size or snapshotId");
    }
    const struct volume_type *t = volume_type_find(d->type);
    if (d->is_root && t && !t->is_bootable) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                    "Volumes of type %s cannot be root devices", t->name);
    }
    const struct volume_ask ask = {.type = d->type,
                                   .size_gib = d->size_gib,
                                   .has_iops = p->iops[i].is_set,
                                   .iops = p->iops[i].v,
                                   .has_throughput = p->throughput[i].is_set,
                                   .throughput = p->throughput[i].v};
    int r = volume_type_check(&ask, &d->iops, &d->throughput, err);
    if (r < 0) {
        return r;
    }
    const struct ebs_crypt_ask crypt = {p->encrypted[i], d->kms_key_id,
                                        p->is_source_encrypted[i]};
    return ebs_crypt(p->call, &crypt, &d->is_encrypted, &d->kms_key_id, err);
}

int launch_disks(struct aws_call *call, struct launch *l, struct err *err)
{
    struct plan *p = arena_new_of(call->arena, struct plan);
    p->call = call;
    p->l = l;
    int r = plan_image(p, err);
    for (size_t i = 0; r == 0 && i < l->in->block_device_mappings.n; i++) {
        r = plan_mapping(p, &l->in->block_device_mappings.v[i], err);
    }
    for (size_t i = 0; r == 0 && i < l->n_disks; i++) {
        r = plan_finish(p, i, err);
    }
    return r;
}
