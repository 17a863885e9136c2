/* rs.h — Reed-Solomon over GF(2^8): k units of data get m units of parity, any k of all restore the
 * rest.
 * Not here: where units lie (layout.h), which of them are good: the caller's checksums know.
 * Threads:  a struct rs and a struct rs_plan do not change once made: any number may use them.
 * Memory:   rs_new() gives; units are buffers of the caller, all of one size, alignment does not
 *           matter (64 is faster), and none may overlap.
 * Errors:   negative errno with *err set ("InvalidErasureCode", "TooFewUnits", "DamagedUnits").
 *
 * The code is part of the format of stored objects: systematic, parity row i (from k) of data
 * column j is 1 / (i ^ j) in GF(2^8) with polynomial 0x11d (a Cauchy matrix), so that every square
 * part of it can be inverted. Units are numbered 0..k-1 data, k..k+m-1 parity; a set of units is a
 * mask with bit i for unit i. */
#pragma once
#include "base/err.h"
#include <stdint.h>

#define RS_K_MAX         16
#define RS_M_MAX         8
#define RS_UNITS_MAX     (RS_K_MAX + RS_M_MAX)
#define RS_UNIT_SIZE_MAX ((size_t)1 << 30)

struct rs;

/* k 1..RS_K_MAX, m 0..RS_M_MAX, else -EINVAL. m == 0: nothing is added and nothing can be lost. */
MUST_CHECK int rs_new(unsigned k, unsigned m, struct rs **ret, struct err *err);
void rs_free(struct rs *rs); /* NULL is fine */
DEFINE_CLEANUP(struct rs *, rs_free);
unsigned rs_k(const struct rs *rs);
unsigned rs_m(const struct rs *rs);
uint32_t rs_all(const struct rs *rs); /* the set of all units */

/* Fills units[k..k+m-1] from units[0..k-1]; 'size' bytes each, at most RS_UNIT_SIZE_MAX. */
void rs_encode(const struct rs *rs, size_t size, uint8_t *const units[]);

/* How to make the units 'want' of those in 'have': the same for every stripe of an object. */
struct rs_plan {
    unsigned k, n_want;
    uint8_t from[RS_K_MAX], to[RS_M_MAX];
    uint8_t tables[32 * RS_K_MAX * RS_M_MAX];
};

/* -ENODATA ("TooFewUnits") when 'have' holds fewer than k; -EINVAL when a unit is in both sets or
 * the code has no such unit. Of more than k, the first k are read (rs_plan_reads()). */
MUST_CHECK int rs_plan_init(struct rs_plan *plan, const struct rs *rs, uint32_t have,
                            uint32_t want, struct err *err);
/* The set of units that the plan reads: the others need not be fetched. */
uint32_t rs_plan_reads(const struct rs_plan *plan);
/* Only units that the plan reads or wants are touched; the rest may be NULL. */
void rs_plan_run(const struct rs_plan *plan, size_t size, uint8_t *const units[]);

/* Does the parity fit the data? 0 or -EBADMSG ("DamagedUnits"); it cannot say which is wrong. */
MUST_CHECK int rs_verify(const struct rs *rs, size_t size, const uint8_t *const units[],
                         struct err *err);
