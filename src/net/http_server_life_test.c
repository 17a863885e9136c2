/* The life of connections and of the server: deadlines, caps, the end, certificates, listeners. */
#include "net/http_server.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/time.h"
#include "net/http_test_world.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include <cmocka.h>

#define MS(n) ((n)*NS_PER_MS)

/* ---- deadlines ---- */

static void case_deadlines(struct fixture *f)
{
    struct tc c;
    struct tc_answer a;
    /* A head that does not end, although bytes keep coming. */
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n");
    for (int i = 0; i < 16; i++) {
        usleep(50000);
        tc_send(&c, "X: y\r\n");
    }
    assert_int_equal(tc_read(&c, &a, false), 408);
    tc_close(&c);
    /* A body that stops. */
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345");
    assert_int_equal(tc_read(&c, &a, false), 408);
    assert_true(tc_is_closed(&c, 3000));
    tc_close(&c);
    tw_wait_for(&f->call.n_aborts, 1);
    /* A body that trickles: every byte is in time, the whole is not. */
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
    for (int i = 0; i < 40 && !tc_is_readable(&c, 0); i++) {
        usleep(50000);
        tc_send(&c, "x");
    }
    assert_int_equal(tc_read(&c, &a, false), 408);
    tc_close(&c);
    tw_wait_for(&f->call.n_aborts, 2);
    /* Idle: closed without a word. */
    uint64_t t0 = time_mono_ns();
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_true(tc_is_closed(&c, 3000));
    assert_true(time_mono_ns() - t0 >= MS(750));
    tc_close(&c);
    /* An answer that nobody reads. */
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET /stream/200000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    tw_wait_for(&f->call.n_aborts, 3);
    tc_close(&c);
    /* A slow handler is not a slow client. */
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET /late?x HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
    /* A handshake that never comes, on either kind. */
    int fd = tc_connect(f->port);
    assert_true(fd >= 0);
    char byte = 0;
    struct timeval tv = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

static void test_deadlines(void **state)
{
    tw_each(case_deadlines,
            (struct http_server_opts){.head_timeout_ns = MS(500),
                                      .idle_timeout_ns = MS(800),
                                      .body_timeout_ns = MS(600)},
            false);
}

/* ---- caps ---- */

static void test_per_address(void **state)
{
    struct fixture f;
    tw_begin(&f, (struct http_server_opts){.max_conns_per_ip = 3}, false, false);
    struct tc c[4];
    struct tc_answer a;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tw_connect(&f, &c[i]), 0);
        tc_send(&c[i], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(tc_read(&c[i], &a, false), 200);
    }
    assert_int_equal(tw_connect(&f, &c[3]), 0);
    assert_int_equal(tc_read(&c[3], &a, false), 503);
    tc_close(&c[3]);
    tc_close(&c[0]);
    usleep(100000);
    assert_int_equal(tw_connect(&f, &c[3]), 0);
    tc_send(&c[3], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c[3], &a, false), 200);
    for (int i = 1; i < 4; i++) {
        tc_close(&c[i]);
    }
    tw_end(&f);
}

/* At the cap the idlest connection goes; when none is idle, the new one. */
static void test_eviction(void **state)
{
    struct fixture f;
    tw_begin(&f, (struct http_server_opts){.max_conns = 3}, true, false);
    struct tc c[5];
    struct tc_answer a;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tw_connect(&f, &c[i]), 0);
        tc_send(&c[i], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(tc_read(&c[i], &a, false), 200);
        usleep(20000);
    }
    assert_int_equal(tw_connect(&f, &c[3]), 0);
    tc_send(&c[3], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c[3], &a, false), 200);
    assert_true(tc_is_closed(&c[0], 2000));
    for (int i = 1; i < 4; i++) {
        tc_send(&c[i], "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1");
    }
    tw_wait_for(&f.call.n_heads, 7);
    assert_int_equal(tw_connect(&f, &c[4]), 0);
    assert_int_equal(tc_read(&c[4], &a, false), 503);
    for (int i = 1; i < 4; i++) { /* those at work are not disturbed */
        tc_send(&c[i], "2");
        assert_int_equal(tc_read(&c[i], &a, false), 200);
        assert_string_equal(a.body, "PUT 2");
    }
    for (int i = 0; i < 5; i++) {
        tc_close(&c[i]);
    }
    struct http_stats st;
    http_server_stats(f.s, &st);
    assert_int_equal(st.n_evicted, 1);
    assert_int_equal(st.n_refused, 1);
    tw_end(&f);
}

/* 500 connections at once, each with several requests. */
static void case_many(struct fixture *f)
{
    enum { N = 500 };
    struct tc *c = calloc(N, sizeof(*c));
    assert_non_null(c);
    struct tc_answer a;
    for (int i = 0; i < N; i++) {
        assert_int_equal(tw_connect(f, &c[i]), 0);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            tc_sendf(&c[i], "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", 3);
        }
        for (int i = 0; i < N; i++) {
            tc_send(&c[i], "abc");
        }
        for (int i = 0; i < N; i++) {
            assert_int_equal(tc_read(&c[i], &a, false), 200);
            assert_string_equal(a.body, "PUT 3");
        }
    }
    struct http_stats st;
    http_server_stats(f->s, &st);
    assert_int_equal(st.n_conns, N);
    for (int i = 0; i < N; i++) {
        tc_close(&c[i]);
    }
    free(c);
}

static void test_many(void **state)
{
    tw_each(case_many, (struct http_server_opts){0}, false);
}

/* What strangers can make the server keep is bounded for all of them together. */
static void test_buffered_total(void **state)
{
    struct fixture f;
    tw_begin(&f, (struct http_server_opts){.max_buffered_total = 3000}, false, false);
    struct tc c[4];
    struct tc_answer a;
    static char piece[1000];
    memset(piece, 'b', sizeof(piece));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tw_connect(&f, &c[i]), 0);
        tc_send(&c[i], "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
        tc_send_n(&c[i], piece, sizeof(piece));
        tw_wait_for(&f.call.n_heads, i + 1);
        usleep(20000);
    }
    assert_int_equal(tc_read(&c[3], &a, false), 503);
    tc_close(&c[0]); /* an abort gives its share back */
    tw_wait_for(&f.call.n_aborts, 2);
    for (int i = 1; i < 3; i++) {
        tc_send(&c[i], "b");
        assert_int_equal(tc_read(&c[i], &a, false), 200);
        assert_string_equal(a.body, "PUT 1001");
        tc_sendf(&c[i], "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
        tc_send_n(&c[i], piece, sizeof(piece));
        assert_int_equal(tc_read(&c[i], &a, false), 200);
        tc_close(&c[i]);
    }
    tc_close(&c[3]);
    tw_end(&f);
}

/* Connections that never finish their handshake make way for customers. */
static void test_handshakes_make_way(void **state)
{
    struct fixture f;
    tw_begin(&f, (struct http_server_opts){.max_conns = 4}, false, true);
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = tc_connect(f.port);
        assert_true(fds[i] >= 0);
    }
    usleep(50000);
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(&f, &c), 0);
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
    for (int i = 0; i < 4; i++) {
        close(fds[i]);
    }
    tw_end(&f);
}

static uint64_t cpu_ns(void)
{
    struct timespec ts = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Without descriptors nobody can be let in; the server neither spins nor dies, and lets in
 * later who still waits. */
static void test_no_descriptors(void **state)
{
    struct fixture f;
    tw_begin(&f, (struct http_server_opts){0}, false, false);
    int fds[4096];
    size_t n = 0;
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (n < ARRAY_LEN(fds) && (fds[n] = dup(0)) >= 0) {
        n++;
    }
    assert_int_equal(errno, EMFILE);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(f.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof(to)), 0);
    uint64_t before = cpu_ns();
    usleep(400000);
    assert_true(cpu_ns() - before < MS(200));
    while (n > 0) {
        close(fds[--n]);
    }
    struct tc c = {.fd = client};
    struct tc_answer a;
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    tw_end(&f);
}

/* Many clients that leave at any moment, while other threads answer, resume and release: each
 * request ends once. */
struct churn {
    struct fixture *f;
    unsigned seed;
};

static void *churn_main(void *ctx)
{
    struct churn *ch = ctx;
    static const char *const paths[] = {"/x",     "/late?1", "/hold",
                                        "/slow",  "/echo",   "/stream/300000",
                                        "/early", "/break",  "/think"};
    char body[3000];
    memset(body, 'c', sizeof(body));
    for (int i = 0; i < 60; i++) {
        struct tc c;
        struct tc_answer a;
        if (tw_connect(ch->f, &c) < 0) {
            continue; /* the server is being stopped */
        }
        int n_requests = 1 + rand_r(&ch->seed) % 3;
        for (int k = 0; k < n_requests; k++) {
            tc_sendf(&c, "PUT %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n",
                     paths[(unsigned)rand_r(&ch->seed) % ARRAY_LEN(paths)], sizeof(body));
            tc_send_n(&c, body,
                      rand_r(&ch->seed) % 4 ? sizeof(body)
                                            : (size_t)rand_r(&ch->seed) % sizeof(body));
            if (rand_r(&ch->seed) % 2) {
                tc_read(&c, &a, false);
            } else {
                usleep((unsigned)rand_r(&ch->seed) % 30000);
            }
        }
        if (rand_r(&ch->seed) % 2) {
            tc_reset(&c);
        } else {
            tc_close(&c);
        }
    }
    return NULL;
}

static void case_churn(struct fixture *f)
{
    struct churn ch[6];
    pthread_t t[ARRAY_LEN(ch)];
    for (unsigned i = 0; i < ARRAY_LEN(ch); i++) {
        ch[i] = (struct churn){.f = f, .seed = i + 1};
        assert_int_equal(pthread_create(&t[i], NULL, churn_main, &ch[i]), 0);
    }
    usleep(1500000);
    http_server_drain(f->s, MS(1)); /* in the middle of it all */
    for (unsigned i = 0; i < ARRAY_LEN(ch); i++) {
        pthread_join(t[i], NULL);
    }
    assert_true(atomic_load(&f->call.n_ends) > 20);
}

static void test_churn(void **state)
{
    tw_each(case_churn,
            (struct http_server_opts){.body_timeout_ns = MS(300), .head_timeout_ns = MS(300)},
            true);
}

/* ---- the end, and certificates ---- */

struct drain {
    struct http_server *s;
    uint64_t timeout_ns;
    atomic_int is_over;
};

static void *drain_main(void *ctx)
{
    struct drain *d = ctx;
    http_server_drain(d->s, d->timeout_ns);
    atomic_store(&d->is_over, 1);
    return NULL;
}

static void case_drain(struct fixture *f)
{
    struct tc idle, busy, stuck;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &idle), 0);
    assert_int_equal(tw_connect(f, &busy), 0);
    assert_int_equal(tw_connect(f, &stuck), 0);
    tc_send(&idle, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&idle, &a, false), 200);
    tc_send(&busy, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1");
    tc_send(&stuck, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1");
    tw_wait_for(&f->call.n_heads, 3);
    struct drain d = {.s = f->s, .timeout_ns = MS(2500)};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, drain_main, &d), 0);
    assert_true(tc_is_closed(&idle, 2000));
    assert_true(tc_connect(f->port) < 0); /* nobody listens any more */
    tc_send(&busy, "2");
    assert_int_equal(tc_read(&busy, &a, false), 200);
    assert_string_equal(a.body, "PUT 2");
    assert_non_null(strstr(a.head, "Connection: close\r\n"));
    assert_int_equal(atomic_load(&d.is_over), 0);
    pthread_join(t, NULL);
    assert_true(tc_is_closed(&stuck, 2000));
    tc_close(&idle);
    tc_close(&busy);
    tc_close(&stuck);
}

static void test_drain(void **state)
{
    tw_each(case_drain, (struct http_server_opts){0}, false);
}

static void test_reload(void **state)
{
    struct fixture f;
    tw_begin(&f, (struct http_server_opts){0}, false, true);
    struct tc old, new;
    struct tc_answer a;
    char before[128], after[128], still[128];
    assert_int_equal(tw_connect(&f, &old), 0);
    tc_fingerprint(&old, before);
    tw_make_cert(&f);
    assert_int_equal(tls_server_reload(f.tls, NULL), 0);
    assert_int_equal(tw_connect(&f, &new), 0);
    tc_fingerprint(&new, after);
    tc_fingerprint(&old, still);
    assert_string_not_equal(before, after);
    assert_string_equal(before, still);
    tc_send(&old, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&old, &a, false), 200);
    tc_send(&new, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&new, &a, false), 200);
    tc_close(&new);
    /* A reload that fails changes nothing. */
    struct err err = ERR_INIT;
    assert_int_equal(file_write_atomic(f.key_path, STR("not a key\n"), 0600, NULL), 0);
    assert_true(tls_server_reload(f.tls, &err) < 0);
    assert_string_equal(err.name, "TlsFailed");
    assert_true(tls_server_not_after_ns(f.tls) > time_wall_ns() + 9 * 86400 * NS_PER_S);
    assert_int_equal(tw_connect(&f, &new), 0);
    tc_fingerprint(&new, still);
    assert_string_equal(after, still);
    tc_close(&new);
    tc_close(&old);
    tw_end(&f);
}

static void test_tls_versions(void **state)
{
    struct fixture f;
    tw_begin(&f, (struct http_server_opts){0}, false, true);
    struct tc c;
    struct tc_answer a;
    static const int versions[] = {12, 13};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        assert_int_equal(tc_open(&c, f.port, f.ca_path, versions[i]), 0);
        tc_send(&c, "GET /tls HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(tc_read(&c, &a, false), 200);
        assert_string_equal(a.body, "yes");
        tc_close(&c);
    }
    assert_true(tc_open(&c, f.port, f.ca_path, 11) < 0);
    /* Plain HTTP on the TLS port is turned away, and the server lives. */
    assert_int_equal(tc_open(&c, f.port, NULL, 0), 0);
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), -1);
    tc_close(&c);
    assert_int_equal(tw_connect(&f, &c), 0);
    tc_close(&c);
    tw_end(&f);
}

/* ---- listening ---- */

static void test_passed_descriptor(void **state)
{
    struct fixture f;
    tw_begin(&f, (struct http_server_opts){0}, false, false);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a4);
    assert_int_equal(bind(fd, (struct sockaddr *)&a4, n), 0);
    assert_int_equal(listen(fd, 10), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a4, &n), 0);
    assert_int_equal(http_server_listen_fd(f.s, fd, NULL), 0);
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tc_open(&c, ntohs(a4.sin_port), NULL, 0), 0);
    tc_send(&c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    tc_close(&c);
    /* A port in use names its holder: this very process. */
    struct err err = ERR_INIT;
    assert_int_equal(http_server_listen(f.s, "127.0.0.1", f.port, &err), -EADDRINUSE);
    assert_string_equal(err.name, "PortInUse");
    char pid[32];
    snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
    assert_non_null(strstr(err.msg, pid));
    tw_end(&f);
}

static void *stop_later(void *ctx)
{
    usleep(300000);
    loop_stop(ctx);
    return NULL;
}

static void *client_main(void *ctx)
{
    struct fixture *f = ctx;
    struct tc c;
    struct tc_answer a;
    assert_int_equal(tw_connect(f, &c), 0);
    tc_send(&c, "GET /late?own HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(tc_read(&c, &a, false), 200);
    assert_string_equal(a.body, "own");
    tc_send(&c, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1");
    usleep(600000);
    tc_send(&c, "2");
    assert_int_equal(tc_read(&c, &a, false), 200); /* the drain waited */
    tc_close(&c);
    return NULL;
}

/* On a loop of the caller's; the drain runs it after it was stopped. */
static void test_callers_loop(void **state)
{
    AUTO(loop_freep) struct loop *l = loop_new();
    struct fixture f;
    tw_begin(&f, (struct http_server_opts){.loop = l}, false, false);
    pthread_t client, stopper;
    assert_int_equal(pthread_create(&client, NULL, client_main, &f), 0);
    assert_int_equal(pthread_create(&stopper, NULL, stop_later, l), 0);
    loop_run(l);
    http_server_drain(f.s, 5 * NS_PER_S);
    pthread_join(client, NULL);
    pthread_join(stopper, NULL);
    tw_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlines),      cmocka_unit_test(test_per_address),
        cmocka_unit_test(test_eviction),       cmocka_unit_test(test_many),
        cmocka_unit_test(test_buffered_total), cmocka_unit_test(test_handshakes_make_way),
        cmocka_unit_test(test_no_descriptors), cmocka_unit_test(test_churn),
        cmocka_unit_test(test_drain),          cmocka_unit_test(test_reload),
        cmocka_unit_test(test_tls_versions),   cmocka_unit_test(test_passed_descriptor),
        cmocka_unit_test(test_callers_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
