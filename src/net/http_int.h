/* http_int.h — what the files of the HTTP server share.
 * Not here: anything for users of the server (http_server.h).
 * Threads:  a worker, its connections and their requests belong to the worker's loop thread;
 *           what other threads may touch is under http_req.mu, or atomic. Lock order:
 *           http_server.mu and http_req.mu are never held together.
 * Memory:   a connection lives until its descriptor is closed and its request is done; a
 *           request's shell is counted.
 * Errors:   a connection that cannot go on is killed; nobody else notices. */
#pragma once
#include "base/buf.h"
#include "net/chunkq.h"
#include "net/http1_body.h"
#include "net/http1_parse.h"
#include "net/http_link.h"
#include "net/http_peers.h"
#include "net/http_server.h"
#include "net/tls_int.h"
#include <pthread.h>
#include <stdatomic.h>

#define HTTP_READ_SIZE       (64u * 1024)  /* of a worker's read buffer */
#define HTTP_OUT_HIGH        (256u * 1024) /* no further request is read while more is unsent */
#define HTTP_DISCARD_MAX     (64u * 1024) /* rest of a body that is read to save the connection */
#define HTTP_LINGER_NS       (2 * NS_PER_S)
#define HTTP_LINGER_MAX      (16u << 20)
/* A body must bring this much in each body_timeout, or the sender is playing for time. */
#define HTTP_BODY_MIN_WINDOW 240

struct http_worker {
    struct http_server *s;
    struct loop *l;
    pthread_t thread;
    bool has_thread;
    char *scratch;
    struct http_link conns, idle; /* rings; the idlest first */
    atomic_uint n_conns, n_idle, n_evicting;
    atomic_uint_fast64_t oldest_idle_ns;
    atomic_uint_fast64_t n_requests, n_bad, n_evicted;
};

struct http_listener {
    struct http_server *s;
    int fd, idx;
    uint16_t port;
    struct loop_fd *h;
    struct loop_timer *retry; /* after EMFILE */
};

#define HTTP_MAX_LISTENERS 16

struct http_server {
    struct http_server_opts o; /* with the defaults filled in */
    struct http_handler handler;
    void *ctx;
    struct http_worker *workers;
    unsigned n_workers;
    struct http_listener *listeners[HTTP_MAX_LISTENERS];
    int n_listeners; /* changed by the caller of http_server_listen() only */
    struct http_peers *peers;
    atomic_bool is_draining, is_forced;
    atomic_uint n_conns;
    atomic_size_t n_buffered; /* bytes of bodies that are being collected */
    atomic_uint_fast64_t n_accepted, n_refused;
    pthread_mutex_t mu;
    pthread_cond_t gone; /* n_conns fell to 0 */
};

/*   TLS ──> HEAD ──> BODY ──> WAIT ──> HEAD ...
 *             └────────┴────────┴──> LINGER ──> DEAD
 * WAIT: the request is complete, the answer is not. LINGER: all is sent; the peer's rest is
 * read, so that it sees the answer. */
enum http_phase { HTTP_TLS, HTTP_HEAD, HTTP_BODY, HTTP_WAIT, HTTP_LINGER, HTTP_DEAD };

struct http_conn {
    struct http_link link, idle_link; /* first: the rings lead back to the connection */
    struct http_worker *w;
    int fd, listener;
    enum http_phase phase;
    struct loop_fd *h;
    struct loop_timer *timer;
    uint32_t events;
    /* The timer may ring early: deadlines that move back do not touch it. */
    uint64_t armed_ns, deadline_ns;
    uint64_t phase_ns, read_ns;
    uint64_t write_ns; /* since when the socket takes nothing; 0 = it does */
    uint64_t window_ns;
    size_t window_bytes, discarded;
    struct tls_conn *tls;
    struct sockaddr_storage peer;
    struct buf in;  /* bytes read and not yet used */
    struct str cur; /* the unused bytes during a run: of 'in' or of the worker's buffer */
    struct http1_scan scan;
    struct http1_body body;
    struct chunkq out, sealed; /* what waits to be sent: plain, and as TLS records */
    atomic_size_t n_out;
    struct http_req *req;
    bool is_running, is_idle, is_readable, is_eof, is_closing, is_unread, is_write_blocked;
    bool is_again;   /* the run ended for fairness: another follows at once */
    bool was_paused; /* the clock of the body starts anew */
};

struct http_req {
    struct http_conn *c;
    struct http_worker *w;
    atomic_uint refs;
    void *user;
    struct arena *arena;
    struct http_head head;
    struct buf collected;
    /* Loop thread only. */
    bool is_keep_alive, is_http10, wants_continue, is_head_method;
    bool is_collecting;           /* the body goes to on_end, not to on_body */
    bool is_ended;                /* on_end was called */
    bool is_started, is_answered; /* head, all of the answer is in the output queue */
    bool is_aborted, is_finished;
    /* Any thread. */
    pthread_mutex_t mu;
    struct chunkq pend_head, pend; /* GUARDED_BY(mu), like all below */
    bool is_head_given, is_last_given, is_abort_given;
    bool is_chunked_out, is_bodyless, is_close_given;
    bool is_in_run, is_posted, is_dirty, is_paused, is_resume_given, is_gone;
    int64_t out_left; /* bytes that Content-Length still promises; -1 = no promise */
    unsigned n_holds;
    void (*drain_fn)(struct http_req *req, void *user);
    size_t drain_below;
};

/* http1_conn.c */
struct http_conn *http_conn_new(struct http_worker *w, int fd, int listener,
                                const struct sockaddr_storage *peer);
void http_conn_start(void *conn); /* on the worker's thread */
void http_conn_run(struct http_conn *c);
/* Both run the call-backs; the connection may be gone after them. */
void http_conn_kill(struct http_conn *c);
void http_conn_close(struct http_conn *c); /* an idle one: with the good-bye that TLS wants */
/* In a run, or with a run right after: the connection stays until its run ends. */
void http_conn_die(struct http_conn *c);
/* Answers with an error of the server's own, then ends the connection. */
void http_conn_refuse(struct http_conn *c, int status, const char *why);
/* http1_request.c: as above */
void http_request_begin(struct http_conn *c, struct str head);
/* Sends "100 Continue" if it is wanted and nobody has answered. */
void http_request_continue(struct http_conn *c);
void http_request_deliver(struct http_conn *c, struct str data);
void http_request_end(struct http_conn *c);
bool http_request_is_paused(struct http_conn *c);
/* Takes what the handler has answered. */
bool http_request_step(struct http_conn *c);
/* Calls who waits for the queue to get shorter. */
bool http_request_step_drain(struct http_conn *c);
void http_request_abort(struct http_conn *c);
/* http_io.c: 0 or negative (not -EAGAIN). */
int http_io_flush(struct http_conn *c);
/* -EAGAIN: nothing now; 0: the end. */
ssize_t http_io_read(struct http_conn *c, char *p, size_t n);
void http_io_close(struct http_conn *c);
/* http_answer.c */
void http_answer_format(struct http_req *req, const struct http_answer *a); /* under req->mu */
const char *http_reason(int status);
/* Straight into the output queue. */
void http_answer_error(struct http_conn *c, int status, const char *why);
/* http_req.c */
struct http_req *http_req_new(struct http_conn *c);
void http_req_unref(struct http_req *req);
void http_req_kick(void *req);
void http_req_note_pause(struct http_req *req); /* under req->mu */
/* http_server.c */
void http_conn_gone(struct http_server *s, struct http_worker *w,
                    const struct sockaddr_storage *peer);
/* http_accept.c */
int http_accept_start(struct http_listener *ln);
void http_accept_stop(struct http_listener *ln);
void http_idle_enter(struct http_conn *c);
void http_idle_leave(struct http_conn *c);

static inline uint64_t http_now(const struct http_conn *c)
{
    return loop_now_ns(c->w->l);
}
static inline size_t http_unsent(const struct http_conn *c)
{
    return c->out.n_bytes + c->sealed.n_bytes;
}
static inline void http_set_phase(struct http_conn *c, enum http_phase phase)
{
    c->phase = phase;
    c->phase_ns = c->read_ns = c->window_ns = http_now(c);
    c->window_bytes = 0;
}
