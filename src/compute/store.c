/* What guests are, written to the store; and what this host is. One write of a guest at a time,
 * in order. */
#include "base/log.h"
#include "base/time.h"
#include "compute/compute_int.h"
#include "model/keys.h"
#include "model/node.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

LOG_MODULE("compute.store");

#define RETRY_NS    (UINT64_C(1) * NS_PER_S)
#define CONFLICT_NS (UINT64_C(50) * NS_PER_MS)
#define FACTS_NS    (UINT64_C(2) * NS_PER_S)
#define CHECKS_NS   (UINT64_C(1) * NS_PER_S)
#define GRACE_NS    (UINT64_C(300) * NS_PER_S) /* a guest may take so long to start its network */

/* ---- status checks ---- */

static void set_check(struct guest *g, char *check, size_t size, const char *now)
{
    if (strcmp(check, now) != 0) {
        (void)snprintf(check, size, "%s", now);
        guest_mark(g);
    }
}

/* The system check: QEMU is there and answers QMP. The
 * instance check: a driver of the guest runs its first network interface and the link is up;
 * "initializing" for GRACE_NS after the start (and after the last time it was fine: a reboot),
 * "impaired" after that, and at once when the guest's kernel says that it panicked. */
void guest_checks(struct guest *g, uint64_t now_ns)
{
    const char *system = "not-applicable", *instance = "not-applicable";
    if (g->fsm.state == g->checked_state && now_ns < g->checks_ns) {
        return;
    }
    g->checked_state = g->fsm.state;
    g->checks_ns = now_ns + CHECKS_NS;
    if (g->fsm.state == INSTANCE_RUNNING) {
        bool is_sound = g->has_state && g->mon.is_qmp_ok;
        bool is_net_ok =
            g->n_nics == 0 || (g->mon.is_driver_ok && (!g->is_link_known || g->is_link_up));
        system = is_sound ? "ok" : "impaired";
        if (is_sound && is_net_ok && !g->mon.is_panicked) {
            instance = "ok";
            g->fine_ns = now_ns;
        } else {
            bool is_early = now_ns < g->fine_ns + GRACE_NS;
            instance = is_early && !g->mon.is_panicked ? "initializing" : "impaired";
        }
        if (now_ns >= g->link_ns) {
            launch_look_at_link(g);
        }
    } else if (g->fsm.state == INSTANCE_PENDING) {
        system = instance = "initializing";
        g->fine_ns = now_ns;
    }
    set_check(g, g->system_check, sizeof(g->system_check), system);
    set_check(g, g->instance_check, sizeof(g->instance_check), instance);
    bool is_impaired = strcmp(system, "impaired") == 0 || strcmp(instance, "impaired") == 0;
    if (is_impaired != (g->impaired_since_ns != 0)) {
        g->impaired_since_ns = is_impaired ? time_wall_ns() : 0;
        guest_mark(g);
    }
}

/* ---- status records ---- */

struct write_job {
    struct compute *c;
    char id[GUEST_ID_MAX];
    struct arena *a;
    struct kv_cmp cmp;
    struct kv_op op[1 + GUEST_MAX_DISKS];
    size_t n_op;
    char disk[GUEST_MAX_DISKS][GM_NAME_MAX];
    size_t n_disks;
    uint64_t version;
    int r;
    struct err err;
};

/* The JSON that the store has under the key: its members that we do not know are kept. */
static struct str raw_of(struct write_job *j, struct str key)
{
    struct str raw = STR_NONE;
    view_lock(j->c->view);
    const struct view_entry *e = view_get(j->c->view, key);
    if (e && e->obj) {
        raw = arena_str_dup(j->a, ((const struct rec_head *)e->obj)->raw);
    }
    view_unlock(j->c->view);
    return raw;
}

static void add_op(struct write_job *j, struct str key, const struct rec_desc *d,
                   const void *rec)
{
    AUTO_BUF b;
    buf_init(&b, STATUS_ARENA / 2);
    struct err err = ERR_INIT;
    if (rec_save(d, rec, &b, &err) < 0) {
        log_error("record.failed", KV_STR("key", key), KV_ERR(&err));
        return;
    }
    j->op[j->n_op++] =
        (struct kv_op){.type = KV_PUT, .key = key, .value = arena_str_dup(j->a, buf_str(&b))};
}

static void add_instance(struct guest *g, struct write_job *j)
{
    struct str key = key_status(j->a, "instance", str_c(g->account), str_c(g->id));
    const struct vm_fsm *f = &g->fsm;
    bool is_up = g->proc == VM_PROC_RUNNING || g->proc == VM_PROC_LAUNCHING;
    const struct instance_status st = {
        .head = {.raw = raw_of(j, key)},
        .id = str_c(g->id),
        .generation = f->generation,
        .state = str_c(instance_state_name(f->state)),
        .reason_code = str_c(f->reason_code),
        .reason_message = str_c(f->reason_message),
        .n_reboots = f->n_reboots,
        .n_starts = f->n_starts,
        .n_crashes = f->n_crashes,
        .started_ns = g->started_ns,
        .changed_ns = time_wall_ns(),
        .pid = is_up ? (uint64_t)g->note.qemu.pid : 0,
        .accel = str_c(g->has_note ? g->note.accel : ""),
        .instance_check = str_c(g->instance_check),
        .system_check = str_c(g->system_check),
        .impaired_since_ns = g->impaired_since_ns,
        .boot_id = str_c(g->boot_id),
    };
    add_op(j, key, &instance_status_desc, &st);
}

static void add_disk(struct guest *g, struct guest_disk *d, struct write_job *j)
{
    struct str key = key_status(j->a, "attachment", str_c(g->account), str_c(d->id));
    const struct attachment_status st = {
        .head = {.raw = raw_of(j, key)},
        .volume_id = str_c(d->id),
        .instance_id = str_c(g->id),
        .generation = d->generation,
        .state = str_c(disk_state_names[d->state]),
        .reason = str_c(d->reason),
        .slot = d->slot,
        .changed_ns = time_wall_ns(),
    };
    add_op(j, key, &attachment_status_desc, &st);
    memcpy(j->disk[j->n_disks++], d->id, GM_NAME_MAX);
    d->is_dirty = false;
}

static void write_work(void *ctx)
{
    struct write_job *j = ctx;
    uint64_t rev = 0;
    j->r = kv_txn(j->c->o.kv, &j->cmp, 1, j->op, j->n_op, &rev, &j->err);
}

static void write_done(void *ctx)
{
    struct write_job *j = ctx;
    struct compute *c = j->c;
    c->n_jobs--;
    struct guest *g = compute_guest(c, j->id);
    if (g) {
        uint64_t now_ns = loop_now_ns(c->o.loop);
        g->is_writing = false;
        if (j->r == 0) {
            g->is_dirty = g->version != j->version;
            g->written_ns = now_ns;
            if (g->reap_version && j->version >= g->reap_version) {
                guest_reap(g);
            }
        } else {
            for (size_t i = 0; i < j->n_disks; i++) {
                for (unsigned k = 0; k < GUEST_MAX_DISKS; k++) {
                    g->disk[k].is_dirty |= strcmp(g->disk[k].id, j->disk[i]) == 0;
                }
            }
            /* The spec changed meanwhile: the view brings it, and the answer is made anew. */
            bool is_conflict = j->r == -EAGAIN;
            g->write_retry_ns = now_ns + (is_conflict ? CONFLICT_NS : RETRY_NS);
            if (!is_conflict) {
                log_warn_rl("write.failed", KV_CSTR("id", g->id), KV_ERR(&j->err));
            }
        }
        guest_step(g);
    }
    arena_free(j->a);
    free(j);
}

void store_write(struct guest *g)
{
    struct write_job *j = calloc(1, sizeof(*j));
    if (!j) {
        abort();
    }
    j->c = g->c;
    memcpy(j->id, g->id, sizeof(j->id));
    j->a = arena_new(STATUS_ARENA);
    j->version = g->version;
    /* The answer is to exactly this spec; and a record that awsgw has forgotten is not made
     * again. */
    j->cmp =
        (struct kv_cmp){.key = arena_str_dup(j->a, g->spec->key), .mod_rev = g->spec->mod_rev};
    add_instance(g, j);
    for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
        struct guest_disk *d = &g->disk[i];
        if (d->id[0] && d->is_dirty && d->is_named) {
            add_disk(g, d, j);
        }
    }
    if (pool_submit(g->c->write_pool, write_work, g->c->o.loop, write_done, j) < 0) {
        for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
            g->disk[i].is_dirty = g->disk[i].id[0] != '\0';
        }
        g->write_retry_ns = loop_now_ns(g->c->o.loop) + RETRY_NS;
        arena_free(j->a);
        free(j);
        return;
    }
    g->c->n_jobs++;
    g->is_writing = true;
}

/* ---- facts ---- */

static void facts_work(void *ctx)
{
    struct write_job *j = ctx;
    uint64_t rev = 0;
    j->r = kv_txn(j->c->o.kv, NULL, 0, j->op, j->n_op, &rev, &j->err);
}

static void facts_done(void *ctx)
{
    struct write_job *j = ctx;
    j->c->n_jobs--;
    j->c->is_facts_writing = false;
    if (j->r == 0) {
        j->c->is_facts_written = true;
        log_info("facts.written", KV_STR("accel", j->c->o.host->facts.accel),
                 KV_STR("reason", j->c->o.host->facts.accel_reason),
                 KV_U64("types", j->c->o.host->facts.types.n));
    } else {
        log_warn_rl("facts.failed", KV_ERR(&j->err));
    }
    arena_free(j->a);
    free(j);
}

void store_write_facts(struct compute *c)
{
    struct write_job *j = calloc(1, sizeof(*j));
    if (!j) {
        abort();
    }
    j->c = c;
    j->a = arena_new(STATUS_ARENA);
    struct str key = arena_fmt(j->a, "node/%s/facts", c->o.cfg->node);
    struct node_facts f = c->o.host->facts;
    f.head.raw = raw_of(j, key);
    add_op(j, key, &node_facts_desc, &f);
    c->facts_ns = loop_now_ns(c->o.loop) + FACTS_NS;
    if (pool_submit(c->write_pool, facts_work, c->o.loop, facts_done, j) < 0) {
        arena_free(j->a);
        free(j);
        return;
    }
    c->n_jobs++;
    c->is_facts_writing = true;
}
