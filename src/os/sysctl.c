#include "os/sysctl.h"

#include "base/file.h"
#include "base/num.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static int sysctl_path(const char *name, char *path, size_t size, struct err *err)
{
    if (name[0] == '/' || strstr(name, "..")) {
        return fail(err, -EINVAL, "SysctlFailed", "\"%s\" is not the name of a setting", name);
    }
    int n = snprintf(path, size, "/proc/sys/%s", name);
    if (n < 0 || (size_t)n >= size) {
        return fail(err, -ENAMETOOLONG, "SysctlFailed", "%s: the name is too long", name);
    }
    return 0;
}

int sysctl_get(const char *name, uint64_t *ret, struct err *err)
{
    char path[256];
    int r = sysctl_path(name, path, sizeof(path), err);
    if (r) {
        return r;
    }
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(err, -errno, "SysctlFailed", "%s: %m", name);
    }
    char text[64];
    ssize_t n = read(fd, text, sizeof(text));
    if (n < 0) {
        return fail(err, -errno, "SysctlFailed", "%s: %m", name);
    }
    r = num_u64(str_trim(str_n(text, (size_t)n)), UINT64_MAX, ret);
    return r ? fail(err, r, "SysctlFailed", "%s is not a number", name) : 0;
}

int sysctl_set(const char *name, uint64_t value, struct err *err)
{
    uint64_t old = 0;
    if (!sysctl_get(name, &old, NULL) && old == value) {
        return 0;
    }
    char path[256], text[24];
    int r = sysctl_path(name, path, sizeof(path), err);
    if (r) {
        return r;
    }
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(err, -errno, "SysctlFailed", "%s: %m", name);
    }
    int n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)value);
    if (write(fd, text, (size_t)n) != n) {
        return fail(err, -errno, "SysctlFailed", "%s = %llu: %m", name,
                    (unsigned long long)value);
    }
    return 0;
}

int sysctl_set_link(const char *section, const char *link, const char *key, uint64_t value,
                    struct err *err)
{
    char name[192];
    int n = snprintf(name, sizeof(name), "net/ipv4/%s/%s/%s", section, link, key);
    if (n < 0 || (size_t)n >= sizeof(name)) {
        return fail(err, -ENAMETOOLONG, "SysctlFailed", "%s/%s: the name is too long", link,
                    key);
    }
    return sysctl_set(name, value, err);
}
