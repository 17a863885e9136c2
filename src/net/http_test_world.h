/* http_test_world.h — a server under test, whose paths say what it does, and its certificate
 * authority.
 * Not here: the client (http_test_client.h).
 * Threads:  tests are one thread; handlers run on the server's.
 * Memory:   tw_begin() and tw_end(); tw_end() checks that every request was done with.
 * Errors:   assertions. */
#pragma once
#include "crypto/x509.h"
#include "net/http_server.h"
#include "net/http_test_client.h"
#include "net/tls.h"
#include <stdatomic.h>

/*   /refuse  403 on the head       /think     100-continue after a pause
 *   /echo    both ways at once     /think-no  an answer instead
 *   /early   409 on first piece    /slow      pauses after each piece
 *   /late    answered by a thread  /stream/N  N bytes, sized when a query is there
 *   /collect the body, collected by the server
 *   /hold    held for a while after the answer
 *   /uid     "<result> <uid>" of the peer
 *   /short /long /break  broken promises      /empty 204      else "METHOD size-of-body" */
struct call {
    atomic_int n_heads, n_ends, n_aborts, n_dones;
    atomic_size_t n_body;
    bool is_streaming; /* with on_body */
};

struct fixture {
    struct call call;
    struct http_server *s;
    struct tls_server *tls;
    struct x509_pair ca;
    char dir[64], ca_path[96], cert_path[96], key_path[96];
    uint16_t port;
};

void tw_begin(struct fixture *f, struct http_server_opts o, bool is_streaming, bool is_tls);
void tw_end(struct fixture *f);
void tw_make_cert(struct fixture *f);
void tw_wait_for(atomic_int *v, int want);
int tw_connect(struct fixture *f, struct tc *c);
/* Both kinds of connection run through the same cases. */
void tw_each(void (*fn)(struct fixture *f), struct http_server_opts o, bool is_streaming);
