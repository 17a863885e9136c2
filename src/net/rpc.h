/* rpc.h — requests, answers and pushed events between our processes on unix sockets, with descriptors.
 * Not here: what the payloads mean (bytes for the kv door, JSON for the rest).
 * Frame: u32 size of the rest (little endian), u32 id, u8 kind (1 request, 2 answer, 3 error, 4 event), u8 length of the
 *        method name, name, payload. At most RPC_MAX_SIZE and RPC_MAX_FDS descriptors (SCM_RIGHTS, on the first byte).
 * Threads:  a server belongs to its loop; rpc_reply() and rpc_push() may be called from any thread. A client is thread-safe and has a
 *           reader thread of its own: rpc_call() blocks its caller, events arrive on the reader thread.
 * Memory:   payloads given to call-backs are borrowed until they return; replies are given to the caller.
 * Errors:   negative errno and *err; the error name and message of the far side arrive unchanged; -ENOTCONN ("Unavailable")
 *           when the far side is not there, after the client tried to reconnect until the deadline. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "loop/loop.h"
#include <sys/types.h>

#define RPC_MAX_SIZE (8u << 20)
#define RPC_MAX_FDS  16

struct rpc_server;
struct rpc_conn; /* one connected peer of a server; counted references */
struct rpc_req;  /* one request that waits for its answer */

struct rpc_peer {
    pid_t pid;
    uid_t uid; /* of SO_PEERCRED */
    gid_t gid;
};

struct rpc_server_ops {
    /* A request arrived. Answer it now or later, exactly once, from any thread. 'fds' are the handler's to close. */
    void (*on_request)(void *ctx, struct rpc_req *req, struct str method, struct str payload, int *fds, size_t n_fds);
    void (*on_close)(void *ctx, struct rpc_conn *conn); /* may be NULL: forget pushes to this peer */
};

/* Listens on 'path' (an old socket file is replaced; mode is set before anyone can connect). */
MUST_CHECK int rpc_server_new(struct loop *l, const char *path, mode_t mode, const struct rpc_server_ops *ops, void *ctx,
                              struct rpc_server **ret, struct err *err);
void rpc_server_free(struct rpc_server *s); /* closes all peers, removes the socket file */

const struct rpc_peer *rpc_req_peer(const struct rpc_req *req);
struct rpc_conn *rpc_req_conn(const struct rpc_req *req); /* borrowed; rpc_conn_ref() to keep */
/* Takes 'req'; descriptors are duplicated by the kernel and stay the caller's. */
void rpc_reply(struct rpc_req *req, struct str payload, const int *fds, size_t n_fds);
void rpc_reply_err(struct rpc_req *req, const struct err *err);

struct rpc_conn *rpc_conn_ref(struct rpc_conn *c);
struct rpc_conn *rpc_conn_unref(struct rpc_conn *c);
/* Sends an event. -EPIPE when the peer is gone, -ENOBUFS when it reads too slowly (it is then disconnected). */
MUST_CHECK int rpc_push(struct rpc_conn *c, uint32_t stream, struct str payload);

struct rpc_client;
struct rpc_reply {
    char *payload; /* free() */
    size_t n;
    int fds[RPC_MAX_FDS]; /* the caller closes them */
    size_t n_fds;
};
void rpc_reply_done(struct rpc_reply *r); /* frees the payload, closes descriptors that are left (>= 0) */

struct rpc_client_ops {
    void (*on_event)(void *ctx, uint32_t stream, struct str payload); /* may be NULL */
    /* The connection was made again after a loss: requests that were waiting have failed. Called on the reader thread. */
    void (*on_reconnect)(void *ctx); /* may be NULL */
};

/* Does not connect yet: the far side may start later. */
struct rpc_client *rpc_client_new(const char *path, const struct rpc_client_ops *ops, void *ctx);
void rpc_client_free(struct rpc_client *c);
/* Sends and waits, connecting when needed, for at most timeout_ns. A request that was sent and whose connection broke is not
 * sent again: -ECONNRESET ("Interrupted"). */
MUST_CHECK int rpc_call(struct rpc_client *c, struct str method, struct str payload, const int *fds, size_t n_fds,
                        uint64_t timeout_ns, struct rpc_reply *ret, struct err *err);
