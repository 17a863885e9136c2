/* proc_id.h — a process named for ever: its pid and the time it started, in memory or in a file,
 * so that nothing else is ever signalled.
 * Not here: starting it (loop/child.h).
 * Threads:  no state.
 * Memory:   pidfds are given to the caller.
 * Errors:   -ESRCH: no such process, or its pid belongs to another one now. */
#pragma once
#include "base/err.h"
#include "base/macro.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_id {
    pid_t pid;      /* 0 = none */
    uint64_t start; /* clock ticks after boot, field 22 of /proc/<pid>/stat */
};

MUST_CHECK int proc_id_of(pid_t pid, struct proc_id *ret);
/* A pidfd of exactly this process. */
MUST_CHECK int proc_open(const struct proc_id *id, int *ret_pidfd);
bool proc_is_alive(const struct proc_id *id); /* a zombie is not alive */
/* SIGKILL to exactly this process. */
int proc_kill(const struct proc_id *id);

/* Writes "pid start-time" to the file, for whoever comes after us. */
MUST_CHECK int proc_id_save(const char *path, pid_t pid, struct err *err);
/* Opens the process that the file names; -ESRCH "NoSuchProcess" also when it is a zombie. */
MUST_CHECK int proc_id_open(const char *path, pid_t *ret_pid, int *ret_pidfd, struct err *err);

/* Exposed for tests: the text of /proc/<pid>/stat. */
MUST_CHECK int proc_parse_stat(struct str text, uint64_t *ret_start, char *ret_state);
