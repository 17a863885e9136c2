/* spx admin network: public addresses on the LAN. */
#include "base/file.h"
#include "base/num.h"
#include "base/time.h"
#include "codec/json.h"
#include "model/network.h"
#include "os/arp.h"
#include "spx/cmds.h"
#include "spx/data.h"
#include "spx/pool_text.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_FILE     (1u << 20)
#define MAX_NAMED    3u
#define CLAIM_PREFIX "claim/publicip/"
#define RESTART_NS   (60 * NS_PER_S)

static int read_range(struct spx *s, struct pool_lan *lan)
{
    const char *range = spx_value(s, "--range");
    if (!range || !spx_value(s, "--uplink")) {
        return spx_usage_error(s, "--uplink and --range are needed");
    }
    struct str first = str_cut(str_c(range), '-');
    struct str last = str_skip(str_c(range), first.n + 1);
    if (ip4_parse(first, &lan->first) < 0 || ip4_parse(last, &lan->last) < 0 ||
        lan->last < lan->first) {
        return spx_usage_error(s, "--range '%s' is not FIRST-LAST", range);
    }
    if (lan->last - lan->first >= ARP_MAX_PROBE) {
        return spx_usage_error(s, "--range has more than %u addresses", ARP_MAX_PROBE);
    }
    const char *gw = spx_value(s, "--gateway");
    if (gw && ip4_parse(str_c(gw), &lan->gateway) < 0) {
        return spx_usage_error(s, "--gateway '%s' is not an IPv4 address", gw);
    }
    lan->uplink = spx_value(s, "--uplink");
    return 0;
}

/* The router of the link's default route (0 = none): lines of link, destination, gateway, in
 * hexadecimal, bytes as on the wire but of a little-endian number. */
static uint32_t default_gateway(const char *link)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    if (file_read("/proc/net/route", MAX_FILE, &text, &n, NULL)) {
        return 0;
    }
    struct str rest = str_n(text, n), line = STR_NONE;
    while (str_next(&rest, '\n', &line)) {
        struct str name = STR_NONE, dst = STR_NONE, gw = STR_NONE;
        uint64_t d = 1, g = 0;
        if (str_next(&line, '\t', &name) && str_next(&line, '\t', &dst) &&
            str_next(&line, '\t', &gw) && str_eqc(name, link) &&
            num_hex_u64(dst, UINT32_MAX, &d) == 0 && d == 0 &&
            num_hex_u64(gw, UINT32_MAX, &g) == 0 && g != 0) {
            return __builtin_bswap32((uint32_t)g);
        }
    }
    return 0;
}

static int check_addresses(struct spx *s, struct nl *nl, const struct nl_link *l,
                           struct pool_lan *lan, struct err *err)
{
    AUTO_FREE struct nl_addr *v = NULL;
    size_t n = 0;
    const struct nl_addr *in = NULL;
    int r = nl_addr_list(nl, &v, &n, err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        uint32_t mask = v[i].prefix_len ? UINT32_MAX << (32 - v[i].prefix_len) : 0;
        if (v[i].ip >= lan->first && v[i].ip <= lan->last) {
            return fail(err, -EADDRINUSE, "AddressInUse", "%.*s is this host's own address",
                        STR_ARG(ip4_fmt(s->arena, v[i].ip)));
        }
        if (v[i].ifindex == l->ifindex && ((v[i].ip ^ lan->first) & mask) == 0 &&
            ((v[i].ip ^ lan->last) & mask) == 0) {
            in = &v[i];
        }
        if (lan->gateway == v[i].ip) {
            return fail(err, -EINVAL, "BadRange", "the gateway is this host itself");
        }
    }
    if (r) {
        return r;
    }
    if (!in) {
        return fail(err, -EINVAL, "BadRange", "%s has no address in a network of that range",
                    lan->uplink);
    }
    uint32_t mask = UINT32_MAX << (32 - in->prefix_len);
    lan->prefix_len = in->prefix_len;
    const char *what = NULL;
    if (in->prefix_len < 8 || in->prefix_len > 30) {
        what = "the uplink's network must have a prefix of 8 to 30 bits";
    } else if (lan->first == (in->ip & mask) || lan->last == (in->ip | ~mask)) {
        what = "the range holds the network's own or its broadcast address";
    } else if (!lan->gateway) {
        what = "the uplink has no default route: name the LAN's router with --gateway";
    } else if (((lan->gateway ^ in->ip) & mask) != 0) {
        what = "the gateway is not in the uplink's network";
    } else if (lan->gateway >= lan->first && lan->gateway <= lan->last) {
        what = "the gateway lies in the range";
    }
    return what ? fail(err, -EINVAL, "BadRange", "%s", what) : 0;
}

static int check_link(struct nl *nl, const struct pool_lan *lan, struct nl_link *ret,
                      struct err *err)
{
    static const uint8_t none[6] = {0};
    int r = nl_link_get(nl, lan->uplink, ret, err);
    if (r) {
        return r;
    }
    const char *what = NULL;
    if (str_has_prefixc(str_c(ret->name), "spx")) {
        what = "is a link of this cloud";
    } else if (memcmp(ret->mac, none, 6) == 0) {
        what = "is no link of a LAN: it has no MAC address";
    } else if (!ret->is_up || !ret->has_carrier) {
        what = ret->is_up ? "has no carrier: is the cable in?" : "is down";
    }
    return what ? fail(err, -ENETDOWN, "BadUplink", "%s %s", lan->uplink, what) : 0;
}

static int probe(struct spx *s, const struct nl_link *l, const struct pool_lan *lan,
                 struct err *err)
{
    size_t n = 0, max = lan->last - lan->first + 1;
    struct arp_holder *v = arena_array(s->arena, max, sizeof(*v));
    if (!v) {
        return fail(err, -E2BIG, "TooLarge", "the range is too large");
    }
    int r = arp_probe(l, lan->first, lan->last, v, max, &n, err);
    if (r || n == 0) {
        return r;
    }
    AUTO_BUF text;
    buf_init(&text, 4096);
    for (size_t i = 0; i < n && i < MAX_NAMED; i++) {
        const uint8_t *m = v[i].mac;
        buf_fmt(&text, "%s%.*s (%02x:%02x:%02x:%02x:%02x:%02x)", i ? ", " : "",
                STR_ARG(ip4_fmt(s->arena, v[i].ip)), m[0], m[1], m[2], m[3], m[4], m[5]);
    }
    if (n > MAX_NAMED) {
        buf_fmt(&text, " and %zu more", n - MAX_NAMED);
    }
    r = fail(err, -EADDRINUSE, "AddressInUse", "in use on the LAN: %s", buf_cstr(&text));
    err_hint(err,
             "choose a range that nothing uses and the LAN's DHCP server does not give out");
    return r;
}

struct losing {
    const struct config *cfg;
    const struct pool_lan *lan;
};

static int check_claim(void *ctx, const struct kv_item *item, struct err *err)
{
    const struct losing *l = ctx;
    struct str text = str_skip(item->key, strlen(CLAIM_PREFIX));
    uint32_t ip = 0;
    if (ip4_parse(text, &ip) < 0 || (ip >= l->lan->first && ip <= l->lan->last)) {
        return 0;
    }
    for (size_t i = 0; i < l->cfg->n_pools; i++) {
        const struct config_pool *p = &l->cfg->pools[i];
        uint32_t first = 0, last = 0;
        if (pool_lan_replaces(l->lan, p) && ip4_parse(str_c(p->range_start), &first) == 0 &&
            ip4_parse(str_c(p->range_end), &last) == 0 && ip >= first && ip <= last) {
            int r = fail(err, -EBUSY, "AddressInUse",
                         "%.*s of pool '%s' is in use, and would be in no pool any more",
                         STR_ARG(text), p->name);
            err_hint(err, "keep it in the range, or choose one that has nothing of that pool");
            return r;
        }
    }
    return 0;
}

/* A pool that the new one replaces must not lose an address that a guest has. */
static int check_claims(struct spx *s, const struct pool_lan *lan, struct err *err)
{
    struct losing l = {s->cfg, lan};
    for (size_t i = 0; i < s->cfg->n_pools; i++) {
        if (pool_lan_replaces(lan, &s->cfg->pools[i])) {
            int r = spx_state(s, err);
            return r ? r : data_each(s->kv, STR(CLAIM_PREFIX), check_claim, &l, err);
        }
    }
    return 0;
}

static int write_config(struct spx *s, const struct pool_lan *lan, struct err *err)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    struct stat st;
    const char *path = s->cfg->path;
    AUTO_BUF out;
    buf_init(&out, MAX_FILE);
    int r = file_read(path, MAX_FILE, &text, &n, err);
    r = r ? r : pool_text_lan(path, str_n(text, n), lan, s->arena, &out, err);
    if (r) {
        return r;
    }
    if (stat(path, &st)) {
        return fail(err, -errno, "ReadFailed", "%s: %m", path);
    }
    r = file_write_atomic(path, buf_str(&out), st.st_mode & 07777, err);
    if (!r && chown(path, st.st_uid, st.st_gid)) {
        r = fail(err, -errno, "WriteFailed", "%s: its owner: %m", path);
    }
    return r;
}

/* Process id of a running service, 0 = it does not run. */
static pid_t pid_of(struct spx *s, const char *service)
{
    AUTO(json_freep) struct json *j = NULL;
    const char *socket = arena_cstr(s->arena, arena_fmt(s->arena, "%s.sock", service));
    int r = spx_call(s, socket, "health", STR("{}"), -1, 5 * NS_PER_S, &j, NULL);
    return r < 0 ? 0 : (pid_t)json_get_u64(j, "pid", 0);
}

/* They read their configuration at start; who watches over them starts them again at once. Guests
 * and their connections are not theirs to stop. */
static int restart(struct spx *s, const char *service, struct err *err)
{
    const struct timespec wait = {.tv_nsec = 100 * 1000000};
    pid_t was = pid_of(s, service), now = 0;
    if (was <= 1) {
        return 0;
    }
    if (kill(was, SIGTERM) < 0) {
        return fail(err, -errno, "RestartFailed", "%s (process %d): %m", service, (int)was);
    }
    for (uint64_t end = time_mono_ns() + RESTART_NS; time_mono_ns() < end;) {
        now = pid_of(s, service);
        if (now > 1 && now != was) {
            return 0;
        }
        nanosleep(&wait, NULL);
    }
    return fail(err, -ETIMEDOUT, "RestartFailed",
                "the configuration is written, but %s does not come back: start it", service);
}

int cmd_network_lan(struct spx *s, struct err *err)
{
    struct pool_lan lan = {0};
    struct nl_link link = {0};
    AUTO(nl_closep) struct nl *nl = NULL;
    int r = read_range(s, &lan);
    r = r ? r : spx_config(s, err);
    r = r ? r : spx_need_root(s, err);
    r = r ? r : nl_open(&nl, err);
    r = r ? r : check_link(nl, &lan, &link, err);
    if (!r && !lan.gateway) {
        lan.gateway = default_gateway(lan.uplink);
    }
    r = r ? r : check_addresses(s, nl, &link, &lan, err);
    r = r ? r : check_claims(s, &lan, err);
    r = r ? r : probe(s, &link, &lan, err);
    r = r ? r : write_config(s, &lan, err);
    r = r ? r : restart(s, "vpcd", err);
    r = r ? r : restart(s, "awsgw", err);
    if (r) {
        return r;
    }
    struct str first = ip4_fmt(s->arena, lan.first), last = ip4_fmt(s->arena, lan.last);
    struct str gw = ip4_fmt(s->arena, lan.gateway);
    printf(s->is_json ? "{\"uplink\":\"%s\",\"range_start\":\"%.*s\",\"range_end\":\"%.*s\","
                        "\"gateway\":\"%.*s\"}\n"
                      : "public addresses are on the LAN of %s: %.*s to %.*s, gateway %.*s\n",
           lan.uplink, STR_ARG(first), STR_ARG(last), STR_ARG(gw));
    return 0;
}
