#include "net/tls.h"

#include "base/time.h"
#include "net/tls_int.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define READ_SIZE (4u * 16709) /* of four whole records; given back when it is empty */

struct tls_server {
    char *cert_path, *key_path;
    pthread_mutex_t mu;
    SSL_CTX *ctx; /* GUARDED_BY(mu); connections hold references */
    uint64_t not_after_ns;
};

struct tls_conn {
    SSL *ssl;
    uint32_t want;
    bool is_broken; /* after a fatal error OpenSSL forbids SSL_shutdown() */
};

/* The reason of the oldest queued error; clears the queue. */
static const char *reason(char *p, size_t n)
{
    unsigned long e = ERR_get_error();
    const char *text = e ? ERR_reason_error_string(e) : NULL;
    strncpy(p, text ? text : "unknown reason", n - 1);
    p[n - 1] = '\0';
    ERR_clear_error();
    return p;
}

static int select_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                       const unsigned char *in, unsigned in_n, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen = NULL;
    if (SSL_select_next_proto(&chosen, out_n, ours, sizeof(ours) - 1, in, in_n) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_NOACK; /* offers only others: HTTP/1.1 is still what it gets */
    }
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static uint64_t not_after(const SSL_CTX *ctx)
{
    const X509 *cert = SSL_CTX_get0_certificate(ctx);
    struct tm tm = {0};
    if (!cert || ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1) {
        return 0;
    }
    time_t t = timegm(&tm);
    return t > 0 ? (uint64_t)t * NS_PER_S : 0;
}

static SSL_CTX *load(const char *cert_path, const char *key_path, struct err *err)
{
    char why[128];
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx) {
        fail(err, -ENOMEM, "TlsFailed", "TLS: %s", reason(why, sizeof(why)));
        return NULL;
    }
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_num_tickets(ctx, 1);
    SSL_CTX_set_session_cache_mode(ctx,
                                   SSL_SESS_CACHE_OFF); /* tickets need no memory of ours */
    /* Several records in one system call, not a header alone first. */
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, READ_SIZE);
    SSL_CTX_set_alpn_select_cb(ctx, select_alpn, NULL);
    static const unsigned char session_id[] = "spinifex";
    const char *bad = NULL;
    if (SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL") != 1 ||
        SSL_CTX_set_session_id_context(ctx, session_id, sizeof(session_id) - 1) != 1) {
        bad = "cipher list";
    } else if (SSL_CTX_use_certificate_chain_file(ctx, cert_path) != 1) {
        bad = cert_path;
    } else if (SSL_CTX_use_PrivateKey_file(ctx, key_path, SSL_FILETYPE_PEM) != 1 ||
               SSL_CTX_check_private_key(ctx) != 1) {
        bad = key_path;
    }
    if (bad) {
        fail(err, -EINVAL, "TlsFailed", "%s: %s", bad, reason(why, sizeof(why)));
        err_hint(err, "\"spx admin cert renew\" makes a new certificate");
        SSL_CTX_free(ctx);
        return NULL;
    }
    return ctx;
}

int tls_server_new(const char *cert_path, const char *key_path, struct tls_server **ret,
                   struct err *err)
{
    SSL_CTX *ctx = load(cert_path, key_path, err);
    if (!ctx) {
        return -EINVAL;
    }
    struct tls_server *t = calloc(1, sizeof(*t));
    char *cert = strdup(cert_path), *key = strdup(key_path);
    if (!t || !cert || !key) {
        abort();
    }
    *t = (struct tls_server){
        .cert_path = cert, .key_path = key, .ctx = ctx, .not_after_ns = not_after(ctx)};
    pthread_mutex_init(&t->mu, NULL);
    *ret = t;
    return 0;
}

void tls_server_free(struct tls_server *t)
{
    if (t) {
        SSL_CTX_free(t->ctx);
        pthread_mutex_destroy(&t->mu);
        free(t->cert_path);
        free(t->key_path);
        free(t);
    }
}

int tls_server_reload(struct tls_server *t, struct err *err)
{
    SSL_CTX *ctx = load(t->cert_path, t->key_path, err);
    if (!ctx) {
        return -EINVAL;
    }
    pthread_mutex_lock(&t->mu);
    SSL_CTX *old = t->ctx;
    t->ctx = ctx;
    t->not_after_ns = not_after(ctx);
    pthread_mutex_unlock(&t->mu);
    SSL_CTX_free(old);
    return 0;
}

uint64_t tls_server_not_after_ns(struct tls_server *t)
{
    pthread_mutex_lock(&t->mu);
    uint64_t v = t->not_after_ns;
    pthread_mutex_unlock(&t->mu);
    return v;
}

/* ---- where records go: a queue, so that many leave in one system call ---- */

static int queue_write(BIO *bio, const char *p, size_t n, size_t *ret_n)
{
    chunkq_add(BIO_get_data(bio), str_n(p, n));
    *ret_n = n;
    return 1;
}

static long queue_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    return cmd == BIO_CTRL_FLUSH;
}

static int queue_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *queue_method;
static pthread_once_t queue_once = PTHREAD_ONCE_INIT;

static void make_queue_method(void)
{
    queue_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "queue");
    if (!queue_method || BIO_meth_set_write_ex(queue_method, queue_write) != 1 ||
        BIO_meth_set_ctrl(queue_method, queue_ctrl) != 1 ||
        BIO_meth_set_create(queue_method, queue_create) != 1) {
        abort();
    }
}

/* ---- one connection ---- */

struct tls_conn *tls_conn_new(struct tls_server *t, int fd, struct chunkq *out)
{
    pthread_once(&queue_once, make_queue_method);
    pthread_mutex_lock(&t->mu);
    SSL *ssl = SSL_new(t->ctx); /* takes a reference to the context */
    pthread_mutex_unlock(&t->mu);
    struct tls_conn *c = calloc(1, sizeof(*c));
    BIO *in = BIO_new_socket(fd, BIO_NOCLOSE), *queue = BIO_new(queue_method);
    if (!ssl || !c || !in || !queue) {
        BIO_free(in);
        BIO_free(queue);
        SSL_free(ssl);
        free(c);
        return NULL;
    }
    BIO_set_data(queue, out);
    SSL_set0_rbio(ssl, in);
    SSL_set0_wbio(ssl, queue);
    SSL_set_accept_state(ssl);
    c->ssl = ssl;
    return c;
}

void tls_conn_free(struct tls_conn *c)
{
    if (c) {
        SSL_free(c->ssl);
        free(c);
    }
}

/* Sorts out a result <= 0. Returns 0 at the end of the stream. */
static int judge(struct tls_conn *c, int r)
{
    int saved = errno;
    switch (SSL_get_error(c->ssl, r)) {
    case SSL_ERROR_WANT_READ: c->want = EPOLLIN; return -EAGAIN;
    case SSL_ERROR_WANT_WRITE: c->want = EPOLLOUT; return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL:
        c->is_broken = true;
        ERR_clear_error();
        return saved ? -saved : -ECONNRESET;
    default:
        c->is_broken = true;
        ERR_clear_error();
        return -EPROTO;
    }
}

int tls_conn_handshake(struct tls_conn *c)
{
    ERR_clear_error(); /* the queue is per thread: another connection's leftovers would be taken
                          for ours */
    int r = SSL_do_handshake(c->ssl);
    if (r == 1) {
        return 0;
    }
    r = judge(c, r);
    return r == 0 ? -ECONNRESET : r;
}

ssize_t tls_conn_read(struct tls_conn *c, void *p, size_t n)
{
    ERR_clear_error();
    errno = 0;
    size_t got = 0;
    int r = SSL_read_ex(c->ssl, p, n, &got);
    return r == 1 ? (ssize_t)got : judge(c, r);
}

ssize_t tls_conn_write(struct tls_conn *c, const void *p, size_t n)
{
    ERR_clear_error();
    errno = 0;
    size_t put = 0;
    int r = SSL_write_ex(c->ssl, p, n, &put);
    if (r == 1) {
        return (ssize_t)put;
    }
    r = judge(c, r);
    return r == 0 ? -EPIPE : r;
}

uint32_t tls_conn_want(const struct tls_conn *c)
{
    return c->want;
}

bool tls_conn_has_pending(const struct tls_conn *c)
{
    return SSL_has_pending(c->ssl) == 1; /* with read-ahead: undecoded bytes too */
}

void tls_conn_shutdown(struct tls_conn *c)
{
    if (!c->is_broken && SSL_is_init_finished(c->ssl)) {
        ERR_clear_error();
        SSL_shutdown(c->ssl);
        ERR_clear_error();
    }
}
