#include "net/rpc_world.h"
#include "net/rpc_int.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

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

void world_on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
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

void world_on_close(void *ctx, struct rpc_conn *conn)
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

void world_start(struct world *w)
{
    static const struct rpc_server_ops ops = {world_on_request, world_on_close};
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

void world_stop(struct world *w)
{
    loop_stop(w->l);
    pthread_join(w->thread, NULL);
    rpc_server_free(w->s);
    pool_free(w->pool);
    loop_free(w->l);
}

int world_setup(void **state)
{
    signal(SIGPIPE, SIG_IGN);
    struct world *w = calloc(1, sizeof(*w));
    pthread_mutex_init(&w->mu, NULL);
    snprintf(w->dir, sizeof(w->dir), "/tmp/rpc-test-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof(w->path), "%s/s.sock", w->dir);
    world_start(w);
    *state = w;
    return 0;
}

int world_teardown(void **state)
{
    struct world *w = *state;
    if (w->s) {
        world_stop(w);
    }
    assert_int_equal(access(w->path, F_OK), -1); /* the socket file went with the server */
    assert_int_equal(rmdir(w->dir), 0);
    pthread_mutex_destroy(&w->mu);
    free(w);
    return 0;
}

int count_fds(void)
{
    int n = 0;
    for (int i = 0; i < 1024; i++) {
        n += fcntl(i, F_GETFD) >= 0;
    }
    return n;
}

/* The server, another thread of this process, closes its descriptors a moment after it
 * answered. */
void assert_fds_become(int want)
{
    for (int i = 0; i < 1000 && count_fds() != want; i++) {
        poll(NULL, 0, 5);
    }
    assert_int_equal(count_fds(), want);
}

bool eventually(bool (*is_so)(void *), void *ctx)
{
    for (int i = 0; i < 5000; i++) {
        if (is_so(ctx)) {
            return true;
        }
        poll(NULL, 0, 2);
    }
    return false;
}
ino_t inode_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return st.st_ino;
}

/* A server process, killed without warning while clients call: every call ends as done or
 * "Interrupted", and they find its successor. */
pid_t world_fork_server(struct world *w)
{
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        static const struct rpc_server_ops ops = {world_on_request, world_on_close};
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

int raw_connect(struct world *w)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un addr;
    assert_int_equal(rpc_addr(w->path, &addr, NULL), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

bool is_closed_within(int fd, int ms)
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

bool is_one_closed(void *ctx)
{
    return atomic_load(&((struct world *)ctx)->n_closed) == 1;
}
