/* resp_facts.h — facts for a responder, from the plan. Pure but for the ifindex that is passed in.
 * Not here: sending (responders.c).
 * Threads:  no state.
 * Memory:   JSON is appended to a buffer of the caller.
 * Errors:   as rec_save(). */
#pragma once
#include "model/config.h"
#include "vpcd/facts.h"
#include "vpcd/plan.h"

/* key_hex: 64 digits. */
MUST_CHECK int resp_facts_vpc(const struct config *cfg, const struct plan_vpc *v,
                              const char *key_hex, struct buf *out, struct err *err);
MUST_CHECK int resp_facts_eni(const struct config *cfg, const struct plan_vpc *v,
                              const struct plan_eni *e, uint32_t ifindex, struct buf *out,
                              struct err *err);
