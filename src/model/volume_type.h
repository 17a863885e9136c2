/* volume_type.h — the types of EBS volumes: what may be asked of each, and how fast each is.
 * Not here: the throttle itself (blk/blk_throttle.h), records (volume.h).
 * Threads:  no state.
 * Memory:   nothing is kept.
 * Errors:   EC2's: "InvalidParameterValue", "InvalidParameterCombination", "MissingParameter",
 *           "UnknownVolumeType". Outputs are untouched on failure.
 * Source:   EC2 API reference (CreateVolume, ModifyVolume), EBS user guide (volume types). */
#pragma once
#include "base/err.h"
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

struct volume_type {
    const char *name;
    uint64_t size_min, size_max; /* GiB */
    uint64_t iops_min, iops_max,
        iops_default;      /* max 0 = not a parameter; default 0 = required */
    uint64_t iops_per_gib; /* ratio limit; 0 = none */
    /* MiB/s; max 0 = not a parameter */
    uint64_t throughput_min, throughput_max, throughput_default;
    unsigned n_snapshots; /* of one volume that may be pending at once */
    bool is_bootable;
};

/* NULL when there is no such type. */
const struct volume_type *volume_type_find(struct str name);

struct volume_ask { /* what a request says */
    struct str type;
    uint64_t size_gib;
    bool has_iops, has_throughput;
    int64_t iops, throughput;
};
/* Checks everything; sets *ret_iops (of gp2: its baseline; of types without: 0) and
 * *ret_throughput (0 but for gp3). */
MUST_CHECK int volume_type_check(const struct volume_ask *ask, uint64_t *ret_iops,
                                 uint64_t *ret_throughput, struct err *err);

/* How fast a volume may be; the members mean what those of struct blk_limits mean. */
struct volume_speed {
    uint64_t iops, burst_iops, credits;
    uint64_t bytes_per_s, burst_bytes_per_s, byte_credits;
    uint64_t io_size;
};
/* 'iops' and 'throughput' as volume_type_check() gave them. A type that is not known is not
 * limited. */
struct volume_speed volume_type_speed(struct str type, uint64_t size_gib, uint64_t iops,
                                      uint64_t throughput);
