#include "model/volume.h"
#include "base/time.h"
#include "model/keys.h"
#include "viperblock/copy.h"
#include "viperblock/gc.h"
#include "viperblock/vol_files.h"
#include "viperblock/vols.h"
#include "viperblock/volume_make.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

LOG_MODULE("viperblock.volume");

#define GIB     (UINT64_C(1) << 30)
#define PAGE    4096u
#define CALL_NS (30 * NS_PER_S)

/* What the reconciler learns on its way; the rest of the status is worked out from it. */
struct seen {
    const char *state, *reason;
    const char *fault; /* "" = healthy */
    uint64_t allocated, absent, size_gib;
    bool is_whole; /* its process says so: nothing is absent any more */
};

static int put_status(struct vb *vb, struct arena *a, const struct volume *v,
                      const struct volume_status *old, const struct seen *s)
{
    struct err err = ERR_INIT;
    bool is_same_fault = old && old->fault.p && str_eqc(old->fault, s->fault);
    struct volume_status st = {.id = v->id,
                               .generation = v->generation,
                               .state = str_c(s->state),
                               .reason = str_c(s->reason),
                               .health = s->fault[0] ? STR("impaired") : STR("ok"),
                               .fault = str_c(s->fault),
                               .fault_ns = !s->fault[0]    ? 0
                                           : is_same_fault ? old->fault_ns
                                                           : time_wall_ns(),
                               .allocated = s->allocated,
                               .size_gib = s->size_gib,
                               .absent = s->absent};
    int rc = vb_put_rec(vb, key_status(a, "volume", v->account, v->id), &volume_status_desc,
                        &st, &err);
    if (rc != 0) {
        log_warn_rl("volume.status_failed", KV_STR("volume", v->id), KV_ERR(&err));
    }
    return rc;
}

static int put_state(struct vb *vb, struct arena *a, const struct volume *v,
                     const struct volume_status *old, const char *state, const char *reason)
{
    struct seen s = {.state = state,
                     .reason = reason,
                     .fault = "",
                     .size_gib = old ? old->size_gib : 0,
                     .absent = old ? old->absent : 0};
    return put_status(vb, a, v, old, &s);
}

/* A volume that had bytes and has none, or others. */
static int put_lost(struct vb *vb, struct arena *a, const struct volume *v,
                    const struct volume_status *old, const char *reason)
{
    struct seen s = {
        .state = "error", .reason = reason, .fault = "lost", .size_gib = v->size_gib};
    return put_status(vb, a, v, old, &s);
}

/* --- looking
 * -------------------------------------------------------------------------------- */

/* The bytes that are there must be those that were made: as its description says. */
static int verify(struct vb *vb, struct arena *a, const struct volume *v,
                  struct volume_meta *ret, uint64_t *ret_allocated, struct err *err)
{
    AUTO_FD data = -1;
    struct stat st;
    int rc = folder_open_file(vb->folder, FOLDER_VOLUME, v->id, "data", O_RDONLY, &data, err);
    rc = rc != 0 ? rc : vol_meta_load(vb, a, v->id, ret, err);
    if (rc != 0) {
        return rc;
    }
    if (fstat(data, &st) != 0) {
        return fail(err, -EIO, "ReadFailed", "the volume cannot be read: %m");
    }
    if ((uint64_t)st.st_size < ret->size) {
        return fail(err, -EIO, "VolumeDamaged",
                    "the volume's file has %lld bytes, its description says %llu",
                    (long long)st.st_size, (unsigned long long)ret->size);
    }
    *ret_allocated = (uint64_t)st.st_blocks * 512;
    return 0;
}

/* --- removing
 * ------------------------------------------------------------------------------- */

/* Whoever holds the lock of the bytes, and is no process of ours, is a guest of an older
 * version. */
static bool is_locked(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) != 0;
}

static int close_for_delete(struct vb *vb, const struct volume *v, struct err *err)
{
    struct vol *vol = vol_take(vb->vols, v->account, v->id);
    int rc = vol_close(vb->vols, vol, false, err);
    if (rc == 0) {
        vol_forgive(vb->vols, vol);
    }
    vol_give(vb->vols, vol);
    return rc;
}

static int remove_files(struct vb *vb, struct arena *a, const struct volume *v, struct err *err)
{
    AUTO_FD data = -1;
    struct volume_meta m = {.size = 0};
    bool has_meta = vol_meta_load(vb, a, v->id, &m, NULL) == 0;
    if (has_meta && m.frozen.n > 0) {
        return -EAGAIN; /* its snapshots are read from it first */
    }
    int rc = close_for_delete(vb, v, err);
    if (rc != 0) {
        return -EAGAIN;
    }
    if (folder_open_file(vb->folder, FOLDER_VOLUME, v->id, "data", O_RDWR, &data, NULL) == 0 &&
        is_locked(data)) {
        return -EAGAIN;
    }
    rc = folder_remove(vb->folder, FOLDER_VOLUME, v->id, err);
    if (rc == 0) {
        vols_forget_map(vb->vols, v->id);
        gc_volume_gone(vb, &m);
        log_info("volume.deleted", KV_STR("volume", v->id));
    }
    return rc;
}

static int delete (struct vb *vb, struct arena *a, const struct volume *v,
                   const struct volume_status *st)
{
    struct err err = ERR_INIT;
    if (folder_has(vb->folder, FOLDER_VOLUME, v->id)) {
        int rc = put_state(vb, a, v, st, "deleting", "");
        rc = rc != 0 ? rc : remove_files(vb, a, v, &err);
        if (rc == -EAGAIN) {
            log_info_rl("volume.delete_waits", KV_STR("volume", v->id));
            return rc;
        }
        if (rc != 0) {
            log_warn("volume.delete_failed", KV_STR("volume", v->id), KV_ERR(&err));
            return -EAGAIN;
        }
    }
    return put_state(vb, a, v, st, "deleted", "");
}

/* --- changing
 * ------------------------------------------------------------------------------- */

static int put_mod(struct vb *vb, struct arena *a, const struct volume_mod *m,
                   const char *state, uint64_t progress, const char *reason)
{
    bool is_over = strcmp(state, "completed") == 0 || strcmp(state, "failed") == 0;
    struct volume_mod_status st = {.id = m->id,
                                   .generation = m->generation,
                                   .state = str_c(state),
                                   .reason = str_c(reason),
                                   .progress = progress,
                                   .end_ns = is_over ? time_wall_ns() : 0};
    return vb_put_rec(vb, key_status(a, "volmod", m->account, m->id), &volume_mod_status_desc,
                      &st, NULL);
}

/* The files grow in the data process, which has them open and locked; an offline one for
 * that. */
static int grow(struct vb *vb, struct arena *a, struct vol *vol, struct volume_meta *m,
                uint64_t size, struct err *err)
{
    int rc = copy_check_room(folder_fd(vb->folder), 0, err);
    rc = rc != 0 ? rc : vol_open(vb->vols, vol, NULL, 0, err);
    if (rc != 0) {
        return rc;
    }
    union ctl_msg msg = {.h = {.op = CTL_GROW, .arg = size}};
    rc = vol_call(vb->vols, vol, &msg, CALL_NS, NULL, err);
    if (rc != 0) {
        return rc;
    }
    rc = vol_meta_load(vb, a, m->id, m, err); /* nobody else wrote it: the volume is taken */
    m->size = size;
    rc = rc != 0 ? rc : vol_meta_save(vb, m, err);
    if (rc == 0) {
        vol_set_size(vb->vols, vol, size);
        log_info("volume.grown", KV_STR("volume", m->id), KV_U64("gib", size / GIB));
    }
    return rc;
}

static int apply(struct vb *vb, struct arena *a, const struct volume *v, struct volume_meta *m,
                 struct err *err)
{
    struct vol *vol = vol_take(vb->vols, v->account, v->id);
    int rc = 0;
    if (v->size_gib * GIB > m->size) {
        rc = grow(vb, a, vol, m, v->size_gib * GIB, err);
    }
    if (rc == 0 && vol_is_open(vb->vols, vol)) {
        rc = vol_set_limits(vb->vols, vol, err);
    }
    vol_give(vb->vols, vol);
    return rc == -EPIPE ? -EAGAIN : rc;
}

/* True when there is no modification of this volume, or its end was told. */
static bool is_mod_told(const struct volume *v, const struct volume_mod *mod,
                        const struct volume_mod_status *was)
{
    return !mod || mod->generation > v->generation ||
           (was && was->generation == mod->generation &&
            (str_eqc(was->state, "completed") || str_eqc(was->state, "failed")));
}

static bool has_untold_mod(struct vb *vb, struct arena *a, const struct volume *v)
{
    const struct view_entry *e = vb_get(vb, key_spec(a, "volmod", v->account, v->id));
    const struct view_entry *s = vb_get(vb, key_status(a, "volmod", v->account, v->id));
    bool is_told = is_mod_told(v, e ? e->obj : NULL, s ? s->obj : NULL);
    if (e) {
        view_unref(e);
    }
    if (s) {
        view_unref(s);
    }
    return !is_told;
}

/* Size and speed as they are wanted; says so in the status of the modification, if it is one.
 * */
static int modify(struct vb *vb, struct arena *a, const struct volume *v, struct volume_meta *m,
                  struct err *err)
{
    const struct view_entry *e = vb_get(vb, key_spec(a, "volmod", v->account, v->id));
    const struct view_entry *s = vb_get(vb, key_status(a, "volmod", v->account, v->id));
    const struct volume_mod *mod = e ? e->obj : NULL;
    const struct volume_mod_status *was = s ? s->obj : NULL;
    bool is_told = is_mod_told(v, mod, was);
    int rc = is_told ? 0 : put_mod(vb, a, mod, "modifying", 0, "");
    rc = rc != 0 ? rc : apply(vb, a, v, m, err);
    if (rc == 0 && !is_told) {
        rc = put_mod(vb, a, mod, "optimizing", 50, "");
        rc = rc != 0 ? rc : put_mod(vb, a, mod, "completed", 100, "");
    } else if (rc != 0 && rc != -EAGAIN && rc != -EACCES && !is_told) {
        (void)!put_mod(vb, a, mod, "failed", 0, err->msg);
    }
    if (e) {
        view_unref(e);
    }
    if (s) {
        view_unref(s);
    }
    return rc;
}

/* --- health
 * --------------------------------------------------------------------------------- */

/* Nothing is absent any more: what it came from is not needed by this volume. */
static int drop_source(struct vb *vb, struct arena *a, const struct volume *v, struct err *err)
{
    struct volume_meta m;
    struct vol *vol = vol_take(vb->vols, v->account, v->id);
    int rc = vol_meta_load(vb, a, v->id, &m, err);
    struct volume_meta was = m;
    struct proc_answer answer = {.n_fds = 0};
    union ctl_msg msg = {.h = {.op = CTL_ABSENT}};
    /* What was seen may be old. It is asked, and what it filled is durable when it says 0. */
    if (rc == 0 && vol_is_open(vb->vols, vol)) {
        rc = vol_call(vb->vols, vol, &msg, CALL_NS, &answer, err);
    } else {
        answer.result.value = 1;
    }
    for (size_t i = 0; i < answer.n_fds; i++) {
        close(answer.fds[i]); /* of a process that was taken over: none belongs to this */
    }
    if (rc != 0 || answer.result.value > 0) {
        vol_give(vb->vols, vol);
        return rc;
    }
    if (m.base.n > 0 || m.source_id.n > 0) {
        m.base = m.source_id = m.source_account = STR("");
        m.source_size = 0;
        rc = vol_meta_save(vb, &m, err);
        if (rc == 0) {
            vol_forget_source(vb->vols, vol);
            log_info("volume.hydrated", KV_STR("volume", v->id));
        }
    }
    vol_give(vb->vols, vol);
    if (rc == 0) {
        gc_volume_gone(vb, &was);
    }
    return rc;
}

/* The owner accepts what happened (EnableVolumeIO): it is opened afresh. */
static void accept_fault(struct vb *vb, const struct volume *v)
{
    struct err err = ERR_INIT;
    struct vol *vol = vol_take(vb->vols, v->account, v->id);
    if (vol_reopen(vb->vols, vol, &err) != 0) {
        log_warn("volume.reopen_failed", KV_STR("volume", v->id), KV_ERR(&err));
    }
    vol_give(vb->vols, vol);
}

static void look(struct vb *vb, const struct volume *v, const struct volume_meta *m,
                 const struct volume_status *old, struct seen *s)
{
    struct vol known;
    bool is_known = vols_peek(vb->vols, v->id, &known);
    bool is_live = is_known && known.state_ns != 0;
    s->fault = is_known && known.is_crashed                 ? "crashed-twice"
               : is_live && known.state.is_faulted != 0     ? "sync-failed"
               : is_live && known.fetch_fault == FETCH_LOST ? "lost"
               : is_live && known.fetch_fault == FETCH_AWAY ? "store-away"
                                                            : "";
    if (s->fault[0] && known.fetch_fault != FETCH_AWAY && old && old->fault_ns != 0 &&
        old->fault_ns < v->io_enabled_ns) {
        accept_fault(vb, v);
        s->fault = "";
    }
    s->size_gib = m->size / GIB;
    s->is_whole = is_live && known.state.cow.n_absent_pages == 0;
    bool has_source = m->base.n > 0 || m->source_id.n > 0;
    bool was_told = old && str_eqc(old->state, "available");
    s->absent = is_live       ? known.state.cow.n_absent_pages * PAGE
                : !has_source ? 0
                : was_told    ? old->absent
                              : m->source_size;
}

/* --- the reconciler
 * ------------------------------------------------------------------------- */

static int there(struct vb *vb, struct arena *a, const struct volume *v,
                 const struct volume_status *st)
{
    struct err err = ERR_INIT;
    struct volume_meta m;
    struct seen s = {.state = "available", .reason = ""};
    if (verify(vb, a, v, &m, &s.allocated, &err) != 0) {
        log_error("volume.damaged", KV_STR("volume", v->id), KV_ERR(&err));
        return put_lost(vb, a, v, st, err.msg);
    }
    bool is_told = st && str_eqc(st->state, "available") && st->generation == v->generation &&
                   !has_untold_mod(vb, a, v);
    int rc = is_told ? 0 : modify(vb, a, v, &m, &err);
    look(vb, v, &m, st, &s);
    if (rc == 0 && s.is_whole && (m.base.n > 0 || m.source_id.n > 0)) {
        rc = drop_source(vb, a, v, &err);
    }
    if (rc != 0) {
        log_warn_rl("volume.change_failed", KV_STR("volume", v->id), KV_ERR(&err));
        return rc == -EACCES || rc == -EBUSY ? -EAGAIN : rc;
    }
    if (is_told && str_eqc(st->fault, s.fault) && st->size_gib == s.size_gib &&
        (st->absent == 0) == (s.absent == 0)) {
        return 0; /* do not write for a number of blocks that changed */
    }
    return put_status(vb, a, v, st, &s);
}

static int create(struct vb *vb, struct arena *a, const struct volume *v,
                  const struct volume_status *st)
{
    struct err err = ERR_INIT;
    int rc = st && str_eqc(st->state, "creating") ? 0 : put_state(vb, a, v, st, "creating", "");
    if (rc != 0) {
        return rc;
    }
    uint64_t start = time_mono_ns();
    rc = volume_make(vb, a, v, &err);
    if (rc == -ECANCELED) {
        return 0; /* the service stops; the next start makes it */
    }
    if (rc == -EAGAIN || rc == -EACCES) { /* its snapshot, the store, or the root key */
        log_info_rl("volume.create_waits", KV_STR("volume", v->id), KV_ERR(&err));
        (void)!put_state(vb, a, v, st, "creating", err.msg);
        return -EAGAIN;
    }
    if (rc != 0) {
        log_warn("volume.create_failed", KV_STR("volume", v->id), KV_ERR(&err));
        return put_state(vb, a, v, st, "error", err.msg);
    }
    log_info("volume.created", KV_STR("volume", v->id), KV_U64("gib", v->size_gib),
             KV_U64("ms", (time_mono_ns() - start) / NS_PER_MS));
    return there(vb, a, v, st);
}

static int present(struct vb *vb, struct arena *a, const struct volume *v,
                   const struct volume_status *st)
{
    if (folder_has(vb->folder, FOLDER_VOLUME, v->id)) {
        return there(vb, a, v, st);
    }
    if (st && str_eqc(st->state, "available")) { /* never make an empty one in its place */
        log_error("volume.lost", KV_STR("volume", v->id));
        return put_lost(vb, a, v, st, "the volume's file is gone");
    }
    if (st && str_eqc(st->state, "error")) {
        return 0; /* as in AWS, a volume whose making failed stays so */
    }
    return create(vb, a, v, st);
}

/* The record is gone: so goes the status of a volume that was deleted. One that still has bytes
 * keeps them: a person decides. */
static int forget(struct vb *vb, struct arena *a, struct str key)
{
    struct err err = ERR_INIT;
    struct key_parts k;
    if (key_parse(key, &k) != 0 || !id_is_wellformed(k.id, "vol")) {
        return 0;
    }
    if (folder_has(vb->folder, FOLDER_VOLUME, k.id)) {
        log_warn("volume.orphan", KV_STR("volume", k.id));
        return 0;
    }
    struct kv_op ops[] = {{.type = KV_DELETE, .key = key_status(a, "volume", k.account, k.id)},
                          {.type = KV_DELETE, .key = key_status(a, "volmod", k.account, k.id)}};
    int rc = kv_txn(vb->o.kv, NULL, 0, ops, ARRAY_LEN(ops), NULL, &err);
    if (rc != 0) {
        log_warn_rl("volume.status_failed", KV_STR("volume", k.id), KV_ERR(&err));
    }
    return rc;
}

int volume_reconcile(struct vb *vb, struct arena *a, struct str key)
{
    const struct view_entry *e = vb_get(vb, key);
    if (!e) {
        return forget(vb, a, key);
    }
    const struct volume *v = e->obj;
    const struct view_entry *s = vb_get(vb, key_status(a, "volume", v->account, v->id));
    const struct volume_status *st = s ? s->obj : NULL;
    int rc = 0;
    bool is_here = str_is_empty(v->node) || str_eqc(v->node, vb->o.node);
    if (is_here && !id_is_wellformed(v->id, "vol")) {
        rc = put_state(vb, a, v, st, "error", "the id is malformed");
    } else if (is_here && str_eqc(v->want, "deleted")) {
        rc = delete (vb, a, v, st);
    } else if (is_here) {
        rc = present(vb, a, v, st);
    }
    if (s) {
        view_unref(s);
    }
    view_unref(e);
    return rc;
}

static void report_orphan(void *ctx, struct str id)
{
    if (!vb_is_in_store(ctx, "spec/volume/", id)) {
        log_warn("volume.orphan", KV_STR("volume", id));
    }
}

int volume_report_orphans(struct vb *vb, struct err *err)
{
    return folder_each(vb->folder, FOLDER_VOLUME, report_orphan, vb, err);
}
