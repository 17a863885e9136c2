#include "base/time.h"
#include "model/keys.h"
#include "viperblock/gc.h"
#include "viperblock/snapshot.h"
#include "viperblock/step.h"
#include "viperblock/vol_files.h"
#include "viperblock/vols.h"
#include <errno.h>
#include <stdio.h>

LOG_MODULE("viperblock.snapshot");

#define CALL_NS   (15 * NS_PER_S)
#define MAX_GROUP 40u

/* --- what a volume's description says of its frozen sets
 * ------------------------------------- */

static struct frozen_meta *find_frozen(struct volume_meta *m, struct str id)
{
    for (size_t i = 0; i < m->frozen.n; i++) {
        if (str_eq(m->frozen.v[i].id, id)) {
            return &m->frozen.v[i];
        }
    }
    return NULL;
}

static void add_frozen(struct arena *a, struct volume_meta *m, const struct blk_frozen *f)
{
    struct frozen_meta *v = arena_xalloc(a, (m->frozen.n + 1) * sizeof(*v));
    for (size_t i = 0; i < m->frozen.n; i++) {
        v[i] = m->frozen.v[i];
    }
    v[m->frozen.n] = (struct frozen_meta){.id = arena_str_dup(a, str_c(f->snap)),
                                          .parent = arena_str_dup(a, str_c(f->parent)),
                                          .size = m->size};
    m->frozen.v = v;
    m->frozen.n++;
    m->last = v[m->frozen.n - 1].id;
}

static void drop_frozen(struct volume_meta *m, struct str id)
{
    size_t n = 0;
    for (size_t i = 0; i < m->frozen.n; i++) {
        if (!str_eq(m->frozen.v[i].id, id)) {
            m->frozen.v[n++] = m->frozen.v[i];
        }
    }
    m->frozen.n = n;
}

static const struct blk_frozen *state_frozen(const struct ctl_state *st, struct str id)
{
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        if (st->frozen[i].snap[0] != '\0' && str_eqc(id, st->frozen[i].snap)) {
            return &st->frozen[i];
        }
    }
    return NULL;
}

static int save(struct vb *vb, struct vol *v, const struct volume_meta *m, struct err *err)
{
    int rc = vol_meta_save(vb, m, err);
    if (rc == 0) {
        vol_set_frozen(vb->vols, v, m);
    }
    return rc;
}

/* Sets that the process holds and the description does not name: a manager was killed between
 * the two. Oldest first: each one's parent is there before it. */
static int learn_frozen(struct snap_job *j, struct vol *v, struct volume_meta *m,
                        const struct ctl_state *st, struct err *err)
{
    bool is_changed = false;
    for (unsigned pass = 0; pass < BLK_MAX_FROZEN; pass++) {
        for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
            const struct blk_frozen *f = &st->frozen[i];
            if (f->snap[0] != '\0' && !find_frozen(m, str_c(f->snap)) &&
                (!state_frozen(st, str_c(f->parent)) || find_frozen(m, str_c(f->parent)))) {
                add_frozen(j->a, m, f);
                is_changed = true;
            }
        }
    }
    return is_changed ? save(j->vb, v, m, err) : 0;
}

/* Opens the taken volume and learns what it holds. */
static int open_and_learn(struct snap_job *j, struct vol *v, struct volume_meta *m,
                          struct ctl_state *st, struct err *err)
{
    int rc = vol_open(j->vb->vols, v, NULL, 0, err);
    rc = rc != 0 ? rc : vol_ask_state(j->vb->vols, v, st, err);
    rc = rc != 0 ? rc : vol_meta_load(j->vb, j->a, str_c(v->id), m, err);
    return rc != 0 ? rc : learn_frozen(j, v, m, st, err);
}

/* --- the point in time
 * ---------------------------------------------------------------------- */

struct member {
    struct str snap, volume;
    struct vol *v;
    struct volume_meta meta;
    bool is_frozen;
};
struct group {
    struct member m[MAX_GROUP];
    size_t n;
};

static void add_member(struct snap_job *j, struct group *g, const struct snapshot *s)
{
    size_t at = g->n;
    while (at > 0 && str_cmp(g->m[at - 1].volume, s->volume_id) > 0) {
        g->m[at] = g->m[at - 1];
        at--;
    }
    g->m[at] = (struct member){.snap = arena_str_dup(j->a, s->id),
                               .volume = arena_str_dup(j->a, s->volume_id)};
    g->n++;
}

/* All that are of one point in time with this one, in order of their volumes. */
static int find_group(struct snap_job *j, struct group *g)
{
    const struct snapshot *spec = j->spec;
    uint64_t n_seen = 0;
    if (spec->group.n == 0) {
        add_member(j, g, spec);
        return 0;
    }
    view_lock(j->vb->view);
    omap_foreach_prefix(n, view_map(j->vb->view),
                        key_spec_prefix(j->a, "snapshot", spec->account))
    {
        const struct snapshot *s = ((const struct view_entry *)omap_value(n))->obj;
        if (!s || !str_eq(s->group, spec->group)) {
            continue;
        }
        n_seen++;
        if (!str_eqc(s->want, "deleted") && id_is_wellformed(s->volume_id, "vol") &&
            g->n < MAX_GROUP) {
            add_member(j, g, s);
        }
    }
    view_unlock(j->vb->view);
    return n_seen < spec->n_group ? -EAGAIN : 0;
}

static void give_all(struct snap_job *j, struct group *g)
{
    for (size_t i = 0; i < g->n; i++) {
        if (g->m[i].v) {
            vol_give(j->vb->vols, g->m[i].v);
        }
    }
}

/* A parent that the store lost is none: everything is read then. So it is of a volume whose bytes
 * were never dirt: of version 1, whose map was made when they were there already, or of a source
 * that is no parent (another account's, or of another encryption). */
static bool is_full_needed(struct snap_job *j, struct snap_store *store, const struct member *m)
{
    struct snap_info info;
    struct volume_meta meta = m->meta;
    bool has_old_bytes = str_eqc(meta.layout, VOLUME_LAYOUT_RAW) || meta.image_id.n > 0 ||
                         meta.snapshot_id.n > 0;
    if (has_old_bytes && meta.last.n == 0) {
        return true;
    }
    return store && meta.last.n > 0 && !find_frozen(&meta, meta.last) &&
           snap_stat(store, j->spec->account, meta.last, &info, NULL) == -ENOENT &&
           !vb_get_exists(j->vb, key_spec(j->a, "snapshot", j->spec->account, meta.last));
}

/* One message for all of one process. */
static int freeze_host(struct snap_job *j, struct snap_store *store, struct group *g,
                       const char *host, struct err *err)
{
    union ctl_msg m = {.h = {.op = CTL_SNAP}};
    struct vol *any = NULL;
    for (size_t i = 0; i < g->n; i++) {
        struct member *x = &g->m[i];
        if (x->is_frozen || strcmp(x->v->host, host) != 0) {
            continue;
        }
        m.snap.v[m.snap.n].disk = x->v->disk;
        (void)snprintf(m.snap.v[m.snap.n].snap, BLK_SNAP_ID, "%.*s", STR_ARG(x->snap));
        m.snap.n++;
        m.h.arg = m.h.arg != 0 || is_full_needed(j, store, x);
        any = x->v;
    }
    struct proc_answer answer = {.n_fds = 0};
    STEP("snapshot.freeze");
    int rc = any ? vol_call(j->vb->vols, any, &m, CALL_NS, &answer, err) : 0;
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        g->m[i].is_frozen = g->m[i].is_frozen || strcmp(g->m[i].v->host, host) == 0;
    }
    if (rc == 0 && any) {
        STEP("snapshot.frozen");
        log_info("snapshot.taken", KV_CSTR("process", host), KV_U64("volumes", m.snap.n),
                 KV_U64("held_us", answer.result.value / 1000));
    }
    return rc;
}

static int freeze_all(struct snap_job *j, struct snap_store *store, struct group *g,
                      struct err *err)
{
    int rc = 0;
    struct ctl_state *st = arena_new_of(j->a, struct ctl_state);
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        struct member *x = &g->m[i];
        x->v = vol_take(j->vb->vols, j->spec->account, x->volume);
        rc = open_and_learn(j, x->v, &x->meta, st, err);
        x->is_frozen = rc == 0 && find_frozen(&x->meta, x->snap);
    }
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        rc = g->m[i].is_frozen ? 0 : freeze_host(j, store, g, g->m[i].v->host, err);
    }
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        struct member *x = &g->m[i];
        rc = vol_ask_state(j->vb->vols, x->v, st, err);
        rc = rc != 0 ? rc : learn_frozen(j, x->v, &x->meta, st, err);
    }
    return rc;
}

/* All of a group have one time: that which was told of one of them before, or now. */
static uint64_t time_of_group(struct snap_job *j, const struct group *g)
{
    uint64_t ns = 0;
    for (size_t i = 0; i < g->n && ns == 0; i++) {
        const struct view_entry *e =
            vb_get(j->vb, key_status(j->a, "snapshot", j->spec->account, g->m[i].snap));
        ns = e ? ((const struct snapshot_status *)e->obj)->start_ns : 0;
        if (e) {
            view_unref(e);
        }
    }
    return ns != 0 ? ns : time_wall_ns();
}

static int tell_group(struct snap_job *j, const struct group *g, uint64_t now)
{
    int result = 0;
    for (size_t i = 0; i < g->n; i++) {
        const struct view_entry *e =
            vb_get(j->vb, key_spec(j->a, "snapshot", j->spec->account, g->m[i].snap));
        const struct view_entry *st =
            vb_get(j->vb, key_status(j->a, "snapshot", j->spec->account, g->m[i].snap));
        const struct snapshot_status *x = st ? st->obj : NULL;
        struct snap_job other = {
            .vb = j->vb, .a = j->a, .spec = e ? e->obj : NULL, .status = x};
        if (e && !(x && x->start_ns != 0)) {
            int rc = snap_job_pending(&other, now, 0);
            result = result != 0 ? result : rc;
            vb_touch(j->vb, e->key);
        }
        if (e) {
            view_unref(e);
        }
        if (st) {
            view_unref(st);
        }
    }
    return result;
}

static int freeze(struct snap_job *j, struct snap_store *store)
{
    struct err err = ERR_INIT;
    struct group *g = arena_new_of(j->a, struct group);
    int rc = find_group(j, g);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < g->n; i++) {
        if (!folder_has(j->vb->folder, FOLDER_VOLUME, g->m[i].volume)) {
            return snap_job_failed(j, "the volume is not on this node");
        }
    }
    rc = freeze_all(j, store, g, &err);
    if (rc == 0) {
        STEP("snapshot.noted");
    }
    int told = rc == 0 ? tell_group(j, g, time_of_group(j, g)) : 0;
    STEP("snapshot.told");
    give_all(j, g); /* now: the jobs of the others find it told */
    if (rc == -EIO || rc == -ENOTSUP) {
        return snap_job_failed(j, err.msg);
    }
    if (rc != 0) {
        log_warn_rl("snapshot.freeze_waits", KV_STR("snapshot", j->spec->id), KV_ERR(&err));
        return -EAGAIN;
    }
    return told;
}

/* --- the blocks
 * ----------------------------------------------------------------------------- */

/* It has no blocks to read any more: what it held is the next one's to tell. */
static int give_up(struct snap_job *j, struct snap_store *store, struct vol *v,
                   struct volume_meta *m, const char *why)
{
    struct err err = ERR_INIT;
    const struct frozen_meta *f = find_frozen(m, j->spec->id);
    struct str parent = f ? f->parent : STR("");
    union ctl_msg msg = {.h = {.op = CTL_SNAP_ABORT}};
    (void)snprintf(msg.h.snap, sizeof(msg.h.snap), "%.*s", STR_ARG(j->spec->id));
    int rc =
        vol_is_open(j->vb->vols, v) ? vol_call(j->vb->vols, v, &msg, CALL_NS, NULL, &err) : 0;
    if (rc == -EBUSY || rc == -EPIPE || rc == -ETIMEDOUT) {
        return -EAGAIN; /* a newer one goes first */
    }
    err_clear(&err);
    drop_frozen(m, j->spec->id);
    if (str_eq(m->last, j->spec->id)) {
        m->last = parent;
    }
    rc = save(j->vb, v, m, &err);
    rc = rc != 0 ? rc : snap_abort(store, j->spec->id, &err);
    return rc != 0 ? -EAGAIN : snap_job_failed(j, why);
}

/* 0 = it may be begun, -EAGAIN = its parent is on its way, -ENOENT = never. */
static int check_parent(struct snap_job *j, const struct frozen_meta *f)
{
    if (f->parent.n == 0 || snap_is_completed(j->vb, j->a, j->spec->account, f->parent)) {
        return 0;
    }
    if (snap_has_failed(j->vb, j->a, j->spec->account, f->parent)) {
        return -ENOENT;
    }
    /* Removed, its record still there or not: it is a root that is kept, and the store knows. */
    if (snap_is_deleted(j->vb, j->a, j->spec->account, f->parent)) {
        return 0;
    }
    return vb_get_exists(j->vb, key_spec(j->a, "snapshot", j->spec->account, f->parent))
               ? -EAGAIN
               : 0;
}

static int begin(struct snap_job *j, struct snap_store *store, const struct volume_meta *m,
                 const struct frozen_meta *f, struct err *err)
{
    struct snap_info info = {.size = f->size, .is_encrypted = m->is_encrypted};
    (void)snprintf(info.id, sizeof(info.id), "%.*s", STR_ARG(j->spec->id));
    (void)snprintf(info.account, sizeof(info.account), "%.*s", STR_ARG(j->spec->account));
    (void)snprintf(info.parent, sizeof(info.parent), "%.*s", STR_ARG(f->parent));
    STEP("snapshot.begin");
    int rc = snap_begin(store, &info, err);
    STEP("snapshot.begun");
    return rc;
}

static int read_on(struct snap_job *j, struct vol *v, struct err *err)
{
    union ctl_msg m = {.h = {.op = CTL_SNAP_READ}};
    (void)snprintf(m.h.snap, sizeof(m.h.snap), "%.*s", STR_ARG(j->spec->id));
    vol_open_upload(j->vb->vols, v, m.h.snap);
    int rc = vol_call(j->vb->vols, v, &m, CALL_NS, NULL, err);
    STEP("snapshot.reading");
    return rc;
}

static int upload_step(struct snap_job *j, struct snap_store *store, struct vol *v,
                       struct volume_meta *m, const struct ctl_state *st, struct err *err)
{
    const struct frozen_meta *f = find_frozen(m, j->spec->id);
    const struct blk_frozen *now = state_frozen(st, j->spec->id);
    if (!f || !now) {
        return give_up(j, store, v, m, "its blocks were lost when the node lost power");
    }
    struct upload up = vol_upload(j->vb->vols, v, now->snap);
    if (!up.is_open) {
        int rc = check_parent(j, f);
        rc = rc != 0 ? rc : begin(j, store, m, f, err);
        if (rc == -ENOENT) {
            return give_up(j, store, v, m, "the snapshot that it is an increment of failed");
        }
        if (rc == -EEXIST) {
            return give_up(j, store, v, m, "the store has another snapshot of that id");
        }
        return rc != 0 ? rc : read_on(j, v, err);
    }
    if (up.is_done || now->n_left == 0) {
        struct snap_info info;
        STEP("snapshot.commit");
        int rc = snap_commit(store, j->spec->id, &info, err);
        STEP("snapshot.committed");
        return rc == 0 || rc == -ENOENT ? 1 : rc;
    }
    uint64_t n = now->n_blocks, left = MIN(now->n_left, n);
    uint64_t progress = n == 0 ? 99 : (n - left) * 100 / n;
    return progress == j->status->progress ? 0 : snap_job_pending(j, 0, progress);
}

static int upload(struct snap_job *j, struct snap_store *store)
{
    struct err err = ERR_INIT;
    struct volume_meta m;
    struct ctl_state *st = arena_new_of(j->a, struct ctl_state);
    if (!folder_has(j->vb->folder, FOLDER_VOLUME, j->spec->volume_id)) {
        (void)!snap_abort(store, j->spec->id, NULL);
        return snap_job_failed(j, "the volume is not on this node any more");
    }
    struct vol *v = vol_take(j->vb->vols, j->spec->account, j->spec->volume_id);
    int rc = open_and_learn(j, v, &m, st, &err);
    rc = rc != 0 ? rc : upload_step(j, store, v, &m, st, &err);
    vol_give(j->vb->vols, v);
    if (rc == 1) { /* committed: the next step ends it */
        vb_touch(j->vb, key_spec(j->a, "snapshot", j->spec->account, j->spec->id));
        return 0;
    }
    if (rc < 0 && rc != -EAGAIN) {
        log_warn_rl("snapshot.upload_waits", KV_STR("snapshot", j->spec->id), KV_ERR(&err));
    }
    return rc < 0 ? -EAGAIN : 0;
}

int snapshot_volume_step(struct snap_job *j, struct snap_store *store)
{
    if (!id_is_wellformed(j->spec->volume_id, "vol")) {
        return snap_job_failed(j, "the volume's id is malformed");
    }
    if (!(j->status && j->status->start_ns != 0)) {
        return freeze(j, store);
    }
    return store ? upload(j, store) : -EAGAIN;
}

int snapshot_volume_end(struct snap_job *j, struct err *err)
{
    struct volume_meta m;
    struct ctl_state *st = arena_new_of(j->a, struct ctl_state);
    struct str volume = j->spec->volume_id;
    if (!id_is_wellformed(volume, "vol") || !folder_has(j->vb->folder, FOLDER_VOLUME, volume)) {
        return 0;
    }
    struct vol *v = vol_take(j->vb->vols, j->spec->account, volume);
    int rc = vol_meta_load(j->vb, j->a, volume, &m, err);
    struct str parent = STR("");
    const struct frozen_meta *f = rc == 0 ? find_frozen(&m, j->spec->id) : NULL;
    if (f) {
        parent = f->parent;
        rc = open_and_learn(j, v, &m, st, err);
        if (rc == 0 && state_frozen(st, j->spec->id)) {
            union ctl_msg msg = {.h = {.op = CTL_SNAP_END}};
            (void)snprintf(msg.h.snap, sizeof(msg.h.snap), "%.*s", STR_ARG(j->spec->id));
            STEP("snapshot.end");
            rc = vol_call(j->vb->vols, v, &msg, CALL_NS, NULL, err);
            rc = rc == -ENOENT ? 0 : rc;
            STEP("snapshot.ended");
        }
        if (rc == 0) {
            drop_frozen(&m, j->spec->id);
            rc = save(j->vb, v, &m, err);
            STEP("snapshot.dropped");
        }
    }
    vol_give(j->vb->vols, v);
    if (rc == 0) {
        gc_snapshot(j->vb, j->spec->account, parent);
    }
    return rc;
}
