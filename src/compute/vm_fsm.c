#include "compute/vm_fsm.h"
#include <assert.h>
#include <stdio.h>

#define CODE_NONE     ""
#define CODE_INTERNAL "Server.InternalError"
#define CODE_GUEST    "Client.InstanceInitiatedShutdown"
#define CODE_USER     "Client.UserInitiatedShutdown"

void vm_fsm_init(struct vm_fsm *f)
{
    *f = (struct vm_fsm){.state = INSTANCE_PENDING, .reason_code = CODE_NONE};
}

static void set_reason(struct vm_fsm *f, const char *code, const char *message)
{
    f->reason_code = code;
    (void)snprintf(f->reason_message, sizeof(f->reason_message), "%s", message ? message : "");
}

static unsigned enter(struct vm_fsm *f, enum instance_state to, uint64_t deadline_ns)
{
    f->state = to;
    f->deadline_ns = deadline_ns;
    f->is_asked = false;
    f->is_rebooting = false;
    return VM_ACT_REPORT;
}

static unsigned enter_pending(struct vm_fsm *f, const struct vm_limits *lim, uint64_t now_ns)
{
    set_reason(f, CODE_NONE, "");
    return enter(f, INSTANCE_PENDING, now_ns + lim->launch_ns);
}

static unsigned enter_stopping(struct vm_fsm *f, const struct vm_limits *lim, uint64_t now_ns)
{
    set_reason(f, CODE_USER, CODE_USER ": User initiated shutdown");
    return enter(f, INSTANCE_STOPPING, now_ns + lim->stop_ns);
}

static unsigned enter_shutting_down(struct vm_fsm *f, const struct vm_limits *lim,
                                    uint64_t now_ns)
{
    set_reason(f, CODE_USER, CODE_USER ": User initiated shutdown");
    return enter(f, INSTANCE_SHUTTING_DOWN, now_ns + lim->terminate_ns);
}

static unsigned enter_terminated(struct vm_fsm *f)
{
    return enter(f, INSTANCE_TERMINATED, 0) | VM_ACT_ERASE;
}

/* The end of QEMU while the user wanted it to run. */
static unsigned ended_alone(struct vm_fsm *f, const struct vm_input *in)
{
    char text[VM_REASON_MAX];
    if (in->end == VM_END_GUEST) {
        set_reason(f, CODE_GUEST, CODE_GUEST ": Instance initiated shutdown");
        return in->is_terminate_on_shutdown ? enter_terminated(f)
                                            : enter(f, INSTANCE_STOPPED, 0);
    }
    f->n_crashes++;
    (void)snprintf(text, sizeof(text), CODE_INTERNAL ": %s",
                   in->end_text && *in->end_text ? in->end_text
                                                 : "the virtual machine ended unexpectedly");
    set_reason(f, CODE_INTERNAL, text);
    return enter(f, INSTANCE_STOPPED, 0);
}

/* AWS: an instance whose first launch fails is terminated; one that ran before is stopped
 * again. */
static unsigned launch_failed(struct vm_fsm *f, const char *why)
{
    char text[VM_REASON_MAX];
    (void)snprintf(text, sizeof(text), CODE_INTERNAL ": Internal error on launch%s%s",
                   why && *why ? ": " : "", why ? why : "");
    set_reason(f, CODE_INTERNAL, text);
    return f->has_run ? enter(f, INSTANCE_STOPPED, 0) : enter_terminated(f);
}

static unsigned step_pending(struct vm_fsm *f, const struct vm_input *in,
                             const struct vm_limits *lim, uint64_t now_ns)
{
    if (!f->deadline_ns) { /* first sight, or the service restarted */
        f->deadline_ns = now_ns + lim->launch_ns;
    }
    if (in->want == VM_WANT_TERMINATED) {
        return enter_shutting_down(f, lim, now_ns);
    }
    if (in->want == VM_WANT_STOPPED) {
        return enter_stopping(f, lim, now_ns);
    }
    switch (in->proc) {
    case VM_PROC_RUNNING:
        f->n_starts++;
        f->has_run = true;
        f->n_reboots =
            in->n_reboots; /* a fresh start is as good as any reboot asked for before it */
        set_reason(f, CODE_NONE, "");
        return enter(f, INSTANCE_RUNNING, 0);
    case VM_PROC_ENDED: return launch_failed(f, in->end_text) | VM_ACT_REAP;
    case VM_PROC_LAUNCHING:
        /* What was begun is ended, and shows up as ENDED. */
        if (now_ns >= f->deadline_ns) {
            f->deadline_ns = now_ns + lim->again_ns;
            return VM_ACT_QUIT;
        }
        return 0;
    default: break;
    }
    if (in->ready == VM_READY_YES) {
        f->deadline_ns = now_ns + lim->launch_ns;
        return VM_ACT_LAUNCH;
    }
    if (in->ready == VM_READY_FAILED || now_ns >= f->deadline_ns) {
        return launch_failed(f, in->end_text);
    }
    return 0;
}

static unsigned step_reboot(struct vm_fsm *f, const struct vm_input *in,
                            const struct vm_limits *lim, uint64_t now_ns)
{
    if (f->is_rebooting && in->n_reboots_done > f->reboots_base) {
        f->is_rebooting = false;
        f->is_asked = false;
        f->deadline_ns = 0;
        f->n_reboots = f->reboots_target;
        return VM_ACT_REPORT;
    }
    bool is_there = in->is_connected && in->proc == VM_PROC_RUNNING;
    if (!is_there || (!f->is_rebooting && in->n_reboots <= f->n_reboots)) {
        return 0;
    }
    if (!f->is_rebooting) {
        f->is_rebooting = true;
        f->reboots_base = in->n_reboots_done;
        f->deadline_ns = now_ns + lim->reboot_ns;
    }
    f->reboots_target = in->n_reboots;
    if (!f->is_asked) {
        f->is_asked = true;
        return VM_ACT_REBOOT;
    }
    if (now_ns >= f->deadline_ns) {
        f->deadline_ns = now_ns + lim->again_ns;
        return VM_ACT_RESET;
    }
    return 0;
}

static unsigned step_running(struct vm_fsm *f, const struct vm_input *in,
                             const struct vm_limits *lim, uint64_t now_ns)
{
    if (in->proc == VM_PROC_NONE && in->is_new_boot) {
        /* The host was restarted: what wants to run starts again. */
        if (in->want == VM_WANT_RUNNING) {
            return enter_pending(f, lim, now_ns);
        }
        return in->want == VM_WANT_STOPPED ? enter_stopping(f, lim, now_ns)
                                           : enter_shutting_down(f, lim, now_ns);
    }
    if (in->want == VM_WANT_TERMINATED) {
        return enter_shutting_down(f, lim, now_ns);
    }
    if (in->want == VM_WANT_STOPPED) {
        return enter_stopping(f, lim, now_ns);
    }
    if (in->proc == VM_PROC_ENDED) {
        return ended_alone(f, in) | VM_ACT_REAP;
    }
    if (in->proc == VM_PROC_NONE) {
        struct vm_input gone = *in;
        gone.end = VM_END_CRASH;
        gone.end_text = "the virtual machine vanished";
        return ended_alone(f, &gone);
    }
    return step_reboot(f, in, lim, now_ns);
}

/* Common to stopping and shutting-down: the button, then the limit, then the end. Returns true
 * when QEMU is gone. */
static bool wind_down(struct vm_fsm *f, const struct vm_input *in, const struct vm_limits *lim,
                      uint64_t limit_ns, uint64_t now_ns, unsigned *acts)
{
    if (in->proc == VM_PROC_NONE) {
        return true;
    }
    if (in->proc == VM_PROC_ENDED) {
        *acts |= VM_ACT_REAP;
        return true;
    }
    if (!f->deadline_ns) {
        f->deadline_ns = now_ns + limit_ns;
    }
    bool is_over = in->is_forced || in->proc == VM_PROC_LAUNCHING;
    if (is_over && !f->is_asked) {
        f->is_asked = true;
        f->deadline_ns = now_ns + lim->again_ns;
        *acts |= VM_ACT_QUIT;
    } else if (now_ns >= f->deadline_ns) {
        f->deadline_ns = now_ns + lim->again_ns;
        *acts |= VM_ACT_QUIT;
    } else if (!f->is_asked && in->is_connected) {
        f->is_asked = true;
        *acts |= VM_ACT_POWERDOWN;
    }
    return false;
}

static unsigned step_stopping(struct vm_fsm *f, const struct vm_input *in,
                              const struct vm_limits *lim, uint64_t now_ns, bool is_spec_new)
{
    unsigned acts = 0;
    if (in->want == VM_WANT_TERMINATED) {
        return enter_shutting_down(f, lim, now_ns);
    }
    if (is_spec_new && in->is_forced) {
        f->is_asked = false; /* the second stop, with force, does not wait for the first */
    }
    if (wind_down(f, in, lim, lim->stop_ns, now_ns, &acts)) {
        acts |= enter(f, INSTANCE_STOPPED, 0);
    }
    return acts;
}

static unsigned step_shutting_down(struct vm_fsm *f, const struct vm_input *in,
                                   const struct vm_limits *lim, uint64_t now_ns)
{
    unsigned acts = 0;
    if (wind_down(f, in, lim, lim->terminate_ns, now_ns, &acts)) {
        acts |= enter_terminated(f);
    }
    return acts;
}

static unsigned step_stopped(struct vm_fsm *f, const struct vm_input *in,
                             const struct vm_limits *lim, uint64_t now_ns, bool is_spec_new)
{
    if (in->want == VM_WANT_TERMINATED) {
        return enter_shutting_down(f, lim, now_ns);
    }
    /* A guest that switched itself off, crashed or would not start stays off until the user
     * asks again. */
    if (in->want == VM_WANT_RUNNING && is_spec_new) {
        return enter_pending(f, lim, now_ns);
    }
    return 0;
}

unsigned vm_fsm_step(struct vm_fsm *f, const struct vm_input *in, const struct vm_limits *lim,
                     uint64_t now_ns)
{
    assert(in->want < VM_WANT_N && in->proc < VM_PROC_N);
    unsigned acts = 0;
    /* Also an older one: the store was put back, and what it wants now has not been answered. */
    bool is_spec_new = in->generation != f->generation;
    if (is_spec_new) {
        f->generation = in->generation;
        acts |= VM_ACT_REPORT;
    }
    switch (f->state) {
    case INSTANCE_PENDING: acts |= step_pending(f, in, lim, now_ns); break;
    case INSTANCE_RUNNING: acts |= step_running(f, in, lim, now_ns); break;
    case INSTANCE_STOPPING: acts |= step_stopping(f, in, lim, now_ns, is_spec_new); break;
    case INSTANCE_STOPPED: acts |= step_stopped(f, in, lim, now_ns, is_spec_new); break;
    case INSTANCE_SHUTTING_DOWN: acts |= step_shutting_down(f, in, lim, now_ns); break;
    case INSTANCE_TERMINATED: break;
    }
    /* What is left of a QEMU in a state that has none is collected. */
    bool is_off = f->state == INSTANCE_STOPPED || f->state == INSTANCE_TERMINATED;
    if (is_off && in->proc == VM_PROC_ENDED) {
        acts |= VM_ACT_REAP;
    }
    if (is_off && (in->proc == VM_PROC_RUNNING || in->proc == VM_PROC_LAUNCHING) &&
        now_ns >= f->deadline_ns) {
        f->deadline_ns = now_ns + lim->again_ns;
        acts |= VM_ACT_QUIT;
    }
    return acts;
}

void vm_fsm_ask_again(struct vm_fsm *f)
{
    f->is_asked = false;
    f->is_rebooting = false; /* counters of another monitor start at 0 */
}
