/* sandbox.h — takes away from the process that parses images all it does not need: files,
 * network, programs, memory.
 * Not here: users (child.h starts the process as the service's user, with only the descriptors
 *           named).
 * Threads:  before the process has any.
 * Memory:   none.
 * Errors:   -EIO "SandboxFailed": the caller must not go on. Landlock alone may be absent in a
 *           kernel (ret_has_landlock). */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* No new privileges, no core, files of at most max_file_size, six hours of CPU, 64 descriptors.
 */
MUST_CHECK int sandbox_limits(uint64_t max_file_size, struct err *err);
/* For parsing on open descriptors only: any call that opens, executes, connects or looks around
 * kills the process. */
MUST_CHECK int sandbox_strict(struct err *err);
/* For qemu-img: no sockets, no tracing, no mounts, no namespaces; of the file system, programs
 * and libraries for reading and 'folder' for reading and writing (where the kernel has
 * Landlock). */
MUST_CHECK int sandbox_tool(const char *folder, bool *ret_has_landlock, struct err *err);
