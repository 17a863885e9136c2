/* metric.h — counters and gauges as Prometheus reads them.
 * Not here: where the numbers come from, serving them (awsgw/metrics.h).
 * Threads:  no state.
 * Memory:   appends to the buffer given.
 * Errors:   those of the buffer: past its limit nothing more is added (buf_ok()).
 * Source:   "Exposition formats", text format 0.0.4. */
#pragma once
#include "base/buf.h"
#include <stdint.h>

/* Begins a family: "# HELP" and "# TYPE". Once per name and text; samples follow at once. */
void metric_family(struct buf *out, const char *name, const char *type, const char *help);

struct metric_label {
    const char *name;
    struct str value; /* any bytes: escaped */
};
void metric_u64(struct buf *out, const char *name, const struct metric_label *labels, size_t n,
                uint64_t value);
/* Nanoseconds, shown in seconds. */
void metric_seconds(struct buf *out, const char *name, const struct metric_label *labels,
                    size_t n, uint64_t ns);
