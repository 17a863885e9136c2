#include "awsgw/janitor.h"

#include "aws/token.h"
#include "awsgw/alloc.h"
#include "awsgw/janitor_int.h"
#include "base/log.h"
#include "base/time.h"
#include "loop/ticker.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/network.h"
#include "model/volume.h"

#include <errno.h>

LOG_MODULE("awsgw.janitor");

#define TURN_NS         (10 * NS_PER_S)
#define TOKENS_EVERY_NS (UINT64_C(3600) * NS_PER_S)
#define STEP_ARENA_MAX  (8u << 20)
#define TOKEN_PAGE_MAX  (16u << 20)

static const struct instance_status *instance_status_of(struct step *s,
                                                        const struct instance *i)
{
    return REC(instance_status, store_status(s->gw, s->a, "instance", i->account, i->id));
}

/* ---- instances ---- */

static void give_back_capacity(struct step *s, struct instance *rec)
{
    if (rec->is_holding_capacity) {
        rec->is_holding_capacity = false;
        int r =
            capacity_change(s->t, NULL, rec->node, rec->is_burstable ? 0 : rec->n_vcpus,
                            rec->is_burstable ? rec->n_vcpus : 0, rec->memory_mib, false, NULL);
        (void)r; /* giving back cannot fail */
    }
}

static void give_back_public_ip(struct step *s, struct eni *eni)
{
    if (eni->public_ip.n > 0) {
        txn_delete_key(s->t, claim_public_ip_key(s->a, eni->public_ip));
        eni->public_ip = STR("");
    }
}

static void release_enis(struct step *s, const struct instance *i)
{
    struct entries all = store_list(s->gw, s->a, "eni", i->account);
    for (size_t k = 0; k < all.n; k++) {
        struct eni eni = *REC(eni, all.v[k]);
        if (!str_eq(eni.instance_id, i->id)) {
            continue;
        }
        if (eni.is_deleted_on_termination) {
            give_back_public_ip(s, &eni);
            txn_delete_key(s->t, claim_private_ip_key(s->a, eni.subnet_id, eni.private_ip));
            txn_delete_key(s->t, key_spec(s->a, "tags", eni.account, eni.id));
            txn_delete(s->t, all.v[k]);
        } else {
            if (i->has_auto_public_ip) { /* the instance's, not the interface's */
                give_back_public_ip(s, &eni);
            }
            eni.instance_id = eni.attachment_id = STR("");
            eni.generation++;
            txn_update(s->t, all.v[k], &eni_desc, &eni);
        }
    }
}

static void release_volumes(struct step *s, const struct instance *i)
{
    struct entries all = store_list(s->gw, s->a, "volume", i->account);
    for (size_t k = 0; k < all.n; k++) {
        struct volume v = *REC(volume, all.v[k]);
        if (!str_eq(v.instance_id, i->id)) {
            continue;
        }
        if (v.is_deleted_on_termination) {
            v.want = STR("deleted");
        }
        v.instance_id = v.device = STR("");
        v.attach_want = STR("detached");
        v.generation++;
        txn_update(s->t, all.v[k], &volume_desc, &v);
        txn_delete_key(s->t, key_status(s->a, "attachment", v.account, v.id));
    }
}

static bool release_terminated(struct step *s, const struct view_entry *e)
{
    struct instance rec = *REC(instance, e);
    rec.is_released = true;
    rec.terminated_ns = s->now_ns;
    rec.imaging = STR(""); /* it is not started again, whatever becomes of the image */
    release_enis(s, &rec);
    release_volumes(s, &rec);
    give_back_capacity(s, &rec);
    txn_update(s->t, e, &instance_desc, &rec);
    return janitor_commit(s, "instance.released", rec.id);
}

static bool release_stopped(struct step *s, const struct view_entry *e)
{
    struct instance rec = *REC(instance, e);
    give_back_capacity(s, &rec);
    struct entries all = store_list(s->gw, s->a, "eni", rec.account);
    for (size_t k = 0; rec.has_auto_public_ip && k < all.n; k++) {
        struct eni eni = *REC(eni, all.v[k]);
        if (str_eq(eni.instance_id, rec.id) && eni.public_ip.n > 0) {
            give_back_public_ip(s, &eni);
            eni.generation++;
            txn_update(s->t, all.v[k], &eni_desc, &eni);
        }
    }
    txn_update(s->t, e, &instance_desc, &rec);
    return janitor_commit(s, "instance.parked", rec.id);
}

static bool forget_instance(struct step *s, const struct view_entry *e)
{
    const struct instance *i = REC(instance, e);
    txn_delete(s->t, e);
    txn_delete_key(s->t, key_status(s->a, "instance", i->account, i->id));
    txn_delete_key(s->t, key_spec(s->a, "tags", i->account, i->id));
    return janitor_commit(s, "instance.forgotten", i->id);
}

bool janitor_commit(struct step *s, const char *event, struct str id)
{
    struct err e = ERR_INIT;
    int r = txn_commit(s->t, &e);
    if (r == 0) {
        log_info(event, KV_STR("id", id));
    } else if (r != -EAGAIN) {
        log_warn_rl("janitor.failed", KV_CSTR("step", event), KV_STR("id", id), KV_ERR(&e));
    }
    return r == 0;
}

static bool instance_step(struct step *s, const struct view_entry *e)
{
    const struct instance *i = REC(instance, e);
    const struct instance_status *st = instance_status_of(s, i);
    if (i->is_released) {
        return s->now_ns > i->terminated_ns + TERMINATED_VISIBLE_NS && forget_instance(s, e);
    }
    if (!st) {
        return false;
    }
    if (str_eqc(st->state, "terminated")) {
        return release_terminated(s, e);
    }
    if (i->imaging.n > 0) {
        return janitor_imaging(s, e); /* it will go on: it keeps what it holds */
    }
    bool is_settled = str_eqc(st->state, "stopped") && st->generation >= i->generation;
    return is_settled && i->is_holding_capacity && release_stopped(s, e);
}

/* ---- volumes ---- */

static bool forget_volume(struct step *s, const struct view_entry *e)
{
    const struct volume *v = REC(volume, e);
    txn_delete(s->t, e);
    txn_delete_key(s->t, key_status(s->a, "volume", v->account, v->id));
    txn_delete_key(s->t, key_status(s->a, "attachment", v->account, v->id));
    txn_delete_key(s->t, key_spec(s->a, "volmod", v->account, v->id));
    txn_delete_key(s->t, key_status(s->a, "volmod", v->account, v->id));
    txn_delete_key(s->t, key_spec(s->a, "tags", v->account, v->id));
    return janitor_commit(s, "volume.forgotten", v->id);
}

static bool volume_step(struct step *s, const struct view_entry *e)
{
    struct volume v = *REC(volume, e);
    const struct volume_status *st =
        REC(volume_status, store_status(s->gw, s->a, "volume", v.account, v.id));
    if (str_eqc(v.want, "deleted")) {
        return st && str_eqc(st->state, "deleted") && forget_volume(s, e);
    }
    const struct attachment_status *at =
        REC(attachment_status, store_status(s->gw, s->a, "attachment", v.account, v.id));
    bool is_off = v.instance_id.n > 0 && str_eqc(v.attach_want, "detached") && at &&
                  at->generation >= v.generation && str_eqc(at->state, "detached");
    if (!is_off) {
        return false;
    }
    v.instance_id = v.device = STR("");
    txn_update(s->t, e, &volume_desc, &v);
    txn_delete_key(s->t, key_status(s->a, "attachment", v.account, v.id));
    return janitor_commit(s, "volume.detached", v.id);
}

/* A status whose spec is gone: the owning service removed the spec itself. */
static bool orphan_step(struct step *s, const struct view_entry *e)
{
    struct key_parts k;
    if (key_parse(e->key, &k) < 0 ||
        (!str_eqc(k.kind, "volume") && !str_eqc(k.kind, "eni") &&
         !str_eqc(k.kind, "attachment") && !str_eqc(k.kind, "instance") &&
         !str_eqc(k.kind, "volmod") && !str_eqc(k.kind, "snapshot"))) {
        return false;
    }
    const char *kind = str_eqc(k.kind, "eni")        ? "eni"
                       : str_eqc(k.kind, "instance") ? "instance"
                       : str_eqc(k.kind, "snapshot") ? "snapshot"
                                                     : "volume";
    struct str spec = key_spec(s->a, kind, k.account, k.id);
    if (store_has(s->gw, spec)) {
        return false;
    }
    txn_expect(s->t, spec, 0);
    txn_delete(s->t, e);
    txn_delete_key(s->t, key_spec(s->a, "tags", k.account, k.id));
    return janitor_commit(s, "status.forgotten", k.id);
}

/* ---- turns ---- */

static bool walk(struct gw *gw, uint64_t now_ns, struct str prefix,
                 bool (*one)(struct step *, const struct view_entry *))
{
    AUTO(arena_freep) struct arena *list = arena_new(256u << 20);
    struct entries all = store_prefix(gw, list, prefix);
    bool has_worked = false;
    for (size_t i = 0; i < all.n; i++) {
        AUTO(arena_freep) struct arena *a = arena_new(STEP_ARENA_MAX);
        struct step s = {gw, a, arena_new_of(a, struct txn), now_ns};
        struct err e = ERR_INIT;
        txn_init(s.t, gw, a);
        /* A volume that was attached with the instance's last change must be seen with it. */
        if (txn_settle(gw, all.v[i], &e) < 0) {
            break; /* the store is away: the next turn goes on */
        }
        has_worked |= one(&s, all.v[i]);
    }
    return has_worked;
}

bool janitor_turn(struct gw *gw, uint64_t now_wall_ns)
{
    bool has_worked = walk(gw, now_wall_ns, STR("spec/instance/"), instance_step);
    has_worked |= walk(gw, now_wall_ns, STR("spec/volume/"), volume_step);
    has_worked |= walk(gw, now_wall_ns, STR("spec/image/"), janitor_image);
    has_worked |= walk(gw, now_wall_ns, STR("spec/snapshot/"), janitor_snapshot);
    has_worked |= walk(gw, now_wall_ns, STR("spec/tags/"), janitor_tags);
    has_worked |= walk(gw, now_wall_ns, STR("status/"), orphan_step);
    return has_worked;
}

/* Claims of client tokens are no records: they are read from the store, a page at a time. */
static void sweep_tokens(struct gw *gw, uint64_t now_ns)
{
    char after[KV_MAX_KEY];
    size_t n_after = 0;
    for (;;) {
        AUTO(arena_freep) struct arena *a = arena_new(TOKEN_PAGE_MAX); /* each page its own */
        struct kv_list l;
        struct err e = ERR_INIT;
        if (kv_list(gw->kv, a, STR("claim/token/"), n_after ? str_n(after, n_after) : STR_NONE,
                    KV_LIST_MAX, &l, &e) < 0) {
            log_warn_rl("janitor.failed", KV_CSTR("step", "tokens"), KV_ERR(&e));
            return;
        }
        for (size_t i = 0; i < l.n; i++) {
            if (aws_token_is_old(l.v[i].value, now_ns)) {
                const struct kv_cmp cmp = {l.v[i].key, l.v[i].mod_rev};
                const struct kv_op op = {.type = KV_DELETE, .key = l.v[i].key};
                uint64_t rev = 0;
                err_clear(&e);
                int r = kv_txn(gw->kv, &cmp, 1, &op, 1, &rev, &e);
                (void)r; /* lost to somebody else: fine */
            }
        }
        if (!l.has_more || l.n == 0) {
            return;
        }
        n_after = MIN(l.v[l.n - 1].key.n, sizeof(after));
        memcpy(after, l.v[l.n - 1].key.p, n_after);
    }
}

struct janitor {
    struct gw *gw;
    uint64_t tokens_ns; /* of the ticker's thread: when tokens were swept; 0 = not yet */
    struct ticker *ticker;
};

static void turn(void *ctx)
{
    struct janitor *j = ctx;
    uint64_t now = time_wall_ns();
    janitor_turn(j->gw, now);
    if (j->tokens_ns == 0 || time_mono_ns() - j->tokens_ns > TOKENS_EVERY_NS) {
        j->tokens_ns = time_mono_ns();
        sweep_tokens(j->gw, now);
    }
}

struct janitor *janitor_start(struct gw *gw)
{
    struct janitor *j = calloc(1, sizeof(*j));
    if (!j) {
        abort();
    }
    j->gw = gw;
    j->ticker = ticker_start(turn, j, TURN_NS);
    return j;
}

void janitor_stop(struct janitor *j)
{
    if (j) {
        ticker_stop(j->ticker);
        free(j);
    }
}

void janitor_poke(struct janitor *j)
{
    ticker_poke(j->ticker);
}
