/* http_test_client.h — a blocking client for tests: sends any bytes, reads answers strictly,
 * plain or TLS.
 * Not here: production code (http_client.h).
 * Threads:  a struct tc belongs to one thread.
 * Memory:   tc_close() frees; answers borrow until the next read or close.
 * Errors:   tc_read() returns -1 for anything but a whole answer. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tc {
    int fd;
    void *ssl, *ssl_ctx;
    char *in, *body;
    size_t n, cap;
    size_t used; /* of 'in' by the last answer */
};

struct tc_answer {
    const char *head; /* NUL-terminated, with its last line end */
    const char *body; /* NUL-terminated, chunks joined */
    size_t body_n;
};

int tc_connect(uint16_t port); /* a bare socket, or -1 */
/* 'ca_path' NULL: plain. 'version': 0 any, 11, 12 or 13. */
int tc_open(struct tc *c, uint16_t port, const char *ca_path, int version);
void tc_send_n(struct tc *c, const void *p, size_t n);
void tc_send(struct tc *c, const char *text);
void tc_sendf(struct tc *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reads what is there without waiting. */
void tc_pull(struct tc *c);
/* The status of the next answer; 'is_bodyless' for answers to HEAD and for 100. */
int tc_read(struct tc *c, struct tc_answer *a, bool is_bodyless);
bool tc_is_readable(struct tc *c, int ms);
bool tc_is_closed(
    struct tc *c,
    int ms); /* the peer ends the connection within that time, and sends nothing before */
void tc_fingerprint(struct tc *c, char out[128]);
void tc_reset(struct tc *c); /* closes with RST */
void tc_close(struct tc *c);
