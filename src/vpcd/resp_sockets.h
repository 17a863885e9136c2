/* resp_sockets.h — the sockets of a responder, made by the privileged side: in the VPC's
 * namespace, and towards the upstream name servers in the host's.
 * Not here: who reads them.
 * Threads:  no state.
 * Memory:   descriptors are given to the caller.
 * Errors:   all or none; -EADDRINUSE: another process holds them. */
#pragma once
#include "model/config.h"
#include "vpcd/resp_int.h"

/* ret_fds[RESP_FD_N], in the order of enum resp_fd. */
MUST_CHECK int resp_sockets_open(int ns_fd, uint32_t vpc_dns, int *ret_fds, struct err *err);
/* Name servers of the pools, or else of /etc/resolv.conf, that there is a way to now, with the
 * address we would ask from: changes when the host's network does. */
#define RESP_UPSTREAMS_TEXT 64
void resp_upstreams_text(const struct config *cfg, char out[RESP_UPSTREAMS_TEXT]);
/* RESP_UPSTREAM_SOCKETS for each of them, connected. */
MUST_CHECK int resp_upstreams_open(const struct config *cfg, int *ret_fds, size_t *ret_n,
                                   struct err *err);
