#include "base/file.h"

#include "base/buf.h"
#include "base/rand.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

int file_read(const char *path, size_t max_size, char **ret, size_t *ret_n, struct err *err)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    AUTO_BUF b;
    buf_init(&b, max_size + 1);
    for (;;) {
        size_t room = MIN((size_t)65536, max_size + 1 - b.n);
        char *p = buf_reserve(&b, room);
        if (!p) {
            return fail(err, -EFBIG, "ReadFailed", "%s: larger than %zu bytes", path, max_size);
        }
        ssize_t n = read(fd, p, room);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail(err, -errno, "ReadFailed", "%s: %m", path);
        }
        if (n == 0) {
            break;
        }
        buf_commit(&b, (size_t)n);
        if (b.n > max_size) {
            return fail(err, -EFBIG, "ReadFailed", "%s: larger than %zu bytes", path, max_size);
        }
    }
    size_t n = b.n;
    char *p = buf_take(&b);
    if (!p) {
        return fail(err, -ENOMEM, "ReadFailed", "%s: out of memory", path);
    }
    *ret = p;
    if (ret_n) {
        *ret_n = n;
    }
    return 0;
}

int file_write_all(int fd, const void *p, size_t n)
{
    const char *b = p;
    while (n > 0) {
        ssize_t w = write(fd, b, n);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w < 0) {
            return -errno;
        }
        b += w;
        n -= (size_t)w;
    }
    return 0;
}

int file_sync_parent(const char *path, struct err *err)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (slash == path ? 1 : (size_t)(slash - path)) : 1;
    if (n >= sizeof(dir)) {
        return fail(err, -ENAMETOOLONG, "OpenFailed", "%s: path too long", path);
    }
    memcpy(dir, slash ? path : ".", n);
    dir[n] = '\0';
    AUTO_FD fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", dir);
    }
    if (fsync(fd) < 0) {
        return fail(err, -errno, "WriteFailed", "fsync %s: %m", dir);
    }
    return 0;
}

static int write_and_rename(int fd, const char *tmp, const char *path, struct str data,
                            struct err *err)
{
    int r = file_write_all(fd, data.p, data.n);
    if (r < 0) {
        errno = -r;
        return fail(err, r, "WriteFailed", "%s: %m", tmp);
    }
    if (fsync(fd) < 0) {
        return fail(err, -errno, "WriteFailed", "fsync %s: %m", tmp);
    }
    if (rename(tmp, path) < 0) {
        return fail(err, -errno, "WriteFailed", "rename %s to %s: %m", tmp, path);
    }
    return file_sync_parent(path, err);
}

int file_write_atomic(const char *path, struct str data, mode_t mode, struct err *err)
{
    char tmp[PATH_MAX], tag[9];
    rand_hex(tag, 8);
    if (snprintf(tmp, sizeof(tmp), "%s.%s.tmp", path, tag) >= (int)sizeof(tmp)) {
        return fail(err, -ENAMETOOLONG, "OpenFailed", "%s: path too long", path);
    }
    AUTO_FD fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", tmp);
    }
    if (fchmod(fd, mode) < 0) {
        int r = fail(err, -errno, "WriteFailed", "chmod %s: %m", tmp);
        unlink(tmp);
        return r;
    }
    int r = write_and_rename(fd, tmp, path, data, err);
    if (r < 0) {
        unlink(tmp);
    }
    return r;
}

int file_mkdirs(const char *path, mode_t mode, struct err *err)
{
    char p[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof(p)) {
        return fail(err, -ENAMETOOLONG, "WriteFailed", "%s: path too long", path);
    }
    memcpy(p, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (p[i] != '/' && p[i] != '\0') {
            continue;
        }
        char c = p[i];
        p[i] = '\0';
        if (mkdir(p, mode) < 0 && errno != EEXIST) {
            return fail(err, -errno, "WriteFailed", "mkdir %s: %m", p);
        }
        p[i] = c;
    }
    return 0;
}
