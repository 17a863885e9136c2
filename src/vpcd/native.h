/* native.h — one VPC made so in the kernel: namespace, pair to the host, taps, routes, rules.
 * Repairs what differs, removes what is ours and no longer wanted, touches nothing else.
 * Not here: what is wanted (plan.c), the rules' text (ruleset.c), responders.
 * Threads:  one thread (the reconciler) uses all of it.
 * Memory:   native_new() gives.
 * Errors:   negative errno; what was done so far stays, the next call goes on. */
#pragma once
#include "model/config.h"
#include "vpcd/plan.h"

struct native;

/* Namespaces are kept under run_dir/netns. The caller's own namespace is the host's. */
MUST_CHECK int native_new(const struct config *cfg, struct native **ret, struct err *err);
void native_free(struct native *n); /* leaves everything in the kernel as it is */
DEFINE_CLEANUP(struct native *, native_free);

/* 'is_full': look at everything, not only at what changed since the last call. */
MUST_CHECK int native_apply_host(struct native *n, bool is_full, struct err *err);
MUST_CHECK int native_apply_vpc(struct native *n, const struct plan_vpc *v, bool is_full,
                                struct err *err);
/* Removes namespaces and links of VPCs that are not in the plan; 'on_removed' hears of each id. */
MUST_CHECK int native_remove_others(struct native *n, const struct plan *p,
                                    void (*on_removed)(void *ctx, struct str vpc_id), void *ctx,
                                    struct err *err);

/* Descriptor of the VPC's namespace, borrowed; -1 when it is not there. */
int native_vpc_ns(const struct native *n, struct str vpc_id);
/* Index of the tap in its namespace, 0 when it is not there. */
uint32_t native_ifindex(const struct native *n, struct str vpc_id, struct str eni_id);
/* An empty namespace for processes that shall have no network of their own; borrowed. */
int native_empty_ns(const struct native *n);

MUST_CHECK int native_open_tap(struct native *n, const struct plan_vpc *v,
                               const struct plan_eni *e, unsigned n_queues, int *ret_fds,
                               struct err *err);
MUST_CHECK int native_has_carrier(struct native *n, const struct plan_vpc *v,
                                  const struct plan_eni *e, bool *ret, struct err *err);

/* Undoes everything on this host, settings included. */
MUST_CHECK int native_teardown(const struct config *cfg, struct err *err);
