/* spx-guestmon — the monitor of one guest. Started by spx-compute with descriptors
 * MON_FD_LISTEN ...: spx-guestmon start <folder> <QEMU program> <argument> ...     starts QEMU
 * and watches it spx-guestmon adopt <folder> <pid> <start time>                watches a QEMU
 * whose monitor was killed */
#include "base/log.h"
#include "base/num.h"
#include "base/time.h"
#include "compute/mon_int.h"
#include "loop/child.h"
#include "os/proc_id.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

LOG_MODULE("guestmon");

#define FILE_MAX    (4u << 20) /* no file that we write becomes larger, whatever happens */
#define MAX_QEMU_FD CHILD_MAX_FD

int mon_connect(const struct mon *m, const char *name)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (snprintf(to.sun_path, sizeof(to.sun_path), "%s/%s", m->dir, name) >=
        (int)sizeof(to.sun_path)) {
        return -ENAMETOOLONG;
    }
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -errno;
    }
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        return -errno;
    }
    return steal_fd(&fd);
}

void mon_kill(struct mon *m)
{
    if (m->pid_fd >= 0 && m->st.phase != GM_PHASE_EXITED) {
        (void)syscall(SYS_pidfd_send_signal, m->pid_fd, SIGKILL, NULL, 0);
    }
}

/* Everything from MON_FD_QEMU on is QEMU's; our copies are closed after the start, or a volume
 * would stay locked and a tap open when QEMU lets go of it. */
static size_t qemu_fds(struct child_fd fds[CHILD_MAX_FDS])
{
    size_t n = 0;
    for (int fd = MON_FD_QEMU; fd <= MAX_QEMU_FD && n < CHILD_MAX_FDS - 1; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) {
            fds[n++] = (struct child_fd){.fd = fd, .target = fd};
        }
    }
    return n;
}

static int start_qemu(struct mon *m, char *const *argv, struct err *err)
{
    struct child_fd fds[CHILD_MAX_FDS];
    size_t n_fds = qemu_fds(fds);
    int err_pipe[2];
    if (pipe2(err_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        return fail(err, -errno, "SpawnFailed", "pipe: %m");
    }
    /* Above all numbers that QEMU gets. */
    AUTO_FD out = fcntl(err_pipe[1], F_DUPFD_CLOEXEC, MAX_QEMU_FD + 1);
    close(err_pipe[1]);
    m->err_fd = fcntl(err_pipe[0], F_DUPFD_CLOEXEC, MAX_QEMU_FD + 1);
    close(err_pipe[0]);
    const struct child_opts o = {
        .argv = (const char *const *)argv,
        .err_fd = out,
        .out_fd = out,
        .fds = fds,
        .n_fds = n_fds,
        .has_new_session = true,
        .has_no_new_privs = true,
        .has_no_core = true,
    };
    pid_t pid = 0;
    int r = child_spawn(&o, &pid, err);
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i].fd);
    }
    if (r < 0) {
        return r;
    }
    m->is_child = true;
    m->st.qemu_pid = pid;
    return 0;
}

static int find_qemu(struct mon *m, const char *pid, const char *start, struct err *err)
{
    uint64_t p = 0, s = 0;
    if (num_u64(str_c(pid), INT32_MAX, &p) < 0 || num_u64(str_c(start), UINT64_MAX, &s) < 0) {
        return fail(err, -EINVAL, "BadArguments", "\"%s\" \"%s\" name no process", pid, start);
    }
    m->st.qemu_pid = (int32_t)p;
    m->st.qemu_start = s;
    m->st.is_adopted = 1;
    return 0;
}

static int open_qemu(struct mon *m, struct err *err)
{
    struct proc_id id = {.pid = m->st.qemu_pid, .start = m->st.qemu_start};
    if (m->is_child) {
        int r = proc_id_of(id.pid, &id);
        if (r < 0) {
            return fail(err, r, "SpawnFailed", "QEMU has gone at once");
        }
        m->st.qemu_start = id.start;
    }
    int r = proc_open(&id, &m->pid_fd);
    if (r == -ESRCH && !m->is_child) {
        m->st.phase = GM_PHASE_EXITED;
        m->st.exit = GM_EXIT_UNKNOWN;
        return 0;
    }
    return r < 0 ? fail(err, r, "SpawnFailed", "QEMU cannot be watched") : 0;
}

static void on_qemu_end(struct mon *m)
{
    int status = 0;
    bool is_known = m->is_child && waitpid(m->st.qemu_pid, &status, WNOHANG) == m->st.qemu_pid;
    if (m->is_child && !is_known && errno != ECHILD) {
        return; /* not yet */
    }
    /* What it wrote last. */
    for (unsigned i = 0; i < 64 && m->con_fd >= 0; i++) {
        mon_console_read(m);
    }
    for (unsigned i = 0; i < 8 && m->err_fd >= 0; i++) {
        mon_stderr_read(m);
    }
    mon_qmp_drop(m);
    m->st.phase = GM_PHASE_EXITED;
    m->st.is_qmp_ok = 0;
    m->st.is_driver_ok = 0;
    if (m->is_guest_off) {
        m->st.exit = GM_EXIT_GUEST;
    } else if (m->is_signalled) {
        m->st.exit = GM_EXIT_SIGNAL;
        m->st.exit_value = SIGTERM;
    } else if (m->is_quitting) {
        m->st.exit = GM_EXIT_QUIT;
    } else if (!is_known) {
        m->st.exit = GM_EXIT_UNKNOWN;
    } else if (WIFSIGNALED(status)) {
        m->st.exit = GM_EXIT_SIGNAL;
        m->st.exit_value = WTERMSIG(status);
    } else {
        m->st.exit = GM_EXIT_CODE;
        m->st.exit_value = WEXITSTATUS(status);
    }
    for (unsigned i = 0; i < GM_N_DISKS; i++) {
        m->st.slot[i] = GM_SLOT_EMPTY;
        m->st.is_busy[i] = 0;
        memset(m->st.name[i], 0, GM_NAME_MAX);
    }
    close(m->pid_fd);
    m->pid_fd = -1;
    m->is_state_new = true;
    m->is_done = m->is_host_down;
    log_info("qemu.ended", KV_U64("exit", m->st.exit), KV_I64("value", m->st.exit_value));
}

/* Milliseconds until something is due; QEMU's start is watched closely. */
static int wait_ms(const struct mon *m)
{
    if (m->st.phase == GM_PHASE_EXITED) {
        return 60000;
    }
    return m->qmp_fd < 0 || m->con_fd < 0 || m->kill_ns ? 50 : 500;
}

/* The host goes down and nobody has stopped the guests before: the power button, and the end by
 * force before the host's patience is over. */
void mon_host_down(struct mon *m)
{
    struct signalfd_siginfo info;
    if (read(m->sig_fd, &info, sizeof(info)) != (ssize_t)sizeof(info) || m->is_host_down) {
        return;
    }
    log_info("host.down", KV_U64("phase", m->st.phase));
    m->is_host_down = true;
    if (m->st.phase == GM_PHASE_EXITED) {
        m->is_done = true;
        return;
    }
    m->is_reboot_asked = false;
    m->kill_ns = m->now_ns + MON_HOST_NS;
    (void)mon_qmp_send(m, MON_CMD_IGNORE, 0, "system_powerdown", STR_NONE);
}

static void turn(struct mon *m)
{
    enum { AT_LISTEN, AT_CONN, AT_QMP, AT_CON, AT_ERR, AT_PID, AT_SIG, AT_N };
    struct pollfd p[AT_N] = {
        [AT_LISTEN] = {.fd = m->listen_fd, .events = POLLIN},
        [AT_CONN] = {.fd = m->conn_fd, .events = POLLIN},
        [AT_QMP] = {.fd = m->qmp_fd, .events = POLLIN},
        [AT_CON] = {.fd = m->con_fd, .events = POLLIN},
        [AT_ERR] = {.fd = m->err_fd, .events = POLLIN},
        [AT_PID] = {.fd = m->pid_fd, .events = POLLIN},
        [AT_SIG] = {.fd = m->sig_fd, .events = POLLIN},
    };
    (void)poll(p, AT_N, m->is_state_new ? 0 : wait_ms(m));
    m->now_ns = time_mono_ns();
    if (p[AT_CON].revents && m->con_fd >= 0) {
        mon_console_read(m);
    }
    if (p[AT_ERR].revents && m->err_fd >= 0) {
        mon_stderr_read(m);
    }
    if (p[AT_QMP].revents && m->qmp_fd >= 0) {
        mon_qmp_read(m);
    }
    if (p[AT_CONN].revents && m->conn_fd >= 0) {
        mon_client_read(m);
    }
    if (p[AT_LISTEN].revents) {
        mon_accept(m);
    }
    if (p[AT_SIG].revents) {
        mon_host_down(m);
    }
    if (p[AT_PID].revents && m->pid_fd >= 0) {
        on_qemu_end(m);
    }
    if (m->st.phase != GM_PHASE_EXITED) {
        if (m->con_fd < 0 && m->now_ns >= m->next_con_ns) {
            mon_console_connect(m);
        }
        /* The serial port first: nothing the guest says at its start shall be missed. */
        if (m->con_fd >= 0 || m->qmp_fd >= 0) {
            mon_qmp_tick(m);
        }
    }
    if (m->is_state_new) {
        mon_send_state(m);
    }
}

/* The service learns why, as it learns of any other end. */
static void never_started(struct mon *m, const struct err *err)
{
    log_error("qemu.not_started", KV_ERR(err));
    if (m->is_child) {
        (void)kill(m->st.qemu_pid, SIGKILL);
        (void)waitpid(m->st.qemu_pid, NULL, 0);
    }
    struct gm_result text;
    gm_result_init(&text, 0, 0, err->msg); /* makes it printable */
    memcpy(m->st.text, text.text, sizeof(m->st.text));
    m->st.phase = GM_PHASE_EXITED;
    m->st.exit = GM_EXIT_CODE;
    m->st.exit_value = 127;
    m->st.qemu_pid = 0;
}

static int set_up(struct mon *m, int argc, char **argv, struct err *err)
{
    bool is_start = argc >= 4 && strcmp(argv[1], "start") == 0;
    if (!is_start && !(argc == 5 && strcmp(argv[1], "adopt") == 0)) {
        return fail(err, -EINVAL, "BadArguments",
                    "use: spx-guestmon start|adopt ... (by spx-compute only)");
    }
    m->dir = argv[2];
    int r = console_log_init(&m->log, MON_FD_LOG, MON_FD_LOG_OLD, CONSOLE_FILE_MAX);
    if (r < 0) {
        return fail(err, r, "BadArguments", "the descriptors of the console log are missing");
    }
    /* Descriptors of the monitor must not reach QEMU. */
    for (int fd = MON_FD_LISTEN; fd <= MON_FD_LOG_OLD; fd++) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    r = is_start ? start_qemu(m, argv + 3, err) : find_qemu(m, argv[3], argv[4], err);
    if (r == 0) {
        r = open_qemu(m, err);
    }
    if (r < 0 && is_start) {
        never_started(m, err);
    } else if (r < 0) {
        return r;
    }
    sigset_t term;
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &term, NULL); /* after QEMU has inherited the mask */
    m->sig_fd = signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
    if (m->sig_fd < 0) {
        return fail(err, -errno, "SandboxFailed", "signalfd: %m");
    }
    struct rlimit file_max = {.rlim_cur = FILE_MAX, .rlim_max = FILE_MAX};
    (void)setrlimit(RLIMIT_FSIZE, &file_max);
    r = mon_sandbox();
    return r < 0 ? fail(err, r, "SandboxFailed", "the kernel refused the seccomp filter") : 0;
}

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    log_init("guestmon", LOG_LEVEL_INFO);
    struct mon m = {
        .listen_fd = MON_FD_LISTEN,
        .conn_fd = -1,
        .qmp_fd = -1,
        .con_fd = -1,
        .err_fd = -1,
        .pid_fd = -1,
        .sig_fd = -1,
        .now_ns = time_mono_ns(),
    };
    gm_state_init(&m.st);
    struct err err = ERR_INIT;
    if (set_up(&m, argc, argv, &err) < 0) {
        log_error("start.failed", KV_ERR(&err));
        if (m.is_child) {
            (void)kill(m.st.qemu_pid, SIGKILL);
        }
        return 1;
    }
    m.last_answer_ns = m.now_ns;
    while (!m.is_done) {
        turn(&m);
    }
    /* Not exit(): what runs at exit (leak checks of test builds) needs more than the sandbox
     * allows. */
    _exit(0);
}
