/* caps.h — root without what a service does not need.
 * Not here: giving up root (net/service.h), sandboxes of single processes.
 * Threads:  call before any thread is started.
 * Memory:   none.
 * Errors:   "SandboxFailed". */
#pragma once
#include "base/err.h"
#include <stdint.h>

/* Keeps the capabilities of 'keep' (bits 1 << CAP_...) that the process has; the rest is gone for
 * good, for children too. */
MUST_CHECK int caps_keep(uint64_t keep, struct err *err);
