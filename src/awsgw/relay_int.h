/* relay_int.h — what the two files of the relay share: a connection to predastore, the request on
 * it.
 * Not here: the door, relay.h.
 * Threads:  everything but the counters belongs to one loop's thread.
 * Memory:   a connection belongs to its request, or to the worker while it is idle.
 * Errors:   as relay.h. */
#pragma once
#include "awsgw/relay.h"
#include "awsgw/relay_answer.h"
#include "base/buf.h"
#include "net/chunkq.h"
#include "net/http1_body.h"
#include <pthread.h>
#include <stdatomic.h>

#define RELAY_MAX_LOOPS 64u
#define RELAY_MAX_IDLE  64u          /* of a loop */
#define RELAY_MAX_HEAD  (64u << 10)  /* of an answer */
#define RELAY_SCRATCH   (128u << 10) /* of a loop: answers are read there first */
#define RELAY_PIECE     (64u << 10)
#define RELAY_REPLAY    (128u << 10) /* of a body, kept until something of the answer came */
#define RELAY_UP_HIGH   (192u << 10) /* towards predastore: more, and the client is not read */
#define RELAY_UP_LOW    (64u << 10)
#define RELAY_DOWN_HIGH (384u << 10) /* towards the client: more, and predastore is not read */
#define RELAY_DOWN_LOW  (128u << 10)

struct relay_conn;
struct relay_worker {
    struct relay *r;
    struct loop *l;
    struct relay_conn *idle; /* the youngest first */
    unsigned n_idle;
    bool is_stopping;
    char *scratch;
};

struct relay {
    char *path;
    unsigned max_conns;
    pthread_mutex_t mu;                            /* a leaf */
    struct relay_worker *workers[RELAY_MAX_LOOPS]; /* GUARDED_BY(mu), like the number */
    unsigned n_workers;
    atomic_uint n_conns;
    atomic_uint_fast64_t n_requests, n_unavailable, n_broken, n_connects;
};

struct relay_conn {
    struct relay_worker *w;
    struct relay_req *q; /* NULL: idle */
    struct relay_conn *next, *prev;
    int fd;
    struct loop_fd *h;
    uint32_t events;
    struct chunkq out;
    struct buf in; /* a head that came in pieces */
    struct http1_scan scan;
    struct http1_body body;
    struct chunkq_block *piece; /* for the next read of a body */
    bool is_reused, is_keep, is_write_dead;
    bool was_reset;              /* predastore closed it and had not read all that was sent */
    bool has_sent, has_received; /* bytes of this request, of its answer */
};

/*  SENDING ──final head──> ANSWERING ──end of body──> OVER
 *     └──────────── broken, or the client is gone ──────┘   */
enum relay_phase { RELAY_SENDING, RELAY_ANSWERING, RELAY_OVER };

struct relay_req {
    struct relay *r;
    struct relay_worker *w;
    struct relay_conn *c; /* NULL when it is over */
    struct http_req *req;
    enum relay_phase phase;
    struct str source_ip;
    bool is_head_method, has_body, is_chunked; /* of the request */
    bool is_waiting;                           /* for "100 Continue", with the client paused */
    bool is_paused;                            /* the client, because 'out' is long */
    bool is_body_done;                         /* all of the request is in 'out' or sent */
    bool is_stopped; /* predastore is not read: the client has enough to take */
    /* What was sent of the body, as it was framed, while it may have to be sent again. */
    struct chunkq kept;
    bool is_kept; /* all of it */
    bool was_retried;
};

/* relay_conn.c */
/* A kept connection, or a new one: -EAGAIN: there is no room; -ECONNREFUSED and others. */
MUST_CHECK int relay_conn_get(struct relay_worker *w, bool is_fresh, struct relay_conn **ret);
/* Keeps it for the next request when it can be used again, else closes it. */
void relay_conn_put(struct relay_conn *c, bool is_whole);
void relay_conn_close(struct relay_conn *c);
/* Sends, and queues what the socket does not take. False: it is broken. */
bool relay_conn_send(struct relay_conn *c, const struct iovec *more, size_t n_more);
/* False: the loop cannot watch it. 0: not watched at all, not even its end. */
bool relay_conn_listen(struct relay_conn *c, uint32_t events);
/* relay.c */
void relay_on_ready(struct relay_req *q, uint32_t ready);
