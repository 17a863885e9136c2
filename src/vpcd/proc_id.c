#include "vpcd/proc_id.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>

/* Field 22 of /proc/<pid>/stat: clock ticks after boot; the name in field 2 may hold anything
 * but ends at the last ')'. */
static int start_time(pid_t pid, uint64_t *ret)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    if (file_read(path, 4096, &text, &n, NULL)) {
        return -ESRCH;
    }
    const char *end = memrchr(text, ')', n);
    if (!end) {
        return -ESRCH;
    }
    struct str rest = str_trim(str_skip(str_n(text, n), (size_t)(end - text) + 1)),
               field = STR_NONE;
    for (int i = 3; i <= 22; i++) {
        if (!str_next(&rest, ' ', &field)) {
            return -ESRCH;
        }
        if (i == 3 && (str_eqc(field, "Z") || str_eqc(field, "X"))) {
            return -ESRCH;
        }
    }
    return num_u64(field, UINT64_MAX, ret) ? -ESRCH : 0;
}

int proc_id_save(const char *path, pid_t pid, struct err *err)
{
    uint64_t start = 0;
    int r = start_time(pid, &start);
    if (r) {
        return fail(err, r, "NoSuchProcess", "process %d is gone", (int)pid);
    }
    char text[64];
    int n = snprintf(text, sizeof(text), "%d %llu\n", (int)pid, (unsigned long long)start);
    return file_write_atomic(path, str_n(text, (size_t)n), 0600, err);
}

int proc_id_open(const char *path, pid_t *ret_pid, int *ret_pidfd, struct err *err)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    uint64_t pid = 0, start = 0, now = 0;
    if (file_read(path, 128, &text, &n, NULL)) {
        return fail(err, -ESRCH, "NoSuchProcess", "%s is not there", path);
    }
    struct str first = str_cut(str_n(text, n), ' ');
    if (num_u64(first, INT32_MAX, &pid) ||
        num_u64(str_trim(str_skip(str_n(text, n), first.n + 1)), UINT64_MAX, &start)) {
        return fail(err, -ESRCH, "NoSuchProcess", "%s names no process", path);
    }
    AUTO_FD fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    /* The descriptor first, then the look: from here on it cannot become another process. */
    if (fd < 0 || start_time((pid_t)pid, &now) || now != start) {
        return fail(err, -ESRCH, "NoSuchProcess", "process %d is gone", (int)pid);
    }
    *ret_pid = (pid_t)pid;
    *ret_pidfd = steal_fd(&fd);
    return 0;
}
