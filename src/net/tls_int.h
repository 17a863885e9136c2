/* tls_int.h — one TLS connection over a non-blocking socket; for the HTTP server only.
 * Not here: the server's certificate (tls.h).
 * Threads:  belongs to the connection's loop thread.
 * Memory:   tls_conn_new() gives, tls_conn_free() takes; the descriptor stays the caller's.
 * Errors:   -EAGAIN (see tls_conn_want()), -EPROTO for what is not TLS, -ECONNRESET. Never
 *           raises SIGPIPE when that is ignored (http_server_new() sees to it: OpenSSL's
 *           sockets use write(2)). */
#pragma once
#include "net/tls.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tls_conn;

struct tls_conn *tls_conn_new(struct tls_server *t, int fd); /* NULL when memory is out */
void tls_conn_free(struct tls_conn *c);

MUST_CHECK int tls_conn_handshake(struct tls_conn *c); /* 0 = done */
/* Bytes, 0 at the end of the stream, or negative. */
MUST_CHECK ssize_t tls_conn_read(struct tls_conn *c, void *p, size_t n);
MUST_CHECK ssize_t tls_conn_write(struct tls_conn *c, const void *p, size_t n);
/* EPOLLIN or EPOLLOUT: what the last -EAGAIN waits for. */
uint32_t tls_conn_want(const struct tls_conn *c);
bool tls_conn_has_pending(const struct tls_conn *c); /* bytes that no event will announce */
void tls_conn_shutdown(struct tls_conn *c);          /* sends close_notify, once, if it can */
