#include "base/log.h"
#include "base/time.h"
#include "compute/compute_int.h"
#include <stdio.h>
#include <string.h>

LOG_MODULE("compute.guest");

#define MAX_STEPS   8u
#define MAX_QUITS   1u /* after again_ns more, by force from outside */
#define CMD_LATE_NS (UINT64_C(60) * NS_PER_S)

struct guest *guest_new(struct compute *c, const char *id, const char *account)
{
    struct guest *g = calloc(1, sizeof(*g));
    if (!g) {
        abort();
    }
    g->c = c;
    g->conn_fd = -1;
    (void)snprintf(g->id, sizeof(g->id), "%s", id);
    (void)snprintf(g->account, sizeof(g->account), "%s", account);
    (void)snprintf(g->system_check, sizeof(g->system_check), "not-applicable");
    (void)snprintf(g->instance_check, sizeof(g->instance_check), "not-applicable");
    vm_fsm_init(&g->fsm);
    /* What ran before this service did is found by its note. */
    g->is_pending_adopt = true;
    g->version = 1;
    return g;
}

void guest_free(struct guest *g)
{
    guest_disconnect(g);
    view_unref(g->spec);
    view_unref(g->status);
    free(g);
}

const struct instance *guest_spec(const struct guest *g)
{
    return g->spec ? g->spec->obj : NULL;
}

static const char *known_code(struct str code)
{
    static const char *const codes[] = {"Server.InternalError",
                                        "Client.InstanceInitiatedShutdown",
                                        "Client.UserInitiatedShutdown"};
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        if (str_eqc(code, codes[i])) {
            return codes[i];
        }
    }
    return "";
}

void guest_load(struct guest *g, const struct instance_status *st)
{
    struct vm_fsm *f = &g->fsm;
    if (!st || instance_state_parse(st->state, &f->state) < 0) {
        g->is_dirty = true;
        return;
    }
    f->generation = st->generation;
    f->n_reboots = st->n_reboots;
    f->n_starts = st->n_starts;
    f->n_crashes = st->n_crashes;
    f->has_run = st->n_starts > 0;
    f->reason_code = known_code(st->reason_code);
    (void)snprintf(f->reason_message, sizeof(f->reason_message), "%.*s",
                   STR_ARG(st->reason_message));
    (void)snprintf(g->boot_id, sizeof(g->boot_id), "%.*s", STR_ARG(st->boot_id));
    g->started_ns = st->started_ns;
    g->impaired_since_ns = st->impaired_since_ns;
    (void)snprintf(g->system_check, sizeof(g->system_check), "%.*s", STR_ARG(st->system_check));
    (void)snprintf(g->instance_check, sizeof(g->instance_check), "%.*s",
                   STR_ARG(st->instance_check));
    g->is_written_once = true;
}

void guest_mark(struct guest *g)
{
    g->is_dirty = true;
    g->version++;
}

void guest_set_end(struct guest *g, enum vm_end end, const char *text)
{
    g->proc = VM_PROC_ENDED;
    g->end = end;
    (void)snprintf(g->end_text, sizeof(g->end_text), "%s", text);
    log_info("guest.ended", KV_CSTR("id", g->id), KV_U64("end", end),
             KV_CSTR("reason", g->end_text));
}

/* The end is on disk: the monitor may go, and what the run left behind. */
void guest_reap(struct guest *g)
{
    g->reap_version = 0;
    if (g->proc != VM_PROC_ENDED) {
        return;
    }
    if (g->conn_fd >= 0) {
        guest_send_now(g, GM_OP_BYE, STR_NONE);
    }
    guest_disconnect(g);
    g->has_state = false;
    if (g->note.monitor.pid > 0) {
        compute_reap_later(g->c, &g->note.monitor, g->id);
    }
    guest_run_remove(&g->c->spawn.dirs, g->id);
    spawn_forget(g->id);
    g->n_quits = 0;
    memset(&g->note, 0, sizeof(g->note));
    memset(&g->mon, 0, sizeof(g->mon));
    g->has_note = false;
    g->proc = VM_PROC_NONE;
    g->is_quit_due = false;
    g->is_link_known = false;
    compute_poke(g->c);
}

static enum vm_want want_of(struct str want)
{
    if (str_eqc(want, INSTANCE_WANT_TERMINATED)) {
        return VM_WANT_TERMINATED;
    }
    return str_eqc(want, INSTANCE_WANT_STOPPED) ? VM_WANT_STOPPED : VM_WANT_RUNNING;
}

/* Disks, interfaces and the copy of the store are complete enough to start. */
static enum vm_ready ready_of(struct guest *g, char *why, size_t size)
{
    const struct instance *s = guest_spec(g);
    if (atomic_load(&g->c->synced_rev) < g->spec->mod_rev) {
        (void)snprintf(why, size, "the store has not answered");
        return VM_READY_WAIT;
    }
    enum vm_ready disks = guest_disks_ready(g, why, size);
    if (disks != VM_READY_YES) {
        return disks;
    }
    if (g->n_nics == 0 && s->subnet_id.n > 0) {
        (void)snprintf(why, size, "the instance has no network interface");
        return VM_READY_WAIT;
    }
    for (unsigned i = 0; i < g->n_nics; i++) {
        if (g->nic[i].trouble[0]) {
            (void)snprintf(why, size, "network interface %s: %.150s", g->nic[i].id,
                           g->nic[i].trouble);
            return VM_READY_FAILED;
        }
        if (!g->nic[i].is_ready) {
            (void)snprintf(why, size, "the network interface %s was not ready in time",
                           g->nic[i].id);
            return VM_READY_WAIT;
        }
    }
    return VM_READY_YES;
}

static struct vm_input input_of(struct guest *g, char *why, size_t size)
{
    const struct instance *s = guest_spec(g);
    struct vm_input in = {
        .want = want_of(s->want),
        .is_forced = s->is_forced,
        .is_terminate_on_shutdown = str_eqc(s->shutdown_behavior, "terminate"),
        .generation = s->generation,
        .n_reboots = s->n_reboots,
        .proc = g->proc,
        .end = g->end,
        .is_connected = g->conn_fd >= 0 && g->has_state,
        .is_new_boot = strcmp(g->boot_id, g->c->o.host->boot_id) != 0,
        .n_reboots_done = g->mon.n_reboots_done,
        .end_text = why,
    };
    if (g->proc == VM_PROC_ENDED) {
        (void)snprintf(why, size, "%s", g->end_text);
    } else if (g->fsm.state == INSTANCE_PENDING && g->proc == VM_PROC_NONE) {
        in.ready = ready_of(g, why, size);
    }
    return in;
}

static void end_qemu(struct guest *g)
{
    if (g->conn_fd >= 0 && g->n_quits < MAX_QUITS) {
        g->n_quits++;
        guest_send_now(g, GM_OP_QUIT, STR_NONE);
    } else if (g->conn_fd >= 0) {
        /* The monitor was asked and did nothing: it hangs, or it is not ours any more. */
        spawn_kill_all(&g->c->spawn, &g->note);
    } else if (g->is_launching) {
        g->is_quit_due = true;
    } else if (g->has_note) {
        spawn_kill(&g->c->spawn, &g->note);
    }
}

static void act(struct guest *g, unsigned acts)
{
    static const struct {
        enum vm_act act;
        enum gm_op op;
    } asks[] = {{VM_ACT_POWERDOWN, GM_OP_POWERDOWN},
                {VM_ACT_REBOOT, GM_OP_REBOOT},
                {VM_ACT_RESET, GM_OP_RESET}};
    if (acts & VM_ACT_REPORT) {
        guest_mark(g);
    }
    if (acts & VM_ACT_LAUNCH) {
        launch_start(g);
    }
    for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
        if ((acts & asks[i].act) && !guest_command(g, asks[i].op, NULL)) {
            g->again_ns = loop_now_ns(g->c->o.loop) + 200 * NS_PER_MS;
        }
    }
    if (acts & VM_ACT_QUIT) {
        end_qemu(g);
    }
    if (acts & VM_ACT_REAP) {
        g->reap_version = MAX(g->reap_version, g->version);
        g->is_dirty = true;
    }
}

static void step_fsm(struct guest *g, uint64_t now_ns)
{
    char why[VM_REASON_MAX] = "";
    for (unsigned i = 0; i < MAX_STEPS; i++) {
        struct vm_input in = input_of(g, why, sizeof(why));
        enum instance_state before = g->fsm.state;
        unsigned acts = vm_fsm_step(&g->fsm, &in, &g->c->o.limits, now_ns);
        if (g->fsm.state != before) {
            log_info("instance.state", KV_CSTR("id", g->id),
                     KV_CSTR("from", instance_state_name(before)),
                     KV_CSTR("to", instance_state_name(g->fsm.state)),
                     KV_CSTR("reason", g->fsm.reason_message));
            if (g->fsm.state == INSTANCE_RUNNING) {
                g->started_ns = time_wall_ns();
                (void)snprintf(g->boot_id, sizeof(g->boot_id), "%s", g->c->o.host->boot_id);
            }
        }
        act(g, acts);
        if (g->fsm.state == before) {
            break;
        }
    }
}

/* A monitor that does not answer a command for so long is replaced: QEMU keeps running. */
static void check_monitor(struct guest *g, uint64_t now_ns)
{
    if (g->cmd.seq && now_ns > g->cmd.since_ns + CMD_LATE_NS) {
        log_warn("monitor.stuck", KV_CSTR("id", g->id), KV_U64("op", g->cmd.op));
        (void)proc_kill(&g->note.monitor);
        g->cmd.since_ns = now_ns;
    }
}

void guest_step(struct guest *g)
{
    uint64_t now_ns = loop_now_ns(g->c->o.loop);
    if (g->is_pending_adopt && !g->is_adopting && now_ns >= g->adopt_ns) {
        g->is_pending_adopt = false;
        launch_adopt(g);
    }
    if (g->is_adopting || g->is_pending_adopt || !g->spec) {
        return;
    }
    if (g->conn_fd >= 0 && !g->has_state) {
        return; /* what a new monitor has to say comes first */
    }
    guest_disks_assign(g);
    if (g->again_ns && now_ns >= g->again_ns) {
        g->again_ns = 0;
        vm_fsm_ask_again(&g->fsm);
    }
    check_monitor(g, now_ns);
    step_fsm(g, now_ns);
    guest_disks_step(g);
    guest_checks(g, now_ns);
    if (g->is_dirty && !g->is_writing && now_ns >= g->write_retry_ns) {
        store_write(g);
    }
}
