#include "vpcd/own_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

int own_dir(const char *path, mode_t mode, struct err *err)
{
    if (mkdir(path, mode) && errno != EEXIST) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    if (st.st_uid != geteuid() || (st.st_mode & 022)) {
        return fail(err, -EPERM, "BadOwner",
                    "%s belongs to another user or may be written by others: remove it", path);
    }
    return fchmod(fd, mode) ? fail(err, -errno, "OpenFailed", "%s: %m", path) : 0;
}
