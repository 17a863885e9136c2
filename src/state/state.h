/* state.h — inside of spx-state: the store, its server, the sessions of the peers.
 * Not here: rights (rights.h), bytes of the protocol (kv/kv_proto.h).
 * Threads:  sessions are made and ended on the loop; their event queues are filled on the store's
 *           watch thread, under the session's lock. Reads run on the pool, long jobs on 'slow'.
 * Memory:   a session belongs to the list; it ends with its connection or with the next hello.
 * Errors:   go to the peer; nothing a peer sends ends the process. */
#pragma once
#include "kv/kv.h"
#include "kv/kv_admin.h"
#include "loop/pool.h"
#include "net/rpc.h"
#include "net/service.h"

#include <pthread.h>

struct session;

struct state {
    struct service service;
    struct kv *kv;
    struct rpc_server *rpc;
    struct pool *pool, *slow;
    struct loop_timer *tick;
    uid_t uid_base;
    struct session *sessions; /* loop */
};

/* ---- session.c: who is at the other end, and what waits for him ---- */

/* Makes the session of a connection; one that was there ends. -EPERM "AccessDenied", -EPROTO. */
MUST_CHECK int session_hello(struct state *st, struct rpc_req *req, struct str payload,
                             uint64_t *ret_id, struct err *err);
/* Of the connection that the request came on, or NULL. */
struct session *session_find(struct state *st, const struct rpc_conn *conn);
int session_service(const struct session *s);
void session_end(struct state *st, struct session *s); /* NULL is fine */
/* Once a second or so: requests for events that waited long are answered with none. */
void sessions_tick(struct state *st, uint64_t now_ns);

/* The methods "watch.start", "watch.stop", "events", "events.wake". */
MUST_CHECK int session_watch(struct session *s, struct str payload, struct err *err);
MUST_CHECK int session_unwatch(struct session *s, struct str payload, struct err *err);
/* Takes the request when it returns 0. */
MUST_CHECK int session_events(struct session *s, struct str payload, struct rpc_req *req,
                              struct err *err);
void session_wake(struct session *s);

/* ---- request.c: the methods of the store ---- */

void state_on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                      int *fds, size_t n_fds);

/* ---- admin.c: the methods for the person who must look ---- */

/* True when it was one of them; 'req' is taken then. Descriptors stay the caller's. */
MUST_CHECK bool admin_handle(struct state *st, struct rpc_req *req, struct str method,
                             struct str payload, const int *fds, size_t n_fds);
