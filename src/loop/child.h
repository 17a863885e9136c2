/* child.h — starts a program with exactly the descriptors, user and environment it shall have.
 * Not here: watching it (loop_child_watch()), restarting it (spx up).
 * Threads:  any. With 'death_signal' the child dies with the THREAD that started it: use a
 *           thread that lives as long as the process.
 * Memory:   options are borrowed until child_spawn() returns; descriptors stay the caller's.
 * Errors:   whatever fails in the child up to and including exec comes back here: "SpawnFailed"
 *           names the step. No zombie is left then. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CHILD_MAX_FDS 64
#define CHILD_MAX_FD  255 /* largest number that a passed descriptor may get */

/* A descriptor of this process and the number it gets in the child (3 ... CHILD_MAX_FD, each
 * once). */
struct child_fd {
    int fd, target;
};

/* Zero means the safe default everywhere. */
struct child_opts {
    /* NULL-terminated; argv[0] without '/' is looked up in PATH, a relative path in 'cwd' */
    const char *const *argv;
    const char *path;           /* program to run when it is not argv[0] */
    const char *const *env;     /* NULL-terminated; NULL = child_env_minimal */
    bool is_env_inherited;      /* the environment of this process instead */
    const char *cwd;            /* NULL = "/" */
    int in_fd;                  /* 0 = /dev/null */
    int out_fd, err_fd;         /* 0 = /dev/null; 1 and 2 = those of this process */
    const struct child_fd *fds; /* everything that is not named here is closed */
    size_t n_fds;
    bool is_user_set; /* drop to uid, gid and exactly these supplementary groups (none when
                         n_groups is 0) */
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    bool has_new_session;  /* setsid(): a group of its own, no terminal */
    bool has_no_new_privs; /* PR_SET_NO_NEW_PRIVS */
    bool has_no_core;      /* RLIMIT_CORE = 0: guest memory and keys do not reach the disk */
    int death_signal;      /* PR_SET_PDEATHSIG, 0 = none */
    int netns_fd; /* 0 = stay; else enter this network namespace (before the user is dropped) */
    int cgroup_procs_fd;  /* 0 = stay; else an open cgroup.procs (before the user is dropped) */
    uint64_t max_files;   /* RLIMIT_NOFILE (soft and hard), 0 = as it is */
    bool may_lock_memory; /* RLIMIT_MEMLOCK without end: io_uring counts its rings against it */
};

/* PATH and LANG=C.UTF-8. */
extern const char *const child_env_minimal[];

/* Returns when the program runs. The child starts with all signals open and at their defaults.
 */
MUST_CHECK int child_spawn(const struct child_opts *o, pid_t *ret_pid, struct err *err);

/* Blocks (pool threads): runs the program to its end with a death signal of SIGKILL. Its
 * standard output goes to 'out' (NULL = nowhere; output past the limit of 'out' is -EFBIG
 * "TooMuchOutput"), the last line of its standard error into the message of a failure.
 * -ETIMEDOUT "Timeout": it was killed. Returns 0 only when it exited with 0; -EIO
 * "CommandFailed" otherwise. out_fd and err_fd are not used. */
MUST_CHECK int child_run(const struct child_opts *o, uint64_t timeout_ns, struct buf *out,
                         struct err *err);
