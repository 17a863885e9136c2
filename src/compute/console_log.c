#include "compute/console_log.h"
#include "base/file.h"
#include "base/time.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define NAME     "console.log"
#define OLD_NAME "console.log.1"

int console_log_init(struct console_log *c, int fd, int old_fd, uint64_t max_size)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    *c = (struct console_log){
        .fd = fd, .old_fd = old_fd, .size = (uint64_t)st.st_size, .max_size = max_size};
    return 0;
}

static int write_at(int fd, const char *p, size_t n, uint64_t off)
{
    while (n) {
        ssize_t w = pwrite(fd, p, n, (off_t)off);
        if (w < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        p += w;
        n -= (size_t)w;
        off += (uint64_t)w;
    }
    return 0;
}

/* The newer file becomes the older one by copying: the monitor has descriptors, not names. */
static int rotate(struct console_log *c)
{
    char piece[16384];
    if (ftruncate(c->old_fd, 0) < 0) {
        return -errno;
    }
    uint64_t off = 0;
    int r = 0;
    while (off < c->size && r == 0) {
        ssize_t n = pread(c->fd, piece, sizeof(piece), (off_t)off);
        if (n <= 0) {
            break;
        }
        r = write_at(c->old_fd, piece, (size_t)n, off);
        off += (uint64_t)n;
    }
    /* Also when the copy failed (full disk): new text matters more than old. */
    if (ftruncate(c->fd, 0) < 0) {
        return -errno;
    }
    c->size = 0;
    return r;
}

int console_log_write(struct console_log *c, struct str bytes)
{
    int result = 0;
    while (bytes.n) {
        if (c->size >= c->max_size) {
            int r = rotate(c);
            result = r < 0 ? r : result;
            if (c->size >= c->max_size) {
                return result;
            }
        }
        size_t n = MIN(bytes.n, c->max_size - c->size);
        int r = write_at(c->fd, bytes.p, n, c->size);
        if (r < 0) {
            return r;
        }
        c->size += n;
        bytes = str_skip(bytes, n);
    }
    return result;
}

int console_log_open(const char *dir, int *ret_fd, int *ret_old_fd, struct err *err)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/" NAME, dir);
    AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    (void)snprintf(path, sizeof(path), "%s/" OLD_NAME, dir);
    AUTO_FD old_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (old_fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    *ret_fd = steal_fd(&fd);
    *ret_old_fd = steal_fd(&old_fd);
    return 0;
}

/* Appends the last 'max' bytes of one file. Returns how many, or a negative errno. */
static ssize_t tail_one(const char *dir, const char *name, size_t max, struct buf *out,
                        uint64_t *changed_ns, struct err *err)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT ? 0 : fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return fail(err, -errno, "ReadFailed", "%s: %m", path);
    }
    size_t want = (size_t)MIN((uint64_t)st.st_size, (uint64_t)max);
    size_t got = 0;
    char *p = buf_reserve(out, want ? want : 1);
    if (!p) {
        return fail(err, -ENOMEM, "ReadFailed", "no memory for the console log");
    }
    while (got < want) {
        ssize_t n = pread(fd, p + got, want - got, st.st_size - (off_t)want + (off_t)got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break; /* truncated by a rotation meanwhile */
        }
        got += (size_t)n;
    }
    buf_commit(out, got);
    if (got) {
        *changed_ns = MAX(*changed_ns, (uint64_t)st.st_mtim.tv_sec * NS_PER_S +
                                           (uint64_t)st.st_mtim.tv_nsec);
    }
    return (ssize_t)got;
}

int console_log_tail(const char *dir, size_t max, struct buf *out, uint64_t *ret_changed_ns,
                     struct err *err)
{
    AUTO_BUF newer;
    buf_init(&newer, max + 1);
    uint64_t changed_ns = 0;
    ssize_t n = tail_one(dir, NAME, max, &newer, &changed_ns, err);
    if (n < 0) {
        return (int)n;
    }
    if ((size_t)n < max) {
        ssize_t o = tail_one(dir, OLD_NAME, max - (size_t)n, out, &changed_ns, err);
        if (o < 0) {
            return (int)o;
        }
    }
    buf_add(out, buf_str(&newer));
    if (!buf_ok(out)) {
        return fail(err, -ENOMEM, "ReadFailed", "no memory for the console log");
    }
    *ret_changed_ns = changed_ns;
    return 0;
}
