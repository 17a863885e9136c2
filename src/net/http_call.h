/* http_call.h — calls of an HTTP API, one after the other over a kept connection; bodies stream
 * both ways. For commands and measurements.
 * Not here: downloads of files (http_client.h), signatures (aws/), anything on a loop.
 * Threads:  a caller belongs to one thread at a time; a call blocks it.
 * Memory:   http_caller_new() gives, http_caller_free() takes.
 * Errors:   "CallFailed" when no whole answer came: -EHOSTUNREACH (name, connection), -EKEYREJECTED
 *           (certificate), -ETIMEDOUT, -ECANCELED (a call-back said no), -EIO. Any answer of the
 *           server is none of these: see its status. */
#pragma once
#include "base/err.h"
#include "net/http_server.h"

struct http_caller;
/* 'ca_file' PEM; NULL: the system's authorities. */
MUST_CHECK int http_caller_new(const char *ca_file, struct http_caller **ret, struct err *err);
void http_caller_free(struct http_caller *c); /* NULL is fine */
DEFINE_CLEANUP(struct http_caller *, http_caller_free);

struct http_call {
    const char *method, *url; /* the path is sent as it stands */
    const struct http_header *headers;
    size_t n_headers;
    int64_t body_size; /* < 0: no body */
    /* Fills at most n bytes; 0 cancels. */
    size_t (*on_send)(void *ctx, char *p, size_t n);
    /* Bytes of the body of an answer 2xx; false cancels. NULL: they are dropped. */
    bool (*on_receive)(void *ctx, struct str bytes);
    void *ctx;
    uint64_t timeout_ns; /* for all of it; 0: none but 60 s without a byte */
};

struct http_called {
    int status;
    char error[1000]; /* of the body of an answer that is not 2xx */
};
MUST_CHECK int http_call(struct http_caller *c, const struct http_call *call,
                         struct http_called *ret, struct err *err);
