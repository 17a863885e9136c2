#include "awsgw/image.h"
#include "awsgw/janitor_int.h"
#include "model/keys.h"

/* ---- images ---- */

static const struct view_entry *spec_of(struct step *s, const char *kind, struct str account,
                                        struct str id)
{
    const struct view_entry *e = id.n > 0 ? store_spec(s->gw, s->a, kind, account, id) : NULL;
    return e && e->obj ? e : NULL;
}

/* It can never become available; what was put aside for its snapshots goes. */
static bool give_up(struct step *s, const struct view_entry *e, struct str why)
{
    struct image rec = *REC(image, e);
    for (size_t i = 0; i < rec.devices.n; i++) {
        struct str id = rec.devices.v[i].snapshot_id;
        if (rec.devices.v[i].volume_id.n > 0 && !spec_of(s, "snapshot", rec.account, id)) {
            txn_delete_key(s->t, key_spec(s->a, "tags", rec.account, id));
        }
    }
    rec.failure = why;
    rec.phase = STR("");
    txn_update(s->t, e, &image_desc, &rec);
    return janitor_commit(s, "image.failed", rec.id);
}

static bool has_stopped(struct step *s, const struct instance *i)
{
    const struct instance_status *st =
        REC(instance_status, store_status(s->gw, s->a, "instance", i->account, i->id));
    return st && str_eqc(st->state, "stopped") && st->generation >= i->generation;
}

/* The guest is down, its disks rest: their snapshots are asked for, as one point in time. */
static bool take(struct step *s, const struct view_entry *e)
{
    struct image rec = *REC(image, e);
    struct snapshot all[16];
    size_t n = 0;
    for (size_t i = 0; i < rec.devices.n && n < ARRAY_LEN(all); i++) {
        const struct image_device *d = &rec.devices.v[i];
        if (d->volume_id.n == 0) {
            continue;
        }
        const struct view_entry *ve = spec_of(s, "volume", rec.account, d->volume_id);
        const struct volume *v = REC(volume, ve);
        if (!v || str_eqc(v->want, "deleted")) {
            return give_up(s, e,
                           STR("Client.VolumeGone: a volume of the instance was deleted"));
        }
        all[n] = snap_of_volume(s->gw, s->a, v, s->now_ns);
        all[n].id = d->snapshot_id;
        all[n].description = image_snapshot_text(s->a, &rec);
        txn_update(s->t, ve, &volume_desc, v);
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        if (n > 1) {
            all[i].group = all[0].id;
            all[i].n_group = n;
        }
        txn_create(s->t, key_spec(s->a, "snapshot", rec.account, all[i].id), &snapshot_desc,
                   &all[i]);
    }
    rec.phase = STR("taking");
    txn_update(s->t, e, &image_desc, &rec);
    return janitor_commit(s, "image.taking", rec.id);
}

static bool stopping_step(struct step *s, const struct view_entry *e)
{
    const struct image *rec = REC(image, e);
    const struct instance *i =
        REC(instance, spec_of(s, "instance", rec->account, rec->source_id));
    if (!i || str_eqc(i->want, INSTANCE_WANT_TERMINATED)) {
        return give_up(s, e,
                       STR("Client.InstanceTerminated: the instance was terminated before its "
                           "disks were taken"));
    }
    if (has_stopped(s, i)) {
        return take(s, e);
    }
    /* Somebody stopped and started it meanwhile: nothing will stop it any more. */
    bool is_lost = !str_eq(i->imaging, rec->id) && str_eqc(i->want, INSTANCE_WANT_RUNNING);
    return is_lost &&
           give_up(s, e,
                   STR("Client.InstanceStarted: the instance was started before its disks were "
                       "taken"));
}

static bool taking_step(struct step *s, const struct view_entry *e)
{
    struct image rec = *REC(image, e);
    for (size_t i = 0; i < rec.devices.n; i++) {
        const struct image_device *d = &rec.devices.v[i];
        const struct snapshot_status *st =
            REC(snapshot_status,
                store_status(s->gw, s->a, "snapshot", rec.account, d->snapshot_id));
        bool is_there =
            d->volume_id.n > 0 && spec_of(s, "snapshot", rec.account, d->snapshot_id);
        if (is_there && !(st && (st->start_ns > 0 || !str_eqc(st->state, "pending")))) {
            return false;
        }
    }
    rec.phase = STR("");
    txn_update(s->t, e, &image_desc, &rec);
    return janitor_commit(s, "image.taken", rec.id);
}

bool janitor_image(struct step *s, const struct view_entry *e)
{
    const struct image *i = REC(image, e);
    if (!str_eqc(i->want, "deleted")) {
        return str_eqc(i->phase, "stopping") ? stopping_step(s, e)
               : str_eqc(i->phase, "taking") ? taking_step(s, e)
                                             : false;
    }
    const struct image_status *st =
        REC(image_status, store_status(s->gw, s->a, "image", i->account, i->id));
    if (!st || !str_eqc(st->state, "deregistered")) {
        return false; /* the block service lets go of its base first */
    }
    txn_delete(s->t, e);
    txn_delete_key(s->t, key_status(s->a, "image", i->account, i->id));
    txn_delete_key(s->t, key_spec(s->a, "tags", i->account, i->id));
    return janitor_commit(s, "image.forgotten", i->id);
}

/* The block service may forget an image before we do: its tags are ours. */
bool janitor_tags(struct step *s, const struct view_entry *e)
{
    const struct tags *t = REC(tags, e);
    if (!str_has_prefixc(t->id, "ami-")) {
        return false; /* of others, who removes them removes their tags */
    }
    struct str spec = key_spec(s->a, "image", t->account, t->id);
    if (store_has(s->gw, spec)) {
        return false;
    }
    txn_expect(s->t, spec, 0);
    txn_delete(s->t, e);
    return janitor_commit(s, "tags.forgotten", t->id);
}

/* Its disks are taken: it is started. It runs, or will not: what is seen is what it is. */
bool janitor_imaging(struct step *s, const struct view_entry *e)
{
    struct instance rec = *REC(instance, e);
    const struct image *i = REC(image, spec_of(s, "image", rec.account, rec.imaging));
    if (i && i->phase.n > 0 && !str_eqc(i->want, "deleted")) {
        return false;
    }
    const struct instance_status *st =
        REC(instance_status, store_status(s->gw, s->a, "instance", rec.account, rec.id));
    if (str_eqc(rec.want, INSTANCE_WANT_STOPPED)) {
        rec.want = STR(INSTANCE_WANT_RUNNING);
        rec.generation++;
        txn_update(s->t, e, &instance_desc, &rec);
        return janitor_commit(s, "instance.started_after_image", rec.id);
    }
    bool is_settled = st && st->generation >= rec.generation && !str_eqc(st->state, "pending");
    if (!is_settled) {
        return false;
    }
    rec.imaging = STR("");
    txn_update(s->t, e, &instance_desc, &rec);
    return janitor_commit(s, "instance.imaged", rec.id);
}

/* ---- snapshots ---- */

/* Its volume is made: bytes that it still needs are kept for it without their name. Or it will
 * never be. */
static bool has_served(struct step *s, const struct snapshot *snap)
{
    struct entries all = store_list(s->gw, s->a, "volume", snap->account);
    for (size_t i = 0; i < all.n; i++) {
        const struct volume *v = REC(volume, all.v[i]);
        if (!str_eq(v->snapshot_id, snap->id) || str_eqc(v->want, "deleted")) {
            continue;
        }
        const struct volume_status *st =
            REC(volume_status, store_status(s->gw, s->a, "volume", v->account, v->id));
        if (!st || (!str_eqc(st->state, "available") && !str_eqc(st->state, "error"))) {
            return false;
        }
    }
    return true;
}

bool janitor_snapshot(struct step *s, const struct view_entry *e)
{
    struct snapshot rec = *REC(snapshot, e);
    if (rec.is_hidden && !str_eqc(rec.want, "deleted")) {
        if (!has_served(s, &rec)) {
            return false;
        }
        rec.want = STR("deleted");
        rec.generation++;
        txn_update(s->t, e, &snapshot_desc, &rec);
        return janitor_commit(s, "snapshot.served", rec.id);
    }
    const struct snapshot_status *st =
        REC(snapshot_status, store_status(s->gw, s->a, "snapshot", rec.account, rec.id));
    if (!str_eqc(rec.want, "deleted") || !st || !str_eqc(st->state, "deleted")) {
        return false;
    }
    txn_delete(s->t, e);
    txn_delete_key(s->t, key_status(s->a, "snapshot", rec.account, rec.id));
    txn_delete_key(s->t, key_spec(s->a, "tags", rec.account, rec.id));
    return janitor_commit(s, "snapshot.forgotten", rec.id);
}
