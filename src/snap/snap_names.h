/* snap_names.h — a set of names (32 bytes each) that knows how much memory it may take: when it
 *           is full
 * it keeps the lower half of its range, so that a walk over all names goes range by range.
 * Not here: what a name names.
 * Threads:  belongs to one thread at a time.
 * Memory:   snap_names_init() + snap_names_done(); at most 4/3 * 32 bytes * the limit, rounded
 *           up to a power of two, and while it grows half as much again.
 * Errors:   -ENOMEM. The zero name stands for a hole and is never in a set. */
#pragma once
#include "base/macro.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNAP_NAME_SIZE 32u

struct snap_names {
    uint8_t (*slots)[SNAP_NAME_SIZE];
    size_t n_slots, n, max;
    /* [lo, hi) by the first eight bytes; hi 0 = no end. Others are not taken. */
    uint64_t lo, hi;
};

uint64_t snap_names_at(
    const uint8_t name[SNAP_NAME_SIZE]); /* the first eight bytes, as a number */
bool snap_name_is_zero(const uint8_t name[SNAP_NAME_SIZE]);

void snap_names_init(struct snap_names *s, size_t max);
void snap_names_done(struct snap_names *s);
/* Empty, for the range from 'lo' on. Keeps its memory. */
void snap_names_begin(struct snap_names *s, uint64_t lo);
bool snap_names_covers(const struct snap_names *s, const uint8_t name[SNAP_NAME_SIZE]);
bool snap_names_has(const struct snap_names *s, const uint8_t name[SNAP_NAME_SIZE]);
/* 0 also for a name out of the range, and for one that is there. Past 'max', hi comes down. */
MUST_CHECK int snap_names_add(struct snap_names *s, const uint8_t name[SNAP_NAME_SIZE]);
