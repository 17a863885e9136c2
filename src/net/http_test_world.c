#include "net/http_test_world.h"

#include "base/file.h"
#include "base/num.h"
#include "base/time.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- the handler under test: paths say what it does ---- */

struct user {
    struct call *call;
    struct http_req *req;
    size_t n_body, n_sent, n_want;
    bool is_answered;
    atomic_bool is_held;
};

static void answer(struct http_req *req, int status, struct str body)
{
    struct http_header h = {STR("X-Test"), STR("a\r\nInjected: yes")};
    http_respond(req, &(struct http_answer){
                          .status = status, .headers = &h, .n_headers = 1, .body = body});
}

static void *answer_later(void *ctx)
{
    struct http_req *req = ctx;
    usleep(20000);
    struct str body = str_trim(http_req_head(req)->query);
    answer(req, 200, str_is_set(body) ? body : STR("late"));
    return NULL;
}

static void *resume_later(void *ctx)
{
    usleep(30000);
    http_req_resume(ctx);
    return NULL;
}

static void *release_later(void *ctx)
{
    struct user *u = ctx;
    usleep(50000);
    atomic_store(&u->is_held, false);
    http_req_release(u->req);
    return NULL;
}

static void in_thread(void *(*fn)(void *), void *ctx)
{
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, fn, ctx), 0);
    pthread_detach(t);
}

/* Every second piece is given, not copied. */
static size_t send_piece(struct http_req *req, struct str bytes, bool is_given, bool is_last)
{
    if (!is_given) {
        return http_body_more(req, bytes, is_last);
    }
    char *p = NULL;
    struct chunkq_block *unused = http_piece_new(bytes.n, &p);
    http_piece_free(unused);
    struct chunkq_block *piece = http_piece_new(bytes.n + 100, &p); /* need not be filled */
    if (bytes.n) {
        memcpy(p, bytes.p, bytes.n);
    }
    return http_body_give(req, piece, bytes.n, is_last);
}

/* Sends 'n_want' bytes in pieces of 10,000, no more than 64 KiB ahead of the peer. */
static void pump(struct http_req *req, void *ctx)
{
    struct user *u = ctx;
    static char piece[10000];
    memset(piece, 's', sizeof(piece));
    for (;;) {
        size_t n = MIN(sizeof(piece), u->n_want - u->n_sent);
        u->n_sent += n;
        bool is_last = u->n_sent == u->n_want;
        bool is_given = (u->n_sent / sizeof(piece)) % 2;
        size_t queued = send_piece(req, str_n(piece, n), is_given, is_last);
        if (is_last) {
            return;
        }
        if (queued > 65536) {
            assert_true(queued < 65536 + 2 * sizeof(piece));
            http_on_drain(req, pump, 32768);
            return;
        }
    }
}

static void on_head(void *ctx, struct http_req *req, const struct http_head *head,
                    void **ret_user)
{
    struct call *call = ctx;
    atomic_fetch_add(&call->n_heads, 1);
    struct user *u = calloc(1, sizeof(*u));
    assert_non_null(u);
    u->call = call;
    u->req = req;
    *ret_user = u;
    if (str_eqc(head->path, "/collect")) {
        http_req_collect(req);
    } else if (str_eqc(head->path, "/refuse")) {
        u->is_answered = true;
        answer(req, 403, STR("no\n"));
    } else if (str_eqc(head->path, "/think")) {
        http_req_pause(req);
        in_thread(resume_later, req);
    } else if (str_eqc(head->path, "/think-no")) {
        u->is_answered = true;
        http_req_pause(req);
        in_thread(answer_later, req);
    } else if (str_eqc(head->path, "/echo")) {
        u->is_answered = true;
        http_respond(req, &(struct http_answer){.status = 200,
                                                .is_stream = true,
                                                .stream_size = head->content_length});
    }
}

static enum http_flow on_body(struct http_req *req, void *user, struct str chunk)
{
    struct user *u = user;
    u->n_body += chunk.n;
    atomic_fetch_add(&u->call->n_body, chunk.n);
    const struct http_head *h = http_req_head(req);
    if (str_eqc(h->path, "/echo")) {
        http_body_more(req, chunk, false);
    } else if (str_eqc(h->path, "/slow")) {
        in_thread(resume_later, req);
        return HTTP_PAUSE;
    } else if (str_eqc(h->path, "/early") && !u->is_answered) {
        u->is_answered = true;
        answer(req, 409, STR("enough\n"));
    }
    return HTTP_MORE;
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    struct user *u = user;
    atomic_fetch_add(&u->call->n_ends, 1);
    const struct http_head *h = http_req_head(req);
    uint64_t n = 0;
    if (str_eqc(h->path, "/uid")) {
        char text[32];
        uid_t uid = 0;
        int r = http_req_peer_uid(req, &uid);
        snprintf(text, sizeof(text), "%d %u", r, (unsigned)uid);
        answer(req, 200, str_c(text));
        return;
    }
    if (str_eqc(h->path, "/echo")) {
        http_body_more(req, STR(""), true);
    } else if (str_eqc(h->path, "/late")) {
        in_thread(answer_later, req);
    } else if (str_has_prefixc(h->path, "/stream/") &&
               num_u64(str_skip(h->path, 8), UINT32_MAX, &n) == 0) {
        u->n_want = n;
        bool is_sized = str_is_set(h->query);
        http_respond(req, &(struct http_answer){.status = 200,
                                                .is_stream = true,
                                                .stream_size = is_sized ? (int64_t)n : -1});
        pump(req, u);
    } else if (str_eqc(h->path, "/short")) {
        http_respond(
            req, &(struct http_answer){.status = 200, .is_stream = true, .stream_size = 100});
        http_body_more(req, STR("ten bytes."), true);
    } else if (str_eqc(h->path, "/long")) {
        http_respond(req,
                     &(struct http_answer){.status = 200, .is_stream = true, .stream_size = 5});
        http_body_more(req, STR("ten bytes."), true);
    } else if (str_eqc(h->path, "/break")) {
        http_respond(
            req, &(struct http_answer){.status = 200, .is_stream = true, .stream_size = -1});
        http_body_more(req, STR("begun"), false);
        http_abort(req);
    } else if (str_eqc(h->path, "/hold")) {
        atomic_store(&u->is_held, true);
        http_req_hold(req);
        in_thread(release_later, u);
        answer(req, 200, STR("held"));
    } else if (str_eqc(h->path, "/empty")) {
        answer(req, 204, STR_NONE);
    } else if (str_eqc(h->path, "/collect")) {
        answer(req, 200, body);
    } else if (str_eqc(h->path, "/tls")) {
        answer(req, 200, h->is_tls ? STR("yes") : STR("no"));
    } else {
        char text[64];
        int k = snprintf(text, sizeof(text), "%.*s %zu", STR_ARG(h->method),
                         u->call->is_streaming ? u->n_body : body.n);
        answer(req, 200, str_n(text, (size_t)k));
    }
}

static void on_abort(struct http_req *req, void *user)
{
    struct user *u = user;
    atomic_fetch_add(&u->call->n_aborts, 1);
    if (str_eqc(http_req_head(req)->path, "/echo")) {
        http_abort(
            req); /* it began an answer on the head: without this it would owe the rest for ever */
    }
}

static void on_done(struct http_req *req, void *user)
{
    struct user *u = user;
    assert_false(atomic_load(&u->is_held));
    atomic_fetch_add(&u->call->n_dones, 1);
    free(u);
}

/* ---- a server for each test ---- */

void tw_make_cert(struct fixture *f)
{
    struct str names[] = {STR("localhost"), STR("127.0.0.1")};
    struct x509_pair p = {0};
    assert_int_equal(x509_issue(&f->ca, names, ARRAY_LEN(names), 10, &p, NULL), 0);
    assert_int_equal(x509_save(&p, f->cert_path, f->key_path, NULL), 0);
    x509_pair_done(&p);
}

void tw_begin(struct fixture *f, struct http_server_opts o, bool is_streaming, bool is_tls)
{
    *f = (struct fixture){.call.is_streaming = is_streaming};
    struct err err = ERR_INIT;
    if (is_tls) {
        snprintf(f->dir, sizeof(f->dir), "/tmp/http-test-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        snprintf(f->ca_path, sizeof(f->ca_path), "%s/ca.pem", f->dir);
        snprintf(f->cert_path, sizeof(f->cert_path), "%s/server.pem", f->dir);
        snprintf(f->key_path, sizeof(f->key_path), "%s/server.key", f->dir);
        assert_int_equal(x509_make_ca(STR("test authority"), 30, &f->ca, NULL), 0);
        assert_int_equal(file_write_atomic(f->ca_path, str_c(f->ca.cert_pem), 0644, NULL), 0);
        tw_make_cert(f);
        assert_int_equal(tls_server_new(f->cert_path, f->key_path, &f->tls, &err), 0);
    }
    o.tls = f->tls;
    o.n_loops = o.loop ? 0 : 2;
    o.name = "test";
    struct http_handler h = {.on_head = on_head,
                             .on_body = is_streaming ? on_body : NULL,
                             .on_end = on_end,
                             .on_abort = on_abort,
                             .on_done = on_done};
    assert_int_equal(http_server_new(&o, &h, &f->call, &f->s, &err), 0);
    assert_int_equal(http_server_listen(f->s, "127.0.0.1", 0, &err), 0);
    f->port = http_server_port(f->s);
    assert_true(f->port > 0);
}

/* Every request that was begun is done, whatever happened. */
void tw_end(struct fixture *f)
{
    http_server_free(f->s);
    assert_int_equal(atomic_load(&f->call.n_heads), atomic_load(&f->call.n_dones));
    tls_server_free(f->tls);
    x509_pair_done(&f->ca);
    if (f->dir[0]) {
        unlink(f->ca_path);
        unlink(f->cert_path);
        unlink(f->key_path);
        rmdir(f->dir);
    }
}

void tw_wait_for(atomic_int *v, int want)
{
    for (int i = 0; i < 500 && atomic_load(v) != want; i++) {
        usleep(10000);
    }
    assert_int_equal(atomic_load(v), want);
}

int tw_connect(struct fixture *f, struct tc *c)
{
    return tc_open(c, f->port, f->tls ? f->ca_path : NULL, 0);
}

void tw_each(void (*fn)(struct fixture *f), struct http_server_opts o, bool is_streaming)
{
    for (int is_tls = 0; is_tls < 2; is_tls++) {
        struct fixture f;
        tw_begin(&f, o, is_streaming, is_tls);
        fn(&f);
        tw_end(&f);
    }
}
