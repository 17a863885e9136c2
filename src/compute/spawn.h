/* spawn.h — starts a guest (monitor, and QEMU through it), and finds it again.
 * Not here: deciding to (vm_fsm.h), opening volumes and interfaces (launch.c), talking to the
 *           monitor (guest_mon.c).
 * Threads:  any (pool threads: it waits for processes); one call per instance at a time.
 * Memory:   a plan is borrowed; its descriptors stay the caller's.
 * Errors:   on failure nothing is left: no process, no run folder. */
#pragma once
#include "compute/guest_dir.h"
#include "compute/qemu_args.h"
#include "loop/child.h"

struct spawn_host {
    struct guest_dirs dirs;
    const char *monitor_path; /* of spx-guestmon */
    const char *qemu_path;    /* of QEMU; NULL = by name in PATH */
    uint64_t uid_base;        /* 0 = nobody changes users */
    const char *boot_id;
    gid_t kvm_gid; /* group that may open /dev/kvm; 0 = none is needed */
};

struct spawn_plan {
    struct guest_note note; /* id, account, arch, accel, uid_slot are set */
    /* descriptors are those of this process; sockets, files and paths are set here */
    struct qemu_launch qemu;
};

/* Starts the monitor. Gives the connection to it and completes the note (which is on disk
 * then). */
MUST_CHECK int spawn_guest(const struct spawn_host *h, struct spawn_plan *plan,
                           int *ret_conn_fd, struct err *err);

enum spawn_found {
    SPAWN_NOTHING,   /* no run folder, or one of an earlier boot */
    SPAWN_CONNECTED, /* the monitor answers (the guest runs or has ended) */
    SPAWN_GONE,      /* monitor and QEMU are gone */
};
/* After a restart of the service or the death of a monitor. QEMU without a monitor gets a new
 * one. */
MUST_CHECK int spawn_adopt(const struct spawn_host *h, const char *id, enum spawn_found *ret,
                           struct guest_note *ret_note, int *ret_conn_fd, struct err *err);
/* SIGKILL to monitor and QEMU, whatever they say of themselves: all processes of the guest's
 * control group; without one, those that are ours beyond doubt. */
void spawn_kill_all(const struct spawn_host *h, const struct guest_note *note);
/* The guest's control group, when nothing is left in it. */
void spawn_forget(const char *id);
/* All such groups. */
void spawn_sweep(void);
/* SIGKILL to a QEMU that nobody else can end, when it is ours beyond doubt. */
void spawn_kill(const struct spawn_host *h, const struct guest_note *note);

uid_t spawn_uid(const struct spawn_host *h, uint64_t uid_slot);
