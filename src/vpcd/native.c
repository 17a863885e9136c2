#include "vpcd/native_int.h"

#include "os/netns.h"
#include "os/tun.h"
#include "vpcd/own_dir.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

const uint8_t native_host_mac[6] = {0x0a, 0xfe, 0, 0, 0, 1};
const uint8_t native_vpc_mac[6] = {0x0a, 0xfe, 0, 0, 0, 2};
const uint8_t native_tap_mac[6] = {0x0a, 0xff, 0,
                                   0,    0,    1}; /* the gateway, as every guest sees it */

int native_ns_path(const struct native *n, const char *name, char out[PATH_SIZE],
                   struct err *err)
{
    int len = snprintf(out, PATH_SIZE, "%s/%s", n->dir, name);
    return len < 0 || len >= PATH_SIZE
               ? fail(err, -ENAMETOOLONG, "BadConfig", "%s: the path is too long", n->dir)
               : 0;
}

static void vpc_free(void *p)
{
    struct native_vpc *nv = p;
    if (nv) {
        if (nv->ns >= 0) {
            close(nv->ns);
        }
        omap_free(nv->enis, free);
        free(nv->rules);
        free(nv);
    }
}

static int open_or_create(const struct native *n, const char *name, int *ret_fd,
                          struct err *err)
{
    char path[PATH_SIZE];
    int r = native_ns_path(n, name, path, err);
    if (r || !netns_open(path, ret_fd, NULL)) {
        return r;
    }
    r = netns_create(path, err);
    return r ? r : netns_open(path, ret_fd, err);
}

int native_new(const struct config *cfg, struct native **ret, struct err *err)
{
    struct native *n = calloc(1, sizeof(*n));
    if (!n) {
        abort();
    }
    n->cfg = cfg;
    n->empty_ns = -1;
    n->vpcs = omap_new();
    plan_host_prefix(cfg->run_dir, n->prefix);
    int len = snprintf(n->dir, sizeof(n->dir), "%s/netns", cfg->run_dir);
    int r = len < 0 || (size_t)len >= sizeof(n->dir)
                ? fail(err, -ENAMETOOLONG, "BadConfig", "run_dir is too long")
                : 0;
    r = r ? r : own_dir(n->dir, 0755, err);
    r = r ? r : open_or_create(n, NETNS_EMPTY, &n->empty_ns, err);
    r = r ? r : nl_open(&n->nl, err);
    bool is_host_only = !cfg->uplink || !*cfg->uplink;
    if (!r && is_host_only && cfg->n_pools &&
        ip4_parse(str_c(cfg->pools[0].gateway), &n->host_gateway)) {
        r = fail(err, -EINVAL, "BadConfig", "network.external_pools: \"%s\" is no address",
                 cfg->pools[0].gateway);
    }
    if (r) {
        native_free(n);
        return r;
    }
    *ret = n;
    return 0;
}

void native_free(struct native *n)
{
    if (n) {
        omap_free(n->vpcs, vpc_free);
        nl_close(n->nl);
        if (n->empty_ns >= 0) {
            close(n->empty_ns);
        }
        free(n);
    }
}

static struct native_vpc *get_vpc(struct native *n, struct str id, struct err *err)
{
    struct native_vpc *nv = omap_get(n->vpcs, id);
    if (nv) {
        return nv;
    }
    char name[PATH_SIZE];
    snprintf(name, sizeof(name), NETNS_PREFIX "%.*s", STR_ARG(id));
    int ns = -1;
    if (open_or_create(n, name, &ns, err)) {
        return NULL;
    }
    nv = calloc(1, sizeof(*nv));
    if (!nv) {
        abort();
    }
    nv->ns = ns;
    nv->enis = omap_new();
    omap_put(n->vpcs, id, nv);
    return nv;
}

int native_apply_vpc(struct native *n, const struct plan_vpc *v, bool is_full, struct err *err)
{
    struct err why = ERR_INIT;
    struct native_vpc *nv = get_vpc(n, v->spec->id, &why);
    int r = !nv ? why.code : native_pair(n, v, nv->ns, is_full || !nv->mark[0], &why);
    r = r ? r : native_inside(n, nv, v, is_full, &why);
    r = r ? r : native_host_routes(n, nv, v, is_full, &why);
    return r ? fail(err, r, why.name, "%.*s: %s", STR_ARG(v->spec->id), why.msg) : 0;
}

int native_vpc_ns(const struct native *n, struct str vpc_id)
{
    const struct native_vpc *nv = omap_get(n->vpcs, vpc_id);
    return nv ? nv->ns : -1;
}

int native_empty_ns(const struct native *n)
{
    return n->empty_ns;
}

uint32_t native_ifindex(const struct native *n, struct str vpc_id, struct str eni_id)
{
    const struct native_vpc *nv = omap_get(n->vpcs, vpc_id);
    const struct native_eni *e = nv ? omap_get(nv->enis, eni_id) : NULL;
    return e ? e->ifindex : 0;
}

/* ---- taps for their users ---- */

struct open_tap {
    const char *name;
    unsigned n_queues;
    int *fds;
    bool has_carrier;
};

static int open_tap(void *ctx, struct err *err)
{
    struct open_tap *o = ctx;
    return tun_open_queues(o->name, o->n_queues, o->fds, err);
}

static int look_at_tap(void *ctx, struct err *err)
{
    struct open_tap *o = ctx;
    AUTO(nl_closep) struct nl *nl = NULL;
    struct nl_link l = {0};
    int r = nl_open(&nl, err);
    r = r ? r : nl_link_get(nl, o->name, &l, err);
    o->has_carrier = !r && l.is_up && l.has_carrier;
    return r;
}

static int run_in(struct native *n, const struct plan_vpc *v, netns_fn fn, struct open_tap *o,
                  struct err *err)
{
    int ns = native_vpc_ns(n, v->spec->id);
    return ns < 0
               ? fail(err, -ENOENT, "NotReady", "%.*s has no network yet", STR_ARG(v->spec->id))
               : netns_run(ns, fn, o, err);
}

int native_open_tap(struct native *n, const struct plan_vpc *v, const struct plan_eni *e,
                    unsigned n_queues, int *ret_fds, struct err *err)
{
    struct open_tap o = {.name = e->tap, .n_queues = n_queues, .fds = ret_fds};
    return run_in(n, v, open_tap, &o, err);
}

int native_has_carrier(struct native *n, const struct plan_vpc *v, const struct plan_eni *e,
                       bool *ret, struct err *err)
{
    struct open_tap o = {.name = e->tap};
    int r = run_in(n, v, look_at_tap, &o, err);
    *ret = o.has_carrier;
    return r;
}

/* ---- what is no longer wanted ---- */

static bool is_wanted(const struct plan *p, struct str id)
{
    for (size_t i = 0; i < p->n_vpcs; i++) {
        if (str_eq(p->vpcs[i].spec->id, id)) {
            return true;
        }
    }
    return false;
}

static int remove_vpc(struct native *n, struct str id, struct err *err)
{
    char name[PATH_SIZE], path[PATH_SIZE], link[NL_NAME_SIZE];
    snprintf(name, sizeof(name), NETNS_PREFIX "%.*s", STR_ARG(id));
    plan_link_name(n->prefix, id, link);
    vpc_free(omap_remove(n->vpcs, id));
    int r = native_ns_path(n, name, path, err);
    AUTO_FD ns = -1;
    if (!r && !netns_open(path, &ns, NULL)) {
        /* A guest that still runs holds the namespace alive: its taps must go by themselves. */
        r = native_delete_taps(ns, err);
    }
    r = r ? r : nl_link_del(n->nl, link, err);
    return r ? r : netns_remove(path, err);
}

static int remove_links(struct native *n, const struct plan *p, struct err *err)
{
    AUTO_FREE struct nl_link *links = NULL;
    size_t n_links = 0;
    int r = nl_link_list(n->nl, &links, &n_links, err);
    for (size_t i = 0; !r && i < n_links; i++) {
        bool is_ours =
            str_has_prefixc(str_c(links[i].name), n->prefix) && !strcmp(links[i].kind, "veth");
        for (size_t k = 0; is_ours && k < p->n_vpcs; k++) {
            is_ours = strcmp(links[i].name, p->vpcs[k].link) != 0;
        }
        if (is_ours) {
            r = nl_link_del(n->nl, links[i].name, err);
        }
    }
    return r;
}

int native_remove_others(struct native *n, const struct plan *p,
                         void (*on_removed)(void *ctx, struct str vpc_id), void *ctx,
                         struct err *err)
{
    if (p->is_incomplete) {
        return 0;
    }
    DIR *d = opendir(n->dir);
    if (!d) {
        return fail(err, -errno, "NetnsFailed", "%s: %m", n->dir);
    }
    int r = 0;
    for (struct dirent *e = readdir(d); !r && e; e = readdir(d)) {
        struct str name = str_c(e->d_name), id = str_skip(name, strlen(NETNS_PREFIX));
        if (!str_has_prefixc(name, NETNS_PREFIX "vpc-") || is_wanted(p, id)) {
            continue;
        }
        if (on_removed) {
            on_removed(ctx, id);
        }
        r = remove_vpc(n, id, err);
    }
    closedir(d);
    return r ? r : remove_links(n, p, err);
}
