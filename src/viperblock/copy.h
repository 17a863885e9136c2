/* copy.h — bytes of whole volumes: sparse writes, clones, and the guard that keeps the file
 * system from filling up.
 * Not here: where the files lie (folder.h).
 * Threads:  no state; blocks.
 * Memory:   one buffer per thread that copies.
 * Errors:   -ENOSPC "DiskFull" before less than copy_reserve() is left; -EIO "ReadFailed",
 *           "WriteFailed"; -ECANCELED "Cancelled". */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define COPY_BLOCK 262144u

/* Bytes that stay free on a file system of this size: 5 %, at most 1 GiB. */
uint64_t copy_reserve(uint64_t fs_size);
/* 0 when 'need' more bytes can be written to the file system of fd without touching the
 * reserve. */
MUST_CHECK int copy_check_room(int fd, uint64_t need, struct err *err);

/* Writes n bytes at off, skipping runs of zeros (the file is new: what is not written reads as
 * zeros). */
MUST_CHECK int copy_write_sparse(int fd, const char *p, size_t n, uint64_t off,
                                 struct err *err);

/* Makes dst (empty, same file system or not) a copy of the first 'size' bytes of src: shares
 * blocks when the file system can (FICLONE), else copies what is data. 'is_cancelled' may be
 * NULL. */
MUST_CHECK int copy_file(int src, int dst, uint64_t size, bool (*is_cancelled)(void *ctx),
                         void *ctx, struct err *err);
