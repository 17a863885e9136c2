/* nbd_test_client.h — a client of NBD that says exactly the bytes it is told to; for *_test.c only.
 * Not here: the server (nbd_world.h), anything a service links.
 * Threads:  the test's.
 * Memory:   nothing is kept; descriptors are the test's.
 * Errors:   whatever is not expected ends the test. */
#pragma once
#include "base/test.h"
#include "blk/nbd_int.h"
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define NBD_CLIENT_NS UINT64_C(20000000000) /* nothing here takes long */

static inline int nbd_client(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, MIN(strlen(path), sizeof(a.sun_path) - 1));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

/* Reads n bytes; how many came before the end of the connection. */
static inline size_t nbd_client_read(int fd, void *p, size_t n)
{
    size_t got = 0;
    while (got < n) {
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        if (poll(&pf, 1, (int)(NBD_CLIENT_NS / 1000000)) != 1) {
            fail_msg("no answer");
        }
        ssize_t r = recv(fd, (char *)p + got, n - got, 0);
        if (r <= 0) {
            return got;
        }
        got += (size_t)r;
    }
    return got;
}

static inline void nbd_client_get(int fd, void *p, size_t n)
{
    size_t got = nbd_client_read(fd, p, n);
    if (got != n) {
        fail_msg("%zu bytes of %zu, then the end", got, n);
    }
}

static inline uint64_t nbd_client_num(int fd, unsigned n)
{
    uint8_t b[8];
    uint64_t v = 0;
    nbd_client_get(fd, b, n);
    for (unsigned i = 0; i < n; i++) {
        v = v << 8 | b[i];
    }
    return v;
}

static inline bool nbd_client_is_at_end(int fd)
{
    char c = 0;
    return nbd_client_read(fd, &c, 1) == 0;
}

static inline void nbd_client_send(int fd, const void *p, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t r = send(fd, (const char *)p + done, n - done, MSG_NOSIGNAL);
        if (r <= 0) {
            return; /* disconnected: the test looks at what comes back */
        }
        done += (size_t)r;
    }
}

/* A big-endian number into 'b'. */
static inline void nbd_client_put(struct buf *b, uint64_t v, unsigned n)
{
    for (unsigned i = n; i > 0; i--) {
        buf_add_char(b, (char)(uint8_t)(v >> (8 * (i - 1))));
    }
}

static inline void nbd_client_hello(int fd, uint32_t flags)
{
    assert_int_equal(nbd_client_num(fd, 8), NBD_INIT_MAGIC);
    assert_int_equal(nbd_client_num(fd, 8), NBD_OPT_MAGIC);
    assert_int_equal(nbd_client_num(fd, 2), NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES);
    uint8_t f[4] = {(uint8_t)(flags >> 24), (uint8_t)(flags >> 16), (uint8_t)(flags >> 8),
                    (uint8_t)flags};
    nbd_client_send(fd, f, 4);
}

static inline void nbd_client_opt(int fd, uint32_t opt, const void *data, size_t n)
{
    AUTO_BUF b;
    buf_init(&b, 1 << 20);
    nbd_client_put(&b, NBD_OPT_MAGIC, 8);
    nbd_client_put(&b, opt, 4);
    nbd_client_put(&b, n, 4);
    buf_add(&b, str_n(data, n));
    nbd_client_send(fd, b.p, b.n);
}

/* The next reply to 'opt': its type; data into 'data' (at most 512 bytes). */
static inline uint32_t nbd_client_rep(int fd, uint32_t opt, uint8_t data[512], size_t *ret_n)
{
    assert_int_equal(nbd_client_num(fd, 8), NBD_REP_MAGIC);
    assert_int_equal(nbd_client_num(fd, 4), opt);
    uint32_t type = (uint32_t)nbd_client_num(fd, 4);
    size_t n = nbd_client_num(fd, 4);
    assert_in_range(n, 0, 512);
    nbd_client_get(fd, data, n);
    if (ret_n) {
        *ret_n = n;
    }
    return type;
}

static inline void nbd_client_until_ack(int fd, uint32_t opt)
{
    uint8_t d[512];
    uint32_t type = 0;
    while ((type = nbd_client_rep(fd, opt, d, NULL)) != NBD_REP_ACK) {
        assert_int_equal(type & 0x80000000u, 0);
    }
}

/* Structured replies and both contexts when wanted, then GO. */
static inline int nbd_client_go(const char *path, bool is_structured)
{
    int fd = nbd_client(path);
    nbd_client_hello(fd, NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES);
    if (is_structured) {
        nbd_client_opt(fd, NBD_OPT_STRUCTURED_REPLY, "", 0);
        nbd_client_until_ack(fd, NBD_OPT_STRUCTURED_REPLY);
        static const char q[] = "\0\0\0\0" /* the default export */
                                "\0\0\0\2\0\0\0\17base:allocation\0\0\0\11spx:dirty";
        nbd_client_opt(fd, NBD_OPT_SET_META_CONTEXT, q, sizeof(q) - 1);
        nbd_client_until_ack(fd, NBD_OPT_SET_META_CONTEXT);
    }
    nbd_client_opt(fd, NBD_OPT_GO, "\0\0\0\5vol-1\0\0", 11);
    nbd_client_until_ack(fd, NBD_OPT_GO);
    return fd;
}

static inline void nbd_client_ask(int fd, unsigned type, unsigned flags, uint64_t cookie,
                                  uint64_t off, uint32_t len, const void *payload)
{
    AUTO_BUF b;
    buf_init(&b, NBD_MAX_PAYLOAD + 64);
    nbd_client_put(&b, NBD_REQUEST_MAGIC, 4);
    nbd_client_put(&b, flags, 2);
    nbd_client_put(&b, type, 2);
    nbd_client_put(&b, cookie, 8);
    nbd_client_put(&b, off, 8);
    nbd_client_put(&b, len, 4);
    if (payload) {
        buf_add(&b, str_n(payload, len));
    }
    nbd_client_send(fd, b.p, b.n);
}

/* A simple reply: its error. */
static inline uint32_t nbd_client_simple(int fd, uint64_t cookie)
{
    assert_int_equal(nbd_client_num(fd, 4), NBD_SIMPLE_MAGIC);
    uint32_t error = (uint32_t)nbd_client_num(fd, 4);
    assert_int_equal(nbd_client_num(fd, 8), cookie);
    return error;
}

struct nbd_chunk {
    uint16_t flags, type;
    uint64_t cookie;
    uint32_t len;
};

static inline struct nbd_chunk nbd_client_chunk(int fd)
{
    struct nbd_chunk c = {0};
    assert_int_equal(nbd_client_num(fd, 4), NBD_CHUNK_MAGIC);
    c.flags = (uint16_t)nbd_client_num(fd, 2);
    c.type = (uint16_t)nbd_client_num(fd, 2);
    c.cookie = nbd_client_num(fd, 8);
    c.len = (uint32_t)nbd_client_num(fd, 4);
    return c;
}

/* Whatever one client did, the next one is served. */
static inline void nbd_client_check_alive(const char *path)
{
    int fd = nbd_client_go(path, false);
    uint8_t b[512];
    nbd_client_ask(fd, NBD_CMD_READ, 0, 77, 0, 512, NULL);
    assert_int_equal(nbd_client_simple(fd, 77), 0);
    nbd_client_get(fd, b, 512);
    close(fd);
}
