#include "awsgw/image_make.h"

#include "awsgw/launch.h"
#include "model/keys.h"
#include "model/volume_type.h"

#include <errno.h>

#define IMAGES_MAX 50000u /* of one account (EC2 quota) */

static int check_name(struct aws_call *call, struct str name, struct err *err)
{
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool is_ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     (c >= '0' && c <= '9') || strchr("()[] ./-'@_", c) != NULL;
        if (!is_ok || c == '\0') {
            return fail(err, -EINVAL, "InvalidAMIName.Malformed",
                        "AMI names must be between 3 and 128 characters long, and may contain "
                        "letters, numbers, '(', ')', '[', ']', ' ', '.', '/', '-', ''', '@' "
                        "and '_'");
        }
    }
    struct gw *gw = gw_of(call);
    if (!store_has(gw, key_claim(call->arena, "imagename", call->account, name))) {
        return 0;
    }
    struct entries all = store_list(gw, call->arena, "image", call->account);
    struct str id = STR("another one");
    for (size_t i = 0; i < all.n; i++) {
        const struct image *img = REC(image, all.v[i]);
        id = str_eq(img->name, name) && !str_eqc(img->want, "deleted") ? img->id : id;
    }
    return fail(err, -EEXIST, "InvalidAMIName.Duplicate",
                "AMI name %.*s is already in use by AMI %.*s", STR_ARG(name), STR_ARG(id));
}

int make_open(struct aws_call *call, struct str name, struct str description,
              const struct ec2_tag_specification_list *tags, bool makes_snapshots,
              struct make *m, struct err *err)
{
    /* RegisterImage makes no snapshots that could have tags. */
    const char *const allowed[] = {"image", makes_snapshots ? "snapshot" : NULL, NULL};
    *m = (struct make){.call = call};
    int r = check_name(call, name, err);
    if (r < 0 ||
        (r = tags_from_spec(call->arena, tags, "image", allowed, &m->image_tags, err)) < 0 ||
        (r = tags_from_spec(call->arena, tags, "snapshot", allowed, &m->snapshot_tags, err)) <
            0) {
        return r;
    }
    if (store_list(gw_of(call), call->arena, "image", call->account).n >= IMAGES_MAX) {
        return fail(err, -E2BIG, "ResourceLimitExceeded",
                    "The maximum number of images (%u) has been reached.", IMAGES_MAX);
    }
    m->rec = (struct image){
        .id = id_new(call->arena, "ami"),
        .account = call->account,
        .name = name,
        .description = str_is_set(description) ? description : STR(""),
        .create_ns = call->now_ns,
        .want = STR("present"),
        .platform = STR(""),
        .sha256 = STR(""),
    };
    return 0;
}

int make_device(struct make *m, struct str name, struct image_device **ret, struct err *err)
{
    for (size_t i = 0; i < m->n; i++) {
        if (str_eq(m->devices[i].device, name)) {
            *ret = &m->devices[i];
            return 0;
        }
    }
    if (m->n == IMAGE_EXTRAS_MAX) {
        return fail(err, -E2BIG, "InvalidBlockDeviceMapping",
                    "At most %u devices can be mapped.", IMAGE_EXTRAS_MAX);
    }
    *ret = &m->devices[m->n++];
    **ret = (struct image_device){.device = name,
                                  .snapshot_id = STR(""),
                                  .type = STR(""),
                                  .kms_key_id = STR(""),
                                  .volume_id = STR(""),
                                  .virtual_name = STR("")};
    return 0;
}

int make_write(struct make *m, struct txn *t, struct err *err)
{
    size_t n_disks = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct image_device *d = &m->devices[i];
        n_disks += !d->is_none && d->virtual_name.n == 0;
        if (str_eq(d->device, m->rec.root_device)) {
            m->rec.snapshot_id = d->snapshot_id;
            m->rec.size = d->size_gib << 30;
        }
    }
    if (n_disks > IMAGE_DISKS_MAX) {
        return fail(err, -E2BIG, "InvalidBlockDeviceMapping",
                    "An image can have at most %u EBS volumes.", IMAGE_DISKS_MAX);
    }
    m->rec.devices.v = m->devices;
    m->rec.devices.n = m->n;
    txn_claim(t, key_claim(t->a, "imagename", m->rec.account, m->rec.name), m->rec.id);
    txn_create(t, key_spec(t->a, "image", m->rec.account, m->rec.id), &image_desc, &m->rec);
    tags_create(t, m->rec.account, m->rec.id, "image", m->image_tags);
    return 0;
}

/* ---- mappings of a request ---- */

static int check_figures(struct image_device *d, bool has_iops, bool has_throughput,
                         struct err *err)
{
    const struct volume_ask ask = {.type = d->type,
                                   .size_gib = d->size_gib,
                                   .has_iops = has_iops,
                                   .iops = (int64_t)d->iops,
                                   .has_throughput = has_throughput,
                                   .throughput = (int64_t)d->throughput};
    return volume_type_check(&ask, &d->iops, &d->throughput, err);
}

/* Type and figures: those said, or those there were, of the same type. */
static int set_type(struct image_device *d, const struct ec2_ebs_block_device *ebs,
                    struct err *err)
{
    struct str type = ebs->volume_type.n > 0 ? ebs->volume_type : d->type;
    type = type.n > 0 ? type : STR("gp2");
    const struct volume_type *t = volume_type_find(type);
    bool is_same = str_eq(type, d->type) && t;
    bool has_iops = ebs->iops.is_set || (is_same && t->iops_max > 0 && d->iops > 0);
    bool has_throughput =
        ebs->throughput.is_set || (is_same && t->throughput_max > 0 && d->throughput > 0);
    d->type = type;
    d->iops = ebs->iops.is_set ? (uint64_t)MAX(ebs->iops.v, INT64_C(0)) : d->iops;
    d->throughput =
        ebs->throughput.is_set ? (uint64_t)MAX(ebs->throughput.v, INT64_C(0)) : d->throughput;
    return check_figures(d, has_iops, has_throughput, err);
}

static int check_ebs(const struct ec2_ebs_block_device *ebs, struct err *err)
{
    if (ebs->outpost_arn.n > 0 || ebs->ebs_card_index.is_set ||
        ebs->volume_initialization_rate.is_set) {
        return fail(
            err, -EOPNOTSUPP, "UnsupportedOperation",
            "An outpost, a card index or an initialization rate is not supported here.");
    }
    if (ebs->volume_size.is_set && ebs->volume_size.v < 1) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%lld) for parameter VolumeSize is invalid.",
                    (long long)ebs->volume_size.v);
    }
    return 0;
}

/* A device of a new image: of a snapshot of the caller, or empty. */
static int set_new(struct make *m, struct image_device *d,
                   const struct ec2_ebs_block_device *ebs, struct txn *t, struct err *err)
{
    uint64_t least = 0;
    bool is_source_encrypted = false, is_of_snapshot = ebs->snapshot_id.n > 0;
    if (is_of_snapshot) {
        const struct view_entry *e = snap_find_own(m->call, ebs->snapshot_id, err);
        if (!e || txn_settle(gw_of(m->call), e, err) < 0) {
            return err->code;
        }
        struct snap s = snap_join(m->call, e);
        if (!str_eqc(s.state, "completed")) {
            return fail(err, -EINVAL, "IncorrectState", "Snapshot is in invalid state - %.*s",
                        STR_ARG(s.state));
        }
        if (ebs->encrypted.is_set && ebs->encrypted.v != s.spec->is_encrypted) {
            return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                        "the encrypted flag cannot be specified since device %.*s has a "
                        "snapshot specified.",
                        STR_ARG(d->device));
        }
        d->snapshot_id = s.spec->id;
        is_source_encrypted = s.spec->is_encrypted;
        least = s.spec->size_gib;
        /* Touched: its deletion and this conflict, whoever is first. */
        txn_update(t, e, &snapshot_desc, s.spec);
    }
    d->size_gib = ebs->volume_size.is_set ? (uint64_t)ebs->volume_size.v : least;
    if (d->size_gib == 0) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter VolumeSize or SnapshotId");
    }
    if (d->size_gib < least) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                    "Volume of size %lluGB is smaller than snapshot '%.*s', expect size >= "
                    "%lluGB",
                    (unsigned long long)d->size_gib, STR_ARG(d->snapshot_id),
                    (unsigned long long)least);
    }
    d->is_kept = ebs->delete_on_termination.is_set && !ebs->delete_on_termination.v;
    const struct ebs_crypt_ask ask = {is_of_snapshot ? (struct opt_bool){0} : ebs->encrypted,
                                      is_of_snapshot ? STR("") : ebs->kms_key_id,
                                      is_source_encrypted};
    int r = set_type(d, ebs, err);
    if (r < 0 || is_of_snapshot) {
        d->is_encrypted = is_source_encrypted; /* what a launch adds is decided by the launch */
        return r;
    }
    return ebs_crypt(m->call, &ask, &d->is_encrypted, &d->kms_key_id, err);
}

/* Of a device that the instance has, little can be said otherwise. */
static int set_existing(struct image_device *d, const struct ec2_ebs_block_device *ebs,
                        struct err *err)
{
    if ((ebs->volume_size.is_set && (uint64_t)ebs->volume_size.v != d->size_gib) ||
        (ebs->encrypted.is_set && ebs->encrypted.v != d->is_encrypted) ||
        ebs->snapshot_id.n > 0 || ebs->kms_key_id.n > 0) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                    "The size, the encryption and the snapshot of the existing device %.*s "
                    "cannot be changed",
                    STR_ARG(d->device));
    }
    if (ebs->delete_on_termination.is_set) {
        d->is_kept = !ebs->delete_on_termination.v;
    }
    return set_type(d, ebs, err);
}

int make_mapping(struct make *m, const struct ec2_block_device_mapping *in, struct txn *t,
                 struct err *err)
{
    struct image_device *d = NULL;
    if (!device_name_is_good(in->device_name)) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping", "Invalid device name %.*s",
                    STR_ARG(in->device_name));
    }
    size_t n_before = m->n;
    int r = make_device(m, in->device_name, &d, err);
    if (r < 0) {
        return r;
    }
    bool is_new = m->n > n_before;
    if (in->no_device.p) {
        if (str_eq(d->device, m->rec.root_device)) {
            return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                        "The root device %.*s cannot be left out", STR_ARG(d->device));
        }
        *d = m->devices[--m->n]; /* the order says nothing */
        return 0;
    }
    if (in->virtual_name.n > 0) {
        if (!is_new || str_eq(d->device, m->rec.root_device)) {
            return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                        "The device %.*s is an EBS volume", STR_ARG(d->device));
        }
        d->virtual_name = in->virtual_name;
        return 0;
    }
    if (!in->ebs) {
        return fail(err, -EINVAL, "InvalidBlockDeviceMapping",
                    "The mapping of %.*s says nothing", STR_ARG(d->device));
    }
    if ((r = check_ebs(in->ebs, err)) < 0) {
        return r;
    }
    return is_new ? set_new(m, d, in->ebs, t, err) : set_existing(d, in->ebs, err);
}
