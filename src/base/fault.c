#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OPEN_ALLOWED (O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_DIRECT)

static int64_t direct_name(const struct fault_call *c)
{
    const int dir_flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    switch (c->op) {
    case FAULT_OPEN_ROOT: return open(c->name, dir_flags);
    case FAULT_OPEN_DIR: return openat(c->fd, c->name, dir_flags | O_NOFOLLOW);
    case FAULT_OPEN:
        return openat(c->fd, c->name, c->flags | O_CLOEXEC | O_NOFOLLOW, (unsigned)c->mode);
    case FAULT_RENAME: return renameat(c->fd, c->name, c->fd, c->new_name);
    case FAULT_UNLINK: return unlinkat(c->fd, c->name, 0);
    case FAULT_RMDIR: return unlinkat(c->fd, c->name, AT_REMOVEDIR);
    default: return mkdirat(c->fd, c->name, c->mode);
    }
}

static int64_t direct_fd(const struct fault_call *c)
{
    off_t off = (off_t)c->off, n = (off_t)c->n;
    switch (c->op) {
    case FAULT_PREAD:
        if (c->flags) { /* RWF_NOWAIT */
            const struct iovec iov = {c->p, c->n};
            return preadv2(c->fd, &iov, 1, off, c->flags);
        }
        return pread(c->fd, c->p, c->n, off);
    case FAULT_PWRITE:
        return c->n_iov == 1 ? pwrite(c->fd, c->iov[0].iov_base, c->iov[0].iov_len, off)
                             : pwritev(c->fd, c->iov, c->n_iov, off);
    case FAULT_TRUNCATE: return ftruncate(c->fd, n);
    case FAULT_ALLOCATE:
    case FAULT_PUNCH: return fallocate(c->fd, c->flags, off, n);
    case FAULT_FDATASYNC: return fdatasync(c->fd);
    default: return fsync(c->fd);
    }
}

int64_t fault_direct(const struct fault_call *c)
{
    bool has_name = c->name != NULL;
    int64_t r = has_name ? direct_name(c) : direct_fd(c);
    return r < 0 ? -(int64_t)errno : r;
}

static int64_t call_once(struct fault_fs *fs, const struct fault_call *c)
{
    return fs ? fs->call(fs, c) : fault_direct(c);
}

/* Interrupted calls are tried again, but never a sync: who cannot say that it was done has to be
 * taken for failed. */
static int64_t call(struct fault_fs *fs, const struct fault_call *c)
{
    for (;;) {
        int64_t r = call_once(fs, c);
        bool is_sync =
            c->op == FAULT_FDATASYNC || c->op == FAULT_FSYNC || c->op == FAULT_SYNC_DIR;
        if (r != -EINTR || is_sync) {
            return r;
        }
    }
}

static bool is_name(const char *name)
{
    return name && name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static bool is_range(uint64_t off, uint64_t n)
{
    return off <= INT64_MAX && n <= INT64_MAX - off;
}

static int name_call(struct fault_fs *fs, const struct fault_call *c)
{
    return is_name(c->name) ? (int)call(fs, c) : -EINVAL;
}

static int fd_call(struct fault_fs *fs, const struct fault_call *c)
{
    return is_range(c->off, c->n) ? (int)call(fs, c) : -EINVAL;
}

int fault_open_root(struct fault_fs *fs, const char *path)
{
    return (int)call(fs, &(struct fault_call){.op = FAULT_OPEN_ROOT, .fd = -1, .name = path});
}

int fault_open_dir(struct fault_fs *fs, int dir, const char *name)
{
    return name_call(fs, &(struct fault_call){.op = FAULT_OPEN_DIR, .fd = dir, .name = name});
}

int fault_open(struct fault_fs *fs, int dir, const char *name, int flags, mode_t mode)
{
    if (flags & ~OPEN_ALLOWED) {
        return -EINVAL;
    }
    return name_call(
        fs, &(struct fault_call){
                .op = FAULT_OPEN, .fd = dir, .name = name, .flags = flags, .mode = mode});
}

ssize_t fault_pread(struct fault_fs *fs, int fd, void *p, size_t n, uint64_t off)
{
    if (!is_range(off, n)) {
        return -EINVAL;
    }
    size_t done = 0;
    while (done < n) {
        int64_t r = call(fs, &(struct fault_call){.op = FAULT_PREAD,
                                                  .fd = fd,
                                                  .p = (char *)p + done,
                                                  .n = n - done,
                                                  .off = off + done});
        if (r < 0) {
            return (ssize_t)r;
        }
        if (r == 0) {
            break;
        }
        done += (size_t)r;
    }
    return (ssize_t)done;
}

ssize_t fault_pread_nowait(struct fault_fs *fs, int fd, void *p, size_t n, uint64_t off)
{
    if (!is_range(off, n)) {
        return -EINVAL;
    }
    /* Once: a short count is where memory ends. */
    int64_t r = call(
        fs, &(struct fault_call){
                .op = FAULT_PREAD, .fd = fd, .flags = RWF_NOWAIT, .p = p, .n = n, .off = off});
    return r == -EOPNOTSUPP ? -EAGAIN : (ssize_t)r;
}

int fault_pwrite(struct fault_fs *fs, int fd, const void *p, size_t n, uint64_t off)
{
    if (!is_range(off, n)) {
        return -EINVAL;
    }
    size_t done = 0;
    while (done < n) {
        struct iovec iov;
        const char *from = (const char *)p + done;
        memcpy(&iov.iov_base, &from, sizeof(from)); /* a write does not change it */
        iov.iov_len = n - done;
        int64_t r = call(fs, &(struct fault_call){.op = FAULT_PWRITE,
                                                  .fd = fd,
                                                  .iov = &iov,
                                                  .n_iov = 1,
                                                  .n = iov.iov_len,
                                                  .off = off + done});
        if (r <= 0) {
            return r < 0 ? (int)r : -EIO;
        }
        done += (size_t)r;
    }
    return 0;
}

int fault_pwritev(struct fault_fs *fs, int fd, const struct iovec *iov, int n_iov, uint64_t off)
{
    if (n_iov < 0 || n_iov > IOV_MAX) {
        return -EINVAL;
    }
    uint64_t n = 0;
    for (int i = 0; i < n_iov; i++) {
        n += iov[i].iov_len;
    }
    if (!is_range(off, n)) {
        return -EINVAL;
    }
    if (n == 0) {
        return 0;
    }
    int64_t r = call(
        fs, &(struct fault_call){
                .op = FAULT_PWRITE, .fd = fd, .iov = iov, .n_iov = n_iov, .n = n, .off = off});
    if (r <= 0) {
        return r < 0 ? (int)r : -EIO;
    }
    /* The rest of a short write, piece by piece: rare, so simple. */
    uint64_t done = (uint64_t)r, at = 0;
    for (int i = 0; i < n_iov; i++) {
        size_t len = iov[i].iov_len;
        if (at + len > done) {
            size_t skip = done > at ? (size_t)(done - at) : 0;
            int w = fault_pwrite(fs, fd, (const char *)iov[i].iov_base + skip, len - skip,
                                 off + at + skip);
            if (w < 0) {
                return w;
            }
        }
        at += len;
    }
    return 0;
}

int fault_truncate(struct fault_fs *fs, int fd, uint64_t size)
{
    return fd_call(fs, &(struct fault_call){.op = FAULT_TRUNCATE, .fd = fd, .n = size});
}

int fault_allocate(struct fault_fs *fs, int fd, uint64_t off, uint64_t n, bool is_grown)
{
    return fd_call(fs, &(struct fault_call){.op = FAULT_ALLOCATE,
                                            .fd = fd,
                                            .flags = is_grown ? 0 : FALLOC_FL_KEEP_SIZE,
                                            .off = off,
                                            .n = n});
}

int fault_punch(struct fault_fs *fs, int fd, uint64_t off, uint64_t n)
{
    return fd_call(fs, &(struct fault_call){.op = FAULT_PUNCH,
                                            .fd = fd,
                                            .flags = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                            .off = off,
                                            .n = n});
}

int fault_fdatasync(struct fault_fs *fs, int fd)
{
    return fd_call(fs, &(struct fault_call){.op = FAULT_FDATASYNC, .fd = fd});
}

int fault_fsync(struct fault_fs *fs, int fd)
{
    return fd_call(fs, &(struct fault_call){.op = FAULT_FSYNC, .fd = fd});
}

int fault_sync_dir(struct fault_fs *fs, int dir)
{
    return fd_call(fs, &(struct fault_call){.op = FAULT_SYNC_DIR, .fd = dir});
}

int fault_rename(struct fault_fs *fs, int dir, const char *name, const char *new_name)
{
    if (!is_name(new_name)) {
        return -EINVAL;
    }
    return name_call(fs,
                     &(struct fault_call){
                         .op = FAULT_RENAME, .fd = dir, .name = name, .new_name = new_name});
}

int fault_unlink(struct fault_fs *fs, int dir, const char *name)
{
    return name_call(fs, &(struct fault_call){.op = FAULT_UNLINK, .fd = dir, .name = name});
}

int fault_rmdir(struct fault_fs *fs, int dir, const char *name)
{
    return name_call(fs, &(struct fault_call){.op = FAULT_RMDIR, .fd = dir, .name = name});
}

int fault_mkdir(struct fault_fs *fs, int dir, const char *name, mode_t mode)
{
    return name_call(
        fs, &(struct fault_call){.op = FAULT_MKDIR, .fd = dir, .name = name, .mode = mode});
}
