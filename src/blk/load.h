/* load.h — a load for disks: patterns, what came of them, and the runner for files and devices.
 * Not here: the runner for vhost-user (vu_load.h), who compares what (bench/block, spx bench).
 * Threads:  load_raw() starts a thread per job and waits for them.
 * Memory:   results are plain values (a histogram has 8 KiB).
 * Errors:   -EINVAL "BadPattern"; what io_uring and the file answer: "LoadFailed".
 *
 * Latency of a request is from its submission to the moment its completion is seen, as a guest
 * would see it. Targets are opened O_DIRECT and must be fully written before (load_fill()), or
 * reads of holes would be measured. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define LOAD_MAX_JOBS 16u
#define LOAD_HIST_N   1024u /* 16 buckets per power of two, from 1 ns on */

struct load_pattern {
    const char *name; /* "randread-4k" */
    unsigned read_percent;
    uint32_t block; /* bytes, multiple of 4,096 */
    unsigned depth, n_jobs;
    bool is_sequential;
    bool is_flushed; /* each write is followed by fdatasync before the next */
};

/* Those of the benchmark that people know: 4 jobs of depth 32; and depth 1. */
extern const struct load_pattern load_patterns[];
extern const unsigned load_n_patterns;

struct load_hist {
    uint64_t n, sum_ns, max_ns;
    uint64_t v[LOAD_HIST_N];
};
void load_hist_add(struct load_hist *h, uint64_t ns);
void load_hist_merge(struct load_hist *to, const struct load_hist *from);
/* The latency that so many of a million did not exceed (990000 = p99), within 6 %; 0 when empty. */
uint64_t load_hist_at(const struct load_hist *h, unsigned ppm);

struct load_result {
    uint64_t n_reads, n_writes, bytes, ns; /* ns: wall time of the run */
    uint64_t cpu_ns;                       /* of the client */
    struct load_hist read, write;          /* write: with the sync when is_flushed */
};

struct load_target {
    int fd;        /* O_RDWR | O_DIRECT */
    uint64_t size; /* bytes that may be used */
};

/* Job i works on target i % n_targets; with fewer targets than jobs each has its part of it. Runs
 * for ns, and ends earlier when *is_cancelled (may be NULL) becomes true. */
MUST_CHECK int load_raw(const struct load_target *t, unsigned n_targets,
                        const struct load_pattern *p, uint64_t ns, uint64_t seed,
                        const volatile bool *is_cancelled, struct load_result *ret,
                        struct err *err);
/* Writes all of the target with bytes that do not compress and syncs it. */
MUST_CHECK int load_fill(const struct load_target *t, uint64_t seed,
                         void (*on_progress)(void *ctx, uint64_t done), void *ctx,
                         struct err *err);

/* A number between 0 and n - 1; state must not be 0. The same numbers on every machine. */
uint64_t load_rand(uint64_t *state, uint64_t n);

/* Of several runs. 'v' is sorted in place. */
struct load_stat {
    double median, min, max;
};
struct load_stat load_stat_of(double *v, unsigned n);
