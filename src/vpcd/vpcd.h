/* vpcd.h — the network service: watches the store, makes the network so, reports, opens taps
 * for compute.
 * Not here: how (native.c, responders.c), what (plan.c).
 * Threads:  the loop answers requests; one pool thread ("reconciler") does everything that
 *           blocks, one round after the other. A round is: copy the records, plan, apply, tell
 *           the responders, answer waiting eni.open, write status.
 * Memory:   vpcd_new() gives.
 * Errors:   what fails is logged, shown in status/eni and by "health", and tried again. */
#pragma once
#include "base/err.h"
#include "model/config.h"
#include "net/service.h"

struct vpcd;

/* 'kv' is borrowed. Starts at once; the store may come later. */
MUST_CHECK int vpcd_new(struct service *s, const struct config *cfg, struct kv *kv,
                        struct vpcd **ret, struct err *err);
/* Leaves the network as it is: traffic flows on. Call after service_run(). */
void vpcd_free(struct vpcd *v);
DEFINE_CLEANUP(struct vpcd *, vpcd_free);
