#include "base/time.h"
#include "loop/loop.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    struct loop *l;
    int log[64];
    int n;
    struct loop_timer *t[8];
    struct loop_fd *h[4];
    int fds[4];
    struct loop_child *child;
    int wait_status;
    pid_t pid;
};

static void note(struct world *w, int x)
{
    assert_true(w->n < 64);
    w->log[w->n++] = x;
}

static void stop(void *ctx)
{
    loop_stop(((struct world *)ctx)->l);
}

struct timer_ctx {
    struct world *w;
    int id;
};

static void timer_note(void *ctx)
{
    struct timer_ctx *c = ctx;
    note(c->w, c->id);
}

static void timers_fire_in_order_of_deadline(void **state)
{
    struct world w = {.l = loop_new()};
    struct timer_ctx c[100];
    struct loop_timer *t[100];
    uint64_t now = loop_now_ns(w.l);
    int n_want = 0;
    for (int i = 0; i < 100; i++) {
        c[i] = (struct timer_ctx){&w, (i * 37) % 100};
        t[i] = loop_timer_new(w.l, timer_note, &c[i]);
        loop_timer_set(t[i], now + (uint64_t)c[i].id * 10000);
    }
    for (int i = 0; i < 100; i++) { /* stop, move and keep some: the heap must stay a heap */
        if (c[i].id % 3 == 0) {
            loop_timer_stop(t[i]);
        } else if (c[i].id % 3 == 1) {
            loop_timer_free(t[i]);
            t[i] = NULL;
        } else {
            loop_timer_set(t[i], now + (uint64_t)c[i].id * 20000);
            n_want++;
        }
    }
    struct loop_timer *end = loop_timer_new(w.l, stop, &w);
    loop_timer_set(end, now + 5 * NS_PER_MS);
    loop_run(w.l);
    assert_true(loop_now_ns(w.l) >= now + 5 * NS_PER_MS);
    assert_int_equal(w.n, n_want);
    for (int i = 1; i < w.n; i++) {
        assert_true(w.log[i] > w.log[i - 1]);
    }
    for (int i = 0; i < 100; i++) {
        loop_timer_free(t[i]);
    }
    loop_timer_free(end);
    loop_free(w.l);
}

static void rearm_in_the_past(void *ctx)
{
    struct world *w = ctx;
    note(w, 1);
    if (w->n < 5) {
        loop_timer_set(w->t[0], 0);
    }
}

static void note_two_and_stop(void *ctx)
{
    struct world *w = ctx;
    note(w, 2);
    loop_timer_free(w->t[2]); /* due in the same turn: must not fire */
    w->t[2] = NULL;
    loop_stop(w->l);
}

static void must_not_run(void *ctx)
{
    fail_msg("called");
}

static void a_timer_that_rearms_in_the_past_does_not_starve_others(void **state)
{
    struct world w = {.l = loop_new()};
    w.t[0] = loop_timer_new(w.l, rearm_in_the_past, &w);
    w.t[1] = loop_timer_new(w.l, note_two_and_stop, &w);
    w.t[2] = loop_timer_new(w.l, must_not_run, &w);
    loop_timer_set(w.t[0], 0);
    loop_timer_set(w.t[1], 1);
    loop_timer_set(w.t[2], 2);
    loop_run(w.l);
    assert_int_equal(w.n, 2);
    assert_int_equal(w.log[0], 1);
    assert_int_equal(w.log[1], 2);
    loop_timer_free(w.t[0]);
    loop_timer_free(w.t[1]);
    loop_free(w.l);
}

/* Both descriptors are ready; whichever is called first removes the other. */
static void on_either(void *ctx, uint32_t ready)
{
    struct world *w = ctx;
    note(w, 1);
    loop_fd_del(w->h[0]);
    loop_fd_del(w->h[1]);
    loop_stop(w->l);
}

static void no_call_back_after_removal_in_the_same_turn(void **state)
{
    struct world w = {.l = loop_new()};
    assert_int_equal(pipe(w.fds), 0);
    assert_int_equal(pipe(w.fds + 2), 0);
    assert_int_equal(write(w.fds[1], "x", 1), 1);
    assert_int_equal(write(w.fds[3], "x", 1), 1);
    assert_int_equal(loop_fd_add(w.l, w.fds[0], EPOLLIN, on_either, &w, &w.h[0]), 0);
    assert_int_equal(loop_fd_add(w.l, w.fds[2], EPOLLIN, on_either, &w, &w.h[1]), 0);
    loop_run(w.l);
    assert_int_equal(w.n, 1);
    for (int i = 0; i < 4; i++) {
        close(w.fds[i]);
    }
    loop_free(w.l);
}

static void on_writable(void *ctx, uint32_t ready)
{
    struct world *w = ctx;
    note(w, (int)ready);
    loop_fd_mod(w->h[0], 0); /* level-triggered: would come for ever */
    struct loop_timer *t = w->t[0];
    loop_timer_set(t, loop_now_ns(w->l) + 2 * NS_PER_MS);
}

static void events_can_be_changed(void **state)
{
    struct world w = {.l = loop_new()};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, w.fds), 0);
    assert_int_equal(loop_fd_add(w.l, w.fds[0], EPOLLOUT, on_writable, &w, &w.h[0]), 0);
    struct loop_fd *other = NULL;
    assert_int_equal(loop_fd_add(w.l, w.fds[0], EPOLLIN, on_writable, &w, &other), -EEXIST);
    assert_null(other);
    w.t[0] = loop_timer_new(w.l, stop, &w);
    loop_run(w.l);
    assert_int_equal(w.n, 1);
    assert_int_equal(w.log[0], EPOLLOUT);
    loop_fd_del(w.h[0]);
    loop_timer_free(w.t[0]);
    close(w.fds[0]);
    close(w.fds[1]);
    loop_free(w.l);
}

#define N_POSTERS 4
#define N_POSTS   5000

struct posted {
    struct poster *from;
    int seq;
};
struct poster {
    struct loop *l;
    atomic_int *n_left;
    int next;
    struct posted posts[N_POSTS];
};

static void on_posted(void *ctx)
{
    struct posted *p = ctx;
    assert_int_equal(p->seq, p->from->next);
    p->from->next++;
    if (atomic_fetch_sub(p->from->n_left, 1) == 1) {
        loop_stop(p->from->l);
    }
}

static void *poster_main(void *arg)
{
    struct poster *p = arg;
    for (int i = 0; i < N_POSTS; i++) {
        p->posts[i] = (struct posted){p, i};
        loop_post(p->l, on_posted, &p->posts[i]);
    }
    return NULL;
}

static void messages_of_each_poster_arrive_in_order(void **state)
{
    static struct poster posters[N_POSTERS];
    struct loop *l = loop_new();
    atomic_int n_left = N_POSTERS * N_POSTS;
    pthread_t th[N_POSTERS];
    for (int i = 0; i < N_POSTERS; i++) {
        posters[i].l = l;
        posters[i].n_left = &n_left;
        posters[i].next = 0;
        assert_int_equal(pthread_create(&th[i], NULL, poster_main, &posters[i]), 0);
    }
    loop_run(l);
    for (int i = 0; i < N_POSTERS; i++) {
        pthread_join(th[i], NULL);
        assert_int_equal(posters[i].next, N_POSTS);
    }
    loop_free(l);
}

static void note_seven(void *ctx)
{
    note(ctx, 7);
}

static void messages_in_the_queue_run_when_the_loop_is_freed(void **state)
{
    struct world w = {.l = loop_new()};
    loop_post(w.l, note_seven, &w);
    loop_free(w.l);
    assert_int_equal(w.n, 1);
}

static void post_again(void *ctx)
{
    struct world *w = ctx;
    note(w, 2);
    if (w->n < 9) {
        loop_post(w->l, post_again, w);
    } else {
        loop_stop(w->l);
    }
}

static void before_sleep_note(void *ctx)
{
    note(ctx, 3);
}

static void before_sleep_runs_every_turn(void **state)
{
    struct world w = {.l = loop_new()};
    loop_before_sleep(w.l, before_sleep_note, &w);
    loop_post(w.l, post_again, &w);
    loop_run(w.l);
    for (int i = 0; i < w.n;
         i++) { /* 3 2 3 2 ... 3: never two messages of a chain without a sleep between */
        assert_int_equal(w.log[i], i % 2 ? 2 : 3);
    }
    assert_true(w.n >= 9);
    assert_int_equal(w.log[w.n - 1], 3);
    loop_free(w.l);
}

static void a_stop_before_the_run_ends_it_at_once(void **state)
{
    struct world w = {.l = loop_new()};
    loop_stop(w.l);
    loop_run(w.l);
    loop_post(w.l, stop, &w); /* and the loop can run again */
    loop_run(w.l);
    loop_free(w.l);
}

static void note_reload(void *ctx)
{
    struct world *w = ctx;
    note(w, SIGHUP);
    kill(getpid(), SIGTERM);
}

static void note_stop(void *ctx)
{
    struct world *w = ctx;
    note(w, SIGTERM);
    loop_stop(w->l);
}

static void signals_reach_the_loop(void **state)
{
    sigset_t old;
    pthread_sigmask(SIG_SETMASK, NULL, &old);
    loop_block_signals();
    struct world w = {.l = loop_new()};
    assert_int_equal(loop_signals(w.l, note_stop, note_reload, &w, NULL), 0);
    kill(getpid(), SIGHUP);
    loop_run(w.l);
    assert_int_equal(w.n, 2);
    assert_int_equal(w.log[0], SIGHUP);
    assert_int_equal(w.log[1], SIGTERM);
    loop_free(w.l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void on_exit_of_child(void *ctx, pid_t pid, int wait_status)
{
    struct world *w = ctx;
    w->pid = pid;
    w->wait_status = wait_status;
    loop_child_unwatch(w->child); /* allowed inside */
    w->child = NULL;
    loop_stop(w->l);
}

static void children_are_reaped(void **state)
{
    struct {
        const char *name;
        int exit_code, sig;
    } cases[] = {{"exit 0", 0, 0}, {"exit 3", 3, 0}, {"killed", 0, SIGKILL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world w = {.l = loop_new()};
        pid_t pid = fork();
        if (pid == 0) {
            if (cases[i].sig) {
                pause();
            }
            _exit(cases[i].exit_code);
        }
        assert_true(pid > 0);
        assert_int_equal(loop_child_watch(w.l, pid, on_exit_of_child, &w, &w.child, NULL), 0);
        if (cases[i].sig) {
            kill(pid, cases[i].sig);
        }
        loop_run(w.l);
        assert_int_equal(w.pid, pid);
        if (cases[i].sig) {
            assert_true(WIFSIGNALED(w.wait_status) && WTERMSIG(w.wait_status) == cases[i].sig);
        } else {
            assert_true(WIFEXITED(w.wait_status) &&
                        WEXITSTATUS(w.wait_status) == cases[i].exit_code);
        }
        assert_int_equal(waitpid(pid, NULL, WNOHANG), -1); /* no zombie is left */
        struct err err = ERR_INIT;
        assert_int_equal(loop_child_watch(w.l, pid, on_exit_of_child, &w, &w.child, &err),
                         -ESRCH);
        assert_string_equal(err.name, "NoProcess");
        loop_free(w.l);
    }
}

/* A process that is not our child (adopted after a restart): the end is seen, the status is
 * not. */
static void the_end_of_a_stranger_is_seen(void **state)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t middle = fork();
    if (middle == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            pause();
            _exit(0);
        }
        ssize_t n = write(fds[1], &grandchild, sizeof(grandchild));
        _exit(n == (ssize_t)sizeof(grandchild) ? 0 : 1);
    }
    pid_t stranger = 0;
    assert_int_equal(read(fds[0], &stranger, sizeof(stranger)), sizeof(stranger));
    assert_int_equal(waitpid(middle, NULL, 0), middle);
    struct world w = {.l = loop_new()};
    assert_int_equal(loop_child_watch(w.l, stranger, on_exit_of_child, &w, &w.child, NULL), 0);
    kill(stranger, SIGKILL);
    loop_run(w.l);
    assert_int_equal(w.pid, stranger);
    assert_int_equal(w.wait_status, -1);
    loop_free(w.l);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order_of_deadline),
        cmocka_unit_test(a_timer_that_rearms_in_the_past_does_not_starve_others),
        cmocka_unit_test(no_call_back_after_removal_in_the_same_turn),
        cmocka_unit_test(events_can_be_changed),
        cmocka_unit_test(messages_of_each_poster_arrive_in_order),
        cmocka_unit_test(messages_in_the_queue_run_when_the_loop_is_freed),
        cmocka_unit_test(before_sleep_runs_every_turn),
        cmocka_unit_test(a_stop_before_the_run_ends_it_at_once),
        cmocka_unit_test(signals_reach_the_loop),
        cmocka_unit_test(children_are_reaped),
        cmocka_unit_test(the_end_of_a_stranger_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
