/* facts.h — what a responder knows about its VPC: records that vpcd sends and the responder
 * looks up.
 * Not here: how they are sent (responders.c), what they are used for (dhcp, dns, imds).
 * Threads:  a struct facts belongs to the responder's loop.
 * Memory:   facts_new() gives; each record has an arena of its own; look-ups borrow until the
 *           next facts_*() call that changes something.
 * Errors:   -EINVAL "BadRecord", -ENOSPC past FACTS_MAX_ENIS: the old record stays. */
#pragma once
#include "base/omap.h"
#include "codec/rec.h"
#include "model/tag.h"

#define FACTS_MAX_ENIS 4096u

struct fact_vpc {
    struct rec_head head;
    struct str id, account, cidr, region;
    struct str domain;     /* "ap-southeast-2.compute.internal" */
    struct str key;        /* 64 hex digits: metadata tokens are signed with it */
    struct str_list pools; /* "198.51.100.10-198.51.100.200": addresses whose names are ours */
    uint64_t mtu;
    bool is_dns_support;
};
extern const struct rec_desc fact_vpc_desc;

struct fact_inst { /* what the metadata service tells; the part of an interface that is on an
                      instance */
    struct rec_head head;
    struct str id, image_id, instance_type, reservation_id, arch, az, az_id;
    uint64_t launch_index, launch_ns;
    struct str key_name, public_key, user_data, root_device;
    struct str http_tokens, http_endpoint;
    uint64_t http_hop_limit;
    bool is_tags_in_metadata;
    struct tag_list tags;
};

struct fact_eni {
    struct rec_head head;
    struct str id, mac, ip, gateway, subnet_id, subnet_cidr, private_dns, public_ip, public_dns;
    struct str_list sg_ids, sg_names;
    uint64_t ifindex, device_index;
    struct fact_inst inst; /* inst.id "" = on no instance */
};
extern const struct rec_desc fact_eni_desc;

struct facts;
struct facts *facts_new(void);
void facts_free(struct facts *f); /* NULL is fine */
DEFINE_CLEANUP(struct facts *, facts_free);

MUST_CHECK int facts_set_vpc(struct facts *f, struct str json, struct err *err);
MUST_CHECK int facts_set_eni(struct facts *f, struct str json, struct err *err);
void facts_del_eni(struct facts *f, struct str id);
/* A full copy follows; facts_sync_end() removes what was not set again since. */
void facts_sync_begin(struct facts *f);
void facts_sync_end(struct facts *f);

/* NULL until the first one arrived. */
const struct fact_vpc *facts_vpc(const struct facts *f);
size_t facts_n_enis(const struct facts *f);
const struct fact_eni *facts_eni_by_ifindex(const struct facts *f, uint64_t ifindex);
const struct fact_eni *facts_eni_by_ip(const struct facts *f, uint32_t ip);
const struct fact_eni *facts_eni_by_public_ip(const struct facts *f, uint32_t ip);
/* Walks the interfaces of one instance by device index: the one after 'prev' (NULL = the
 * first). */
const struct fact_eni *facts_next_eni_of(const struct facts *f, struct str instance_id,
                                         const struct fact_eni *prev);
