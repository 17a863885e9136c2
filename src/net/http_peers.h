/* http_peers.h — how many connections each address has: a cap that one address cannot get
 * around.
 * Not here: the cap on all connections (http_accept.c).
 * Threads:  any.
 * Memory:   http_peers_new() gives; entries go when their count falls to zero, so there are at
 *           most as many as connections.
 * Errors:   -EBUSY at the cap. */
#pragma once
#include "base/macro.h"
#include <sys/socket.h>

struct http_peers;

struct http_peers *http_peers_new(unsigned max_per_address);
void http_peers_free(struct http_peers *p);
/* Counts one connection. IPv6 is counted per /64, as a guest or a house owns one; unix sockets
 * are not counted. */
MUST_CHECK int http_peers_take(struct http_peers *p, const struct sockaddr_storage *a);
void http_peers_give(struct http_peers *p, const struct sockaddr_storage *a);
