/* resp_sockets.h — the sockets of a responder, made by the privileged side: in the VPC's namespace, and towards the upstream name servers in the
 * host's.
 * Not here: who reads them.
 * Threads:  no state.
 * Memory:   descriptors are given to the caller.
 * Errors:   all or none; -EADDRINUSE: another process holds them. */
#pragma once
#include "model/config.h"
#include "vpcd/resp_int.h"

/* ret_fds[RESP_FD_N], in the order of enum resp_fd. */
MUST_CHECK int resp_sockets_open(int ns_fd, uint32_t vpc_dns, int *ret_fds, struct err *err);
/* RESP_UPSTREAM_SOCKETS for each name server of the pools, or else of /etc/resolv.conf, at most RESP_MAX_UPSTREAMS servers. */
MUST_CHECK int resp_upstreams_open(const struct config *cfg, int *ret_fds, size_t *ret_n,
                                   struct err *err);
