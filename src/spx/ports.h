/* ports.h — who listens on the TCP ports that this node wants.
 * Not here: what is done about it (cmd_init.c, doctor.c).
 * Threads:  none of its own.
 * Memory:   in the arena.
 * Errors:   none: what cannot be read is not seen; only root sees the processes of others. */
#pragma once
#include "base/arena.h"
#include "model/config.h"
#include <stdint.h>

struct port_user {
    uint16_t port;
    const char *key;  /* of the configuration: "nodes.node1.awsgw.port" */
    unsigned pid;     /* 0: not known */
    const char *name; /* of the program; "" when not known */
    bool is_ours;     /* a service of a Spinifex */
};

/* Ports of the configuration on which somebody listens. 'proc' is "/proc". */
size_t ports_used(struct arena *a, const char *proc, const struct config *c,
                  struct port_user ret[4]);
/* The port's listening socket as /proc/net/tcp and tcp6 tell it: its inode, 0 = none. Pure. */
uint64_t ports_inode(struct str table, uint16_t port);
