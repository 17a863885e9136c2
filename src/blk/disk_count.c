#include "blk/disk_int.h"

#include "base/macro.h"
#include <string.h>

/* A lane has one writer: a load and a store, no locked addition. */
static void bump(uint64_t *p, uint64_t n)
{
    __atomic_store_n(p, __atomic_load_n(p, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static unsigned latency_bucket(uint64_t ns)
{
    uint64_t us = ns / 1000;
    unsigned b = us == 0 ? 0 : 64 - (unsigned)__builtin_clzll(us);
    return MIN(b, DISK_N_LATENCY - 1);
}

void disk_count_start(struct disk *d, unsigned queue)
{
    bump(&d->lanes[queue % DISK_N_LANES].c.in_flight, 1);
}

void disk_count(struct disk *d, unsigned queue, enum blk_op op, uint64_t bytes, uint64_t ns,
                int rc)
{
    struct disk_counters *c = &d->lanes[queue % DISK_N_LANES].c;
    bump(&c->in_flight, UINT64_MAX); /* one less */
    bump(&c->n_ops[op], 1);
    if (rc < 0) {
        bump(&c->errors[op], 1);
    } else {
        bump(&c->bytes[op], bytes);
    }
    bump(&c->latency[op][latency_bucket(ns)], 1);
}

void disk_counters(const struct disk *d, struct disk_counters *ret)
{
    memset(ret, 0, sizeof(*ret));
    uint64_t *sum = (uint64_t *)(void *)ret;
    for (size_t i = 0; i < DISK_N_LANES; i++) {
        const uint64_t *v = (const uint64_t *)(const void *)&d->lanes[i].c;
        for (size_t k = 0; k < sizeof(*ret) / sizeof(*v); k++) {
            sum[k] += __atomic_load_n(&v[k], __ATOMIC_RELAXED);
        }
    }
}
