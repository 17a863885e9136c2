/* janitor.h — what follows from observed states: gives back what ended instances held, forgets
 * what is gone.
 * Each step is one transaction that a crash may repeat: released addresses, capacity, detached
 * and deleted volumes, images, old tokens.
 * Not here: acting on machines, disks and networks (compute, viperblock, vpcd).
 * Threads:  one thread of its own; janitor_poke() from any.
 * Memory:   janitor_start() gives, janitor_stop() takes.
 * Errors:   logged; a step that lost its transaction is done again at the next turn. */
#pragma once
#include "awsgw/gw.h"

#define TERMINATED_VISIBLE_NS \
    (UINT64_C(3600) * 1000000000) /* EC2 shows terminated instances for about an hour */

struct janitor;

struct janitor *janitor_start(struct gw *gw);
void janitor_stop(struct janitor *j); /* NULL is fine */
/* Something changed: look soon. */
void janitor_poke(struct janitor *j);
/* One turn, for tests: true when something was done. */
bool janitor_turn(struct gw *gw, uint64_t now_wall_ns);
