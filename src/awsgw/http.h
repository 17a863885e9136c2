/* http.h — from HTTP requests on port 9999 to the dispatcher and back, on the pool's threads; or to
 * predastore (relay.h).
 * Not here: what requests mean (aws/dispatch.h), TLS (net/tls.h).
 * Threads:  requests arrive on the server's loops; everything that may block runs on the pool.
 * Memory:   one arena per request, freed when its answer has been sent.
 * Errors:   a full pool answers 503 with AWS's RequestLimitExceeded. */
#pragma once
#include "aws/dispatch.h"
#include "loop/pool.h"
#include "net/http_server.h"
#include "net/tls.h"

struct gw_http;

MUST_CHECK int gw_http_new(const struct aws_dispatch *dispatch, struct pool *pool,
                           struct tls_server *tls, unsigned n_loops, struct gw_http **ret,
                           struct err *err);
/* Before gw_http_listen(): requests for S3 go there. Takes the relay; borrows the domains. */
struct relay;
void gw_http_relay(struct gw_http *h, struct relay *relay, const char *const *domains,
                   size_t n_domains);
MUST_CHECK int gw_http_listen(struct gw_http *h, uint16_t port, struct err *err);
uint16_t gw_http_port(const struct gw_http *h);
/* Lets running requests end (at most timeout_ns), then closes everything. */
void gw_http_free(struct gw_http *h, uint64_t timeout_ns);
