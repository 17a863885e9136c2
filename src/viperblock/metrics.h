/* metrics.h — what the volumes do, as numbers for Prometheus: from the last word of each data
 *             process.
 * Not here: the text format (codec/metric.h), who gathers it (awsgw).
 * Threads:  the loop's; does not block.
 * Memory:   appends to the buffer given.
 * Errors:   none of its own. */
#pragma once
#include "base/buf.h"

void metrics_write(void *vb, struct buf *out);
