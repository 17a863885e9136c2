/* init_text.h — the text of a new configuration.
 * Not here: asking the host (host.h), writing the file (cmd_init.c).
 * Threads:  none of its own.
 * Memory:   appends to a buffer.
 * Errors:   none; the caller parses the text before it is used. */
#pragma once
#include "codec/rec.h"

struct init_text {
    const char *node, *host, *region, *az; /* az "" = the region and "a" */
    const char *data_dir, *run_dir;
    uint64_t uid_base, port, s3_port, metrics_port;
    struct str_list drives; /* of the object store; none = its default below data_dir */
    uint32_t pool_net;      /* a /24 that nobody uses */
    struct str_list dns_servers;
};
void init_text(const struct init_text *t, struct buf *out);
