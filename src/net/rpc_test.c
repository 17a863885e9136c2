#include "base/buf.h"
#include "base/num.h"
#include "net/rpc.h"
#include "net/rpc_int.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "loop/pool.h"
#include <cmocka.h>

#define CALL_NS (20 * NS_PER_S)

/* A server on a loop thread of its own, in a temporary folder. */
struct world {
    char dir[64], path[96];
    struct loop *l;
    struct rpc_server *s;
    struct pool *pool;
    pthread_t thread;
    atomic_int n_requests, n_closed;
    pthread_mutex_t mu;
    struct rpc_conn *watcher; /* GUARDED_BY(mu): the peer that called "watch" */
    struct rpc_req *held[RPC_MAX_INFLIGHT + 10];
    atomic_int n_held;
    uint64_t stall_ns; /* 0 = as usual */
};

struct slow {
    struct rpc_req *req;
    struct buf b;
};

static void slow_work(void *ctx)
{
    struct slow *w = ctx;
    rpc_reply(w->req, buf_str(&w->b), NULL, 0); /* on a pool thread */
}

static void slow_done(void *ctx)
{
    struct slow *w = ctx;
    buf_done(&w->b);
    free(w);
}

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct world *w = ctx;
    atomic_fetch_add(&w->n_requests, 1);
    if (str_eqc(method, "echo")) {
        rpc_reply(req, payload, fds, n_fds);
    } else if (str_eqc(method, "slow")) {
        struct slow *s = calloc(1, sizeof(*s));
        s->req = req;
        buf_init(&s->b, RPC_MAX_SIZE);
        buf_add(&s->b, payload);
        assert_int_equal(pool_submit(w->pool, slow_work, w->l, slow_done, s), 0);
    } else if (str_eqc(method, "watch")) {
        pthread_mutex_lock(&w->mu);
        rpc_conn_unref(w->watcher);
        w->watcher = rpc_conn_ref(rpc_req_conn(req));
        pthread_mutex_unlock(&w->mu);
        rpc_reply(req, STR("watching"), NULL, 0);
        for (uint32_t i = 0; i < 100; i++) {
            assert_int_equal(rpc_push(w->watcher, i, payload), 0);
        }
    } else if (str_eqc(method, "fail")) {
        struct err err = ERR_INIT;
        (fail)(&err, -EPERM, "AccessDenied", "uid %u may not",
               (unsigned)rpc_req_peer(req)->uid);
        err_hint(&err, "ask the operator");
        rpc_reply_err(req, &err);
    } else if (str_eqc(method, "huge")) {
        char *p = calloc(1, RPC_MAX_SIZE);
        rpc_reply(req, str_n(p, RPC_MAX_SIZE), NULL, 0);
        free(p);
    } else if (str_eqc(method, "hold")) {
        w->held[atomic_load(&w->n_held)] = req;
        atomic_fetch_add(&w->n_held, 1);
    }
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
}

static void on_close(void *ctx, struct rpc_conn *conn)
{
    struct world *w = ctx;
    atomic_fetch_add(&w->n_closed, 1);
    pthread_mutex_lock(&w->mu);
    if (w->watcher == conn) {
        w->watcher = rpc_conn_unref(conn);
    }
    pthread_mutex_unlock(&w->mu);
}

static void *loop_main(void *arg)
{
    loop_run(((struct world *)arg)->l);
    return NULL;
}

static void server_start(struct world *w)
{
    static const struct rpc_server_ops ops = {on_request, on_close};
    w->l = loop_new();
    w->pool = pool_new("test", 3, 4096);
    struct err err = ERR_INIT;
    if (rpc_server_new(w->l, w->path, 0600, &ops, w, &w->s, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    if (w->stall_ns) {
        rpc_server_set_stall(w->s, w->stall_ns, w->stall_ns / 4);
    }
    assert_int_equal(pthread_create(&w->thread, NULL, loop_main, w), 0);
}

static void server_stop(struct world *w)
{
    loop_stop(w->l);
    pthread_join(w->thread, NULL);
    rpc_server_free(w->s);
    pool_free(w->pool);
    loop_free(w->l);
}

static int setup(void **state)
{
    signal(SIGPIPE, SIG_IGN);
    struct world *w = calloc(1, sizeof(*w));
    pthread_mutex_init(&w->mu, NULL);
    snprintf(w->dir, sizeof(w->dir), "/tmp/rpc-test-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof(w->path), "%s/s.sock", w->dir);
    server_start(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    if (w->s) {
        server_stop(w);
    }
    assert_int_equal(access(w->path, F_OK), -1); /* the socket file went with the server */
    assert_int_equal(rmdir(w->dir), 0);
    pthread_mutex_destroy(&w->mu);
    free(w);
    return 0;
}

static int count_fds(void)
{
    int n = 0;
    for (int i = 0; i < 1024; i++) {
        n += fcntl(i, F_GETFD) >= 0;
    }
    return n;
}

/* The server, another thread of this process, closes its descriptors a moment after it
 * answered. */
static void assert_fds_become(int want)
{
    for (int i = 0; i < 1000 && count_fds() != want; i++) {
        poll(NULL, 0, 5);
    }
    assert_int_equal(count_fds(), want);
}

static bool eventually(bool (*is_so)(void *), void *ctx)
{
    for (int i = 0; i < 5000; i++) {
        if (is_so(ctx)) {
            return true;
        }
        poll(NULL, 0, 2);
    }
    return false;
}

static void payloads_of_all_sizes_come_back(void **state)
{
    struct world *w = *state;
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);
    const size_t sizes[] = {0, 1, 65535, 65536, 1 << 20, RPC_MAX_SIZE - 7 - 4};
    char *p = malloc(RPC_MAX_SIZE);
    for (size_t i = 0; i < RPC_MAX_SIZE; i++) {
        p[i] = (char)(i * 7 % 251);
    }
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct rpc_reply r = {0};
        assert_int_equal(
            rpc_call(c, STR("echo"), str_n(p, sizes[i]), NULL, 0, CALL_NS, &r, NULL), 0);
        assert_int_equal(r.n, sizes[i]);
        assert_memory_equal(r.payload, p, sizes[i]);
        rpc_reply_done(&r);
    }
    struct err err = ERR_INIT;
    assert_int_equal(
        rpc_call(c, STR("echo"), str_n(p, RPC_MAX_SIZE - 10), NULL, 0, CALL_NS, NULL, &err),
        -E2BIG);
    assert_string_equal(err.name, "TooLarge");
    err_clear(&err);
    assert_int_equal(rpc_call(c, STR("huge"), STR(""), NULL, 0, CALL_NS, NULL, &err), -E2BIG);
    assert_string_equal(err.name, "TooLarge");
    free(p);
    rpc_client_free(c);
}

static void errors_arrive_unchanged(void **state)
{
    struct world *w = *state;
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);
    struct err err = ERR_INIT;
    struct rpc_reply r = {.n = 77};
    assert_int_equal(rpc_call(c, STR("fail"), STR(""), NULL, 0, CALL_NS, &r, &err), -EPERM);
    assert_int_equal(err.code, -EPERM);
    assert_string_equal(err.name, "AccessDenied");
    assert_string_equal(err.hint, "ask the operator");
    char want[64];
    snprintf(want, sizeof(want), "uid %u may not", (unsigned)geteuid());
    assert_string_equal(err.msg, want);
    assert_int_equal(r.n, 77); /* untouched */
    assert_int_equal(rpc_call(c, STR("fail"), STR(""), NULL, 0, CALL_NS, NULL, NULL), -EPERM);
    rpc_client_free(c);
}

static ino_t inode(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return st.st_ino;
}

static void descriptors_go_both_ways(void **state)
{
    struct world *w = *state;
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);
    assert_int_equal(rpc_call(c, STR("echo"), STR(""), NULL, 0, CALL_NS, NULL, NULL), 0);
    int before = count_fds();
    int fds[RPC_MAX_FDS];
    for (size_t i = 0; i < RPC_MAX_FDS; i++) {
        int p[2];
        assert_int_equal(pipe(p), 0);
        fds[i] = p[0];
        close(p[1]);
    }
    struct rpc_reply r = {0};
    assert_int_equal(rpc_call(c, STR("echo"), STR("x"), fds, RPC_MAX_FDS, CALL_NS, &r, NULL),
                     0);
    assert_int_equal(r.n_fds, RPC_MAX_FDS);
    for (size_t i = 0; i < RPC_MAX_FDS; i++) {
        assert_int_equal(inode(r.fds[i]), inode(fds[i]));
        assert_true(fcntl(r.fds[i], F_GETFD) & FD_CLOEXEC);
    }
    rpc_reply_done(&r);
    /* A caller who does not want the answer loses no descriptor either. */
    assert_int_equal(rpc_call(c, STR("echo"), STR("x"), fds, 3, CALL_NS, NULL, NULL), 0);
    for (size_t i = 0; i < RPC_MAX_FDS; i++) {
        close(fds[i]);
    }
    assert_int_equal(rpc_call(c, STR("echo"), STR("x"), fds, 1, CALL_NS, NULL, NULL), -EBADF);
    assert_fds_become(before);
    rpc_client_free(c);
}

/* ---- many clients at once ---- */

#define N_CLIENTS 50
#define N_CALLS   200

struct stress {
    struct world *w;
    int id;
    int n_ok;
};

static void *stress_main(void *arg)
{
    struct stress *st = arg;
    struct rpc_client *c = rpc_client_new(st->w->path, NULL, NULL);
    for (int i = 0; i < N_CALLS; i++) {
        int p[2];
        if (pipe2(p, O_CLOEXEC) < 0) {
            break;
        }
        char text[3000];
        int n = snprintf(text, sizeof(text), "client %d call %d %0*d", st->id, i, i * 10, i);
        size_t n_fds = (size_t)(i % 3);
        struct rpc_reply r = {0};
        struct str method = i % 2 ? STR("slow") : STR("echo");
        int rc = rpc_call(c, method, str_n(text, (size_t)n), p, n_fds, CALL_NS, &r, NULL);
        bool is_ok = rc == 0 && str_eq(str_n(r.payload, r.n), str_n(text, (size_t)n)) &&
                     r.n_fds == (i % 2 ? 0 : n_fds) &&
                     (r.n_fds == 0 || inode(r.fds[0]) == inode(p[0]));
        st->n_ok += is_ok;
        rpc_reply_done(&r);
        close(p[0]);
        close(p[1]);
    }
    rpc_client_free(c);
    return NULL;
}

static void fifty_clients_with_descriptors(void **state)
{
    struct world *w = *state;
    int before = count_fds();
    static struct stress st[N_CLIENTS];
    pthread_t th[N_CLIENTS];
    for (int i = 0; i < N_CLIENTS; i++) {
        st[i] = (struct stress){w, i, 0};
        assert_int_equal(pthread_create(&th[i], NULL, stress_main, &st[i]), 0);
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        pthread_join(th[i], NULL);
        assert_int_equal(st[i].n_ok, N_CALLS);
    }
    assert_int_equal(atomic_load(&w->n_requests), N_CLIENTS * N_CALLS);
    assert_fds_become(before);
    assert_int_equal(atomic_load(&w->n_closed), N_CLIENTS);
}

struct shared {
    struct rpc_client *c;
    int id, n_ok;
};

static void *shared_main(void *arg)
{
    struct shared *s = arg;
    for (int i = 0; i < N_CALLS; i++) {
        char text[64];
        int n = snprintf(text, sizeof(text), "%d/%d", s->id, i);
        struct rpc_reply r = {0};
        if (rpc_call(s->c, i % 5 ? STR("echo") : STR("slow"), str_n(text, (size_t)n), NULL, 0,
                     CALL_NS, &r, NULL) == 0) {
            s->n_ok += str_eq(str_n(r.payload, r.n), str_n(text, (size_t)n));
            rpc_reply_done(&r);
        }
    }
    return NULL;
}

static void one_client_serves_many_threads(void **state)
{
    struct world *w = *state;
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);
    struct shared s[20];
    pthread_t th[20];
    for (int i = 0; i < 20; i++) {
        s[i] = (struct shared){c, i, 0};
        assert_int_equal(pthread_create(&th[i], NULL, shared_main, &s[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        pthread_join(th[i], NULL);
        assert_int_equal(s[i].n_ok, N_CALLS);
    }
    rpc_client_free(c);
}

/* ---- events ---- */

struct events {
    struct rpc_client *c;
    atomic_int n, n_bad, n_nested_ok, n_reconnects;
};

static void on_event(void *ctx, uint32_t stream, struct str payload)
{
    struct events *e = ctx;
    int n = atomic_fetch_add(&e->n, 1);
    if ((uint32_t)(n % 100) != stream || !str_eqc(payload, "tick")) {
        atomic_fetch_add(&e->n_bad, 1);
    }
    if (stream % 10 == 3) { /* a call in the middle of the events: the order must stay */
        struct rpc_reply r = {0};
        if (rpc_call(e->c, STR("slow"), STR("nested"), NULL, 0, CALL_NS, &r, NULL) == 0) {
            atomic_fetch_add(&e->n_nested_ok, str_eqc(str_n(r.payload, r.n), "nested"));
            rpc_reply_done(&r);
        }
    }
}

static void on_reconnect(void *ctx)
{
    struct events *e = ctx;
    int r = rpc_call(e->c, STR("watch"), STR("tick"), NULL, 0, CALL_NS, NULL, NULL);
    atomic_fetch_add(&e->n_reconnects, r == 0);
}

static bool has_100(void *ctx)
{
    return atomic_load(&((struct events *)ctx)->n) >= 100;
}

static bool has_200(void *ctx)
{
    return atomic_load(&((struct events *)ctx)->n) >= 200;
}

static void events_keep_their_order_and_watches_come_back(void **state)
{
    struct world *w = *state;
    struct events e = {0};
    static const struct rpc_client_ops ops = {on_event, on_reconnect};
    e.c = rpc_client_new(w->path, &ops, &e);
    struct rpc_reply r = {0};
    assert_int_equal(rpc_call(e.c, STR("watch"), STR("tick"), NULL, 0, CALL_NS, &r, NULL), 0);
    assert_string_equal(r.payload, "watching");
    rpc_reply_done(&r);
    assert_true(eventually(has_100, &e));
    server_stop(w);
    poll(NULL, 0, 60);
    server_start(w);
    assert_true(eventually(has_200, &e)); /* without any call of ours */
    assert_int_equal(atomic_load(&e.n_reconnects), 1);
    assert_int_equal(atomic_load(&e.n_bad), 0);
    assert_int_equal(atomic_load(&e.n_nested_ok), 20);
    rpc_client_free(e.c);
}

/* ---- a far side that is not there, dies, or is slow ---- */

static void nobody_there_is_unavailable_after_the_deadline(void **state)
{
    struct world *w = *state;
    struct {
        const char *name;
        char path[160];
        int want;
        const char *want_name;
    } cases[] = {{"absent", "", -ENOTCONN, "Unavailable"},
                 {"too long", "", -EACCES, "AccessDenied"}};
    snprintf(cases[0].path, sizeof(cases[0].path), "%s/none.sock", w->dir);
    memset(cases[1].path, 'x', 150);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rpc_client *c = rpc_client_new(cases[i].path, NULL, NULL);
        struct err err = ERR_INIT;
        uint64_t t0 = time_mono_ns();
        assert_int_equal(
            rpc_call(c, STR("echo"), STR(""), NULL, 0, 100 * NS_PER_MS, NULL, &err),
            cases[i].want);
        uint64_t took = time_mono_ns() - t0;
        assert_true(took < 10 * NS_PER_S);
        assert_true(cases[i].want != -ENOTCONN || took >= 100 * NS_PER_MS);
        assert_string_equal(err.name, cases[i].want_name);
        rpc_client_free(c);
    }
}

static void *start_later(void *arg)
{
    poll(NULL, 0, 150);
    server_start(arg);
    return NULL;
}

static void a_call_waits_for_a_server_that_starts_later(void **state)
{
    struct world *w = *state;
    server_stop(w);
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);
    pthread_t th;
    assert_int_equal(pthread_create(&th, NULL, start_later, w), 0);
    assert_int_equal(rpc_call(c, STR("echo"), STR(""), NULL, 0, CALL_NS, NULL, NULL), 0);
    pthread_join(th, NULL);
    rpc_client_free(c);
}

static bool is_one_held(void *ctx)
{
    return atomic_load(&((struct world *)ctx)->n_held) == 1;
}

static void no_answer_is_a_timeout_and_a_late_one_is_dropped(void **state)
{
    struct world *w = *state;
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);
    struct err err = ERR_INIT;
    assert_int_equal(rpc_call(c, STR("hold"), STR(""), NULL, 0, 50 * NS_PER_MS, NULL, &err),
                     -ETIMEDOUT);
    assert_string_equal(err.name, "Timeout");
    assert_true(eventually(is_one_held, w));
    int before = count_fds();
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rpc_reply(w->held[0], STR("late"), &fd, 1);
    close(fd);
    struct rpc_reply r = {0};
    assert_int_equal(rpc_call(c, STR("echo"), STR("next"), NULL, 0, CALL_NS, &r, NULL), 0);
    assert_string_equal(r.payload, "next");
    rpc_reply_done(&r);
    assert_fds_become(before);
    rpc_client_free(c);
}

struct caller {
    struct world *w;
    int id, n_ok, n_interrupted, n_other;
    char last[200];
    atomic_bool *is_over;
};

static void *call_until_over(void *arg)
{
    struct caller *k = arg;
    struct rpc_client *c = rpc_client_new(k->w->path, NULL, NULL);
    while (!atomic_load(k->is_over)) {
        struct rpc_reply r = {0};
        struct err err = ERR_INIT;
        int rc = rpc_call(c, STR("echo"), STR("payload"), NULL, 0, CALL_NS, &r, &err);
        if (rc == 0 && str_eqc(str_n(r.payload, r.n), "payload")) {
            k->n_ok++;
        } else if (rc == -ECONNRESET && str_eqc(str_c(err.name), "Interrupted")) {
            k->n_interrupted++;
        } else {
            k->n_other++;
            snprintf(k->last, sizeof(k->last), "%d %.150s", rc, err.msg);
        }
        if (rc == 0) {
            rpc_reply_done(&r);
        }
    }
    rpc_client_free(c);
    return NULL;
}

/* A server process, killed without warning while clients call: every call ends as done or
 * "Interrupted", and they find its successor. */
static pid_t fork_server(struct world *w)
{
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        static const struct rpc_server_ops ops = {on_request, on_close};
        w->l = loop_new();
        if (rpc_server_new(w->l, w->path, 0600, &ops, w, &w->s, NULL) < 0) {
            _exit(1);
        }
        ssize_t n = write(p[1], "x", 1);
        (void)n;
        loop_run(w->l);
        _exit(0);
    }
    close(p[1]);
    char x = 0;
    assert_int_equal(read(p[0], &x, 1), 1);
    close(p[0]);
    return pid;
}

static void kill_of_the_server_under_load(void **state)
{
    struct world *w = *state;
    server_stop(w);
    w->s = NULL;
    pid_t pid = fork_server(w);
    atomic_bool is_over = false;
    struct caller k[10];
    pthread_t th[10];
    for (int i = 0; i < 10; i++) {
        k[i] = (struct caller){.w = w, .id = i, .is_over = &is_over};
        assert_int_equal(pthread_create(&th[i], NULL, call_until_over, &k[i]), 0);
    }
    for (int round = 0; round < 5; round++) {
        poll(NULL, 0, 50);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        pid = fork_server(w);
    }
    poll(NULL, 0, 50);
    atomic_store(&is_over, true);
    int n_ok = 0;
    int n_interrupted = 0;
    for (int i = 0; i < 10; i++) {
        pthread_join(th[i], NULL);
        if (k[i].n_other) {
            fail_msg("client %d: %s", i, k[i].last);
        }
        assert_true(k[i].n_interrupted <= 5);
        n_ok += k[i].n_ok;
        n_interrupted += k[i].n_interrupted;
    }
    assert_true(n_ok > 100);
    print_message("  %d calls answered, %d interrupted\n", n_ok, n_interrupted);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(w->path);
}

static int raw_connect(struct world *w)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un addr;
    assert_int_equal(rpc_addr(w->path, &addr, NULL), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

/* True when the far side closed within the time; what it sent before is dropped. */
static bool is_closed_within(int fd, int ms)
{
    uint64_t end = time_mono_ns() + (uint64_t)ms * NS_PER_MS;
    while (time_mono_ns() < end) {
        struct pollfd pf = {fd, POLLIN, 0};
        if (poll(&pf, 1, 10) > 0) {
            char junk[4096];
            if (recv(fd, junk, sizeof(junk), MSG_DONTWAIT) <= 0) {
                return true;
            }
        }
    }
    return false;
}

static bool is_watched(void *ctx)
{
    struct world *w = ctx;
    pthread_mutex_lock(&w->mu);
    bool is = w->watcher != NULL;
    pthread_mutex_unlock(&w->mu);
    return is;
}

static bool is_one_closed(void *ctx)
{
    return atomic_load(&((struct world *)ctx)->n_closed) == 1;
}

static void a_reader_that_does_not_read_is_disconnected(void **state)
{
    struct world *w = *state;
    int fd = raw_connect(w);
    struct rpc_msg *m = rpc_msg_new(RPC_REQUEST, 1, STR("watch"), STR("tick"));
    assert_int_equal(rpc_msg_send(m, fd), 1);
    rpc_msg_free(m);
    assert_true(eventually(is_watched, w));
    pthread_mutex_lock(&w->mu);
    struct rpc_conn *c = rpc_conn_ref(w->watcher);
    pthread_mutex_unlock(&w->mu);
    char *p = calloc(1, 1 << 20);
    int r = 0;
    int n = 0;
    for (; n < 100 && r == 0; n++) {
        r = rpc_push(c, 1, str_n(p, 1 << 20));
    }
    assert_int_equal(r, -ENOBUFS);
    assert_in_range(n, 30, 36); /* RPC_MAX_QUEUED and what the socket holds */
    assert_true(eventually(is_one_closed, w));
    assert_int_equal(rpc_push(c, 1, STR("x")), -EPIPE);
    rpc_conn_unref(c);
    free(p);
    close(fd);
}

/* A little that waits for ever is as bad as much that waits: half a frame would block the
 * peer's other answers for good. */
static void a_reader_that_makes_no_progress_is_disconnected(void **state)
{
    struct world *w = *state;
    server_stop(w);
    w->stall_ns = 100 * NS_PER_MS;
    server_start(w);
    int fd = raw_connect(w);
    char *p = calloc(1, 1 << 20);
    struct rpc_msg *m = rpc_msg_new(RPC_REQUEST, 1, STR("slow"), str_n(p, 1 << 20));
    for (int r = 0; r == 0;) {
        r = rpc_msg_send(m, fd);
        assert_true(r >= 0);
    }
    rpc_msg_free(m);
    free(p);
    struct rpc_client *c =
        rpc_client_new(w->path, NULL, NULL); /* one that is only quiet stays */
    assert_int_equal(rpc_call(c, STR("echo"), STR(""), NULL, 0, CALL_NS, NULL, NULL), 0);
    assert_true(eventually(is_one_closed, w));
    poll(NULL, 0, 200);
    assert_int_equal(atomic_load(&w->n_closed), 1);
    close(fd);
    rpc_client_free(c);
}

static void more_peers_than_the_limit_are_refused(void **state)
{
    struct world *w = *state;
    static int fds[RPC_MAX_CONNS];
    for (int i = 0; i < RPC_MAX_CONNS; i++) {
        fds[i] = raw_connect(w);
    }
    int extra = raw_connect(w);
    assert_true(is_closed_within(extra, 5000));
    close(extra);
    assert_false(is_closed_within(fds[0], 20));
    for (int i = 0; i < RPC_MAX_CONNS; i++) {
        close(fds[i]);
    }
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL); /* there is room again */
    int r = -1;
    for (int i = 0; i < 100 && r < 0; i++) {
        r = rpc_call(c, STR("echo"), STR(""), NULL, 0, CALL_NS, NULL, NULL);
    }
    assert_int_equal(r, 0);
    rpc_client_free(c);
}

/* Descriptors run out in the server's process: it waits instead of spinning, and serves again
 * when there are some. */
static void a_server_without_descriptors_recovers(void **state)
{
    struct world *w = *state;
    server_stop(w);
    w->s = NULL;
    int top = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(top);
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)top + 12;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    pid_t pid = fork_server(w);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    int fds[30];
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = raw_connect(w);
    }
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);
    assert_int_equal(rpc_call(c, STR("echo"), STR(""), NULL, 0, 100 * NS_PER_MS, NULL, NULL),
                     -ETIMEDOUT);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        close(fds[i]);
    }
    assert_int_equal(rpc_call(c, STR("echo"), STR(""), NULL, 0, CALL_NS, NULL, NULL), 0);
    rpc_client_free(c);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(w->path);
}

static bool all_held(void *ctx)
{
    return atomic_load(&((struct world *)ctx)->n_held) >= RPC_MAX_INFLIGHT;
}

static bool all_served(void *ctx)
{
    return atomic_load(&((struct world *)ctx)->n_requests) == RPC_MAX_INFLIGHT + 5;
}

static void a_peer_with_too_many_open_requests_waits(void **state)
{
    struct world *w = *state;
    int fd = raw_connect(w);
    for (uint32_t i = 0; i < RPC_MAX_INFLIGHT + 5; i++) {
        struct rpc_msg *m = rpc_msg_new(RPC_REQUEST, i, STR("hold"), STR(""));
        assert_int_equal(rpc_msg_send(m, fd), 1);
        rpc_msg_free(m);
    }
    assert_true(eventually(all_held, w));
    poll(NULL, 0, 50);
    assert_int_equal(atomic_load(&w->n_requests), RPC_MAX_INFLIGHT); /* the rest is not read */
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);      /* others are served */
    assert_int_equal(rpc_call(c, STR("echo"), STR(""), NULL, 0, CALL_NS, NULL, NULL), 0);
    atomic_fetch_sub(&w->n_requests, 1);
    rpc_client_free(c);
    for (int i = 0; i < RPC_MAX_INFLIGHT; i++) {
        rpc_reply(w->held[i], STR(""), NULL, 0);
    }
    assert_true(eventually(all_served, w));
    close(fd);
    for (int i = RPC_MAX_INFLIGHT; i < RPC_MAX_INFLIGHT + 5; i++) {
        rpc_reply(w->held[i], STR(""), NULL, 0); /* to a peer that left: fine */
    }
}

/* Answers that come after the server is gone go nowhere and break nothing. */
static void answers_outlive_the_server(void **state)
{
    struct world *w = *state;
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);
    assert_int_equal(rpc_call(c, STR("hold"), STR(""), NULL, 0, 20 * NS_PER_MS, NULL, NULL),
                     -ETIMEDOUT);
    server_stop(w);
    rpc_reply(w->held[0], STR("x"), NULL, 0);
    rpc_client_free(c);
    server_start(w);
}

/* ---- garbage ---- */

static void garbage_is_disconnected_and_its_descriptors_closed(void **state)
{
    struct world *w = *state;
    struct {
        const char *name;
        struct str bytes;
        size_t n_fds;
    } cases[] = {
        {"http", STR("GET / HTTP/1.1\r\n\r\n"), 0},
        {"too small", STR("\x06\0\0\0"), 0},
        {"too large", STR("\x01\0\x80\0"), 0},
        {"kind answer", STR("\x08\0\0\0\x01\0\0\0\x02\0\x01x"), 0},
        {"kind 0", STR("\x08\0\0\0\x01\0\0\0\0\0\x01x"), 0},
        {"no name", STR("\x07\0\0\0\x01\0\0\0\x01\0\0"), 0},
        {"name past the end", STR("\x08\0\0\0\x01\0\0\0\x01\0\x02x"), 0},
        {"17 descriptors", STR("\x08\0\0\0\x01\0\0\0\x01\x11\x01x"), 0},
        {"descriptors promised and not sent", STR("\x08\0\0\0\x01\0\0\0\x01\x02\x01x"), 1},
        {"descriptors sent and not promised",
         STR("\x0b\0\0\0\x01\0\0\0\x01\0\x04"
             "echo"),
         3},
        {"descriptors with garbage", STR("????????????"), 16},
    };
    int before = count_fds();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = raw_connect(w);
        struct rpc_msg *m = rpc_msg_new(RPC_REQUEST, 1, STR("x"), cases[i].bytes);
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        for (size_t k = 0; k < cases[i].n_fds; k++) {
            m->fds[k] = fcntl(null, F_DUPFD_CLOEXEC, 3);
        }
        close(null);
        m->n_fds = cases[i].n_fds;
        m->n = cases[i].bytes.n; /* the message is only the carrier */
        memcpy(m->bytes, cases[i].bytes.p, m->n);
        assert_int_equal(rpc_msg_send(m, fd), 1);
        rpc_msg_free(m);
        if (!is_closed_within(fd, 5000)) {
            fail_msg("still open: %s", cases[i].name);
        }
        close(fd);
    }
    assert_fds_become(before);
}

static void an_old_socket_is_replaced_a_living_one_not(void **state)
{
    struct world *w = *state;
    static const struct rpc_server_ops ops = {on_request, on_close};
    struct loop *l = loop_new();
    struct rpc_server *s = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(rpc_server_new(l, w->path, 0600, &ops, w, &s, &err), -EADDRINUSE);
    assert_string_equal(err.name, "AddressInUse");
    struct stat st;
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* A file of a dead server. */
    char path[128];
    snprintf(path, sizeof(path), "%s/old.sock", w->dir);
    struct sockaddr_un addr;
    assert_int_equal(rpc_addr(path, &addr, NULL), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    assert_int_equal(rpc_server_new(l, path, 0660, &ops, w, &s, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    /* A successor's file is left alone. */
    unlink(path);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    rpc_server_free(s);
    assert_int_equal(unlink(path), 0);
    loop_free(l);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(payloads_of_all_sizes_come_back),
        TEST(errors_arrive_unchanged),
        TEST(descriptors_go_both_ways),
        TEST(fifty_clients_with_descriptors),
        TEST(one_client_serves_many_threads),
        TEST(events_keep_their_order_and_watches_come_back),
        TEST(nobody_there_is_unavailable_after_the_deadline),
        TEST(a_call_waits_for_a_server_that_starts_later),
        TEST(no_answer_is_a_timeout_and_a_late_one_is_dropped),
        TEST(kill_of_the_server_under_load),
        TEST(a_reader_that_does_not_read_is_disconnected),
        TEST(a_reader_that_makes_no_progress_is_disconnected),
        TEST(more_peers_than_the_limit_are_refused),
        TEST(a_server_without_descriptors_recovers),
        TEST(a_peer_with_too_many_open_requests_waits),
        TEST(answers_outlive_the_server),
        TEST(garbage_is_disconnected_and_its_descriptors_closed),
        TEST(an_old_socket_is_replaced_a_living_one_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
