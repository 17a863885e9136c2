#include "viperblock/proc.h"
#include "base/log.h"
#include "base/time.h"
#include "viperblock/proc_int.h"
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

LOG_MODULE("viperblock.proc");

#define WELCOME_NS     (5 * NS_PER_S)
#define GRACE_NS       (2 * NS_PER_S)
#define MAX_PER_TURN   64u
#define SEND_STEP_MS   20
#define GONE_MAX_TRIES 5u

struct proc *proc_ref(struct proc *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

void proc_unref(struct proc *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1) {
        return;
    }
    assert(!p->io && !p->watch && !p->grace && p->waiters.n == 0);
    int fds[] = {p->pidfd, p->sock, p->slots};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    vec_free(&p->waiters);
    free(p);
}

const char *proc_name(const struct proc *p)
{
    return p->name;
}

pid_t proc_pid(const struct proc *p)
{
    return p->pid;
}

unsigned proc_n_disks(const struct proc *p)
{
    return p->n_disks;
}

uint64_t proc_start_ns(const struct proc *p)
{
    return p->start_ns;
}

bool proc_is_up(struct proc *p)
{
    pthread_mutex_lock(&p->ps->mu);
    bool is_up = p->is_up;
    pthread_mutex_unlock(&p->ps->mu);
    return is_up;
}

void proc_end(struct proc *p)
{
    if (p->pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
    }
}

/* --- the loop's thread
 * ---------------------------------------------------------------------- */

static void fail_waiters(struct proc *p)
{
    for (size_t i = 0; i < p->waiters.n; i++) {
        p->waiters.v[i]->is_done = true;
    }
    p->waiters.n = 0;
    pthread_cond_broadcast(&p->ps->cond);
}

static void forget_handles(struct proc *p)
{
    loop_fd_del(p->io);
    loop_child_unwatch(p->watch);
    loop_timer_free(p->grace);
    p->io = NULL;
    p->watch = NULL;
    p->grace = NULL;
}

/* The process has ended and its connection too. */
static void gone(struct proc *p)
{
    struct procs *ps = p->ps;
    bool was_listed = false;
    forget_handles(p);
    pthread_mutex_lock(&ps->mu);
    for (size_t i = 0; i < ps->v.n; i++) {
        if (ps->v.v[i] == p) {
            vec_remove(&ps->v, i);
            was_listed = true;
            break;
        }
    }
    p->is_up = false;
    p->is_exited = true;
    fail_waiters(p);
    bool is_expected = p->is_quitting;
    int status = p->wait_status;
    pthread_mutex_unlock(&ps->mu);
    if (was_listed && !is_expected && !atomic_load(&ps->is_stopping)) {
        log_warn("data.gone", KV_CSTR("process", p->name), KV_I64("pid", p->pid),
                 KV_I64("status", status));
        ps->o.ops->on_gone(ps->o.ctx, p, status);
    }
    if (was_listed) {
        proc_unref(p);
    }
}

static void on_exit_of(void *ctx, pid_t pid, int wait_status)
{
    struct proc *p = ctx;
    (void)pid;
    p->watch = NULL;
    pthread_mutex_lock(&p->ps->mu);
    p->wait_status = wait_status;
    pthread_mutex_unlock(&p->ps->mu);
    gone(p);
}

/* It closed its connection and lives on: that is no process of ours any more. */
static void on_grace(void *ctx)
{
    struct proc *p = ctx;
    log_warn("data.ended", KV_CSTR("process", p->name),
             KV_CSTR("why", "it gave up its connection"));
    proc_end(p);
    if (!p->watch) {
        gone(p);
    }
}

static void disconnected(struct proc *p)
{
    loop_fd_del(p->io);
    p->io = NULL;
    pthread_mutex_lock(&p->ps->mu);
    p->is_up = false;
    fail_waiters(p);
    pthread_mutex_unlock(&p->ps->mu);
    if (!p->watch) {
        gone(p);
        return;
    }
    loop_timer_set(p->grace, time_mono_ns() + GRACE_NS);
}

/* Gives a RESULT to whoever waits for it. */
static void take_result(struct proc *p, const union ctl_msg *m, int *fds, size_t n_fds)
{
    bool is_taken = false;
    pthread_mutex_lock(&p->ps->mu);
    for (size_t i = 0; i < p->waiters.n && !is_taken; i++) {
        struct waiter *w = p->waiters.v[i];
        if (w->seq == m->h.seq) {
            w->answer->result = m->result;
            w->answer->n_fds = n_fds;
            for (size_t k = 0; k < n_fds; k++) {
                w->answer->fds[k] = fds[k];
            }
            w->is_done = is_taken = true;
            vec_remove(&p->waiters, i);
            pthread_cond_broadcast(&p->ps->cond);
        }
    }
    pthread_mutex_unlock(&p->ps->mu);
    for (size_t k = 0; k < n_fds && !is_taken; k++) {
        close(fds[k]);
    }
}

static void on_readable(void *ctx, uint32_t ready)
{
    struct proc *p = ctx;
    (void)ready;
    for (unsigned i = 0; i < MAX_PER_TURN; i++) {
        union ctl_msg m;
        int fds[CTL_MAX_FDS];
        size_t n_fds = 0;
        int rc = ctl_recv(p->sock, true, &m, fds, &n_fds);
        if (rc == -EAGAIN) {
            return;
        }
        if (rc != 0) {
            if (rc == -EPROTO) {
                log_error("data.broke_protocol", KV_CSTR("process", p->name));
                proc_end(p);
            }
            disconnected(p);
            return;
        }
        if (m.h.op == CTL_RESULT) {
            take_result(p, &m, fds, n_fds);
            continue;
        }
        for (size_t k = 0; k < n_fds; k++) {
            close(fds[k]);
        }
        p->ps->o.ops->on_message(p->ps->o.ctx, p, &m);
    }
}

static void start_watching(void *ctx)
{
    struct proc *p = ctx;
    struct procs *ps = p->ps;
    struct err err = ERR_INIT;
    if (atomic_load(&ps->is_stopping)) {
        proc_unref(p);
        return;
    }
    p->grace = loop_timer_new(ps->o.loop, on_grace, p);
    int rc = loop_child_watch(ps->o.loop, p->pid, on_exit_of, p, &p->watch, &err);
    rc = rc != 0 ? rc : loop_fd_add(ps->o.loop, p->sock, EPOLLIN, on_readable, p, &p->io);
    if (rc != 0) {
        proc_end(p);
        gone(p);
    }
    proc_unref(p);
}

/* --- meeting
 * -------------------------------------------------------------------------------- */

static int wait_for(int fd, short events, uint64_t end_ns)
{
    uint64_t now = time_mono_ns();
    struct pollfd pfd = {.fd = fd, .events = events};
    int ms = now >= end_ns ? 0 : (int)MIN((end_ns - now) / NS_PER_MS + 1, UINT64_C(60000));
    int n = poll(&pfd, 1, ms);
    return n > 0 || (n < 0 && errno == EINTR) ? 0 : -ETIMEDOUT;
}

/* The first message of a connection, with the memory of its slots. */
static int welcome(struct proc *p, struct err *err)
{
    uint64_t end = time_mono_ns() + WELCOME_NS;
    int fds[CTL_MAX_FDS];
    size_t n_fds = 0;
    union ctl_msg m;
    struct stat st;
    int rc = -EAGAIN;
    while (rc == -EAGAIN) {
        rc = wait_for(p->sock, POLLIN, end);
        rc = rc != 0 ? rc : ctl_recv(p->sock, true, &m, fds, &n_fds);
    }
    if (rc == 0 && (m.h.op != CTL_WELCOME || n_fds != 1)) {
        rc = -EPROTO;
    }
    for (size_t i = 1; rc != 0 && i <= n_fds; i++) {
        close(fds[i - 1]);
    }
    if (rc != 0) {
        return fail(err, rc, rc == -ETIMEDOUT ? "Timeout" : "ProcessGone",
                    "the data process of %s does not answer", p->name);
    }
    p->slots = fds[0];
    p->n_disks = m.welcome.n_disks;
    if (fstat(p->slots, &st) != 0 || st.st_size < (off_t)CTL_N_SLOTS * (off_t)BLK_BLOCK) {
        return fail(err, -EPROTO, "ProcessGone", "the data process of %s shares no memory",
                    p->name);
    }
    return 0;
}

int proc_meet(struct procs *ps, const char *name, int sock, pid_t pid, int pidfd,
              struct proc **ret, struct err *err)
{
    struct proc *p = calloc(1, sizeof(*p));
    if (!p) {
        abort();
    }
    p->ps = ps;
    p->pid = pid;
    p->pidfd = pidfd;
    p->sock = sock;
    p->slots = -1;
    p->wait_status = -1;
    atomic_init(&p->refs, 1);
    (void)snprintf(p->name, sizeof(p->name), "%s", name);
    int rc = welcome(p, err);
    if (rc != 0) {
        proc_end(p);
        proc_unref(p);
        return rc;
    }
    p->is_up = true;
    pthread_mutex_lock(&ps->mu);
    vec_push(&ps->v, proc_ref(p));
    pthread_mutex_unlock(&ps->mu);
    loop_post(ps->o.loop, start_watching, proc_ref(p));
    *ret = p;
    return 0;
}

/* --- calls
 * ---------------------------------------------------------------------------------- */

static int gone_err(const struct proc *p, struct err *err)
{
    return fail(err, -EPIPE, "ProcessGone", "the data process of %s is gone", p->name);
}

static int send_whole(struct proc *p, union ctl_msg *m, const int *fds, size_t n_fds,
                      uint64_t end_ns)
{
    int rc = -EAGAIN;
    while (rc == -EAGAIN && proc_is_up(p)) {
        rc = ctl_send(p->sock, m, fds, n_fds);
        if (rc == -EAGAIN && wait_for(p->sock, POLLOUT, end_ns) != 0) {
            return -ETIMEDOUT;
        }
    }
    return rc == -EAGAIN ? -EPIPE : rc;
}

static struct timespec deadline(uint64_t end_ns)
{
    return (struct timespec){.tv_sec = (time_t)(end_ns / NS_PER_S),
                             .tv_nsec = (long)(end_ns % NS_PER_S)};
}

static int answer_rc(struct proc *p, const struct ctl_result *r, struct err *err)
{
    /* Names are constants of this program: one that is not known is not repeated. */
    static const char *const names[] = {"VolumeInUse",  "NoSuchSnapshot", "DiskFull",
                                        "BadVolumeMap", "BadBaseMap",     "SyncFailed",
                                        "TooManyFrozen"};
    if (r->h.rc >= 0) {
        return r->h.rc;
    }
    const char *name = "DataFailed";
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        name = strcmp(r->name, names[i]) == 0 ? names[i] : name;
    }
    return fail(err, r->h.rc > -4096 ? r->h.rc : -EIO, name, "%s: %s", p->name, r->text);
}

int proc_call(struct proc *p, union ctl_msg *m, const int *fds, size_t n_fds,
              uint64_t timeout_ns, struct proc_answer *ret, struct err *err)
{
    struct procs *ps = p->ps;
    struct proc_answer answer = {.n_fds = 0};
    uint64_t end = time_mono_ns() + timeout_ns;
    struct waiter w = {.seq = atomic_fetch_add(&ps->seq, 1), .answer = &answer};
    m->h.seq = w.seq;
    answer.result.h.rc = -EPIPE;
    pthread_mutex_lock(&ps->mu);
    bool is_up = p->is_up && !atomic_load(&ps->is_stopping);
    if (is_up) {
        vec_push(&p->waiters, &w);
    }
    pthread_mutex_unlock(&ps->mu);
    if (!is_up) {
        return gone_err(p, err);
    }
    int rc = send_whole(p, m, fds, n_fds, end);
    struct timespec until = deadline(end);
    pthread_mutex_lock(&ps->mu);
    while (rc == 0 && !w.is_done) {
        rc = pthread_cond_timedwait(&ps->cond, &ps->mu, &until) == ETIMEDOUT && !w.is_done
                 ? -ETIMEDOUT
                 : 0;
    }
    for (size_t i = 0; i < p->waiters.n; i++) {
        if (p->waiters.v[i] == &w) {
            vec_remove(&p->waiters, i);
            break;
        }
    }
    pthread_mutex_unlock(&ps->mu);
    if (rc == -ETIMEDOUT) {
        return fail(err, rc, "Timeout", "the data process of %s does not answer", p->name);
    }
    if (rc != 0 || (answer.result.h.rc == -EPIPE && answer.result.h.magic == 0)) {
        return gone_err(p, err);
    }
    for (size_t i = 0; i < answer.n_fds && !ret; i++) {
        close(answer.fds[i]);
    }
    if (ret) {
        *ret = answer;
    }
    return answer_rc(p, &answer.result, err);
}

int proc_send(struct proc *p, union ctl_msg *m)
{
    m->h.seq = atomic_fetch_add(&p->ps->seq, 1);
    return send_whole(p, m, NULL, 0, time_mono_ns() + WELCOME_NS);
}

int proc_try(struct proc *p, union ctl_msg *m)
{
    m->h.seq = atomic_fetch_add(&p->ps->seq, 1);
    return ctl_send(p->sock, m, NULL, 0);
}

int proc_slot_read(struct proc *p, uint32_t slot, void *buf)
{
    if (slot >= CTL_N_SLOTS) {
        return -EPROTO;
    }
    ssize_t n = pread(p->slots, buf, BLK_BLOCK, (off_t)slot * (off_t)BLK_BLOCK);
    return n == (ssize_t)BLK_BLOCK ? 0 : -EIO;
}

int proc_slot_write(struct proc *p, uint32_t slot, const void *buf)
{
    if (slot >= CTL_N_SLOTS) {
        return -EPROTO;
    }
    ssize_t n = pwrite(p->slots, buf, BLK_BLOCK, (off_t)slot * (off_t)BLK_BLOCK);
    return n == (ssize_t)BLK_BLOCK ? 0 : -EIO;
}

/* --- all of them
 * ---------------------------------------------------------------------------- */

void procs_stop(struct procs *ps)
{
    atomic_store(&ps->is_stopping, true);
    pthread_mutex_lock(&ps->mu);
    for (size_t i = 0; i < ps->v.n; i++) {
        fail_waiters(ps->v.v[i]);
    }
    pthread_cond_broadcast(&ps->cond);
    pthread_mutex_unlock(&ps->mu);
}

void procs_free(struct procs *ps)
{
    if (!ps) {
        return;
    }
    for (size_t i = 0; i < ps->v.n; i++) {
        forget_handles(ps->v.v[i]);
        proc_unref(ps->v.v[i]);
    }
    vec_free(&ps->v);
    pthread_cond_destroy(&ps->cond);
    pthread_mutex_destroy(&ps->mu);
    free(ps);
}
