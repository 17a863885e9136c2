#include "model/volume_type.h"

#include <errno.h>
#include <string.h>

#define KIB              (UINT64_C(1) << 10)
#define MIB              (UINT64_C(1) << 20)
#define TIB              (UINT64_C(1) << 40)

#define GP2_IOPS_PER_GIB 3u
#define GP2_IOPS_MIN     100u
#define GP2_IOPS_MAX     16000u
#define GP2_BURST        3000u
#define GP2_CREDITS      5400000u
#define GP2_SLOW_GIB     170u /* up to this size 128 MiB/s, above it 250 */

#define IOPS_PER_MIB     4u /* gp3: 0.25 MiB/s for each provisioned IOPS */

static const struct volume_type types[] = {
    {"gp3", 1, 65536, 3000, 80000, 3000, 500, 125, 2000, 125, 5, true},
    {"gp2", 1, 16384, 0, 0, 0, 0, 0, 0, 0, 5, true},
    {"io1", 4, 16384, 100, 64000, 0, 50, 0, 0, 0, 5, true},
    {"io2", 4, 65536, 100, 256000, 0, 1000, 0, 0, 0, 5, true},
    {"st1", 125, 16384, 0, 0, 0, 0, 0, 0, 0, 1, false},
    {"sc1", 125, 16384, 0, 0, 0, 0, 0, 0, 0, 1, false},
    {"standard", 1, 1024, 0, 0, 0, 0, 0, 0, 0, 5, true},
};

const struct volume_type *volume_type_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (str_eqc(name, types[i].name)) {
            return &types[i];
        }
    }
    return NULL;
}

static uint64_t clamp(uint64_t v, uint64_t lo, uint64_t hi)
{
    return MIN(MAX(v, lo), hi);
}

static int check_size(const struct volume_type *t, uint64_t gib, struct err *err)
{
    if (gib >= t->size_min && gib <= t->size_max) {
        return 0;
    }
    bool is_small = gib < t->size_min;
    return fail(err, -EINVAL, "InvalidParameterValue",
                "Volume of %lluGiB is too %s for volume type %s; %s is %lluGiB",
                (unsigned long long)gib, is_small ? "small" : "large", t->name,
                is_small ? "minimum" : "maximum",
                (unsigned long long)(is_small ? t->size_min : t->size_max));
}

static int check_iops(const struct volume_type *t, const struct volume_ask *ask, uint64_t *ret,
                      struct err *err)
{
    if (t->iops_max == 0) {
        if (ask->has_iops) {
            return fail(err, -EINVAL, "InvalidParameterCombination",
                        "The parameter iops is not supported for %s volumes.", t->name);
        }
        *ret = strcmp(t->name, "gp2") == 0
                   ? clamp(ask->size_gib * GP2_IOPS_PER_GIB, GP2_IOPS_MIN, GP2_IOPS_MAX)
                   : 0;
        return 0;
    }
    if (!ask->has_iops && t->iops_default == 0) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The parameter iops must be specified for %s volumes.", t->name);
    }
    uint64_t v = ask->has_iops ? (uint64_t)MAX(ask->iops, (int64_t)0) : t->iops_default;
    if (v < t->iops_min || v > t->iops_max) {
        bool is_low = v < t->iops_min;
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Volume iops of %llu is too %s; %s is %llu for %s volumes",
                    (unsigned long long)v, is_low ? "low" : "high",
                    is_low ? "minimum" : "maximum",
                    (unsigned long long)(is_low ? t->iops_min : t->iops_max), t->name);
    }
    /* What every volume of the type has is no question of its size. */
    if (v > MAX(t->iops_default, t->iops_min) && v > ask->size_gib * t->iops_per_gib) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Iops to volume size ratio of %.6f is too high; maximum is %llu",
                    (double)v / (double)ask->size_gib, (unsigned long long)t->iops_per_gib);
    }
    *ret = v;
    return 0;
}

static int check_throughput(const struct volume_type *t, const struct volume_ask *ask,
                            uint64_t iops, uint64_t *ret, struct err *err)
{
    *ret = t->throughput_default;
    if (!ask->has_throughput) {
        return 0;
    }
    if (t->throughput_max == 0) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "The parameter throughput is not supported for %s volumes.", t->name);
    }
    uint64_t v = (uint64_t)MAX(ask->throughput, (int64_t)0);
    if (v < t->throughput_min || v > t->throughput_max) {
        bool is_low = v < t->throughput_min;
        return fail(
            err, -EINVAL, "InvalidParameterValue",
            "Throughput of %llu MiB/s is too %s; %s is %llu MiB/s for %s volumes",
            (unsigned long long)v, is_low ? "low" : "high", is_low ? "minimum" : "maximum",
            (unsigned long long)(is_low ? t->throughput_min : t->throughput_max), t->name);
    }
    if (v * IOPS_PER_MIB > iops) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Throughput (MiBps) to iops ratio of %.6f is too high; maximum is 0.250000 "
                    "MiBps per iops.",
                    (double)v / (double)iops);
    }
    *ret = v;
    return 0;
}

int volume_type_check(const struct volume_ask *ask, uint64_t *ret_iops,
                      uint64_t *ret_throughput, struct err *err)
{
    const struct volume_type *t = volume_type_find(ask->type);
    if (!t) {
        return fail(err, -EINVAL, "UnknownVolumeType", "Unsupported volume type '%.*s'.",
                    STR_ARG(ask->type));
    }
    uint64_t iops = 0, throughput = 0;
    int r = check_size(t, ask->size_gib, err);
    if (r < 0 || (r = check_iops(t, ask, &iops, err)) < 0 ||
        (r = check_throughput(t, ask, iops, &throughput, err)) < 0) {
        return r;
    }
    *ret_iops = iops;
    *ret_throughput = throughput;
    return 0;
}

/* Throughput that grows with the size: 'per_tib' MiB/s for each TiB, at most 'max'. */
static uint64_t per_tib(uint64_t size_gib, uint64_t per_tib_mib, uint64_t max_mib)
{
    return MIN(size_gib * per_tib_mib * MIB / 1024, max_mib * MIB);
}

/* st1 and sc1: credits of 1 TiB for each TiB of the volume (EBS user guide). */
static struct volume_speed hdd(uint64_t size_gib, uint64_t iops, uint64_t base_per_tib,
                               uint64_t burst_per_tib, uint64_t burst_max)
{
    struct volume_speed s = {.iops = iops, .io_size = MIB};
    s.bytes_per_s = per_tib(size_gib, base_per_tib, burst_max);
    s.burst_bytes_per_s = per_tib(size_gib, burst_per_tib, burst_max);
    if (s.burst_bytes_per_s > s.bytes_per_s) {
        s.byte_credits = size_gib * (TIB / 1024);
    } else {
        s.burst_bytes_per_s = 0;
    }
    return s;
}

struct volume_speed volume_type_speed(struct str type, uint64_t size_gib, uint64_t iops,
                                      uint64_t throughput)
{
    struct volume_speed s = {.iops = iops, .io_size = 256 * KIB};
    if (str_eqc(type, "gp3")) {
        s.bytes_per_s = throughput * MIB;
    } else if (str_eqc(type, "gp2")) {
        s.iops = clamp(size_gib * GP2_IOPS_PER_GIB, GP2_IOPS_MIN, GP2_IOPS_MAX);
        s.bytes_per_s = (size_gib <= GP2_SLOW_GIB ? 128 : 250) * MIB;
        if (s.iops < GP2_BURST) {
            s.burst_iops = GP2_BURST;
            s.credits = GP2_CREDITS;
        }
    } else if (str_eqc(type, "io1")) {
        /* 256 KiB for each IOPS up to 500 MiB/s; from 32,000 IOPS on 16 KiB for each, up to
         * 1,000 MiB/s. */
        s.bytes_per_s = MAX(MIN(iops * 256 * KIB, 500 * MIB), MIN(iops * 16 * KIB, 1000 * MIB));
    } else if (str_eqc(type, "io2")) {
        s.bytes_per_s = MIN(iops * 256 * KIB, 4000 * MIB);
    } else if (str_eqc(type, "st1")) {
        s = hdd(size_gib, 500, 40, 250, 500);
    } else if (str_eqc(type, "sc1")) {
        s = hdd(size_gib, 250, 12, 80, 250);
    } else if (str_eqc(type, "standard")) {
        s.iops = 200;
        s.bytes_per_s = 90 * MIB;
    } else {
        s = (struct volume_speed){0};
    }
    return s;
}
