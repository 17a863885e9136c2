/* file.h — whole files and folders, safely.
 * Not here: data files of the storage rooms (they go through fault.h).
 * Threads:  no state.
 * Memory:   file_read() gives bytes that the caller frees.
 * Errors:   negative errno with *err set ("OpenFailed", "ReadFailed", "WriteFailed"). */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <sys/types.h>

/* Reads at most max_size bytes (-EFBIG when there are more); the bytes end in an extra NUL. */
MUST_CHECK int file_read(const char *path, size_t max_size, char **ret, size_t *ret_n,
                         struct err *err);
/* Replaces 'path' in one step: temporary file, fsync, rename, fsync of the folder. */
MUST_CHECK int file_write_atomic(const char *path, struct str data, mode_t mode,
                                 struct err *err);
/* Makes the folder and its parents ('mode' for those it makes); fine when it is there. */
MUST_CHECK int file_mkdirs(const char *path, mode_t mode, struct err *err);
/* Writes all bytes. */
MUST_CHECK int file_write_all(int fd, const void *p, size_t n);
/* fsync of the folder that holds 'path'. */
MUST_CHECK int file_sync_parent(const char *path, struct err *err);
