/* tls_int.h — one TLS connection: reads from a non-blocking socket, writes records into a queue
 * that its owner sends; for the HTTP server only.
 * Not here: the server's certificate (tls.h).
 * Threads:  belongs to the connection's loop thread.
 * Memory:   tls_conn_new() gives, tls_conn_free() takes; the descriptor stays the caller's.
 * Errors:   -EAGAIN (see tls_conn_want()), -EPROTO for what is not TLS, -ECONNRESET. */
#pragma once
#include "net/chunkq.h"
#include "net/tls.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tls_conn;

/* 'out' is borrowed: every call here may append to it (records, alerts). NULL when memory is
 * out. */
struct tls_conn *tls_conn_new(struct tls_server *t, int fd, struct chunkq *out);
void tls_conn_free(struct tls_conn *c);

MUST_CHECK int tls_conn_handshake(struct tls_conn *c); /* 0 = done */
/* Bytes, 0 at the end of the stream, or negative. */
MUST_CHECK ssize_t tls_conn_read(struct tls_conn *c, void *p, size_t n);
/* Never waits for the socket: records go into the queue, one for each call at most. */
MUST_CHECK ssize_t tls_conn_write(struct tls_conn *c, const void *p, size_t n);
/* EPOLLIN or EPOLLOUT: what the last -EAGAIN waits for. */
uint32_t tls_conn_want(const struct tls_conn *c);
bool tls_conn_has_pending(const struct tls_conn *c); /* bytes that no event will announce */
void tls_conn_shutdown(struct tls_conn *c);          /* queues close_notify, once, if it can */
