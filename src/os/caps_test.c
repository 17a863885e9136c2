/* Run as root it sees the drop; without root nothing can be added. */
#include "base/test.h"
#include "os/caps.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t permitted(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    assert_int_equal(syscall(SYS_capget, &head, data), 0);
    return data[0].permitted | (uint64_t)data[1].permitted << 32;
}

static void test_keeps_what_is_named_and_no_more(void **state)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        uint64_t keep = UINT64_C(1) << CAP_KILL | UINT64_C(1) << CAP_CHOWN;
        uint64_t before = permitted();
        bool is_right = caps_keep(keep, NULL) == 0 && permitted() == (before & keep) &&
                        (geteuid() != 0 || prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 0);
        /* It cannot be had back. */
        is_right =
            is_right && caps_keep(UINT64_MAX, NULL) == 0 && permitted() == (before & keep);
        _exit(is_right ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keeps_what_is_named_and_no_more)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
