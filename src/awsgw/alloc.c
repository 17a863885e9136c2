#include "awsgw/alloc.h"

#include "awsgw/store.h"
#include "base/num.h"
#include "base/rand.h"
#include "model/keys.h"

#include <errno.h>
#include <string.h>

#define SUBNET_RESERVED_FIRST \
    4u /* network, router, DNS, future use (VPC user guide, subnet sizing) */
#define PICKER_MAX 65536u

struct str claim_private_ip_key(struct arena *a, struct str subnet_id, struct str ip)
{
    return key_claim(a, "ip", subnet_id, ip);
}

struct str claim_public_ip_key(struct arena *a, struct str ip)
{
    return key_claim(a, "publicip", ip, STR_NONE);
}

static bool is_used(const struct ip_picker *p, uint32_t ip)
{
    uint32_t i = ip - p->first;
    return (p->used[i / 8] >> (i % 8)) & 1;
}

static void mark(struct ip_picker *p, uint32_t ip)
{
    uint32_t i = ip - p->first;
    if (ip >= p->first && ip <= p->last && !is_used(p, ip)) {
        p->used[i / 8] = (uint8_t)(p->used[i / 8] | 1u << (i % 8));
        p->n_free--;
    }
}

/* Marks the addresses that end the keys under 'prefix'. */
static void mark_claims(struct gw *gw, struct ip_picker *p, struct str prefix)
{
    view_lock(gw->view);
    omap_foreach_prefix(n, view_map(gw->view), prefix)
    {
        uint32_t ip = 0;
        if (ip4_parse(str_skip(omap_key(n), prefix.n), &ip) == 0) {
            mark(p, ip);
        }
    }
    view_unlock(gw->view);
}

static int picker_init(struct arena *a, struct ip_picker *p, uint32_t first, uint32_t last,
                       struct err *err)
{
    if (last < first || last - first >= PICKER_MAX) {
        return fail(err, -EINVAL, "InternalError",
                    "an address range has more than %u addresses", PICKER_MAX);
    }
    size_t n = last - first + 1;
    *p = (struct ip_picker){.first = first, .last = last, .n_free = n};
    p->used = arena_alloc(a, (n + 7) / 8);
    if (!p->used) {
        return fail(err, -ENOMEM, "RequestTooLarge", "the request needs too much memory");
    }
    p->next = first + (uint32_t)(rand_u64() % n);
    return 0;
}

int ip_picker_subnet(struct gw *gw, struct arena *a, const struct subnet *s,
                     struct ip_picker *ret, struct err *err)
{
    uint32_t net = 0;
    unsigned len = 0;
    if (cidr4_parse(s->cidr, &net, &len) < 0 || len < 16 || len > 28) {
        return fail(err, -EINVAL, "InternalError", "subnet %.*s has the range %.*s",
                    STR_ARG(s->id), STR_ARG(s->cidr));
    }
    uint32_t last = net + (uint32_t)((UINT64_C(1) << (32 - len)) - 2);
    int r = picker_init(a, ret, net + SUBNET_RESERVED_FIRST, last, err);
    if (r < 0) {
        return r;
    }
    mark_claims(gw, ret, arena_fmt(a, "claim/ip/%.*s/", STR_ARG(s->id)));
    return 0;
}

static int picker_pool(struct gw *gw, struct arena *a, const struct config_pool *pool,
                       struct ip_picker *ret, struct err *err)
{
    uint32_t first = 0, last = 0, gateway = 0;
    if (ip4_parse(str_c(pool->range_start), &first) < 0 ||
        ip4_parse(str_c(pool->range_end), &last) < 0) {
        return fail(err, -EINVAL, "InternalError", "external pool %s: not an IPv4 range",
                    pool->name);
    }
    int r = picker_init(a, ret, first, last, err);
    if (r < 0) {
        return r;
    }
    if (pool->gateway && ip4_parse(str_c(pool->gateway), &gateway) == 0) {
        mark(ret, gateway);
    }
    mark_claims(gw, ret, STR("claim/publicip/"));
    return 0;
}

int ip_picker_public(struct gw *gw, struct arena *a, struct ip_picker *ret, struct err *err)
{
    struct ip_picker *p = NULL;
    int r = 0;
    *ret = (struct ip_picker){0};
    for (size_t i = 0; r == 0 && i < gw->cfg->n_pools; i++) {
        if (strcmp(gw->cfg->pools[i].source, "retired") == 0) {
            continue;
        }
        p = !p ? ret : (p->more = arena_new_of(a, struct ip_picker));
        r = picker_pool(gw, a, &gw->cfg->pools[i], p, err);
    }
    return r;
}

size_t ip_n_free(const struct ip_picker *p)
{
    size_t n = 0;
    for (; p; p = p->more) {
        n += p->n_free;
    }
    return n;
}

int ip_pick(struct ip_picker *p, uint32_t *ret)
{
    while (p && p->n_free == 0) {
        p = p->more;
    }
    if (!p) {
        return -ENOSPC;
    }
    while (is_used(p, p->next)) {
        p->next = p->next == p->last ? p->first : p->next + 1;
    }
    *ret = p->next;
    mark(p, p->next);
    return 0;
}

int ip_pick_exact(struct ip_picker *p, uint32_t ip)
{
    if (ip < p->first || ip > p->last) {
        return -ERANGE;
    }
    if (is_used(p, ip)) {
        return -EADDRINUSE;
    }
    mark(p, ip);
    return 0;
}

struct str mac_new(struct arena *a)
{
    uint8_t b[5];
    rand_bytes(b, sizeof(b));
    return arena_fmt(a, "0a:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4]);
}

const struct node_facts *node_facts_get(struct gw *gw, struct arena *a)
{
    return REC(node_facts, store_key(gw, a, arena_fmt(a, "node/%s/facts", gw->cfg->node)));
}

const struct instance_type *node_type_find(const struct node_facts *f, struct str name)
{
    for (size_t i = 0; f && i < f->types.n; i++) {
        if (str_eq(f->types.v[i].name, name)) {
            return &f->types.v[i];
        }
    }
    return NULL;
}

int capacity_change(struct txn *t, const struct node_facts *f, struct str node,
                    uint64_t n_vcpus, uint64_t n_burstable_vcpus, uint64_t memory_mib,
                    bool is_taken, struct err *err)
{
    struct str key = key_claim(t->a, "capacity", node, STR_NONE);
    const struct view_entry *e = store_key(t->gw, t->a, key);
    struct node_capacity cap = {0};
    if (e && e->obj) {
        cap = *REC(node_capacity, e);
    }
    uint64_t cost =
        node_cpu_percent(n_vcpus, false, 1) +
        node_cpu_percent(n_burstable_vcpus, true, t->gw->cfg->vcpu_overcommit_burstable);
    if (!is_taken) {
        cap.used_cpu_percent -= MIN(cap.used_cpu_percent, cost);
        cap.used_memory_mib -= MIN(cap.used_memory_mib, memory_mib);
        txn_set(t, e, key, &node_capacity_desc, &cap);
        return 0;
    }
    cap.used_cpu_percent += cost;
    cap.used_memory_mib += memory_mib;
    bool is_cpu_short = !f || cap.used_cpu_percent > f->usable_vcpus * 100;
    if (is_cpu_short || cap.used_memory_mib > f->usable_memory_mib) {
        return fail(err, -ENOSPC, "InsufficientInstanceCapacity",
                    "There is no Spinifex capacity available that matches your request (%s).",
                    !f             ? "the compute service has not reported"
                    : is_cpu_short ? "vCPUs"
                                   : "memory");
    }
    txn_set(t, e, key, &node_capacity_desc, &cap);
    return 0;
}
