/* http_server.h — HTTP/1.1 over TCP, TLS or a passed listening socket; strict, bounded,
 * streaming both ways.
 * Not here: routing, AWS (aws/), clients (http_client.h).
 * Strict:   refuses Content-Length with Transfer-Encoding, differing Content-Lengths, any
 *           coding but "chunked", bare LF, obs-fold, space before a colon, control bytes,
 *           absolute-form whose host differs, long chunk extensions (RFC 9112 §6.3, §11.2);
 *           closes after an error.
 * Threads:  a connection lives on one loop thread of the server; call-backs run there.
 *           http_respond() (exactly once), http_body_more(), http_abort(), http_on_drain(),
 *           resume and release may be called from any thread.
 * Memory:   slices of a request live until on_end/on_abort returned AND the answer is complete;
 *           http_req_arena() lives as long. on_done comes when the answer is complete; when the
 *           connection broke before on_end and before an answer was begun, at once (unless
 *           http_req_hold()). Whoever got on_end or began an answer owes the rest of it even
 *           when the peer is gone: it is thrown away. http_abort() from on_abort settles it.
 * Errors:   answered by the server itself with a small plain body: 400, 408, 413, 414, 417,
 *           431, 501, 503, 505. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "loop/loop.h"
#include <netinet/in.h>
#include <sys/socket.h>

struct http_server;
struct http_req;
struct tls_server; /* net/tls.h */

struct http_header {
    struct str name, value; /* name as sent; compare without case; value trimmed */
};

struct http_head {
    struct str method;
    struct str target; /* as sent: path and query, not decoded */
    struct str path;   /* the part of target before '?' */
    struct str query;  /* after '?', STR_NONE when there is no '?' */
    struct str host;   /* Host header or authority of the absolute form */
    const struct http_header *headers;
    size_t n_headers;
    int64_t content_length; /* -1 = chunked or none */
    bool has_body, is_chunked, is_tls;
};

/* First header of that name, or STR_NONE. */
struct str http_header_get(const struct http_head *h, const char *name);
/* Number of headers of that name. */
size_t http_header_count(const struct http_head *h, const char *name);

/* PAUSE: reading stops until http_req_resume(), to be called once for each pause, but not after
 * a complete answer. */
enum http_flow { HTTP_MORE, HTTP_PAUSE };

struct http_handler {
    /* The head is there; 100-continue has not been sent: an answer given here replaces it.
     * '*ret_user' follows the request. */
    void (*on_head)(void *ctx, struct http_req *req, const struct http_head *head,
                    void **ret_user);
    /* NULL: the server collects the body (max_buffered_body) and passes it to on_end. */
    enum http_flow (*on_body)(struct http_req *req, void *user, struct str chunk);
    /* The request is complete; 'body' when it was collected. Not called when the answer was
     * complete before. */
    void (*on_end)(struct http_req *req, void *user, struct str body);
    /* The peer left or a deadline passed before the answer was complete. May be NULL when no
     * answer is a stream. */
    void (*on_abort)(struct http_req *req, void *user);
    /* The last call for this request, always: free 'user'. May be NULL. */
    void (*on_done)(struct http_req *req, void *user);
};

struct http_server_opts {
    const char *name;          /* for logs */
    unsigned n_loops;          /* loop threads of the server's own; 0 = run on 'loop' */
    struct loop *loop;         /* used when n_loops == 0 */
    struct tls_server *tls;    /* NULL = plain; borrowed; reload by tls_server_reload() */
    size_t max_head;           /* bytes; 0 = 64 KiB */
    size_t max_buffered_body;  /* bytes; 0 = 1 MiB; larger: 413 */
    size_t max_buffered_total; /* of all connections together; 0 = 256 MiB; above: 503 */
    unsigned max_conns;        /* 0 = 4096; above: the idlest is closed, else 503 */
    unsigned max_conns_per_ip; /* 0 = 512 */
    uint64_t head_timeout_ns;  /* 0 = 10 s */
    uint64_t idle_timeout_ns;  /* 0 = 60 s */
    uint64_t body_timeout_ns;  /* 0 = 30 s without a byte, in or out */
    const char *server_header; /* value of "Server", NULL = none */
};

/* Takes nothing but starts serving when a listener is added. */
MUST_CHECK int http_server_new(const struct http_server_opts *opts,
                               const struct http_handler *handler, void *ctx,
                               struct http_server **ret, struct err *err);
/* 'host' NULL = all addresses (IPv6 and IPv4). -EADDRINUSE names who holds the port when that
 * can be found. */
MUST_CHECK int http_server_listen(struct http_server *s, const char *host, uint16_t port,
                                  struct err *err);
/* Takes the descriptor. */
MUST_CHECK int http_server_listen_fd(struct http_server *s, int listen_fd, struct err *err);
/* Of the first listener (port 0 given). */
uint16_t http_server_port(const struct http_server *s);
/* Stops accepting, closes idle connections, waits for running requests until the deadline, then
 * closes. With a loop of the caller's: call it when loop_run() has returned, it runs the loop
 * meanwhile. */
void http_server_drain(struct http_server *s, uint64_t timeout_ns);
/* Drains with no patience. Handlers that owe an answer are waited for: their memory is in use. */
void http_server_free(struct http_server *s);

struct http_stats {
    uint64_t n_accepted, n_refused; /* refused: caps */
    uint64_t n_evicted, n_requests;
    uint64_t n_bad; /* answered by the server itself with an error */
    unsigned n_conns, n_idle;
};
void http_server_stats(const struct http_server *s, struct http_stats *ret); /* any thread */

struct arena *http_req_arena(struct http_req *req);
const struct http_head *http_req_head(const struct http_req *req);
/* Remote address; for the metadata service and logs. */
const struct sockaddr_storage *http_req_peer(const struct http_req *req);
/* The same as text: "192.0.2.1", also of an IPv4 peer of an IPv6 socket; "" for a unix socket. */
struct str http_req_peer_text(const struct http_req *req, struct arena *a);
/* SO_PEERCRED of a unix socket; -ENOTSOCK for other sockets. On the loop's thread. */
MUST_CHECK int http_req_peer_uid(const struct http_req *req, uid_t *ret);
/* Index of the listener, in order of adding. */
int http_req_listener(const struct http_req *req);
/* From on_head only: the body of this request is collected and passed to on_end, as it is when
 * there is no on_body. */
void http_req_collect(struct http_req *req);
/* From on_head only: no 100-continue, no body and no on_end until http_req_resume(). */
void http_req_pause(struct http_req *req);
void http_req_resume(struct http_req *req); /* any thread */
/* While held, on_done does not come (an upload whose blocks are still being written). Hold on
 * the loop's thread, release on any. */
void http_req_hold(struct http_req *req);
void http_req_release(struct http_req *req);
struct loop *http_req_loop(const struct http_req *req);
/* Packets of the answer travel at most so many hops (IP TTL); stays so for the connection. On
 * the loop thread, before the answer. */
MUST_CHECK int http_req_set_hop_limit(const struct http_req *req, int n_hops);

struct http_answer {
    int status;
    /* Copied. Date, Content-Length, Transfer-Encoding are the server's; "Connection: close" is
     * obeyed. */
    const struct http_header *headers;
    size_t n_headers;
    struct str body;     /* copied; not with is_stream */
    bool is_stream;      /* the body follows by http_body_more() */
    int64_t stream_size; /* >= 0: its Content-Length; < 0: chunked */
};
void http_respond(struct http_req *req, const struct http_answer *answer);
/* Queues body bytes (copied). Returns bytes queued and not yet sent: wait for on_drain above a
 * limit of your own. 'is_last' ends it. */
size_t http_body_more(struct http_req *req, struct str chunk, bool is_last);
/* The same without a copy: http_piece_new() gives memory for 'size' bytes at *ret_p, which the
 * caller fills; http_body_give() takes it, 'n' bytes of it are sent. http_piece_free(): changed
 * its mind. */
struct chunkq_block;
struct chunkq_block *http_piece_new(size_t size, char **ret_p) __attribute__((returns_nonnull));
void http_piece_free(struct chunkq_block *piece); /* NULL is fine */
size_t http_body_give(struct http_req *req, struct chunkq_block *piece, size_t n, bool is_last);
/* Calls fn once, on the loop's thread, when fewer than 'below' bytes wait, or when the peer is
 * gone. Any thread may ask. */
void http_on_drain(struct http_req *req, void (*fn)(struct http_req *req, void *user),
                   size_t below);
/* Breaks an answer off: the connection is reset, so that the peer sees that it is short. */
void http_abort(struct http_req *req);
