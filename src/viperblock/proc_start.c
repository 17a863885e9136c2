#include "base/file.h"
#include "base/log.h"
#include "base/time.h"
#include "loop/child.h"
#include "os/proc_id.h"
#include "viperblock/proc.h"
#include "viperblock/proc_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

LOG_MODULE("viperblock.proc");

#define QUIT_NS    (12 * NS_PER_S)
#define STOP_NS    (5 * NS_PER_S)
#define MAX_FILES  4096u
#define LISTEN_FD  3
#define RINGS_SIZE 12u

int proc_path(const struct procs *ps, const char *name, const char *file, char out[PATH_MAX],
              struct err *err)
{
    int n = snprintf(out, PATH_MAX, "%s/%s/%s", ps->run_dir, name, file);
    return n > 0 && n < PATH_MAX
               ? 0
               : fail(err, -ENAMETOOLONG, "OpenFailed", "%s: the name is too long", name);
}

const char *procs_dir(const struct procs *ps)
{
    return ps->run_dir;
}

int procs_new(const struct procs_opts *o, struct procs **ret, struct err *err)
{
    /* Guests' processes pass through it to their sockets. */
    int rc = file_mkdirs(o->run_dir, 0711, err);
    if (rc != 0) {
        return rc;
    }
    struct procs *ps = calloc(1, sizeof(*ps));
    pthread_condattr_t attr;
    if (!ps || pthread_condattr_init(&attr) != 0) {
        abort();
    }
    ps->o = *o;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&ps->mu, NULL);
    pthread_cond_init(&ps->cond, &attr);
    pthread_condattr_destroy(&attr);
    atomic_init(&ps->seq, 1);
    atomic_init(&ps->is_stopping, false);
    /* The umask of a service may have taken the others' bit away. */
    if (snprintf(ps->run_dir, sizeof(ps->run_dir), "%s", o->run_dir) >= PATH_MAX ||
        snprintf(ps->exe, sizeof(ps->exe), "%s", o->exe) >= PATH_MAX ||
        chmod(o->run_dir, 0711) != 0) {
        rc = fail(err, -EIO, "OpenFailed", "%s: %m", o->run_dir);
        procs_free(ps);
        return rc;
    }
    *ret = ps;
    return 0;
}

static bool is_proc_name(const char *name)
{
    return (strncmp(name, "i-", 2) == 0 || strncmp(name, "vol-", 4) == 0) &&
           strlen(name) < BLK_SNAP_ID;
}

int procs_each_folder(struct procs *ps, void (*fn)(void *ctx, const char *name), void *ctx,
                      struct err *err)
{
    DIR *d = opendir(ps->run_dir);
    if (!d) {
        return fail(err, -EIO, "OpenFailed", "%s: %m", ps->run_dir);
    }
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (is_proc_name(e->d_name)) {
            fn(ctx, e->d_name);
        }
    }
    closedir(d);
    return 0;
}

static int address_of(const char *path, struct sockaddr_un *ret, struct err *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(ret->sun_path)) {
        return fail(err, -ENAMETOOLONG, "OpenFailed", "%s is too long for a socket", path);
    }
    memcpy(ret->sun_path, path, strlen(path));
    return 0;
}

static int listen_on(const char *path, int *ret, struct err *err)
{
    struct sockaddr_un sa;
    int rc = address_of(path, &sa, err);
    if (rc != 0) {
        return rc;
    }
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)unlink(path);
    /* Nobody can connect before listen(): the mode is there by then. */
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 || chmod(path, 0600) != 0 ||
        listen(fd, 4) != 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    *ret = steal_fd(&fd);
    return 0;
}

static int connect_to(const char *path, int *ret, struct err *err)
{
    struct sockaddr_un sa;
    int rc = address_of(path, &sa, err);
    if (rc != 0) {
        return rc;
    }
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "a socket: %m");
    }
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
        return fail(err, -ESRCH, "NoSuchProcess", "%s: %m", path);
    }
    *ret = steal_fd(&fd);
    return 0;
}

static int spawn(struct procs *ps, const char *name, unsigned n_rings, int listener,
                 pid_t *ret_pid, struct err *err)
{
    char rings[RINGS_SIZE], dir[PATH_MAX];
    int rc = proc_path(ps, name, "", dir, err);
    if (rc != 0) {
        return rc;
    }
    dir[strlen(dir) - 1] = '\0'; /* the folder says whose it is, to people who look */
    (void)snprintf(rings, sizeof(rings), "%u", n_rings);
    const char *argv[] = {ps->exe, dir, rings, NULL};
    struct child_fd fds[] = {{.fd = listener, .target = LISTEN_FD}};
    struct child_opts o = {.argv = argv,
                           .out_fd = 2,
                           .err_fd = 2,
                           .fds = fds,
                           .n_fds = ARRAY_LEN(fds),
                           .has_new_session = true,
                           .has_no_new_privs = true,
                           .has_no_core = true,
                           .max_files = MAX_FILES};
    return child_spawn(&o, ret_pid, err);
}

int proc_start(struct procs *ps, const char *name, unsigned n_rings, struct proc **ret,
               struct err *err)
{
    char dir[PATH_MAX], path[PATH_MAX], pid_path[PATH_MAX];
    AUTO_FD listener = -1;
    AUTO_FD sock = -1;
    int pidfd = -1;
    pid_t pid = 0;
    uint64_t start = time_mono_ns();
    if (!is_proc_name(name)) {
        return fail(err, -EINVAL, "BadArgument", "%s is no name of a data process", name);
    }
    int rc = proc_path(ps, name, "", dir, err);
    rc = rc != 0 ? rc : proc_path(ps, name, "ctl.sock", path, err);
    rc = rc != 0 ? rc : proc_path(ps, name, "pid", pid_path, err);
    rc = rc != 0 ? rc : file_mkdirs(dir, 0711, err);
    if (rc == 0 && chmod(dir, 0711) != 0) {
        rc = fail(err, -errno, "OpenFailed", "%s: %m", dir);
    }
    rc = rc != 0 ? rc : listen_on(path, &listener, err);
    rc = rc != 0 ? rc : spawn(ps, name, n_rings, listener, &pid, err);
    if (rc != 0) {
        return rc;
    }
    struct proc_id id;
    rc = proc_id_save(pid_path, pid, err);
    if (rc == 0 && (proc_id_of(pid, &id) != 0 || proc_open(&id, &pidfd) != 0)) {
        rc = fail(err, -ESRCH, "ProcessGone", "the data process of %s ended at once", name);
    }
    rc = rc != 0 ? rc : connect_to(path, &sock, err);
    rc = rc != 0 ? rc : proc_meet(ps, name, steal_fd(&sock), pid, pidfd, ret, err);
    if (rc != 0) {
        if (pidfd < 0 && proc_id_of(pid, &id) == 0) {
            (void)proc_kill(&id);
        }
        return rc;
    }
    (*ret)->start_ns = start;
    log_info("data.started", KV_CSTR("process", name), KV_I64("pid", pid),
             KV_U64("ms", (time_mono_ns() - start) / NS_PER_MS));
    return 0;
}

int proc_adopt(struct procs *ps, const char *name, struct proc **ret, struct err *err)
{
    char path[PATH_MAX], pid_path[PATH_MAX];
    AUTO_FD sock = -1;
    int pidfd = -1;
    pid_t pid = 0;
    int rc = proc_path(ps, name, "ctl.sock", path, err);
    rc = rc != 0 ? rc : proc_path(ps, name, "pid", pid_path, err);
    rc = rc != 0 ? rc : proc_id_open(pid_path, &pid, &pidfd, err);
    if (rc != 0) {
        return rc == -ENAMETOOLONG ? rc : -ESRCH;
    }
    rc = connect_to(path, &sock, err);
    if (rc != 0) { /* it is there and cannot be reached: it holds locks that others need */
        struct proc_id id;
        if (proc_id_of(pid, &id) == 0) {
            (void)proc_kill(&id);
        }
        close(pidfd);
        return rc;
    }
    rc = proc_meet(ps, name, steal_fd(&sock), pid, pidfd, ret, err);
    if (rc != 0) {
        return -ESRCH;
    }
    log_info("data.adopted", KV_CSTR("process", name), KV_I64("pid", pid));
    return 0;
}

void proc_forget(struct procs *ps, const char *name)
{
    char dir[PATH_MAX];
    if (proc_path(ps, name, "", dir, NULL) != 0) {
        return;
    }
    DIR *d = opendir(dir);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            (void)unlinkat(dirfd(d), e->d_name, 0);
        }
    }
    if (d) {
        closedir(d);
    }
    if (rmdir(dir) != 0 && errno != ENOENT) {
        log_warn_rl("data.folder_stays", KV_CSTR("process", name));
    }
}

void procs_quit_idle(struct procs *ps, bool (*is_idle)(void *ctx, struct proc *p), void *ctx)
{
    uint64_t end = time_mono_ns() + STOP_NS;
    VEC(struct proc *) told = {.v = NULL};
    for (size_t i = 0; i < ps->v.n; i++) {
        union ctl_msg m = {.h = {.op = CTL_QUIT}};
        if (is_idle(ctx, ps->v.v[i]) && ctl_send(ps->v.v[i]->sock, &m, NULL, 0) == 0) {
            vec_push(&told, ps->v.v[i]);
        }
    }
    for (size_t i = 0; i < told.n; i++) {
        struct pollfd pfd = {.fd = told.v[i]->pidfd, .events = POLLIN};
        uint64_t now = time_mono_ns();
        int ms = now < end ? (int)((end - now) / NS_PER_MS) : 0;
        if (poll(&pfd, 1, ms) > 0) {
            proc_forget(ps, told.v[i]->name);
        }
    }
    vec_free(&told);
}

void proc_quit(struct proc *p)
{
    struct procs *ps = p->ps;
    struct err err = ERR_INIT;
    union ctl_msg m = {.h = {.op = CTL_QUIT}};
    uint64_t end = time_mono_ns() + QUIT_NS;
    struct timespec until = {.tv_sec = (time_t)(end / NS_PER_S),
                             .tv_nsec = (long)(end % NS_PER_S)};
    pthread_mutex_lock(&ps->mu);
    p->is_quitting = true;
    pthread_mutex_unlock(&ps->mu);
    int rc = proc_call(p, &m, NULL, 0, QUIT_NS, NULL, &err);
    if (rc != 0 && rc != -EPIPE) {
        log_warn("data.quit_failed", KV_CSTR("process", p->name), KV_ERR(&err));
        proc_end(p);
    }
    pthread_mutex_lock(&ps->mu);
    while (!p->is_exited && !atomic_load(&ps->is_stopping)) {
        if (pthread_cond_timedwait(&ps->cond, &ps->mu, &until) == ETIMEDOUT) {
            break;
        }
    }
    bool is_exited = p->is_exited;
    pthread_mutex_unlock(&ps->mu);
    if (!is_exited) {
        proc_end(p);
    }
    proc_forget(ps, p->name);
    log_info("data.ended", KV_CSTR("process", p->name));
}
