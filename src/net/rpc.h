/* rpc.h — requests, answers and pushed events between our processes on unix sockets, with
 * descriptors.
 * Not here: what the payloads mean (bytes for the kv door, JSON for the rest).
 * Frame:    docs/formats/rpc.md. At most RPC_MAX_SIZE bytes and RPC_MAX_FDS descriptors
 *           (SCM_RIGHTS). A peer that sends anything else, sends more requests than it lets us
 *           answer, or does not read what we send, is disconnected or slowed down (limits
 *           below).
 * Threads:  a server belongs to its loop; rpc_reply*(), rpc_push(), rpc_conn_ref() and
 *           rpc_conn_unref() may be called from any thread, even after the server is gone. A
 *           client is thread-safe and has a reader thread of its own: rpc_call() blocks its
 *           caller, events arrive on the reader thread in the order in which they were sent.
 *           rpc_call() is allowed inside the call-backs of a client.
 * Memory:   payloads given to call-backs are borrowed until they return; replies are given to
 *           the caller.
 * Errors:   negative errno and *err; the error name and message of the far side arrive
 *           unchanged; -ENOTCONN ("Unavailable") when the far side is not there, after the
 *           client tried to reconnect until the deadline. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "base/time.h"
#include "loop/loop.h"
#include <sys/types.h>

#define RPC_MAX_SIZE  (8u << 20)
#define RPC_MAX_FDS   16
/* Limits of a server. */
#define RPC_MAX_CONNS 256 /* further ones are closed at once */
#define RPC_MAX_USER  64  /* of one user that is neither root nor ours */
#define RPC_MAX_INFLIGHT \
    256 /* unanswered requests of a peer: no more is read from it until some are answered */
#define RPC_MAX_QUEUED \
    (32u << 20) /* bytes that wait for a slow reader: then it is disconnected */
#define RPC_STALL_NS \
    (30 * NS_PER_S) /* nothing of what waits was read for so long: disconnected */

struct rpc_server;
struct rpc_conn; /* one connected peer of a server; counted references */
struct rpc_req;  /* one request that waits for its answer */

struct rpc_peer {
    pid_t pid;
    uid_t uid; /* of SO_PEERCRED */
    gid_t gid;
};

struct rpc_server_ops {
    /* A request arrived. Answer it now or later, exactly once, from any thread. 'fds' are the
     * handler's to close. */
    void (*on_request)(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds);
    /* The peer is gone (or the server is being freed): forget pushes to it. May be NULL. */
    void (*on_close)(void *ctx, struct rpc_conn *conn);
};

/* Listens on 'path' (an old socket file is replaced; mode is set before anyone can connect).
 * -EADDRINUSE: a living process answers there. */
MUST_CHECK int rpc_server_new(struct loop *l, const char *path, mode_t mode,
                              const struct rpc_server_ops *ops, void *ctx,
                              struct rpc_server **ret, struct err *err);
void rpc_server_free(struct rpc_server *s); /* closes all peers, removes the socket file */

const struct rpc_peer *rpc_req_peer(const struct rpc_req *req);
struct rpc_conn *rpc_req_conn(const struct rpc_req *req); /* borrowed; rpc_conn_ref() to keep */
/* Takes 'req'; descriptors are duplicated and stay the caller's. A payload too large for a
 * frame arrives as error "TooLarge". */
void rpc_reply(struct rpc_req *req, struct str payload, const int *fds, size_t n_fds);
void rpc_reply_err(struct rpc_req *req, const struct err *err);

struct rpc_conn *rpc_conn_ref(struct rpc_conn *c);
struct rpc_conn *rpc_conn_unref(struct rpc_conn *c);
/* Sends an event; events and answers arrive in the order of the calls. -EPIPE when the peer is
 * gone, -ENOBUFS when it reads too slowly (it is then disconnected), -E2BIG. */
MUST_CHECK int rpc_push(struct rpc_conn *c, uint32_t stream, struct str payload);

struct rpc_client;
struct rpc_reply {
    char *payload; /* free() */
    size_t n;
    int fds[RPC_MAX_FDS]; /* the caller closes them */
    size_t n_fds;
};
void rpc_reply_done(
    struct rpc_reply *r); /* frees the payload, closes descriptors that are left (>= 0) */

struct rpc_client_ops {
    void (*on_event)(void *ctx, uint32_t stream, struct str payload); /* may be NULL */
    /* The connection was made again after a loss: requests that were waiting have failed.
     * Called on the reader thread. */
    void (*on_reconnect)(void *ctx); /* may be NULL */
};

/* Does not connect yet: the far side may start later. 'ops' may be NULL. With on_event or
 * on_reconnect a lost connection is made again at once (with back-off), otherwise at the next
 * call. */
struct rpc_client *rpc_client_new(const char *path, const struct rpc_client_ops *ops,
                                  void *ctx);
void rpc_client_free(struct rpc_client *c); /* calls that wait end with -ECANCELED; no call-back
                                               after it returns; not inside one */
/* Sends and waits, connecting when needed, for at most timeout_ns. A request that was sent and
 * whose connection broke is not sent again: -ECONNRESET ("Interrupted"). -ETIMEDOUT
 * ("Timeout"): not answered in time; it may have been done. -EACCES: we may not connect. 'ret'
 * may be NULL: the answer is dropped. On failure *ret is untouched. */
MUST_CHECK int rpc_call(struct rpc_client *c, struct str method, struct str payload,
                        const int *fds, size_t n_fds, uint64_t timeout_ns,
                        struct rpc_reply *ret, struct err *err);
