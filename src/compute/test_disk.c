#include "compute/test_disk.h"
#include "base/test.h"
#include "base/time.h"
#include "loop/child.h"
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_NS (UINT64_C(20) * NS_PER_S)

bool test_disk_open(struct test_disks *t, const char *file, const char *path,
                    const char *volume_id)
{
    const char *const argv[] = {t->server, file, path, volume_id, NULL};
    const struct child_opts o = {.argv = argv, .err_fd = 2};
    struct err err = ERR_INIT;
    assert_true(t->n < sizeof(t->v) / sizeof(t->v[0]));
    (void)unlink(path);
    pid_t pid = 0;
    assert_int_equal(child_spawn(&o, &pid, &err), 0);
    for (uint64_t until = time_mono_ns() + START_NS; access(path, F_OK) < 0;) {
        if (waitpid(pid, NULL, WNOHANG) == pid) {
            return false;
        }
        assert_true(time_mono_ns() < until);
        (void)usleep(5000);
    }
    t->v[t->n].pid = pid;
    (void)snprintf(t->v[t->n].path, sizeof(t->v[0].path), "%s", path);
    (void)snprintf(t->v[t->n].file, sizeof(t->v[0].file), "%s", file);
    (void)snprintf(t->v[t->n].id, sizeof(t->v[0].id), "%s", volume_id);
    t->n++;
    return true;
}

void test_disk_close(struct test_disks *t, const char *path, bool is_killed)
{
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->v[i].path, path) == 0) {
            (void)kill(t->v[i].pid, is_killed ? SIGKILL : SIGTERM);
            (void)waitpid(t->v[i].pid, NULL, 0);
            (void)unlink(path);
            t->v[i] = t->v[--t->n];
            return;
        }
    }
}

void test_disks_done(struct test_disks *t)
{
    while (t->n > 0) {
        char path[108];
        memcpy(path, t->v[0].path, sizeof(path));
        test_disk_close(t, path, true);
    }
}
