/* What a VPC's namespace holds. */
#include "vpcd/native_int.h"

#include "os/netns.h"
#include "os/nft.h"
#include "os/sysctl.h"
#include "os/tun.h"
#include "vpcd/rulediff.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>

struct inside {
    struct native *n;
    struct native_vpc *nv;
    const struct plan_vpc *v;
    bool is_full, is_tap_new;
    struct nl *nl;
    struct nl_link *links;
    size_t n_links;
};

static const struct nl_link *find_link(const struct inside *in, const char *name)
{
    for (size_t i = 0; i < in->n_links; i++) {
        if (!strcmp(in->links[i].name, name)) {
            return &in->links[i];
        }
    }
    return NULL;
}

static int set_link_sysctls(const char *link, bool is_source_checked, bool is_proxy,
                            struct err *err)
{
    int r = sysctl_set_link("conf", link, "rp_filter", is_source_checked, err);
    r = r ? r : sysctl_set_link("conf", link, "send_redirects", 0, err);
    r = r ? r : sysctl_set_link("conf", link, "accept_redirects", 0, err);
    r = r ? r : sysctl_set_link("conf", link, "proxy_arp", is_proxy, err);
    /* Without it the kernel waits up to 0.8 s before it answers for a neighbour. */
    return r ? r : sysctl_set_link("neigh", link, "proxy_delay", 0, err);
}

/* ---- the namespace itself ---- */

static int set_up_base(struct inside *in, struct err *err)
{
    static const struct {
        const char *name;
        uint64_t value;
    } settings[] = {
        {"net/ipv4/ip_forward", 1},
        {"net/ipv4/conf/all/rp_filter", 0}, /* the larger of "all" and the link's own counts */
        {"net/ipv4/conf/default/rp_filter", 1},
        {"net/ipv4/conf/all/send_redirects", 0},
        {"net/ipv4/conf/all/accept_redirects", 0},
        {"net/ipv6/conf/all/disable_ipv6", 1},
        {"net/ipv6/conf/default/disable_ipv6", 1},
    };
    int r = 0;
    for (size_t i = 0; !r && i < ARRAY_LEN(settings); i++) {
        r = sysctl_set(settings[i].name, settings[i].value, err);
        if (r == -ENOENT && str_has_prefixc(str_c(settings[i].name), "net/ipv6")) {
            err_clear(err); /* a kernel without IPv6 has nothing to turn off */
            r = 0;
        }
    }
    const struct nl_link *lo = find_link(in, "lo"), *ext = find_link(in, LINK_EXT);
    if (r || !lo || !ext) {
        return r ? r
                 : fail(err, -ENODEV, "NetlinkFailed", "the namespace has no %s",
                        lo ? LINK_EXT : "lo");
    }
    r = nl_link_set(in->nl, lo->ifindex, true, 0, NULL, err);
    const uint32_t services[] = {SERVICE_IMDS, SERVICE_DNS, SERVICE_NTP, in->v->net + 2};
    for (size_t i = 0; !r && i < ARRAY_LEN(services); i++) {
        struct nl_addr a = {.ifindex = lo->ifindex, .ip = services[i], .prefix_len = 32};
        r = nl_addr_replace(in->nl, &a, err);
    }
    r = r ? r : set_link_sysctls(LINK_EXT, true, false, err);
    r = r ? r
          : nl_link_ensure(in->nl, ext, (uint32_t)in->n->cfg->guest_mtu, native_vpc_mac, err);
    struct nl_addr a = {
        .ifindex = ext->ifindex, .ip = LINK_VPC_IP, .prefix_len = 32, .scope = RT_SCOPE_LINK};
    struct nl_neigh gw = {.ifindex = ext->ifindex, .ip = LINK_HOST_IP};
    memcpy(gw.mac, native_host_mac, 6);
    struct nl_route dflt = {.gw = LINK_HOST_IP, .ifindex = ext->ifindex};
    r = r ? r : nl_addr_replace(in->nl, &a, err);
    r = r ? r : nl_neigh_replace(in->nl, &gw, err);
    return r ? r : nl_route_replace(in->nl, &dflt, err);
}

/* ---- interfaces ---- */

static void eni_print(const struct inside *in, const struct plan_eni *e, char out[160])
{
    snprintf(out, 160, "%s %x %x %.*s %d %u", e->tap, e->ip, e->gateway, STR_ARG(e->spec->mac),
             e->spec->is_source_dest_checked, (unsigned)in->n->cfg->guest_mtu);
}

/* The tap, down, so that the rules can name it before a packet can come. */
static int make_tap(struct inside *in, const struct plan_eni *e, struct native_eni *ne,
                    struct err *err)
{
    const struct nl_link *have = find_link(in, e->tap);
    struct nl_link l = {0};
    int r = 0;
    if (have) {
        l = *have;
    } else {
        /* Of a tap that was there before, the guard chain went with the old device. */
        char chain[NL_NAME_SIZE + 8];
        snprintf(chain, sizeof(chain), " g_%s {", e->tap);
        in->is_tap_new = in->is_tap_new || !in->nv->rules || strstr(in->nv->rules, chain);
        r = tun_create(e->tap, err);
        r = r ? r : nl_link_get(in->nl, e->tap, &l, err);
    }
    if (!r) {
        ne->ifindex = l.ifindex;
    }
    return r;
}

static int set_up_tap(struct inside *in, const struct plan_eni *e, const struct native_eni *ne,
                      struct err *err)
{
    struct nl_addr gw = {.ifindex = ne->ifindex, .ip = e->gateway, .prefix_len = 32};
    struct nl_route route = {.dst = e->ip, .prefix_len = 32, .ifindex = ne->ifindex};
    struct nl_neigh neigh = {.ifindex = ne->ifindex, .ip = e->ip};
    const struct nl_link *have = find_link(in, e->tap), fresh = {.ifindex = ne->ifindex};
    memcpy(neigh.mac, e->mac, 6);
    int r = set_link_sysctls(e->tap, e->spec->is_source_dest_checked, true, err);
    r = r ? r
          : nl_link_ensure(in->nl, have ? have : &fresh, (uint32_t)in->n->cfg->guest_mtu,
                           native_tap_mac, err);
    r = r ? r : nl_addr_replace(in->nl, &gw, err);
    r = r ? r : nl_neigh_replace(in->nl, &neigh, err);
    return r ? r : nl_route_replace(in->nl, &route, err);
}

static struct native_eni *eni_state(struct inside *in, struct str id)
{
    struct native_eni *ne = omap_get(in->nv->enis, id);
    if (!ne) {
        ne = calloc(1, sizeof(*ne));
        if (!ne) {
            abort();
        }
        omap_put(in->nv->enis, id, ne);
    }
    return ne;
}

/* Routes to addresses that no interface has (any more), on taps that stay. */
static int remove_stale_routes(struct inside *in, struct err *err)
{
    AUTO_FREE struct nl_route *routes = NULL;
    size_t n = 0;
    int r = nl_route_list(in->nl, &routes, &n, err);
    for (size_t i = 0; !r && i < n; i++) {
        bool is_wanted = routes[i].prefix_len == 0;
        for (size_t k = 0; k < in->v->n_enis && !is_wanted; k++) {
            const struct native_eni *ne = omap_get(in->nv->enis, in->v->enis[k].spec->id);
            is_wanted =
                ne && ne->ifindex == routes[i].ifindex && in->v->enis[k].ip == routes[i].dst;
        }
        if (!is_wanted) {
            r = nl_route_del(in->nl, &routes[i], err);
        }
    }
    return r;
}

static int remove_stale_taps(struct inside *in, struct err *err)
{
    int r = 0;
    for (size_t i = 0; !r && !in->v->is_incomplete && i < in->n_links; i++) {
        bool is_ours = str_has_prefixc(str_c(in->links[i].name), "spxt");
        for (size_t k = 0; is_ours && k < in->v->n_enis; k++) {
            is_ours = strcmp(in->links[i].name, in->v->enis[k].tap) != 0;
        }
        if (is_ours) {
            r = nl_link_del(in->nl, in->links[i].name, err);
        }
    }
    for (struct omap_node *node = omap_seek(in->nv->enis, STR("")); node;) {
        struct native_eni *ne = omap_value(node);
        struct str id = omap_key(node);
        node = omap_next(node);
        if (ne->seen != in->nv->round) {
            omap_remove(in->nv->enis, id);
            free(ne);
        }
    }
    return r;
}

/* ---- rules ---- */

static bool is_in_force(struct nft *nft, const char *mark)
{
    char cmd[64 + RULESET_MARK_SIZE];
    struct str text = STR_NONE;
    snprintf(cmd, sizeof(cmd), "list chain inet spx %s", mark);
    return !nft_list(nft, cmd, &text, NULL);
}

static int replace_rules(struct inside *in, struct nft *nft, struct buf *doc, struct err *err)
{
    int r = nft_apply(nft, buf_cstr(doc), err);
    if (r) {
        in->nv->mark[0] = 0; /* what is in force is not known: look, next time */
    }
    return r;
}

/* From the rules in force to the new ones: what did not change is not touched. */
static int change_rules(struct inside *in, struct nft *nft, struct buf *doc, struct err *err)
{
    AUTO_BUF steps;
    buf_init(&steps, RULESET_MAX);
    int r = rulediff(str_c(in->nv->rules), buf_str(doc), &steps, NULL);
    if (!r && buf_ok(&steps) && !nft_apply(nft, buf_cstr(&steps), NULL)) {
        return 0;
    }
    return replace_rules(in, nft, doc, err);
}

static int apply_rules(struct inside *in, struct err *err)
{
    AUTO_BUF doc;
    char mark[RULESET_MARK_SIZE];
    struct native_vpc *nv = in->nv;
    buf_init(&doc, RULESET_MAX);
    ruleset_vpc(in->v, &doc, mark);
    if (!buf_ok(&doc)) {
        return fail(err, -E2BIG, "TooLarge", "the rules are larger than %u bytes", RULESET_MAX);
    }
    bool is_same = nv->rules && !strcmp(mark, nv->mark);
    if (is_same && !in->is_full && !in->is_tap_new) {
        return 0;
    }
    AUTO(nft_closep) struct nft *nft = NULL;
    int r = nft_open(&nft, err);
    if (r) {
        return r;
    }
    bool is_known = !in->is_tap_new && is_in_force(nft, nv->rules ? nv->mark : mark);
    if (!is_known) {
        r = replace_rules(in, nft, &doc, err);
    } else if (nv->rules && !is_same) {
        r = change_rules(in, nft, &doc, err);
    }
    if (!r) {
        memcpy(nv->mark, mark, sizeof(mark));
        free(nv->rules);
        nv->rules = buf_take(&doc);
    }
    return r;
}

static int work(void *ctx, struct err *err)
{
    struct inside *in = ctx;
    bool is_first = !in->nv->mark[0];
    int r = nl_open(&in->nl, err);
    r = r ? r : nl_link_list(in->nl, &in->links, &in->n_links, err);
    if (!r && (in->is_full || is_first)) {
        r = set_up_base(in, err);
    }
    in->nv->round++;
    for (size_t i = 0; !r && i < in->v->n_enis; i++) {
        struct native_eni *ne = eni_state(in, in->v->enis[i].spec->id);
        ne->seen = in->nv->round;
        r = make_tap(in, &in->v->enis[i], ne, err);
    }
    r = r ? r : apply_rules(in, err);
    bool is_changed = in->is_full || is_first;
    for (size_t i = 0; !r && i < in->v->n_enis; i++) {
        const struct plan_eni *e = &in->v->enis[i];
        struct native_eni *ne = eni_state(in, e->spec->id);
        const struct nl_link *have = find_link(in, e->tap);
        char print[160];
        eni_print(in, e, print);
        if (!in->is_full && have && !strcmp(print, ne->print)) {
            continue;
        }
        is_changed = true;
        r = set_up_tap(in, e, ne, err);
        memcpy(ne->print, r ? "" : print, r ? 1 : sizeof(print));
    }
    r = r ? r : remove_stale_taps(in, err);
    return !r && is_changed ? remove_stale_routes(in, err) : r;
}

int native_inside(struct native *n, struct native_vpc *nv, const struct plan_vpc *v,
                  bool is_full, struct err *err)
{
    struct inside in = {.n = n, .nv = nv, .v = v, .is_full = is_full};
    int r = netns_run(nv->ns, work, &in, err);
    nl_close(in.nl);
    free(in.links);
    return r;
}

static int delete_taps(void *ctx, struct err *err)
{
    AUTO(nl_closep) struct nl *nl = NULL;
    AUTO_FREE struct nl_link *links = NULL;
    size_t n = 0;
    int r = nl_open(&nl, err);
    r = r ? r : nl_link_list(nl, &links, &n, err);
    for (size_t i = 0; !r && i < n; i++) {
        if (str_has_prefixc(str_c(links[i].name), "spxt")) {
            r = nl_link_del(nl, links[i].name, err);
        }
    }
    return r;
}

int native_delete_taps(int ns, struct err *err)
{
    return netns_run(ns, delete_taps, NULL, err);
}
