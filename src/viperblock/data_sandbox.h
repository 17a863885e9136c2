/* data_sandbox.h — from here on no file can be opened, no program run, nothing connected to, no
 *                 ring made: who takes the process over has the volumes that he had anyway.
 * Not here: the sandbox of the process that parses images (sandbox.h).
 * Threads:  before the process has any: they inherit it. Rings and warm libraries before, too.
 * Memory:   none.
 * Errors:   -EIO "SandboxFailed": the caller must not go on. Landlock alone may be absent in a
 *           kernel: seccomp does not depend on it. */
#pragma once
#include "base/err.h"

MUST_CHECK int data_sandbox(struct err *err);
