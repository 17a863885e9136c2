#include "os/proc_id.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>

int proc_parse_stat(struct str text, uint64_t *ret_start, char *ret_state)
{
    /* The name in parentheses may hold spaces and parentheses: the last ')' ends it. */
    ptrdiff_t end = -1;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == ')') {
            end = (ptrdiff_t)i;
        }
    }
    if (end < 0 || (size_t)end + 2 >= text.n) {
        return -EINVAL;
    }
    text = str_trim(str_skip(text, (size_t)end + 2));
    struct str field = STR_NONE;
    for (unsigned i = 3; i <= 22; i++) {
        if (!str_next(&text, ' ', &field) || field.n == 0) {
            return -EINVAL;
        }
        if (i == 3) {
            *ret_state = field.p[0];
        }
    }
    return num_u64(field, UINT64_MAX, ret_start);
}

static int read_stat(pid_t pid, uint64_t *start, char *state)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -ESRCH;
    }
    ssize_t n = read(fd, text, sizeof(text));
    if (n <= 0) {
        return -ESRCH;
    }
    return proc_parse_stat(str_n(text, (size_t)n), start, state);
}

int proc_id_of(pid_t pid, struct proc_id *ret)
{
    char state = 0;
    uint64_t start = 0;
    if (pid <= 0) {
        return -ESRCH;
    }
    int r = read_stat(pid, &start, &state);
    if (r < 0) {
        return r;
    }
    *ret = (struct proc_id){.pid = pid, .start = start};
    return 0;
}

int proc_open(const struct proc_id *id, int *ret_pidfd)
{
    if (id->pid <= 0) {
        return -ESRCH;
    }
    AUTO_FD fd = (int)syscall(SYS_pidfd_open, id->pid, 0);
    if (fd < 0) {
        return errno == EINVAL ? -ESRCH : -errno;
    }
    /* The pidfd is fixed now: when the start time fits after that, it is the process that was
     * meant. */
    char state = 0;
    uint64_t start = 0;
    if (read_stat(id->pid, &start, &state) < 0 || start != id->start) {
        return -ESRCH;
    }
    *ret_pidfd = steal_fd(&fd);
    return 0;
}

static bool has_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

bool proc_is_alive(const struct proc_id *id)
{
    AUTO_FD fd = -1;
    return proc_open(id, &fd) == 0 && !has_ended(fd);
}

int proc_kill(const struct proc_id *id)
{
    AUTO_FD fd = -1;
    int r = proc_open(id, &fd);
    if (r < 0) {
        return r;
    }
    return syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) < 0 ? -errno : 0;
}

int proc_id_save(const char *path, pid_t pid, struct err *err)
{
    struct proc_id id;
    int r = proc_id_of(pid, &id);
    if (r < 0) {
        return fail(err, r, "NoSuchProcess", "process %d is gone", (int)pid);
    }
    char text[64];
    int n = snprintf(text, sizeof(text), "%d %llu\n", (int)pid, (unsigned long long)id.start);
    return file_write_atomic(path, str_n(text, (size_t)n), 0600, err);
}

int proc_id_open(const char *path, pid_t *ret_pid, int *ret_pidfd, struct err *err)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    uint64_t pid = 0, start = 0;
    if (file_read(path, 128, &text, &n, NULL) < 0) {
        return fail(err, -ESRCH, "NoSuchProcess", "%s is not there", path);
    }
    struct str first = str_cut(str_n(text, n), ' ');
    if (num_u64(first, INT32_MAX, &pid) < 0 ||
        num_u64(str_trim(str_skip(str_n(text, n), first.n + 1)), UINT64_MAX, &start) < 0) {
        return fail(err, -ESRCH, "NoSuchProcess", "%s names no process", path);
    }
    const struct proc_id id = {.pid = (pid_t)pid, .start = start};
    AUTO_FD fd = -1;
    if (proc_open(&id, &fd) < 0 || has_ended(fd)) {
        return fail(err, -ESRCH, "NoSuchProcess", "process %d is gone", (int)pid);
    }
    *ret_pid = id.pid;
    *ret_pidfd = steal_fd(&fd);
    return 0;
}
