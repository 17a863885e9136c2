/* proc_id.h — a process that outlives us, known again by pid and start time, so that nothing
 * else is ever signalled.
 * Not here: starting it (loop/child).
 * Threads:  no state.
 * Memory:   pidfds are given to the caller.
 * Errors:   -ESRCH: that process is gone (another may have its pid). */
#pragma once
#include "base/err.h"
#include <sys/types.h>

/* Writes "pid start-time" to the file. */
MUST_CHECK int proc_id_save(const char *path, pid_t pid, struct err *err);
/* Opens the process that the file names. */
MUST_CHECK int proc_id_open(const char *path, pid_t *ret_pid, int *ret_pidfd, struct err *err);
