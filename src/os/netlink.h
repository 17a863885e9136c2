/* netlink.h — links, addresses, routes and neighbours by rtnetlink, one typed call each.
 * Not here: nftables (nft.h), taps (tun.h). libmnl is seen in netlink*.c only. IPv4 addresses
 *           are uint32_t in host byte order.
 * Threads:  a struct nl belongs to one thread and speaks to the namespace in which it was
 *           opened.
 * Memory:   nl_open() gives; lists are given and freed by free().
 * Errors:   negative errno of the kernel with its own message, "NetlinkFailed".
 *           Deleting what is not there is fine; *_replace() makes it so. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define NL_NAME_SIZE 16

struct nl;

MUST_CHECK int nl_open(struct nl **ret, struct err *err);
void nl_close(struct nl *nl); /* NULL is fine */
DEFINE_CLEANUP(struct nl *, nl_close);

struct nl_link {
    uint32_t ifindex, mtu;
    char name[NL_NAME_SIZE], kind[NL_NAME_SIZE]; /* kind "veth", "tun", "" */
    uint8_t mac[6];
    bool is_up, has_carrier;
};

MUST_CHECK int nl_link_get(struct nl *nl, const char *name, struct nl_link *ret,
                           struct err *err); /* -ENODEV */
MUST_CHECK int nl_link_list(struct nl *nl, struct nl_link **ret, size_t *ret_n,
                            struct err *err);
/* Makes MTU (0 = leave), MAC (NULL = leave) and the up flag so. */
MUST_CHECK int nl_link_set(struct nl *nl, uint32_t ifindex, bool is_up, uint32_t mtu,
                           const uint8_t mac[6], struct err *err);
/* The same, up, when the link does not look so already: setting even an equal MAC makes the kernel
 * forget the link's neighbours, permanent ones too. */
MUST_CHECK int nl_link_ensure(struct nl *nl, const struct nl_link *have, uint32_t mtu,
                              const uint8_t mac[6], struct err *err);
MUST_CHECK int nl_link_del(struct nl *nl, const char *name, struct err *err);
/* A pair: 'name' here, 'peer' in the namespace 'peer_ns_fd'. Both down. */
struct nl_veth {
    const char *name, *peer;
    int peer_ns_fd;
    uint32_t mtu;
    uint8_t mac[6], peer_mac[6];
};
MUST_CHECK int nl_veth_add(struct nl *nl, const struct nl_veth *v, struct err *err);

struct nl_addr {
    uint32_t ifindex, ip;
    uint8_t prefix_len, scope; /* scope RT_SCOPE_* */
};
MUST_CHECK int nl_addr_replace(struct nl *nl, const struct nl_addr *a, struct err *err);
MUST_CHECK int nl_addr_del(struct nl *nl, const struct nl_addr *a, struct err *err);
MUST_CHECK int nl_addr_list(struct nl *nl, struct nl_addr **ret, size_t *ret_n,
                            struct err *err);

/* Routes of the main table that are marked as ours (protocol NL_PROTO_SPX); nl_route_list()
 * shows only those. */
#define NL_PROTO_SPX 197
struct nl_route {
    uint32_t dst, gw, ifindex; /* gw 0 = on the link itself; with a gateway the next hop is
                                  taken to be on the link */
    uint8_t prefix_len;
};
MUST_CHECK int nl_route_replace(struct nl *nl, const struct nl_route *r, struct err *err);
MUST_CHECK int nl_route_del(struct nl *nl, const struct nl_route *r, struct err *err);
MUST_CHECK int nl_route_list(struct nl *nl, struct nl_route **ret, size_t *ret_n,
                             struct err *err);

/* A permanent neighbour, or (is_proxy) an address for which this host answers ARP on the link.
 */
struct nl_neigh {
    uint32_t ifindex, ip;
    uint8_t mac[6];
    bool is_proxy;
};
MUST_CHECK int nl_neigh_replace(struct nl *nl, const struct nl_neigh *n, struct err *err);
MUST_CHECK int nl_neigh_del(struct nl *nl, const struct nl_neigh *n, struct err *err);
/* Permanent entries, or (is_proxy) proxy entries. */
MUST_CHECK int nl_neigh_list(struct nl *nl, bool is_proxy, struct nl_neigh **ret, size_t *ret_n,
                             struct err *err);
