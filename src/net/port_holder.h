/* port_holder.h — who listens on a TCP port of this host, for an error message a person can act
 * on.
 * Not here: anything that decides by it.
 * Threads:  no state.
 * Memory:   fills a buffer of the caller.
 * Errors:   none: an empty text when it cannot be found out (another user's process, another
 *           namespace). */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* "nginx (pid 812)", or "". */
void port_holder(uint16_t port, char *p, size_t n);
