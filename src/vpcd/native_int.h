/* native_int.h — shared by the files of native.h.
 * Not here: anything that other files may see.
 * Threads:  as native.h.
 * Memory:   as native.h.
 * Errors:   as native.h. */
#pragma once
#include "base/omap.h"
#include "os/netlink.h"
#include "vpcd/native.h"
#include "vpcd/ruleset.h"

#define NETNS_PREFIX "spx-"
#define NETNS_EMPTY  "spx-none"
#define PATH_SIZE    256

struct native_eni { /* what was made so, to see at a glance that nothing changed */
    char print[160];
    uint32_t ifindex;
    uint64_t seen;
};

struct native_vpc {
    int ns;
    char mark[RULESET_MARK_SIZE]; /* of the rules in force; "" = not known */
    char *rules;                  /* their text, NULL = not known */
    char host_print[40];          /* hash over the public addresses, "" = not known */
    struct omap *enis;            /* id -> struct native_eni */
    uint64_t round;
};

struct native {
    const struct config *cfg;
    char dir[PATH_SIZE];
    int empty_ns;
    /* address of the host's end of each pair; 0 = none (the pool lives on an uplink) */
    char prefix[PLAN_PREFIX_SIZE]; /* of our links on the host */
    uint32_t host_gateway;
    struct nl *nl;     /* in the host's namespace */
    struct omap *vpcs; /* id -> struct native_vpc */
};

extern const uint8_t native_host_mac[6], native_vpc_mac[6], native_tap_mac[6];

MUST_CHECK int native_ns_path(const struct native *n, const char *name, char out[PATH_SIZE],
                              struct err *err);
/* In the VPC's namespace. */
MUST_CHECK int native_inside(struct native *n, struct native_vpc *nv, const struct plan_vpc *v,
                             bool is_full, struct err *err);
/* The host's end: pair, routes to public addresses. 'peer_ns' is the VPC's namespace. */
MUST_CHECK int native_pair(struct native *n, const struct plan_vpc *v, int peer_ns,
                           bool is_full, struct err *err);
MUST_CHECK int native_host_routes(struct native *n, struct native_vpc *nv,
                                  const struct plan_vpc *v, bool is_full, struct err *err);
/* Deletes our taps in that namespace. */
MUST_CHECK int native_delete_taps(int ns, struct err *err);
