/* caller.h — the environment that the person behind sudo has: sudo hands on little of it.
 * Not here: who that is (profile.h).
 * Threads:  none of its own.
 * Memory:   into the caller's buffer.
 * Errors:   none: what cannot be read is not set. */
#pragma once
#include "base/str.h"

/* The variable of this process, or else of the nearest sudo above it as long as $SUDO_USER is set
 * (only root reads that). False when it is not set, empty, or longer than the buffer. */
bool caller_env(const char *name, char *ret, size_t size);
/* NAME=VALUE, each ended by a NUL. Borrows; STR_NONE. Pure. */
struct str caller_find(struct str vars, const char *name);
/* What /proc/PID/stat says: the program is "sudo"; the process above (0: none). Pure. */
bool caller_is_sudo(struct str stat, unsigned *ret_parent);
