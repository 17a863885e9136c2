/* tls.h — the server side of TLS: a certificate and key from files, changed without a restart.
 * Not here: making certificates (crypto/x509.h), TLS clients (http_client.h).
 * Threads:  a struct tls_server may be used and reloaded from any thread.
 * Memory:   tls_server_new() gives, tls_server_free() takes; connections that live keep what
 *           they began with.
 * Errors:   "TlsFailed" with the reason; a reload that fails leaves the old certificate in use. */
#pragma once
#include "base/err.h"
#include "base/macro.h"
#include <stdint.h>

struct tls_server;

/* TLS 1.2 and 1.3, HTTP/1.1 by ALPN. 'cert_path' holds the server's certificate first, then
 * what leads to the CA. */
MUST_CHECK int tls_server_new(const char *cert_path, const char *key_path,
                              struct tls_server **ret, struct err *err);
void tls_server_free(struct tls_server *t); /* NULL is fine */
DEFINE_CLEANUP(struct tls_server *, tls_server_free);

/* Reads the same files again. New connections see the new certificate. */
MUST_CHECK int tls_server_reload(struct tls_server *t, struct err *err);
/* When the certificate in use ends (wall clock). */
uint64_t tls_server_not_after_ns(struct tls_server *t);
