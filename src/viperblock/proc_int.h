/* proc_int.h — what proc.c and proc_start.c share.
 * Not here: the door (proc.h).
 * Threads:  'io' and 'watch' belong to the loop's thread; 'mu' guards what is marked.
 * Memory, errors: proc.h. */
#pragma once
#include "base/vec.h"
#include "viperblock/proc.h"
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

struct waiter {
    uint32_t seq;
    bool is_done;
    struct proc_answer *answer;
};

struct procs {
    struct procs_opts o;
    char run_dir[PATH_MAX], exe[PATH_MAX];
    atomic_uint seq;
    atomic_bool is_stopping;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    VEC(struct proc *) v; /* GUARDED_BY(mu): those that are up, a reference each */
};

struct proc {
    struct procs *ps;
    char name[BLK_SNAP_ID];
    atomic_uint refs;
    pid_t pid;
    int pidfd, sock, slots;
    uint64_t start_ns;
    unsigned n_disks;
    bool is_up, is_exited, is_quitting; /* GUARDED_BY(ps->mu) */
    int wait_status;                    /* GUARDED_BY(ps->mu) */
    VEC(struct waiter *) waiters;       /* GUARDED_BY(ps->mu) */
    struct loop_fd *io;
    struct loop_child *watch;
    struct loop_timer *grace; /* between the end of the connection and the end of the process */
};

/* A connected socket, a pid and a pidfd (or -1) become a process: waits for its WELCOME. Takes
 * the descriptors. */
MUST_CHECK int proc_meet(struct procs *ps, const char *name, int sock, pid_t pid, int pidfd,
                         struct proc **ret, struct err *err);
/* "<run>/<name>/<file>"; -ENAMETOOLONG. */
MUST_CHECK int proc_path(const struct procs *ps, const char *name, const char *file,
                         char out[PATH_MAX], struct err *err);
