/* The host's side: pairs, routes to public addresses, one table, one setting; and how all of it
 * is undone. */
#include "vpcd/native_int.h"

#include "base/file.h"
#include "base/num.h"
#include "crypto/digest.h"
#include "os/arp.h"
#include "os/netns.h"
#include "os/nft.h"
#include "os/sysctl.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FORWARD "net/ipv4/ip_forward"

int native_pair(struct native *n, const struct plan_vpc *v, int peer_ns, bool is_full,
                struct err *err)
{
    struct nl_link l = {0};
    uint32_t mtu = (uint32_t)n->cfg->guest_mtu;
    int r = nl_link_get(n->nl, v->link, &l, NULL);
    if (!r && !is_full) {
        return 0;
    }
    if (r == -ENODEV) {
        struct nl_veth pair = {
            .name = v->link, .peer = LINK_EXT, .peer_ns_fd = peer_ns, .mtu = mtu};
        memcpy(pair.mac, native_host_mac, 6);
        memcpy(pair.peer_mac, native_vpc_mac, 6);
        r = nl_veth_add(n->nl, &pair, err);
    }
    r = r ? r : nl_link_get(n->nl, v->link, &l, err);
    r = r ? r : sysctl_set_link("conf", v->link, "rp_filter", 1, err);
    r = r ? r : sysctl_set_link("conf", v->link, "send_redirects", 0, err);
    r = r ? r : sysctl_set_link("conf", v->link, "accept_redirects", 0, err);
    r = r ? r : sysctl_set_link("conf", v->link, "proxy_arp", 0, err);
    r = r ? r : nl_link_ensure(n->nl, &l, mtu, native_host_mac, err);
    if (!r && n->host_gateway) {
        struct nl_addr a = {.ifindex = l.ifindex, .ip = n->host_gateway, .prefix_len = 32};
        r = nl_addr_replace(n->nl, &a, err);
    }
    struct nl_neigh peer = {.ifindex = l.ifindex, .ip = LINK_VPC_IP};
    memcpy(peer.mac, native_vpc_mac, 6);
    return r ? r : nl_neigh_replace(n->nl, &peer, err);
}

static bool has_public(const struct plan_vpc *v, uint32_t ip)
{
    for (size_t i = 0; v->has_igw && i < v->n_enis; i++) {
        if (v->enis[i].public_ip && v->enis[i].public_ip == ip) {
            return true;
        }
    }
    return false;
}

/* The LAN asks this host for the addresses (proxy ARP on the uplink). */
static int announce(struct native *n, uint32_t ip, bool is_on, struct err *err)
{
    if (!n->cfg->uplink || !*n->cfg->uplink) {
        return 0;
    }
    struct nl_link up = {0};
    int r = nl_link_get(n->nl, n->cfg->uplink, &up, err);
    struct nl_neigh ne = {.ifindex = up.ifindex, .ip = ip, .is_proxy = true};
    return r ? r : is_on ? nl_neigh_replace(n->nl, &ne, err) : nl_neigh_del(n->nl, &ne, err);
}

/* Neighbours that had spoken with another holder of the address ask no more for a while. It is a
 * hint, so one that cannot be sent (link down) is none the worse: they will ask in the end. */
static void tell_lan(struct native *n, uint32_t ip)
{
    struct nl_link up = {0};
    if (n->cfg->uplink && *n->cfg->uplink && !nl_link_get(n->nl, n->cfg->uplink, &up, NULL)) {
        UNUSED int r = arp_announce(&up, ip, NULL);
    }
}

static bool has_route(const struct nl_route *v, size_t n, uint32_t ifindex, uint32_t ip)
{
    for (size_t i = 0; i < n; i++) {
        if (v[i].ifindex == ifindex && v[i].dst == ip) {
            return true;
        }
    }
    return false;
}

static void routes_print(const struct plan_vpc *v, char out[40])
{
    struct digest *d = digest_new(DIGEST_SHA1);
    for (size_t i = 0; v->has_igw && i < v->n_enis; i++) {
        digest_add(d, str_n((const char *)&v->enis[i].public_ip, 4));
    }
    uint8_t sum[SHA1_SIZE];
    digest_end(d, sum);
    digest_free(d);
    digest_hex(sum, 19, out);
}

int native_host_routes(struct native *n, struct native_vpc *nv, const struct plan_vpc *v,
                       bool is_full, struct err *err)
{
    char print[40];
    routes_print(v, print);
    if (!is_full && !strcmp(print, nv->host_print)) {
        return 0;
    }
    struct nl_link l = {0};
    AUTO_FREE struct nl_route *have = NULL;
    size_t n_have = 0;
    int r = nl_link_get(n->nl, v->link, &l, err);
    r = r ? r : nl_route_list(n->nl, &have, &n_have, err);
    for (size_t i = 0; !r && i < n_have; i++) {
        if (have[i].ifindex == l.ifindex && !has_public(v, have[i].dst)) {
            r = nl_route_del(n->nl, &have[i], err);
            r = r ? r : announce(n, have[i].dst, false, err);
        }
    }
    for (size_t i = 0; !r && v->has_igw && i < v->n_enis; i++) {
        uint32_t ip = v->enis[i].public_ip;
        if (ip) {
            struct nl_route route = {
                .dst = ip, .prefix_len = 32, .gw = LINK_VPC_IP, .ifindex = l.ifindex};
            r = nl_route_replace(n->nl, &route, err);
            r = r ? r : announce(n, ip, true, err);
            if (!r && !has_route(have, n_have, l.ifindex, ip)) {
                tell_lan(n, ip);
            }
        }
    }
    if (!r) {
        memcpy(nv->host_print, print, sizeof(print));
    }
    return r;
}

/* ---- settings and rules of the host ---- */

static void saved_path(const struct config *cfg, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "%s/vpcd/ip_forward.before", cfg->run_dir);
}

/* What it was is written down before it is changed, once: a restart must not take our own value
 * for the old one. */
static int set_forwarding(const struct config *cfg, struct err *err)
{
    uint64_t now = 0;
    int r = sysctl_get(FORWARD, &now, err);
    if (r || now) {
        return r;
    }
    char path[PATH_SIZE];
    saved_path(cfg, path);
    if (access(path, F_OK)) {
        r = file_write_atomic(path, STR("0\n"), 0644, err);
    }
    return r ? r : sysctl_set(FORWARD, 1, err);
}

static int restore_forwarding(const struct config *cfg, struct err *err)
{
    char path[PATH_SIZE];
    saved_path(cfg, path);
    if (access(path, F_OK)) {
        return 0;
    }
    int r = sysctl_set(FORWARD, 0, err);
    if (!r && unlink(path)) {
        r = fail(err, -errno, "WriteFailed", "%s: %m", path);
    }
    return r;
}

int native_apply_host(struct native *n, bool is_full, struct err *err)
{
    if (!is_full) {
        return 0;
    }
    int r = set_forwarding(n->cfg, err);
    AUTO_BUF doc;
    buf_init(&doc, RULESET_MAX);
    char mark[RULESET_MARK_SIZE];
    ruleset_host(n->cfg, &doc, mark);
    AUTO(nft_closep) struct nft *nft = NULL;
    r = r ? r : nft_open(&nft, err);
    if (r) {
        return r;
    }
    char cmd[64 + RULESET_MARK_SIZE];
    snprintf(cmd, sizeof(cmd), "list chain inet %s %s", n->prefix, mark);
    struct str text = STR_NONE;
    if (!nft_list(nft, cmd, &text, NULL)) {
        return 0;
    }
    return nft_apply(nft, buf_cstr(&doc), err);
}

static int remove_proxies(struct native *n, struct err *err)
{
    AUTO_FREE struct nl_route *routes = NULL;
    size_t n_routes = 0;
    AUTO_FREE struct nl_link *links = NULL;
    size_t n_links = 0;
    int r = nl_route_list(n->nl, &routes, &n_routes, err);
    r = r ? r : nl_link_list(n->nl, &links, &n_links, err);
    for (size_t i = 0; !r && i < n_routes; i++) {
        for (size_t k = 0; !r && k < n_links; k++) {
            bool is_ours = links[k].ifindex == routes[i].ifindex &&
                           str_has_prefixc(str_c(links[k].name), n->prefix);
            r = is_ours ? announce(n, routes[i].dst, false, err) : 0;
        }
    }
    return r;
}

int native_teardown(const struct config *cfg, struct err *err)
{
    AUTO(native_freep) struct native *n = NULL;
    int r = native_new(cfg, &n, err);
    if (r) {
        return r;
    }
    const struct plan nothing = {0};
    r = remove_proxies(n, err);
    r = r ? r : native_remove_others(n, &nothing, NULL, NULL, err);
    char path[PATH_SIZE];
    r = r ? r : native_ns_path(n, NETNS_EMPTY, path, err);
    r = r ? r : netns_remove(path, err);
    if (!r && rmdir(n->dir) && errno != ENOENT) {
        r = fail(err, -errno, "WriteFailed", "%s: %m", n->dir);
    }
    AUTO(nft_closep) struct nft *nft = NULL;
    r = r ? r : nft_open(&nft, err);
    char doc[128];
    snprintf(doc, sizeof(doc), "table inet %s {\n}\ndelete table inet %s\n", n->prefix,
             n->prefix);
    r = r ? r : nft_apply(nft, doc, err);
    return r ? r : restore_forwarding(cfg, err);
}
