#include "base/file.h"
#include "base/time.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/volume.h"
#include "viperblock/vol_files.h"
#include "viperblock/vols_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

LOG_MODULE("viperblock.vols");

#define STATES_NS    (3 * NS_PER_S)
#define START_NS     (20 * NS_PER_S)
#define DEATHS_FREE  3u
#define NEW_NS       (60 * NS_PER_S) /* opened, and the guest may not be there yet */
#define TICK_NS      (2 * NS_PER_S)
#define CUT_NS       (3 * TICK_NS)
#define NOTE_MAX     4096u
#define TOOL_RINGS   24u /* its disk, and 16 connections of NBD */
#define MAX_OPEN_VUS 64u

struct vol_note {
    struct rec_head head;
    struct str id, account;
    bool is_vu, is_vu_nbd, is_nbd, is_nbd_read_only;
    uint64_t uid, n_queues;
};
static const struct rec_field note_fields[] = {
    REC_FIELD(struct vol_note, REC_STR, id),
    REC_FIELD(struct vol_note, REC_STR, account),
    REC_FIELD(struct vol_note, REC_BOOL, is_vu),
    REC_FIELD(struct vol_note, REC_BOOL, is_vu_nbd),
    REC_FIELD(struct vol_note, REC_BOOL, is_nbd),
    REC_FIELD(struct vol_note, REC_BOOL, is_nbd_read_only),
    REC_FIELD(struct vol_note, REC_U64, uid),
    REC_FIELD(struct vol_note, REC_U64, n_queues),
};
static REC_DESC(note_desc, struct vol_note, "open volume", 1, note_fields);

/* --- notes
 * ---------------------------------------------------------------------------------- */

void vol_path(const struct vols *vs, const char *host, const char *id, const char *ext,
              char out[108])
{
    (void)snprintf(out, 108, "%s/%s/%s.%s", procs_dir(vs->procs), host, id, ext);
}

int vol_note_write(struct vols *vs, const struct vol *v, struct err *err)
{
    char path[108];
    AUTO_BUF text;
    struct vol_note n = {.id = str_c(v->id),
                         .account = str_c(v->account),
                         .is_vu = v->is_vu,
                         .is_vu_nbd = v->is_vu_nbd,
                         .is_nbd = v->is_nbd,
                         .is_nbd_read_only = v->is_nbd_read_only,
                         .uid = v->uid,
                         .n_queues = v->n_queues};
    buf_init(&text, NOTE_MAX);
    vol_path(vs, v->host, v->id, "json", path);
    int rc = rec_save(&note_desc, &n, &text, err);
    return rc != 0 ? rc : file_write_atomic(path, buf_str(&text), 0600, err);
}

void vol_note_remove(struct vols *vs, const struct vol *v, const char *host)
{
    static const char *const exts[] = {"json", "sock", "nbd"};
    char path[108];
    for (size_t i = 0; i < ARRAY_LEN(exts); i++) {
        vol_path(vs, host, v->id, exts[i], path);
        (void)unlink(path);
    }
}

static void read_note(struct vols *vs, const char *host, const char *path)
{
    AUTO_FREE char *text = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    struct err err = ERR_INIT;
    struct vol_note n;
    size_t size = 0;
    if (file_read(path, NOTE_MAX, &text, &size, &err) != 0 ||
        rec_load(&note_desc, a, str_n(text, size), &n, &err) != 0 ||
        !id_is_wellformed(n.id, "vol") || n.account.n != ACCOUNT_ID_LEN) {
        log_warn("volume.bad_note", KV_CSTR("path", path), KV_ERR(&err));
        (void)unlink(path);
        return;
    }
    struct vol *v = vol_take(vs, n.account, n.id);
    (void)snprintf(v->host, sizeof(v->host), "%s", host);
    v->is_vu = n.is_vu;
    v->is_vu_nbd = n.is_vu_nbd;
    v->is_nbd = n.is_nbd;
    v->is_nbd_read_only = n.is_nbd_read_only;
    v->uid = (uint32_t)n.uid;
    v->n_queues = (uint32_t)n.n_queues;
    v->served_ns = time_mono_ns();
    vol_give(vs, v);
}

static void read_folder(void *ctx, const char *name)
{
    struct vols *vs = ctx;
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", procs_dir(vs->procs), name);
    DIR *d = opendir(path);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (str_has_suffix(str_c(e->d_name), STR(".json")) && e->d_name[0] != '.') {
            (void)snprintf(path, sizeof(path), "%s/%s/%s", procs_dir(vs->procs), name,
                           e->d_name);
            read_note(vs, name, path);
        }
    }
    if (d) {
        closedir(d);
    }
    vols_touch_host(vs, name); /* once the service works: found again or started again */
}

int vols_read_notes(struct vols *vs, struct err *err)
{
    (void)snprintf(vs->maps_dir, sizeof(vs->maps_dir), "%s/maps", vs->o.run_dir);
    int rc = file_mkdirs(vs->maps_dir, 0700, err);
    return rc != 0 ? rc : procs_each_folder(vs->procs, read_folder, vs, err);
}

/* --- a process is there
 * --------------------------------------------------------------------- */

/* Disks that a process has open and that nobody remembers: given up. */
static void close_strays(struct proc *p, uint64_t strays)
{
    for (uint32_t d = 0; d < CTL_MAX_DISKS; d++) {
        if ((strays & (UINT64_C(1) << d)) != 0) {
            union ctl_msg m = {.h = {.op = CTL_CLOSE, .disk = d, .arg = 1}};
            (void)!proc_call(p, &m, NULL, 0, STATES_NS, NULL, NULL);
        }
    }
}

/* Its volumes' sockets: what the manager before held. */
static void take_sockets(struct vols *vs, struct vol *v)
{
    struct proc_answer a;
    union ctl_msg m = {.h = {.op = CTL_GIVE}};
    if (vol_call(vs, v, &m, STATES_NS, &a, NULL) != 0) {
        return;
    }
    size_t i = 0;
    vols_lock(vs);
    if ((a.result.value & 1) != 0 && i < a.n_fds && v->vu_fd < 0) {
        v->vu_fd = a.fds[i++];
    }
    int *nbd = v->is_vu_nbd ? &v->vu_fd : &v->nbd_fd;
    if ((a.result.value & 2) != 0 && i < a.n_fds && *nbd < 0) {
        *nbd = a.fds[i++];
    }
    vols_unlock(vs);
    for (; i < a.n_fds; i++) {
        close(a.fds[i]);
    }
}

/* After a connection to a process of an older manager: what it has open is learned. */
static int learn(struct vols *vs, struct host *h, struct proc *p, struct err *err)
{
    union ctl_msg m = {.h = {.op = CTL_STATE}};
    vols_lock(vs);
    h->strays = 0;
    h->n_states = 0;
    h->is_learning = true;
    vols_unlock(vs);
    int rc = proc_call(p, &m, NULL, 0, STATES_NS, NULL, err);
    uint64_t end = time_mono_ns() + STATES_NS;
    vols_lock(vs);
    while (rc == 0 && h->n_states < proc_n_disks(p) && vols_wait(vs, end)) {}
    h->is_learning = false;
    if (rc == 0 && h->n_states < proc_n_disks(p)) {
        rc = fail(err, -EAGAIN, "VolumeNotReady", "the data process of %s tells no state",
                  h->name);
    }
    if (rc != 0) {
        vols_unlock(vs);
        return rc;
    }
    uint64_t strays = h->strays;
    struct vol *mine[CTL_MAX_DISKS];
    size_t n = 0;
    omap_foreach_prefix(node, vs->vols, STR(""))
    {
        struct vol *v = omap_value(node);
        if (v->p == p && n < ARRAY_LEN(mine)) {
            mine[n++] = v;
        }
    }
    vols_unlock(vs);
    /* Nobody takes these away meanwhile: the process is marked as busy. */
    for (size_t i = 0; i < n; i++) {
        take_sockets(vs, mine[i]);
    }
    close_strays(p, strays);
    return 0;
}

static int bring_up(struct vols *vs, struct host *h, bool is_known, unsigned n_rings,
                    struct proc **ret, struct err *err)
{
    int rc = is_known ? -ESRCH : proc_adopt(vs->procs, h->name, ret, NULL);
    bool is_adopted = rc == 0;
    if (rc == -ESRCH) {
        rc = proc_start(vs->procs, h->name, n_rings, ret, err);
    } else if (rc != 0) {
        rc = fail(err, -EAGAIN, "VolumeNotReady", "the data process of %s is not reached",
                  h->name);
    }
    if (rc != 0) {
        return rc;
    }
    vols_lock(vs);
    bool is_up = proc_is_up(*ret); /* who dies from now on is found by on_gone() */
    h->p = is_up ? proc_ref(*ret) : NULL;
    vols_unlock(vs);
    if (!is_up) {
        proc_unref(*ret);
        return fail(err, -EAGAIN, "VolumeNotReady", "the data process of %s ended at once",
                    h->name);
    }
    if (is_adopted && learn(vs, h, *ret, err) != 0) {
        proc_end(*ret);
        proc_unref(*ret);
        return -EAGAIN;
    }
    return 0;
}

static bool is_backing_off(const struct host *h)
{
    uint64_t wait =
        h->n_deaths <= DEATHS_FREE ? 0 : NS_PER_S << MIN(h->n_deaths - DEATHS_FREE - 1, 5u);
    return h->n_deaths > DEATHS_FREE && time_mono_ns() < h->death_ns + wait;
}

int host_up(struct vols *vs, const char *name, unsigned n_rings, struct proc **ret,
            struct err *err)
{
    uint64_t end = time_mono_ns() + START_NS;
    vols_lock(vs);
    struct host *h = host_find(vs, name);
    while (h->is_busy) {
        if (!vols_wait(vs, end)) {
            vols_unlock(vs);
            return fail(err, -EAGAIN, "VolumeNotReady", "%s is being started", name);
        }
        h = host_find(vs, name);
    }
    if (h->p) {
        *ret = proc_ref(h->p);
        vols_unlock(vs);
        return 0;
    }
    if (atomic_load(&vs->is_stopping) || is_backing_off(h)) {
        vols_unlock(vs);
        return fail(err, -EAGAIN, "VolumeNotReady",
                    "the data process of %s ended too often: it is started again later", name);
    }
    bool is_known = h->is_known;
    h->is_busy = true;
    h->n_rings = MAX(h->n_rings, MAX(n_rings, TOOL_RINGS));
    unsigned rings = h->n_rings;
    vols_unlock(vs);
    struct proc *p = NULL;
    int rc = bring_up(vs, h, is_known, rings, &p, err);
    vols_lock(vs);
    h->is_busy = false;
    h->is_known = h->is_known || rc != -EAGAIN; /* what an older manager left is known now */
    if (rc != 0 && rc != -EAGAIN) {
        h->n_deaths++;
        h->death_ns = time_mono_ns();
    }
    pthread_cond_broadcast(&vs->cond);
    vols_unlock(vs);
    if (rc != 0) {
        return err && err->code != 0
                   ? rc
                   : fail(err, -EAGAIN, "VolumeNotReady", "%s is not reached", name);
    }
    *ret = p;
    return 0;
}

/* --- reconciling one process
 * ---------------------------------------------------------------- */

static bool instance_is_over(struct vb *vb, struct str account, const char *instance)
{
    AUTO(arena_freep) struct arena *a = arena_new(4096);
    const struct view_entry *e =
        vb_get(vb, key_status(a, "instance", account, str_c(instance)));
    const struct instance_status *st = e ? e->obj : NULL;
    bool is_over = !st || str_eqc(st->state, "stopped") || str_eqc(st->state, "terminated");
    if (e) {
        view_unref(e);
    }
    return is_over;
}

bool vol_is_connected(const struct vol *v)
{
    return v->p && v->state_ns != 0 &&
           (v->state.is_vu_connected != 0 || (v->is_vu_nbd && v->state.n_nbd > 0));
}

/* The guest's device: until it is gone, or nobody wishes it to be there. */
static bool is_vu_wanted(struct vols *vs, const struct vol *v)
{
    struct vb *vb = vs->o.vb;
    if (vol_is_connected(v) || time_mono_ns() < v->served_ns + NEW_NS) {
        return true;
    }
    AUTO(arena_freep) struct arena *a = arena_new(4096);
    const struct view_entry *e =
        vb_get(vb, key_spec(a, "volume", str_c(v->account), str_c(v->id)));
    const struct volume *spec = e ? e->obj : NULL;
    bool is_attached =
        spec && str_eqc(spec->want, "present") && str_eqc(spec->instance_id, v->host);
    if (e) {
        view_unref(e);
    }
    return is_attached && !instance_is_over(vb, str_c(v->account), v->host);
}

bool vol_is_wanted(struct vols *vs, struct vol *v)
{
    bool has_uploads = false;
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        has_uploads = has_uploads || v->uploads[i].snap[0] != '\0';
    }
    if (v->is_vu && is_vu_wanted(vs, v)) {
        return true;
    }
    return v->is_nbd || has_uploads;
}

struct ids {
    char v[CTL_MAX_DISKS][BLK_SNAP_ID];
    size_t n;
};

static void list_of_host(struct vols *vs, const char *name, struct ids *ret)
{
    ret->n = 0;
    vols_lock(vs);
    omap_foreach_prefix(node, vs->vols, STR(""))
    {
        const struct vol *v = omap_value(node);
        if (strcmp(v->host, name) == 0 && ret->n < CTL_MAX_DISKS) {
            memcpy(ret->v[ret->n++], v->id, BLK_SNAP_ID);
        }
    }
    vols_unlock(vs);
}

/* Of a volume whose process was found again: what its description says. */
static int load_source(struct vols *vs, struct vol *v, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    struct volume_meta m;
    int rc = vol_meta_load(vs->o.vb, a, str_c(v->id), &m, err);
    if (rc == 0) {
        vols_lock(vs);
        vol_set_source(v, &m);
        vols_unlock(vs);
    }
    return rc;
}

static int reconcile_vol(struct vols *vs, struct vol *v, const char *host)
{
    struct err err = ERR_INIT;
    int rc = 0;
    if (strcmp(v->host, host) != 0 || v->is_crashed) {
        return 0;
    }
    if (!v->source_loaded && load_source(vs, v, &err) != 0) {
        log_warn_rl("volume.restore_failed", KV_CSTR("volume", v->id), KV_ERR(&err));
        err_clear(&err);
    }
    bool is_wanted = vol_is_wanted(vs, v);
    if (!v->p && is_wanted) {
        rc = vol_restore(vs, v, &err);
    } else if (!is_wanted) {
        rc = vol_close(vs, v, false, &err);
    }
    if (rc != 0) {
        log_warn_rl("volume.restore_failed", KV_CSTR("volume", v->id), KV_ERR(&err));
    }
    return rc == -EBUSY && !is_wanted ? 0 : rc;
}

/* A guest that lost its disk by force is told errors for as long as it is connected. */
static bool has_cut(const struct host *h)
{
    return h->p && h->cut_ns != 0 && time_mono_ns() < h->cut_ns + CUT_NS;
}

/* Nothing is open in it: it ends, and its folder goes. */
static void end_host(struct vols *vs, const char *name)
{
    vols_lock(vs);
    struct host *h = host_find(vs, name);
    bool is_used = h->is_busy || has_cut(h);
    omap_foreach_prefix(node, vs->vols, STR(""))
    {
        is_used = is_used || strcmp(((const struct vol *)omap_value(node))->host, name) == 0;
    }
    if (is_used) {
        vols_unlock(vs);
        return;
    }
    struct proc *p = h->p;
    h->p = NULL;
    h->is_busy = true;
    vols_unlock(vs);
    if (p) {
        proc_quit(p);
        proc_unref(p);
    } else {
        proc_forget(vs->procs, name);
    }
    vols_lock(vs);
    omap_remove(vs->hosts, str_c(h->name));
    pthread_cond_broadcast(&vs->cond);
    vols_unlock(vs);
    free(h);
}

int vols_reconcile_proc(struct vols *vs, struct arena *a, struct str name)
{
    const char *host = arena_cstr(a, name);
    struct ids *ids = arena_new_of(a, struct ids);
    struct err err = ERR_INIT;
    struct proc *p = NULL;
    int result = 0;
    list_of_host(vs, host, ids);
    vols_lock(vs);
    bool is_known = host_find(vs, host)->is_known;
    vols_unlock(vs);
    if (ids->n > 0 || !is_known) { /* one of an older manager is asked first what it has */
        int rc = host_up(vs, host, 0, &p, &err);
        proc_unref(p);
        if (rc != 0) {
            log_warn_rl("data.start_failed", KV_CSTR("process", host), KV_ERR(&err));
            return rc;
        }
    }
    for (size_t i = 0; i < ids->n; i++) {
        struct vol *v = vol_take(vs, STR(""), str_c(ids->v[i]));
        int rc = reconcile_vol(vs, v, host);
        vol_give(vs, v);
        result = result == 0 ? rc : result;
    }
    vols_lock(vs);
    host_find(vs, host)->has_crashed = false;
    vols_unlock(vs);
    list_of_host(vs, host, ids);
    if (ids->n == 0) {
        end_host(vs, host);
    }
    return result == -EIO || result == -ENOENT ? 0 : result;
}

/* Processes without a volume: asked whether a guest still holds on to what it lost, or ended.
 * */
static void tick_hosts(struct vols *vs)
{
    VEC(struct proc *) asked = {.v = NULL};
    vols_lock(vs);
    omap_foreach_prefix(node, vs->hosts, STR(""))
    {
        const struct host *h = omap_value(node);
        if (h->p && h->cut_ns != 0 && !h->is_busy) {
            vec_push(&asked, proc_ref(h->p));
        }
    }
    vols_unlock(vs);
    for (size_t i = 0; i < asked.n; i++) {
        union ctl_msg m = {.h = {.op = CTL_STATE}};
        (void)!proc_try(asked.v[i], &m);
        vols_touch_host(vs, proc_name(asked.v[i]));
        proc_unref(asked.v[i]);
    }
    vec_free(&asked);
}

void vols_tick(struct vols *vs)
{
    uint64_t now = time_mono_ns();
    struct vol *v = NULL;
    if (now < vs->asked_ns + TICK_NS) {
        return;
    }
    vs->asked_ns = now;
    tick_hosts(vs);
    size_t n = vols_list(vs, &v);
    for (size_t i = 0; i < n; i++) {
        if (v[i].host[0] != '\0' && !v[i].is_taken && !v[i].is_crashed &&
            (!v[i].p || !vol_is_wanted(vs, &v[i]))) {
            vols_touch_host(vs, v[i].host);
        }
        for (size_t k = 0; k < BLK_MAX_FROZEN; k++) { /* its progress is told */
            if (v[i].uploads[k].is_open) {
                vols_touch_snapshot(vs, &v[i], v[i].uploads[k].snap);
            }
        }
    }
    free(v);
}
