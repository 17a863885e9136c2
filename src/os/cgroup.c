#include "os/cgroup.h"
#include "base/file.h"
#include "base/num.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define MOUNTS_MAX  (1u << 20)
#define PROCS_MAX   (1u << 20)
#define KILL_ROUNDS 8u

/* Picks the trees that systemd moves processes in: cgroup2, and v1's name=systemd. */
void cgroup_trees(struct str mounts, char ret[CGROUP_N_TREES][CGROUP_PATH_MAX])
{
    ret[0][0] = ret[1][0] = '\0';
    struct str line;
    while (str_next(&mounts, '\n', &line)) {
        struct str dev, path, type, opts;
        if (!str_next(&line, ' ', &dev) || !str_next(&line, ' ', &path) ||
            !str_next(&line, ' ', &type) || !str_next(&line, ' ', &opts)) {
            continue;
        }
        int tree = -1;
        if (str_eqc(type, "cgroup2")) {
            tree = 0;
        } else if (str_eqc(type, "cgroup") && str_find_str(opts, STR("name=systemd")) >= 0) {
            tree = 1;
        }
        /* A path with an escape (a space in it) is nobody's control group. */
        if (tree < 0 || ret[tree][0] || path.n >= CGROUP_PATH_MAX / 2 ||
            str_find(path, '\\', 0) >= 0) {
            continue;
        }
        memcpy(ret[tree], path.p, path.n);
        ret[tree][path.n] = '\0';
    }
}

static bool is_name(const char *s)
{
    if (!*s || *s == '.' || strlen(s) > 100) {
        return false;
    }
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") ==
           strlen(s);
}

static int read_trees(char trees[CGROUP_N_TREES][CGROUP_PATH_MAX], struct err *err)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    int r = file_read("/proc/self/mounts", MOUNTS_MAX, &text, &n, err);
    if (r < 0) {
        return r;
    }
    cgroup_trees(str_n(text, n), trees);
    return 0;
}

static int make_in(const char *tree, const char *slice, const char *name, int *ret_fd)
{
    char path[CGROUP_PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", tree, slice) >= (int)sizeof(path)) {
        return -ENAMETOOLONG;
    }
    if (mkdir(path, 0755) < 0 && errno != EEXIST) {
        return -errno;
    }
    if (snprintf(path, sizeof(path), "%s/%s/%s", tree, slice, name) >= (int)sizeof(path)) {
        return -ENAMETOOLONG;
    }
    if (mkdir(path, 0755) < 0 && errno != EEXIST) {
        return -errno;
    }
    if (snprintf(path, sizeof(path), "%s/%s/%s/cgroup.procs", tree, slice, name) >=
        (int)sizeof(path)) {
        return -ENAMETOOLONG;
    }
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    *ret_fd = fd;
    return 0;
}

int cgroup_make(const char *slice, const char *name, int *ret_procs_fd, struct err *err)
{
    if (!is_name(slice) || !is_name(name)) {
        return fail(err, -EINVAL, "BadName", "\"%s/%s\" is no name of a control group", slice,
                    name);
    }
    char trees[CGROUP_N_TREES][CGROUP_PATH_MAX];
    int r = read_trees(trees, err);
    if (r < 0) {
        return r;
    }
    r = -ENOENT;
    for (unsigned i = 0; i < CGROUP_N_TREES && r < 0; i++) {
        if (trees[i][0]) {
            r = make_in(trees[i], slice, name, ret_procs_fd);
        }
    }
    if (r < 0) {
        errno = -r;
        return fail(err, -ENOENT, "NoCgroup", "no control group for guests could be made: %m");
    }
    return 0;
}

/* One round over cgroup.procs. Each process is held by a pidfd and looked up again before it is
 * killed: its number may be another's by then. */
static int kill_round(const char *path, struct err *err)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    int n_found = 0;
    int r = file_read(path, PROCS_MAX, &text, &n, err);
    if (r < 0) {
        return r;
    }
    struct str rest = str_n(text, n), line;
    while (rest.n && str_next(&rest, '\n', &line)) {
        uint64_t pid = 0;
        if (num_u64(line, INT32_MAX, &pid) < 0 || pid == 0) {
            continue;
        }
        AUTO_FD fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
        AUTO_FREE char *again = NULL;
        size_t again_n = 0;
        if (fd < 0 || file_read(path, PROCS_MAX, &again, &again_n, NULL) < 0) {
            continue;
        }
        struct str all = str_n(again, again_n), one;
        while (all.n && str_next(&all, '\n', &one)) {
            if (str_eq(one, line)) {
                n_found += syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
                break;
            }
        }
    }
    return n_found;
}

int cgroup_kill(const char *slice, const char *name, struct err *err)
{
    char trees[CGROUP_N_TREES][CGROUP_PATH_MAX];
    if (!is_name(slice) || !is_name(name)) {
        return fail(err, -EINVAL, "BadName", "\"%s/%s\" is no name of a control group", slice,
                    name);
    }
    int r = read_trees(trees, err), n_killed = 0;
    for (unsigned i = 0; i < CGROUP_N_TREES && r >= 0; i++) {
        char path[CGROUP_PATH_MAX];
        if (!trees[i][0] ||
            snprintf(path, sizeof(path), "%s/%s/%s/cgroup.procs", trees[i], slice, name) >=
                (int)sizeof(path) ||
            access(path, F_OK) < 0) {
            continue;
        }
        for (unsigned round = 0; round < KILL_ROUNDS; round++) {
            r = kill_round(path, err);
            if (r <= 0) {
                break;
            }
            n_killed += r;
        }
    }
    return r < 0 ? r : n_killed;
}

void cgroup_remove(const char *slice, const char *name)
{
    char trees[CGROUP_N_TREES][CGROUP_PATH_MAX];
    if (!is_name(slice) || !is_name(name) || read_trees(trees, NULL) < 0) {
        return;
    }
    for (unsigned i = 0; i < CGROUP_N_TREES; i++) {
        char dir[CGROUP_PATH_MAX];
        if (trees[i][0] &&
            snprintf(dir, sizeof(dir), "%s/%s/%s", trees[i], slice, name) < (int)sizeof(dir)) {
            (void)rmdir(dir); /* not empty or not there: nothing to do */
        }
    }
}

void cgroup_sweep(const char *slice)
{
    char trees[CGROUP_N_TREES][CGROUP_PATH_MAX];
    if (!is_name(slice) || read_trees(trees, NULL) < 0) {
        return;
    }
    for (unsigned i = 0; i < CGROUP_N_TREES; i++) {
        char path[CGROUP_PATH_MAX];
        if (!trees[i][0] ||
            snprintf(path, sizeof(path), "%s/%s", trees[i], slice) >= (int)sizeof(path)) {
            continue;
        }
        DIR *dir = opendir(path);
        const struct dirent *e;
        while (dir && (e = readdir(dir))) {
            if (e->d_type == DT_DIR && is_name(e->d_name)) {
                (void)unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR); /* only when empty */
            }
        }
        if (dir) {
            closedir(dir);
        }
    }
}
