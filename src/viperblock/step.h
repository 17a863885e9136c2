/* step.h — named steps of a snapshot's life, at which tests stop a process to kill it.
 * Not here: what stops (tests/step.c); in a service a step is nothing at all.
 * Threads:  any.
 * Memory:   none.
 * Errors:   none. */
#pragma once

#ifdef VB_STEPS
void step_at(const char *name);
#define STEP(name) step_at(name)
#else
#define STEP(name) ((void)0)
#endif
