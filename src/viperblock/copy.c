#include "viperblock/copy.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RESERVE_MAX  (UINT64_C(1) << 30)
#define RESERVE_PART 20u
#define ZERO_BLOCK   4096u
#define CHECK_EVERY  (UINT64_C(16) << 20)

uint64_t copy_reserve(uint64_t fs_size)
{
    return MIN(fs_size / RESERVE_PART, RESERVE_MAX);
}

int copy_check_room(int fd, uint64_t need, struct err *err)
{
    struct statvfs st;
    if (fstatvfs(fd, &st) != 0) {
        return fail(err, -EIO, "ReadFailed", "the free space cannot be asked for: %m");
    }
    uint64_t free_size = (uint64_t)st.f_bavail * st.f_frsize,
             keep = copy_reserve((uint64_t)st.f_blocks * st.f_frsize);
    if (free_size < keep || free_size - keep < need) {
        return fail(err, -ENOSPC, "DiskFull",
                    "not enough room: %llu MiB are free, %llu MiB are kept in reserve, %llu "
                    "MiB more are needed",
                    (unsigned long long)(free_size >> 20), (unsigned long long)(keep >> 20),
                    (unsigned long long)(need >> 20));
    }
    return 0;
}

static int write_all(int fd, const char *p, size_t n, uint64_t off, struct err *err)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, p, n, (off_t)off);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return fail(err, errno == ENOSPC || errno == EDQUOT ? -ENOSPC : -EIO,
                        errno == ENOSPC || errno == EDQUOT ? "DiskFull" : "WriteFailed",
                        "writing failed: %m");
        }
        p += done;
        n -= (size_t)done;
        off += (uint64_t)done;
    }
    return 0;
}

static bool is_zero(const char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

int copy_write_sparse(int fd, const char *p, size_t n, uint64_t off, struct err *err)
{
    if (off / CHECK_EVERY != (off + n) / CHECK_EVERY || off == 0) {
        int rc = copy_check_room(fd, CHECK_EVERY < n ? n : 0, err);
        if (rc != 0) {
            return rc;
        }
    }
    for (size_t i = 0; i < n;) {
        size_t end = i;
        bool zero = is_zero(p + i, MIN((size_t)ZERO_BLOCK, n - i));
        while (end < n && is_zero(p + end, MIN((size_t)ZERO_BLOCK, n - end)) == zero) {
            end += MIN((size_t)ZERO_BLOCK, n - end);
        }
        int rc = zero ? 0 : write_all(fd, p + i, end - i, off + i, err);
        if (rc != 0) {
            return rc;
        }
        i = end;
    }
    return 0;
}

/* One run of data by the kernel's own copy, by reading and writing where it cannot. */
static int copy_run(int src, int dst, uint64_t off, uint64_t n, struct err *err)
{
    static _Thread_local char buf[COPY_BLOCK];
    static _Thread_local bool is_kernel_off;
    while (n > 0) {
        if (!is_kernel_off) {
            loff_t from = (loff_t)off, to = (loff_t)off;
            ssize_t done =
                copy_file_range(src, &from, dst, &to, (size_t)MIN(n, CHECK_EVERY), 0);
            if (done > 0) {
                off += (uint64_t)done;
                n -= (uint64_t)done;
                continue;
            }
            if (done < 0 && (errno == ENOSPC || errno == EDQUOT)) {
                return fail(err, -ENOSPC, "DiskFull", "copying failed: %m");
            }
            is_kernel_off = done < 0 && (errno == EXDEV || errno == ENOSYS || errno == EINVAL ||
                                         errno == EOPNOTSUPP);
        }
        ssize_t got = pread(src, buf, (size_t)MIN(n, (uint64_t)sizeof(buf)), (off_t)off);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fail(err, -EIO, "ReadFailed", "copying failed: %s",
                        got == 0 ? "the source became shorter" : strerror(errno));
        }
        int rc = copy_write_sparse(dst, buf, (size_t)got, off, err);
        if (rc != 0) {
            return rc;
        }
        off += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

int copy_file(int src, int dst, uint64_t size, bool (*is_cancelled)(void *ctx), void *ctx,
              struct err *err)
{
    struct stat st;
    if (fstat(src, &st) != 0 || (uint64_t)st.st_size < size) {
        return fail(err, -EIO, "ReadFailed", "the source is shorter than %llu bytes",
                    (unsigned long long)size);
    }
    if (ioctl(dst, FICLONE, src) != 0) {
        int rc = copy_check_room(dst, MIN((uint64_t)st.st_blocks * 512, size), err);
        for (uint64_t off = 0; rc == 0 && off < size;) {
            off_t data = lseek(src, (off_t)off, SEEK_DATA);
            if (data < 0 && errno == ENXIO) {
                break;
            }
            off_t hole = data < 0 ? -1 : lseek(src, data, SEEK_HOLE);
            uint64_t from =
                data < 0 || hole < 0 ? off : (uint64_t)data; /* no holes known: all is data */
            uint64_t to = MIN(data < 0 || hole < 0 ? size : (uint64_t)hole, size);
            for (off = from; rc == 0 && off < to;) {
                uint64_t part = MIN(to - off, CHECK_EVERY);
                rc = is_cancelled && is_cancelled(ctx)
                         ? fail(err, -ECANCELED, "Cancelled", "the copy was cancelled")
                         : copy_check_room(dst, part, err);
                rc = rc != 0 ? rc : copy_run(src, dst, off, part, err);
                off += part;
            }
        }
        if (rc != 0) {
            return rc;
        }
    }
    if (ftruncate(dst, (off_t)size) != 0) {
        return fail(err, -EIO, "WriteFailed", "the copy cannot be sized: %m");
    }
    return 0;
}
