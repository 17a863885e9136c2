/* arp.h — ARP on a LAN: who has an address, and that it is ours now (RFC 826, RFC 5227).
 * Not here: answering for others' addresses, which the kernel does (nl_neigh, is_proxy).
 * Threads:  none of its own; arp_probe() blocks for about three seconds.
 * Memory:   nothing is kept; answers go to the caller's array.
 * Errors:   negative errno, "ArpFailed"; the sockets need CAP_NET_RAW. */
#pragma once
#include "os/netlink.h"

#define ARP_SIZE      42u /* of a frame, its Ethernet header included */
#define ARP_MAX_PROBE 1024u

struct arp_packet {
    uint32_t sender_ip, target_ip;
    uint8_t sender_mac[6];
    bool is_reply;
};

/* A broadcast request. Sender address 0 = a probe; sender and target the same = an announcement.
 */
void arp_request(uint8_t out[ARP_SIZE], const uint8_t mac[6], uint32_t sender_ip,
                 uint32_t target_ip);
/* False when the frame is no ARP for IPv4 over Ethernet. */
bool arp_parse(const uint8_t *p, size_t n, struct arp_packet *ret);

struct arp_holder {
    uint32_t ip;
    uint8_t mac[6];
};
/* Asks the LAN of 'l' three times for each address from first to last (at most ARP_MAX_PROBE)
 * and gives those that somebody has, or is probing for just now; at most 'max' of them. */
MUST_CHECK int arp_probe(const struct nl_link *l, uint32_t first, uint32_t last,
                         struct arp_holder *ret, size_t max, size_t *ret_n, struct err *err);
/* Tells the LAN that the address is at the link's MAC, so that nobody asks the one who had it. */
MUST_CHECK int arp_announce(const struct nl_link *l, uint32_t ip, struct err *err);
