/* resp_int.h — the responder process of one VPC: DHCP, DNS, NTP and metadata over sockets that
 * vpcd made and passed.
 * Not here: protocols (dhcp, dns, ntp, imds: pure).
 * It is the only process that reads what guests send. It has no privileges, an empty network
 * namespace, and a list of allowed system calls.
 * Threads:  one loop.
 * Memory:   struct resp lives in main().
 * Errors:   bytes of guests never end the process. */
#pragma once
#include "base/log.h"
#include "loop/loop.h"
#include "vpcd/facts.h"

#include <netinet/in.h>

/* Descriptors at start, in this order from RESP_FD_FIRST. */
enum resp_fd {
    RESP_FD_DHCP,
    RESP_FD_DNS_UDP_A,
    RESP_FD_DNS_UDP_B,
    RESP_FD_DNS_TCP_A,
    RESP_FD_DNS_TCP_B,
    RESP_FD_NTP,
    RESP_FD_HTTP,
    RESP_FD_N
};
#define RESP_FD_FIRST         3
#define RESP_MAX_UPSTREAMS    2u
#define RESP_UPSTREAM_SOCKETS 8u /* each has a port of its own: answers are harder to forge */

struct resp_dns;

struct resp {
    struct loop *loop;
    struct facts *facts;
    int fds[RESP_FD_N];
    int upstreams[RESP_MAX_UPSTREAMS * RESP_UPSTREAM_SOCKETS];
    size_t n_upstreams;
    struct resp_dns *dns;
};

MUST_CHECK int resp_dhcp_start(struct resp *r, struct err *err);
MUST_CHECK int resp_ntp_start(struct resp *r, struct err *err);
MUST_CHECK int resp_dns_start(struct resp *r, struct err *err);
/* Takes the sockets in place of those before: RESP_UPSTREAM_SOCKETS of the first name server,
 * then of the next. */
MUST_CHECK int resp_dns_set_upstreams(struct resp *r, const int *fds, size_t n,
                                      struct err *err);
MUST_CHECK int resp_http_start(struct resp *r, struct err *err);
/* No new privileges, and only the system calls that the process needs from here on. */
MUST_CHECK int resp_sandbox(struct err *err);

/* Reads one datagram: address of the sender and index of the link it came by (0 without
 * IP_PKTINFO). -EAGAIN when there is none. */
ssize_t resp_recv(int fd, void *p, size_t size, struct sockaddr_in *from,
                  uint32_t *ret_ifindex);
