/* fault.h — the door to the file system for rooms that store: every call that can lose data.
 * Not here: whole small files (file.h), the simulator itself (fault_sim.h, tests only).
 * Threads:  with fs == NULL each function is its system call; with a simulator, any thread.
 * Memory:   nothing is kept; descriptors belong to the caller, who closes them (AUTO_FD).
 * Errors:   negative errno, nothing logged. Reads and writes are whole: short counts and EINTR are
 *           dealt with here. A sync that failed is never called again: what it should have
 *           written may be gone while the cache still shows it. Fault the drive instead.
 *
 * 'fs' is NULL in a service: a direct call. A test passes a simulator, which fails the n-th call
 * and cuts the power. Names have no '/': a caller holds the descriptor of the folder, so that a
 * rename stays in one folder and nothing follows a path. */
#pragma once
#include "base/macro.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum fault_op {
    FAULT_OPEN_ROOT,
    FAULT_OPEN_DIR,
    FAULT_OPEN,
    FAULT_PREAD,
    FAULT_PWRITE,
    FAULT_TRUNCATE,
    FAULT_ALLOCATE,
    FAULT_PUNCH,
    FAULT_FDATASYNC,
    FAULT_FSYNC,
    FAULT_SYNC_DIR,
    FAULT_RENAME,
    FAULT_UNLINK,
    FAULT_RMDIR,
    FAULT_MKDIR,
    FAULT_OP_N
};

/* One call, as an implementation of the door sees it. */
struct fault_call {
    enum fault_op op;
    int fd; /* the file; for names, the folder */
    int flags;
    mode_t mode;
    const char *name, *new_name;
    void *p; /* reads */
    const struct iovec *iov;
    int n_iov;
    uint64_t off, n;
};

struct fault_fs {
    int64_t (*call)(struct fault_fs *fs, const struct fault_call *c);
};

/* The system call itself, once; a short count is possible. For implementations of the door. */
int64_t fault_direct(const struct fault_call *c);

/* An absolute path, or one from the working folder: where a drive begins. Gives a descriptor. */
MUST_CHECK int fault_open_root(struct fault_fs *fs, const char *path);
MUST_CHECK int fault_open_dir(struct fault_fs *fs, int dir, const char *name);
/* 'flags': O_RDONLY, O_WRONLY or O_RDWR with any of O_CREAT, O_EXCL, O_TRUNC, O_DIRECT; others are
 * -EINVAL. O_CLOEXEC and O_NOFOLLOW are always there. */
MUST_CHECK int fault_open(struct fault_fs *fs, int dir, const char *name, int flags,
                          mode_t mode);

/* Reads until 'n' bytes or the end of the file; returns how many. */
MUST_CHECK ssize_t fault_pread(struct fault_fs *fs, int fd, void *p, size_t n, uint64_t off);
/* Only what is in memory: returns how many of the first bytes are, -EAGAIN when none (or when the
 * file system cannot tell); 0 at the end of the file. */
MUST_CHECK ssize_t fault_pread_nowait(struct fault_fs *fs, int fd, void *p, size_t n,
                                      uint64_t off);
/* Writes all bytes. On failure any part of them may have been written. */
MUST_CHECK int fault_pwrite(struct fault_fs *fs, int fd, const void *p, size_t n, uint64_t off);
MUST_CHECK int fault_pwritev(struct fault_fs *fs, int fd, const struct iovec *iov, int n_iov,
                             uint64_t off);
MUST_CHECK int fault_truncate(struct fault_fs *fs, int fd, uint64_t size);
/* Reserves space; 'is_grown': the size grows too, and the new bytes read as zeros. */
MUST_CHECK int fault_allocate(struct fault_fs *fs, int fd, uint64_t off, uint64_t n,
                              bool is_grown);
/* The range reads as zeros and its space is free; the size stays. */
MUST_CHECK int fault_punch(struct fault_fs *fs, int fd, uint64_t off, uint64_t n);

/* Data and size; the name in its folder is another matter: fault_sync_dir(). */
MUST_CHECK int fault_fdatasync(struct fault_fs *fs, int fd);
MUST_CHECK int fault_fsync(struct fault_fs *fs, int fd);
/* The names in folder 'dir': those made, replaced and removed. */
MUST_CHECK int fault_sync_dir(struct fault_fs *fs, int dir);

/* Replaces 'new_name' if it is there. */
MUST_CHECK int fault_rename(struct fault_fs *fs, int dir, const char *name,
                            const char *new_name);
MUST_CHECK int fault_unlink(struct fault_fs *fs, int dir, const char *name);
MUST_CHECK int fault_rmdir(struct fault_fs *fs, int dir, const char *name);
MUST_CHECK int fault_mkdir(struct fault_fs *fs, int dir, const char *name, mode_t mode);
