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
        assert_int_equal(inode_of(r.fds[i]), inode_of(fds[i]));
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
                     (r.n_fds == 0 || inode_of(r.fds[0]) == inode_of(p[0]));
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
    world_stop(w);
    poll(NULL, 0, 60);
    world_start(w);
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
    world_start(arg);
    return NULL;
}

static void a_call_waits_for_a_server_that_starts_later(void **state)
{
    struct world *w = *state;
    world_stop(w);
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

static void kill_of_the_server_under_load(void **state)
{
    struct world *w = *state;
    world_stop(w);
    w->s = NULL;
    pid_t pid = world_fork_server(w);
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
        pid = world_fork_server(w);
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
