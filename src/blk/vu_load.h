/* vu_load.h — the load of load.h over vhost-user: same patterns, same figures, another way to
 *          the disk.
 * Not here: checking what is read (vu_verify.h), files (load.h).
 * Threads:  one per job, made and joined by vu_load(). Job i drives queue i.
 * Memory:   borrows the client.
 * Errors:   as load.h; -ETIMEDOUT "LoadFailed" when nothing ends for 30 s. */
#pragma once
#include "blk/load.h"
#include "blk/vu_client.h"

/* The client has a queue per job, depth entries in each, and vu_load_mem() bytes of memory. */
uint64_t vu_load_mem(const struct load_pattern *p);
MUST_CHECK int vu_load(struct vu_client *c, const struct load_pattern *p, uint64_t size,
                       uint64_t ns, uint64_t seed, const volatile bool *is_cancelled,
                       struct load_result *ret, struct err *err);
