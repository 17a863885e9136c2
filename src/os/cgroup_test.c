#include "base/test.h"
#include "os/cgroup.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_trees(void **state)
{
    static const struct {
        const char *name, *mounts, *unified, *systemd;
    } cases[] = {
        {"none", "proc /proc proc rw 0 0\n", "", ""},
        {"unified", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n", "/sys/fs/cgroup", ""},
        {"hybrid",
         "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"
         "cgroup /sys/fs/cgroup/systemd cgroup "
         "rw,xattr,name=systemd 0 0\n"
         "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
         "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"},
        {"the first wins", "a /one cgroup2 rw 0 0\nb /two cgroup2 rw 0 0\n", "/one", ""},
        {"escaped path", "a /o\\040ne cgroup2 rw 0 0\n", "", ""},
        {"short line", "a /one cgroup2\n", "", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char t[CGROUP_N_TREES][CGROUP_PATH_MAX];
        cgroup_trees(str_c(cases[i].mounts), t);
        if (strcmp(t[0], cases[i].unified) != 0 || strcmp(t[1], cases[i].systemd) != 0) {
            fail_msg("%s: \"%s\" \"%s\"", cases[i].name, t[0], t[1]);
        }
    }
}

static void test_bad_names_are_refused(void **state)
{
    int fd = -1;
    static const char *const bad[] = {"", "..", "a/b", ".hidden", "a b"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(cgroup_make("spinifex-test.slice", bad[i], &fd, NULL), -EINVAL);
    }
}

/* Where there are control groups that we may make (root): processes put in are ended with it. */
static void test_all_in_a_group_are_ended(void **state)
{
    char name[32];
    int procs = -1;
    struct err err = ERR_INIT;
    (void)snprintf(name, sizeof(name), "test-%d", (int)getpid());
    int r = cgroup_make("spinifex-test.slice", name, &procs, &err);
    if (r < 0) {
        assert_string_equal(err.name, "NoCgroup"); /* and guests stay where the service is */
        return;
    }
    pid_t pids[3];
    for (unsigned i = 0; i < 3; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            if (write(procs, "0", 1) != 1) {
                _exit(1);
            }
            for (;;) {
                pause();
            }
        }
    }
    /* They put themselves in, one sooner than the other; one that is just ending counts again. */
    for (unsigned i = 0; i < 3; i++) {
        int status = 0;
        pid_t ended = 0;
        while (ended == 0) {
            assert_true(cgroup_kill("spinifex-test.slice", name, &err) >= 0);
            usleep(10000);
            ended = waitpid(pids[i], &status, WNOHANG);
        }
        assert_int_equal(ended, pids[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    assert_int_equal(cgroup_kill("spinifex-test.slice", name, &err), 0);
    close(procs);
    cgroup_remove("spinifex-test.slice", name);
    assert_int_equal(cgroup_kill("spinifex-test.slice", name, &err), 0);
    assert_int_equal(cgroup_make("spinifex-test.slice", name, &procs, &err), 0);
    close(procs);
    cgroup_sweep("spinifex-test.slice"); /* empty: gone */
    assert_int_equal(cgroup_kill("spinifex-test.slice", name, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_bad_names_are_refused),
        cmocka_unit_test(test_all_in_a_group_are_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
