/* cgroup.h — a control group for each guest: ending a service's group never ends a guest.
 * Not here: limits of services (systemd), accounting.
 * Threads:  no state; any.
 * Memory:   fills buffers of the caller.
 * Errors:   -ENOENT "NoCgroup": there are none that we may use; guests then stay in the
 *           service's group. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <sys/types.h>

#define CGROUP_PATH_MAX 512
#define CGROUP_N_TREES  2

/* Makes <tree>/<slice>/<name> in the tree that systemd tracks processes in (cgroup2, else v1's
 * name=systemd) and opens its cgroup.procs for child_spawn(). Names are of letters, digits, '-'
 * and '.'. Gives the descriptor. */
MUST_CHECK int cgroup_make(const char *slice, const char *name, int *ret_procs_fd,
                           struct err *err);
/* SIGKILL to all processes in the group, until there are none (some rounds: they may start
 * others). Nobody but root puts processes there. Returns how many were found, or negative errno. */
int cgroup_kill(const char *slice, const char *name, struct err *err);
/* Removes all groups of the slice that are empty. */
void cgroup_sweep(const char *slice);
/* Removes the group when it is empty. */
void cgroup_remove(const char *slice, const char *name);

/* Exposed for tests: reads lines of /proc/self/mounts; paths of the trees, "" when absent. */
void cgroup_trees(struct str mounts, char ret[CGROUP_N_TREES][CGROUP_PATH_MAX]);
