#include "os/netlink_int.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/vec.h"

int nl_open(struct nl **ret, struct err *err)
{
    struct nl *nl = calloc(1, sizeof(*nl));
    if (!nl) {
        return fail(err, -ENOMEM, "NetlinkFailed", "out of memory");
    }
    nl->sock = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    if (!nl->sock || mnl_socket_bind(nl->sock, 0, MNL_SOCKET_AUTOPID) < 0) {
        int r = fail(err, -errno, "NetlinkFailed", "netlink socket: %m");
        nl_close(nl);
        return r;
    }
    int on =
        1; /* old kernels have neither: messages are then only numbers, dumps only unfiltered */
    (void)mnl_socket_setsockopt(nl->sock, NETLINK_EXT_ACK, &on, sizeof(on));
    (void)mnl_socket_setsockopt(nl->sock, NETLINK_CAP_ACK, &on, sizeof(on));
    /* An answer comes at once or never: a service must not hang on a lost one. */
    const struct timeval limit = {.tv_sec = 10};
    if (setsockopt(mnl_socket_get_fd(nl->sock), SOL_SOCKET, SO_RCVTIMEO, &limit,
                   sizeof(limit))) {
        int r = fail(err, -errno, "NetlinkFailed", "netlink socket: %m");
        nl_close(nl);
        return r;
    }
    *ret = nl;
    return 0;
}

void nl_close(struct nl *nl)
{
    if (nl) {
        if (nl->sock) {
            mnl_socket_close(nl->sock);
        }
        free(nl);
    }
}

struct nlmsghdr *nl_begin(struct nl *nl, uint16_t type, uint16_t flags, size_t extra_size,
                          void **ret_extra)
{
    memset(nl->req, 0, sizeof(nl->req));
    struct nlmsghdr *h = mnl_nlmsg_put_header(nl->req);
    h->nlmsg_type = type;
    h->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    h->nlmsg_seq = ++nl->seq;
    *ret_extra = mnl_nlmsg_put_extra_header(h, extra_size);
    return h;
}

static int ext_ack_attr(const struct nlattr *attr, void *ctx)
{
    const char **text = ctx;
    if (mnl_attr_get_type(attr) == NLMSGERR_ATTR_MSG) {
        *text = mnl_attr_get_str(attr);
    }
    return MNL_CB_OK;
}

/* The text that the kernel adds to an error (NLMSGERR_ATTR_MSG), or "". */
static const char *ext_ack(const struct nlmsghdr *h)
{
    const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);
    const char *text = "";
    if (!(h->nlmsg_flags & NLM_F_ACK_TLVS)) {
        return text;
    }
    size_t skip = sizeof(*e);
    if (!(h->nlmsg_flags & NLM_F_CAPPED)) {
        skip +=
            e->msg.nlmsg_len - sizeof(struct nlmsghdr); /* the request is repeated in full */
    }
    (void)mnl_attr_parse(h, (unsigned)skip, ext_ack_attr, &text);
    return text;
}

/* One message of an answer. Returns 1 to go on, 0 at the end, negative errno. */
static int take_msg(struct nl *nl, const struct nlmsghdr *h, const char *what, mnl_cb_t on_msg,
                    void *ctx, struct err *err)
{
    if (h->nlmsg_seq != nl->seq) {
        return 1; /* left over from a request that failed half-way */
    }
    if (h->nlmsg_type == NLMSG_DONE) {
        return 0;
    }
    if (h->nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);
        if (h->nlmsg_len < mnl_nlmsg_size(sizeof(*e)) || e->error == 0) {
            return 0;
        }
        const char *text = ext_ack(h);
        errno = -e->error;
        return fail(err, e->error, "NetlinkFailed", "%s: %m%s%s", what, *text ? ": " : "",
                    text);
    }
    if (h->nlmsg_flags & NLM_F_DUMP_INTR) {
        return fail(err, -EINTR, "NetlinkFailed", "%s: the list changed while it was read",
                    what);
    }
    if (on_msg && on_msg(h, ctx) < 0) {
        return fail(err, -EPROTO, "NetlinkFailed", "%s: bad message of the kernel", what);
    }
    return 1;
}

int nl_talk(struct nl *nl, struct nlmsghdr *req, const char *what, mnl_cb_t on_msg, void *ctx,
            struct err *err)
{
    /* NLM_F_DUMP shares its bits with REPLACE and EXCL: both bits mean a dump, and only for
     * those is there no ACK. */
    if ((req->nlmsg_flags & NLM_F_DUMP) != NLM_F_DUMP) {
        req->nlmsg_flags |= NLM_F_ACK;
    }
    if (mnl_socket_sendto(nl->sock, req, req->nlmsg_len) < 0) {
        return fail(err, -errno, "NetlinkFailed", "%s: send: %m", what);
    }
    for (;;) {
        ssize_t got = mnl_socket_recvfrom(nl->sock, nl->rsp, sizeof(nl->rsp));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail(err, -errno, "NetlinkFailed", "%s: receive: %m", what);
        }
        int left = (int)got;
        for (const struct nlmsghdr *h = (const void *)nl->rsp; mnl_nlmsg_ok(h, left);
             h = mnl_nlmsg_next(h, &left)) {
            int r = take_msg(nl, h, what, on_msg, ctx, err);
            if (r <= 0) {
                return r;
            }
        }
    }
}

/* ---- links ---- */

static int kind_attr(const struct nlattr *attr, void *ctx)
{
    struct nl_link *l = ctx;
    if (mnl_attr_get_type(attr) == IFLA_INFO_KIND) {
        strncpy(l->kind, mnl_attr_get_str(attr), sizeof(l->kind) - 1);
    }
    return MNL_CB_OK;
}

static int link_attr(const struct nlattr *attr, void *ctx)
{
    struct nl_link *l = ctx;
    switch (mnl_attr_get_type(attr)) {
    case IFLA_IFNAME: strncpy(l->name, mnl_attr_get_str(attr), sizeof(l->name) - 1); break;
    case IFLA_MTU: l->mtu = mnl_attr_get_u32(attr); break;
    case IFLA_CARRIER: l->has_carrier = mnl_attr_get_u8(attr) != 0; break;
    case IFLA_ADDRESS:
        if (mnl_attr_get_payload_len(attr) == sizeof(l->mac)) {
            memcpy(l->mac, mnl_attr_get_payload(attr), sizeof(l->mac));
        }
        break;
    case IFLA_LINKINFO: return mnl_attr_parse_nested(attr, kind_attr, l);
    default: break;
    }
    return MNL_CB_OK;
}

typedef VEC(struct nl_link) link_vec;

static int on_link(const struct nlmsghdr *h, void *ctx)
{
    link_vec *out = ctx;
    const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(h);
    struct nl_link l = {.ifindex = (uint32_t)ifi->ifi_index,
                        .is_up = (ifi->ifi_flags & IFF_UP) != 0};
    if (mnl_attr_parse(h, sizeof(*ifi), link_attr, &l) < 0) {
        return MNL_CB_ERROR;
    }
    vec_push(out, l);
    return MNL_CB_OK;
}

int nl_link_get(struct nl *nl, const char *name, struct nl_link *ret, struct err *err)
{
    void *extra = NULL;
    struct nlmsghdr *h = nl_begin(nl, RTM_GETLINK, 0, sizeof(struct ifinfomsg), &extra);
    mnl_attr_put_strz(h, IFLA_IFNAME, name);
    link_vec links = {0};
    int r = nl_talk(nl, h, name, on_link, &links, err);
    if (!r && links.n == 0) {
        r = fail(err, -ENODEV, "NetlinkFailed", "%s: no such link", name);
    }
    if (!r) {
        *ret = links.v[0];
    }
    vec_free(&links);
    return r;
}

int nl_link_list(struct nl *nl, struct nl_link **ret, size_t *ret_n, struct err *err)
{
    void *extra = NULL;
    struct nlmsghdr *h =
        nl_begin(nl, RTM_GETLINK, NLM_F_DUMP, sizeof(struct ifinfomsg), &extra);
    link_vec links = {0};
    int r = nl_talk(nl, h, "list of links", on_link, &links, err);
    if (r) {
        vec_free(&links);
        return r;
    }
    *ret = links.v;
    *ret_n = links.n;
    return 0;
}

int nl_link_set(struct nl *nl, uint32_t ifindex, bool is_up, uint32_t mtu, const uint8_t mac[6],
                struct err *err)
{
    void *extra = NULL;
    struct nlmsghdr *h = nl_begin(nl, RTM_NEWLINK, 0, sizeof(struct ifinfomsg), &extra);
    struct ifinfomsg *ifi = extra;
    ifi->ifi_index = (int)ifindex;
    ifi->ifi_flags = is_up ? IFF_UP : 0;
    ifi->ifi_change = IFF_UP;
    if (mtu) {
        mnl_attr_put_u32(h, IFLA_MTU, mtu);
    }
    if (mac) {
        mnl_attr_put(h, IFLA_ADDRESS, 6, mac);
    }
    return nl_talk(nl, h, "set link", NULL, NULL, err);
}

int nl_link_ensure(struct nl *nl, const struct nl_link *have, uint32_t mtu,
                   const uint8_t mac[6], struct err *err)
{
    bool is_mac_right = memcmp(have->mac, mac, sizeof(have->mac)) == 0;
    if (have->is_up && have->mtu == mtu && is_mac_right) {
        return 0;
    }
    return nl_link_set(nl, have->ifindex, true, mtu, is_mac_right ? NULL : mac, err);
}

int nl_link_del(struct nl *nl, const char *name, struct err *err)
{
    void *extra = NULL;
    struct nlmsghdr *h = nl_begin(nl, RTM_DELLINK, 0, sizeof(struct ifinfomsg), &extra);
    mnl_attr_put_strz(h, IFLA_IFNAME, name);
    struct err e = ERR_INIT;
    int r = nl_talk(nl, h, name, NULL, NULL, &e);
    if (r == -ENODEV) {
        return 0;
    }
    return r ? fail(err, r, "NetlinkFailed", "delete link %s", e.msg) : 0;
}

int nl_veth_add(struct nl *nl, const struct nl_veth *v, struct err *err)
{
    if (strlen(v->name) >= NL_NAME_SIZE || strlen(v->peer) >= NL_NAME_SIZE) {
        return fail(err, -ENAMETOOLONG, "NetlinkFailed", "%s, %s: a name is too long", v->name,
                    v->peer);
    }
    void *extra = NULL;
    struct nlmsghdr *h =
        nl_begin(nl, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg), &extra);
    mnl_attr_put_strz(h, IFLA_IFNAME, v->name);
    mnl_attr_put_u32(h, IFLA_MTU, v->mtu);
    mnl_attr_put(h, IFLA_ADDRESS, 6, v->mac);
    struct nlattr *info = mnl_attr_nest_start(h, IFLA_LINKINFO);
    mnl_attr_put_strz(h, IFLA_INFO_KIND, "veth");
    struct nlattr *data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
    struct nlattr *peer = mnl_attr_nest_start(h, VETH_INFO_PEER);
    mnl_nlmsg_put_extra_header(
        h, sizeof(struct ifinfomsg)); /* the peer's own header, then its attributes */
    mnl_attr_put_strz(h, IFLA_IFNAME, v->peer);
    mnl_attr_put_u32(h, IFLA_MTU, v->mtu);
    mnl_attr_put(h, IFLA_ADDRESS, 6, v->peer_mac);
    mnl_attr_put_u32(h, IFLA_NET_NS_FD, (uint32_t)v->peer_ns_fd);
    mnl_attr_nest_end(h, peer);
    mnl_attr_nest_end(h, data);
    mnl_attr_nest_end(h, info);
    return nl_talk(nl, h, v->name, NULL, NULL, err);
}
