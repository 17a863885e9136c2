#include "vpcd/caps.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const int kept[] = {
    CAP_NET_ADMIN,        /* links, routes, nftables, taps */
    CAP_NET_BIND_SERVICE, /* ports 53, 67, 80, 123 inside VPCs */
    CAP_NET_RAW,          /* IP_PKTINFO with a source of our choice */
    CAP_SYS_ADMIN,        /* setns, unshare, the bind mounts that keep namespaces */
    CAP_SETUID,
    CAP_SETGID,
    CAP_SETPCAP, /* responders run as nobody */
    CAP_CHOWN,
    CAP_DAC_OVERRIDE,
    CAP_FOWNER, /* their folders */
    CAP_KILL,
    CAP_SYS_RESOURCE, /* their limits */
};

int caps_drop(struct err *err)
{
    uint64_t keep = 0;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        keep |= UINT64_C(1) << kept[i];
    }
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
        if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EPERM) {
            return fail(err, -errno, "SandboxFailed", "capability %d: %m", cap);
        }
    }
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct have[2] = {0}, want[2] = {0};
    if (syscall(SYS_capget, &head, have)) {
        return fail(err, -errno, "SandboxFailed", "capget: %m");
    }
    for (int i = 0; i < 2; i++) {
        uint32_t part = (uint32_t)(keep >> (32 * i)) & have[i].permitted;
        want[i] = (struct __user_cap_data_struct){
            .effective = part, .permitted = part, .inheritable = 0};
    }
    if (syscall(SYS_capset, &head, want)) {
        return fail(err, -errno, "SandboxFailed", "capset: %m");
    }
    return 0;
}
