/* A process is known again by pid and start time, also through a file, and no other is touched. */
#include "os/proc_id.h"

#include "base/file.h"
#include "base/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_stat_text(void **state)
{
    static const struct {
        const char *text;
        int r;
        uint64_t start;
        char state;
    } cases[] = {
        {"12 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20\n", 0, 4711, 'S'},
        {"12 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 99 20\n", 0, 99, 'R'},
        {"12 (a) S 1 2 3\n", -EINVAL, 0, 0},
        {"12 a S 1 2 3\n", -EINVAL, 0, 0},
        {"", -EINVAL, 0, 0},
        {"12 (a)", -EINVAL, 0, 0},
        {"12 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x 20\n", -EINVAL, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t start = 0;
        char s = 0;
        assert_int_equal(proc_parse_stat(str_c(cases[i].text), &start, &s), cases[i].r);
        if (cases[i].r == 0) {
            assert_int_equal(start, cases[i].start);
            assert_int_equal(s, cases[i].state);
        }
    }
}

static void test_only_the_same_process_is_killed(void **state)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    struct proc_id id, other;
    assert_int_equal(proc_id_of(pid, &id), 0);
    other = id;
    other.start++;
    assert_true(proc_is_alive(&id));
    assert_false(proc_is_alive(&other));
    assert_int_equal(proc_kill(&other), -ESRCH);
    assert_true(proc_is_alive(&id));
    assert_int_equal(proc_kill(&id), 0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_false(proc_is_alive(&id)); /* a zombie */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(proc_kill(&id), -ESRCH);
    const struct proc_id none = {0};
    assert_int_equal(proc_kill(&none), -ESRCH);
}

static void test_files_that_name_no_process(void **state)
{
    char dir[] = "/tmp/spx-proc-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/pid", dir);
    static const char *const bad[] = {"",     "1",     "x 1",  "1 x", "-1 5", "99999999999 1",
                                      "1 -1", "1 1 1", " 1 1", "1\n", "1 \n"};
    pid_t pid = 0;
    int fd = -1;
    struct err err = ERR_INIT;
    assert_int_equal(proc_id_open(path, &pid, &fd, &err), -ESRCH);
    assert_string_equal(err.name, "NoSuchProcess");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(file_write_atomic(path, str_c(bad[i]), 0600, NULL), 0);
        assert_int_equal(proc_id_open(path, &pid, &fd, NULL), -ESRCH);
    }
    assert_int_equal(proc_id_save(path, 0, NULL), -ESRCH);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

static void test_a_file_opens_its_process_until_it_ends(void **state)
{
    char dir[] = "/tmp/spx-proc-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/pid", dir);
    pid_t pid = fork(), found = 0;
    assert_true(pid >= 0);
    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    int fd = -1;
    assert_int_equal(proc_id_save(path, pid, NULL), 0);
    assert_int_equal(proc_id_open(path, &found, &fd, NULL), 0);
    assert_int_equal(found, pid);
    assert_true(fd >= 0);
    close(fd);
    kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(proc_id_open(path, &found, &fd, NULL), -ESRCH); /* a zombie */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(proc_id_open(path, &found, &fd, NULL), -ESRCH);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat_text),
        cmocka_unit_test(test_only_the_same_process_is_killed),
        cmocka_unit_test(test_files_that_name_no_process),
        cmocka_unit_test(test_a_file_opens_its_process_until_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
