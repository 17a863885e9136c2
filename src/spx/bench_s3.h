/* bench_s3.h — writes and reads one object through the S3 API, as a client would: rates, checked
 * bytes, and what they cost.
 * Not here: what is printed (cmd_bench.c).
 * Threads:  one.
 * Memory:   results are plain values.
 * Errors:   negative errno and *err; what was made in the store is taken away again. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "spx/profile.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_MAX_RUNS 100u
#define BENCH_MAX_PIDS 4u

struct bench_s3 {
    const char *endpoint; /* "https://host:port" */
    struct profile_keys keys;
    uint64_t size; /* bytes */
    unsigned n_runs;
    pid_t pids[BENCH_MAX_PIDS]; /* the server's processes, when they run here */
    size_t n_pids;
    /* For progress, may be NULL: "writing", bytes done of all. */
    void (*on_progress)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *ctx;
    const volatile bool *is_stopped; /* set by a signal */
};

struct bench_cost {
    uint64_t wall_ns, client_ns, server_ns; /* the last two: CPU time; server 0 = not known */
};
struct bench_result {
    struct bench_cost put[BENCH_MAX_RUNS], get[BENCH_MAX_RUNS];
    unsigned n_runs;
};
/* Every byte that comes back is compared; the server checks the CRC64NVME of what it gets. */
MUST_CHECK int bench_s3_run(struct arena *a, const struct bench_s3 *b, struct bench_result *ret,
                            struct err *err);

/* Bytes a second that this folder's disk makes durable: written in one file of 'size' bytes, then
 * synced. The file has no name. */
MUST_CHECK int bench_disk(const char *dir, uint64_t size, uint64_t *ret_rate, struct err *err);
/* CPU time of processes so far; those that cannot be read count nothing. */
uint64_t bench_cpu_ns(const pid_t *pids, size_t n);
