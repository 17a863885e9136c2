#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/time.h"
#include "loop/child.h"
#include "loop/loop.h"
#include "spx/cmds.h"
#include "spx/guests.h"
#include "spx/prepare.h"
#include "spx/supervise.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* The order of starting: the store first. Objects come last: nobody else waits while an index that
 * was lost is made again. 'uid_offset' 0: needs root. */
static const struct {
    const char *name;
    int uid_offset;
    uint64_t start_timeout_ns;
} order[] = {
    {"state", CONFIG_UID_STATE, 0},
    {"viperblock", CONFIG_UID_VIPERBLOCK, 0},
    {"vpcd", 0, 0},
    {"compute", 0, 0},
    {"awsgw", CONFIG_UID_AWSGW, 0},
    {"predastore", CONFIG_UID_PREDASTORE, 900 * NS_PER_S},
};

#define LOCK_FILE      "up.lock"
#define SILENCE_LIMIT  (15 * NS_PER_S)
#define TEARDOWN_LIMIT (60 * NS_PER_S)
#define GUEST_LIMIT    (150 * NS_PER_S) /* ACPI shutdown, then force */

/* Installed, or in the build tree beside this program: <build>/src/<service>/spx-<service>. */
static int find_exe(struct arena *a, const char *service, const char **ret, struct err *err)
{
    char self[400];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    const char *tries[3] = {getenv("SPX_LIBEXEC"), NULL, SPX_LIBEXECDIR};
    if (n > 0) {
        struct str dir = str_n(self, (size_t)n);
        for (int i = 0; i < 2 && dir.n; i++) { /* .../src/spx/spx -> .../src */
            while (dir.n && dir.p[dir.n - 1] != '/') {
                dir.n--;
            }
            dir.n -= dir.n > 0;
        }
        tries[1] = arena_cstr(a, arena_fmt(a, "%.*s/%s", STR_ARG(dir), service));
    }
    for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
        if (!tries[i] || !tries[i][0]) {
            continue;
        }
        *ret = arena_cstr(a, arena_fmt(a, "%s/spx-%s", tries[i], service));
        if (access(*ret, X_OK) == 0) {
            return 0;
        }
    }
    return fail(err, -ENOENT, "NoSuchProgram", "spx-%s is neither in %s nor in the build tree",
                service, SPX_LIBEXECDIR);
}

static int list_services(struct spx *s, struct supervise_service *v, size_t *ret_n,
                         struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        if (!config_has_service(s->cfg, order[i].name)) {
            continue;
        }
        struct str socket = arena_fmt(s->arena, "%s.sock", order[i].name);
        v[n] = (struct supervise_service){
            .name = order[i].name,
            .socket = config_run_path(s->arena, s->cfg, arena_cstr(s->arena, socket)),
            .uid_offset = order[i].uid_offset,
            .start_timeout_ns = order[i].start_timeout_ns,
        };
        int r = find_exe(s->arena, order[i].name, &v[n].exe, err);
        if (r < 0) {
            return r;
        }
        n++;
    }
    *ret_n = n;
    return 0;
}

/* The lock is held as long as the services are watched over; the file names who holds it.
 * Returns the descriptor, -EBUSY with *ret_pid when somebody else has it. */
static int take_lock(struct spx *s, int flags, pid_t *ret_pid, struct err *err)
{
    const char *path = config_run_path(s->arena, s->cfg, LOCK_FILE);
    AUTO_FD fd = open(path, O_RDWR | flags | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    *ret_pid = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return steal_fd(&fd);
    }
    char text[24] = "";
    uint64_t pid = 0;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    if (n > 0 && num_u64(str_trim(str_n(text, (size_t)n)), 1u << 30, &pid) == 0) {
        *ret_pid = (pid_t)pid;
    }
    return fail(err, -EBUSY, "AlreadyRunning", "the services are running already (process %d)",
                (int)*ret_pid);
}

static int write_pid(int fd, struct err *err)
{
    char text[24];
    int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        return fail(err, -errno, "WriteFailed", "writing the lock file: %m");
    }
    return 0;
}

static void say_to_terminal(void *ctx, const char *line, bool is_last)
{
    fprintf(stderr, "%s\n", line);
}

/* To the parent of a detached supervisor; after the last line it hears no more. */
static void say_to_parent(void *ctx, const char *line, bool is_last)
{
    int *fd = ctx;
    if (*fd >= 0) {
        dprintf(*fd, "%s\n%s", line, is_last ? "\001\n" : "");
        if (is_last) {
            close(*fd);
            *fd = -1;
        }
    }
}

/* Becomes a daemon. In the parent: prints what the child says until everything answers, then
 * returns 1, or -ECHILD; in the child 0 and where to say it. */
static int detach(const char *log_path, int *ret_say_fd, struct err *err)
{
    int fds[2];
    int log = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (log < 0 || null < 0 || pipe2(fds, O_CLOEXEC) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", log_path);
    }
    pid_t pid = fork();
    if (pid < 0) {
        return fail(err, -errno, "SpawnFailed", "fork: %m");
    }
    if (pid == 0) {
        close(fds[0]);
        setsid();
        dup2(null, 0);
        dup2(log, 1);
        dup2(log, 2);
        *ret_say_fd = fds[1];
        return chdir("/") < 0 ? -errno : 0;
    }
    close(fds[1]);
    close(log);
    close(null);
    FILE *from = fdopen(fds[0], "re");
    char line[1024];
    bool is_up = false;
    while (from && fgets(line, sizeof(line), from)) {
        is_up = is_up || line[0] == '\001';
        if (line[0] != '\001') {
            fputs(line, stderr);
        }
    }
    if (from) {
        fclose(from);
    }
    return is_up ? 1 : fail(err, -ECHILD, "StartFailed", "the services did not start");
}

/* Services that somebody else has started (systemd) must not lose their sockets to ours; those of a
 * supervisor that was killed end by themselves, after their last requests. */
static int wait_for_silence(const struct supervise_opts *o, struct err *err)
{
    uint64_t end = time_mono_ns() + SILENCE_LIMIT;
    for (size_t i = 0; i < o->n_services;) {
        if (spx_check_socket(o->services[i].socket, NULL) < 0) {
            i++;
            continue;
        }
        if (time_mono_ns() > end) {
            fail(err, -EBUSY, "AlreadyRunning",
                 "%s answers already, and was not started by 'spx up'", o->services[i].name);
            err_hint(err, "systemctl stop spinifex.target");
            return -EBUSY;
        }
        const struct timespec wait = {.tv_nsec = 100000000};
        nanosleep(&wait, NULL);
    }
    return 0;
}

int cmd_up(struct spx *s, struct err *err)
{
    struct supervise_service services[ARRAY_LEN(order)];
    struct supervise_opts o = {.services = services, .say = say_to_terminal};
    const char *log_dir = spx_value(s, "--log-dir");
    pid_t other = 0;
    int say_fd = -1;
    int r = prepare_node(s, err);
    r = r < 0 ? r : list_services(s, services, &o.n_services, err);
    if (r < 0) {
        return r;
    }
    o.cfg = s->cfg;
    o.log_level = spx_value(s, "--log-level");
    o.log_dir = log_dir ? log_dir : config_data_path(s->arena, s->cfg, "log");
    r = file_mkdirs(o.log_dir, 0755, err);
    AUTO_FD lock = r < 0 ? -1 : take_lock(s, O_CREAT, &other, err);
    if (lock == -EBUSY && spx_is_set(s, "--detach")) {
        fprintf(stderr, "the services are running already (process %d)\n", (int)other);
        err_clear(err);
        return 0;
    }
    if (lock < 0) {
        return r < 0 ? r : lock;
    }
    r = wait_for_silence(&o, err);
    if (r < 0) {
        return r;
    }
    if (spx_is_set(s, "--detach")) {
        r = detach(arena_cstr(s->arena, arena_fmt(s->arena, "%s/spx-up.log", o.log_dir)),
                   &say_fd, err);
        if (r != 0) {
            return r < 0 ? r : 0;
        }
        o.say = say_to_parent;
        o.ctx = &say_fd;
    }
    r = write_pid(lock, err);
    log_init("spx-up", LOG_LEVEL_INFO);
    loop_block_signals();
    r = r < 0 ? r : supervise_run(&o, err);
    if (r < 0) {
        o.say(o.ctx, err->msg, false);
    }
    return r;
}

static int stop_guests_first(struct spx *s, struct err *err)
{
    struct err e = ERR_INIT;
    if (spx_is_set(s, "--keep-guests") || !config_has_service(s->cfg, "compute")) {
        return 0;
    }
    int r = guests_stop(s, GUEST_LIMIT, &e);
    if (r == 0) {
        return 0;
    }
    if (spx_is_set(s, "--force")) {
        fprintf(stderr, "guests were not stopped: %s\n", e.msg);
        return 0;
    }
    fail(err, r, "GuestsRun", "guests were not stopped: %s", e.msg);
    err_hint(err, "--keep-guests leaves them running, --force goes on anyway");
    return r;
}

/* Namespaces, responders and rules that outlive vpcd for the guests' sake: nobody needs them
 * now. */
static int remove_networks(struct spx *s, struct err *err)
{
    const char *exe = NULL;
    if (spx_is_set(s, "--keep-guests") || !config_has_service(s->cfg, "vpcd")) {
        return 0;
    }
    int r = find_exe(s->arena, "vpcd", &exe, err);
    if (r < 0) {
        return r;
    }
    const char *const argv[] = {exe, "--config", s->cfg->path, "--teardown", NULL};
    const struct child_opts o = {.argv = argv};
    r = child_run(&o, TEARDOWN_LIMIT, NULL, err);
    return r < 0 ? err_context(err, r, "taking the networks away") : 0;
}

/* Services that systemd started, or nobody: their guests are shut down, they themselves are not
 * ours to stop. */
static int down_without_supervisor(struct spx *s, struct err *err)
{
    struct err e = ERR_INIT;
    const char *sock = config_run_path(s->arena, s->cfg, "compute.sock");
    bool is_up = spx_check_socket(sock, &e) == 0;
    int r = is_up ? stop_guests_first(s, err) : 0;
    if (r == 0) {
        fputs(is_up ? "guests are stopped; 'spx up' did not start the services, so they go on: "
                      "systemctl stop spinifex.target\n"
                    : "no services of 'spx up' are running\n",
              stderr);
    }
    return r;
}

int cmd_down(struct spx *s, struct err *err)
{
    uint64_t seconds = 0;
    pid_t pid = 0;
    struct err e = ERR_INIT;
    int r = spx_number(s, "--timeout", 1, 3600, 240, &seconds);
    r = r ? r : spx_config(s, err);
    r = r || !s->cfg->uid_base ? r : spx_need_root(s, err);
    if (r) {
        return r;
    }
    int lock = take_lock(s, 0, &pid, &e);
    if (lock >= 0 || lock == -ENOENT) {
        if (lock >= 0) {
            close(lock);
        }
        return down_without_supervisor(s, err);
    }
    if (lock != -EBUSY || pid <= 0) {
        return fail(err, lock, e.name, "%s", e.msg);
    }
    r = stop_guests_first(s, err);
    if (r < 0) {
        return r;
    }
    if (kill(pid, SIGTERM) < 0) {
        return fail(err, -errno, "StopFailed", "ending process %d: %m", (int)pid);
    }
    uint64_t end = time_mono_ns() + seconds * NS_PER_S;
    while (time_mono_ns() < end) {
        const struct timespec wait = {.tv_nsec = 100000000};
        nanosleep(&wait, NULL);
        err_clear(&e);
        lock = take_lock(s, 0, &pid, &e);
        if (lock != -EBUSY) {
            if (lock >= 0) {
                close(lock);
            }
            r = remove_networks(s, err);
            if (r == 0) {
                fputs("services stopped, data kept\n", stderr);
            }
            return r;
        }
    }
    return fail(err, -ETIMEDOUT, "StopFailed", "process %d still runs", (int)pid);
}
