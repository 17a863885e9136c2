#include "vpcd/resp_facts.h"

#include <errno.h>

#define FACT_SIZE (1u << 20)

int resp_facts_vpc(const struct config *cfg, const struct plan_vpc *v, const char *key_hex,
                   struct buf *out, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(FACT_SIZE);
    struct fact_vpc f = {
        .id = v->spec->id,
        .account = v->spec->account,
        .cidr = v->spec->cidr,
        .region = str_c(cfg->region),
        .domain = arena_fmt(a, "%s.compute.internal", cfg->region),
        .key = str_c(key_hex),
        .mtu = cfg->guest_mtu,
        .is_dns_support = v->spec->is_dns_support,
    };
    f.pools.v = arena_array(a, cfg->n_pools + 1, sizeof(struct str));
    for (size_t i = 0; f.pools.v && i < cfg->n_pools; i++) {
        f.pools.v[f.pools.n++] =
            arena_fmt(a, "%s-%s", cfg->pools[i].range_start, cfg->pools[i].range_end);
    }
    return rec_save(&fact_vpc_desc, &f, out, err);
}

static struct str public_name(const struct config *cfg, struct arena *a, uint32_t ip)
{
    return arena_fmt(a, "ec2-%u-%u-%u-%u.%s.compute.internal", ip >> 24, ip >> 16 & 255,
                     ip >> 8 & 255, ip & 255, cfg->region);
}

static struct str sg_name(const struct plan_vpc *v, struct str id)
{
    for (size_t i = 0; i < v->n_sgs; i++) {
        if (str_eq(v->sgs[i].id, id) && v->sgs[i].spec) {
            return v->sgs[i].spec->name;
        }
    }
    return id;
}

static void inst_facts(const struct plan_eni *e, struct fact_inst *f)
{
    const struct instance *i = e->inst;
    *f = (struct fact_inst){
        .id = i->id,
        .image_id = i->image_id,
        .instance_type = i->instance_type,
        .reservation_id = i->reservation_id,
        .arch = i->arch,
        .az = i->az,
        .az_id = e->subnet->az_id,
        .launch_index = i->launch_index,
        .launch_ns = i->launch_ns,
        .key_name = i->key_name,
        .public_key = i->public_key,
        .user_data = i->user_data,
        .root_device = i->root_device,
        .http_tokens = i->http_tokens,
        .http_endpoint = i->http_endpoint,
        .http_hop_limit = i->http_hop_limit,
        .is_tags_in_metadata = i->is_tags_in_metadata,
    };
    if (i->is_tags_in_metadata && e->tags) {
        f->tags = e->tags->tags;
    }
}

int resp_facts_eni(const struct config *cfg, const struct plan_vpc *v, const struct plan_eni *e,
                   uint32_t ifindex, struct buf *out, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(FACT_SIZE);
    struct fact_eni f = {
        .id = e->spec->id,
        .mac = e->spec->mac,
        .ip = e->spec->private_ip,
        .gateway = ip4_fmt(a, e->gateway),
        .subnet_id = e->subnet->id,
        .subnet_cidr = e->subnet->cidr,
        .private_dns = e->spec->private_dns,
        .public_ip = e->public_ip ? e->spec->public_ip : STR(""),
        .public_dns = e->public_ip ? public_name(cfg, a, e->public_ip) : STR(""),
        .sg_ids = e->spec->sg_ids,
        .ifindex = ifindex,
        .device_index = e->spec->device_index,
    };
    f.sg_names.v = arena_array(a, f.sg_ids.n + 1, sizeof(struct str));
    for (size_t i = 0; f.sg_names.v && i < f.sg_ids.n; i++) {
        f.sg_names.v[f.sg_names.n++] = sg_name(v, f.sg_ids.v[i]);
    }
    if (e->inst) {
        inst_facts(e, &f.inst);
    }
    return rec_save(&fact_eni_desc, &f, out, err);
}
