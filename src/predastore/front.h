/* front.h — S3 over HTTP: from a request's head to its answer. One place finds out who sends it,
 * before anything else happens; bodies stream.
 * Not here: what operations do (s3.h, ops.h), the store (ostore/).
 * Threads:  requests live on the loops of the two HTTP servers; handlers run on s3->pool.
 * Memory:   front_new() gives, front_free() takes, when nothing runs any more.
 * Errors:   become answers. */
#pragma once
#include "aws/policy.h"
#include "aws/sigv4.h"
#include "predastore/s3.h"
#include <sys/types.h>

struct tls_server;
struct front;

struct front_opts {
    struct s3 *s3; /* borrowed, as all below */
    struct tls_server *tls;
    const struct str *domains;
    size_t n_domains;
    aws_key_find_fn key_find;
    void *key_ctx;
    aws_policy_source_fn policy;
    uid_t uid_base; /* 0: peers of the unix socket are told apart by their headers only */
    unsigned n_loops;
    unsigned max_conns_per_ip; /* of those over TLS */
};
MUST_CHECK int front_new(const struct front_opts *o, struct front **ret, struct err *err);
/* TLS on all addresses; 0: any free port. */
MUST_CHECK int front_listen(struct front *f, uint16_t port, struct err *err);
/* Plain, for other services of this node; an old socket file is replaced. */
MUST_CHECK int front_listen_unix(struct front *f, const char *path, struct err *err);
uint16_t front_port(const struct front *f);
/* Takes no more requests and waits for those that run. */
void front_drain(struct front *f, uint64_t timeout_ns);
void front_free(struct front *f); /* NULL is fine */

struct front_stats {
    uint64_t n_requests, n_errors_4xx, n_errors_5xx;
    uint64_t bytes_in, bytes_out;
};
void front_stats(const struct front *f, struct front_stats *ret);
