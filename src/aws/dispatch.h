/* dispatch.h — from an HTTP request to an answer: authenticate, find the operation, authorise,
 * decode, call, encode.
 * Not here: sockets, handlers, the store. A pure function of its inputs, but for what handlers
 *           do.
 * Order:    SigV4 -> Version and Action (REST-JSON: method and path) -> authorize() ->
 *           InvalidAction for what is not there -> parameters -> handler. Nothing about
 *           operations is told to strangers.
 * Threads:  a struct aws_dispatch is constant; aws_dispatch_run() may run on any number of
 *           threads.
 * Memory:   the answer's body belongs to the answer: aws_answer_done(). Everything else lives
 *           in the arena.
 * Errors:   become answers. */
#pragma once
#include "aws/policy.h"
#include "aws/sigv4.h"
#include "base/buf.h"

#define AWS_MAX_BODY (1u << 20) /* after gzip too */
#define AWS_ARENA_MAX \
    (256u << 20) /* make the arena of a request with this; what a client sends may fill a \
                    small part only */
#define AWS_MAX_ANSWER (64u << 20)

struct aws_endpoint {
    const struct aws_service *service;
    const aws_handler_fn *handlers; /* by operation; NULL entries answer InvalidAction */
};

struct aws_dispatch {
    const struct aws_endpoint *endpoints;
    size_t n_endpoints;
    struct str region, partition; /* partition "aws" */
    aws_key_find_fn key_find;
    void *key_ctx;
    aws_policy_source_fn policy;
    void *policy_ctx;
    struct sigv4_cache *cache;
    struct str page_key; /* 32 random bytes that stay the same over restarts */
    void *app;           /* for handlers: call->app */
};

#define AWS_ANSWER_HEADERS 8u

struct aws_answer {
    int status;
    const char *content_type;
    struct http_header headers[AWS_ANSWER_HEADERS]; /* more of them; in the arena */
    size_t n_headers;
    struct buf body;
    /* who asked for what; call.service NULL when that was not found out */
    struct aws_call call;
    struct err err; /* what went wrong, unabridged: for the log. code 0 = nothing */
};

void aws_dispatch_run(const struct aws_dispatch *d, struct arena *a, const struct aws_http *rq,
                      struct aws_answer *ret);
void aws_answer_done(struct aws_answer *ans);
/* True when handlers and the states of the .ops file agree for every operation; names the first
 * that does not. */
MUST_CHECK int aws_endpoint_check(const struct aws_endpoint *e, struct err *err);
