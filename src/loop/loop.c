#include "loop/loop.h"
#include "base/time.h"
#include "base/vec.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MAX_READY 64
/* More messages than this in the queue mean that the loop hangs or a poster runs wild: stop
 * loudly. */
#define MAX_POSTS (1u << 22)

struct loop_fd {
    struct loop *l;
    int fd;
    uint32_t events;
    loop_fd_fn fn;
    void *ctx;
    bool is_dead;
    struct loop_fd *next_dead;
};

enum timer_state { TIMER_IDLE, TIMER_ARMED, TIMER_DUE };

struct loop_timer {
    struct loop *l;
    loop_fn fn;
    void *ctx;
    uint64_t deadline_ns;
    enum timer_state state;
    size_t idx;                     /* in the heap, when ARMED */
    struct loop_timer *prev, *next; /* in the list of due timers, when DUE */
};

struct loop_child {
    struct loop *l;
    pid_t pid;
    int pidfd;
    loop_child_fn fn;
    void *ctx;
    struct loop_fd *h;
    bool is_fired;
};

struct post {
    loop_fn fn;
    void *ctx;
};

typedef VEC(struct post) post_vec;

struct loop {
    int epfd, wake_fd, signal_fd;
    struct loop_fd *wake, *signal;
    bool is_running;
    atomic_bool is_stopped;
    uint64_t now_ns;
    struct loop_fd *dead; /* deleted handles: an event of this turn may still point to them */
    VEC(struct loop_timer *) heap;
    struct loop_timer due; /* head of a ring */
    loop_fn before_sleep;
    void *before_sleep_ctx;
    loop_fn on_stop_signal, on_reload_signal;
    void *signal_ctx;

    pthread_mutex_t mu;
    post_vec posts; /* GUARDED_BY(mu) */
    post_vec spare; /* the batch that runs; kept for its memory */
};

static void *xcalloc(size_t size)
{
    void *p = calloc(1, size);
    if (!p) {
        abort();
    }
    return p;
}

static void wake(struct loop *l)
{
    uint64_t one = 1;
    ssize_t n = write(l->wake_fd, &one, sizeof(one));
    (void)n; /* EAGAIN: the counter is full, so it is readable */
}

static void on_wake(void *ctx, uint32_t ready)
{
    struct loop *l = ctx;
    uint64_t n_wakes = 0;
    ssize_t n = read(l->wake_fd, &n_wakes, sizeof(n_wakes));
    (void)n; /* the messages are run at the end of the turn */
}

struct loop *loop_new(void)
{
    struct loop *l = xcalloc(sizeof(*l));
    l->signal_fd = -1;
    l->due.prev = l->due.next = &l->due;
    pthread_mutex_init(&l->mu, NULL);
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->epfd < 0 || l->wake_fd < 0 ||
        loop_fd_add(l, l->wake_fd, EPOLLIN, on_wake, l, &l->wake) < 0) {
        abort(); /* no descriptors at start: nothing can go on */
    }
    return l;
}

static void free_dead(struct loop *l)
{
    while (l->dead) {
        struct loop_fd *h = l->dead;
        l->dead = h->next_dead;
        free(h);
    }
}

/* One batch: what is posted meanwhile runs in the next turn, so that messages cannot starve
 * descriptors. */
static size_t run_posts(struct loop *l)
{
    pthread_mutex_lock(&l->mu);
    post_vec batch = l->posts;
    l->posts = l->spare;
    l->spare = (post_vec){0};
    pthread_mutex_unlock(&l->mu);
    for (size_t i = 0; i < batch.n; i++) {
        batch.v[i].fn(batch.v[i].ctx);
    }
    size_t n = batch.n;
    batch.n = 0;
    if (batch.cap > 4096) { /* a burst: give the memory back */
        vec_free(&batch);
    }
    l->spare = batch;
    return n;
}

void loop_free(struct loop *l)
{
    if (!l) {
        return;
    }
    assert(!l->is_running);
    while (run_posts(l) > 0) {}
    loop_fd_del(l->wake);
    loop_fd_del(l->signal);
    free_dead(l);
    for (size_t i = 0; i < l->heap.n; i++) { /* their owners may still free them */
        l->heap.v[i]->state = TIMER_IDLE;
    }
    vec_free(&l->heap);
    vec_free(&l->posts);
    vec_free(&l->spare);
    close(l->epfd);
    close(l->wake_fd);
    if (l->signal_fd >= 0) {
        close(l->signal_fd);
    }
    pthread_mutex_destroy(&l->mu);
    free(l);
}

uint64_t loop_now_ns(const struct loop *l)
{
    return l->is_running ? l->now_ns : time_mono_ns();
}

/* ---- descriptors ---- */

int loop_fd_add(struct loop *l, int fd, uint32_t events, loop_fd_fn fn, void *ctx,
                struct loop_fd **ret)
{
    struct loop_fd *h = xcalloc(sizeof(*h));
    *h = (struct loop_fd){.l = l, .fd = fd, .events = events, .fn = fn, .ctx = ctx};
    struct epoll_event ev = {.events = events, .data.ptr = h};
    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        int r = -errno;
        free(h);
        return r;
    }
    *ret = h;
    return 0;
}

void loop_fd_mod(struct loop_fd *h, uint32_t events)
{
    assert(!h->is_dead);
    if (h->events == events) {
        return;
    }
    struct epoll_event ev = {.events = events, .data.ptr = h};
    int r = epoll_ctl(h->l->epfd, EPOLL_CTL_MOD, h->fd, &ev);
    assert(r == 0); /* only a closed descriptor fails: the caller's bug */
    h->events = events;
}

void loop_fd_del(struct loop_fd *h)
{
    if (!h) {
        return;
    }
    assert(!h->is_dead);
    epoll_ctl(h->l->epfd, EPOLL_CTL_DEL, h->fd, NULL);
    h->is_dead = true;
    h->next_dead = h->l->dead;
    h->l->dead = h;
}

/* ---- timers: a binary heap by deadline, and a ring of those that fire in this turn ---- */

static void heap_set(struct loop *l, size_t i, struct loop_timer *t)
{
    l->heap.v[i] = t;
    t->idx = i;
}

static void heap_up(struct loop *l, size_t i)
{
    struct loop_timer *t = l->heap.v[i];
    while (i > 0) {
        size_t up = (i - 1) / 2;
        if (l->heap.v[up]->deadline_ns <= t->deadline_ns) {
            break;
        }
        heap_set(l, i, l->heap.v[up]);
        i = up;
    }
    heap_set(l, i, t);
}

static void heap_down(struct loop *l, size_t i)
{
    struct loop_timer *t = l->heap.v[i];
    while (true) {
        size_t kid = 2 * i + 1;
        if (kid >= l->heap.n) {
            break;
        }
        if (kid + 1 < l->heap.n &&
            l->heap.v[kid + 1]->deadline_ns < l->heap.v[kid]->deadline_ns) {
            kid++;
        }
        if (t->deadline_ns <= l->heap.v[kid]->deadline_ns) {
            break;
        }
        heap_set(l, i, l->heap.v[kid]);
        i = kid;
    }
    heap_set(l, i, t);
}

static void heap_remove(struct loop *l, struct loop_timer *t)
{
    size_t i = t->idx;
    struct loop_timer *last = l->heap.v[--l->heap.n];
    if (last != t) {
        heap_set(l, i, last);
        heap_up(l, i);
        heap_down(l, last->idx);
    }
    t->state = TIMER_IDLE;
}

struct loop_timer *loop_timer_new(struct loop *l, loop_fn fn, void *ctx)
{
    struct loop_timer *t = xcalloc(sizeof(*t));
    *t = (struct loop_timer){.l = l, .fn = fn, .ctx = ctx};
    return t;
}

void loop_timer_stop(struct loop_timer *t)
{
    if (t->state == TIMER_ARMED) {
        heap_remove(t->l, t);
    } else if (t->state == TIMER_DUE) {
        t->prev->next = t->next;
        t->next->prev = t->prev;
        t->state = TIMER_IDLE;
    }
}

void loop_timer_set(struct loop_timer *t, uint64_t deadline_mono_ns)
{
    loop_timer_stop(t);
    t->deadline_ns = deadline_mono_ns;
    t->state = TIMER_ARMED;
    vec_push(&t->l->heap, t);
    heap_set(t->l, t->l->heap.n - 1, t);
    heap_up(t->l, t->l->heap.n - 1);
}

void loop_timer_free(struct loop_timer *t)
{
    if (t) {
        loop_timer_stop(t);
        free(t);
    }
}

/* All due timers leave the heap first: one that re-arms itself in the past fires again in the
 * next turn, not in this one. */
static void run_timers(struct loop *l)
{
    while (l->heap.n > 0 && l->heap.v[0]->deadline_ns <= l->now_ns) {
        struct loop_timer *t = l->heap.v[0];
        heap_remove(l, t);
        t->state = TIMER_DUE;
        t->prev = l->due.prev;
        t->next = &l->due;
        l->due.prev->next = t;
        l->due.prev = t;
    }
    while (l->due.next != &l->due) {
        struct loop_timer *t = l->due.next;
        loop_timer_stop(t);
        t->fn(t->ctx);
    }
}

/* ---- messages ---- */

void loop_post(struct loop *l, loop_fn fn, void *ctx)
{
    pthread_mutex_lock(&l->mu);
    bool was_empty = l->posts.n == 0;
    if (l->posts.n >= MAX_POSTS) {
        abort();
    }
    vec_push(&l->posts, (struct post){fn, ctx});
    pthread_mutex_unlock(&l->mu);
    if (was_empty) {
        wake(l);
    }
}

void loop_stop(struct loop *l)
{
    atomic_store(&l->is_stopped, true);
    wake(l);
}

void loop_before_sleep(struct loop *l, loop_fn fn, void *ctx)
{
    l->before_sleep = fn;
    l->before_sleep_ctx = ctx;
}

/* ---- the turn ---- */

static int wait_ready(struct loop *l, struct epoll_event ev[MAX_READY])
{
    struct timespec ts = {0};
    struct timespec *timeout = NULL;
    if (l->heap.n > 0) {
        uint64_t now = time_mono_ns();
        uint64_t deadline = l->heap.v[0]->deadline_ns;
        uint64_t left = deadline > now ? deadline - now : 0;
        left = MIN(left, 3600 * NS_PER_S);
        ts = (struct timespec){.tv_sec = (time_t)(left / NS_PER_S),
                               .tv_nsec = (long)(left % NS_PER_S)};
        timeout = &ts;
    }
    int n = epoll_pwait2(l->epfd, ev, MAX_READY, timeout, NULL);
    if (n < 0 && (errno == ENOSYS ||
                  errno == EPERM)) { /* Linux < 5.11, or a filter that does not know the call */
        int ms = timeout ? (int)(ts.tv_sec * 1000 + (ts.tv_nsec + 999999) / 1000000) : -1;
        n = epoll_wait(l->epfd, ev, MAX_READY, ms);
    }
    if (n < 0 && errno != EINTR) {
        abort(); /* the epoll descriptor itself is broken */
    }
    return MAX(n, 0);
}

void loop_run(struct loop *l)
{
    assert(!l->is_running);
    l->is_running = true;
    l->now_ns = time_mono_ns();
    while (!atomic_load(&l->is_stopped)) {
        if (l->before_sleep) {
            l->before_sleep(l->before_sleep_ctx);
        }
        struct epoll_event ev[MAX_READY];
        int n = wait_ready(l, ev);
        l->now_ns = time_mono_ns();
        for (int i = 0; i < n; i++) {
            struct loop_fd *h = ev[i].data.ptr;
            uint32_t ready = ev[i].events & (h->events | EPOLLERR | EPOLLHUP);
            if (!h->is_dead && ready) {
                h->fn(h->ctx, ready);
            }
        }
        run_timers(l);
        run_posts(l);
        free_dead(l);
    }
    if (l->before_sleep) { /* what the last turn collected is not lost */
        l->before_sleep(l->before_sleep_ctx);
    }
    l->is_running = false;
    atomic_store(&l->is_stopped, false);
}

/* ---- signals ---- */

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
}

void loop_block_signals(void)
{
    sigset_t set;
    signal_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
}

static void on_signal(void *ctx, uint32_t ready)
{
    struct loop *l = ctx;
    struct signalfd_siginfo si;
    while (read(l->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo != SIGHUP) {
            l->on_stop_signal(l->signal_ctx);
        } else if (l->on_reload_signal) {
            l->on_reload_signal(l->signal_ctx);
        }
    }
}

int loop_signals(struct loop *l, loop_fn stop, loop_fn reload, void *ctx, struct err *err)
{
    assert(!l->signal && stop);
    sigset_t set;
    signal_set(&set);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        return fail(err, -errno, "SignalFd", "signalfd: %m");
    }
    l->on_stop_signal = stop;
    l->on_reload_signal = reload;
    l->signal_ctx = ctx;
    int r = loop_fd_add(l, fd, EPOLLIN, on_signal, l, &l->signal);
    if (r < 0) {
        close(fd);
        return fail(err, r, "SignalFd", "epoll: %s", strerror(-r));
    }
    l->signal_fd = fd;
    return 0;
}

/* ---- children ---- */

static void child_release(struct loop_child *c)
{
    loop_fd_del(c->h);
    close(c->pidfd);
    free(c);
}

static void on_child(void *ctx, uint32_t ready)
{
    struct loop_child *c = ctx;
    int status = 0;
    pid_t pid = 0;
    do {
        pid = waitpid(c->pid, &status, WNOHANG);
    } while (pid < 0 && errno == EINTR);
    if (pid == 0) {
        return; /* traced, or not yet a zombie: epoll tells again */
    }
    c->is_fired = true;
    c->fn(c->ctx, c->pid, pid > 0 ? status : -1);
    child_release(c);
}

int loop_child_watch(struct loop *l, pid_t pid, loop_child_fn fn, void *ctx,
                     struct loop_child **ret, struct err *err)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by itself */
    if (pidfd < 0) {
        return fail(err, -errno, "NoProcess", "pidfd_open(%d): %m", (int)pid);
    }
    struct loop_child *c = xcalloc(sizeof(*c));
    *c = (struct loop_child){.l = l, .pid = pid, .pidfd = pidfd, .fn = fn, .ctx = ctx};
    int r = loop_fd_add(l, pidfd, EPOLLIN, on_child, c, &c->h);
    if (r < 0) {
        close(pidfd);
        free(c);
        return fail(err, r, "NoProcess", "epoll of process %d: %s", (int)pid, strerror(-r));
    }
    *ret = c;
    return 0;
}

void loop_child_unwatch(struct loop_child *c)
{
    if (c && !c->is_fired) {
        child_release(c);
    }
}
