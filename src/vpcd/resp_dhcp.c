/* DHCP and NTP over their sockets. One socket serves all taps: the kernel says by which one a
 * request came. */
#include "vpcd/resp_int.h"

#include "base/time.h"
#include "model/network.h"
#include "vpcd/dhcp.h"
#include "vpcd/ntp.h"
#include "vpcd/plan.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timex.h>

LOG_MODULE("resp.dhcp");

#define LEASE_S   3600u
#define BATCH_MAX 64 /* datagrams of one turn: other sockets get theirs in between */

ssize_t resp_recv(int fd, void *p, size_t size, struct sockaddr_in *from, uint32_t *ret_ifindex)
{
    union {
        char b[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct cmsghdr align;
    } ctl;
    struct iovec iov = {.iov_base = p, .iov_len = size};
    struct msghdr m = {.msg_name = from,
                       .msg_namelen = sizeof(*from),
                       .msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = ctl.b,
                       .msg_controllen = sizeof(ctl.b)};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
    if (n < 0) {
        return -errno;
    }
    *ret_ifindex = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            *ret_ifindex = (uint32_t)info.ipi_ifindex;
        }
    }
    return (m.msg_flags & MSG_TRUNC) || m.msg_namelen < sizeof(*from) ||
                   from->sin_family != AF_INET
               ? -EMSGSIZE
               : n;
}

/* Out of that link, from that address, whatever the routes say. */
static void send_by(int fd, uint32_t ifindex, uint32_t from, uint32_t to,
                    const struct dhcp_reply *reply)
{
    union {
        char b[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct cmsghdr align;
    } ctl = {0};
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons(DHCP_PORT_CLIENT),
                             .sin_addr.s_addr = htonl(to)};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)reply->p, .iov_len = reply->n};
    struct msghdr m = {.msg_name = &sa,
                       .msg_namelen = sizeof(sa),
                       .msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = ctl.b,
                       .msg_controllen = sizeof(ctl.b)};
    struct in_pktinfo info = {.ipi_ifindex = (int)ifindex, .ipi_spec_dst.s_addr = htonl(from)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = IPPROTO_IP;
    c->cmsg_type = IP_PKTINFO;
    c->cmsg_len = CMSG_LEN(sizeof(info));
    memcpy(CMSG_DATA(c), &info, sizeof(info));
    if (sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        log_warn_rl("dhcp.send_failed", KV_I64("errno", errno), KV_U64("link", ifindex));
    }
}

static bool lease_of(const struct resp *r, const struct fact_eni *e, struct dhcp_lease *l)
{
    const struct fact_vpc *v = facts_vpc(r->facts);
    uint32_t net = 0, vpc_net = 0;
    unsigned vpc_len = 0;
    *l = (struct dhcp_lease){.mtu = (uint16_t)v->mtu, .lease_s = LEASE_S, .domain = v->domain};
    if (ip4_parse(e->ip, &l->ip) || ip4_parse(e->gateway, &l->gateway) ||
        plan_parse_mac(e->mac, l->mac) || cidr4_parse(e->subnet_cidr, &net, &l->prefix_len) ||
        cidr4_parse(v->cidr, &vpc_net, &vpc_len)) {
        return false;
    }
    l->dns = vpc_net + 2;
    l->host_name = str_cut(e->private_dns, '.');
    return true;
}

static void on_dhcp(void *ctx, uint32_t ready)
{
    struct resp *r = ctx;
    int fd = r->fds[RESP_FD_DHCP];
    for (int i = 0; i < BATCH_MAX; i++) {
        char packet[2048];
        struct sockaddr_in from;
        uint32_t ifindex = 0;
        ssize_t n = resp_recv(fd, packet, sizeof(packet), &from, &ifindex);
        if (n == -EMSGSIZE) {
            continue;
        }
        if (n < 0) {
            return;
        }
        const struct fact_eni *e =
            facts_vpc(r->facts) ? facts_eni_by_ifindex(r->facts, ifindex) : NULL;
        struct dhcp_lease lease;
        struct dhcp_reply reply;
        if (e && lease_of(r, e, &lease) &&
            dhcp_answer(str_n(packet, (size_t)n), &lease, &reply) == DHCP_SEND) {
            send_by(fd, ifindex, lease.gateway, reply.to, &reply);
            log_info_rl("dhcp.answered", KV_STR("eni", e->id), KV_STR("ip", e->ip));
        }
    }
}

int resp_dhcp_start(struct resp *r, struct err *err)
{
    struct loop_fd *h = NULL;
    int e = loop_fd_add(r->loop, r->fds[RESP_FD_DHCP], EPOLLIN, on_dhcp, r, &h);
    return e ? fail(err, e, "StartFailed", "watch the DHCP socket") : 0;
}

static void on_ntp(void *ctx, uint32_t ready)
{
    struct resp *r = ctx;
    int fd = r->fds[RESP_FD_NTP];
    for (int i = 0; i < BATCH_MAX; i++) {
        char packet[512];
        uint8_t answer[NTP_SIZE];
        struct sockaddr_in from;
        uint32_t ifindex = 0;
        ssize_t n = resp_recv(fd, packet, sizeof(packet), &from, &ifindex);
        if (n == -EMSGSIZE) {
            continue;
        }
        if (n < 0) {
            return;
        }
        struct timex tx = {0};
        int state = adjtimex(&tx);
        struct ntp_clock c = {.received_ns = time_wall_ns(),
                              .is_synchronised = state >= 0 && state != TIME_ERROR};
        c.now_ns = c.received_ns;
        c.max_error_us =
            state >= 0 && tx.maxerror >= 0 ? (uint32_t)MIN(tx.maxerror, 16000000) : 0;
        if (ntp_answer(str_n(packet, (size_t)n), &c, answer)) {
            (void)sendto(fd, answer, NTP_SIZE, MSG_DONTWAIT | MSG_NOSIGNAL,
                         (const struct sockaddr *)&from, sizeof(from));
        }
    }
}

int resp_ntp_start(struct resp *r, struct err *err)
{
    struct loop_fd *h = NULL;
    int e = loop_fd_add(r->loop, r->fds[RESP_FD_NTP], EPOLLIN, on_ntp, r, &h);
    return e ? fail(err, e, "StartFailed", "watch the NTP socket") : 0;
}
