/* presence.h — a running service is seen in the store: node/<node>/<service>, kept by a lease
 * while the process lives.
 * Not here: facts about the host (compute/), health of a service (its admin socket).
 * Threads:  a thread of its own keeps the lease alive; start and stop from the main thread.
 * Memory:   presence_start() gives, presence_stop() takes and removes the record.
 * Errors:   the store being away is no error: the record is put again when it is back. */
#pragma once
#include "base/err.h"
#include "kv/kv.h"
#include "model/config.h"

#define PRESENCE_TTL_S 15u /* a service that is silent for so long is shown as gone */

struct presence;

/* 'service' is the short name: "awsgw". Never blocks. */
struct presence *presence_start(struct kv *kv, const struct config *cfg, const char *service,
                                const char *version);
void presence_stop(struct presence *p); /* NULL is fine */
DEFINE_CLEANUP(struct presence *, presence_stop);
