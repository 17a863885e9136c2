/* plan.h — what the network of this node shall look like, worked out from records. Pure.
 * Not here: making it so (native.c, host.c), nftables text (ruleset.c).
 * Threads:  a plan belongs to the thread that made it.
 * Memory:   everything lives in the arena; records are borrowed: keep them (view_ref) while the
 *           plan is used.
 * Errors:   a record that makes no sense (bad address, unknown subnet) leaves out that one
 *           interface and says why in plan_eni_bad. */
#pragma once
#include "base/arena.h"
#include "model/instance.h"
#include "model/network.h"
#include "os/netlink.h"

#define PLAN_ARENA_MAX (256u << 20)

/* All records of a kind, in any order. */
#define PLAN_INPUT(X)  X(vpc) X(subnet) X(eni) X(sg) X(instance) X(igw) X(rtb) X(tags)
struct plan_input {
#define X(kind)                \
    struct {                   \
        const struct kind **v; \
        size_t n;              \
    } kind;
    PLAN_INPUT(X)
#undef X
    const char *node;
    const char *host_prefix; /* plan_host_prefix() */
    bool is_incomplete;      /* a record could not be read */
};

struct plan_eni {
    const struct eni *spec;
    const struct subnet *subnet;
    const struct instance *inst; /* NULL = on no instance */
    const struct tags *tags;     /* of the instance, or NULL */
    char tap[NL_NAME_SIZE];
    uint8_t mac[6];
    uint32_t ip, gateway, public_ip; /* public_ip 0 = none */
    uint32_t subnet_net;
    unsigned subnet_len;
};

struct plan_cidr {
    uint32_t net;
    unsigned len;
};

struct plan_sg { /* a group that an interface here carries, or that such a group refers to */
    const struct sg *spec; /* NULL: only its members are known */
    struct str id;
    bool is_used;      /* carried by an interface of this node */
    uint32_t *members; /* addresses of all its interfaces in the VPC, on any node; ascending */
    size_t n_members;
};

struct plan_subnet_route { /* destinations that a subnet's route table sends to the internet
                              gateway */
    uint32_t net;
    unsigned len;
    struct plan_cidr *dests;
    size_t n_dests;
};

struct plan_vpc {
    const struct vpc *spec;
    uint32_t net;
    unsigned len;
    char link[NL_NAME_SIZE]; /* of the host's end of its pair */
    struct plan_eni *enis;
    size_t n_enis;
    struct plan_sg *sgs;
    size_t n_sgs;
    struct plan_subnet_route *routes;
    size_t n_routes;
    bool has_igw;
    bool is_incomplete; /* as the plan's */
};

struct plan_eni_bad {
    const struct eni *spec;
    struct str reason;
};

struct plan {
    struct plan_vpc *vpcs; /* those with an interface on this node, by id */
    size_t n_vpcs;
    struct plan_eni_bad *bad;
    size_t n_bad;
    const struct eni **gone; /* want "deleted" */
    size_t n_gone;
    /* Something could not be read or makes no sense: nothing may be taken for "no longer
     * wanted". */
    bool is_incomplete;
};

MUST_CHECK int plan_build(const struct plan_input *in, struct arena *a, struct plan *ret,
                          struct err *err);

/* Names of links are at most 15 bytes long. In a namespace of ours: "spxt" and the last 11 digits
 * of the id. On the host, where another cloud may live too: "spxv", 3 digits that stand for the run
 * folder, the last 8 digits of the id. */
void plan_link_name(const char *prefix, struct str id, char out[NL_NAME_SIZE]);
#define PLAN_PREFIX_SIZE 8
void plan_host_prefix(const char *run_dir, char out[PLAN_PREFIX_SIZE]);
MUST_CHECK int plan_parse_mac(struct str s, uint8_t out[6]);
