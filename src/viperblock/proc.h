/* proc.h — data processes (spx-viperblock-data): started, spoken with, found again, ended.
 * Not here: which volumes they have open (vols.h), what their messages mean (blk/ctl.h).
 * Threads:  calls block and are for pool threads (not the loop's); call-backs run on the loop's
 *           thread and must not block.
 * Memory:   a struct proc is one process and one connection to it, counted: a process that is
 *           started again is a new one. Messages given to call-backs are borrowed.
 * Errors:   -EPIPE "ProcessGone"; -ETIMEDOUT "Timeout"; else what the process answered, with
 *           its name and text ("DataFailed" when the name is none that we know).
 *
 * Each has a folder <run>/<name>: ctl.sock, pid (os/proc_id.h), the sockets that it serves. It
 * outlives the manager, which finds it again by that folder. What it says is checked
 * (ctl_check()) and believed for its own volumes only; one that breaks the protocol is
 * ended. */
#pragma once
#include "base/str.h"
#include "blk/ctl.h"
#include "loop/loop.h"

struct procs;
struct proc;

struct proc_ops {
    /* FETCH, UPLOAD, SNAP_DONE, DISK_STATE. */
    void (*on_message)(void *ctx, struct proc *p, const union ctl_msg *m);
    /* It is gone (once; not after proc_quit()). 'wait_status' as of waitpid(2), -1 = not
     * known. */
    void (*on_gone)(void *ctx, struct proc *p, int wait_status);
};
struct procs_opts {
    struct loop *loop;
    const char *run_dir; /* made, mode 0711 */
    const char *exe;     /* of spx-viperblock-data */
    const struct proc_ops *ops;
    void *ctx;
};
MUST_CHECK int procs_new(const struct procs_opts *o, struct procs **ret, struct err *err);
/* On the loop's thread while the loop does not run; no call may be under way. The processes
 * live on. */
void procs_free(struct procs *ps);
/* Every call that waits ends with -EPIPE from now on. */
void procs_stop(struct procs *ps);
const char *procs_dir(const struct procs *ps);
/* Calls fn for every folder of a process. */
MUST_CHECK int procs_each_folder(struct procs *ps, void (*fn)(void *ctx, const char *name),
                                 void *ctx, struct err *err);

/* Starts one. 'n_rings': io_uring rings that it makes before it locks itself up. */
MUST_CHECK int proc_start(struct procs *ps, const char *name, unsigned n_rings,
                          struct proc **ret, struct err *err);
/* Connects to one that runs. -ESRCH "NoSuchProcess": there is none (one that did not answer was
 * ended). */
MUST_CHECK int proc_adopt(struct procs *ps, const char *name, struct proc **ret,
                          struct err *err);
/* When the service ends: those that 'is_idle' says nobody needs are told to end and waited for.
 * Not beside calls; the loop need not run. */
void procs_quit_idle(struct procs *ps, bool (*is_idle)(void *ctx, struct proc *p), void *ctx);
/* Ends it cleanly when it is up and removes its folder. Does not take the reference. */
void proc_quit(struct proc *p);
/* Removes the folder of a process that is gone. */
void proc_forget(struct procs *ps, const char *name);
/* SIGKILL, to exactly this process. */
void proc_end(struct proc *p);

struct proc *proc_ref(struct proc *p);
void proc_unref(struct proc *p);
const char *proc_name(const struct proc *p);
bool proc_is_up(struct proc *p);
pid_t proc_pid(const struct proc *p);
unsigned proc_n_disks(const struct proc *p);  /* that it had open when it was met */
uint64_t proc_start_ns(const struct proc *p); /* monotonic, 0 = adopted */

struct proc_answer {
    struct ctl_result result;
    int fds[CTL_MAX_FDS]; /* given to the caller */
    size_t n_fds;
};
/* Sends a request and waits for its RESULT. 'ret' may be NULL. */
MUST_CHECK int proc_call(struct proc *p, union ctl_msg *m, const int *fds, size_t n_fds,
                         uint64_t timeout_ns, struct proc_answer *ret, struct err *err);
/* A message without an answer (FETCHED, STORED), or one whose RESULT nobody waits for. */
MUST_CHECK int proc_send(struct proc *p, union ctl_msg *m);
/* The same for the loop's thread: once, without waiting. */
MUST_CHECK int proc_try(struct proc *p, union ctl_msg *m);

/* Slots, BLK_BLOCK bytes: copied, never looked at in place (the other side may change them at
 * any time). */
MUST_CHECK int proc_slot_read(struct proc *p, uint32_t slot, void *buf);
MUST_CHECK int proc_slot_write(struct proc *p, uint32_t slot, const void *buf);
