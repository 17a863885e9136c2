#include "os/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define NSFS_MAGIC_NUMBER 0x6e736673 /* linux/magic.h NSFS_MAGIC */

static const char self_path[] = "/proc/thread-self/ns/net";

struct create {
    const char *path;
    int code;
    struct err *err;
};

/* A new namespace can only be made around a thread, so a short-lived thread makes it, pins it
 * and goes. */
static void *create_thread(void *p)
{
    struct create *c = p;
    if (unshare(CLONE_NEWNET)) {
        c->code = fail(c->err, -errno, "NetnsFailed", "unshare: %m");
        return NULL;
    }
    if (mount(self_path, c->path, "none", MS_BIND, NULL)) {
        c->code = fail(c->err, -errno, "NetnsFailed", "bind mount at %s: %m", c->path);
    }
    return NULL;
}

static bool is_mounted(int fd)
{
    struct statfs fs;
    return !fstatfs(fd, &fs) && fs.f_type == NSFS_MAGIC_NUMBER;
}

int netns_create(const char *path, struct err *err)
{
    int old = -1;
    int r = netns_open(path, &old, NULL);
    if (!r) {
        close(old);
        return fail(err, -EEXIST, "NetnsFailed", "%s is a namespace already", path);
    }
    AUTO_FD fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fail(err, -errno, "NetnsFailed", "%s: %m", path);
    }
    struct create c = {.path = path, .err = err};
    pthread_t t;
    int e = pthread_create(&t, NULL, create_thread, &c);
    if (e) {
        errno = e;
        return fail(err, -e, "NetnsFailed", "thread for a new namespace: %m");
    }
    pthread_join(t, NULL);
    if (c.code) {
        unlink(path);
    }
    return c.code;
}

int netns_open(const char *path, int *ret_fd, struct err *err)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(err, -errno, "NetnsFailed", "%s: %m", path);
    }
    if (!is_mounted(fd)) {
        return fail(err, -ENOENT, "NetnsFailed", "%s is not a namespace", path);
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

int netns_remove(const char *path, struct err *err)
{
    /* Someone may have mounted twice over each other (two starts at once before the lock): take
     * all off. */
    while (!umount2(path, MNT_DETACH)) {}
    if (errno != EINVAL && errno != ENOENT) {
        return fail(err, -errno, "NetnsFailed", "unmount %s: %m", path);
    }
    if (unlink(path) && errno != ENOENT) {
        return fail(err, -errno, "NetnsFailed", "remove %s: %m", path);
    }
    return 0;
}

int netns_self(int *ret_fd, struct err *err)
{
    int fd = open(self_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(err, -errno, "NetnsFailed", "%s: %m", self_path);
    }
    *ret_fd = fd;
    return 0;
}

bool netns_is_same(int a_fd, int b_fd)
{
    struct stat a, b;
    return !fstat(a_fd, &a) && !fstat(b_fd, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

int netns_run(int ns_fd, netns_fn fn, void *ctx, struct err *err)
{
    AUTO_FD back = -1;
    int r = netns_self(&back, err);
    if (r) {
        return r;
    }
    if (netns_is_same(back, ns_fd)) {
        return fn(ctx, err);
    }
    if (setns(ns_fd, CLONE_NEWNET)) {
        return fail(err, -errno, "NetnsFailed", "enter the namespace: %m");
    }
    r = fn(ctx, err);
    if (setns(back, CLONE_NEWNET)) {
        abort();
    }
    return r;
}
