#include "viperblock/folder.h"
#include "base/file.h"
#include "base/rand.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define TMP_PREFIX ".tmp-"
#define NAME_SIZE  96u

struct folder {
    char *path;
    int root, lock, kinds[FOLDER_KIND_N], trash;
};

static const char *const kind_names[FOLDER_KIND_N] = {"volumes", "images"};
static const char *const synced_files[] = {"data", "map", "aside", "meta.json", "unregistered"};

static int failed(struct err *err, const char *what, const char *name)
{
    int e = errno;
    return fail(err,
                e == ENOSPC || e == EDQUOT ? -ENOSPC
                : e == ENOENT              ? -ENOENT
                                           : -EIO,
                e == ENOSPC || e == EDQUOT ? "DiskFull"
                : e == ENOENT              ? "NoSuchFile"
                                           : "FolderFailed",
                "%s %s: %m", what, name);
}

static void name_of(char out[NAME_SIZE], const char *prefix, struct str id)
{
    snprintf(out, NAME_SIZE, "%s%.*s", prefix, (int)MIN(id.n, (size_t)64), id.p);
}

static int open_sub(int root, const char *name, struct err *err)
{
    if (mkdirat(root, name, 0700) != 0 && errno != EEXIST) {
        return failed(err, "making", name);
    }
    int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : failed(err, "opening", name);
}

/* The lock may outlive its process for a moment: a child of one that was killed holds it too,
 * until its exec() closes it. */
static int take_lock(int fd)
{
    enum { TRIES = 100 };
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK || i == TRIES) {
            return -errno;
        }
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

int folder_open(const char *path, struct folder **ret, struct err *err)
{
    int rc = file_mkdirs(path, 0700, err);
    if (rc != 0) {
        return rc;
    }
    struct folder *f = calloc(1, sizeof(*f));
    if (!f || !(f->path = strdup(path))) {
        abort();
    }
    AUTO(folder_closep) struct folder *owned = f;
    f->lock = f->trash = -1;
    for (unsigned k = 0; k < FOLDER_KIND_N; k++) {
        f->kinds[k] = -1;
    }
    f->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->root < 0) {
        return failed(err, "opening", path);
    }
    f->lock =
        openat(f->root, "viperblock.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (f->lock < 0) {
        return failed(err, "opening", "viperblock.lock");
    }
    if (take_lock(f->lock) != 0) {
        return fail(err, -EBUSY, "FolderInUse", "another process serves the volumes in %s",
                    path);
    }
    for (unsigned k = 0; k < FOLDER_KIND_N; k++) {
        if ((f->kinds[k] = open_sub(f->root, kind_names[k], err)) < 0) {
            return f->kinds[k];
        }
    }
    if ((f->trash = open_sub(f->root, "trash", err)) < 0) {
        return f->trash;
    }
    *ret = steal(&owned);
    return 0;
}

void folder_close(struct folder *f)
{
    if (!f) {
        return;
    }
    int fds[] = {f->root, f->lock, f->trash, f->kinds[0], f->kinds[1]};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    free(f->path);
    free(f);
}

int folder_fd(const struct folder *f)
{
    return f->root;
}

/* Calls fn for each name in the folder. */
static int each_name(int dir, int (*fn)(void *ctx, int dir, const char *name, struct err *err),
                     void *ctx, struct err *err)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        int rc = failed(err, "listing", "a folder");
        if (fd >= 0) {
            close(fd);
        }
        return rc;
    }
    int rc = 0;
    for (struct dirent *e = readdir(d); rc == 0 && e; e = readdir(d)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            rc = fn(ctx, dir, e->d_name, err);
        }
    }
    closedir(d);
    return rc;
}

static int remove_file(void *ctx, int dir, const char *name, struct err *err)
{
    (void)ctx;
    return unlinkat(dir, name, 0) == 0 || errno == ENOENT ? 0 : failed(err, "removing", name);
}

/* A folder of ours holds files only. */
static int remove_folder(int dir, const char *name, struct err *err)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT) {
            return 0;
        }
        return errno == ENOTDIR || errno == ELOOP ? remove_file(NULL, dir, name, err)
                                                  : failed(err, "opening", name);
    }
    int rc = each_name(fd, remove_file, NULL, err);
    close(fd);
    if (rc == 0 && unlinkat(dir, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        rc = failed(err, "removing", name);
    }
    return rc;
}

static int remove_any(void *ctx, int dir, const char *name, struct err *err)
{
    (void)ctx;
    return remove_folder(dir, name, err);
}

static int remove_half_made(void *ctx, int dir, const char *name, struct err *err)
{
    (void)ctx;
    return strncmp(name, TMP_PREFIX, sizeof(TMP_PREFIX) - 1) == 0
               ? remove_folder(dir, name, err)
               : 0;
}

int folder_clean(struct folder *f, struct err *err)
{
    int rc = each_name(f->trash, remove_any, NULL, err);
    for (unsigned k = 0; rc == 0 && k < FOLDER_KIND_N; k++) {
        rc = each_name(f->kinds[k], remove_half_made, NULL, err);
    }
    return rc;
}

bool folder_has(const struct folder *f, enum folder_kind k, struct str id)
{
    char name[NAME_SIZE];
    struct stat st;
    name_of(name, "", id);
    return fstatat(f->kinds[k], name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

int folder_begin(struct folder *f, enum folder_kind k, struct str id, int *ret_fd,
                 struct err *err)
{
    char name[NAME_SIZE];
    name_of(name, TMP_PREFIX, id);
    int rc = remove_folder(f->kinds[k], name, err);
    if (rc != 0) {
        return rc;
    }
    if (mkdirat(f->kinds[k], name, 0700) != 0) {
        return failed(err, "making", name);
    }
    int fd = openat(f->kinds[k], name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return failed(err, "opening", name);
    }
    *ret_fd = fd;
    return 0;
}

const char *folder_begun_path(const struct folder *f, enum folder_kind k, struct str id)
{
    static _Thread_local char path[PATH_MAX];
    char name[NAME_SIZE];
    name_of(name, TMP_PREFIX, id);
    snprintf(path, sizeof(path), "%s/%s/%s", f->path, kind_names[k], name);
    return path;
}

int folder_publish(struct folder *f, enum folder_kind k, struct str id, int fd, struct err *err)
{
    char from[NAME_SIZE], to[NAME_SIZE];
    for (size_t i = 0; i < ARRAY_LEN(synced_files); i++) {
        AUTO_FD file = openat(fd, synced_files[i], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (file < 0 && errno == ENOENT) {
            continue;
        }
        if (file < 0 || fsync(file) != 0) {
            return failed(err, "syncing", synced_files[i]);
        }
    }
    name_of(from, TMP_PREFIX, id);
    name_of(to, "", id);
    if (fsync(fd) != 0) {
        return failed(err, "syncing", from);
    }
    if (renameat(f->kinds[k], from, f->kinds[k], to) != 0) {
        return failed(err, "renaming", from);
    }
    return fsync(f->kinds[k]) == 0 ? 0 : failed(err, "syncing", kind_names[k]);
}

void folder_abandon(struct folder *f, enum folder_kind k, struct str id)
{
    char name[NAME_SIZE];
    struct err err = ERR_INIT;
    name_of(name, TMP_PREFIX, id);
    (void)remove_folder(f->kinds[k], name, &err); /* what stays is removed at the next start */
}

int folder_remove(struct folder *f, enum folder_kind k, struct str id, struct err *err)
{
    char name[NAME_SIZE], trashed[NAME_SIZE + 20];
    char salt[9];
    name_of(name, "", id);
    rand_hex(salt, sizeof(salt) - 1);
    snprintf(trashed, sizeof(trashed), "%s.%s", name, salt);
    if (renameat(f->kinds[k], name, f->trash, trashed) != 0) {
        return errno == ENOENT ? 0 : failed(err, "removing", name);
    }
    if (fsync(f->kinds[k]) != 0 || fsync(f->trash) != 0) {
        return failed(err, "syncing", kind_names[k]);
    }
    return remove_folder(f->trash, trashed, err);
}

int folder_open_file(const struct folder *f, enum folder_kind k, struct str id,
                     const char *name, int flags, int *ret_fd, struct err *err)
{
    char folder[NAME_SIZE];
    name_of(folder, "", id);
    AUTO_FD dir = openat(f->kinds[k], folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd = dir < 0 ? -1 : openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return failed(err, folder, name);
    }
    *ret_fd = fd;
    return 0;
}

int folder_write_file(int fd, const char *name, struct str text, struct err *err)
{
    AUTO_FD file = openat(fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) {
        return failed(err, "making", name);
    }
    int rc = file_write_all(file, text.p, text.n);
    if (rc != 0) {
        errno = -rc;
        return failed(err, "writing", name);
    }
    return 0;
}

int folder_remove_file(struct folder *f, enum folder_kind k, struct str id, const char *name,
                       struct err *err)
{
    char folder[NAME_SIZE];
    name_of(folder, "", id);
    AUTO_FD dir = openat(f->kinds[k], folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        return failed(err, "opening", folder);
    }
    if (unlinkat(dir, name, 0) != 0) {
        return errno == ENOENT ? 0 : failed(err, "removing", name);
    }
    return fsync(dir) == 0 ? 0 : failed(err, "syncing", folder);
}

int folder_replace_file(struct folder *f, enum folder_kind k, struct str id, const char *name,
                        int (*fill)(void *ctx, int fd, struct err *err), void *ctx,
                        struct err *err)
{
    char folder[NAME_SIZE], tmp[NAME_SIZE];
    name_of(folder, "", id);
    name_of(tmp, TMP_PREFIX, str_c(name));
    AUTO_FD dir = openat(f->kinds[k], folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        return failed(err, "opening", folder);
    }
    AUTO_FD file = openat(dir, tmp, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) {
        return failed(err, "making", name);
    }
    int rc = fill(ctx, file, err);
    if (rc == 0 &&
        (fsync(file) != 0 || renameat(dir, tmp, dir, name) != 0 || fsync(dir) != 0)) {
        rc = failed(err, "writing", name);
    }
    if (rc != 0) {
        (void)unlinkat(dir, tmp, 0);
    }
    return rc;
}

static int fill_text(void *ctx, int fd, struct err *err)
{
    const struct str *text = ctx;
    int rc = file_write_all(fd, text->p, text->n);
    if (rc != 0) {
        errno = -rc;
        return failed(err, "writing", "a file");
    }
    return 0;
}

int folder_replace_text(struct folder *f, enum folder_kind k, struct str id, const char *name,
                        struct str text, struct err *err)
{
    return folder_replace_file(f, k, id, name, fill_text, &text, err);
}

struct each_ctx {
    void (*fn)(void *ctx, struct str id);
    void *ctx;
};

static int each_id(void *ctx, int dir, const char *name, struct err *err)
{
    (void)dir;
    (void)err;
    struct each_ctx *c = ctx;
    if (name[0] != '.') {
        c->fn(c->ctx, str_c(name));
    }
    return 0;
}

int folder_each(const struct folder *f, enum folder_kind k,
                void (*fn)(void *ctx, struct str id), void *ctx, struct err *err)
{
    struct each_ctx c = {fn, ctx};
    return each_name(f->kinds[k], each_id, &c, err);
}
