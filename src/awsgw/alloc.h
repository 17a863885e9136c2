/* alloc.h — choosing addresses and capacity; every choice becomes a claim in the caller's
 * transaction.
 * Not here: the records that use them.
 * Threads:  a picker belongs to its request; two requests that pick the same thing conflict in
 *           the store and one runs again.
 * Memory:   in the arena.
 * Errors:   "InsufficientFreeAddressesInSubnet", "InvalidIPAddress.InUse",
 *           "InvalidParameterValue", "InsufficientAddressCapacity",
 *           "InsufficientInstanceCapacity" as EC2 answers them. */
#pragma once
#include "awsgw/txn.h"
#include "model/network.h"
#include "model/node.h"

/* Free addresses of one range: each pick is remembered, so that one request can pick several. */
struct ip_picker {
    uint32_t first, last; /* usable range, host byte order, inclusive */
    /* where the search goes on: after the last one given, so that a freed address rests */
    uint32_t next;
    uint8_t *used; /* bitmap over first..last */
    size_t n_free;
    struct ip_picker *more; /* the next range, used when this one is full; NULL = none */
};

/* The usable addresses of a subnet: AWS keeps the first four and the last. */
MUST_CHECK int ip_picker_subnet(struct gw *gw, struct arena *a, const struct subnet *s,
                                struct ip_picker *ret, struct err *err);
/* The configured external pools, in their order; none is free when there are none. */
MUST_CHECK int ip_picker_public(struct gw *gw, struct arena *a, struct ip_picker *ret,
                                struct err *err);
size_t ip_n_free(const struct ip_picker *p); /* in all its ranges */
/* Next free address; -ENOSPC without an error set. */
MUST_CHECK int ip_pick(struct ip_picker *p, uint32_t *ret);
/* This very address of the first range: -ERANGE (not in it) or -EADDRINUSE, no error set. */
MUST_CHECK int ip_pick_exact(struct ip_picker *p, uint32_t ip);

struct str claim_private_ip_key(struct arena *a, struct str subnet_id, struct str ip);
struct str claim_public_ip_key(struct arena *a, struct str ip);

/* "0a:..." locally administered, unicast. */
struct str mac_new(struct arena *a);

/* Facts of the node that runs instances, or NULL while compute has not reported. */
const struct node_facts *node_facts_get(struct gw *gw, struct arena *a);
const struct instance_type *node_type_find(const struct node_facts *f, struct str name);
/* Takes (is_taken) or gives back capacity of 'node' in the transaction. Burstable vCPUs count
 * at the configured overcommit. */
MUST_CHECK int capacity_change(struct txn *t, const struct node_facts *f, struct str node,
                               uint64_t n_vcpus, uint64_t n_burstable_vcpus,
                               uint64_t memory_mib, bool is_taken, struct err *err);
