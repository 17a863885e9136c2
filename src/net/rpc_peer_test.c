/* Peers that are slow, silent, too many, or send garbage. */
#include "net/rpc_int.h"
#include "net/rpc_world.h"
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

static bool is_watched(void *ctx)
{
    struct world *w = ctx;
    pthread_mutex_lock(&w->mu);
    bool is = w->watcher != NULL;
    pthread_mutex_unlock(&w->mu);
    return is;
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
    world_stop(w);
    w->stall_ns = 100 * NS_PER_MS;
    world_start(w);
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

/* A user of the machine who holds all the places he gets leaves room for us. */
static void one_user_cannot_take_all_places(void **state)
{
    struct world *w = *state;
    if (geteuid() != 0) {
        return; /* needs a second user */
    }
    assert_int_equal(chmod(w->dir, 0711), 0);
    assert_int_equal(chmod(w->path, 0666), 0);
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char is_ok = (char)(setgid(4711) == 0 && setuid(4711) == 0);
        static int fds[RPC_MAX_USER];
        for (int i = 0; is_ok && i < RPC_MAX_USER; i++) {
            fds[i] = raw_connect(w);
        }
        int extra = raw_connect(w);
        is_ok = (char)(is_ok && is_closed_within(extra, 5000) && !is_closed_within(fds[0], 20));
        ssize_t n = write(p[1], &is_ok, 1);
        (void)n;
        pause(); /* keeps its places */
    }
    char is_ok = 0;
    assert_int_equal(read(p[0], &is_ok, 1), 1);
    assert_int_equal(is_ok, 1);
    struct rpc_client *c = rpc_client_new(w->path, NULL, NULL);
    assert_int_equal(rpc_call(c, STR("echo"), STR(""), NULL, 0, CALL_NS, NULL, NULL), 0);
    rpc_client_free(c);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(p[0]);
    close(p[1]);
}

/* Descriptors run out in the server's process: it waits instead of spinning, and serves again
 * when there are some. */
static void a_server_without_descriptors_recovers(void **state)
{
    struct world *w = *state;
    world_stop(w);
    w->s = NULL;
    int top = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(top);
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)top + 12;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    pid_t pid = world_fork_server(w);
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
    world_stop(w);
    rpc_reply(w->held[0], STR("x"), NULL, 0);
    rpc_client_free(c);
    world_start(w);
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
    static const struct rpc_server_ops ops = {world_on_request, world_on_close};
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_reader_that_does_not_read_is_disconnected),
        TEST(a_reader_that_makes_no_progress_is_disconnected),
        TEST(more_peers_than_the_limit_are_refused),
        TEST(one_user_cannot_take_all_places),
        TEST(a_server_without_descriptors_recovers),
        TEST(a_peer_with_too_many_open_requests_waits),
        TEST(answers_outlive_the_server),
        TEST(garbage_is_disconnected_and_its_descriptors_closed),
        TEST(an_old_socket_is_replaced_a_living_one_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
