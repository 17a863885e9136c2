/* bench_engine.h — the block engine over the file of a benchmark: a vhost-user-blk server and the
 *                  frontend that stands in for a guest, both in this process.
 * Not here: what is measured and printed (bench_block.h).
 * Threads:  a loop thread and one per queue of the server, one per job of the frontend.
 * Memory:   bench_engine_new() gives; the engine must be freed before the file is closed.
 * Errors:   negative errno and *err. */
#pragma once
#include "spx/bench_block.h"

struct bench_engine;
struct bench_engine *bench_engine_new(void);
void bench_engine_free(struct bench_engine *e); /* NULL is fine */
struct bench_block_engine bench_engine_ops(struct bench_engine *e);
