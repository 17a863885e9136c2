/* relay.h — S3 at the one endpoint: requests go to predastore's unix socket and answers come back,
 * byte for byte, both as streams with bounded memory. Signatures are checked there, so nothing
 * that is signed changes; X-Spx-* headers of clients are taken out, X-Spx-Source-Ip is put in.
 * Not here: which requests (relay_route.h), what they mean (predastore).
 * Threads:  a request and its connection to predastore stay on the loop of the client's
 *           connection; every loop keeps connections of its own for reuse.
 * Memory:   per request at most about 256 KiB towards predastore and 512 KiB towards the client.
 *           relay_begin() gives; relay_done() takes.
 * Errors:   predastore is not there, or ends early: 503 in S3's form, or a broken connection when
 *           half of an answer is out. No limits of time: those of the two servers count. */
#pragma once
#include "base/err.h"
#include "net/http_server.h"

struct relay;
struct relay_req;

/* 'max_conns': to predastore, of all loops together; above it: 503 SlowDown. The path is copied. */
struct relay *relay_new(const char *socket_path, unsigned max_conns);
/* Between draining the HTTP server and freeing it: closes what is kept for reuse. */
void relay_stop(struct relay *r);
void relay_free(struct relay *r); /* after the HTTP server is freed; NULL is fine */

/* The call-backs of http_server.h, handed on. 'source_ip' lives as long as the request. What
 * relay_begin() returns must be the first member of what the user pointer of the request points
 * to. */
struct relay_req *relay_begin(struct relay *r, struct http_req *req, struct str source_ip);
enum http_flow relay_body(struct relay_req *q, struct str chunk);
void relay_end(struct relay_req *q);
void relay_abort(struct relay_req *q);
void relay_done(struct relay_req *q);

struct relay_stats {
    uint64_t n_requests, n_unavailable, n_broken, n_connects;
    unsigned n_conns;
};
void relay_stats(const struct relay *r, struct relay_stats *ret); /* any thread */
