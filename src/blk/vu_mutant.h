/* vu_mutant.h — deliberate defects, for the test that proves that the crash tests see them.
 * Not here: anything in a service: without VU_MUTANTS (one test program has it) all are false
 *           and the compiler drops them.
 * Threads:  set once, before any.
 * Memory:   none.
 * Errors:   none. */
#pragma once

enum vu_mutant {
    VU_MUTANT_NONE,
    VU_MUTANT_NO_INFLIGHT, /* the log is offered and not written */
    VU_MUTANT_NO_REPAIR,   /* a torn batch is done again */
    VU_MUTANT_NO_RESUBMIT, /* what was under way is forgotten */
    VU_MUTANT_NO_CALL,     /* no interrupt when a ring starts */
    VU_MUTANT_N
};
#ifdef VU_MUTANTS
extern enum vu_mutant vu_mutant;
#define VU_MUTANT(name) (vu_mutant == VU_MUTANT_##name)
#else
#define VU_MUTANT(name) false
#endif
