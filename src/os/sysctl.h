/* sysctl.h — kernel settings of the calling thread's network namespace.
 * Not here: which settings are right (vpcd/).
 * Threads:  /proc/sys/net shows the namespace of the thread that opens it: call inside
 *           netns_run().
 * Memory:   none is kept.
 * Errors:   negative errno, "SysctlFailed" with the name. */
#pragma once
#include "base/err.h"
#include <stdint.h>

/* 'name' is the path below /proc/sys: "net/ipv4/ip_forward". Writes only when the value
 * differs. */
MUST_CHECK int sysctl_set(const char *name, uint64_t value, struct err *err);
MUST_CHECK int sysctl_get(const char *name, uint64_t *ret, struct err *err);
/* net/ipv4/<section>/<link>/<key>; link names may hold dots, so they are not part of a
 * formatted path of the caller's. */
MUST_CHECK int sysctl_set_link(const char *section, const char *link, const char *key,
                               uint64_t value, struct err *err);
