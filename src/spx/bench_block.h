/* bench_block.h — how fast the disk under a folder is: on a host, or in a guest on its volume.
 * Not here: the load itself (blk/load.h), comparing with a peer (bench/block).
 * Threads:  one; the load has its own.
 * Memory:   bench_block_new() gives.
 * Errors:   -EPERM "RootDisk": a file of that size on the disk of the system need to be asked for;
 *           -ENOSPC "NoRoom"; what the load answers. The file is gone afterwards, however it ends.
 *
 * Needs nothing but the C library and io_uring: it is a static program for guests, too. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define BENCH_BLOCK_RUNS 99u

struct load_pattern;
struct load_result;

/* Another way to the same bytes, measured in turn with the file itself. */
struct bench_block_engine {
    int (*open)(void *ctx, int fd, uint64_t size, struct err *err); /* borrows the file */
    int (*run)(void *ctx, const struct load_pattern *p, uint64_t ns, uint64_t seed,
               const volatile bool *is_stopped, struct load_result *ret, struct err *err);
    void *ctx;
};

struct bench_block_opts {
    const char *dir;                         /* where the file is made */
    const char *tag;                         /* "" = none */
    const char *pattern;                     /* only this one; NULL = all */
    uint64_t size;                           /* bytes of the file */
    const struct bench_block_engine *engine; /* NULL: the file alone */
    unsigned n_runs;
    uint64_t run_ns;        /* of one pattern in one run */
    bool is_mount_required; /* refuse a folder on the disk of the system, whatever its size */
    /* May be NULL: "writing the file" and then "measuring", how far of all. */
    void (*on_progress)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *ctx;
    const volatile bool *is_stopped; /* set by a signal */
};

struct bench_block;
MUST_CHECK int bench_block_new(const struct bench_block_opts *o, struct bench_block **ret,
                               struct err *err);
void bench_block_free(struct bench_block *b);
/* Each run takes all patterns in another order, so that what happens to the machine meanwhile hits
 * all alike. */
MUST_CHECK int bench_block_run(struct bench_block *b, struct err *err);
/* A table for people; one JSON object: tag, machine, rows of {name, value, unit, target, ok,
 * range}. */
void bench_block_text(const struct bench_block *b, struct buf *out);
void bench_block_json(const struct bench_block *b, struct buf *out);
