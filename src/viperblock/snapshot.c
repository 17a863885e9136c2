#include "viperblock/snapshot.h"
#include "base/time.h"
#include "model/keys.h"
#include "viperblock/base.h"
#include "viperblock/gc.h"
#include "viperblock/step.h"
#include "viperblock/store.h"
#include "viperblock/vols.h"
#include <errno.h>
#include <stdio.h>

LOG_MODULE("viperblock.snapshot");

#define TICK_NS (10 * NS_PER_S)

/* --- status
 * --------------------------------------------------------------------------------- */

static int put(struct snap_job *j, const struct snapshot_status *st)
{
    struct err err = ERR_INIT;
    int rc = vb_put_rec(j->vb, key_status(j->a, "snapshot", j->spec->account, j->spec->id),
                        &snapshot_status_desc, st, &err);
    if (rc != 0) {
        log_warn_rl("snapshot.status_failed", KV_STR("snapshot", j->spec->id), KV_ERR(&err));
    }
    return rc;
}

static struct snapshot_status base_status(const struct snap_job *j, const char *state)
{
    return (struct snapshot_status){.id = j->spec->id,
                                    .generation = j->spec->generation,
                                    .state = str_c(state),
                                    .start_ns = j->status ? j->status->start_ns : 0,
                                    .progress = j->status ? j->status->progress : 0};
}

int snap_job_pending(struct snap_job *j, uint64_t start_ns, uint64_t progress)
{
    struct snapshot_status st = base_status(j, "pending");
    st.start_ns = st.start_ns != 0 ? st.start_ns : start_ns;
    st.progress = MIN(progress, 99u);
    return put(j, &st);
}

int snap_job_failed(struct snap_job *j, const char *reason)
{
    struct snapshot_status st = base_status(j, "error");
    st.reason = str_c(reason);
    log_error("snapshot.failed", KV_STR("snapshot", j->spec->id), KV_CSTR("reason", reason));
    return put(j, &st);
}

int snap_job_completed(struct snap_job *j, const struct snap_info *info)
{
    struct snapshot_status st = base_status(j, "completed");
    st.start_ns = st.start_ns != 0 ? st.start_ns : time_wall_ns();
    st.progress = 100;
    st.complete_ns = time_wall_ns();
    st.full_bytes = info->n_blocks * SNAP_BLOCK;
    st.new_bytes = info->n_new * SNAP_BLOCK;
    int rc = put(j, &st);
    if (rc == 0) {
        log_info("snapshot.completed", KV_STR("snapshot", j->spec->id),
                 KV_U64("blocks", info->n_blocks), KV_U64("new", info->n_new));
    }
    return rc;
}

static bool has_state(struct vb *vb, struct arena *a, struct str account, struct str id,
                      const char *state)
{
    const struct view_entry *e = vb_get(vb, key_status(a, "snapshot", account, id));
    bool has = e && str_eqc(((const struct snapshot_status *)e->obj)->state, state);
    if (e) {
        view_unref(e);
    }
    return has;
}

bool snap_is_completed(struct vb *vb, struct arena *a, struct str account, struct str id)
{
    return has_state(vb, a, account, id, "completed");
}

bool snap_has_failed(struct vb *vb, struct arena *a, struct str account, struct str id)
{
    return has_state(vb, a, account, id, "error");
}

bool snap_is_deleted(struct vb *vb, struct arena *a, struct str account, struct str id)
{
    return has_state(vb, a, account, id, "deleted");
}

/* --- removal
 * -------------------------------------------------------------------------------- */

/* What a volume here still needs of it is kept without its name. */
static int remove_snapshot(struct snap_job *j, struct snap_store *store, struct err *err)
{
    const struct snapshot *s = j->spec;
    base_hold(j->vb); /* no volume is made of it meanwhile */
    int rc = snap_abort(store, s->id, err);
    STEP("snapshot.remove");
    if (rc == 0) {
        rc = gc_is_needed(j->vb, s->account, s->id)
                 ? snap_keep(store, s->account, s->id, err)
                 : snap_delete(store, s->account, s->id, err);
    }
    STEP("snapshot.removed");
    base_release(j->vb);
    return rc == -ENOENT ? 0 : rc;
}

static int delete (struct snap_job *j)
{
    struct err err = ERR_INIT;
    struct snap_store *store = NULL;
    int rc = store_get(j->vb, &store, &err);
    rc = rc != 0 ? rc : remove_snapshot(j, store, &err);
    if (rc != 0) {
        log_warn_rl("snapshot.delete_failed", KV_STR("snapshot", j->spec->id), KV_ERR(&err));
        return -EAGAIN;
    }
    ebs_forget(j->vb, j->spec->id);
    struct snapshot_status st = base_status(j, "deleted");
    rc = put(j, &st);
    if (rc == 0) {
        STEP("snapshot.deleted");
        log_info("snapshot.deleted", KV_STR("snapshot", j->spec->id));
        gc_snapshot(j->vb, j->spec->account, j->spec->id);
        if (j->spec->image_id.n > 0) {
            gc_base(j->vb, j->spec->image_id);
        }
    }
    return rc;
}

/* --- the reconciler
 * ------------------------------------------------------------------------- */

static bool is_image_source(const struct snapshot *s)
{
    return str_eqc(s->source, "image") || (s->source.n == 0 && s->image_id.n > 0);
}

static int step(struct snap_job *j, struct snap_store *store)
{
    const struct snapshot *s = j->spec;
    if (is_image_source(s)) {
        return snapshot_image_step(j, store);
    }
    if (str_eqc(s->source, "copy")) {
        return snapshot_copy_step(j, store);
    }
    return str_eqc(s->source, "ebs") ? snapshot_ebs_step(j, store)
                                     : snapshot_volume_step(j, store);
}

/* It is in the store: whatever is left to be done, and "completed". */
static int complete(struct snap_job *j, const struct snap_info *info)
{
    struct err err = ERR_INIT;
    bool is_of_volume = str_eqc(j->spec->source, "volume") ||
                        (j->spec->source.n == 0 && j->spec->image_id.n == 0);
    int rc = is_of_volume ? snapshot_volume_end(j, &err) : 0;
    if (rc != 0) {
        log_warn_rl("snapshot.end_failed", KV_STR("snapshot", j->spec->id), KV_ERR(&err));
        return -EAGAIN;
    }
    rc = snap_job_completed(j, info);
    if (rc != 0) {
        return rc;
    }
    STEP("snapshot.completed");
    ebs_forget(j->vb, j->spec->id);
    snapshot_touch_of_volume(j->vb, j->spec->account, j->spec->volume_id);
    vb_touch_waiting(j->vb, j->spec->id);
    if (j->spec->image_id.n > 0) {
        gc_base(j->vb, j->spec->image_id);
    }
    return 0;
}

static int pending(struct snap_job *j)
{
    struct err err = ERR_INIT;
    struct snap_store *store = NULL;
    struct snap_info info;
    int rc = store_get(j->vb, &store, &err);
    if (rc == 0) {
        rc = snap_stat(store, j->spec->account, j->spec->id, &info, &err);
    }
    if (rc == 0 && !info.is_kept) {
        return complete(j, &info);
    }
    bool is_of_volume = !is_image_source(j->spec) && !str_eqc(j->spec->source, "copy") &&
                        !str_eqc(j->spec->source, "ebs");
    if (rc != 0 && rc != -ENOENT) {
        /* The point in time does not wait for the store. */
        if (is_of_volume && !(j->status && j->status->start_ns != 0)) {
            (void)!snapshot_volume_step(j, NULL);
        }
        log_info_rl("snapshot.waits", KV_STR("snapshot", j->spec->id), KV_ERR(&err));
        return -EAGAIN;
    }
    return step(j, store);
}

static int reconcile(struct snap_job *j)
{
    const struct snapshot *s = j->spec;
    struct str state = j->status ? j->status->state : STR("");
    bool is_unwanted = str_eqc(s->want, "deleted");
    if (str_eqc(state, "deleted")) {
        return 0;
    }
    if (str_eqc(state, "completed") || str_eqc(state, "error")) {
        return is_unwanted ? delete (j) : 0;
    }
    /* What has no point in time yet, or can be given up at any moment, need not be finished. */
    bool is_of_volume = str_eqc(s->source, "volume") || s->source.n == 0;
    bool is_begun = j->status && j->status->start_ns != 0;
    if (is_unwanted && (!is_of_volume || !is_begun || is_image_source(s))) {
        return delete (j);
    }
    return pending(j);
}

int snapshot_reconcile(struct vb *vb, struct arena *a, struct str key)
{
    const struct view_entry *e = vb_get(vb, key);
    if (!e) {
        return 0;
    }
    const struct snapshot *s = e->obj;
    const struct view_entry *st = vb_get(vb, key_status(a, "snapshot", s->account, s->id));
    struct snap_job j = {.vb = vb, .a = a, .spec = s, .status = st ? st->obj : NULL};
    bool is_here = (str_is_empty(s->node) || str_eqc(s->node, vb->o.node)) &&
                   s->id.n < BLK_SNAP_ID && s->account.n == ACCOUNT_ID_LEN;
    int rc = 0;
    if (is_here && !id_is_wellformed(s->id, "snap")) {
        rc = j.status ? 0 : snap_job_failed(&j, "the id is malformed");
    } else if (is_here) {
        rc = reconcile(&j);
    }
    if (st) {
        view_unref(st);
    }
    view_unref(e);
    return rc;
}

/* --- who is told
 * ---------------------------------------------------------------------------- */

void snapshot_touch_of_volume(struct vb *vb, struct str account, struct str volume_id)
{
    AUTO(arena_freep) struct arena *a = arena_new(65536);
    view_lock(vb->view);
    omap_foreach_prefix(n, view_map(vb->view), key_spec_prefix(a, "snapshot", account))
    {
        const struct view_entry *e = omap_value(n);
        const struct snapshot *s = e->obj;
        if (s && str_eq(s->volume_id, volume_id)) {
            vb_touch(vb, e->key);
        }
    }
    view_unlock(vb->view);
}

/* Volumes that are made of it, snapshots that are copies or increments of it. */
void vb_touch_waiting(struct vb *vb, struct str id)
{
    view_lock(vb->view);
    omap_foreach_prefix(n, view_map(vb->view), STR("spec/volume/"))
    {
        const struct view_entry *e = omap_value(n);
        const struct volume *v = e->obj;
        if (v && str_eq(v->snapshot_id, id)) {
            vb_touch(vb, e->key);
        }
    }
    omap_foreach_prefix(n, view_map(vb->view), STR("spec/snapshot/"))
    {
        const struct view_entry *e = omap_value(n);
        const struct snapshot *s = e->obj;
        if (s && str_eq(s->from_id, id)) {
            vb_touch(vb, e->key);
        }
    }
    view_unlock(vb->view);
}

void snapshot_tick(struct vb *vb)
{
    uint64_t now = time_mono_ns();
    if (now < vb->snap_tick_ns + TICK_NS) {
        return;
    }
    vb->snap_tick_ns = now;
    AUTO(arena_freep) struct arena *a = arena_new(4u << 20);
    view_lock(vb->view);
    omap_foreach_prefix(n, view_map(vb->view), STR("spec/snapshot/"))
    {
        const struct view_entry *e = omap_value(n);
        const struct snapshot *s = e->obj;
        if (!s) {
            continue;
        }
        arena_reset(a);
        const struct view_entry *st =
            view_get(vb->view, key_status(a, "snapshot", s->account, s->id));
        const struct snapshot_status *x = st ? st->obj : NULL;
        if (!x || str_eqc(x->state, "pending")) {
            vb_touch(vb, e->key);
        }
    }
    view_unlock(vb->view);
}

/* --- long work
 * ------------------------------------------------------------------------------ */

struct longs {
    pthread_mutex_t mu;
    VEC(char *) running; /* GUARDED_BY(mu): keys */
};

struct long_job {
    struct vb *vb;
    char *key;
    void (*fn)(struct snap_job *j);
};

struct longs *longs_new(void)
{
    struct longs *l = calloc(1, sizeof(*l));
    if (!l) {
        abort();
    }
    pthread_mutex_init(&l->mu, NULL);
    return l;
}

void longs_free(struct longs *l)
{
    if (l) {
        vec_free(&l->running);
        pthread_mutex_destroy(&l->mu);
        free(l);
    }
}

static void long_end(struct long_job *lj)
{
    struct longs *l = lj->vb->longs;
    pthread_mutex_lock(&l->mu);
    for (size_t i = 0; i < l->running.n; i++) {
        if (l->running.v[i] == lj->key) {
            vec_remove(&l->running, i);
            break;
        }
    }
    pthread_mutex_unlock(&l->mu);
    free(lj->key);
    free(lj);
}

static void long_work(void *ctx)
{
    struct long_job *lj = ctx;
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    const struct view_entry *e = vb_get(lj->vb, str_c(lj->key));
    if (e && !atomic_load(&lj->vb->is_stopping)) {
        const struct snapshot *s = e->obj;
        const struct view_entry *st =
            vb_get(lj->vb, key_status(a, "snapshot", s->account, s->id));
        struct snap_job j = {.vb = lj->vb, .a = a, .spec = s, .status = st ? st->obj : NULL};
        lj->fn(&j);
        if (st) {
            view_unref(st);
        }
    }
    struct vb *vb = lj->vb;
    struct str key = arena_str_dup(a, str_c(lj->key));
    if (e) {
        view_unref(e);
    }
    long_end(lj);
    vb_touch(vb, key);
}

void long_start(struct snap_job *j, void (*fn)(struct snap_job *j))
{
    struct longs *l = j->vb->longs;
    struct str key = key_spec(j->a, "snapshot", j->spec->account, j->spec->id);
    bool is_running = false;
    pthread_mutex_lock(&l->mu);
    for (size_t i = 0; i < l->running.n; i++) {
        is_running = is_running || str_eqc(key, l->running.v[i]);
    }
    struct long_job *lj = is_running ? NULL : calloc(1, sizeof(*lj));
    if (lj) {
        *lj = (struct long_job){.vb = j->vb, .key = strndup(key.p, key.n), .fn = fn};
        if (!lj->key) {
            abort();
        }
        vec_push(&l->running, lj->key);
    }
    pthread_mutex_unlock(&l->mu);
    if (lj && pool_submit(j->vb->long_pool, long_work, NULL, NULL, lj) != 0) {
        long_end(lj); /* the tick comes back to it */
    }
}
