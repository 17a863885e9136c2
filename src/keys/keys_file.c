#include "base/file.h"
#include "codec/hex.h"
#include "crypto/secret.h"
#include "keys/keys.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* One line: the head, a blank, 64 hex digits. */
#define HEAD      "spinifex-root-key-1 "
#define LINE_SIZE (sizeof(HEAD) - 1 + 2 * KEYS_ROOT_SIZE + 1)

static int check_mode(int fd, const char *path, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077)) {
        fail(err, -EPERM, "BadRootKey", "%s: others may read this file (mode %04o)", path,
             (unsigned)st.st_mode & 07777);
        err_hint(err, "chmod 0600 it, and think about who has read it");
        return -EPERM;
    }
    return 0;
}

static int fetch(void *ctx, struct secret *ret_root, struct err *err)
{
    const char *path = ctx;
    char line[LINE_SIZE + 1];
    uint8_t key[KEYS_ROOT_SIZE];
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        /* Not -EACCES: that would mean "locked", and this is a mistake in the installation. */
        int code = errno == EACCES ? -EPERM : -errno;
        return fail(err, code, "OpenFailed", "%s: %m", path);
    }
    int r = check_mode(fd, path, err);
    if (r < 0) {
        return r;
    }
    ssize_t n = read(fd, line, sizeof(line));
    if (n < 0) {
        return fail(err, -errno, "ReadFailed", "%s: %m", path);
    }
    struct str s = str_n(line, (size_t)n);
    if (s.n != LINE_SIZE || !str_has_prefixc(s, HEAD) || line[LINE_SIZE - 1] != '\n' ||
        hex_decode(str_n(line + sizeof(HEAD) - 1, 2 * KEYS_ROOT_SIZE), key, sizeof(key)) < 0) {
        r = fail(err, -EINVAL, "BadRootKey", "%s: this is no root key file", path);
    } else {
        r = secret_set(ret_root, str_n((const char *)key, sizeof(key)));
    }
    secret_wipe(line, sizeof(line));
    secret_wipe(key, sizeof(key));
    return r;
}

static const struct keys_provider provider = {.name = "file", .fetch = fetch, .free = free};

static int fetch_or_wait(void *ctx, struct secret *ret_root, struct err *err)
{
    struct err e = ERR_INIT;
    int r = fetch(ctx, ret_root, &e);
    if (r == -ENOENT) {
        return fail(err, -EACCES, "Locked", "the root key is not there: %s", (const char *)ctx);
    }
    return r < 0 ? fail(err, r, e.name, "%s", e.msg) : 0;
}

static const struct keys_provider waiting_provider = {
    .name = "file", .fetch = fetch_or_wait, .free = free};

static int open_with(const struct keys_provider *p, const char *path, struct keys **ret,
                     struct err *err)
{
    char *copy = strdup(path);
    if (!copy) {
        abort();
    }
    return keys_open(p, copy, ret, err);
}

int keys_open_file(const char *path, struct keys **ret, struct err *err)
{
    return open_with(&provider, path, ret, err);
}

int keys_open_file_or_wait(const char *path, struct keys **ret, struct err *err)
{
    return open_with(&waiting_provider, path, ret, err);
}

static int write_file(int fd, const char *path, uid_t uid, gid_t gid, struct err *err)
{
    AUTO_SECRET root = SECRET_INIT;
    char line[LINE_SIZE + 1] = HEAD;
    int r = secret_random(&root, KEYS_ROOT_SIZE);
    if (r < 0) {
        return fail(err, r, "WriteFailed", "%s: no memory", path);
    }
    hex_encode_to(secret_str(&root).p, KEYS_ROOT_SIZE, line + sizeof(HEAD) - 1);
    line[LINE_SIZE - 1] = '\n';
    r = file_write_all(fd, line, LINE_SIZE);
    secret_wipe(line, sizeof(line));
    if (r < 0) {
        return fail(err, r, "WriteFailed", "%s: writing failed", path);
    }
    if (((uid != (uid_t)-1 || gid != (gid_t)-1) && fchown(fd, uid, gid) < 0) || fsync(fd) < 0) {
        return fail(err, -errno, "WriteFailed", "%s: %m", path);
    }
    return 0;
}

int keys_create_file(const char *path, uid_t uid, gid_t gid, struct err *err)
{
    char tmp[512];
    int n = snprintf(tmp, sizeof(tmp), "%s.new", path);
    if (n < 0 || (size_t)n >= sizeof(tmp)) {
        return fail(err, -ENAMETOOLONG, "WriteFailed", "%s: the name is too long", path);
    }
    unlink(tmp); /* of an init that was cut short */
    AUTO_FD fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", tmp);
    }
    int r = write_file(fd, tmp, uid, gid, err);
    /* link() never replaces: of two that run at once, one wins and the other hears of it. */
    if (r == 0 && link(tmp, path) < 0) {
        r = errno == EEXIST ? fail(err, -EEXIST, "RootKeyExists", "%s is already there", path)
                            : fail(err, -errno, "WriteFailed", "%s: %m", path);
    }
    unlink(tmp);
    return r < 0 ? r : file_sync_parent(path, err);
}
