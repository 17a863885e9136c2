#include "loop/child.h"
#include "base/time.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/* Sources and the error pipe are moved above all targets first, so that no dup2() overwrites
 * what is still needed. */
#define HIGH_FD      (CHILD_MAX_FD + 1)

const char *const child_env_minimal[] = {"PATH=" DEFAULT_PATH, "LANG=C.UTF-8", NULL};

enum step {
    STEP_SIGNALS,
    STEP_SESSION,
    STEP_CGROUP,
    STEP_NETNS,
    STEP_FDS,
    STEP_LIMITS,
    STEP_CWD,
    STEP_GROUPS,
    STEP_GID,
    STEP_UID,
    STEP_NO_NEW_PRIVS,
    STEP_DEATH_SIGNAL,
    STEP_EXEC,
    STEP_N,
};

static const char *const step_words[STEP_N] = {
    [STEP_SIGNALS] = "reset signals",
    [STEP_SESSION] = "new session",
    [STEP_CGROUP] = "enter cgroup",
    [STEP_NETNS] = "enter network namespace",
    [STEP_FDS] = "pass descriptors",
    [STEP_LIMITS] = "set limits",
    [STEP_CWD] = "change folder",
    [STEP_GROUPS] = "set groups",
    [STEP_GID] = "set gid",
    [STEP_UID] = "set uid",
    [STEP_NO_NEW_PRIVS] = "no new privileges",
    [STEP_DEATH_SIGNAL] = "death signal",
    [STEP_EXEC] = "exec",
};

/* What the child reports on the pipe when it cannot go on. */
struct report {
    int code; /* errno */
    int step;
};

/* Everything the child needs, made ready before the fork: after it only async-signal-safe calls
 * are allowed. */
struct plan {
    const struct child_opts *o;
    const char *path;
    char *const *argv;
    char *const *envp;
    int null_fd, report_fd;
    pid_t parent;
};

__attribute__((noreturn)) static void child_fail(int report_fd, enum step step)
{
    struct report r = {.code = errno, .step = (int)step};
    ssize_t n = write(report_fd, &r, sizeof(r));
    (void)n;
    _exit(127);
}

static void child_signals(int report_fd)
{
    /* Blocked by the parent until here; handlers and "ignored" (SIGPIPE) would otherwise be
     * inherited over exec. */
    for (int sig = 1; sig < _NSIG; sig++) {
        struct sigaction dfl = {.sa_handler = SIG_DFL};
        sigaction(sig, &dfl, NULL); /* SIGKILL, SIGSTOP and glibc's own refuse: fine */
    }
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0) {
        child_fail(report_fd, STEP_SIGNALS);
    }
}

static int child_dup_high(int fd, int report_fd)
{
    int r = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (r < 0) {
        child_fail(report_fd, STEP_FDS);
    }
    return r;
}

static void child_fds(const struct plan *p, int report_fd)
{
    const struct child_opts *o = p->o;
    int src[CHILD_MAX_FDS + 3];
    int dst[CHILD_MAX_FDS + 3];
    size_t n = 0;
    const int std[3] = {o->in_fd, o->out_fd, o->err_fd};
    for (int i = 0; i < 3; i++) {
        src[n] = child_dup_high(std[i] > 0 ? std[i] : p->null_fd, report_fd);
        dst[n++] = i;
    }
    for (size_t i = 0; i < o->n_fds; i++) {
        src[n] = child_dup_high(o->fds[i].fd, report_fd);
        dst[n++] = o->fds[i].target;
    }
    if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0) {
        child_fail(report_fd, STEP_FDS);
    }
    for (size_t i = 0; i < n; i++) {
        if (dup2(src[i], dst[i]) < 0) { /* clears close-on-exec */
            child_fail(report_fd, STEP_FDS);
        }
    }
}

static void child_limits(const struct child_opts *o, int report_fd)
{
    if (o->has_no_core) {
        struct rlimit none = {0, 0};
        if (setrlimit(RLIMIT_CORE, &none) < 0) {
            child_fail(report_fd, STEP_LIMITS);
        }
    }
    if (o->may_lock_memory) {
        const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
        (void)setrlimit(RLIMIT_MEMLOCK, &all); /* without the right to: as it is */
    }
    if (o->max_files > 0) {
        struct rlimit lim = {o->max_files, o->max_files};
        if (setrlimit(RLIMIT_NOFILE, &lim) < 0) {
            child_fail(report_fd, STEP_LIMITS);
        }
    }
}

/* Raw calls: glibc's wrappers synchronise with threads that the child does not have. */
static void child_user(const struct child_opts *o, int report_fd)
{
    if (syscall(SYS_setgroups, o->n_groups, o->groups) < 0) {
        child_fail(report_fd, STEP_GROUPS);
    }
    if (syscall(SYS_setresgid, o->gid, o->gid, o->gid) < 0) {
        child_fail(report_fd, STEP_GID);
    }
    if (syscall(SYS_setresuid, o->uid, o->uid, o->uid) < 0) {
        child_fail(report_fd, STEP_UID);
    }
}

__attribute__((noreturn)) static void child_main(const struct plan *p)
{
    const struct child_opts *o = p->o;
    int fd = child_dup_high(p->report_fd, p->report_fd);
    child_signals(fd);
    if (o->has_new_session && setsid() < 0) {
        child_fail(fd, STEP_SESSION);
    }
    if (o->cgroup_procs_fd > 0 && write(o->cgroup_procs_fd, "0", 1) != 1) {
        child_fail(fd, STEP_CGROUP);
    }
    if (o->netns_fd > 0 && setns(o->netns_fd, CLONE_NEWNET) < 0) {
        child_fail(fd, STEP_NETNS);
    }
    child_fds(p, fd);
    child_limits(o, fd);
    if (chdir(o->cwd ? o->cwd : "/") < 0) {
        child_fail(fd, STEP_CWD);
    }
    if (o->is_user_set) {
        child_user(o, fd);
    }
    if (o->has_no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        child_fail(fd, STEP_NO_NEW_PRIVS);
    }
    if (o->death_signal) { /* after the change of user, which clears it */
        if (prctl(PR_SET_PDEATHSIG, o->death_signal, 0, 0, 0) < 0) {
            child_fail(fd, STEP_DEATH_SIGNAL);
        }
        if (getppid() != p->parent) { /* it died before the call */
            _exit(127);
        }
    }
    execve(p->path, p->argv, p->envp);
    child_fail(fd, STEP_EXEC);
}

static int check_opts(const struct child_opts *o, struct err *err)
{
    assert(o->argv && o->argv[0]);
    if (o->n_fds > CHILD_MAX_FDS) {
        return fail(err, -E2BIG, "SpawnFailed", "%s: more than %d descriptors", o->argv[0],
                    CHILD_MAX_FDS);
    }
    for (size_t i = 0; i < o->n_fds; i++) {
        bool is_bad =
            o->fds[i].target < 3 || o->fds[i].target > CHILD_MAX_FD || o->fds[i].fd < 0;
        for (size_t j = 0; j < i; j++) {
            is_bad = is_bad || o->fds[j].target == o->fds[i].target;
        }
        if (is_bad) {
            return fail(err, -EINVAL, "SpawnFailed",
                        "%s: descriptor %d cannot become number %d", o->argv[0], o->fds[i].fd,
                        o->fds[i].target);
        }
    }
    return 0;
}

/* Looks a bare name up in PATH; 'buf' holds the result. */
static int find_program(const struct child_opts *o, char buf[PATH_MAX], const char **ret,
                        struct err *err)
{
    const char *name = o->path ? o->path : o->argv[0];
    if (strchr(name, '/')) {
        *ret = name;
        return 0;
    }
    const char *env = getenv("PATH");
    struct str rest = str_c(env && *env ? env : DEFAULT_PATH);
    struct str dir = STR_NONE;
    while (str_next(&rest, ':', &dir)) {
        if (dir.n == 0 || dir.p[0] != '/') {
            continue; /* never from the current folder */
        }
        int n = snprintf(buf, PATH_MAX, "%.*s/%s", STR_ARG(dir), name);
        struct stat st;
        if (n > 0 && n < PATH_MAX && access(buf, X_OK) == 0 && stat(buf, &st) == 0 &&
            S_ISREG(st.st_mode)) {
            *ret = buf;
            return 0;
        }
    }
    return fail(err, -ENOENT, "SpawnFailed", "%s: not found in PATH", name);
}

/* exec's argument types lost the const that it keeps. */
static char *const *unconst(const char *const *v)
{
    union {
        const char *const *in;
        char *const *out;
    } u = {.in = v};
    return u.out;
}

static void reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

int child_spawn(const struct child_opts *o, pid_t *ret_pid, struct err *err)
{
    int r = check_opts(o, err);
    if (r < 0) {
        return r;
    }
    char found[PATH_MAX];
    struct plan plan = {.o = o, .argv = unconst(o->argv), .parent = getpid()};
    r = find_program(o, found, &plan.path, err);
    if (r < 0) {
        return r;
    }
    const char *const *env = o->env ? o->env : child_env_minimal;
    plan.envp = o->is_env_inherited ? environ : unconst(env);

    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
        return fail(err, -errno, "SpawnFailed", "pipe: %m");
    }
    AUTO_FD report_rd = pipe_fds[0];
    AUTO_FD report_wr = pipe_fds[1];
    AUTO_FD null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0) {
        return fail(err, -errno, "SpawnFailed", "/dev/null: %m");
    }
    plan.null_fd = null_fd;
    plan.report_fd = report_wr;

    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* no handler of ours may run in the child */
    pid_t pid = fork();
    if (pid == 0) {
        child_main(&plan);
    }
    int fork_errno = errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pid < 0) {
        return fail(err, -fork_errno, "SpawnFailed", "fork: %s", strerror(fork_errno));
    }
    close(steal_fd(&report_wr));

    struct report rep = {0};
    ssize_t n = 0;
    do {
        n = read(report_rd, &rep, sizeof(rep));
    } while (n < 0 && errno == EINTR);
    if (n != 0) {
        reap(pid);
        if (n != (ssize_t)sizeof(rep) || rep.step < 0 || rep.step >= STEP_N || rep.code <= 0) {
            return fail(err, -EIO, "SpawnFailed", "%s: the child ended before exec", plan.path);
        }
        return fail(err, -rep.code, "SpawnFailed", "%s: %s: %s", plan.path,
                    step_words[rep.step], strerror(rep.code));
    }
    *ret_pid = pid;
    return 0;
}

/* ---- child_run ---- */

#define STDERR_KEPT 2048u

/* Appends what is there to 'b'; at its limit the front is dropped when 'is_tail'. 1 = more may
 * come, 0 = end. */
static int drain(int fd, struct buf *b, bool is_tail)
{
    char chunk[4096];
    ssize_t n = read(fd, chunk, sizeof(chunk));
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR ? 1 : -errno;
    }
    if (n == 0) {
        return 0;
    }
    if (!b) {
        return 1;
    }
    struct str s = str_n(chunk, (size_t)n);
    if (is_tail) {
        s = str_skip(s, s.n > b->max ? s.n - b->max : 0);
        if (b->n + s.n > b->max) {
            buf_drop(b, b->n + s.n - b->max);
        }
    }
    buf_add(b, s);
    return buf_ok(b) ? 1 : -EFBIG;
}

/* Reads both pipes to their ends, then waits for the process. -ETIMEDOUT, -EFBIG, ... leave it
 * running. */
static int run_to_end(int fds[2], int pidfd, struct buf *out, struct buf *errors,
                      uint64_t deadline)
{
    struct pollfd pf[3] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}, {pidfd, POLLIN, 0}};
    while (pf[2].fd >= 0) {
        uint64_t now = time_mono_ns();
        if (now >= deadline) {
            return -ETIMEDOUT;
        }
        uint64_t ms = MIN((deadline - now) / NS_PER_MS + 1, 1000000);
        if (poll(pf, 3, (int)ms) < 0 && errno != EINTR) {
            return -errno;
        }
        for (int i = 0; i < 2; i++) {
            if (pf[i].fd >= 0 && pf[i].revents) {
                int r = drain(pf[i].fd, i == 0 ? out : errors, i == 1);
                if (r < 0) {
                    return r;
                }
                pf[i].fd = r == 0 ? -1 : pf[i].fd;
            }
        }
        /* The process has ended: what it wrote is in the pipes. A grandchild that keeps them
         * open does not hold us up. */
        bool is_quiet = (pf[0].fd < 0 || !pf[0].revents) && (pf[1].fd < 0 || !pf[1].revents);
        if (pf[2].revents && is_quiet) {
            pf[2].fd = -1;
        }
    }
    return 0;
}

static struct str last_line(struct str s)
{
    s = str_trim(s);
    for (size_t i = s.n; i > 0; i--) {
        if (s.p[i - 1] == '\n') {
            return str_skip(s, i);
        }
    }
    return s;
}

int child_run(const struct child_opts *o, uint64_t timeout_ns, struct buf *out, struct err *err)
{
    uint64_t deadline = time_mono_ns() + timeout_ns;
    int p_out[2];
    int p_err[2];
    if (pipe2(p_out, O_CLOEXEC | O_NONBLOCK) < 0) {
        return fail(err, -errno, "SpawnFailed", "pipe: %m");
    }
    AUTO_FD out_rd = p_out[0];
    AUTO_FD out_wr = p_out[1];
    if (pipe2(p_err, O_CLOEXEC | O_NONBLOCK) < 0) {
        return fail(err, -errno, "SpawnFailed", "pipe: %m");
    }
    AUTO_FD err_rd = p_err[0];
    AUTO_FD err_wr = p_err[1];
    /* Programs do not expect their output to be non-blocking. */
    if (fcntl(out_wr, F_SETFL, 0) < 0 || fcntl(err_wr, F_SETFL, 0) < 0) {
        return fail(err, -errno, "SpawnFailed", "fcntl: %m");
    }
    struct child_opts opts = *o;
    opts.out_fd = out_wr;
    opts.err_fd = err_wr;
    opts.death_signal = SIGKILL;
    pid_t pid = 0;
    int r = child_spawn(&opts, &pid, err);
    if (r < 0) {
        return r;
    }
    close(steal_fd(&out_wr));
    close(steal_fd(&err_wr));
    AUTO_BUF errors;
    buf_init(&errors, STDERR_KEPT);
    AUTO_FD pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    r = pidfd < 0 ? -errno
                  : run_to_end((int[2]){out_rd, err_rd}, pidfd, out, &errors, deadline);
    if (r < 0) {
        kill(pid, SIGKILL); /* not reaped yet: the pid is still its */
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    const char *name = o->argv[0];
    if (r == -ETIMEDOUT) {
        return fail(err, r, "Timeout", "%s did not end within %llu ms", name,
                    (unsigned long long)(timeout_ns / NS_PER_MS));
    }
    if (r == -EFBIG) {
        return fail(err, r, "TooMuchOutput", "%s wrote too much", name);
    }
    if (r < 0) {
        return fail(err, r, "CommandFailed", "%s: %s", name, strerror(-r));
    }
    struct str why = last_line(buf_str(&errors));
    if (WIFSIGNALED(status)) {
        return fail(err, -EIO, "CommandFailed", "%s was ended by signal %d: %.*s", name,
                    WTERMSIG(status), STR_ARG(why));
    }
    if (WEXITSTATUS(status) != 0) {
        return fail(err, -EIO, "CommandFailed", "%s ended with status %d: %.*s", name,
                    WEXITSTATUS(status), STR_ARG(why));
    }
    return 0;
}
