#include "os/arp.h"

#include "base/time.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS   3
#define BATCH    64u /* frames between two looks at what came in: receive buffers are small */
#define ROUND_NS (1 * NS_PER_S)

enum { OFF_TYPE = 12, OFF_HW = 14, OFF_OP = 20, OFF_SHA = 22, OFF_SPA = 28, OFF_TPA = 38 };

static const uint8_t ethernet_ipv4[] = {0, 1, 0x08, 0, 6, 4}; /* hardware, protocol, lengths */

static void put_ip(uint8_t *p, uint32_t ip)
{
    ip = htonl(ip);
    memcpy(p, &ip, 4);
}

static uint32_t get_ip(const uint8_t *p)
{
    uint32_t ip = 0;
    memcpy(&ip, p, 4);
    return ntohl(ip);
}

void arp_request(uint8_t out[ARP_SIZE], const uint8_t mac[6], uint32_t sender_ip,
                 uint32_t target_ip)
{
    memset(out, 0, ARP_SIZE);
    memset(out, 0xff, 6);
    memcpy(out + 6, mac, 6);
    out[OFF_TYPE] = 0x08;
    out[OFF_TYPE + 1] = 0x06;
    memcpy(out + OFF_HW, ethernet_ipv4, sizeof(ethernet_ipv4));
    out[OFF_OP + 1] = 1;
    memcpy(out + OFF_SHA, mac, 6);
    put_ip(out + OFF_SPA, sender_ip);
    put_ip(out + OFF_TPA, target_ip);
}

bool arp_parse(const uint8_t *p, size_t n, struct arp_packet *ret)
{
    if (n < ARP_SIZE || p[OFF_TYPE] != 0x08 || p[OFF_TYPE + 1] != 0x06 ||
        memcmp(p + OFF_HW, ethernet_ipv4, sizeof(ethernet_ipv4)) != 0 || p[OFF_OP] != 0 ||
        (p[OFF_OP + 1] != 1 && p[OFF_OP + 1] != 2)) {
        return false;
    }
    ret->is_reply = p[OFF_OP + 1] == 2;
    memcpy(ret->sender_mac, p + OFF_SHA, 6);
    ret->sender_ip = get_ip(p + OFF_SPA);
    ret->target_ip = get_ip(p + OFF_TPA);
    return true;
}

static int open_on(const struct nl_link *l, int *ret, struct err *err)
{
    AUTO_FD fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return fail(err, -errno, "ArpFailed", "a packet socket: %m");
    }
    struct sockaddr_ll at = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ARP),
                             .sll_ifindex = (int)l->ifindex};
    if (bind(fd, (struct sockaddr *)&at, sizeof(at))) {
        return fail(err, -errno, "ArpFailed", "a packet socket on %s: %m", l->name);
    }
    *ret = steal_fd(&fd);
    return 0;
}

static int send_one(int fd, const struct nl_link *l, uint32_t sender, uint32_t target,
                    struct err *err)
{
    uint8_t frame[ARP_SIZE];
    arp_request(frame, l->mac, sender, target);
    ssize_t n = send(fd, frame, sizeof(frame), 0);
    /* A full queue loses this one; the next round asks again. */
    if (n < 0 && errno != EAGAIN && errno != ENOBUFS) {
        return fail(err, -errno, "ArpFailed", "sending on %s: %m", l->name);
    }
    return 0;
}

struct probe {
    const struct nl_link *l;
    uint32_t first, last;
    struct arp_holder *v;
    size_t n, max;
};

/* RFC 5227 section 2.1.1: the address is somebody's when anybody speaks with it, and disputed when
 * somebody else probes for it. */
static void take(struct probe *p, const struct arp_packet *a)
{
    uint32_t ip = a->sender_ip ? a->sender_ip : a->target_ip;
    if (ip < p->first || ip > p->last || memcmp(a->sender_mac, p->l->mac, 6) == 0) {
        return;
    }
    for (size_t i = 0; i < p->n; i++) {
        if (p->v[i].ip == ip) {
            return;
        }
    }
    if (p->n < p->max) {
        p->v[p->n].ip = ip;
        memcpy(p->v[p->n++].mac, a->sender_mac, 6);
    }
}

static void listen_until(int fd, struct probe *p, uint64_t end_ns)
{
    for (;;) {
        uint8_t frame[128];
        struct arp_packet a = {0};
        ssize_t n = recv(fd, frame, sizeof(frame), 0);
        if (n > 0 && arp_parse(frame, (size_t)n, &a)) {
            take(p, &a);
        }
        uint64_t now = time_mono_ns();
        if (now >= end_ns) {
            return;
        }
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        if (n < 0 && poll(&pf, 1, (int)((end_ns - now) / NS_PER_MS) + 1) < 0 &&
            errno != EINTR) {
            return;
        }
    }
}

int arp_probe(const struct nl_link *l, uint32_t first, uint32_t last, struct arp_holder *ret,
              size_t max, size_t *ret_n, struct err *err)
{
    struct probe p = {.l = l, .first = first, .last = last, .v = ret, .max = max};
    AUTO_FD fd = -1;
    if (last < first || last - first >= ARP_MAX_PROBE) {
        return fail(err, -EINVAL, "ArpFailed", "at most %u addresses are probed",
                    ARP_MAX_PROBE);
    }
    int r = open_on(l, &fd, err);
    for (int round = 0; r == 0 && round < ROUNDS; round++) {
        uint64_t end = time_mono_ns() + ROUND_NS;
        for (uint32_t i = 0; r == 0 && i <= last - first; i++) {
            r = send_one(fd, l, 0, first + i, err);
            if (i % BATCH == BATCH - 1) {
                listen_until(fd, &p, time_mono_ns() + 10 * NS_PER_MS);
            }
        }
        if (r == 0) {
            listen_until(fd, &p, end);
        }
    }
    if (r == 0) {
        *ret_n = p.n;
    }
    return r;
}

int arp_announce(const struct nl_link *l, uint32_t ip, struct err *err)
{
    AUTO_FD fd = -1;
    int r = open_on(l, &fd, err);
    return r ? r : send_one(fd, l, ip, ip, err);
}
