#include "vpcd/plan.h"

#include "base/omap.h"
#include "codec/hex.h"
#include "crypto/digest.h"
#include "model/keys.h"

#include <errno.h>
#include <stdio.h>

struct build {
    const struct plan_input *in;
    struct arena *a;
    struct plan *plan;
    struct omap *vpcs, *subnets, *instances, *sgs, *rtbs, *tags; /* by id */
    struct omap *planned;                                        /* vpc id -> struct plan_vpc */
};

void plan_link_name(const char *prefix, struct str id, char out[NL_NAME_SIZE])
{
    size_t room = NL_NAME_SIZE - 1 - strlen(prefix);
    struct str tail = id.n > room ? str_skip(id, id.n - room) : id;
    snprintf(out, NL_NAME_SIZE, "%s%.*s", prefix, STR_ARG(tail));
}

void plan_host_prefix(const char *run_dir, char out[PLAN_PREFIX_SIZE])
{
    uint8_t d[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];
    sha256(str_c(run_dir), d);
    digest_hex(d, SHA256_SIZE, hex);
    snprintf(out, PLAN_PREFIX_SIZE, "spxv%.3s", hex);
}

int plan_parse_mac(struct str s, uint8_t out[6])
{
    if (s.n != 17) {
        return -EINVAL;
    }
    for (size_t i = 0; i < 6; i++) {
        if (hex_decode(str_n(s.p + 3 * i, 2), &out[i], 1) || (i < 5 && s.p[3 * i + 2] != ':')) {
            return -EINVAL;
        }
    }
    return out[0] & 1 ? -EINVAL : 0; /* a group address is nobody's */
}

static void index_all(struct build *b)
{
    const struct plan_input *in = b->in;
#define INDEX(map, kind)                                           \
    b->map = omap_new();                                           \
    for (size_t i = 0; i < in->kind.n; i++) {                      \
        const void *p = in->kind.v[i];                             \
        omap_put(b->map, in->kind.v[i]->id, (void *)(uintptr_t)p); \
    }
    INDEX(vpcs, vpc)
    INDEX(subnets, subnet)
    INDEX(instances, instance)
    INDEX(sgs, sg)
    INDEX(rtbs, rtb)
    INDEX(tags, tags)
#undef INDEX
    b->planned = omap_new();
}

static void unindex_all(struct build *b)
{
    struct omap *all[] = {b->vpcs, b->subnets, b->instances, b->sgs,
                          b->rtbs, b->tags,    b->planned};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        omap_free(all[i], NULL);
    }
}

static bool is_deleted(const struct eni *e)
{
    return str_eqc(e->want, "deleted");
}

/* Reads one interface; the reason why not, or NULL. */
static const char *read_eni(const struct build *b, const struct eni *e, struct plan_eni *pe)
{
    *pe = (struct plan_eni){.spec = e};
    const struct vpc *vpc = omap_get(b->vpcs, e->vpc_id);
    pe->subnet = omap_get(b->subnets, e->subnet_id);
    if (!vpc || !pe->subnet || !str_eq(pe->subnet->vpc_id, vpc->id) ||
        !str_eq(vpc->account, e->account)) {
        return "its VPC or subnet is not known";
    }
    if (!id_is_wellformed(e->id, "eni") || !id_is_wellformed(vpc->id, "vpc")) {
        return "a malformed id";
    }
    if (cidr4_parse(pe->subnet->cidr, &pe->subnet_net, &pe->subnet_len) || pe->subnet_len < 1 ||
        pe->subnet_len > 30) {
        return "the range of its subnet is not valid";
    }
    if (ip4_parse(e->private_ip, &pe->ip) ||
        (pe->ip ^ pe->subnet_net) >> (32 - pe->subnet_len)) {
        return "its address is not in its subnet";
    }
    pe->gateway = pe->subnet_net + 1;
    if (pe->ip == pe->gateway || plan_parse_mac(e->mac, pe->mac)) {
        return "its address or MAC is not valid";
    }
    if (e->public_ip.n && ip4_parse(e->public_ip, &pe->public_ip)) {
        return "its public address is not valid";
    }
    plan_link_name("spxt", e->id, pe->tap);
    pe->inst = e->instance_id.n ? omap_get(b->instances, e->instance_id) : NULL;
    pe->tags = pe->inst ? omap_get(b->tags, pe->inst->id) : NULL;
    return NULL;
}

static struct plan_vpc *vpc_of(struct build *b, struct str id)
{
    struct plan_vpc *pv = omap_get(b->planned, id);
    if (pv) {
        return pv;
    }
    pv = &b->plan->vpcs[b->plan->n_vpcs++];
    pv->spec = omap_get(b->vpcs, id);
    plan_link_name(b->in->host_prefix, id, pv->link);
    omap_put(b->planned, id, pv);
    return pv;
}

static bool is_here(const struct build *b, const struct eni *e)
{
    return str_eqc(e->node, b->in->node);
}

static void sort_enis(struct build *b)
{
    struct plan *p = b->plan;
    const struct plan_input *in = b->in;
    struct arena *a = b->a;
    p->vpcs = arena_xalloc(a, (in->vpc.n + 1) * sizeof(*p->vpcs));
    p->bad = arena_xalloc(a, (in->eni.n + 1) * sizeof(*p->bad));
    p->gone = arena_xalloc(a, (in->eni.n + 1) * sizeof(struct eni *));
    struct plan_eni *good = arena_xalloc(a, (in->eni.n + 1) * sizeof(*good));
    size_t n_good = 0;
    for (size_t i = 0; i < in->eni.n; i++) {
        const struct eni *e = in->eni.v[i];
        if (!is_here(b, e)) {
            continue;
        }
        if (is_deleted(e)) {
            p->gone[p->n_gone++] = e;
            continue;
        }
        const char *why = read_eni(b, e, &good[n_good]);
        if (why) {
            p->bad[p->n_bad++] = (struct plan_eni_bad){e, str_c(why)};
            continue;
        }
        vpc_of(b, e->vpc_id)->n_enis++;
        n_good++;
    }
    for (size_t i = 0; i < p->n_vpcs; i++) {
        p->vpcs[i].enis = arena_xalloc(a, p->vpcs[i].n_enis * sizeof(struct plan_eni));
        p->vpcs[i].n_enis = 0;
    }
    for (size_t i = 0; i < n_good; i++) {
        struct plan_vpc *pv = vpc_of(b, good[i].spec->vpc_id);
        pv->enis[pv->n_enis++] = good[i];
    }
}

/* ---- security groups ---- */

static struct plan_sg *add_sg(struct build *b, struct plan_vpc *pv, struct omap *seen,
                              struct str id)
{
    struct plan_sg *g = omap_get(seen, id);
    if (g || !id_is_wellformed(id, "sg")) {
        return g;
    }
    g = &pv->sgs[pv->n_sgs++];
    g->id = id;
    const struct sg *spec = omap_get(b->sgs, id);
    g->spec = spec && str_eq(spec->vpc_id, pv->spec->id) ? spec : NULL;
    omap_put(seen, id, g);
    return g;
}

static int by_ip(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void add_members(struct build *b, struct plan_vpc *pv, struct omap *seen)
{
    const struct plan_input *in = b->in;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < in->eni.n; i++) {
            const struct eni *e = in->eni.v[i];
            uint32_t ip = 0;
            if (is_deleted(e) || !str_eq(e->vpc_id, pv->spec->id) ||
                ip4_parse(e->private_ip, &ip)) {
                continue;
            }
            for (size_t k = 0; k < e->sg_ids.n; k++) {
                struct plan_sg *g = omap_get(seen, e->sg_ids.v[k]);
                if (g && pass) {
                    g->members[g->n_members] = ip;
                }
                if (g) {
                    g->n_members++;
                }
            }
        }
        for (size_t i = 0; !pass && i < pv->n_sgs; i++) {
            pv->sgs[i].members =
                arena_xalloc(b->a, (pv->sgs[i].n_members + 1) * sizeof(uint32_t));
            pv->sgs[i].n_members = 0;
        }
    }
    for (size_t i = 0; i < pv->n_sgs; i++) {
        struct plan_sg *g = &pv->sgs[i];
        qsort(g->members, g->n_members, sizeof(uint32_t), by_ip);
        size_t n = 0;
        for (size_t k = 0; k < g->n_members; k++) { /* a group named twice by one interface */
            if (n == 0 || g->members[n - 1] != g->members[k]) {
                g->members[n++] = g->members[k];
            }
        }
        g->n_members = n;
    }
}

static void plan_sgs(struct build *b, struct plan_vpc *pv)
{
    size_t max = 0;
    for (size_t i = 0; i < pv->n_enis; i++) {
        max += pv->enis[i].spec->sg_ids.n;
    }
    for (size_t i = 0; i < b->in->sg.n; i++) {
        max += b->in->sg.v[i]->rules.n;
    }
    pv->sgs = arena_xalloc(b->a, (max + 1) * sizeof(*pv->sgs));
    struct omap *seen = omap_new();
    for (size_t i = 0; i < pv->n_enis; i++) {
        struct str_list ids = pv->enis[i].spec->sg_ids;
        for (size_t k = 0; k < ids.n; k++) {
            struct plan_sg *g = add_sg(b, pv, seen, ids.v[k]);
            if (g) {
                g->is_used = true;
            }
        }
    }
    for (size_t i = 0, n_used = pv->n_sgs; i < n_used; i++) {
        const struct sg *spec = pv->sgs[i].spec;
        for (size_t k = 0; spec && k < spec->rules.n; k++) {
            if (spec->rules.v[k].group_id.n) {
                (void)add_sg(b, pv, seen, spec->rules.v[k].group_id);
            }
        }
    }
    add_members(b, pv, seen);
    omap_free(seen, NULL);
}

/* ---- routes to the internet gateway ---- */

static const struct igw *igw_of(const struct build *b, struct str vpc_id)
{
    for (size_t i = 0; i < b->in->igw.n; i++) {
        if (str_eq(b->in->igw.v[i]->vpc_id, vpc_id)) {
            return b->in->igw.v[i];
        }
    }
    return NULL;
}

static void plan_routes(struct build *b, struct plan_vpc *pv)
{
    const struct igw *igw = igw_of(b, pv->spec->id);
    pv->has_igw = igw != NULL;
    pv->routes = arena_xalloc(b->a, (b->in->subnet.n + 1) * sizeof(*pv->routes));
    for (size_t i = 0; igw && i < b->in->subnet.n; i++) {
        const struct subnet *s = b->in->subnet.v[i];
        const struct rtb *t =
            omap_get(b->rtbs, s->rtb_id.n ? s->rtb_id : pv->spec->main_rtb_id);
        struct plan_subnet_route *r = &pv->routes[pv->n_routes];
        if (!t || !str_eq(s->vpc_id, pv->spec->id) || !str_eq(t->vpc_id, pv->spec->id) ||
            cidr4_parse(s->cidr, &r->net, &r->len)) {
            continue;
        }
        r->dests = arena_xalloc(b->a, (t->routes.n + 1) * sizeof(*r->dests));
        for (size_t k = 0; k < t->routes.n; k++) {
            struct plan_cidr c = {0};
            if (str_eq(t->routes.v[k].target, igw->id) &&
                !cidr4_parse(t->routes.v[k].dest, &c.net, &c.len)) {
                r->dests[r->n_dests++] = c;
            }
        }
        pv->n_routes += r->n_dests > 0;
    }
}

int plan_build(const struct plan_input *in, struct arena *a, struct plan *ret, struct err *err)
{
    struct build b = {.in = in, .a = a, .plan = ret};
    *ret = (struct plan){0};
    index_all(&b);
    sort_enis(&b);
    int r = 0;
    for (size_t i = 0; !r && i < ret->n_vpcs; i++) {
        struct plan_vpc *pv = &ret->vpcs[i];
        if (cidr4_parse(pv->spec->cidr, &pv->net, &pv->len) || pv->len > 30) {
            r = fail(err, -EINVAL, "BadRecord", "%.*s: its range is not valid",
                     STR_ARG(pv->spec->id));
            break;
        }
        plan_sgs(&b, pv);
        plan_routes(&b, pv);
    }
    ret->is_incomplete = in->is_incomplete || ret->n_bad > 0;
    for (size_t i = 0; i < ret->n_vpcs; i++) {
        ret->vpcs[i].is_incomplete = ret->is_incomplete;
    }
    unindex_all(&b);
    return r;
}
