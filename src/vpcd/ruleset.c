#include "vpcd/ruleset.h"

#include "base/num.h"
#include "crypto/digest.h"

#include <string.h>

#define IP_FMT     "%u.%u.%u.%u"
#define IP_ARG(ip) (ip) >> 24, (ip) >> 16 & 255, (ip) >> 8 & 255, (ip)&255

/* The hex digits of "sg-0123...": plan.c lets only well-formed ids through. */
static struct str hex_of(struct str id)
{
    return str_skip(id, 3);
}

/* ---- anti-spoofing, at the ingress of each tap ---- */

static void guard_chain(const struct plan_eni *e, struct buf *out)
{
    const uint8_t *m = e->mac;
    buf_fmt(out,
            " chain g_%s {\n  type filter hook ingress device \"%s\" priority -500; policy "
            "accept;\n",
            e->tap, e->tap);
    buf_fmt(out, "  ether saddr != %02x:%02x:%02x:%02x:%02x:%02x drop\n", m[0], m[1], m[2],
            m[3], m[4], m[5]);
    buf_fmt(out, "  ether type arp arp saddr ether != %02x:%02x:%02x:%02x:%02x:%02x drop\n",
            m[0], m[1], m[2], m[3], m[4], m[5]);
    buf_fmt(out, "  ether type arp arp saddr ip != { 0.0.0.0, " IP_FMT " } drop\n",
            IP_ARG(e->ip));
    buf_addc(out, "  ether type arp accept\n");
    buf_addc(out,
             "  ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept\n");
    if (e->spec->is_source_dest_checked) {
        buf_fmt(out, "  ip saddr != " IP_FMT " drop\n", IP_ARG(e->ip));
    }
    buf_addc(out, "  ether type ip accept\n  drop\n }\n");
}

/* ---- security groups ---- */

/* "tcp dport 80" and so on. False: a rule that IPv4 cannot match. */
static bool rule_match(const struct sg_rule *r, struct buf *out)
{
    struct str p = r->protocol;
    uint64_t number = 0;
    if (str_eqc(p, "-1") || str_eqc(p, "all")) {
        return true;
    }
    bool is_tcp = str_eqc(p, "tcp") || str_eqc(p, "6"),
         is_udp = str_eqc(p, "udp") || str_eqc(p, "17");
    if (is_tcp || is_udp) {
        const char *name = is_tcp ? "tcp" : "udp";
        if (r->port_from < 0 || (r->port_from == 0 && r->port_to == 65535)) {
            buf_fmt(out, "meta l4proto %s ", name);
        } else if (r->port_to < r->port_from || r->port_to > 65535) {
            return false;
        } else if (r->port_from == r->port_to) {
            buf_fmt(out, "%s dport %u ", name, (unsigned)r->port_from);
        } else {
            buf_fmt(out, "%s dport %u-%u ", name, (unsigned)r->port_from, (unsigned)r->port_to);
        }
        return true;
    }
    if (str_eqc(p, "icmp") || str_eqc(p, "1")) {
        if (r->port_from < 0) {
            buf_addc(out, "meta l4proto icmp ");
        } else if (r->port_from <= 255 && r->port_to <= 255) {
            buf_fmt(out, "icmp type %u ", (unsigned)r->port_from);
            if (r->port_to >= 0) {
                buf_fmt(out, "icmp code %u ", (unsigned)r->port_to);
            }
        } else {
            return false;
        }
        return true;
    }
    if (str_eqc(p, "icmpv6") || num_u64(p, 255, &number) || number == 58) {
        return false;
    }
    buf_fmt(out, "meta l4proto %u ", (unsigned)number);
    return true;
}

static void sg_rule(const struct plan_vpc *v, const struct sg_rule *r, struct buf *out)
{
    const char *side = r->is_egress ? "daddr" : "saddr";
    AUTO_BUF line;
    buf_init(&line, 512);
    uint32_t net = 0;
    unsigned len = 0;
    if (r->cidr.n) {
        if (cidr4_parse(r->cidr, &net, &len)) {
            return;
        }
        if (len) {
            buf_fmt(&line, "ip %s " IP_FMT "/%u ", side, IP_ARG(net), len);
        }
    } else if (r->group_id.n) {
        bool is_known = false;
        for (size_t i = 0; i < v->n_sgs && !is_known; i++) {
            is_known = str_eq(v->sgs[i].id, r->group_id);
        }
        if (!is_known) {
            return;
        }
        buf_fmt(&line, "ip %s @m_%.*s ", side, STR_ARG(hex_of(r->group_id)));
    } else {
        return; /* IPv6 ranges: guests have no IPv6 */
    }
    if (rule_match(r, &line) && buf_ok(&line)) {
        buf_addc(out, "  ");
        buf_add(out, buf_str(&line));
        buf_addc(out, "accept\n");
    }
}

static void sg_chains(const struct plan_vpc *v, struct buf *out)
{
    for (size_t i = 0; i < v->n_sgs; i++) {
        const struct plan_sg *g = &v->sgs[i];
        buf_fmt(out, " set m_%.*s {\n  type ipv4_addr\n", STR_ARG(hex_of(g->id)));
        for (size_t k = 0; k < g->n_members; k++) {
            buf_fmt(out, "%s" IP_FMT, k ? ", " : "  elements = { ", IP_ARG(g->members[k]));
        }
        buf_addc(out, g->n_members ? " }\n }\n" : " }\n");
    }
    for (size_t i = 0; i < v->n_sgs; i++) {
        const struct plan_sg *g = &v->sgs[i];
        for (int is_egress = 0; g->is_used && is_egress < 2; is_egress++) {
            buf_fmt(out, " chain %s_%.*s {\n", is_egress ? "o" : "i", STR_ARG(hex_of(g->id)));
            for (size_t k = 0; g->spec && k < g->spec->rules.n; k++) {
                if (g->spec->rules.v[k].is_egress == is_egress) {
                    sg_rule(v, &g->spec->rules.v[k], out);
                }
            }
            buf_addc(out, " }\n");
        }
    }
}

/* One chain per tap and direction: it jumps to each of its groups. */
static void eni_chains(const struct plan_vpc *v, struct buf *out)
{
    for (size_t i = 0; i < v->n_enis; i++) {
        const struct plan_eni *e = &v->enis[i];
        for (int is_egress = 0; is_egress < 2; is_egress++) {
            buf_fmt(out, " chain %s_%s {\n", is_egress ? "eo" : "ei", e->tap);
            for (size_t k = 0; k < e->spec->sg_ids.n; k++) {
                for (size_t g = 0; g < v->n_sgs; g++) {
                    if (str_eq(v->sgs[g].id, e->spec->sg_ids.v[k])) {
                        buf_fmt(out, "  jump %s_%.*s\n", is_egress ? "o" : "i",
                                STR_ARG(hex_of(v->sgs[g].id)));
                    }
                }
            }
            buf_addc(out, " }\n");
        }
    }
    for (int is_egress = 0; is_egress < 2; is_egress++) {
        buf_fmt(out, " map %s {\n  type ifname : verdict\n  elements = { ",
                is_egress ? "egress" : "ingress");
        for (size_t i = 0; i < v->n_enis; i++) {
            buf_fmt(out, "%s\"%s\" : jump %s_%s", i ? ", " : "", v->enis[i].tap,
                    is_egress ? "eo" : "ei", v->enis[i].tap);
        }
        buf_addc(out, " }\n }\n");
    }
}

/* ---- addresses outside ---- */

static size_t n_public(const struct plan_vpc *v)
{
    size_t n = 0;
    for (size_t i = 0; v->has_igw && i < v->n_enis; i++) {
        n += v->enis[i].public_ip != 0;
    }
    return n;
}

static void eip_map(const struct plan_vpc *v, const char *name, bool is_in, struct buf *out)
{
    buf_fmt(out, " map %s {\n  type ipv4_addr : ipv4_addr\n", name);
    const char *sep = "  elements = { ";
    for (size_t i = 0; v->has_igw && i < v->n_enis; i++) {
        const struct plan_eni *e = &v->enis[i];
        if (e->public_ip) {
            uint32_t from = is_in ? e->public_ip : e->ip, to = is_in ? e->ip : e->public_ip;
            buf_fmt(out, "%s" IP_FMT " : " IP_FMT, sep, IP_ARG(from), IP_ARG(to));
            sep = ", ";
        }
    }
    buf_addc(out, n_public(v) ? " }\n }\n" : " }\n");
}

/* Only an interface with a public address, in a subnet whose route table leads to the gateway,
 * gets out. */
static void to_igw_chain(const struct plan_vpc *v, struct buf *out)
{
    buf_fmt(out,
            " chain to_igw {\n  ip saddr != @has_public drop\n  ip daddr " IP_FMT
            "/%u drop\n  ip daddr 169.254.0.0/16 drop\n",
            IP_ARG(v->net), v->len);
    for (size_t i = 0; i < v->n_routes; i++) {
        const struct plan_subnet_route *r = &v->routes[i];
        for (size_t k = 0; k < r->n_dests; k++) {
            buf_fmt(out, "  ip saddr " IP_FMT "/%u", IP_ARG(r->net), r->len);
            if (r->dests[k].len) {
                buf_fmt(out, " ip daddr " IP_FMT "/%u", IP_ARG(r->dests[k].net),
                        r->dests[k].len);
            }
            buf_addc(out, " accept\n");
        }
    }
    buf_addc(out, "  drop\n }\n");
}

static void public_set(const struct plan_vpc *v, struct buf *out)
{
    buf_addc(out, " set has_public {\n  type ipv4_addr\n");
    const char *sep = "  elements = { ";
    for (size_t i = 0; v->has_igw && i < v->n_enis; i++) {
        if (v->enis[i].public_ip) {
            buf_fmt(out, "%s" IP_FMT, sep, IP_ARG(v->enis[i].ip));
            sep = ", ";
        }
    }
    buf_addc(out, n_public(v) ? " }\n }\n" : " }\n");
}

/* ---- the tables ---- */

static void base_chains(const struct plan_vpc *v, struct buf *out)
{
    uint32_t dns = v->net + 2;
    buf_addc(
        out,
        /* Two chains on one hook: "accept" ends only its own, so the sender's groups and the
         * receiver's must both agree. Flows that exist live on when a rule goes, as in AWS. */
        " chain fwd_egress {\n  type filter hook forward priority -10; policy accept;\n"
        "  ct state established,related accept\n  ct state invalid drop\n"
        "  iifname \"" LINK_EXT "\" ct status dnat accept\n  iifname \"" LINK_EXT "\" drop\n"
        "  iifname vmap @egress\n  drop\n }\n"
        " chain fwd_ingress {\n  type filter hook forward priority 0; policy accept;\n"
        "  ct state established,related accept\n"
        "  oifname \"" LINK_EXT "\" jump to_igw\n"
        "  oifname vmap @ingress\n  drop\n }\n"
        " chain pre {\n  type nat hook prerouting priority -100; policy accept;\n"
        "  iifname \"" LINK_EXT "\" dnat ip to ip daddr map @eip_in\n }\n"
        " chain post {\n  type nat hook postrouting priority 100; policy accept;\n"
        "  oifname \"" LINK_EXT "\" snat ip to ip saddr map @eip_out\n }\n"
        " set rate_dhcp {\n  type ifname\n  size 8192\n  flags dynamic\n }\n"
        " set rate_link {\n  type ifname\n  size 8192\n  flags dynamic\n }\n"
        " chain services {\n");
    buf_fmt(
        out,
        "  udp sport 68 udp dport 67 update @rate_dhcp { iifname limit rate over 20/second "
        "burst 40 packets } drop\n"
        "  udp sport 68 udp dport 67 accept\n"
        /* AWS's own limit for these services: 1024 packets a second and interface. */
        "  update @rate_link { iifname limit rate over 1024/second burst 2048 packets } drop\n"
        "  ct state established,related accept\n  ct state invalid drop\n"
        "  ip daddr { " IP_FMT ", " IP_FMT " } meta l4proto { tcp, udp } th dport 53 accept\n"
        "  ip daddr " IP_FMT " tcp dport 80 accept\n"
        "  ip daddr " IP_FMT " udp dport 123 accept\n"
        "  icmp type echo-request accept\n"
        "  drop\n }\n",
        IP_ARG(SERVICE_DNS), IP_ARG(dns), IP_ARG(SERVICE_IMDS), IP_ARG(SERVICE_NTP));
    buf_addc(out, " chain inp {\n  type filter hook input priority 0; policy accept;\n"
                  "  iifname \"lo\" accept\n"
                  "  iifname \"" LINK_EXT "\" ct state established,related accept\n"
                  "  iifname \"" LINK_EXT "\" drop\n"
                  "  jump services\n  drop\n }\n");
}

static void mark_of(struct str text, char out[RULESET_MARK_SIZE])
{
    char hex[2 * SHA256_SIZE + 1];
    uint8_t d[SHA256_SIZE];
    sha256(text, d);
    digest_hex(d, SHA256_SIZE, hex);
    memcpy(out, "v_", 2);
    memcpy(out + 2, hex, 32);
    out[34] = 0;
}

void ruleset_vpc(const struct plan_vpc *v, struct buf *out, char mark[RULESET_MARK_SIZE])
{
    buf_addc(out, "table netdev spx_guard {\n}\ndelete table netdev spx_guard\ntable netdev "
                  "spx_guard {\n");
    for (size_t i = 0; i < v->n_enis; i++) {
        guard_chain(&v->enis[i], out);
    }
    buf_addc(out, "}\ntable inet spx {\n}\ndelete table inet spx\ntable inet spx {\n");
    public_set(v, out);
    eip_map(v, "eip_in", true, out);
    eip_map(v, "eip_out", false, out);
    sg_chains(v, out);
    eni_chains(v, out);
    to_igw_chain(v, out);
    base_chains(v, out);
    mark_of(buf_str(out), mark);
    buf_fmt(out, " chain %s {\n }\n}\n", mark);
}

static void pool_set(const struct config *cfg, const char *name, bool is_retired,
                     struct buf *out)
{
    buf_fmt(out, " set %s {\n  type ipv4_addr\n  flags interval\n  auto-merge\n", name);
    const char *sep = "  elements = { ";
    for (size_t i = 0; i < cfg->n_pools; i++) {
        uint32_t a = 0, b = 0;
        if ((!is_retired || strcmp(cfg->pools[i].source, "retired") == 0) &&
            !ip4_parse(str_c(cfg->pools[i].range_start), &a) &&
            !ip4_parse(str_c(cfg->pools[i].range_end), &b) && a <= b) {
            if (a == b) {
                buf_fmt(out, "%s" IP_FMT, sep, IP_ARG(a));
            } else {
                buf_fmt(out, "%s" IP_FMT "-" IP_FMT, sep, IP_ARG(a), IP_ARG(b));
            }
            sep = ", ";
        }
    }
    buf_addc(out, sep[0] == ',' ? " }\n }\n" : " }\n");
}

void ruleset_host(const struct config *cfg, struct buf *out, char mark[RULESET_MARK_SIZE])
{
    char p[PLAN_PREFIX_SIZE]; /* of our links, and name of our table */
    plan_host_prefix(cfg->run_dir, p);
    buf_fmt(out, "table inet %s {\n}\ndelete table inet %s\ntable inet %s {\n", p, p, p);
    pool_set(cfg, "pool", false, out);
    pool_set(cfg, "retired", true, out);
    buf_fmt(
        out,
        " chain from_vpc {\n  type filter hook prerouting priority -300; policy accept;\n"
        "  iifname \"%s*\" ip saddr != @pool ip saddr != 169.254.255.2 drop\n"
        "  iifname \"%s*\" meta nfproto ipv6 drop\n }\n"
        /* The way out may carry less than the guests' links: TCP hears at once, both ways. */
        " chain clamp {\n  type filter hook forward priority -150; policy accept;\n"
        "  iifname \"%s*\" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu\n"
        "  oifname \"%s*\" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu\n "
        "}\n",
        p, p, p, p);
    /* Without an uplink of its own the pool is known to this host only: outside, its guests are
     * the host. So are those of a pool that was given up for one on a LAN. */
    buf_fmt(out,
            " chain post {\n  type nat hook postrouting priority 100; policy accept;\n"
            "  ip saddr @%s oifname != \"spxv*\" oifname != \"lo\" masquerade\n }\n",
            cfg->uplink && *cfg->uplink ? "retired" : "pool");
    mark_of(buf_str(out), mark);
    buf_fmt(out, " chain %s {\n }\n}\n", mark);
}
