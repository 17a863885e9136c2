#include "net/http_test_client.h"

#include "base/macro.h"
#include "base/num.h"
#include "base/str.h"
#include "base/time.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

#define TIMEOUT_MS 10000
#define MAX_ANSWER (16u << 20)

int tc_connect(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    struct timeval tv = {.tv_sec = TIMEOUT_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    return fd;
}

int tc_open(struct tc *c, uint16_t port, const char *ca_path, int version)
{
    *c = (struct tc){.fd = tc_connect(port)};
    if (c->fd < 0 || !ca_path) {
        return c->fd < 0 ? -1 : 0;
    }
    static const int versions[] = {
        [11] = TLS1_1_VERSION, [12] = TLS1_2_VERSION, [13] = TLS1_3_VERSION};
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_load_verify_locations(ctx, ca_path, NULL);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    if (version == 11) {
        SSL_CTX_set_cipher_list(ctx, "ALL:@SECLEVEL=0");
    }
    if (version) {
        SSL_CTX_set_min_proto_version(ctx, versions[version]);
        SSL_CTX_set_max_proto_version(ctx, versions[version]);
    }
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, c->fd);
    SSL_set1_host(ssl, "localhost");
    c->ssl = ssl;
    c->ssl_ctx = ctx;
    if (SSL_connect(ssl) != 1) {
        tc_close(c);
        return -1;
    }
    return 0;
}

/* Errors show when the answer is read: a server that closes early is what many tests are about.
 */
void tc_send_n(struct tc *c, const void *p, size_t n)
{
    const char *b = p;
    while (n) {
        ssize_t w = c->ssl ? SSL_write(c->ssl, b, (int)n) : send(c->fd, b, n, MSG_NOSIGNAL);
        if (w <= 0) {
            return;
        }
        b += w;
        n -= (size_t)w;
    }
}

void tc_send(struct tc *c, const char *text)
{
    tc_send_n(c, text, strlen(text));
}

void tc_sendf(struct tc *c, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    tc_send(c, text);
}

/* One read into the buffer; 0 at the end, -1 on errors. */
static ssize_t read_some(struct tc *c)
{
    if (c->cap - c->n < 65537) {
        size_t cap = c->cap ? c->cap * 2 : 1 << 18;
        char *p = cap <= MAX_ANSWER ? realloc(c->in, cap) : NULL;
        if (!p) {
            return -1;
        }
        c->in = p;
        c->cap = cap;
    }
    ssize_t n =
        c->ssl ? SSL_read(c->ssl, c->in + c->n, 65536) : recv(c->fd, c->in + c->n, 65536, 0);
    if (n > 0) {
        c->n += (size_t)n;
        c->in[c->n] = '\0';
    }
    return n < 0 ? -1 : n;
}

bool tc_is_readable(struct tc *c, int ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    return (c->ssl && SSL_pending(c->ssl) > 0) || poll(&p, 1, ms) > 0;
}

void tc_pull(struct tc *c)
{
    while (tc_is_readable(c, 0) && read_some(c) > 0) {}
}

/* Joins chunks in place, behind the head. Returns the raw size, 0 when more is needed, -1 when
 * malformed. */
static ssize_t join_chunks(char *p, size_t n, size_t *ret_n)
{
    size_t at = 0, out = 0;
    for (;;) {
        const char *end = memmem(p + at, n - at, "\r\n", 2);
        uint64_t size = 0;
        if (!end) {
            return 0;
        }
        if (num_hex_u64(str_n(p + at, (size_t)(end - p) - at), MAX_ANSWER, &size) < 0) {
            return -1;
        }
        at = (size_t)(end - p) + 2;
        if (n - at < size + 2) {
            return 0;
        }
        if (memcmp(p + at + size, "\r\n", 2) != 0) {
            return -1;
        }
        if (ret_n) {
            memmove(p + out, p + at, size);
        }
        out += size;
        at += size + 2;
        if (size == 0) {
            if (ret_n) {
                *ret_n = out;
            }
            return (ssize_t)at;
        }
    }
}

/* The size of the body that is there as a whole, 0-based; -1 when more is needed, -2 when
 * malformed. */
static ssize_t body_size(struct tc *c, size_t head_n, bool is_bodyless, bool is_end,
                         size_t *ret_raw)
{
    char *head = c->in;
    size_t have = c->n - head_n;
    const char *length = strstr(head, "\r\nContent-Length: ");
    *ret_raw = 0;
    if (is_bodyless || strncmp(head, "HTTP/1.1 204", 12) == 0 ||
        strncmp(head, "HTTP/1.1 304", 12) == 0) {
        return 0;
    }
    if (strstr(head, "\r\nTransfer-Encoding: chunked\r\n")) {
        size_t n = 0;
        ssize_t raw = join_chunks(head + head_n, have, NULL);
        if (raw <= 0) {
            return raw < 0 ? -2 : -1;
        }
        if (join_chunks(head + head_n, have, &n) != raw) {
            return -2;
        }
        *ret_raw = (size_t)raw;
        return (ssize_t)n;
    }
    uint64_t n = 0;
    if (length) {
        struct str text = str_cut(str_c(length + 18), '\r');
        if (num_u64(text, MAX_ANSWER, &n) < 0) {
            return -2;
        }
        *ret_raw = n;
        return n <= have ? (ssize_t)n : -1;
    }
    *ret_raw = have;
    return is_end ? (ssize_t)have : -1; /* the end of the connection ends the body */
}

int tc_read(struct tc *c, struct tc_answer *a, bool is_bodyless)
{
    if (c->used) {
        if (c->used <
            c->n) { /* the terminator of the last body stood on the next answer's first byte */
            memmove(c->in, c->in + c->used, c->n - c->used);
        }
        c->n -= c->used;
        c->used = 0;
        c->in[c->n] = '\0';
    }
    bool is_end = false;
    for (;;) {
        char *head_end = c->n ? memmem(c->in, c->n, "\r\n\r\n", 4) : NULL;
        if (head_end) {
            size_t head_n = (size_t)(head_end - c->in) + 4, raw = 0;
            char keep = c->in[head_n - 2];
            c->in[head_n - 2] = '\0'; /* the head alone is searched */
            ssize_t n = body_size(c, head_n, is_bodyless, is_end, &raw);
            if (n >= 0) {
                /* Copies end in NUL without touching the next answer's bytes. */
                a->head = c->in;
                a->body_n = (size_t)n;
                free(c->body);
                c->body = malloc((size_t)n + 1);
                if (!c->body) {
                    return -1;
                }
                memcpy(c->body, c->in + head_n, (size_t)n);
                c->body[n] = '\0';
                a->body = c->body;
                c->used = head_n + raw;
                uint64_t status = 0;
                if (memcmp(c->in, "HTTP/1.1 ", 9) != 0 ||
                    num_u64(str_n(c->in + 9, 3), 999, &status) < 0) {
                    return -1;
                }
                return (int)status;
            }
            c->in[head_n - 2] = keep;
            if (n == -2) {
                return -1;
            }
        }
        if (is_end) {
            return -1;
        }
        ssize_t n = read_some(c);
        if (n < 0) {
            return -1;
        }
        is_end = n == 0;
    }
}

bool tc_is_closed(struct tc *c, int ms)
{
    if (c->n > c->used || !tc_is_readable(c, ms)) {
        return false;
    }
    char byte = 0;
    ssize_t n = c->ssl ? SSL_read(c->ssl, &byte, 1) : recv(c->fd, &byte, 1, 0);
    return n <= 0;
}

void tc_fingerprint(struct tc *c, char out[128])
{
    X509 *cert = SSL_get1_peer_certificate(c->ssl);
    unsigned char hash[32] = {0};
    unsigned n = 0;
    if (cert) {
        X509_digest(cert, EVP_sha256(), hash, &n);
        X509_free(cert);
    }
    for (unsigned i = 0; i < 32; i++) {
        snprintf(out + (size_t)2 * i, 3, "%02x", hash[i]);
    }
}

void tc_reset(struct tc *c)
{
    struct linger l = {.l_onoff = 1};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
    tc_close(c);
}

void tc_close(struct tc *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ssl_ctx);
    free(c->in);
    free(c->body);
    if (c->fd >= 0) {
        close(c->fd);
    }
    *c = (struct tc){.fd = -1};
}
