#include "viperblock/vb.h"
#include "base/time.h"
#include "base/vec.h"
#include "model/keys.h"
#include "model/obj.h"
#include "viperblock/base.h"
#include "viperblock/copy.h"
#include "viperblock/gc.h"
#include "viperblock/metrics.h"
#include "viperblock/snapshot.h"
#include "viperblock/store.h"
#include "viperblock/vb_int.h"
#include "viperblock/vols.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>

LOG_MODULE("viperblock");

#define N_THREADS        8u
#define N_IMPORT_THREADS 2u
#define N_FETCH_THREADS  4u
#define N_UPLOAD_THREADS 4u
#define N_LONG_THREADS   2u
#define MAX_QUEUE        4096u
#define TICK_EVERY       NS_PER_S
#define MAX_IMPORTS      32u
#define VIEW_TIMEOUT     (30 * NS_PER_S)
#define RETRY_MIN        (500 * NS_PER_MS)
#define ROOM_EVERY       (10 * NS_PER_S)
#define RETRY_MAX        (30 * NS_PER_S)

static void take_touched(void *ctx);

void vb_touch(struct vb *vb, struct str key)
{
    char *copy = strndup(key.p, key.n);
    if (!copy) {
        abort();
    }
    pthread_mutex_lock(&vb->mu);
    bool is_first = vb->touched.n == 0;
    vec_push(&vb->touched, copy);
    pthread_mutex_unlock(&vb->mu);
    if (is_first) {
        loop_post(vb->o.loop, take_touched, vb);
    }
}

/* Keys that are worked on: of the store, "proc/<name>" of data processes, "gc/..." of the
 * store's blocks. */
static const struct {
    const char *prefix;
    int (*reconcile)(struct vb *vb, struct arena *a, struct str key);
} kinds[] = {
    {"spec/volume/", volume_reconcile},
    {"spec/image/", image_reconcile},
    {"spec/snapshot/", snapshot_reconcile},
    {"proc/", proc_reconcile},
    {"gc/", gc_reconcile},
};

static bool is_ours(struct str key)
{
    return str_has_prefixc(key, "spec/volume/") || str_has_prefixc(key, "spec/image/") ||
           str_has_prefixc(key, "spec/snapshot/");
}

int proc_reconcile(struct vb *vb, struct arena *a, struct str key)
{
    return vols_reconcile_proc(vb->vols, a, str_skip(key, sizeof("proc/") - 1));
}

static void on_change(void *ctx, const struct view_entry *old, const struct view_entry *now)
{
    struct str key = now ? now->key : old->key;
    struct key_parts k;
    char volume[KV_MAX_KEY];
    if (is_ours(key)) {
        vb_touch(ctx, key);
    } else if (str_has_prefixc(key, "spec/volmod/") && key_parse(key, &k) == 0 &&
               key.n < sizeof(volume)) {
        /* It comes with its volume in one transaction, but behind it: who looked at the volume at
         * once has not seen that this is a modification. */
        int n = snprintf(volume, sizeof(volume), "spec/volume/%.*s/%.*s", STR_ARG(k.account),
                         STR_ARG(k.id));
        vb_touch(ctx, str_n(volume, (size_t)n));
    }
}

const struct view_entry *vb_get(struct vb *vb, struct str key)
{
    view_lock(vb->view);
    const struct view_entry *e = view_get(vb->view, key);
    e = e && e->obj ? view_ref(e) : NULL;
    view_unlock(vb->view);
    return e;
}

bool vb_get_exists(struct vb *vb, struct str key)
{
    view_lock(vb->view);
    bool is_there = view_get(vb->view, key) != NULL;
    view_unlock(vb->view);
    return is_there;
}

int vb_put_rec(struct vb *vb, struct str key, const struct rec_desc *d, const void *rec,
               struct err *err)
{
    AUTO_BUF now, was;
    buf_init(&now, KV_MAX_VALUE);
    buf_init(&was, KV_MAX_VALUE);
    int rc = rec_save(d, rec, &now, err);
    const struct view_entry *e = vb_get(vb, key);
    bool is_same = false;
    if (e) {
        is_same = rc == 0 && rec_save(d, e->obj, &was, NULL) == 0 &&
                  str_eq(buf_str(&now), buf_str(&was));
        view_unref(e);
    }
    if (rc != 0 || is_same) {
        return rc;
    }
    struct kv_op op = {.type = KV_PUT, .key = key, .value = buf_str(&now)};
    uint64_t rev = 0;
    rc = kv_txn(vb->o.kv, NULL, 0, &op, 1, &rev, err);
    if (rc == 0 && view_wait(vb->view, rev, 5 * NS_PER_S) != 0) {
        return fail(err, -EAGAIN, "Unavailable", "the store does not show what was written");
    }
    return rc;
}

bool vb_is_in_store(struct vb *vb, const char *prefix, struct str id)
{
    bool found = false;
    view_lock(vb->view);
    omap_foreach_prefix(n, view_map(vb->view), str_c(prefix))
    {
        struct key_parts k;
        found = found || (key_parse(omap_key(n), &k) == 0 && str_eq(k.id, id));
    }
    view_unlock(vb->view);
    return found;
}

/* --- jobs: one per key, never two at once for one key ---------------------------------------
 * */

static void job_start(struct vb_job *j);

static void job_free(void *job)
{
    struct vb_job *j = job;
    free(j->key);
    free(j);
}

static void arm_retry(struct vb *vb)
{
    uint64_t first = 0;
    omap_foreach_prefix(n, vb->jobs, STR(""))
    {
        const struct vb_job *j = omap_value(n);
        if (j->retry_ns != 0 && (first == 0 || j->retry_ns < first)) {
            first = j->retry_ns;
        }
    }
    if (first != 0) {
        loop_timer_set(vb->retry_timer, first);
    }
}

static void on_retry(void *ctx)
{
    struct vb *vb = ctx;
    uint64_t now = time_mono_ns();
    if (atomic_load(&vb->is_stopping)) {
        return; /* its pools are gone */
    }
    omap_foreach_prefix(n, vb->jobs, STR(""))
    {
        struct vb_job *j = omap_value(n);
        if (j->retry_ns != 0 && j->retry_ns <= now) {
            job_start(j);
        }
    }
    arm_retry(vb);
}

static void job_work(void *ctx)
{
    struct vb_job *j = ctx;
    struct str key = str_c(j->key);
    if (atomic_load(&j->vb->is_stopping)) {
        j->result = 0;
        return;
    }
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (str_has_prefixc(key, kinds[i].prefix)) {
            j->result = kinds[i].reconcile(j->vb, a, key);
        }
    }
}

static void job_done(void *ctx)
{
    struct vb_job *j = ctx;
    struct vb *vb = j->vb;
    j->is_running = false;
    if (atomic_load(&vb->is_stopping)) {
        return; /* vb_free() frees it */
    }
    if (j->is_dirty) {
        j->n_retries = 0;
        job_start(j);
    } else if (j->result != 0) {
        uint64_t wait = RETRY_MIN << MIN(j->n_retries, 6u);
        j->n_retries++;
        j->retry_ns = time_mono_ns() + MIN(wait, RETRY_MAX);
        arm_retry(vb);
    } else {
        omap_remove(vb->jobs, str_c(j->key));
        job_free(j);
    }
}

static void job_start(struct vb_job *j)
{
    j->retry_ns = 0;
    j->is_dirty = false;
    j->is_running = true;
    if (pool_submit(j->vb->pool, job_work, j->vb->o.loop, job_done, j) != 0) {
        j->is_running = false;
        j->retry_ns = time_mono_ns() + RETRY_MIN;
        arm_retry(j->vb);
    }
}

static void take_touched(void *ctx)
{
    struct vb *vb = ctx;
    pthread_mutex_lock(&vb->mu);
    char **keys = vb->touched.v;
    size_t n = vb->touched.n;
    vb->touched.v = NULL;
    vb->touched.n = vb->touched.cap = 0;
    pthread_mutex_unlock(&vb->mu);
    for (size_t i = 0; i < n; i++) {
        struct vb_job *j = omap_get(vb->jobs, str_c(keys[i]));
        if (atomic_load(&vb->is_stopping)) {
            free(keys[i]);
        } else if (j) {
            free(keys[i]);
            j->is_dirty = true;
            if (!j->is_running) {
                job_start(j);
            }
        } else {
            j = calloc(1, sizeof(*j));
            if (!j) {
                abort();
            }
            *j = (struct vb_job){.vb = vb, .key = keys[i]};
            omap_put(vb->jobs, str_c(j->key), j);
            job_start(j);
        }
    }
    free(keys);
}

/* Health tells when nothing new can be made, or nothing encrypted, before somebody tries. */
static void on_room(void *ctx)
{
    struct vb *vb = ctx;
    struct err err = ERR_INIT;
    bool is_low = copy_check_room(folder_fd(vb->folder), 0, &err) != 0;
    bool is_locked = vb->keys && keys_is_locked(vb->keys) && keys_unlock(vb->keys, NULL) != 0;
    if (is_low != vb->is_low) {
        if (is_low) {
            log_warn("disk.low", KV_ERR(&err));
        } else {
            log_info("disk.has_room_again");
        }
    }
    if (vb->o.service && (is_low != vb->is_low || is_locked != vb->is_locked)) {
        service_set_status(vb->o.service,
                           is_low      ? "degraded"
                           : is_locked ? "locked"
                                       : "ok",
                           is_low      ? err.msg
                           : is_locked ? "encrypted volumes wait for the root key"
                                       : NULL);
    }
    vb->is_low = is_low;
    vb->is_locked = is_locked;
    loop_timer_set(vb->room_timer, time_mono_ns() + ROOM_EVERY);
}

static void on_tick(void *ctx)
{
    struct vb *vb = ctx;
    if (atomic_load(&vb->is_stopping)) {
        return;
    }
    vols_tick(vb->vols);
    snapshot_tick(vb);
    loop_timer_set(vb->tick_timer, time_mono_ns() + TICK_EVERY);
}

/* --- life -----------------------------------------------------------------------------------
 * */

static void stop_loop(void *loop)
{
    loop_stop(loop);
}

/* Runs what was posted to the loop until now. */
static void drain_loop(struct loop *l)
{
    loop_post(l, stop_loop, l);
    loop_run(l);
}

void vb_free(struct vb *vb)
{
    if (!vb) {
        return;
    }
    atomic_store(&vb->is_stopping, true);
    if (vb->o.service) {
        vb->o.service->on_metrics = NULL;
    }
    if (vb->vols) {
        vols_stop(vb->vols);
    }
    pool_free(vb->import_pool);
    pool_free(vb->pool);
    pool_free(vb->long_pool);
    pool_free(vb->upload_pool);
    pool_free(vb->fetch_pool);
    view_close(vb->view);
    drain_loop(vb->o.loop);
    assert(vb->calls.n == 0);
    if (vb->rpc) {
        rpc_server_free(vb->rpc);
    }
    drain_loop(vb->o.loop);
    loop_timer_free(vb->retry_timer);
    loop_timer_free(vb->room_timer);
    loop_timer_free(vb->tick_timer);
    if (vb->vols && vb->is_idle_ended) {
        vols_quit_idle(vb->vols);
    }
    vols_free(vb->vols);
    bases_free(vb->bases);
    longs_free(vb->longs);
    store_free(vb->store);
    keys_close(vb->keys);
    omap_free(vb->jobs, job_free);
    for (size_t i = 0; i < vb->touched.n; i++) {
        free(vb->touched.v[i]);
    }
    vec_free(&vb->touched);
    vec_free(&vb->calls);
    folder_close(vb->folder);
    pthread_mutex_destroy(&vb->mu);
    free(vb);
}

void vb_end_idle(struct vb *vb)
{
    vb->is_idle_ended = true;
}

/* Every key that is there now: a restart is a list. */
static void touch_all(struct vb *vb)
{
    view_lock(vb->view);
    omap_foreach_prefix(n, view_map(vb->view), STR("spec/"))
    {
        if (is_ours(omap_key(n))) {
            vb_touch(vb, omap_key(n));
        }
    }
    view_unlock(vb->view);
}

int vb_new(const struct vb_opts *o, struct vb **ret, struct err *err)
{
    static const char *const prefixes[] = {
        "spec/volume/",     "spec/image/",    "spec/snapshot/",
        "spec/volmod/",     "status/volume/", "status/image/",
        "status/snapshot/", "status/volmod/", "status/instance/"};
    static const struct view_ops ops = {
        .parse = model_parse, .free = model_free, .on_change = on_change};
    struct vb *vb = calloc(1, sizeof(*vb));
    if (!vb) {
        abort();
    }
    vb->o = *o;
    if (vb->o.max_image_size == 0) {
        vb->o.max_image_size = VB_MAX_IMAGE_SIZE;
    }
    pthread_mutex_init(&vb->mu, NULL);
    vb->jobs = omap_new();
    vb->retry_timer = loop_timer_new(o->loop, on_retry, vb);
    vb->room_timer = loop_timer_new(o->loop, on_room, vb);
    vb->tick_timer = loop_timer_new(o->loop, on_tick, vb);
    vb->bases = bases_new();
    vb->store = store_new();
    vb->longs = longs_new();
    AUTO(vb_freep) struct vb *owned = vb;
    int rc = folder_open(o->data_dir, &vb->folder, err);
    rc = rc != 0 ? rc : folder_clean(vb->folder, err);
    rc = rc != 0 ? rc
                 : view_open(o->kv, prefixes, ARRAY_LEN(prefixes), &ops, vb, VIEW_TIMEOUT,
                             &vb->view, err);
    rc = rc != 0 ? rc : image_settle(vb, err);
    rc = rc != 0 ? rc : volume_report_orphans(vb, err);
    if (rc == 0 && o->root_key) {
        rc = keys_open_file_or_wait(o->root_key, &vb->keys, err);
    }
    struct vols_opts vo = {
        .vb = vb, .loop = o->loop, .run_dir = o->run_dir, .exe = o->data_exe};
    rc = rc != 0 ? rc : vols_new(&vo, &vb->vols, err);
    if (rc != 0) {
        return rc;
    }
    vb->pool = pool_new("vb-work", N_THREADS, MAX_QUEUE);
    vb->fetch_pool = pool_new("vb-fetch", N_FETCH_THREADS, MAX_QUEUE);
    vb->upload_pool = pool_new("vb-upload", N_UPLOAD_THREADS, MAX_QUEUE);
    vb->long_pool = pool_new("vb-long", N_LONG_THREADS, MAX_QUEUE);
    vb->import_pool = pool_new("vb-import", N_IMPORT_THREADS, MAX_IMPORTS);
    touch_all(vb);
    gc_start(vb);
    loop_timer_set(vb->room_timer,
                   time_mono_ns() + NS_PER_S); /* the service has said "ok" by then */
    loop_timer_set(vb->tick_timer, time_mono_ns() + TICK_EVERY);
    rc = calls_start(vb, err);
    if (rc != 0) {
        return rc;
    }
    if (o->service) {
        o->service->metrics_ctx = vb;
        o->service->on_metrics = metrics_write;
    }
    *ret = steal(&owned);
    return 0;
}
