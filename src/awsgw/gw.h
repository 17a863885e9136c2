/* gw.h — what all parts of the gateway share: the store, its view, identities, the other
 * services' sockets.
 * Not here: HTTP (http.c), operations (ops_*.c).
 * Threads:  set up in main, constant afterwards; every member is safe to use from any thread.
 * Memory:   main owns everything.
 * Errors:   none. */
#pragma once
#include "aws/call.h"
#include "kv/kv.h"
#include "kv/view.h"
#include "model/config.h"
#include "net/rpc.h"

struct identity; /* model/identity.h */

struct gw {
    const struct config *cfg;
    struct kv *kv;
    struct view *view; /* of spec/, status/, node/, claim/ */
    struct identity *identity;
    struct rpc_client *compute, *viperblock;
};

/* The gateway that a call came in on. */
static inline struct gw *gw_of(const struct aws_call *call)
{
    return call->app;
}
