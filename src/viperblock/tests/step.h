/* step.h — the memory that a test shares with programs that were built to stop at steps.
 * Not here: the steps (viperblock/step.h).
 * Threads:  any, of any process.
 * Memory:   a file of this size; the environment (STEP_ENV) has its path.
 * Errors:   none: without the variable nothing ever stops. */
#pragma once
#include <stdatomic.h>

#define STEP_ENV "VB_STEPS"

enum { STEP_OFF, STEP_ARMED, STEP_REACHED };

struct step_gate {
    char want[56]; /* written while it is off */
    _Atomic int state;
};
