/* Addresses, routes and neighbours of netlink.h. */
#include "os/netlink_int.h"

#include "base/vec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <string.h>

static uint32_t attr_ip(const struct nlattr *attr)
{
    return mnl_attr_get_payload_len(attr) == 4 ? ntohl(mnl_attr_get_u32(attr)) : 0;
}

/* ---- addresses ---- */

static struct nlmsghdr *addr_request(struct nl *nl, uint16_t type, uint16_t flags,
                                     const struct nl_addr *a)
{
    void *extra = NULL;
    struct nlmsghdr *h = nl_begin(nl, type, flags, sizeof(struct ifaddrmsg), &extra);
    struct ifaddrmsg *ifa = extra;
    ifa->ifa_family = AF_INET;
    ifa->ifa_prefixlen = a->prefix_len;
    ifa->ifa_scope = a->scope;
    ifa->ifa_index = a->ifindex;
    mnl_attr_put_u32(h, IFA_LOCAL, htonl(a->ip));
    mnl_attr_put_u32(h, IFA_ADDRESS, htonl(a->ip));
    return h;
}

int nl_addr_replace(struct nl *nl, const struct nl_addr *a, struct err *err)
{
    return nl_talk(nl, addr_request(nl, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, a),
                   "set address", NULL, NULL, err);
}

int nl_addr_del(struct nl *nl, const struct nl_addr *a, struct err *err)
{
    struct err e = ERR_INIT;
    int r = nl_talk(nl, addr_request(nl, RTM_DELADDR, 0, a), "delete address", NULL, NULL, &e);
    if (r == -EADDRNOTAVAIL || r == -ENODEV) {
        return 0;
    }
    return r ? fail(err, r, "NetlinkFailed", "%s", e.msg) : 0;
}

typedef VEC(struct nl_addr) addr_vec;

static int addr_attr(const struct nlattr *attr, void *ctx)
{
    struct nl_addr *a = ctx;
    if (mnl_attr_get_type(attr) == IFA_LOCAL) {
        a->ip = attr_ip(attr);
    }
    return MNL_CB_OK;
}

static int on_addr(const struct nlmsghdr *h, void *ctx)
{
    const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(h);
    if (ifa->ifa_family != AF_INET) {
        return MNL_CB_OK;
    }
    struct nl_addr a = {
        .ifindex = ifa->ifa_index, .prefix_len = ifa->ifa_prefixlen, .scope = ifa->ifa_scope};
    if (mnl_attr_parse(h, sizeof(*ifa), addr_attr, &a) < 0) {
        return MNL_CB_ERROR;
    }
    addr_vec *out = ctx;
    vec_push(out, a);
    return MNL_CB_OK;
}

int nl_addr_list(struct nl *nl, struct nl_addr **ret, size_t *ret_n, struct err *err)
{
    void *extra = NULL;
    struct nlmsghdr *h =
        nl_begin(nl, RTM_GETADDR, NLM_F_DUMP, sizeof(struct ifaddrmsg), &extra);
    ((struct ifaddrmsg *)extra)->ifa_family = AF_INET;
    addr_vec out = {0};
    int r = nl_talk(nl, h, "list of addresses", on_addr, &out, err);
    if (r) {
        vec_free(&out);
        return r;
    }
    *ret = out.v;
    *ret_n = out.n;
    return 0;
}

/* ---- routes ---- */

static struct nlmsghdr *route_request(struct nl *nl, uint16_t type, uint16_t flags,
                                      const struct nl_route *r)
{
    void *extra = NULL;
    struct nlmsghdr *h = nl_begin(nl, type, flags, sizeof(struct rtmsg), &extra);
    struct rtmsg *rt = extra;
    rt->rtm_family = AF_INET;
    rt->rtm_dst_len = r->prefix_len;
    rt->rtm_table = RT_TABLE_MAIN;
    rt->rtm_protocol = NL_PROTO_SPX;
    rt->rtm_scope = r->gw ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
    rt->rtm_type = RTN_UNICAST;
    if (r->prefix_len) {
        mnl_attr_put_u32(h, RTA_DST, htonl(r->dst));
    }
    if (r->gw) {
        rt->rtm_flags = RTNH_F_ONLINK;
        mnl_attr_put_u32(h, RTA_GATEWAY, htonl(r->gw));
    }
    mnl_attr_put_u32(h, RTA_OIF, r->ifindex);
    return h;
}

int nl_route_replace(struct nl *nl, const struct nl_route *r, struct err *err)
{
    return nl_talk(nl, route_request(nl, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, r),
                   "set route", NULL, NULL, err);
}

int nl_route_del(struct nl *nl, const struct nl_route *r, struct err *err)
{
    struct err e = ERR_INIT;
    int ret =
        nl_talk(nl, route_request(nl, RTM_DELROUTE, 0, r), "delete route", NULL, NULL, &e);
    if (ret == -ESRCH || ret == -ENODEV) {
        return 0;
    }
    return ret ? fail(err, ret, "NetlinkFailed", "%s", e.msg) : 0;
}

typedef VEC(struct nl_route) route_vec;

static int route_attr(const struct nlattr *attr, void *ctx)
{
    struct nl_route *r = ctx;
    switch (mnl_attr_get_type(attr)) {
    case RTA_DST: r->dst = attr_ip(attr); break;
    case RTA_GATEWAY: r->gw = attr_ip(attr); break;
    case RTA_OIF: r->ifindex = mnl_attr_get_u32(attr); break;
    default: break;
    }
    return MNL_CB_OK;
}

static int on_route(const struct nlmsghdr *h, void *ctx)
{
    const struct rtmsg *rt = mnl_nlmsg_get_payload(h);
    if (rt->rtm_family != AF_INET || rt->rtm_table != RT_TABLE_MAIN ||
        rt->rtm_protocol != NL_PROTO_SPX) {
        return MNL_CB_OK;
    }
    struct nl_route r = {.prefix_len = rt->rtm_dst_len};
    if (mnl_attr_parse(h, sizeof(*rt), route_attr, &r) < 0) {
        return MNL_CB_ERROR;
    }
    route_vec *out = ctx;
    vec_push(out, r);
    return MNL_CB_OK;
}

int nl_route_list(struct nl *nl, struct nl_route **ret, size_t *ret_n, struct err *err)
{
    void *extra = NULL;
    struct nlmsghdr *h = nl_begin(nl, RTM_GETROUTE, NLM_F_DUMP, sizeof(struct rtmsg), &extra);
    ((struct rtmsg *)extra)->rtm_family = AF_INET;
    route_vec out = {0};
    int r = nl_talk(nl, h, "list of routes", on_route, &out, err);
    if (r) {
        vec_free(&out);
        return r;
    }
    *ret = out.v;
    *ret_n = out.n;
    return 0;
}

/* ---- neighbours ---- */

static struct nlmsghdr *neigh_request(struct nl *nl, uint16_t type, uint16_t flags,
                                      const struct nl_neigh *n)
{
    void *extra = NULL;
    struct nlmsghdr *h = nl_begin(nl, type, flags, sizeof(struct ndmsg), &extra);
    struct ndmsg *nd = extra;
    nd->ndm_family = AF_INET;
    nd->ndm_ifindex = (int)n->ifindex;
    nd->ndm_state = NUD_PERMANENT;
    nd->ndm_flags = n->is_proxy ? NTF_PROXY : 0;
    mnl_attr_put_u32(h, NDA_DST, htonl(n->ip));
    if (!n->is_proxy) {
        mnl_attr_put(h, NDA_LLADDR, 6, n->mac);
    }
    return h;
}

int nl_neigh_replace(struct nl *nl, const struct nl_neigh *n, struct err *err)
{
    return nl_talk(nl, neigh_request(nl, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, n),
                   "set neighbour", NULL, NULL, err);
}

int nl_neigh_del(struct nl *nl, const struct nl_neigh *n, struct err *err)
{
    struct err e = ERR_INIT;
    int r =
        nl_talk(nl, neigh_request(nl, RTM_DELNEIGH, 0, n), "delete neighbour", NULL, NULL, &e);
    if (r == -ENOENT || r == -ENODEV || r == -ENXIO) {
        return 0;
    }
    return r ? fail(err, r, "NetlinkFailed", "%s", e.msg) : 0;
}

typedef VEC(struct nl_neigh) neigh_vec;

static int neigh_attr(const struct nlattr *attr, void *ctx)
{
    struct nl_neigh *n = ctx;
    switch (mnl_attr_get_type(attr)) {
    case NDA_DST: n->ip = attr_ip(attr); break;
    case NDA_LLADDR:
        if (mnl_attr_get_payload_len(attr) == sizeof(n->mac)) {
            memcpy(n->mac, mnl_attr_get_payload(attr), sizeof(n->mac));
        }
        break;
    default: break;
    }
    return MNL_CB_OK;
}

static int on_neigh(const struct nlmsghdr *h, void *ctx)
{
    const struct ndmsg *nd = mnl_nlmsg_get_payload(h);
    bool is_proxy = (nd->ndm_flags & NTF_PROXY) != 0;
    if (nd->ndm_family != AF_INET || (!is_proxy && !(nd->ndm_state & NUD_PERMANENT))) {
        return MNL_CB_OK;
    }
    struct nl_neigh n = {.ifindex = (uint32_t)nd->ndm_ifindex, .is_proxy = is_proxy};
    if (mnl_attr_parse(h, sizeof(*nd), neigh_attr, &n) < 0) {
        return MNL_CB_ERROR;
    }
    neigh_vec *out = ctx;
    vec_push(out, n);
    return MNL_CB_OK;
}

int nl_neigh_list(struct nl *nl, bool is_proxy, struct nl_neigh **ret, size_t *ret_n,
                  struct err *err)
{
    void *extra = NULL;
    struct nlmsghdr *h = nl_begin(nl, RTM_GETNEIGH, NLM_F_DUMP, sizeof(struct ndmsg), &extra);
    struct ndmsg *nd = extra;
    nd->ndm_family = AF_INET;
    nd->ndm_flags = is_proxy ? NTF_PROXY : 0;
    neigh_vec out = {0};
    int r = nl_talk(nl, h, "list of neighbours", on_neigh, &out, err);
    if (r) {
        vec_free(&out);
        return r;
    }
    *ret = out.v;
    *ret_n = out.n;
    return 0;
}
