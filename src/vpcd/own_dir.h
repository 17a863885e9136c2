/* own_dir.h — folders of vpcd below the run folder, which other services may write to as well.
 * Not here: what is kept there.
 * Threads:  no state.
 * Memory:   none.
 * Errors:   "BadOwner": somebody else made it: what lies in it (pids that we signal, keys)
 *           cannot be trusted. */
#pragma once
#include "base/err.h"
#include <sys/types.h>

/* Makes 'path' (its parent must exist) with that mode, whatever the umask; it must be a real folder
 * of ours that nobody else may write to. */
MUST_CHECK int own_dir(const char *path, mode_t mode, struct err *err);
