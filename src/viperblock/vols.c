#include "viperblock/vols.h"
#include "base/time.h"
#include "model/keys.h"
#include "viperblock/supply.h"
#include "viperblock/vols_int.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

LOG_MODULE("viperblock.vols");

#define SHORT_LIFE_NS (10 * NS_PER_S)

void vols_lock(struct vols *vs)
{
    pthread_mutex_lock(&vs->mu);
}

void vols_unlock(struct vols *vs)
{
    pthread_mutex_unlock(&vs->mu);
}

bool vols_wait(struct vols *vs, uint64_t end_mono_ns)
{
    struct timespec until = {.tv_sec = (time_t)(end_mono_ns / NS_PER_S),
                             .tv_nsec = (long)(end_mono_ns % NS_PER_S)};
    return pthread_cond_timedwait(&vs->cond, &vs->mu, &until) != ETIMEDOUT &&
           !atomic_load(&vs->is_stopping);
}

void vols_touch_host(struct vols *vs, const char *name)
{
    char key[64];
    (void)snprintf(key, sizeof(key), "proc/%s", name);
    vb_touch(vs->o.vb, str_c(key));
}

struct host *host_find(struct vols *vs, const char *name)
{
    struct host *h = omap_get(vs->hosts, str_c(name));
    if (!h) {
        h = calloc(1, sizeof(*h));
        if (!h) {
            abort();
        }
        (void)snprintf(h->name, sizeof(h->name), "%s", name);
        omap_put(vs->hosts, str_c(h->name), h);
    }
    return h;
}

struct vol *vol_of_disk(struct vols *vs, const struct proc *p, uint32_t disk)
{
    omap_foreach_prefix(n, vs->vols, STR(""))
    {
        struct vol *v = omap_value(n);
        if (v->p == p && v->disk == disk) {
            return v;
        }
    }
    return NULL;
}

/* --- taking
 * --------------------------------------------------------------------------------- */

static struct vol *find_or_make(struct vols *vs, struct str id)
{
    struct vol *v = omap_get(vs->vols, id);
    if (!v) {
        v = calloc(1, sizeof(*v));
        if (!v) {
            abort();
        }
        v->vu_fd = v->nbd_fd = -1;
        (void)snprintf(v->id, sizeof(v->id), "%.*s", STR_ARG(id));
        omap_put(vs->vols, str_c(v->id), v);
    }
    return v;
}

struct vol *vol_take(struct vols *vs, struct str account, struct str id)
{
    assert(id.n < BLK_SNAP_ID && account.n < 16);
    vols_lock(vs);
    struct vol *v = find_or_make(vs, id);
    v->n_waiting++;
    while (v->is_taken) {
        pthread_cond_wait(&vs->cond, &vs->mu);
    }
    v->n_waiting--;
    v->is_taken = true;
    if (account.n > 0) {
        (void)snprintf(v->account, sizeof(v->account), "%.*s", STR_ARG(account));
    }
    vols_unlock(vs);
    return v;
}

static bool has_uploads(const struct vol *v)
{
    bool has = false;
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        has = has || v->uploads[i].snap[0] != '\0';
    }
    return has;
}

void vol_give(struct vols *vs, struct vol *v)
{
    char host[BLK_SNAP_ID] = "";
    vols_lock(vs);
    v->is_taken = false;
    if (v->p && !v->is_vu && !v->is_nbd && !has_uploads(v) && v->n_waiting == 0) {
        memcpy(host, v->host, sizeof(host));
    }
    bool is_remembered = v->is_crashed || v->probation || v->crash_ns[0] != 0;
    if (v->host[0] == '\0' && !is_remembered && v->n_waiting == 0) {
        assert(!v->p && v->vu_fd < 0 && v->nbd_fd < 0);
        omap_remove(vs->vols, str_c(v->id));
        free(v);
    }
    pthread_cond_broadcast(&vs->cond);
    vols_unlock(vs);
    if (host[0] != '\0') {
        vols_touch_host(vs, host);
    }
}

struct proc *vol_proc(struct vols *vs, struct vol *v)
{
    vols_lock(vs);
    struct proc *p = v->p ? proc_ref(v->p) : NULL;
    vols_unlock(vs);
    return p;
}

bool vol_is_open(struct vols *vs, struct vol *v)
{
    struct proc *p = vol_proc(vs, v);
    bool is_open = p && proc_is_up(p);
    proc_unref(p);
    return is_open;
}

/* Under 'mu' or while nobody else can see it: what belonged to the open volume goes. */
void vol_not_open(struct vols *vs, struct vol *v)
{
    vols_lock(vs);
    struct proc *p = v->p;
    v->p = NULL;
    v->state_ns = 0;
    v->probation = NULL;
    memset(&v->state, 0, sizeof(v->state));
    pthread_cond_broadcast(&vs->cond);
    vols_unlock(vs);
    proc_unref(p);
}

bool vols_peek(struct vols *vs, struct str id, struct vol *ret)
{
    vols_lock(vs);
    const struct vol *v = omap_get(vs->vols, id);
    if (v) {
        *ret = *v;
    }
    vols_unlock(vs);
    return v != NULL;
}

size_t vols_list(struct vols *vs, struct vol **ret)
{
    vols_lock(vs);
    size_t n = 0;
    struct vol *out = calloc(omap_len(vs->vols) + 1, sizeof(*out));
    if (!out) {
        abort();
    }
    omap_foreach_prefix(node, vs->vols, STR(""))
    {
        out[n++] = *(const struct vol *)omap_value(node);
    }
    vols_unlock(vs);
    *ret = out;
    return n;
}

/* --- what processes say: the loop's thread
 * --------------------------------------------------- */

static void touch_volume(struct vols *vs, const struct vol *v)
{
    char key[96];
    (void)snprintf(key, sizeof(key), "spec/volume/%s/%s", v->account, v->id);
    vb_touch(vs->o.vb, str_c(key));
}

void vols_touch_snapshot(struct vols *vs, const struct vol *v, const char *snap)
{
    char key[96];
    (void)snprintf(key, sizeof(key), "spec/snapshot/%s/%s", v->account, snap);
    vb_touch(vs->o.vb, str_c(key));
}

/* A process that was found again says what it has open; its notes say what that should be. */
static struct vol *recognise(struct vols *vs, struct proc *p, const struct ctl_state *st)
{
    struct host *h = host_find(vs, proc_name(p));
    struct vol *v = omap_get(vs->vols, str_c(st->id));
    if (h->p != p || !h->is_learning) {
        return NULL; /* its OPEN is being answered at this moment */
    }
    if (v && !v->p && strcmp(v->host, h->name) == 0) {
        v->p = proc_ref(p);
        v->disk = st->h.disk;
        v->size = st->size;
        return v;
    }
    h->strays |= UINT64_C(1) << st->h.disk;
    return NULL;
}

static void take_state(struct vols *vs, struct proc *p, const struct ctl_state *st)
{
    struct vol copy;
    bool is_changed = false;
    vols_lock(vs);
    struct host *h = host_find(vs, proc_name(p));
    struct vol *v = vol_of_disk(vs, p, st->h.disk);
    v = v ? v : recognise(vs, p, st);
    if (h->p == p) {
        h->n_states++;
        bool is_held = st->is_vu_connected != 0 || st->n_nbd > 0;
        h->cut_ns = !v && is_held ? time_mono_ns() : h->cut_ns;
    }
    if (v && strcmp(v->id, st->id) == 0) {
        bool is_drained = st->cow.n_absent_pages == 0 &&
                          (v->state_ns == 0 || v->state.cow.n_absent_pages != 0);
        is_changed =
            v->state.is_faulted != st->is_faulted || (is_drained && v->source_size > 0);
        v->state = *st;
        v->state_ns = time_mono_ns();
        copy = *v;
    }
    pthread_cond_broadcast(&vs->cond);
    vols_unlock(vs);
    if (is_changed) {
        touch_volume(vs, &copy);
    }
}

void vols_fetched(struct vols *vs, const struct proc *p, uint32_t disk, enum fetch_fault f)
{
    struct vol copy = {.id = ""};
    vols_lock(vs);
    struct vol *v = vol_of_disk(vs, p, disk);
    if (v && v->fetch_fault != f && v->fetch_fault != FETCH_LOST) {
        v->fetch_fault = f;
        copy = *v;
    }
    vols_unlock(vs);
    if (copy.id[0] != '\0') {
        touch_volume(vs, &copy);
    }
}

static void take_snap_done(struct vols *vs, struct proc *p, const struct ctl_head *h)
{
    struct vol copy = {.id = ""};
    vols_lock(vs);
    struct vol *v = vol_of_disk(vs, p, h->disk);
    for (size_t i = 0; v && i < BLK_MAX_FROZEN; i++) {
        if (v->uploads[i].is_open && strcmp(v->uploads[i].snap, h->snap) == 0) {
            v->uploads[i].is_done = true;
            copy = *v;
        }
    }
    vols_unlock(vs);
    if (copy.id[0] != '\0') {
        vols_touch_snapshot(vs, &copy, h->snap);
    }
}

static void on_message(void *ctx, struct proc *p, const union ctl_msg *m)
{
    struct vols *vs = ctx;
    switch (m->h.op) {
    case CTL_DISK_STATE: take_state(vs, p, &m->state); break;
    case CTL_SNAP_DONE: take_snap_done(vs, p, &m->h); break;
    case CTL_FETCH:
    case CTL_UPLOAD: supply_take(vs->o.vb, p, &m->h); break;
    default: break;
    }
}

/* Ended by its own doing, not by somebody's signal. */
static bool is_crash(int status)
{
    if (status == -1) {
        return false;
    }
    return WIFSIGNALED(status) ? WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGTERM
                               : WEXITSTATUS(status) != 0;
}

static bool blame(struct vol *v, uint64_t now)
{
    v->crash_ns[1] = v->crash_ns[0];
    v->crash_ns[0] = now;
    v->is_crashed = v->crash_ns[1] != 0 && now - v->crash_ns[1] < VOL_CRASH_NS;
    return v->is_crashed;
}

static void on_gone(void *ctx, struct proc *p, int wait_status)
{
    struct vols *vs = ctx;
    uint64_t now = time_mono_ns();
    VEC(struct proc *) refs = {.v = NULL};
    vols_lock(vs);
    struct host *h = host_find(vs, proc_name(p));
    if (h->p == p) {
        vec_push(&refs, h->p);
        h->p = NULL;
        h->has_crashed = is_crash(wait_status);
        h->n_deaths = now - proc_start_ns(p) < SHORT_LIFE_NS ? h->n_deaths + 1 : 1;
        h->death_ns = now;
    }
    omap_foreach_prefix(n, vs->vols, STR(""))
    {
        struct vol *v = omap_value(n);
        if (v->probation == p && is_crash(wait_status) && blame(v, now)) {
            log_error("volume.faulted", KV_CSTR("volume", v->id),
                      KV_CSTR("why", "opening it ended its process twice"));
            touch_volume(vs, v);
        }
        v->probation = v->probation == p ? NULL : v->probation;
        if (v->p == p) {
            v->state_ns = 0;
            v->p = NULL;
            vec_push(&refs, p);
        }
    }
    pthread_cond_broadcast(&vs->cond);
    vols_unlock(vs);
    for (size_t i = 0; i < refs.n; i++) {
        proc_unref(refs.v[i]);
    }
    vec_free(&refs);
    vols_touch_host(vs, proc_name(p));
}

/* --- life
 * ----------------------------------------------------------------------------------- */

static void vol_free(void *vol)
{
    struct vol *v = vol;
    int fds[] = {v->vu_fd, v->nbd_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    proc_unref(v->p);
    free(v);
}

static void host_free(void *host)
{
    struct host *h = host;
    proc_unref(h->p);
    free(h);
}

void vols_stop(struct vols *vs)
{
    atomic_store(&vs->is_stopping, true);
    procs_stop(vs->procs);
    vols_lock(vs);
    pthread_cond_broadcast(&vs->cond);
    vols_unlock(vs);
}

/* Those that a guest or a tool is connected to run on. What is being read for a snapshot is
 * frozen in the maps: the next manager goes on with it. */
static bool is_idle(void *ctx, struct proc *p)
{
    struct vols *vs = ctx;
    bool is_used = false;
    omap_foreach_prefix(n, vs->vols, STR(""))
    {
        const struct vol *v = omap_value(n);
        is_used = is_used || (v->p == p && (vol_is_connected(v) || v->state.n_nbd > 0));
    }
    return !is_used;
}

void vols_quit_idle(struct vols *vs)
{
    procs_quit_idle(vs->procs, is_idle, vs);
}

void vols_free(struct vols *vs)
{
    if (!vs) {
        return;
    }
    omap_free(vs->vols, vol_free);
    omap_free(vs->hosts, host_free);
    procs_free(vs->procs);
    pthread_cond_destroy(&vs->cond);
    pthread_mutex_destroy(&vs->mu);
    free(vs);
}

int vols_new(const struct vols_opts *o, struct vols **ret, struct err *err)
{
    static const struct proc_ops ops = {.on_message = on_message, .on_gone = on_gone};
    struct vols *vs = calloc(1, sizeof(*vs));
    pthread_condattr_t attr;
    if (!vs || pthread_condattr_init(&attr) != 0) {
        abort();
    }
    vs->o = *o;
    vs->vols = omap_new();
    vs->hosts = omap_new();
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&vs->mu, NULL);
    pthread_cond_init(&vs->cond, &attr);
    pthread_condattr_destroy(&attr);
    struct procs_opts po = {
        .loop = o->loop, .run_dir = o->run_dir, .exe = o->exe, .ops = &ops, .ctx = vs};
    int rc = procs_new(&po, &vs->procs, err);
    rc = rc != 0 ? rc : vols_read_notes(vs, err);
    if (rc != 0) {
        vols_free(vs);
        return rc;
    }
    *ret = vs;
    return 0;
}
