/* metrics.h — counters of all services of this node for Prometheus: http://127.0.0.1:PORT/metrics.
 * Not here: the counters (each service's "metrics" method), their text (codec/metric.h).
 * Threads:  serves on the loop given; asks the services on the pool.
 * Memory:   metrics_start() gives; loop, pool and configuration live longer.
 * Errors:   a service that is away is told as spinifex_up 0; the answer is 200 all the same. */
#pragma once
#include "base/err.h"
#include "loop/pool.h"
#include "model/config.h"

struct metrics;
MUST_CHECK int metrics_start(struct loop *l, struct pool *pool, const struct config *c,
                             struct metrics **ret, struct err *err);
uint16_t metrics_port(const struct metrics *m);
/* The loop does not run any more; the pool still does. */
void metrics_stop(struct metrics *m); /* NULL is fine */
