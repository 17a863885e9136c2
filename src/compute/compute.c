#include "compute/compute.h"
#include "base/file.h"
#include "base/log.h"
#include "base/time.h"
#include "compute/compute_int.h"
#include "model/keys.h"
#include "model/obj.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

LOG_MODULE("compute");

#define OPEN_TIMEOUT_NS (UINT64_C(60) * NS_PER_S)
#define TICK_NS         (UINT64_C(200) * NS_PER_MS)
#define DRIFT_NS        (UINT64_C(3) * NS_PER_S)
#define PASS_ARENA      (16u << 20)
#define POOL_THREADS    8u
#define WRITE_THREADS   2u
#define POOL_QUEUE      4096u
#define MAX_UID_SLOTS   1024u
#define STALE_DATA_S    (24 * 3600)

struct guest *compute_guest(struct compute *c, const char *id)
{
    return atomic_load(&c->is_stopping) ? NULL : omap_get(c->guests, str_c(id));
}

uint64_t compute_free_slot(struct compute *c)
{
    bool is_used[MAX_UID_SLOTS] = {false};
    AUTO(arena_freep) struct arena *a = arena_new(PASS_ARENA);
    struct str *ids = NULL;
    size_t n = 0;
    /* Folders of guests that the store does not know count too: their processes may live. */
    if (guest_dir_list(&c->spawn.dirs, a, &ids, &n, NULL) < 0) {
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct guest_note note;
        if (guest_note_read(&c->spawn.dirs, ids[i].p, &note, NULL) == 0 &&
            note.uid_slot < MAX_UID_SLOTS) {
            is_used[note.uid_slot] = true;
        }
    }
    omap_foreach_prefix(node, c->guests, STR(""))
    {
        const struct guest *g = omap_value(node);
        if (g->has_note && g->note.uid_slot < MAX_UID_SLOTS) {
            is_used[g->note.uid_slot] = true;
        }
    }
    for (uint64_t i = 0; i < MAX_UID_SLOTS; i++) {
        if (!is_used[i]) {
            return i;
        }
    }
    return MAX_UID_SLOTS; /* more guests than any host has: they share the last user */
}

/* ---- a pass over the store ---- */

static struct guest *guest_for(struct compute *c, const struct instance *s)
{
    char id[GUEST_ID_MAX], account[16];
    if (!guest_id_is_ok(s->id) || s->account.n >= sizeof(account)) {
        log_warn_rl("instance.bad_id", KV_STR("id", s->id));
        return NULL;
    }
    (void)snprintf(id, sizeof(id), "%.*s", STR_ARG(s->id));
    (void)snprintf(account, sizeof(account), "%.*s", STR_ARG(s->account));
    struct guest *g = compute_guest(c, id);
    if (!g) {
        g = guest_new(c, id, account);
        (void)omap_put(c->guests, str_c(g->id), g);
    }
    return g;
}

static const void *obj_at(struct compute *c, struct str key)
{
    const struct view_entry *e = view_get(c->view, key);
    return e ? e->obj : NULL;
}

static void take_instance(struct compute *c, struct arena *a, const struct view_entry *e)
{
    const struct instance *s = e->obj;
    struct key_parts key;
    if (!s && key_parse(e->key, &key) == 0 && key.id.n < GUEST_ID_MAX) {
        /* A record that cannot be read is not one that was forgotten: its guest stays as it is. */
        struct guest *known = compute_guest(c, arena_cstr(a, key.id));
        if (known) {
            known->is_seen = true;
        }
    }
    if (!s || !str_eqc(s->node, c->o.cfg->node)) {
        return;
    }
    struct guest *g = guest_for(c, s);
    if (!g) {
        return;
    }
    const struct instance_status *st = obj_at(c, key_status(a, "instance", s->account, s->id));
    bool is_new = !g->spec;
    g->is_seen = true;
    if (g->spec != e) {
        view_unref(g->spec);
        g->spec = view_ref(e);
    }
    if (is_new) {
        guest_load(g, st);
    }
    /* The store was put back to an older state, or somebody removed our record: say it again. */
    bool is_other = !st || !str_eqc(st->state, instance_state_name(g->fsm.state)) ||
                    st->generation != g->fsm.generation;
    if (is_other && !g->is_dirty && !g->is_writing &&
        loop_now_ns(c->o.loop) > g->written_ns + DRIFT_NS) {
        guest_mark(g);
    }
}

static struct guest *guest_of(struct compute *c, struct arena *a, struct str instance_id)
{
    if (instance_id.n == 0 || instance_id.n >= GUEST_ID_MAX) {
        return NULL;
    }
    struct guest *g = compute_guest(c, arena_cstr(a, instance_id));
    return g && g->is_seen ? g : NULL;
}

static void take_volume(struct compute *c, struct arena *a, const struct view_entry *e)
{
    const struct volume *v = e->obj;
    struct guest *g = v ? guest_of(c, a, v->instance_id) : NULL;
    if (g && str_eqc(v->account, g->account)) {
        guest_disk_spec(g, v, obj_at(c, key_status(a, "volume", v->account, v->id)),
                        obj_at(c, key_status(a, "attachment", v->account, v->id)));
    }
}

static void take_eni(struct compute *c, struct arena *a, const struct view_entry *e)
{
    const struct eni *n = e->obj;
    struct guest *g = n ? guest_of(c, a, n->instance_id) : NULL;
    if (!g || !str_eqc(n->account, g->account) || str_eqc(n->want, "deleted") ||
        n->id.n >= GM_NAME_MAX || g->n_nics == GM_N_NICS) {
        return;
    }
    const struct eni_status *st = obj_at(c, key_status(a, "eni", n->account, n->id));
    struct guest_nic nic = {.index = n->device_index};
    (void)snprintf(nic.id, sizeof(nic.id), "%.*s", STR_ARG(n->id));
    nic.is_ready = st && str_eqc(st->state, "ready") && st->generation >= n->generation;
    if (st && str_eqc(st->state, "error") && st->generation >= n->generation) {
        (void)snprintf(nic.trouble, sizeof(nic.trouble), "%.*s",
                       STR_ARG(st->reason.n ? st->reason : STR("error")));
    }
    unsigned at = g->n_nics++;
    for (; at > 0 && g->nic[at - 1].index > nic.index; at--) {
        g->nic[at] = g->nic[at - 1];
    }
    g->nic[at] = nic;
}

static void take_all(struct compute *c, struct arena *a, const char *kind,
                     void (*take)(struct compute *, struct arena *, const struct view_entry *))
{
    struct str prefix = key_spec_prefix(a, kind, STR_NONE);
    omap_foreach_prefix(n, view_map(c->view), prefix)
    {
        take(c, a, omap_value(n));
    }
}

/* Records that awsgw has forgotten (an hour after the end): so do we. A guest that still runs
 * without a record is left alone: the store may come back. */
static void drop_unseen(struct compute *c)
{
    struct guest *gone = NULL;
    do {
        gone = NULL;
        omap_foreach_prefix(n, c->guests, STR(""))
        {
            struct guest *g = omap_value(n);
            bool is_idle = g->proc == VM_PROC_NONE && !g->is_adopting && !g->is_launching &&
                           !g->is_writing && !g->is_looking;
            if (!g->is_seen && is_idle) {
                gone = g;
                break;
            }
            if (!g->is_seen && g->proc != VM_PROC_NONE) {
                log_warn_rl("guest.without_record", KV_CSTR("id", g->id));
            }
        }
        if (gone) {
            log_info("instance.forgotten", KV_CSTR("id", gone->id));
            guest_data_remove(&c->spawn.dirs, gone->id);
            (void)omap_remove(c->guests, str_c(gone->id));
            guest_free(gone);
        }
    } while (gone);
}

static void pass(struct compute *c)
{
    AUTO(arena_freep) struct arena *a = arena_new(PASS_ARENA);
    omap_foreach_prefix(n, c->guests, STR(""))
    {
        struct guest *g = omap_value(n);
        g->is_seen = false;
        g->n_nics = 0;
        guest_disks_begin(g);
    }
    view_lock(c->view);
    take_all(c, a, "instance", take_instance);
    take_all(c, a, "volume", take_volume);
    take_all(c, a, "eni", take_eni);
    bool has_facts = view_get(c->view, arena_fmt(a, "node/%s/facts", c->o.cfg->node)) != NULL;
    view_unlock(c->view);
    if (!has_facts && c->is_facts_written && loop_now_ns(c->o.loop) > c->facts_ns + DRIFT_NS) {
        c->is_facts_written = false;
    }
    omap_foreach_prefix(n, c->guests, STR(""))
    {
        struct guest *g = omap_value(n);
        if (!g->is_seen && g->spec) {
            view_unref(g->spec);
            g->spec = NULL; /* nothing is wanted of it: it is left as it is */
        }
    }
    drop_unseen(c);
    omap_foreach_prefix(n, c->guests, STR(""))
    {
        guest_step(omap_value(n));
    }
}

static void on_poke(void *ctx)
{
    struct compute *c = ctx;
    atomic_store(&c->is_poked, false);
    if (!atomic_load(&c->is_stopping) && c->view) {
        pass(c);
    }
}

void compute_poke(struct compute *c)
{
    if (!atomic_exchange(&c->is_poked, true)) {
        loop_post(c->o.loop, on_poke, c);
    }
}

static void on_change(void *ctx, const struct view_entry *old, const struct view_entry *now)
{
    (void)old;
    (void)now;
    compute_poke(ctx);
}

static void on_sync(void *ctx, uint64_t rev)
{
    struct compute *c = ctx;
    atomic_store(&c->synced_rev, rev);
    compute_poke(c);
}

void compute_reap_later(struct compute *c, const struct proc_id *monitor, const char *id)
{
    struct old_monitor old = {.monitor = *monitor};
    (void)snprintf(old.id, sizeof(old.id), "%s", id);
    vec_push(&c->old, old);
}

/* Only by their numbers: other children belong to the threads that started them. A monitor of an
 * earlier life of this service is init's to collect: it is only waited for. */
static void reap(struct compute *c)
{
    for (size_t i = c->old.n; i > 0; i--) {
        const struct old_monitor *o = &c->old.v[i - 1];
        pid_t r = waitpid(o->monitor.pid, NULL, WNOHANG);
        if (r == 0 || (r < 0 && proc_is_alive(&o->monitor))) {
            continue;
        }
        const struct guest *g = compute_guest(c, o->id);
        if (!g || (g->proc == VM_PROC_NONE && !g->is_launching)) {
            spawn_forget(o->id);
        }
        vec_remove(&c->old, i - 1);
    }
}

static void on_tick(void *ctx)
{
    struct compute *c = ctx;
    loop_timer_set(c->tick, loop_now_ns(c->o.loop) + TICK_NS);
    reap(c);
    if (!c->is_facts_written && !c->is_facts_writing && loop_now_ns(c->o.loop) >= c->facts_ns) {
        store_write_facts(c);
    }
    omap_foreach_prefix(n, c->guests, STR(""))
    {
        guest_step(omap_value(n));
    }
}

/* ---- start and end ---- */

/* Data of instances that nobody knows any more: what was forgotten while this service was not
 * there. Young folders are left: the store may only be late. */
static void sweep_data(struct compute *c)
{
    char path[GUEST_DATA_PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/compute", c->o.cfg->data_dir);
    DIR *dir = opendir(path);
    if (!dir) {
        return;
    }
    const struct dirent *e;
    while ((e = readdir(dir))) {
        char one[GUEST_DATA_PATH_MAX];
        struct stat st;
        if (!guest_id_is_ok(str_c(e->d_name)) || compute_guest(c, e->d_name) ||
            guest_data_path(&c->spawn.dirs, e->d_name, one, NULL) < 0 || stat(one, &st) < 0) {
            continue;
        }
        if (time_wall_ns() / NS_PER_S > (uint64_t)st.st_mtim.tv_sec + STALE_DATA_S) {
            guest_data_remove(&c->spawn.dirs, e->d_name);
        }
    }
    closedir(dir);
}

static int open_view(struct compute *c, struct err *err)
{
    static const struct view_ops ops = {
        .parse = model_parse, .free = model_free, .on_change = on_change, .on_sync = on_sync};
    char facts[128];
    (void)snprintf(facts, sizeof(facts), "node/%s/facts", c->o.cfg->node);
    const char *const prefixes[] = {
        "spec/instance/", "spec/volume/",       "spec/eni/",   "status/instance/",
        "status/volume/", "status/attachment/", "status/eni/", facts};
    return view_open(c->o.kv, prefixes, ARRAY_LEN(prefixes), &ops, c, OPEN_TIMEOUT_NS, &c->view,
                     err);
}

static int make_folders(const struct compute_opts *o, struct err *err)
{
    char path[GUEST_DATA_PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/guest", o->cfg->run_dir);
    int r = file_mkdirs(path, 0711, err);
    if (r == 0) {
        (void)snprintf(path, sizeof(path), "%s/compute", o->cfg->data_dir);
        r = file_mkdirs(path, 0700, err);
    }
    return r;
}

int compute_new(const struct compute_opts *o, struct compute **ret, struct err *err)
{
    int r = make_folders(o, err);
    if (r < 0) {
        return r;
    }
    struct compute *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    c->o = *o;
    c->spawn = (struct spawn_host){
        .dirs = {.run_dir = o->cfg->run_dir, .data_dir = o->cfg->data_dir},
        .monitor_path = o->monitor_path,
        .qemu_path = o->qemu_path,
        .uid_base = o->cfg->uid_base,
        .boot_id = o->host->boot_id,
        .kvm_gid = o->host->is_kvm ? o->host->kvm.gid : 0,
    };
    c->guests = omap_new();
    c->pool = pool_new("compute", POOL_THREADS, POOL_QUEUE);
    c->write_pool = pool_new("compute-write", WRITE_THREADS, POOL_QUEUE);
    AUTO(arena_freep) struct arena *a = arena_new(1u << 16);
    c->block = rpc_client_new(config_run_path(a, o->cfg, "viperblock.sock"), NULL, NULL);
    c->net = rpc_client_new(config_run_path(a, o->cfg, "vpcd.sock"), NULL, NULL);
    c->tick = loop_timer_new(o->loop, on_tick, c);
    r = open_view(c, err);
    if (r == 0) {
        r = compute_rpc_start(c, err);
    }
    if (r < 0) {
        compute_free(c);
        return r;
    }
    pass(c);
    sweep_data(c);
    spawn_sweep();
    loop_timer_set(c->tick, loop_now_ns(o->loop) + 1);
    *ret = c;
    return 0;
}

static void free_guest(void *g)
{
    guest_free(g);
}

static void free_last(void *c)
{
    free(c);
}

void compute_free(struct compute *c)
{
    if (!c) {
        return;
    }
    atomic_store(&c->is_stopping, true);
    rpc_server_free(c->rpc);
    loop_timer_free(c->tick);
    pool_free(c->pool);
    pool_free(c->write_pool);
    if (c->view) {
        view_close(c->view);
    }
    rpc_client_free(c->block);
    rpc_client_free(c->net);
    omap_free(c->guests, free_guest);
    vec_free(&c->old);
    /* What jobs and the view have posted still lies before the loop, and is run when it is
     * freed: it finds no guest any more, and the struct itself goes behind the last of it. */
    loop_post(c->o.loop, free_last, c);
}
