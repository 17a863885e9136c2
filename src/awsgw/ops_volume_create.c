/* CreateVolume and CopyVolumes. */
#include "awsgw/ops.h"

#include "aws/token.h"
#include "awsgw/image.h"
#include "awsgw/region.h"
#include "awsgw/tagset.h"
#include "awsgw/vol.h"
#include "model/keys.h"
#include "model/volume_type.h"

#include <errno.h>

#define VOLUMES_MAX 5000u /* of one account */

static const char *const tag_types[] = {"volume", NULL};

static int check_zone(struct aws_call *call, const struct ec2_create_volume_request *in,
                      struct err *err)
{
    struct gw *gw = gw_of(call);
    if (!str_is_set(in->availability_zone) && !str_is_set(in->availability_zone_id)) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter AvailabilityZone");
    }
    if (str_is_set(in->availability_zone) && !str_eq(in->availability_zone, zone_name(gw))) {
        return fail(err, -EINVAL, "InvalidZone.NotFound", "The zone '%.*s' does not exist.",
                    STR_ARG(in->availability_zone));
    }
    if (str_is_set(in->availability_zone_id) &&
        !str_eq(in->availability_zone_id, zone_id(gw, call->arena))) {
        return fail(err, -EINVAL, "InvalidZone.NotFound", "The zone '%.*s' does not exist.",
                    STR_ARG(in->availability_zone_id));
    }
    return 0;
}

static int check_extras(const struct ec2_create_volume_request *in, struct err *err)
{
    const char *what = in->multi_attach_enabled.v              ? "Multi-attach"
                       : in->outpost_arn.n > 0                 ? "An outpost"
                       : in->volume_initialization_rate.is_set ? "A volume initialization rate"
                       : in->operator                          ? "An operator"
                                                               : NULL;
    return what ? fail(err, -EOPNOTSUPP, "UnsupportedOperation", "%s is not supported here.",
                       what)
                : 0;
}

static int choose_size(struct opt_i64 asked, uint64_t least, const char *of_what, uint64_t *ret,
                       struct err *err)
{
    if (!asked.is_set && least == 0) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter size or snapshotId");
    }
    if (asked.is_set && asked.v < 1) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value (%lld) for parameter size is invalid. It must be greater than 0.",
                    (long long)asked.v);
    }
    *ret = asked.is_set ? (uint64_t)asked.v : least;
    if (*ret < least) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "The size of a volume can't be smaller than its %s (%llu GiB).", of_what,
                    (unsigned long long)least);
    }
    return 0;
}

static int choose_type(struct volume *v, struct opt_i64 iops, struct opt_i64 throughput,
                       struct err *err)
{
    const struct volume_ask ask = {.type = v->type,
                                   .size_gib = v->size_gib,
                                   .has_iops = iops.is_set,
                                   .iops = iops.v,
                                   .has_throughput = throughput.is_set,
                                   .throughput = throughput.v};
    return volume_type_check(&ask, &v->iops, &v->throughput, err);
}

static int check_limit(struct aws_call *call, struct err *err)
{
    if (store_list(gw_of(call), call->arena, "volume", call->account).n >= VOLUMES_MAX) {
        return fail(err, -E2BIG, "VolumeLimitExceeded",
                    "The maximum number of volumes (%u) has been reached.", VOLUMES_MAX);
    }
    return 0;
}

static int answer(struct aws_call *call, struct str id, struct ec2_volume *out, struct err *err)
{
    const struct view_entry *e =
        store_spec(gw_of(call), call->arena, "volume", call->account, id);
    if (!e) {
        return aws_id_not_found(AWS_ID_VOLUME, &id, 1, err);
    }
    ec2_volume_out(call, e, out);
    return 0;
}

static struct volume new_volume(struct aws_call *call, struct str type)
{
    return (struct volume){
        .account = call->account,
        .generation = 1,
        .want = STR("present"),
        .node = str_c(gw_of(call)->cfg->node),
        .az = zone_name(gw_of(call)),
        .type = type.n > 0 ? type : STR("gp2"),
        .snapshot_id = STR(""),
        .image_id = STR(""),
        .snapshot_account = STR(""),
        .create_ns = call->now_ns,
        .instance_id = STR(""),
    };
}

static int check_source(struct aws_call *call, struct str snapshot_id, struct volume *v,
                        struct disk_source *src, struct err *err)
{
    *src = (struct disk_source){0};
    if (snapshot_id.n == 0) { /* the console of AWS sends it empty */
        return 0;
    }
    int r = disk_source_find(call, snapshot_id, src, err);
    if (r == 0) {
        v->snapshot_id = src->snapshot_id;
        v->snapshot_account = src->snapshot_account;
        v->image_id = src->image_id;
    }
    return r;
}

int ec2_create_volume(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_create_volume_request *in = input;
    struct tag_list tags = {0};
    struct aws_token tok;
    struct disk_source src;
    struct volume v = new_volume(call, in->volume_type);
    int r = check_zone(call, in, err);
    if (r < 0 || (r = check_extras(in, err)) < 0 ||
        (r = check_source(call, in->snapshot_id, &v, &src, err)) < 0 ||
        (r = choose_size(in->size, src.size_gib, "snapshot", &v.size_gib, err)) < 0 ||
        (r = choose_type(&v, in->iops, in->throughput, err)) < 0) {
        return r;
    }
    const struct ebs_crypt_ask ask = {in->encrypted, in->kms_key_id, src.is_encrypted};
    if ((r = ebs_crypt(call, &ask, &v.is_encrypted, &v.kms_key_id, err)) < 0 ||
        (r = tags_from_spec(call->arena, &in->tag_specifications, "volume", tag_types, &tags,
                            err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0 ||
        (r = txn_token_begin(call, in->client_token, in, &tok, err)) < 0) {
        return r;
    }
    if (tok.is_replay) {
        return answer(call, tok.result, output, err);
    }
    if ((r = check_limit(call, err)) < 0) {
        return r;
    }
    v.id = id_new(call->arena, "vol");
    struct txn *t = txn_open(call);
    txn_token(t, call, &tok, v.id);
    if (src.entry) {
        /* Its bytes must not go meanwhile. */
        txn_expect(t, src.entry->key, src.entry->mod_rev);
    }
    txn_create(t, key_spec(call->arena, "volume", call->account, v.id), &volume_desc, &v);
    tags_create(t, call->account, v.id, "volume", tags);
    if ((r = txn_commit(t, err)) < 0) {
        return r;
    }
    return answer(call, v.id, output, err);
}

/* ---- CopyVolumes: a snapshot that nobody sees, and a volume of it ---- */

static int copies_answer(struct aws_call *call, struct str id,
                         struct ec2_copy_volumes_result *out, struct err *err)
{
    AWS_LIST_MAKE(call->arena, &out->volumes, 1);
    return answer(call, id, &out->volumes.v[0], err);
}

int ec2_copy_volumes(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_copy_volumes_request *in = input;
    struct tag_list tags = {0};
    struct aws_token tok;
    const struct view_entry *e = find_one(call, AWS_ID_VOLUME, in->source_volume_id, err);
    if (!e || txn_settle(gw_of(call), e, err) < 0) {
        return err->code;
    }
    struct vol from = vol_join(call, e);
    struct volume v = new_volume(call, in->volume_type);
    int r = 0;
    if (!str_eqc(from.state, "available") && !str_eqc(from.state, "in-use")) {
        return fail(err, -EINVAL, "IncorrectState",
                    "The volume '%.*s' is in the '%.*s' state: it cannot be copied.",
                    STR_ARG(from.spec->id), STR_ARG(from.state));
    }
    if (in->multi_attach_enabled.v) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "Multi-attach is not supported here.");
    }
    if ((r = choose_size(in->size, from.now.size_gib, "source", &v.size_gib, err)) < 0 ||
        (r = choose_type(&v, in->iops, in->throughput, err)) < 0 ||
        (r = tags_from_spec(call->arena, &in->tag_specifications, "volume", tag_types, &tags,
                            err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0 ||
        (r = txn_token_begin(call, in->client_token, in, &tok, err)) < 0) {
        return r;
    }
    if (tok.is_replay) {
        return copies_answer(call, tok.result, output, err);
    }
    if ((r = check_limit(call, err)) < 0 ||
        (r = snap_check_rate(call, &from.now, false, err)) < 0) {
        return r;
    }
    struct snapshot s = snap_of_volume(gw_of(call), call->arena, &from.now, call->now_ns);
    s.is_hidden = true;
    v.id = id_new(call->arena, "vol");
    v.source_volume_id = from.spec->id;
    v.snapshot_id = s.id;
    v.snapshot_account = s.account;
    v.is_encrypted = from.spec->is_encrypted;
    v.kms_key_id = s.kms_key_id;
    struct txn *t = txn_open(call);
    txn_token(t, call, &tok, v.id);
    txn_update(t, e, &volume_desc, from.spec); /* touched: not deleted at the same time */
    txn_create(t, key_spec(call->arena, "snapshot", s.account, s.id), &snapshot_desc, &s);
    txn_create(t, key_spec(call->arena, "volume", call->account, v.id), &volume_desc, &v);
    tags_create(t, call->account, v.id, "volume", tags);
    if ((r = txn_commit(t, err)) < 0) {
        return r;
    }
    return copies_answer(call, v.id, output, err);
}
