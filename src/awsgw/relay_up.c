#include "awsgw/relay_up.h"
#include "base/num.h"
#include "base/test.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

struct up up;

struct peer {
    int fd;
    char in[70000];
    size_t n;
};

static bool put(struct peer *p, const char *s, size_t n)
{
    while (n) {
        ssize_t w = send(p->fd, s, n, MSG_NOSIGNAL);
        if (w <= 0) {
            return false;
        }
        atomic_fetch_add(&up.n_out, (size_t)w);
        s += w;
        n -= (size_t)w;
    }
    return true;
}

static bool puts_(struct peer *p, const char *s)
{
    return put(p, s, strlen(s));
}

/* The head with its empty line; what follows it stays in p->in. */
static size_t read_head(struct peer *p)
{
    for (;;) {
        const char *end = p->n ? memmem(p->in, p->n, "\r\n\r\n", 4) : NULL;
        if (end) {
            return (size_t)(end - p->in) + 4;
        }
        ssize_t n = recv(p->fd, p->in + p->n, sizeof(p->in) - 1 - p->n, 0);
        if (n <= 0) {
            return 0;
        }
        p->n += (size_t)n;
    }
}

static void used(struct peer *p, size_t n)
{
    memmove(p->in, p->in + n, p->n - n);
    p->n -= n;
}

/* Reads so much of a body, or to its last chunk; returns how many bytes came. */
static size_t read_body(struct peer *p, size_t want, bool is_chunked, char *ret_tail)
{
    size_t got = 0;
    for (;;) {
        while (atomic_load(&up.is_stalled)) {
            usleep(5000);
        }
        size_t take = is_chunked ? p->n : MIN(p->n, want - got);
        got += take;
        atomic_fetch_add(&up.n_in, take);
        if (is_chunked && take >= 5) {
            memcpy(ret_tail, p->in + take - 5, 5);
        }
        used(p, take);
        if (is_chunked ? memcmp(ret_tail, "0\r\n\r\n", 5) == 0 : got == want) {
            return got;
        }
        ssize_t n = recv(p->fd, p->in, sizeof(p->in), 0);
        if (n <= 0) {
            atomic_fetch_add(&up.n_eofs, 1);
            return got;
        }
        p->n = (size_t)n;
    }
}

static bool send_many(struct peer *p, size_t n)
{
    static char block[65536];
    memset(block, 'd', sizeof(block));
    while (n) {
        size_t k = MIN(n, sizeof(block));
        if (!put(p, block, k)) {
            return false;
        }
        n -= k;
    }
    return true;
}

/* Answers that depend on nothing. */
static const struct {
    const char *path, *text;
    bool is_last; /* the connection ends after it */
} canned[] = {
    {"/204", "HTTP/1.1 204 No Content\r\nx-amz-id-2: a\r\n\r\n", false},
    {"/304", "HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\n\r\n", false},
    {"/length", "HTTP/1.1 200 OK\r\nContent-Length: 123456789012\r\n\r\n", false},
    {"/short", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this", true},
    {"/dies", "", true},
    {"/half", "HTTP/1.1 200 OK\r\nContent-Le", true},
    {"/nonsense", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", false},
    {"/endless", "HTTP/1.1 200 OK\r\n\r\nabc", true},
    {"/long", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 200 OK\r\n", false},
    {"/once", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true},
    {"/chunks",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
     "5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nX-T: v\r\n\r\n",
     false},
};

struct request {
    char head[70000];
    size_t n;
    struct str target;
    uint64_t length;
    bool is_chunked, is_expecting;
};

static bool read_request(struct peer *p, struct request *r)
{
    r->n = read_head(p);
    if (r->n == 0) {
        return false;
    }
    atomic_fetch_add(&up.n_requests, 1);
    memcpy(r->head, p->in, r->n);
    r->head[r->n] = 0;
    used(p, r->n);
    struct str line = str_cut(str_c(r->head), '\r');
    r->target = str_cut(str_skip(line, str_cut(line, ' ').n + 1), ' ');
    const char *length = strcasestr(r->head, "\r\nContent-Length: ");
    r->length = 0;
    r->is_chunked = strcasestr(r->head, "\r\nTransfer-Encoding: chunked") != NULL;
    r->is_expecting = strcasestr(r->head, "\r\nExpect: 100-continue") != NULL;
    return !length || num_u64(str_cut(str_c(length + 18), '\r'), UINT64_MAX, &r->length) == 0;
}

static bool serve_refusal(struct peer *p)
{
    puts_(p, "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n");
    shutdown(p->fd, SHUT_WR);
    struct pollfd pf = {.fd = p->fd, .events = POLLIN};
    poll(&pf, 1, 200);
    return false;
}

static bool serve_torn(struct peer *p)
{
    static const char a[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\n"
                            "Content-Length: 10\r\n\r\n0123456789";
    for (size_t i = 0; i < sizeof(a) - 1; i++) {
        put(p, a + i, 1);
        usleep(i % 7 == 0 ? 2000 : 0);
    }
    return true;
}

static bool serve_body(struct peer *p, const struct request *r)
{
    char tail[5] = "", size[24], text[200];
    bool is_early = str_eqc(r->target, "/early");
    if (is_early) {
        puts_(p, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n");
    } else if (r->is_expecting) {
        usleep(20000);
        puts_(p, "HTTP/1.1 100 Continue\r\n\r\n");
    }
    size_t got = read_body(p, r->length, r->is_chunked, tail);
    int k = snprintf(size, sizeof(size), "%zu", got);
    int n = is_early ? snprintf(text, sizeof(text), "%x\r\n%s\r\n0\r\n\r\n", (unsigned)k, size)
                     : snprintf(text, sizeof(text),
                                "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", k, size);
    return (r->is_chunked || got == r->length) && put(p, text, (size_t)n);
}

/* What comes next on this connection is not answered. */
static bool serve_then(struct peer *p, struct str how)
{
    struct request r;
    char tail[5] = "";
    struct pollfd pf = {.fd = p->fd, .events = POLLIN};
    puts_(p, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    if (str_eqc(how, "deaf")) {
        poll(&pf, 1, 10000);
    } else if (read_request(p, &r)) {
        (void)read_body(p, str_eqc(how, "half") ? 2 : r.length, r.is_chunked, tail);
    }
    return false;
}

/* False: the connection ends. */
static bool serve(struct peer *p)
{
    struct request r;
    char text[200];
    uint64_t size = 0;
    if (!read_request(p, &r)) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(canned); i++) {
        if (str_eqc(r.target, canned[i].path)) {
            return puts_(p, canned[i].text) && !canned[i].is_last;
        }
    }
    if (str_eqc(r.target, "/head")) {
        int k = snprintf(text, sizeof(text),
                         "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nETag: \"e\"\r\n\r\n", r.n);
        return put(p, text, (size_t)k) && put(p, r.head, r.n);
    }
    if (str_has_prefixc(r.target, "/then-")) {
        return serve_then(p, str_skip(r.target, 6));
    }
    if (str_has_prefixc(r.target, "/get/")) {
        assert_int_equal(num_u64(str_skip(r.target, 5), UINT64_MAX, &size), 0);
        int k = snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n",
                         (unsigned long long)size);
        return put(p, text, (size_t)k) && send_many(p, size);
    }
    return str_eqc(r.target, "/no")     ? serve_refusal(p)
           : str_eqc(r.target, "/torn") ? serve_torn(p)
                                        : serve_body(p, &r);
}

static void *serve_peer(void *ctx)
{
    struct peer *p = ctx;
    while (serve(p)) {}
    close(p->fd);
    free(p);
    atomic_fetch_sub(&up.n_conns, 1);
    return NULL;
}

static void *accept_all(void *ctx)
{
    for (;;) {
        int fd = accept(up.fd, NULL, NULL);
        if (fd < 0) {
            return NULL;
        }
        struct peer *p = calloc(1, sizeof(*p));
        p->fd = fd;
        atomic_fetch_add(&up.n_conns, 1);
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, serve_peer, p), 0);
        pthread_detach(t);
    }
}

void up_begin(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    memcpy(sa.sun_path, up.path, strlen(up.path) + 1);
    unlink(up.path);
    up.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(up.fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(up.fd, 128), 0);
    assert_int_equal(pthread_create(&up.thread, NULL, accept_all, NULL), 0);
}

void up_end(void)
{
    shutdown(up.fd, SHUT_RDWR);
    pthread_join(up.thread, NULL);
    close(up.fd);
    unlink(up.path);
}
