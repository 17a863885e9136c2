#include "awsgw/launch.h"

#include <errno.h>

#define GIB (UINT64_C(1) << 30)

/* Limits per volume type, from the EBS user guide (volume types, and the limits of
 * CreateVolume's parameters). */
struct volume_type {
    const char *name;
    uint64_t size_min, size_max;               /* GiB */
    uint64_t iops_min, iops_max, iops_default; /* 0 max = not a parameter */
    uint64_t iops_per_gib;                     /* ratio limit; 0 = none */
    uint64_t throughput_min, throughput_max, throughput_default;
};

static const struct volume_type volume_types[] = {
    {"gp3", 1, 16384, 3000, 16000, 3000, 500, 125, 1000, 125},
    {"gp2", 1, 16384, 0, 0, 0, 0, 0, 0, 0},
    {"io1", 4, 16384, 100, 64000, 0, 50, 0, 0, 0},
    {"io2", 4, 65536, 100, 256000, 0, 1000, 0, 0, 0},
    {"st1", 125, 16384, 0, 0, 0, 0, 0, 0, 0},
    {"sc1", 125, 16384, 0, 0, 0, 0, 0, 0, 0},
    {"standard", 1, 1024, 0, 0, 0, 0, 0, 0, 0},
};

static int check_iops(const struct volume_type *t, uint64_t size_gib, struct opt_i64 iops,
                      uint64_t *ret, struct err *err)
{
    if (t->iops_max == 0) {
        if (iops.is_set) {
            return fail(err, -EINVAL, "InvalidParameterCombination",
                        "The parameter iops is not supported for %s volumes.", t->name);
        }
        /* gp2 shows its baseline: 3 per GiB, 100 to 16000. */
        *ret = strcmp(t->name, "gp2") == 0
                   ? MIN(MAX(size_gib * 3, (uint64_t)100), (uint64_t)16000)
                   : 0;
        return 0;
    }
    if (!iops.is_set && t->iops_default == 0) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The parameter iops must be specified for %s volumes.", t->name);
    }
    uint64_t v = iops.is_set ? (uint64_t)MAX(iops.v, (int64_t)0) : t->iops_default;
    if (v < t->iops_min || v > t->iops_max) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Volume iops of %llu is %s %s IOPS for %s volumes: %llu",
                    (unsigned long long)v, v < t->iops_min ? "less than" : "more than",
                    v < t->iops_min ? "minimum" : "maximum", t->name,
                    (unsigned long long)(v < t->iops_min ? t->iops_min : t->iops_max));
    }
    if (iops.is_set && v > t->iops_default && t->iops_per_gib > 0 &&
        v > size_gib * t->iops_per_gib) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Iops to volume size ratio of %.6f is too high; maximum is %llu",
                    (double)v / (double)size_gib, (unsigned long long)t->iops_per_gib);
    }
    *ret = v;
    return 0;
}

int volume_type_check(struct str type, uint64_t size_gib, struct opt_i64 iops,
                      struct opt_i64 throughput, uint64_t *ret_iops, uint64_t *ret_throughput,
                      struct err *err)
{
    const struct volume_type *t = NULL;
    for (size_t i = 0; i < ARRAY_LEN(volume_types); i++) {
        t = str_eqc(type, volume_types[i].name) ? &volume_types[i] : t;
    }
    if (!t) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter VolumeType is invalid.", STR_ARG(type));
    }
    if (size_gib < t->size_min || size_gib > t->size_max) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Volume of %lluGiB is %s than the %s size of %lluGiB for %s volumes.",
                    (unsigned long long)size_gib, size_gib < t->size_min ? "smaller" : "larger",
                    size_gib < t->size_min ? "minimum" : "maximum",
                    (unsigned long long)(size_gib < t->size_min ? t->size_min : t->size_max),
                    t->name);
    }
    int r = check_iops(t, size_gib, iops, ret_iops, err);
    if (r < 0) {
        return r;
    }
    *ret_throughput = t->throughput_default;
    if (!throughput.is_set) {
        return 0;
    }
    if (t->throughput_max == 0) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "The parameter throughput is not supported for %s volumes.", t->name);
    }
    uint64_t v = (uint64_t)MAX(throughput.v, (int64_t)0);
    if (v < t->throughput_min || v > t->throughput_max || v * 4 > *ret_iops) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Throughput of %llu MiB/s is not valid: %llu to %llu, and at most 0.25 "
                    "MiB/s per provisioned IOPS.",
                    (unsigned long long)v, (unsigned long long)t->throughput_min,
                    (unsigned long long)t->throughput_max);
    }
    *ret_throughput = v;
    return 0;
}

/* EBS user guide, device names: /dev/sd[a-z][1-15], /dev/xvd*, and what older tools send. */
static bool is_device_name(struct str s)
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

static int disk_size(struct launch *l, const struct launch_disk *d,
                     const struct ec2_ebs_block_device *ebs, uint64_t *ret, struct err *err)
{
    uint64_t least = d->image_id.n > 0 ? MAX((l->image->size + GIB - 1) / GIB, (uint64_t)1) : 0;
    if (!ebs || !ebs->volume_size.is_set) {
        if (least == 0) {
            return fail(err, -EINVAL, "MissingParameter",
                        "The request must contain the parameter size or snapshotId");
        }
        *ret = least;
        return 0;
    }
    if (ebs->volume_size.v < 1 || (uint64_t)ebs->volume_size.v < least) {
        return fail(
            err, -EINVAL, "InvalidBlockDeviceMapping",
            "Volume of size %lldGB is smaller than snapshot '%.*s', expect size >= %lluGB",
            (long long)ebs->volume_size.v, STR_ARG(l->image->snapshot_id),
            (unsigned long long)MAX(least, (uint64_t)1));
    }
    *ret = (uint64_t)ebs->volume_size.v;
    return 0;
}

static int disk_set(struct launch *l, struct launch_disk *d,
                    const struct ec2_ebs_block_device *ebs, struct err *err)
{
    struct opt_i64 iops = {0}, throughput = {0};
    if (ebs) {
        if (ebs->encrypted.is_set && ebs->encrypted.v) {
            return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                        "An encrypted volume is not supported here.");
        }
        if (ebs->kms_key_id.n > 0 || ebs->outpost_arn.n > 0 || ebs->ebs_card_index.is_set ||
            ebs->volume_initialization_rate.is_set) {
            return fail(
                err, -EOPNOTSUPP, "UnsupportedOperation",
                "A KMS key, outpost, card index or initialization rate is not supported here.");
        }
        bool is_image_snapshot = d->is_root && str_eq(ebs->snapshot_id, l->image->snapshot_id);
        if (str_is_set(ebs->snapshot_id) && !is_image_snapshot) {
            return fail(err, -ENOENT, "InvalidSnapshot.NotFound",
                        "The snapshot '%.*s' does not exist.", STR_ARG(ebs->snapshot_id));
        }
        d->type = ebs->volume_type.n > 0 ? ebs->volume_type : d->type;
        iops = ebs->iops;
        throughput = ebs->throughput;
        if (ebs->delete_on_termination.is_set) {
            d->is_deleted_on_termination = ebs->delete_on_termination.v;
        }
    }
    int r = disk_size(l, d, ebs, &d->size_gib, err);
    if (r < 0) {
        return r;
    }
    return volume_type_check(d->type, d->size_gib, iops, throughput, &d->iops, &d->throughput,
                             err);
}

static int add_mapping(struct launch *l, const struct ec2_block_device_mapping *m,
                       struct err *err)
{
    if (!is_device_name(m->device_name)) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping", "Invalid device name %.*s",
                    STR_ARG(m->device_name));
    }
    struct launch_disk *d = disk_find(l, m->device_name);
    if (str_is_set(m->no_device)) {
        if (d && d->is_root) {
            return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                        "The root device %.*s cannot be left out", STR_ARG(m->device_name));
        }
        return 0;
    }
    if (str_is_set(m->virtual_name)) {
        return 0; /* AWS ignores instance-store names for types that have none */
    }
    if (d && !d->is_root) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping", "Duplicate device name %.*s",
                    STR_ARG(m->device_name));
    }
    if (!d) {
        if (l->n_disks == LAUNCH_DISKS_MAX) {
            return fail(err, -EINVAL, "AttachmentLimitExceeded",
                        "At most %u volumes can be attached at launch.", LAUNCH_DISKS_MAX);
        }
        d = &l->disks[l->n_disks++];
        *d = (struct launch_disk){.device = m->device_name,
                                  .snapshot_id = STR(""),
                                  .image_id = STR(""),
                                  .type = STR("gp3"),
                                  .is_deleted_on_termination = true};
    }
    return disk_set(l, d, m->ebs, err);
}

int launch_disks(struct aws_call *call, struct launch *l, struct err *err)
{
    struct launch_disk *root = &l->disks[l->n_disks++];
    *root = (struct launch_disk){.device = l->image->root_device,
                                 .snapshot_id = l->image->snapshot_id,
                                 .image_id = l->image->id,
                                 .type = STR("gp3"),
                                 .is_deleted_on_termination = true,
                                 .is_root = true};
    int r = disk_set(l, root, NULL, err);
    for (size_t i = 0; r == 0 && i < l->in->block_device_mappings.n; i++) {
        r = add_mapping(l, &l->in->block_device_mappings.v[i], err);
    }
    return r;
}
