/* dhcp.h — one DHCP request in, at most one answer out (RFC 2131, 2132). Pure: no sockets, no
 * state, no clock.
 * Not here: which interface the request came in on (resp_dhcp.c). A lease is fixed: the address
 *           belongs to the interface, so there is nothing to remember and nothing to exhaust.
 * Threads:  no state.
 * Memory:   answers go into a buffer of the caller.
 * Errors:   DHCP_IGNORE for everything that deserves no answer. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

#define DHCP_PORT_SERVER 67
#define DHCP_PORT_CLIENT 68
#define DHCP_MAX_SIZE \
    548 /* what every client must take, without IP and UDP headers (RFC 2131 §2) */

struct dhcp_lease {
    uint8_t mac[6];
    uint32_t ip, gateway, dns; /* host byte order; the gateway is the server's address too */
    unsigned prefix_len;
    uint16_t mtu;
    uint32_t lease_s;
    struct str host_name, domain;
};

struct dhcp_reply {
    uint8_t p[DHCP_MAX_SIZE];
    size_t n;
    uint32_t to; /* address to send to, UINT32_MAX = broadcast */
};

enum dhcp_verdict { DHCP_IGNORE, DHCP_SEND };
enum dhcp_verdict dhcp_answer(struct str packet, const struct dhcp_lease *l,
                              struct dhcp_reply *out);
