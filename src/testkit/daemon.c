#include "testkit/daemon.h"
#include "base/file.h"
#include "base/time.h"
#include "base/vec.h"
#include "codec/json.h"
#include "loop/child.h"
#include "net/rpc.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define START_TIMEOUT_NS (20 * NS_PER_S)
#define LOG_MAX          (64u << 20)

typedef VEC(char *) strings;

struct daemon {
    strings argv, env; /* both end in NULL */
    char *log_path, *health_socket;
    uint64_t start_timeout_ns;
    pid_t pid;       /* 0 = not running */
    int wait_status; /* of the last one */
    bool has_died;   /* by itself */
};

static char *xstrdup(const char *s)
{
    char *p = strdup(s);
    if (!p) {
        abort();
    }
    return p;
}

static void add_all(strings *to, const char *const *from)
{
    for (; from && *from; from++) {
        vec_push(to, xstrdup(*from));
    }
}

static void free_all(strings *v)
{
    for (size_t i = 0; i < v->n; i++) {
        free(v->v[i]);
    }
    vec_free(v);
}

static void reap(struct daemon *d, int options)
{
    if (d->pid == 0) {
        return;
    }
    pid_t r = 0;
    do {
        r = waitpid(d->pid, &d->wait_status, options);
    } while (r < 0 && errno == EINTR);
    if (r != 0) {
        d->pid = 0;
    }
}

bool daemon_is_alive(struct daemon *d)
{
    if (d->pid) {
        reap(d, WNOHANG);
        d->has_died = d->has_died || d->pid == 0;
    }
    return d->pid != 0;
}

pid_t daemon_pid(const struct daemon *d)
{
    return d->pid;
}

char *daemon_log(const struct daemon *d, size_t max)
{
    char *text = NULL;
    size_t n = 0;
    if (file_read(d->log_path, LOG_MAX, &text, &n, NULL) < 0) {
        return xstrdup("");
    }
    if (n > max) {
        memmove(text, text + n - max, max + 1);
    }
    return text;
}

bool daemon_log_has(const struct daemon *d, const char *text)
{
    AUTO_FREE char *log = daemon_log(d, LOG_MAX);
    return strstr(log, text) != NULL;
}

/* The end of the log goes into the message: a test that fails on a build machine must say why.
 */
static int fail_with_log(const struct daemon *d, int code, const char *name, const char *what,
                         struct err *err)
{
    AUTO_FREE char *log = daemon_log(d, 4000);
    fprintf(stderr, "testkit: %s %s; the end of %s:\n%s\n", d->argv.v[0], what, d->log_path,
            log);
    size_t n = strlen(log);
    return fail(err, code, name, "%s %s: %s", d->argv.v[0], what,
                log + (n > 400 ? n - 400 : 0));
}

static int died(struct daemon *d, struct err *err)
{
    char what[64];
    if (WIFSIGNALED(d->wait_status)) {
        snprintf(what, sizeof(what), "was ended by signal %d", WTERMSIG(d->wait_status));
    } else {
        snprintf(what, sizeof(what), "ended with status %d", WEXITSTATUS(d->wait_status));
    }
    return fail_with_log(d, -ECHILD, "DaemonDied", what, err);
}

static bool is_healthy(const struct rpc_reply *r)
{
    struct json *j = NULL;
    bool is = json_parse(str_n(r->payload, r->n), &j, NULL) == 0 &&
              !str_eqc(json_get_str(j, "status"), "starting");
    json_free(j);
    return is;
}

int daemon_wait_ready(struct daemon *d, struct err *err)
{
    if (!d->health_socket) {
        return daemon_is_alive(d) ? 0 : died(d, err);
    }
    uint64_t end = time_mono_ns() + d->start_timeout_ns;
    struct rpc_client *c = rpc_client_new(d->health_socket, NULL, NULL);
    bool is_ready = false;
    while (!is_ready && daemon_is_alive(d) && time_mono_ns() < end) {
        struct rpc_reply r = {0};
        if (rpc_call(c, STR("health"), STR("{}"), NULL, 0, 200 * NS_PER_MS, &r, NULL) == 0) {
            is_ready = is_healthy(&r);
            rpc_reply_done(&r);
        }
        if (!is_ready) {
            poll(NULL, 0, 5);
        }
    }
    rpc_client_free(c);
    if (is_ready) {
        return 0;
    }
    return d->pid ? fail_with_log(d, -ETIMEDOUT, "DaemonNotReady", "is not ready in time", err)
                  : died(d, err);
}

static int spawn(struct daemon *d, struct err *err)
{
    AUTO_FD log = open(d->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", d->log_path);
    }
    struct child_opts o = {
        .argv = (const char *const *)d->argv.v,
        .env = (const char *const *)d->env.v,
        .out_fd = log,
        .err_fd = log,
        .has_new_session =
            true, /* Ctrl-C at the test does not reach it: the death signal does */
        .death_signal = SIGKILL,
    };
    d->has_died = false;
    return child_spawn(&o, &d->pid, err);
}

int daemon_start(const struct daemon_opts *o, struct daemon **ret, struct err *err)
{
    struct daemon *d = calloc(1, sizeof(*d));
    if (!d) {
        abort();
    }
    add_all(&d->argv, o->argv);
    vec_push(&d->argv, NULL);
    add_all(&d->env, o->env); /* getenv() takes the first of two: ours win */
    add_all(&d->env, (const char *const *)environ);
    vec_push(&d->env, NULL);
    d->log_path = xstrdup(o->log_path);
    d->health_socket = o->health_socket ? xstrdup(o->health_socket) : NULL;
    d->start_timeout_ns = o->start_timeout_ns ? o->start_timeout_ns : START_TIMEOUT_NS;
    int r = spawn(d, err);
    if (r == 0) {
        r = daemon_wait_ready(d, err);
    }
    if (r < 0) {
        daemon_kill(d);
        d->has_died = false; /* it is in the error */
        daemon_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

void daemon_signal(struct daemon *d, int sig)
{
    if (daemon_is_alive(d)) {
        kill(d->pid, sig); /* not reaped: the pid is still its */
    }
}

void daemon_kill(struct daemon *d)
{
    if (daemon_is_alive(d)) {
        kill(d->pid, SIGKILL);
        reap(d, 0);
    }
}

int daemon_stop(struct daemon *d, uint64_t timeout_ns)
{
    if (!daemon_is_alive(d)) {
        return -ESRCH;
    }
    AUTO_FD pidfd = (int)syscall(SYS_pidfd_open, d->pid, 0);
    kill(d->pid, SIGTERM);
    struct pollfd pf = {pidfd, POLLIN, 0};
    if (pidfd < 0 || poll(&pf, 1, (int)MIN(timeout_ns / NS_PER_MS, 1000000)) <= 0) {
        daemon_kill(d);
        return -ETIMEDOUT;
    }
    reap(d, 0);
    return WIFSIGNALED(d->wait_status) ? 128 + WTERMSIG(d->wait_status)
                                       : WEXITSTATUS(d->wait_status);
}

int daemon_restart(struct daemon *d, struct err *err)
{
    daemon_kill(d);
    int r = spawn(d, err);
    return r < 0 ? r : daemon_wait_ready(d, err);
}

void daemon_free(struct daemon *d)
{
    if (!d) {
        return;
    }
    if (!daemon_is_alive(d) && d->has_died) {
        struct err err = ERR_INIT;
        int r = died(d, &err);
        (void)r; /* printed */
    }
    daemon_kill(d);
    free_all(&d->argv);
    free_all(&d->env);
    free(d->log_path);
    free(d->health_socket);
    free(d);
}
