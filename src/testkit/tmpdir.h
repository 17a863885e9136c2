/* tmpdir.h — a folder for one test, and its removal with everything in it.
 * Not here: anything a service uses.
 * Threads:  any.
 * Memory:   struct tmpdir is a plain value of the caller.
 * Errors:   none: a test without its folder is ended with a message. */
#pragma once
#include "base/macro.h"
#include <limits.h>

struct tmpdir {
    char path[64]; /* short: socket paths have 107 bytes */
};

/* Makes $TMPDIR/spx-NAME-XXXXXX (mode 0700); /tmp when TMPDIR is unset or long. */
void tmpdir_init(struct tmpdir *t, const char *name);
/* Removes it and everything below (following no link, crossing no mount). Kept, and its name
 * printed, when SPX_TEST_KEEP is set. */
void tmpdir_done(struct tmpdir *t);
/* "PATH/name" into 'buf'; returns buf. */
const char *tmpdir_path(const struct tmpdir *t, const char *name, char buf[PATH_MAX]);
/* Writes a file into it (mode 0600); 'buf' receives its path. Returns buf. */
const char *tmpdir_write(const struct tmpdir *t, const char *name, const char *text,
                         char buf[PATH_MAX]);
