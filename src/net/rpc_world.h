/* rpc_world.h — what the tests of rpc share: a server in a temporary folder on a loop thread of
 * its own, and raw peers.
 * Not here: tests.
 * Threads:  the test's main thread; the server answers on its loop thread and (method "slow")
 *           on a pool.
 * Memory:   world_setup() and world_teardown() are cmocka's fixtures.
 * Errors:   a failed assertion ends the test. */
#pragma once
#include "base/time.h"
#include "loop/pool.h"
#include "net/rpc.h"
#include <pthread.h>
#include <stdatomic.h>

#define CALL_NS (20 * NS_PER_S)

struct world {
    char dir[64], path[96];
    struct loop *l;
    struct rpc_server *s;
    struct pool *pool;
    pthread_t thread;
    atomic_int n_requests, n_closed;
    pthread_mutex_t mu;
    struct rpc_conn *watcher; /* GUARDED_BY(mu): the peer that called "watch" */
    struct rpc_req *held[RPC_MAX_INFLIGHT + 10];
    atomic_int n_held;
    uint64_t stall_ns; /* 0 = as usual */
};

int world_setup(void **state);
int world_teardown(void **state);
void world_start(struct world *w);
void world_stop(struct world *w);
/* The same server as a process of its own, listening when this returns. */
pid_t world_fork_server(struct world *w);
/* Methods: echo, slow (echo from a pool thread), watch (100 events), fail, huge, hold (answered
 * by the test). */
void world_on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                      int *fds, size_t n_fds);
void world_on_close(void *ctx, struct rpc_conn *conn);

int count_fds(void);
/* The server, another thread of this process, closes its descriptors a moment after it answered. */
void assert_fds_become(int want);
bool eventually(bool (*is_so)(void *), void *ctx);
bool is_one_closed(void *ctx); /* of a struct world: exactly one peer has gone */
ino_t inode_of(int fd);
int raw_connect(struct world *w);
/* True when the far side closed within the time; what it sent before is dropped. */
bool is_closed_within(int fd, int ms);
