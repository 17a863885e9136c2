#include "spx/doctor.h"

#include "model/network.h"
#include "os/nft.h"
#include "spx/host.h"
#include "spx/ports.h"
#include <stdio.h>
#include <unistd.h>

static void look_at_ports(struct doctor *d, const struct config *c)
{
    struct port_user used[4];
    char proc[300];
    (void)snprintf(proc, sizeof(proc), "%s/proc", d->root);
    size_t n = ports_used(d->a, proc, c, used), n_clashes = 0;
    for (size_t i = 0; i < n; i++) {
        if (used[i].is_ours) {
            continue;
        }
        char who[80], cure[200];
        (void)snprintf(who, sizeof(who), "%s (pid %u)", used[i].name, used[i].pid);
        (void)snprintf(cure, sizeof(cure), "end it, or set %s to another port", used[i].key);
        doctor_add(d, "ports", DOCTOR_FAIL, cure, "TCP port %u is used by %s", used[i].port,
                   used[i].pid ? who : "somebody");
        n_clashes++;
    }
    if (n_clashes == 0) {
        doctor_add(d, "ports", DOCTOR_OK, NULL, "free, or used by this cloud");
    }
}

/* A pool that nobody on a LAN shall see must not be a network that the host is in; one on the LAN
 * must. */
static void look_at_pool(struct doctor *d, const struct config *c)
{
    for (size_t i = 0; i < c->n_pools; i++) {
        uint32_t first = 0, mask = 0;
        if (strcmp(c->pools[i].source, "retired") == 0 ||
            ip4_parse(str_c(c->pools[i].range_start), &first) < 0 ||
            c->pools[i].prefix_len == 0 || c->pools[i].prefix_len > 32) {
            continue;
        }
        mask = ~UINT32_C(0) << (32 - c->pools[i].prefix_len);
        bool is_inside = host_has_address_in(first & mask, mask);
        if (is_inside && c->uplink[0] == '\0') {
            doctor_add(d, "pool", DOCTOR_FAIL,
                       "choose another range in [[network.external_pools]], or set "
                       "network.uplink when guests shall be on that LAN",
                       "this host is in the network of pool \"%s\" (%s/%llu) already",
                       c->pools[i].name, c->pools[i].range_start,
                       (unsigned long long)c->pools[i].prefix_len);
        } else if (!is_inside && c->uplink[0] != '\0') {
            doctor_add(d, "pool", DOCTOR_WARN,
                       "the range of a pool on a LAN lies in a network of its uplink",
                       "this host is not in the network of pool \"%s\" (%s/%llu)",
                       c->pools[i].name, c->pools[i].range_start,
                       (unsigned long long)c->pools[i].prefix_len);
        } else {
            doctor_add(d, "pool", DOCTOR_OK, NULL, "\"%s\": %s to %s", c->pools[i].name,
                       c->pools[i].range_start, c->pools[i].range_end);
        }
    }
}

/* table ip filter { chain FORWARD { type filter hook forward priority filter; policy drop; */
struct str doctor_forward_drop(struct arena *a, struct str chains)
{
    struct str line, table = STR(""), chain = STR("");
    while (chains.p && str_next(&chains, '\n', &line)) {
        line = str_trim(line);
        if (str_has_prefixc(line, "table ")) {
            table = str_trim(str_cut(str_skip(line, 6), '{'));
        } else if (str_has_prefixc(line, "chain ")) {
            chain = str_trim(str_cut(str_skip(line, 6), '{'));
        } else if (str_find_str(line, STR("hook forward")) >= 0 &&
                   str_find_str(line, STR("policy drop")) >= 0 &&
                   str_find_str(table, STR("spx")) < 0) {
            return arena_fmt(a, "%.*s %.*s", STR_ARG(table), STR_ARG(chain));
        }
    }
    return STR_NONE;
}

static void look_at_firewalls(struct doctor *d)
{
    AUTO(nft_closep) struct nft *n = NULL;
    struct str chains = STR_NONE;
    if (geteuid() != 0) {
        return; /* only root sees rules */
    }
    if (nft_open(&n, NULL) < 0 || nft_list(n, "list chains", &chains, NULL) < 0) {
        doctor_add(d, "firewall", DOCTOR_FAIL, "use a kernel with nf_tables",
                   "nftables cannot be used: guests get no network");
        return;
    }
    struct str drop = doctor_forward_drop(d->a, chains);
    if (str_is_set(drop)) {
        bool is_docker = str_find_str(chains, STR("DOCKER-USER")) >= 0;
        doctor_add(
            d, "firewall", DOCTOR_WARN,
            is_docker ? "iptables -I DOCKER-USER -i 'spxv+' -j ACCEPT && "
                        "iptables -I DOCKER-USER -o 'spxv+' -j ACCEPT"
                      : "let that firewall forward what comes from and goes to spxv*",
            "%.*s of another firewall drops what is forwarded: guests reach this host, and "
            "nothing beyond it",
            STR_ARG(drop));
    } else {
        doctor_add(d, "firewall", DOCTOR_OK, NULL, "no other firewall drops what is forwarded");
    }
}

void doctor_net(struct doctor *d, const struct config *c)
{
    look_at_ports(d, c);
    look_at_pool(d, c);
    look_at_firewalls(d);
}
