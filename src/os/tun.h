/* tun.h — taps: made persistent with many queues and offload headers, and opened once per
 * queue.
 * Not here: who gets the descriptors (QEMU, by SCM_RIGHTS), addresses and routes (netlink.h).
 * Threads:  a tap is made and opened in the namespace of the calling thread: call inside
 *           netns_run().
 * Memory:   descriptors are given to the caller.
 * Errors:   negative errno, "TapFailed". -EBUSY: the tap exists with other flags, or has as
 *           many queues as the kernel allows. */
#pragma once
#include "base/err.h"

#define TUN_MAX_QUEUES 16

/* Makes the tap stay after its last descriptor is closed; fine when it is there. */
MUST_CHECK int tun_create(const char *name, struct err *err);
/* Opens n queues (IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE), not blocking. All or
 * none. */
MUST_CHECK int tun_open_queues(const char *name, unsigned n, int *ret_fds, struct err *err);
/* vhost-net descriptors, one per queue. -ENOENT when the host has none: the caller goes on
 * without. All or none. */
MUST_CHECK int tun_open_vhost(unsigned n, int *ret_fds, struct err *err);
