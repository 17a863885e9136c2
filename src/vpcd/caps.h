/* caps.h — root without what vpcd does not need.
 * Not here: the responders' sandbox (resp_sandbox.c).
 * Threads:  call before any thread is started.
 * Memory:   none.
 * Errors:   "SandboxFailed". */
#pragma once
#include "base/err.h"

/* Keeps what networks, namespaces and starting responders take; the rest is gone for good, for
 * children too. */
MUST_CHECK int caps_drop(struct err *err);
