#include "os/tun.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>

static int open_queue(const char *name, int *ret_fd, struct err *err)
{
    struct ifreq ifr = {0};
    if (strlen(name) >= sizeof(ifr.ifr_name)) {
        return fail(err, -ENAMETOOLONG, "TapFailed", "%s: the name is too long", name);
    }
    AUTO_FD fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail(err, -errno, "TapFailed", "/dev/net/tun: %m");
    }
    strncpy(ifr.ifr_name, name, sizeof(ifr.ifr_name) - 1);
    ifr.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
    if (ioctl(fd, TUNSETIFF, &ifr)) {
        return fail(err, -errno, "TapFailed", "%s: %m", name);
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

int tun_create(const char *name, struct err *err)
{
    AUTO_FD fd = -1;
    int r = open_queue(name, &fd, err);
    if (r) {
        return r;
    }
    if (ioctl(fd, TUNSETPERSIST, 1UL)) {
        return fail(err, -errno, "TapFailed", "keep %s: %m", name);
    }
    return 0;
}

static void close_all(int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        close(fds[i]);
        fds[i] = -1;
    }
}

int tun_open_queues(const char *name, unsigned n, int *ret_fds, struct err *err)
{
    if (n == 0 || n > TUN_MAX_QUEUES) {
        return fail(err, -EINVAL, "TapFailed", "a tap has 1 to %d queues, not %u",
                    TUN_MAX_QUEUES, n);
    }
    for (unsigned i = 0; i < n; i++) {
        int r = open_queue(name, &ret_fds[i], err);
        if (r) {
            close_all(ret_fds, i);
            return r;
        }
    }
    return 0;
}

int tun_open_vhost(unsigned n, int *ret_fds, struct err *err)
{
    for (unsigned i = 0; i < n; i++) {
        ret_fds[i] = open("/dev/vhost-net", O_RDWR | O_CLOEXEC);
        if (ret_fds[i] < 0) {
            int r = fail(err, -errno, "TapFailed", "/dev/vhost-net: %m");
            close_all(ret_fds, i);
            return r;
        }
    }
    return 0;
}
