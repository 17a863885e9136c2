#include "base/test.h"
#include "os/cgroup.h"
#include <errno.h>

static void test_trees(void **state)
{
    static const struct {
        const char *name, *mounts, *unified, *systemd;
    } cases[] = {
        {"none", "proc /proc proc rw 0 0\n", "", ""},
        {"unified", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n", "/sys/fs/cgroup", ""},
        {"hybrid",
         "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/systemd cgroup "
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_bad_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
