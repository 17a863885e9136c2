#include "vpcd/facts.h"

#include "model/network.h"

#include <errno.h>

static const struct rec_field vpc_fields[] = {
    REC_FIELD(struct fact_vpc, REC_STR, id),
    REC_FIELD(struct fact_vpc, REC_STR, account),
    REC_FIELD(struct fact_vpc, REC_STR, cidr),
    REC_FIELD(struct fact_vpc, REC_STR, region),
    REC_FIELD(struct fact_vpc, REC_STR, domain),
    REC_FIELD(struct fact_vpc, REC_STR, key),
    REC_FIELD(struct fact_vpc, REC_STR_LIST, pools),
    REC_FIELD(struct fact_vpc, REC_U64, mtu),
    REC_FIELD(struct fact_vpc, REC_BOOL, is_dns_support),
};
REC_DESC(fact_vpc_desc, struct fact_vpc, "network facts", 1, vpc_fields);

static const struct rec_field inst_fields[] = {
    REC_FIELD(struct fact_inst, REC_STR, id),
    REC_FIELD(struct fact_inst, REC_STR, image_id),
    REC_FIELD(struct fact_inst, REC_STR, instance_type),
    REC_FIELD(struct fact_inst, REC_STR, reservation_id),
    REC_FIELD(struct fact_inst, REC_STR, arch),
    REC_FIELD(struct fact_inst, REC_STR, az),
    REC_FIELD(struct fact_inst, REC_STR, az_id),
    REC_FIELD(struct fact_inst, REC_U64, launch_index),
    REC_FIELD(struct fact_inst, REC_U64, launch_ns),
    REC_FIELD(struct fact_inst, REC_STR, key_name),
    REC_FIELD(struct fact_inst, REC_STR, public_key),
    REC_FIELD(struct fact_inst, REC_STR, user_data),
    REC_FIELD(struct fact_inst, REC_STR, root_device),
    REC_FIELD(struct fact_inst, REC_STR, http_tokens),
    REC_FIELD(struct fact_inst, REC_STR, http_endpoint),
    REC_FIELD(struct fact_inst, REC_U64, http_hop_limit),
    REC_FIELD(struct fact_inst, REC_BOOL, is_tags_in_metadata),
    REC_FIELD_SUB(struct fact_inst, REC_OBJ_LIST, tags, &tag_desc),
};
static REC_DESC(fact_inst_desc, struct fact_inst, "instance facts", 1, inst_fields);

static const struct rec_field eni_fields[] = {
    REC_FIELD(struct fact_eni, REC_STR, id),
    REC_FIELD(struct fact_eni, REC_STR, mac),
    REC_FIELD(struct fact_eni, REC_STR, ip),
    REC_FIELD(struct fact_eni, REC_STR, gateway),
    REC_FIELD(struct fact_eni, REC_STR, subnet_id),
    REC_FIELD(struct fact_eni, REC_STR, subnet_cidr),
    REC_FIELD(struct fact_eni, REC_STR, private_dns),
    REC_FIELD(struct fact_eni, REC_STR, public_ip),
    REC_FIELD(struct fact_eni, REC_STR, public_dns),
    REC_FIELD(struct fact_eni, REC_STR_LIST, sg_ids),
    REC_FIELD(struct fact_eni, REC_STR_LIST, sg_names),
    REC_FIELD(struct fact_eni, REC_U64, ifindex),
    REC_FIELD(struct fact_eni, REC_U64, device_index),
    REC_FIELD_SUB(struct fact_eni, REC_OBJ, inst, &fact_inst_desc),
};
REC_DESC(fact_eni_desc, struct fact_eni, "interface facts", 1, eni_fields);

#define FACT_ARENA_MAX (1u << 20)

struct entry {
    struct arena *arena;
    struct fact_eni eni;
    uint32_t ip, public_ip;
    uint64_t sync;
};

struct facts {
    struct arena *vpc_arena;
    struct fact_vpc *vpc;
    struct omap *by_id; /* owns the entries */
    struct omap *by_ifindex, *by_ip, *by_public_ip;
    uint64_t sync;
};

struct facts *facts_new(void)
{
    struct facts *f = calloc(1, sizeof(*f));
    if (!f) {
        abort();
    }
    f->by_id = omap_new();
    f->by_ifindex = omap_new();
    f->by_ip = omap_new();
    f->by_public_ip = omap_new();
    return f;
}

static void entry_free(void *p)
{
    struct entry *e = p;
    if (e) {
        arena_free(e->arena);
        free(e);
    }
}

void facts_free(struct facts *f)
{
    if (f) {
        omap_free(f->by_ifindex, NULL);
        omap_free(f->by_ip, NULL);
        omap_free(f->by_public_ip, NULL);
        omap_free(f->by_id, entry_free);
        arena_free(f->vpc_arena);
        free(f);
    }
}

static struct str num_key(const uint64_t *v)
{
    return str_n((const char *)v, sizeof(*v));
}

static void index_put(struct omap *m, uint64_t v, struct entry *e)
{
    if (v) {
        omap_put(m, num_key(&v), e);
    }
}

/* Only when the index shows this entry: another one may have taken the address over. */
static void index_drop(struct omap *m, uint64_t v, const struct entry *e)
{
    if (v && omap_get(m, num_key(&v)) == e) {
        omap_remove(m, num_key(&v));
    }
}

static void unindex(struct facts *f, const struct entry *e)
{
    index_drop(f->by_ifindex, e->eni.ifindex, e);
    index_drop(f->by_ip, e->ip, e);
    index_drop(f->by_public_ip, e->public_ip, e);
}

int facts_set_vpc(struct facts *f, struct str json, struct err *err)
{
    struct arena *a = arena_new(FACT_ARENA_MAX);
    struct fact_vpc *v = arena_new_of(a, struct fact_vpc);
    int r = rec_load(&fact_vpc_desc, a, json, v, err);
    if (r) {
        arena_free(a);
        return r;
    }
    arena_free(f->vpc_arena);
    f->vpc_arena = a;
    f->vpc = v;
    return 0;
}

static int entry_load(struct entry *e, struct str json, struct err *err)
{
    int r = rec_load(&fact_eni_desc, e->arena, json, &e->eni, err);
    if (r) {
        return r;
    }
    if (str_is_empty(e->eni.id) || ip4_parse(e->eni.ip, &e->ip)) {
        return fail(err, -EINVAL, "BadRecord", "interface facts without id or address");
    }
    if (!str_is_empty(e->eni.public_ip) && ip4_parse(e->eni.public_ip, &e->public_ip)) {
        return fail(err, -EINVAL, "BadRecord", "interface facts: public_ip");
    }
    return 0;
}

int facts_set_eni(struct facts *f, struct str json, struct err *err)
{
    struct entry *e = calloc(1, sizeof(*e));
    if (!e) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for facts");
    }
    e->arena = arena_new(FACT_ARENA_MAX);
    int r = entry_load(e, json, err);
    struct entry *old = r ? NULL : omap_get(f->by_id, e->eni.id);
    if (!r && !old && omap_len(f->by_id) >= FACTS_MAX_ENIS) {
        r = fail(err, -ENOSPC, "TooMany", "more than %u interfaces", FACTS_MAX_ENIS);
    }
    if (r) {
        entry_free(e);
        return r;
    }
    if (old) {
        unindex(f, old);
        omap_put(f->by_id, e->eni.id, e);
        entry_free(old);
    } else {
        omap_put(f->by_id, e->eni.id, e);
    }
    e->sync = f->sync;
    index_put(f->by_ifindex, e->eni.ifindex, e);
    index_put(f->by_ip, e->ip, e);
    index_put(f->by_public_ip, e->public_ip, e);
    return 0;
}

void facts_del_eni(struct facts *f, struct str id)
{
    struct entry *e = omap_remove(f->by_id, id);
    if (e) {
        unindex(f, e);
        entry_free(e);
    }
}

void facts_sync_begin(struct facts *f)
{
    f->sync++;
}

void facts_sync_end(struct facts *f)
{
    for (struct omap_node *n = omap_seek(f->by_id, STR("")); n;) {
        struct entry *e = omap_value(n);
        n = omap_next(n);
        if (e->sync != f->sync) {
            omap_remove(f->by_id, e->eni.id);
            unindex(f, e);
            entry_free(e);
        }
    }
}

const struct fact_vpc *facts_vpc(const struct facts *f)
{
    return f->vpc;
}

size_t facts_n_enis(const struct facts *f)
{
    return omap_len(f->by_id);
}

static const struct fact_eni *find(const struct omap *m, uint64_t v)
{
    const struct entry *e = omap_get(m, num_key(&v));
    return e ? &e->eni : NULL;
}

const struct fact_eni *facts_eni_by_ifindex(const struct facts *f, uint64_t ifindex)
{
    return find(f->by_ifindex, ifindex);
}

const struct fact_eni *facts_eni_by_ip(const struct facts *f, uint32_t ip)
{
    return find(f->by_ip, ip);
}

const struct fact_eni *facts_eni_by_public_ip(const struct facts *f, uint32_t ip)
{
    return find(f->by_public_ip, ip);
}

static bool is_after(const struct fact_eni *e, const struct fact_eni *prev)
{
    return e->device_index != prev->device_index ? e->device_index > prev->device_index
                                                 : str_cmp(e->id, prev->id) > 0;
}

const struct fact_eni *facts_next_eni_of(const struct facts *f, struct str instance_id,
                                         const struct fact_eni *prev)
{
    const struct fact_eni *best = NULL;
    for (struct omap_node *n = omap_seek(f->by_id, STR("")); n; n = omap_next(n)) {
        const struct fact_eni *e = &((const struct entry *)omap_value(n))->eni;
        if (!str_eq(e->inst.id, instance_id) || (prev && !is_after(e, prev))) {
            continue;
        }
        if (!best || is_after(best, e)) {
            best = e;
        }
    }
    return best;
}
