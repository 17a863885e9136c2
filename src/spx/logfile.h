/* logfile.h — a log file that is rotated by size: NAME.log, NAME.log.1, ...
 * Not here: what is in it.
 * Threads:  belongs to one thread.
 * Memory:   logfile_new() gives, logfile_free() takes.
 * Errors:   a line that cannot be written (full disk) is dropped and counted; nothing stops. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdint.h>

struct logfile;

/* 'n_old' older files are kept. */
MUST_CHECK int logfile_new(const char *path, uint64_t max_size, unsigned n_old,
                           struct logfile **ret, struct err *err);
void logfile_free(struct logfile *l); /* NULL is fine */
void logfile_add(struct logfile *l, struct str bytes);
uint64_t logfile_n_dropped(const struct logfile *l); /* bytes */
