/* CopyImage. */
#include "awsgw/ops.h"

#include "aws/token.h"
#include "awsgw/image_make.h"
#include "awsgw/region.h"
#include "model/keys.h"

#include <errno.h>

static int check_copy(struct aws_call *call, const struct ec2_copy_image_request *in,
                      struct err *err)
{
    struct str here = region_name(gw_of(call));
    if (!str_eq(in->source_region, here)) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The storage for the ami is not available in the source Region '%.*s': "
                    "this installation has one region, '%.*s'.",
                    STR_ARG(in->source_region), STR_ARG(here));
    }
    if (in->destination_outpost_arn.n > 0 || in->destination_availability_zone.n > 0 ||
        in->destination_availability_zone_id.n > 0 ||
        in->snapshot_copy_completion_duration_minutes.is_set) {
        return fail(err, -EOPNOTSUPP, "UnsupportedOperation",
                    "An outpost, a Local Zone or a completion duration is not supported here.");
    }
    return 0;
}

/* The snapshots of an import are as public as the image; those of users are shared apart. */
static int check_readable(struct aws_call *call, const struct image *from, struct str id,
                          struct err *err)
{
    if (from->source.n == 0 || str_eq(from->account, call->account)) {
        return 0;
    }
    struct err e = ERR_INIT;
    return snap_find(call, id, &e) ? 0
                                   : fail(err, -EPERM, "InvalidRequest",
                                          "You do not have permission to access the storage "
                                          "of this ami");
}

static int copy_devices(struct make *m, const struct ec2_copy_image_request *in,
                        const struct image *from, struct txn *t, struct err *err)
{
    struct aws_call *call = m->call;
    struct img_devices d = image_devices(gw_of(call), call->arena, from);
    for (size_t i = 0; i < d.n && i < IMAGE_EXTRAS_MAX; i++) {
        struct image_device *to = &m->devices[m->n++];
        *to = d.v[i];
        to->volume_id = STR("");
        if (to->snapshot_id.n == 0) {
            continue;
        }
        const struct snapshot *src =
            REC(snapshot, store_spec(gw_of(call), call->arena, "snapshot", from->account,
                                     d.v[i].snapshot_id));
        struct snapshot s = {
            .id = id_new(call->arena, "snap"),
            .account = call->account,
            .description = arena_fmt(
                call->arena,
                "Copied for DestinationAmi %.*s from SourceAmi %.*s for SourceSnapshot %.*s.",
                STR_ARG(m->rec.id), STR_ARG(from->id), STR_ARG(d.v[i].snapshot_id)),
            .generation = 1,
            .want = STR("present"),
            .source = STR("copy"),
            .volume_id = STR(SNAPSHOT_NO_VOLUME),
            .from_id = d.v[i].snapshot_id,
            .from_account = from->account,
            .node = str_c(gw_of(call)->cfg->node),
            .size_gib = src ? src->size_gib : d.v[i].size_gib,
            .size = src ? src->size : d.v[i].size_gib << 30,
            .create_ns = call->now_ns,
        };
        const struct ebs_crypt_ask ask = {in->encrypted, in->kms_key_id, to->is_encrypted};
        int r = check_readable(call, from, d.v[i].snapshot_id, err);
        if (r < 0 || (r = ebs_crypt(call, &ask, &s.is_encrypted, &s.kms_key_id, err)) < 0) {
            return r;
        }
        to->snapshot_id = s.id;
        to->is_encrypted = s.is_encrypted;
        to->kms_key_id = STR("");
        txn_create(t, key_spec(t->a, "snapshot", s.account, s.id), &snapshot_desc, &s);
        tags_create(t, s.account, s.id, "snapshot", m->snapshot_tags);
    }
    return 0;
}

/* The caller's own tags of the source, when it asks for them; those of the request win. */
static int copy_tags(struct make *m, const struct image *from, struct err *err)
{
    if (!str_eq(from->account, m->call->account)) {
        return 0;
    }
    return tags_merge(m->call, m->image_tags, from->id, &m->image_tags, err);
}

int ec2_copy_image(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_copy_image_request *in = input;
    struct ec2_copy_image_result *out = output;
    struct make *m = arena_new_of(call->arena, struct make);
    struct txn *t = txn_open(call);
    struct aws_token tok;
    int r = check_copy(call, in, err);
    const struct view_entry *e = r < 0 ? NULL : image_find(call, in->source_image_id, err);
    if (!e || txn_settle(gw_of(call), e, err) < 0) {
        return err->code;
    }
    const struct image *from = REC(image, e);
    if ((r = txn_token_begin(call, in->client_token, in, &tok, err)) < 0) {
        return r;
    }
    if (tok.is_replay) {
        out->image_id = tok.result;
        return aws_dry_run(call, err);
    }
    if (!str_eqc(image_state(gw_of(call), call->arena, from, NULL), "available")) {
        return fail(err, -EINVAL, "InvalidAMIID.Unavailable",
                    "The image id '[%.*s]' is not available", STR_ARG(from->id));
    }
    if ((r = make_open(call, in->name, in->description, &in->tag_specifications, true, m,
                       err)) < 0 ||
        (in->copy_image_tags.v && (r = copy_tags(m, from, err)) < 0)) {
        return r;
    }
    struct image own = m->rec;
    m->rec = *from;
    m->rec.head = own.head;
    m->rec.id = own.id;
    m->rec.account = own.account;
    m->rec.name = own.name;
    m->rec.description = own.description;
    m->rec.create_ns = own.create_ns;
    m->rec.want = own.want;
    m->rec.is_public = m->rec.is_protected = m->rec.is_disabled = false;
    m->rec.accounts = (struct str_list){0};
    m->rec.source = STR("copy");
    m->rec.source_id = from->id;
    m->rec.sha256 = STR("");
    m->rec.deprecate_at = m->rec.phase = m->rec.failure = STR("");
    if ((r = copy_devices(m, in, from, t, err)) < 0 || (r = make_write(m, t, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    txn_token(t, call, &tok, m->rec.id);
    txn_expect(t, e->key, e->mod_rev);
    out->image_id = m->rec.id;
    return txn_commit(t, err);
}
