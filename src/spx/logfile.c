#include "spx/logfile.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

struct logfile {
    char path[PATH_MAX - 16];
    int fd;
    uint64_t size, max_size, n_dropped;
    unsigned n_old;
};

static int open_file(struct logfile *l)
{
    struct stat st;
    l->fd = open(l->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (l->fd < 0) {
        return -errno;
    }
    l->size = fstat(l->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    return 0;
}

int logfile_new(const char *path, uint64_t max_size, unsigned n_old, struct logfile **ret,
                struct err *err)
{
    struct logfile *l = calloc(1, sizeof(*l));
    if (!l) {
        abort();
    }
    *l = (struct logfile){.fd = -1, .max_size = max_size, .n_old = n_old};
    int n = snprintf(l->path, sizeof(l->path), "%s", path);
    int r = n < 0 || (size_t)n >= sizeof(l->path) ? -ENAMETOOLONG : open_file(l);
    if (r < 0) {
        free(l);
        errno = -r;
        return fail(err, r, "OpenFailed", "%s: %m", path);
    }
    *ret = l;
    return 0;
}

void logfile_free(struct logfile *l)
{
    if (l) {
        if (l->fd >= 0) {
            close(l->fd);
        }
        free(l);
    }
}

static void rotate(struct logfile *l)
{
    char from[PATH_MAX], to[PATH_MAX];
    for (unsigned i = l->n_old; i > 0; i--) {
        snprintf(to, sizeof(to), "%s.%u", l->path, i);
        if (i > 1) {
            snprintf(from, sizeof(from), "%s.%u", l->path, i - 1);
        } else {
            snprintf(from, sizeof(from), "%s", l->path);
        }
        rename(from, to);
    }
    if (l->n_old == 0) {
        unlink(l->path);
    }
    close(l->fd);
    l->fd = -1;
    l->size = 0;
    (void)open_file(l); /* when it fails, the next write tries again */
}

void logfile_add(struct logfile *l, struct str bytes)
{
    if (l->fd >= 0 && l->size >= l->max_size) {
        rotate(l);
    }
    if (l->fd < 0) {
        (void)open_file(l);
    }
    if (l->fd < 0 || file_write_all(l->fd, bytes.p, bytes.n) < 0) {
        l->n_dropped += bytes.n;
        return;
    }
    l->size += bytes.n;
}

uint64_t logfile_n_dropped(const struct logfile *l)
{
    return l->n_dropped;
}
