#include "compute/spawn.h"
#include "base/file.h"
#include "base/log.h"
#include "compute/console_log.h"
#include "compute/mon_int.h"
#include "os/cgroup.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

LOG_MODULE("compute.spawn");

#define GUEST_SLICE  "spinifex-guests.slice"
#define MAX_FDS      CHILD_MAX_FDS
#define GUEST_UID    100u
#define GUEST_NOFILE 4096u /* sixteen disks of eight queues have two event descriptors each */

uid_t spawn_uid(const struct spawn_host *h, uint64_t uid_slot)
{
    return h->uid_base ? (uid_t)(h->uid_base + GUEST_UID + uid_slot) : geteuid();
}

/* A listening socket <dir>/<name> that only 'uid' (and root) can connect to. */
static int listen_on(const char *dir, const char *name, int type, uid_t uid, int *ret_fd,
                     struct err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s", dir, name) >=
        (int)sizeof(at.sun_path)) {
        return fail(err, -ENAMETOOLONG, "BadConfig", "%s/%s is too long for a socket", dir,
                    name);
    }
    AUTO_FD fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return fail(err, -errno, "SocketFailed", "%m");
    }
    (void)unlink(at.sun_path);
    /* The folder lets nobody but root make or replace names; the mode is set before anyone can
     * connect. */
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || chmod(at.sun_path, 0600) < 0 ||
        chown(at.sun_path, uid, (gid_t)-1) < 0 || listen(fd, 4) < 0) {
        return fail(err, -errno, "SocketFailed", "%s: %m", at.sun_path);
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

static int connect_to(const char *dir, int *ret_fd)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (snprintf(to.sun_path, sizeof(to.sun_path), "%s/mon.sock", dir) >=
        (int)sizeof(to.sun_path)) {
        return -ENAMETOOLONG;
    }
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -errno;
    }
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        return -errno;
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* Descriptors on their way into a child; those that are ours are closed at the end. */
struct fds {
    struct child_fd v[MAX_FDS];
    bool is_own[MAX_FDS];
    size_t n;
};

static void fds_done(struct fds *f)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->is_own[i]) {
            close(f->v[i].fd);
        }
    }
}

/* Returns the number that 'fd' gets in the child, or -EMFILE. */
static int fds_add(struct fds *f, int fd, bool is_own)
{
    if (f->n == MAX_FDS) {
        if (is_own) {
            close(fd);
        }
        return -EMFILE;
    }
    int target = MON_FD_LISTEN + (int)f->n;
    f->v[f->n] = (struct child_fd){.fd = fd, .target = target};
    f->is_own[f->n] = is_own;
    f->n++;
    return target;
}

/* The monitor's own three: MON_FD_LISTEN, MON_FD_LOG, MON_FD_LOG_OLD. */
static int add_monitor_fds(struct fds *f, const char *run, const char *data, struct err *err)
{
    int fd = -1, log_fd = -1, old_fd = -1;
    int r = listen_on(run, "mon.sock", SOCK_SEQPACKET, geteuid(), &fd, err);
    if (r < 0) {
        return r;
    }
    (void)fds_add(f, fd, true);
    r = console_log_open(data, &log_fd, &old_fd, err);
    if (r < 0) {
        return r;
    }
    (void)fds_add(f, log_fd, true);
    (void)fds_add(f, old_fd, true);
    return 0;
}

static int add_socket(struct fds *f, const char *run, const char *name, uid_t uid, int *ret,
                      struct err *err)
{
    int fd = -1;
    int r = listen_on(run, name, SOCK_STREAM, uid, &fd, err);
    if (r < 0) {
        return r;
    }
    *ret = fds_add(f, fd, true);
    return *ret < 0 ? fail(err, *ret, "BadLaunch", "too many descriptors") : 0;
}

/* The instance's own copy of the firmware's variables, made at the first start. */
static int open_vars(const char *data, const char *firmware, int *ret_fd, struct err *err)
{
    char path[GUEST_DATA_PATH_MAX + 16], from[256];
    (void)snprintf(path, sizeof(path), "%s/vars.fd", data);
    if (access(path, F_OK) < 0) {
        /* .../OVMF_CODE_4M.fd -> .../OVMF_VARS_4M.fd */
        ptrdiff_t at = str_find_str(str_c(firmware), STR("_CODE"));
        if (at < 0 || snprintf(from, sizeof(from), "%.*s_VARS%s", (int)at, firmware,
                               firmware + at + 5) >= (int)sizeof(from)) {
            return fail(err, -EINVAL, "BadLaunch", "%s has no file of variables", firmware);
        }
        AUTO_FREE char *bytes = NULL;
        size_t n = 0;
        int r = file_read(from, 4u << 20, &bytes, &n, err);
        if (r == 0) {
            r = file_write_atomic(path, str_n(bytes, n), 0600, err);
        }
        if (r < 0) {
            return r;
        }
    }
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    *ret_fd = fd;
    return 0;
}

static int add_qemu_fds(struct fds *f, struct qemu_launch *q, const char *run, const char *data,
                        uid_t uid, struct err *err)
{
    int r = add_socket(f, run, "qmp.sock", uid, &q->qmp_fd, err);
    if (r == 0) {
        r = add_socket(f, run, "console.sock", uid, &q->console_fd, err);
    }
    if (r == 0 && q->is_uefi) {
        int fd = -1;
        r = open_vars(data, q->firmware, &fd, err);
        if (r == 0) {
            q->vars_fd = fds_add(f, fd, true);
        }
    }
    if (r < 0) {
        return r;
    }
    bool is_full = false;
    for (unsigned i = 0; i < GM_N_NICS; i++) {
        for (size_t k = 0; k < q->nic[i].n_queues; k++) {
            q->nic[i].fds[k] = fds_add(f, q->nic[i].fds[k], false);
            is_full = is_full || q->nic[i].fds[k] < 0;
        }
    }
    return is_full ? fail(err, -EMFILE, "BadLaunch", "too many descriptors for one guest") : 0;
}

/* QEMU writes its pid there; the folder is root's, so the file is made for it. */
static int make_pid_file(const char *run, uid_t uid, char path[GUEST_PATH_MAX + 16],
                         struct err *err)
{
    (void)snprintf(path, GUEST_PATH_MAX + 16, "%s/qemu.pid", run);
    AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchown(fd, uid, (gid_t)-1) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    return 0;
}

/* An empty group may be swept away between making and entering it: once more then. */
static int spawn_in_cgroup(struct child_opts *o, const char *id, pid_t *ret_pid,
                           struct err *err)
{
    struct err why = ERR_INIT;
    for (unsigned i = 0; i < 2; i++) {
        AUTO_FD fd = -1;
        err_clear(&why);
        if (cgroup_make(GUEST_SLICE, id, &fd, &why) < 0) {
            break; /* this host has none: the guest stays in the service's group */
        }
        o->cgroup_procs_fd = fd;
        if (child_spawn(o, ret_pid, &why) == 0) {
            return 0;
        }
    }
    log_warn_rl("cgroup.failed", KV_CSTR("id", id), KV_ERR(&why));
    o->cgroup_procs_fd = 0;
    return child_spawn(o, ret_pid, err);
}

static int run_monitor(const struct spawn_host *h, struct guest_note *note, const char *run,
                       const struct fds *f, const char *const *argv, struct err *err)
{
    char path[GUEST_PATH_MAX + 16];
    (void)snprintf(path, sizeof(path), "%s/monitor.log", run);
    AUTO_FD log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log_fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    const gid_t groups[] = {h->kvm_gid};
    struct child_opts o = {
        .argv = argv,
        .path = h->monitor_path,
        .err_fd = log_fd,
        .fds = f->v,
        .n_fds = f->n,
        .is_user_set = h->uid_base != 0,
        .uid = note->uid,
        .gid = note->uid,
        .groups = groups,
        .n_groups = h->kvm_gid ? 1 : 0,
        .has_new_session = true,
        .has_no_new_privs = true,
        .has_no_core = true,
        .max_files = GUEST_NOFILE,
    };
    pid_t pid = 0;
    int r = spawn_in_cgroup(&o, note->id, &pid, err);
    if (r < 0) {
        return r;
    }
    r = proc_id_of(pid, &note->monitor);
    return r < 0 ? fail(err, r, "SpawnFailed", "the guest's monitor ended at once") : 0;
}

static int make_folders(const struct spawn_host *h, const char *id, char run[GUEST_PATH_MAX],
                        char data[GUEST_DATA_PATH_MAX], struct err *err)
{
    if (!guest_id_is_ok(str_c(id))) {
        return fail(err, -EINVAL, "BadLaunch", "\"%s\" is no instance id", id);
    }
    int r = guest_run_path(&h->dirs, id, run, err);
    if (r == 0) {
        r = guest_data_path(&h->dirs, id, data, err);
    }
    if (r == 0) {
        r = file_mkdirs(data, 0700, err);
    }
    if (r == 0) {
        r = file_mkdirs(run, 0711, err); /* the guest's user connects to its own sockets in it,
                                            and sees nothing else */
    }
    return r;
}

static int monitor_argv(struct arena *a, const char *mode, const char *run,
                        const char *const *rest, const char *const **ret, struct err *err)
{
    size_t n = 0;
    while (rest[n]) {
        n++;
    }
    const char **v = arena_array(a, n + 4, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "BadLaunch", "no room for a command line");
    }
    v[0] = "spx-guestmon";
    v[1] = mode;
    v[2] = run;
    memcpy(&v[3], rest, (n + 1) * sizeof(*v));
    *ret = v;
    return 0;
}

/* The middle of spawn_guest(): on failure its caller clears up. */
static int spawn_in(const struct spawn_host *h, struct spawn_plan *plan, struct fds *f,
                    const char *run, const char *data, int *ret_conn_fd, struct err *err)
{
    struct qemu_launch q = plan->qemu;
    struct guest_note *note = &plan->note;
    char pid_file[GUEST_PATH_MAX + 16];
    int r = add_monitor_fds(f, run, data, err);
    if (r == 0) {
        r = add_qemu_fds(f, &q, run, data, note->uid, err);
    }
    if (r == 0) {
        r = make_pid_file(run, note->uid, pid_file, err);
    }
    if (r < 0) {
        return r;
    }
    q.pid_file = pid_file;
    AUTO(arena_freep) struct arena *a = arena_new(256u << 10);
    const char *const *qemu_argv = NULL, *const *argv = NULL;
    r = qemu_args(a, &q, &qemu_argv, err);
    if (r == 0) {
        /* The program may lie elsewhere than in PATH (tests, own builds). */
        const char **v = NULL;
        r = monitor_argv(a, "start", run, qemu_argv, &argv, err);
        if (r == 0 && h->qemu_path) {
            memcpy(&v, &argv, sizeof(v));
            v[3] = h->qemu_path;
        }
    }
    if (r == 0) {
        r = guest_note_write(&h->dirs, note,
                             err); /* before the first process: a crash from here on is found */
    }
    if (r == 0) {
        r = run_monitor(h, note, run, f, argv, err);
    }
    if (r < 0) {
        return r;
    }
    r = connect_to(run, ret_conn_fd);
    if (r < 0) {
        return fail(err, r, "SpawnFailed", "the guest's monitor cannot be reached");
    }
    return guest_note_write(&h->dirs, note, err);
}

int spawn_guest(const struct spawn_host *h, struct spawn_plan *plan, int *ret_conn_fd,
                struct err *err)
{
    char run[GUEST_PATH_MAX], data[GUEST_DATA_PATH_MAX];
    struct guest_note *note = &plan->note;
    note->uid = spawn_uid(h, note->uid_slot);
    note->monitor = note->qemu = (struct proc_id){0};
    (void)snprintf(note->boot_id, sizeof(note->boot_id), "%s", h->boot_id);
    int r = make_folders(h, note->id, run, data, err);
    if (r < 0) {
        return r;
    }
    struct fds f = {.n = 0};
    AUTO_FD conn = -1;
    r = spawn_in(h, plan, &f, run, data, &conn, err);
    fds_done(&f);
    if (r < 0) {
        if (note->monitor.pid) {
            (void)proc_kill(&note->monitor);
            spawn_kill(h, note);
        }
        guest_run_remove(&h->dirs, note->id);
        cgroup_remove(GUEST_SLICE, note->id);
        return r;
    }
    *ret_conn_fd = steal_fd(&conn);
    return 0;
}

/* Whether the process 'pid' is the QEMU of this guest: its user, and its own name for the
 * guest. */
static bool is_our_qemu(const struct guest_note *note, pid_t pid, struct proc_id *ret)
{
    char path[64], text[1024], want[GUEST_ID_MAX + 16];
    struct stat st;
    struct proc_id id;
    if (proc_id_of(pid, &id) < 0) {
        return false;
    }
    if (note->qemu.pid == pid && note->qemu.start != id.start) {
        return false; /* the number was given to another process since */
    }
    (void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    if (stat(path, &st) < 0 || st.st_uid != note->uid) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    if (n <= 0) {
        return false;
    }
    /* argv[0] "-name" "guest=<id>,debug-threads=on": the first three, as qemu_args() writes
     * them */
    (void)snprintf(want, sizeof(want), "guest=%s,", note->id);
    struct str rest = str_n(text, (size_t)n), arg = STR_NONE;
    for (unsigned i = 0; i < 3; i++) {
        if (!str_next(&rest, '\0', &arg)) {
            return false;
        }
    }
    if (!str_has_prefixc(arg, want) || !proc_is_alive(&id)) {
        return false;
    }
    *ret = id;
    return true;
}

static bool find_qemu(const struct spawn_host *h, const struct guest_note *note,
                      struct proc_id *ret)
{
    pid_t pid = note->qemu.pid;
    if (!pid && guest_pid_read(&h->dirs, note->id, &pid) < 0) {
        return false;
    }
    return is_our_qemu(note, pid, ret);
}

void spawn_kill(const struct spawn_host *h, const struct guest_note *note)
{
    struct proc_id id;
    if (find_qemu(h, note, &id)) {
        log_warn("qemu.killed", KV_CSTR("id", note->id), KV_I64("pid", id.pid));
        (void)proc_kill(&id);
    }
}

void spawn_kill_all(const struct spawn_host *h, const struct guest_note *note)
{
    struct err err = ERR_INIT;
    int n = cgroup_kill(GUEST_SLICE, note->id, &err);
    log_warn("guest.killed", KV_CSTR("id", note->id), KV_I64("processes", n));
    if (n <= 0) {
        (void)proc_kill(&note->monitor);
        spawn_kill(h, note);
    }
}

void spawn_sweep(void)
{
    cgroup_sweep(GUEST_SLICE);
}

void spawn_forget(const char *id)
{
    cgroup_remove(GUEST_SLICE, id);
}

static int new_monitor(const struct spawn_host *h, struct guest_note *note, const char *run,
                       const char *data, int *ret_conn_fd, struct err *err)
{
    struct fds f = {.n = 0};
    int r = add_monitor_fds(&f, run, data, err);
    if (r == 0) {
        AUTO(arena_freep) struct arena *a = arena_new(16u << 10);
        char pid[24], start[24];
        (void)snprintf(pid, sizeof(pid), "%d", (int)note->qemu.pid);
        (void)snprintf(start, sizeof(start), "%llu", (unsigned long long)note->qemu.start);
        const char *const rest[] = {pid, start, NULL};
        const char *const *argv = NULL;
        r = monitor_argv(a, "adopt", run, rest, &argv, err);
        if (r == 0) {
            r = run_monitor(h, note, run, &f, argv, err);
        }
    }
    fds_done(&f);
    if (r == 0) {
        r = connect_to(run, ret_conn_fd);
        if (r < 0) {
            (void)proc_kill(&note->monitor);
            return fail(err, r, "SpawnFailed", "the guest's new monitor cannot be reached");
        }
        r = guest_note_write(&h->dirs, note, err);
    }
    return r;
}

int spawn_adopt(const struct spawn_host *h, const char *id, enum spawn_found *ret,
                struct guest_note *ret_note, int *ret_conn_fd, struct err *err)
{
    char run[GUEST_PATH_MAX], data[GUEST_DATA_PATH_MAX];
    struct guest_note note;
    struct err why = ERR_INIT;
    int r = guest_note_read(&h->dirs, id, &note, &why);
    if (r < 0) {
        if (r != -ENOENT) {
            log_warn("note.bad", KV_CSTR("id", id), KV_ERR(&why));
        }
        *ret = SPAWN_NOTHING;
        return 0;
    }
    *ret_note = note;
    if (strcmp(note.boot_id, h->boot_id) != 0) {
        *ret = SPAWN_NOTHING; /* all its processes went with that boot */
        return 0;
    }
    r = make_folders(h, id, run, data, err);
    if (r < 0) {
        return r;
    }
    if (connect_to(run, ret_conn_fd) == 0) {
        *ret = SPAWN_CONNECTED;
        return 0;
    }
    if (note.monitor.pid && proc_is_alive(&note.monitor)) {
        return fail(err, -EAGAIN, "MonitorBusy", "the monitor of %s lives but does not answer",
                    id);
    }
    if (!find_qemu(h, &note, &note.qemu)) {
        /* The note is written before the first process: perhaps nothing was started yet. */
        pid_t pid = 0;
        bool has_begun =
            note.monitor.pid || note.qemu.pid || guest_pid_read(&h->dirs, id, &pid) == 0;
        *ret = has_begun ? SPAWN_GONE : SPAWN_NOTHING;
        return 0;
    }
    log_warn("monitor.lost", KV_CSTR("id", id), KV_I64("qemu", note.qemu.pid));
    r = new_monitor(h, &note, run, data, ret_conn_fd, err);
    if (r < 0) {
        return r;
    }
    *ret_note = note;
    *ret = SPAWN_CONNECTED;
    return 0;
}
