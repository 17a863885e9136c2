/* RunInstances. */
#include "awsgw/ops.h"

#include "aws/token.h"
#include "awsgw/inst.h"
#include "awsgw/launch.h"
#include "awsgw/region.h"
#include "awsgw/sgrule.h"
#include "base/log.h"
#include "model/keys.h"

#include <errno.h>

LOG_MODULE("awsgw.run");

#define INSTANCES_MAX 200u /* in one request */
#define PART_TRIES    32u  /* of a later part of a large launch, against others */

/* Addresses that the request takes, picked one after the other. */
struct pickers {
    struct ip_picker private, public;
};

static int pick_private(struct aws_call *call, const struct launch *l, struct pickers *p,
                        struct str *ret, struct err *err)
{
    uint32_t ip = 0;
    if (l->private_ip.n > 0) {
        int r = ip4_parse(l->private_ip, &ip);
        r = r < 0 ? r : ip_pick_exact(&p->private, ip);
        if (r == -EADDRINUSE) {
            return fail(err, r, "InvalidIPAddress.InUse", "Address %.*s is in use.",
                        STR_ARG(l->private_ip));
        }
        if (r < 0) {
            return fail(err, r, "InvalidParameterValue",
                        "Address %.*s is in subnet's reserved address range",
                        STR_ARG(l->private_ip));
        }
    } else if (ip_pick(&p->private, &ip) < 0) {
        return fail(err, -ENOSPC, "InsufficientFreeAddressesInSubnet",
                    "There are not enough free addresses in subnet '%.*s' to satisfy the "
                    "requested number of instances.",
                    STR_ARG(l->subnet->id));
    }
    *ret = ip4_fmt(call->arena, ip);
    return 0;
}

static int pick_public(struct aws_call *call, const struct launch *l, struct pickers *p,
                       struct str *ret, struct err *err)
{
    uint32_t ip = 0;
    *ret = STR("");
    if (!l->has_public_ip) {
        return 0;
    }
    if (ip_pick(&p->public, &ip) < 0) {
        return fail(err, -ENOSPC, "InsufficientAddressCapacity",
                    "There are no free addresses in the external pool. Release one, or launch "
                    "with AssociatePublicIpAddress=false.");
    }
    *ret = ip4_fmt(call->arena, ip);
    return 0;
}

static int add_eni(struct aws_call *call, const struct launch *l, struct txn *t,
                   struct pickers *p, struct str instance_id, struct err *err)
{
    struct arena *a = call->arena;
    struct gw *gw = gw_of(call);
    struct eni eni = {0};
    if (l->eni) {
        eni = *REC(eni, l->eni);
        eni.generation++;
    } else {
        int r = pick_private(call, l, p, &eni.private_ip, err);
        if (r < 0 || (r = pick_public(call, l, p, &eni.public_ip, err)) < 0) {
            return r;
        }
        eni.id = id_new(a, "eni");
        eni.account = call->account;
        eni.vpc_id = l->vpc->id;
        eni.subnet_id = l->subnet->id;
        eni.az = l->subnet->az;
        eni.description = l->eni_description;
        eni.mac = mac_new(a);
        eni.private_dns = private_dns_name(gw, a, eni.private_ip);
        eni.sg_ids = l->sg_ids;
        eni.create_ns = call->now_ns;
        eni.is_source_dest_checked = true;
        eni.generation = 1;
        eni.want = STR("present");
        txn_claim(t, claim_private_ip_key(a, l->subnet->id, eni.private_ip), eni.id);
        if (eni.public_ip.n > 0) {
            txn_claim(t, claim_public_ip_key(a, eni.public_ip), eni.id);
        }
        tags_create(t, call->account, eni.id, "network-interface", l->eni_tags);
    }
    eni.instance_id = instance_id;
    eni.attachment_id = id_new(a, "eni-attach");
    eni.attach_ns = call->now_ns;
    eni.device_index = 0;
    eni.is_deleted_on_termination = l->is_eni_deleted_on_termination;
    eni.node = str_c(gw->cfg->node);
    txn_set(t, l->eni, key_spec(a, "eni", call->account, eni.id), &eni_desc, &eni);
    return 0;
}

static void add_volumes(struct aws_call *call, const struct launch *l, struct txn *t,
                        struct str instance_id)
{
    for (size_t i = 0; i < l->n_disks; i++) {
        const struct launch_disk *d = &l->disks[i];
        struct volume v = {
            .id = id_new(call->arena, "vol"),
            .account = call->account,
            .generation = 1,
            .want = STR("present"),
            .node = str_c(gw_of(call)->cfg->node),
            .az = l->subnet->az,
            .size_gib = d->size_gib,
            .iops = d->iops,
            .throughput = d->throughput,
            .type = d->type,
            .is_encrypted = d->is_encrypted,
            .snapshot_id = d->snapshot_id,
            .image_id = d->image_id,
            .snapshot_account = d->snapshot_account,
            .kms_key_id = d->kms_key_id,
            .create_ns = call->now_ns,
            .instance_id = instance_id,
            .device = d->device,
            .attach_want = STR("attached"),
            .attach_ns = call->now_ns,
            .is_deleted_on_termination = d->is_deleted_on_termination,
        };
        txn_create(t, key_spec(t->a, "volume", call->account, v.id), &volume_desc, &v);
        tags_create(t, call->account, v.id, "volume", l->volume_tags);
    }
}

static struct instance instance_of(struct aws_call *call, const struct launch *l,
                                   struct str reservation_id, uint64_t index)
{
    const struct ec2_run_instances_request *in = l->in;
    return (struct instance){
        .id = id_new(call->arena, "i"),
        .account = call->account,
        .generation = 1,
        .want = STR(INSTANCE_WANT_RUNNING),
        .node = str_c(gw_of(call)->cfg->node),
        .reservation_id = reservation_id,
        .client_token = in->client_token.p ? in->client_token : STR(""),
        .launch_index = index,
        .launch_ns = call->now_ns,
        .create_ns = call->now_ns,
        .image_id = l->image->id,
        .instance_type = l->type->name,
        .arch = l->image->arch,
        .boot_mode = image_firmware(l->image),
        .n_vcpus = l->type->n_vcpus,
        .memory_mib = l->type->memory_mib,
        .key_name = l->key ? l->key->name : STR(""),
        .public_key = l->key ? l->key->public_key : STR(""),
        .user_data = l->user_data,
        .az = l->subnet->az,
        .vpc_id = l->vpc->id,
        .subnet_id = l->subnet->id,
        .root_device = l->image->root_device,
        .is_termination_protected = in->disable_api_termination.v,
        .is_stop_protected = in->disable_api_stop.v,
        .is_monitored = in->monitoring && in->monitoring->enabled.v,
        .is_ebs_optimized = in->ebs_optimized.v,
        .is_source_dest_checked = true,
        .is_holding_capacity = true,
        .is_burstable = l->type->is_burstable,
        .has_auto_public_ip = l->has_public_ip,
        .shutdown_behavior = l->shutdown_behavior,
        .http_tokens = l->http_tokens,
        .http_endpoint = l->http_endpoint,
        .http_hop_limit = l->http_hop_limit,
        .is_tags_in_metadata = l->is_tags_in_metadata,
        .transition_reason = STR(""),
        .reason_code = STR("pending"),
        .reason_message = STR("pending"),
    };
}

static int add_instance(struct aws_call *call, const struct launch *l, struct txn *t,
                        struct pickers *p, struct str reservation_id, uint64_t index,
                        struct err *err)
{
    struct instance rec = instance_of(call, l, reservation_id, index);
    int r = add_eni(call, l, t, p, rec.id, err);
    if (r < 0) {
        return r;
    }
    add_volumes(call, l, t, rec.id);
    tags_create(t, call->account, rec.id, "instance", l->instance_tags);
    txn_create(t, key_spec(t->a, "instance", call->account, rec.id), &instance_desc, &rec);
    return 0;
}

/* Operations that one instance adds to a transaction, at most. */
static size_t ops_per_instance(const struct launch *l)
{
    return 1 + 1 + 2 + l->n_disks + (l->instance_tags.n > 0) + (l->eni_tags.n > 0) +
           (l->volume_tags.n > 0 ? l->n_disks : 0);
}

static int take_capacity(struct txn *t, const struct launch *l, uint64_t n, struct err *err)
{
    uint64_t vcpus = l->type->n_vcpus * n;
    return capacity_change(t, l->facts, str_c(t->gw->cfg->node),
                           l->type->is_burstable ? 0 : vcpus, l->type->is_burstable ? vcpus : 0,
                           l->type->memory_mib * n, true, err);
}

/* How many of n_min..n_max the node and the addresses have room for. Taking them is what the
 * transactions do. */
static int count_that_fits(struct aws_call *call, const struct launch *l,
                           const struct pickers *p, uint64_t *ret, struct err *err)
{
    struct txn *probe = txn_open(call); /* never committed */
    uint64_t n = l->n_max;
    for (; n > 0; n--) {
        struct err e = ERR_INIT;
        txn_init(probe, gw_of(call), call->arena);
        if (take_capacity(probe, l, n, &e) == 0) {
            break;
        }
        if (n == l->n_min) {
            return fail(err, e.code, e.name, "%s", e.msg);
        }
    }
    if (!l->eni && n > ip_n_free(&p->private) && ip_n_free(&p->private) >= l->n_min) {
        n = ip_n_free(&p->private);
    }
    if (l->has_public_ip && n > ip_n_free(&p->public) && ip_n_free(&p->public) >= l->n_min) {
        n = ip_n_free(&p->public);
    }
    *ret = n;
    return 0;
}

/* What the launch builds on must still be there when it is written: its groups and its image. */
static int hold_ground(struct aws_call *call, const struct launch *l, struct txn *t,
                       struct err *err)
{
    txn_lock(t, sg_use_key(call->arena, l->vpc->id));
    for (size_t i = 0; i < l->sg_ids.n; i++) {
        if (!store_spec(t->gw, call->arena, "sg", call->account, l->sg_ids.v[i])) {
            return fail(err, -ENOENT, "InvalidGroup.NotFound",
                        "The security group '%.*s' does not exist", STR_ARG(l->sg_ids.v[i]));
        }
    }
    txn_expect(t, l->image_entry->key, l->image_entry->mod_rev);
    for (size_t i = 0; i < l->n_disks; i++) {
        const struct view_entry *e = l->disks[i].snapshot;
        if (e && e != l->image_entry) {
            txn_expect(t, e->key, e->mod_rev);
        }
    }
    return 0;
}

/* Writes instances first..first+n-1 and their claims; the first transaction carries the client
 * token. */
static int launch_some(struct aws_call *call, const struct launch *l, struct pickers *p,
                       const struct aws_token *tok, struct str reservation_id, uint64_t first,
                       uint64_t n, struct err *err)
{
    struct txn *t = txn_open(call);
    if (first == 0) {
        txn_token(t, call, tok, reservation_id);
    }
    int r = hold_ground(call, l, t, err);
    r = r < 0 ? r : take_capacity(t, l, n, err);
    for (uint64_t i = 0; r == 0 && i < n; i++) {
        r = add_instance(call, l, t, p, reservation_id, first + i, err);
    }
    return r < 0 ? r : txn_commit(t, err);
}

/* Everything of a reservation is asked to go: used when a later part of a large launch failed. */
static void give_up(struct aws_call *call, struct str reservation_id)
{
    struct gw *gw = gw_of(call);
    struct entries all = store_list(gw, call->arena, "instance", call->account);
    for (size_t i = 0; i < all.n; i++) {
        struct instance rec = *REC(instance, all.v[i]);
        if (!str_eq(rec.reservation_id, reservation_id)) {
            continue;
        }
        struct txn *t = txn_open(call);
        struct err e = ERR_INIT;
        rec.want = STR(INSTANCE_WANT_TERMINATED);
        rec.generation++;
        rec.reason_code = STR("Server.InsufficientInstanceCapacity");
        rec.reason_message =
            STR("Server.InsufficientInstanceCapacity: the launch could not be completed");
        txn_update(t, all.v[i], &instance_desc, &rec);
        if (txn_commit(t, &e) < 0) {
            log_warn("run.undo_failed", KV_STR("id", rec.id), KV_ERR(&e));
        }
    }
}

static int answer(struct aws_call *call, struct str reservation_id, struct ec2_reservation *out,
                  struct err *err)
{
    struct entries all = store_list(gw_of(call), call->arena, "instance", call->account);
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        if (str_eq(REC(instance, all.v[i])->reservation_id, reservation_id)) {
            all.v[n++] = all.v[i];
        }
    }
    all.n = n;
    if (n == 0) {
        return fail(err, -EINVAL, "IdempotentInstanceTerminated",
                    "The instances of the earlier request with this client token are gone.");
    }
    struct inst *members = arena_xalloc(call->arena, n * sizeof(*members));
    inst_join_all(call, all, members);
    for (size_t i = 1; i < n; i++) { /* by launch index */
        for (size_t k = i;
             k > 0 && members[k].spec->launch_index < members[k - 1].spec->launch_index; k--) {
            struct inst tmp = members[k];
            members[k] = members[k - 1];
            members[k - 1] = tmp;
        }
    }
    reservation_out(call, members, n, out);
    return 0;
}

static int pickers_init(struct aws_call *call, const struct launch *l, struct pickers *p,
                        struct err *err)
{
    int r = ip_picker_subnet(gw_of(call), call->arena, l->subnet, &p->private, err);
    return r < 0 ? r : ip_picker_public(gw_of(call), call->arena, &p->public, err);
}

int ec2_run_instances(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_run_instances_request *in = input;
    struct launch *l = arena_new_of(call->arena, struct launch);
    struct aws_token tok;
    struct pickers p;
    int r = launch_check(call, in, l, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0 ||
        (r = txn_token_begin(call, in->client_token, in, &tok, err)) < 0) {
        return r;
    }
    if (tok.is_replay) {
        return answer(call, tok.result, output, err);
    }
    if (l->n_max > INSTANCES_MAX) {
        return fail(err, -E2BIG, "InstanceLimitExceeded",
                    "At most %u instances can be launched by one request.", INSTANCES_MAX);
    }
    uint64_t n = 0;
    if ((r = pickers_init(call, l, &p, err)) < 0 ||
        (r = count_that_fits(call, l, &p, &n, err)) < 0) {
        return r;
    }
    struct str reservation_id = id_new(call->arena, "r");
    uint64_t per_txn = MAX((KV_MAX_OPS - 4 - l->n_disks) / ops_per_instance(l), (size_t)1);
    for (uint64_t first = 0; first < n; first += per_txn) {
        r = launch_some(call, l, &p, &tok, reservation_id, first, MIN(per_txn, n - first), err);
        for (unsigned k = 0; r == -EAGAIN && first > 0 && k < PART_TRIES; k++) {
            /* Somebody took what this part had picked: pick again; the parts before stay. */
            err_clear(err);
            if ((r = pickers_init(call, l, &p, err)) == 0) {
                r = launch_some(call, l, &p, &tok, reservation_id, first,
                                MIN(per_txn, n - first), err);
            }
        }
        if (r < 0 && first >= l->n_min) {
            err_clear(err);
            break; /* enough are there */
        }
        if (r < 0) {
            if (first > 0) {
                give_up(call, reservation_id);
            }
            return r;
        }
    }
    log_info("run.accepted", KV_STR("reservation", reservation_id), KV_U64("n", n),
             KV_STR("type", l->type->name));
    return answer(call, reservation_id, output, err);
}
