/* netns.h — named network namespaces: made, kept by a bind mount, entered for the time of one
 * call.
 * Not here: what is inside them (netlink.h, nft.h, sysctl.h, tun.h).
 * Threads:  any; netns_run() moves only the calling thread, and only until it returns.
 * Memory:   none is kept; descriptors are given to the caller.
 * Errors:   negative errno, "NetnsFailed". A thread that cannot come back aborts the process:
 *           everything it did next would be in the wrong place. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

/* Makes 'path' (a file under a folder that exists) a mount of a new, empty namespace. -EEXIST
 * when one is there. */
MUST_CHECK int netns_create(const char *path, struct err *err);
/* Opens the namespace kept at 'path'; -ENOENT when there is none (a plain file left by a reboot
 * counts as none). */
MUST_CHECK int netns_open(const char *path, int *ret_fd, struct err *err);
/* Unmounts and removes the file; fine when it is not there. The namespace goes when its last
 * user goes. */
MUST_CHECK int netns_remove(const char *path, struct err *err);
/* The calling thread's own namespace. */
MUST_CHECK int netns_self(int *ret_fd, struct err *err);
/* Same namespace? */
bool netns_is_same(int a_fd, int b_fd);

/* Runs fn(ctx, err) in the namespace and returns its answer. */
typedef int (*netns_fn)(void *ctx, struct err *err);
MUST_CHECK int netns_run(int ns_fd, netns_fn fn, void *ctx, struct err *err);
