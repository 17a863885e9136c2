#include "base/test.h"
#include "compute/vm_fsm.h"
#include <stdio.h>

#define S (UINT64_C(1000000000))

static const struct vm_limits lim = VM_LIMITS_DEFAULT;
static const enum instance_state all_states[] = {INSTANCE_PENDING,       INSTANCE_RUNNING,
                                                 INSTANCE_SHUTTING_DOWN, INSTANCE_TERMINATED,
                                                 INSTANCE_STOPPING,      INSTANCE_STOPPED};

/* Rows start at generation 1 (seen) unless 'is_new' (the spec is of generation 2). */
struct row {
    const char *name;
    enum instance_state from;
    bool has_run, is_new;
    struct vm_input in;
    uint64_t now_ns, deadline_ns;
    bool is_asked;
    enum instance_state to;
    unsigned acts; /* VM_ACT_REPORT is checked by the rule: state or generation changed */
    const char *reason;
};

#define IN(...) .in = {.is_connected = true, __VA_ARGS__}

static const struct row rows[] = {
    {"waits for disks", INSTANCE_PENDING, IN(.ready = VM_READY_WAIT), .now_ns = S,
     .to = INSTANCE_PENDING, .reason = ""},
    {"starts when ready", INSTANCE_PENDING, IN(.ready = VM_READY_YES), .now_ns = S,
     .to = INSTANCE_PENDING, .acts = VM_ACT_LAUNCH, .reason = ""},
    {"comes up", INSTANCE_PENDING, IN(.proc = VM_PROC_RUNNING), .now_ns = S,
     .to = INSTANCE_RUNNING, .reason = ""},
    {"first launch fails", INSTANCE_PENDING,
     IN(.ready = VM_READY_FAILED, .end_text = "no disk"), .now_ns = S,
     .to = INSTANCE_TERMINATED, .acts = VM_ACT_ERASE, .reason = "Server.InternalError"},
    {"restart fails", INSTANCE_PENDING, .has_run = true, IN(.ready = VM_READY_FAILED),
     .now_ns = S, .to = INSTANCE_STOPPED, .reason = "Server.InternalError"},
    {"disks come too late", INSTANCE_PENDING, IN(.ready = VM_READY_WAIT), .now_ns = 200 * S,
     .deadline_ns = 121 * S, .to = INSTANCE_TERMINATED, .acts = VM_ACT_ERASE,
     .reason = "Server.InternalError"},
    {"QEMU does not start", INSTANCE_PENDING, IN(.proc = VM_PROC_ENDED, .end = VM_END_FAILED),
     .now_ns = S, .to = INSTANCE_TERMINATED, .acts = VM_ACT_REAP | VM_ACT_ERASE,
     .reason = "Server.InternalError"},
    {"QEMU hangs at start", INSTANCE_PENDING, IN(.proc = VM_PROC_LAUNCHING), .now_ns = 200 * S,
     .deadline_ns = 121 * S, .to = INSTANCE_PENDING, .acts = VM_ACT_QUIT, .reason = ""},
    {"terminated before it ran", INSTANCE_PENDING, .is_new = true,
     IN(.want = VM_WANT_TERMINATED), .now_ns = S, .to = INSTANCE_SHUTTING_DOWN,
     .reason = "Client.UserInitiatedShutdown"},
    {"stopped while it starts", INSTANCE_PENDING, .is_new = true,
     IN(.want = VM_WANT_STOPPED, .proc = VM_PROC_LAUNCHING), .now_ns = S,
     .to = INSTANCE_STOPPING, .reason = "Client.UserInitiatedShutdown"},

    {"runs", INSTANCE_RUNNING, IN(.proc = VM_PROC_RUNNING), .now_ns = S, .to = INSTANCE_RUNNING,
     .reason = ""},
    {"stop", INSTANCE_RUNNING, .is_new = true,
     IN(.want = VM_WANT_STOPPED, .proc = VM_PROC_RUNNING), .now_ns = S, .to = INSTANCE_STOPPING,
     .reason = "Client.UserInitiatedShutdown"},
    {"terminate", INSTANCE_RUNNING, .is_new = true,
     IN(.want = VM_WANT_TERMINATED, .proc = VM_PROC_RUNNING), .now_ns = S,
     .to = INSTANCE_SHUTTING_DOWN, .reason = "Client.UserInitiatedShutdown"},
    {"guest off, behavior stop", INSTANCE_RUNNING,
     IN(.proc = VM_PROC_ENDED, .end = VM_END_GUEST), .now_ns = S, .to = INSTANCE_STOPPED,
     .acts = VM_ACT_REAP, .reason = "Client.InstanceInitiatedShutdown"},
    {"guest off, behavior terminate", INSTANCE_RUNNING,
     IN(.proc = VM_PROC_ENDED, .end = VM_END_GUEST, .is_terminate_on_shutdown = true),
     .now_ns = S, .to = INSTANCE_TERMINATED, .acts = VM_ACT_REAP | VM_ACT_ERASE,
     .reason = "Client.InstanceInitiatedShutdown"},
    {"crash", INSTANCE_RUNNING,
     IN(.proc = VM_PROC_ENDED, .end = VM_END_CRASH, .is_terminate_on_shutdown = true),
     .now_ns = S, .to = INSTANCE_STOPPED, .acts = VM_ACT_REAP,
     .reason = "Server.InternalError"},
    {"vanished", INSTANCE_RUNNING, IN(.proc = VM_PROC_NONE), .now_ns = S,
     .to = INSTANCE_STOPPED, .reason = "Server.InternalError"},
    {"host restarted, wants to run", INSTANCE_RUNNING, .has_run = true, IN(.is_new_boot = true),
     .now_ns = S, .to = INSTANCE_PENDING, .reason = ""},
    {"host restarted, was to stop", INSTANCE_RUNNING, .is_new = true,
     IN(.want = VM_WANT_STOPPED, .is_new_boot = true), .now_ns = S, .to = INSTANCE_STOPPING,
     .reason = "Client.UserInitiatedShutdown"},
    {"reboot asked", INSTANCE_RUNNING, .is_new = true,
     IN(.proc = VM_PROC_RUNNING, .n_reboots = 1), .now_ns = S, .to = INSTANCE_RUNNING,
     .acts = VM_ACT_REBOOT, .reason = ""},

    {"presses the button", INSTANCE_STOPPING,
     IN(.want = VM_WANT_STOPPED, .proc = VM_PROC_RUNNING), .now_ns = S, .deadline_ns = 61 * S,
     .to = INSTANCE_STOPPING, .acts = VM_ACT_POWERDOWN, .reason = ""},
    {"no button without a monitor", INSTANCE_STOPPING,
     .in = {.want = VM_WANT_STOPPED, .proc = VM_PROC_RUNNING}, .now_ns = S,
     .deadline_ns = 61 * S, .to = INSTANCE_STOPPING, .reason = ""},
    {"waits for the guest", INSTANCE_STOPPING,
     IN(.want = VM_WANT_STOPPED, .proc = VM_PROC_RUNNING), .now_ns = 30 * S,
     .deadline_ns = 61 * S, .is_asked = true, .to = INSTANCE_STOPPING, .reason = ""},
    {"the limit is over", INSTANCE_STOPPING,
     IN(.want = VM_WANT_STOPPED, .proc = VM_PROC_RUNNING), .now_ns = 62 * S,
     .deadline_ns = 61 * S, .is_asked = true, .to = INSTANCE_STOPPING, .acts = VM_ACT_QUIT,
     .reason = ""},
    {"force", INSTANCE_STOPPING,
     IN(.want = VM_WANT_STOPPED, .is_forced = true, .proc = VM_PROC_RUNNING), .now_ns = S,
     .deadline_ns = 61 * S, .to = INSTANCE_STOPPING, .acts = VM_ACT_QUIT, .reason = ""},
    {"force after a polite stop", INSTANCE_STOPPING, .is_new = true,
     IN(.want = VM_WANT_STOPPED, .is_forced = true, .proc = VM_PROC_RUNNING), .now_ns = 5 * S,
     .deadline_ns = 61 * S, .is_asked = true, .to = INSTANCE_STOPPING, .acts = VM_ACT_QUIT,
     .reason = ""},
    {"stopped", INSTANCE_STOPPING,
     IN(.want = VM_WANT_STOPPED, .proc = VM_PROC_ENDED, .end = VM_END_GUEST), .now_ns = S,
     .to = INSTANCE_STOPPED, .acts = VM_ACT_REAP, .reason = ""},
    {"terminate while stopping", INSTANCE_STOPPING, .is_new = true,
     IN(.want = VM_WANT_TERMINATED, .proc = VM_PROC_RUNNING), .now_ns = S,
     .to = INSTANCE_SHUTTING_DOWN, .reason = "Client.UserInitiatedShutdown"},
    {"start while stopping waits", INSTANCE_STOPPING, .is_new = true,
     IN(.proc = VM_PROC_RUNNING), .now_ns = S, .deadline_ns = 61 * S, .is_asked = true,
     .to = INSTANCE_STOPPING, .reason = ""},

    {"stays stopped", INSTANCE_STOPPED, IN(.want = VM_WANT_STOPPED), .now_ns = S,
     .to = INSTANCE_STOPPED, .reason = ""},
    {"held: wanted, but not anew", INSTANCE_STOPPED, IN(.ready = VM_READY_YES), .now_ns = S,
     .to = INSTANCE_STOPPED, .reason = ""},
    {"start", INSTANCE_STOPPED, .is_new = true, IN(.ready = VM_READY_YES), .now_ns = S,
     .to = INSTANCE_PENDING, .reason = ""},
    {"terminate stopped", INSTANCE_STOPPED, .is_new = true, IN(.want = VM_WANT_TERMINATED),
     .now_ns = S, .to = INSTANCE_SHUTTING_DOWN, .reason = "Client.UserInitiatedShutdown"},

    {"nothing left", INSTANCE_SHUTTING_DOWN, IN(.want = VM_WANT_TERMINATED), .now_ns = S,
     .to = INSTANCE_TERMINATED, .acts = VM_ACT_ERASE, .reason = ""},
    {"terminate asks first", INSTANCE_SHUTTING_DOWN,
     IN(.want = VM_WANT_TERMINATED, .proc = VM_PROC_RUNNING), .now_ns = S,
     .deadline_ns = 21 * S, .to = INSTANCE_SHUTTING_DOWN, .acts = VM_ACT_POWERDOWN,
     .reason = ""},
    {"terminate does not wait long", INSTANCE_SHUTTING_DOWN,
     IN(.want = VM_WANT_TERMINATED, .proc = VM_PROC_RUNNING), .now_ns = 22 * S,
     .deadline_ns = 21 * S, .is_asked = true, .to = INSTANCE_SHUTTING_DOWN, .acts = VM_ACT_QUIT,
     .reason = ""},
    {"terminated is for ever", INSTANCE_TERMINATED, .is_new = true, IN(.ready = VM_READY_YES),
     .now_ns = S, .to = INSTANCE_TERMINATED, .reason = ""},
};

static void test_rows(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *r = &rows[i];
        struct vm_fsm f;
        vm_fsm_init(&f);
        f.state = r->from;
        f.generation = 1;
        f.has_run = r->has_run;
        f.deadline_ns = r->deadline_ns;
        f.is_asked = r->is_asked;
        struct vm_input in = r->in;
        in.generation = r->is_new ? 2 : 1;
        unsigned acts = vm_fsm_step(&f, &in, &lim, r->now_ns);
        unsigned want = r->acts | (r->from != r->to || r->is_new ? VM_ACT_REPORT : 0);
        if (f.state != r->to || acts != want || strcmp(f.reason_code, r->reason) != 0) {
            fail_msg("%s: %s acts %x (want %x) reason \"%s\"", r->name,
                     instance_state_name(f.state), acts, want, f.reason_code);
        }
        assert_int_equal(f.generation, in.generation);
    }
}

/* A step that changed nothing but itself does nothing when it is repeated at once. */
static void check_settles(struct vm_fsm f, const struct vm_input *in, uint64_t now_ns)
{
    for (unsigned i = 0; i < 6; i++) {
        enum instance_state before = f.state;
        unsigned acts = vm_fsm_step(&f, in, &lim, now_ns);
        if (i >= 4) {
            assert_int_equal(f.state, before);
            /* The shell repeats a launch or a collection until the input shows it: these are
             * level-triggered too. */
            assert_int_equal(acts & ~(unsigned)(VM_ACT_REAP | VM_ACT_LAUNCH), 0);
        }
    }
}

/* Every state with every input: no step leaves what AWS allows, and none can be talked out of
 * its end. */
static void test_all_combinations(void **state)
{
    unsigned n = 0;
    for (size_t s = 0; s < ARRAY_LEN(all_states); s++) {
        for (unsigned bits = 0; bits < 1u << 13; bits++) {
            const struct vm_input in = {
                .want = (enum vm_want)(bits % 3),
                .proc = (enum vm_proc)((bits >> 2) & 3),
                .end = (enum vm_end)((bits >> 4) & 3),
                .ready = (enum vm_ready)(((bits >> 6) & 3) % 3),
                .is_forced = bits >> 8 & 1,
                .is_terminate_on_shutdown = bits >> 9 & 1,
                .is_connected = bits >> 10 & 1,
                .is_new_boot = bits >> 11 & 1,
                .generation = 5 + (bits >> 12 & 1),
                .n_reboots = bits >> 9 & 1,
            };
            struct vm_fsm f;
            vm_fsm_init(&f);
            f.state = all_states[s];
            f.generation = 5;
            const struct vm_fsm before = f;
            unsigned acts = vm_fsm_step(&f, &in, &lim, 10 * S);
            bool is_alive = in.proc == VM_PROC_RUNNING || in.proc == VM_PROC_LAUNCHING;
            if (before.state == INSTANCE_TERMINATED) {
                assert_int_equal(f.state, INSTANCE_TERMINATED);
            }
            /* Never two QEMUs. */
            assert_true(!(acts & VM_ACT_LAUNCH) ||
                        (in.proc == VM_PROC_NONE && f.state == INSTANCE_PENDING));
            /* No instance is called off while its QEMU is there. */
            if (is_alive && f.state != before.state) {
                assert_true(f.state != INSTANCE_STOPPED && f.state != INSTANCE_TERMINATED);
            }
            /* What ended is collected as soon as its end has been told. */
            assert_true(!(acts & VM_ACT_REAP) || in.proc == VM_PROC_ENDED);
            /* Nobody is stopped against the user's will without a reason. */
            if (f.state == INSTANCE_STOPPED && before.state != INSTANCE_STOPPED &&
                in.want == VM_WANT_RUNNING && before.state != INSTANCE_STOPPING) {
                assert_true(f.reason_code[0] != '\0' && f.reason_message[0] != '\0');
            }
            if (f.state != before.state || f.generation != before.generation) {
                assert_true(acts & VM_ACT_REPORT);
            }
            /* Buttons only when there is somebody to press them. */
            if (acts & (VM_ACT_POWERDOWN | VM_ACT_REBOOT | VM_ACT_RESET)) {
                assert_true(in.proc == VM_PROC_RUNNING && in.is_connected);
            }
            check_settles(f, &in, 10 * S);
            n++;
        }
    }
    assert_int_equal(n, 6 * 8192);
}

/* From any state, a terminated want ends in terminated, whatever QEMU does, within the limits. */
static void test_terminate_always_ends(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(all_states); s++) {
        for (unsigned deaf = 0; deaf < 2; deaf++) {
            struct vm_fsm f;
            vm_fsm_init(&f);
            f.state = all_states[s];
            struct vm_input in = {.want = VM_WANT_TERMINATED,
                                  .generation = 3,
                                  .is_connected = true,
                                  .proc = VM_PROC_RUNNING};
            if (f.state == INSTANCE_STOPPED || f.state == INSTANCE_TERMINATED) {
                in.proc = VM_PROC_NONE;
            }
            uint64_t now = S;
            for (;
                 now < 100 * S && !(f.state == INSTANCE_TERMINATED && in.proc == VM_PROC_NONE);
                 now += S) {
                unsigned acts = vm_fsm_step(&f, &in, &lim, now);
                if (acts & VM_ACT_REAP) {
                    in.proc = VM_PROC_NONE;
                } else if ((acts & VM_ACT_QUIT) || (!deaf && (acts & VM_ACT_POWERDOWN))) {
                    in.proc = VM_PROC_ENDED;
                    in.end = VM_END_QUIT;
                }
            }
            assert_int_equal(f.state, INSTANCE_TERMINATED);
            assert_true(now < 30 * S);
        }
    }
}

static void test_reboot_polite_then_hard(void **state)
{
    struct vm_fsm f;
    vm_fsm_init(&f);
    f.state = INSTANCE_RUNNING;
    f.generation = 1;
    struct vm_input in = {.proc = VM_PROC_RUNNING,
                          .is_connected = true,
                          .generation = 2,
                          .n_reboots = 1,
                          .n_reboots_done = 7};
    assert_int_equal(vm_fsm_step(&f, &in, &lim, S), VM_ACT_REPORT | VM_ACT_REBOOT);
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 2 * S), 0);
    in.n_reboots_done = 8;
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 3 * S), VM_ACT_REPORT);
    assert_int_equal(f.n_reboots, 1);
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 4 * S), 0);
    /* Two more are asked for at once: one restart answers both. This guest does not listen. */
    in.n_reboots = 3;
    in.generation = 4;
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 5 * S), VM_ACT_REPORT | VM_ACT_REBOOT);
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 244 * S), 0);
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 246 * S), VM_ACT_RESET);
    in.n_reboots_done = 9;
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 247 * S), VM_ACT_REPORT);
    assert_int_equal(f.n_reboots, 3);
    /* A new monitor counts from 0: what was asked is asked again. */
    in.n_reboots = 4;
    in.generation = 5;
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 300 * S), VM_ACT_REPORT | VM_ACT_REBOOT);
    vm_fsm_ask_again(&f);
    in.n_reboots_done = 0;
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 301 * S), VM_ACT_REBOOT);
    in.n_reboots_done = 1;
    assert_int_equal(vm_fsm_step(&f, &in, &lim, 302 * S), VM_ACT_REPORT);
    assert_int_equal(f.n_reboots, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_all_combinations),
        cmocka_unit_test(test_terminate_always_ends),
        cmocka_unit_test(test_reboot_polite_then_hard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
