/* vm_fsm.h — the life of one instance as AWS shows it, from what is wanted and what is seen.
 *
 *             launch ok            want stopped
 *   pending ─────────────> running ────────────> stopping ──> stopped
 *    │   ^                 │    │                              │ │ ^
 *    │   └─────────────────┼────┼─── want running, newer spec ─┘ │ │
 *    │                     │    └── guest off, crash ────────────┼─┘ (also a failed restart)
 *    │ first launch failed │ want terminated, guest off          │
 *    └────> terminated <── shutting-down <───────────────────────┘
 *
 * Level-triggered: calling it again with the same inputs does nothing new. After a restart of
 * the service the state comes from the status record and the inputs from the world.
 * Not here: I/O, clocks, memory: the shell (guest.c) shows inputs and performs actions.
 * Threads:  plain values.
 * Memory:   plain values.
 * Errors:   none. */
#pragma once
#include "base/str.h"
#include "model/instance.h"
#include <stdbool.h>
#include <stdint.h>

enum vm_want { VM_WANT_RUNNING, VM_WANT_STOPPED, VM_WANT_TERMINATED, VM_WANT_N };

enum vm_proc {
    VM_PROC_NONE,      /* no QEMU, and nothing left of one */
    VM_PROC_LAUNCHING, /* being started: from the first step until the guest runs */
    VM_PROC_RUNNING,
    VM_PROC_ENDED, /* it ended (or the launch failed); its end waits to be collected
                      (VM_ACT_REAP) */
    VM_PROC_N,
};

enum vm_end {
    VM_END_GUEST,  /* the guest switched itself off */
    VM_END_QUIT,   /* we ended it */
    VM_END_CRASH,  /* QEMU ended by itself, or vanished */
    VM_END_FAILED, /* it never came up */
    VM_END_N,
};

enum vm_ready { VM_READY_WAIT, VM_READY_YES, VM_READY_FAILED, VM_READY_N };

struct vm_input {
    /* the spec */
    enum vm_want want;
    bool is_forced, is_terminate_on_shutdown;
    uint64_t generation, n_reboots;
    /* the world */
    enum vm_proc proc;
    enum vm_end end;         /* when proc is ENDED */
    enum vm_ready ready;     /* disks and interfaces for a launch */
    bool is_connected;       /* the monitor can be talked to */
    bool is_new_boot;        /* the state is from before the host's last boot */
    uint64_t n_reboots_done; /* counter of the monitor */
    const char *end_text;    /* why, for people; of ENDED and of READY_FAILED */
};

struct vm_limits {
    uint64_t launch_ns, stop_ns, terminate_ns, reboot_ns, again_ns;
};
#define VM_LIMITS_DEFAULT                                                                   \
    {                                                                                       \
        .launch_ns = UINT64_C(120) * 1000000000, .stop_ns = UINT64_C(60) * 1000000000,      \
        .terminate_ns = UINT64_C(20) * 1000000000, .reboot_ns = UINT64_C(240) * 1000000000, \
        .again_ns = UINT64_C(10) * 1000000000                                               \
    }

enum vm_act {
    VM_ACT_LAUNCH = 1 << 0,
    VM_ACT_POWERDOWN = 1 << 1,
    VM_ACT_QUIT = 1 << 2,
    VM_ACT_REBOOT = 1 << 3,
    VM_ACT_RESET = 1 << 4,
    VM_ACT_REAP = 1 << 5,   /* collect the end of QEMU, remove what it left in the run folder */
    VM_ACT_ERASE = 1 << 6,  /* the instance will never start again: remove its files */
    VM_ACT_REPORT = 1 << 7, /* the status record is to be written */
};

#define VM_REASON_MAX 240
struct vm_fsm {
    enum instance_state state;
    uint64_t generation; /* of the spec that was seen last; a stopped guest starts only when it
                            moves */
    uint64_t n_reboots, n_starts, n_crashes;
    bool has_run;            /* a failed start is then "stopped", not "terminated" */
    const char *reason_code; /* static text, "" = none */
    char reason_message[VM_REASON_MAX];
    /* not persisted */
    uint64_t deadline_ns; /* call again at this time; 0 = none */
    bool is_asked;        /* the power button was pressed for this stop or reboot */
    bool is_rebooting;
    uint64_t reboots_base, reboots_target;
};

/* A new instance. */
void vm_fsm_init(struct vm_fsm *f);
/* Returns the actions (bits of enum vm_act). */
unsigned vm_fsm_step(struct vm_fsm *f, const struct vm_input *in, const struct vm_limits *lim,
                     uint64_t now_ns);
/* The monitor is another one, or answered that it did not do what was asked: ask again. */
void vm_fsm_ask_again(struct vm_fsm *f);
