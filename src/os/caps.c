#include "os/caps.h"
#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int caps_keep(uint64_t keep, struct err *err)
{
    for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
        bool is_kept = cap < 64 && (keep >> cap & 1);
        /* Without CAP_SETPCAP the bounding set stays; nothing below adds to what is permitted. */
        if (!is_kept && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EPERM) {
            return fail(err, -errno, "SandboxFailed", "capability %lu: %m", cap);
        }
    }
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (syscall(SYS_capget, &head, data) < 0) {
        return fail(err, -errno, "SandboxFailed", "capget: %m");
    }
    for (unsigned i = 0; i < 2; i++) {
        uint32_t part = (uint32_t)(keep >> (32 * i)) & data[i].permitted;
        data[i].effective = data[i].permitted = part;
        data[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &head, data) < 0) {
        return fail(err, -errno, "SandboxFailed", "capset: %m");
    }
    return 0;
}
