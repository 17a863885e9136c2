#include "spx/dirs.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { ROOT = 0, GROUP = -1 /* root, with uid_base as group */ };

static const struct {
    const char *name;
    int owner; /* ROOT, GROUP or enum config_uid */
    mode_t mode;
} data_dirs[] = {
    {"", ROOT, 0711},
    {"keys", ROOT, 0711},
    {"state", CONFIG_UID_STATE, 0700},
    {"awsgw", CONFIG_UID_AWSGW, 0700},
    {"viperblock", CONFIG_UID_VIPERBLOCK, 0700},
    {"predastore", CONFIG_UID_PREDASTORE, 0700},
    {"vpcd", ROOT, 0711},
    {"compute", ROOT, 0711},
    {"log", ROOT, 0755},
};

static int own(const struct config *c, int fd, const char *path, int owner, mode_t mode,
               struct err *err)
{
    struct stat st;
    uid_t uid = owner > 0 ? (uid_t)(c->uid_base + (unsigned)owner) : 0;
    gid_t gid = owner > 0 ? uid : owner == GROUP ? (gid_t)c->uid_base : 0;
    if (fstat(fd, &st) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    if (c->uid_base && (st.st_uid != uid || st.st_gid != gid) && fchown(fd, uid, gid) < 0) {
        return fail(err, -errno, "ChownFailed", "%s: changing the owner: %m", path);
    }
    if ((st.st_mode & 07777) != mode && fchmod(fd, mode) < 0) {
        return fail(err, -errno, "ChmodFailed", "%s: changing the mode: %m", path);
    }
    return 0;
}

static int make_dir(const struct config *c, const char *path, int owner, mode_t mode,
                    struct err *err)
{
    int r = file_mkdirs(path, 0755, err);
    if (r < 0) {
        return r;
    }
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    return own(c, fd, path, owner, mode, err);
}

int dirs_make(const struct config *c, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(data_dirs); i++) {
        char path[512];
        int n = snprintf(path, sizeof(path), "%s%s%s", c->data_dir,
                         data_dirs[i].name[0] ? "/" : "", data_dirs[i].name);
        if (n < 0 || (size_t)n >= sizeof(path)) {
            return fail(err, -ENAMETOOLONG, "OpenFailed", "%s: the name is too long",
                        c->data_dir);
        }
        int r = make_dir(c, path, data_dirs[i].owner, data_dirs[i].mode, err);
        if (r < 0) {
            return r;
        }
    }
    /* Services make their sockets here; the sticky bit keeps them off each other's. */
    return make_dir(c, c->run_dir, GROUP, c->uid_base ? 01771 : 0711, err);
}

/* Something of another: neither empty (a new file system has lost+found) nor a drive of ours. */
static bool is_foreign(int dir)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    bool is_empty = true, is_drive = false;
    if (!d) {
        return true;
    }
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        bool is_nothing = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
                          strcmp(e->d_name, "lost+found") == 0;
        is_empty = is_empty && is_nothing;
        is_drive = is_drive || strcmp(e->d_name, "drive.json") == 0;
    }
    closedir(d);
    return !is_empty && !is_drive;
}

int dirs_make_drive(const struct config *c, const char *path, struct err *err)
{
    int r = file_mkdirs(path, 0755, err);
    if (r < 0) {
        return r;
    }
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    uid_t uid = c->uid_base ? (uid_t)c->uid_base + CONFIG_UID_PREDASTORE : geteuid();
    if (st.st_uid == uid) {
        return own(c, fd, path, CONFIG_UID_PREDASTORE, 0700, err);
    }
    if (st.st_uid != 0 || is_foreign(fd)) {
        return fail(err, -ENOTEMPTY, "BadDrive",
                    "%s is somebody's folder, not an empty one or a drive of this store", path);
    }
    return own(c, fd, path, CONFIG_UID_PREDASTORE, 0700, err);
}

static int give_at(const struct config *c, int dir, const char *name, enum config_uid to,
                   struct err *err)
{
    struct stat st;
    AUTO_FD fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", name);
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return 0;
    }
    return own(c, fd, name, (int)to, st.st_mode & 07777, err);
}

int dirs_give(const struct config *c, const char *name, enum config_uid to, struct err *err)
{
    char path[512];
    int n = snprintf(path, sizeof(path), "%s/%s", c->data_dir, name);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        return fail(err, -ENAMETOOLONG, "OpenFailed", "%s: the name is too long", c->data_dir);
    }
    struct stat st;
    if (stat(path, &st) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        return give_at(c, AT_FDCWD, path, to, err);
    }
    DIR *d = opendir(path);
    if (!d) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    int r = 0;
    for (struct dirent *e = readdir(d); e && r == 0; e = readdir(d)) {
        if (e->d_name[0] != '.') {
            r = give_at(c, dirfd(d), e->d_name, to, err);
        }
    }
    closedir(d);
    return r;
}
