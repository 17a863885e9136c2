#include "base/time.h"
#include "loop/child.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char self[PATH_MAX];

/* What this program prints when it is started with --descriptors: all but the pipes of
 * child_run(). */
static int print_descriptors(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], target[256];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        if (n > 0 && fd != 1 && fd != 2) {
            target[n] = '\0';
            printf("%d %s\n", fd, strncmp(target, "pipe:", 5) == 0 ? "pipe" : target);
        }
    }
    return 0;
}

static const char *sh(const char *script, struct child_opts *o, struct buf *out,
                      struct err *err, int *ret)
{
    static const char *argv[4];
    argv[0] = "/bin/sh";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = NULL;
    o->argv = argv;
    *ret = child_run(o, 10 * NS_PER_S, out, err);
    return buf_cstr(out);
}

static void output_and_status(void **state)
{
    struct {
        const char *name, *script;
        int want;
        const char *out, *msg;
    } cases[] = {
        {"output", "echo hello", 0, "hello\n", NULL},
        {"status", "echo first >&2; echo bad thing >&2; exit 3", -EIO, "",
         "/bin/sh ended with status 3: bad thing"},
        {"signal", "kill -9 $$", -EIO, "", "/bin/sh was ended by signal 9: "},
        {"no input", "cat; echo end", 0, "end\n", NULL},
        {"folder", "pwd", 0, "/\n", NULL},
        {"environment", "env | grep -v -e ^PWD -e ^_ -e ^SHLVL -e ^OLDPWD | sort", 0,
         "LANG=C.UTF-8\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
         NULL},
        /* But for 32 and 33, which belong to glibc: its posix_spawn(), so GNU make, leaves them
         * ignored, and nobody may change them. */
        {"signals",
         "grep -e ^SigBlk -e ^SigIgn /proc/self/status | cut -f2 |"
         " sed 's/^0000000[01][08]0000000$/0000000000000000/' | sort -u",
         0, "0000000000000000\n", NULL},
        {"long error",
         "head -c 10000 /dev/zero | tr '\\0' x >&2; echo >&2; echo last >&2; exit 1", -EIO, "",
         "/bin/sh ended with status 1: last"},
    };
    struct sigaction ign = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ign, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct child_opts o = {0};
        struct err err = ERR_INIT;
        AUTO_BUF out;
        buf_init(&out, 65536);
        int r = 0;
        const char *text = sh(cases[i].script, &o, &out, &err, &r);
        assert_int_equal(r, cases[i].want);
        assert_string_equal(text, cases[i].out);
        if (cases[i].msg) {
            assert_string_equal(err.msg, cases[i].msg);
            assert_string_equal(err.name, "CommandFailed");
        }
    }
}

static void only_the_named_descriptors_are_there(void **state)
{
    AUTO_FD a =
        open("/etc/group", O_RDONLY); /* not close-on-exec: must be closed all the same */
    AUTO_FD b = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    AUTO_FD c = open("/proc/version", O_RDONLY | O_CLOEXEC);
    assert_true(a >= 0 && b >= 0 && c >= 0);
    /* Targets that are the sources of others: b -> c's number, c -> b's. */
    struct child_fd fds[] = {{b, c}, {c, b}, {b, CHILD_MAX_FD}};
    struct child_opts o = {.fds = fds, .n_fds = 3};
    struct err err = ERR_INIT;
    AUTO_BUF out;
    buf_init(&out, 65536);
    char want[256];
    /* The number b now holds c's file and the other way round. */
    bool is_b_first = b < c;
    snprintf(want, sizeof(want), "0 /dev/null\n%d %s\n%d %s\n%d /etc/passwd\n", MIN(b, c),
             is_b_first ? "/proc/version" : "/etc/passwd", MAX(b, c),
             is_b_first ? "/etc/passwd" : "/proc/version", CHILD_MAX_FD);
    const char *argv[] = {self, "--descriptors", NULL};
    o.argv = argv;
    int r = child_run(&o, 10 * NS_PER_S, &out, &err);
    const char *text = buf_cstr(&out);
    assert_int_equal(r, 0);
    assert_string_equal(text, want);
}

static void bad_options_are_refused(void **state)
{
    const char *argv[] = {"/bin/true", NULL};
    struct {
        const char *name;
        struct child_fd fds[2];
        size_t n;
        int want;
    } cases[] = {
        {"standard output", {{0, 1}}, 1, -EINVAL},
        {"too high", {{0, CHILD_MAX_FD + 1}}, 1, -EINVAL},
        {"negative source", {{-1, 3}}, 1, -EINVAL},
        {"same target twice", {{0, 3}, {1, 3}}, 2, -EINVAL},
        {"closed source", {{9999, 3}}, 1, -EBADF},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct child_opts o = {.argv = argv, .fds = cases[i].fds, .n_fds = cases[i].n};
        struct err err = ERR_INIT;
        pid_t pid = 0;
        assert_int_equal(child_spawn(&o, &pid, &err), cases[i].want);
        assert_string_equal(err.name, "SpawnFailed");
        assert_int_equal(pid, 0);
    }
}

static void a_failure_in_the_child_comes_back(void **state)
{
    const char *missing[] = {"/nonexistent/program", NULL};
    const char *bare[] = {"spinifex-no-such-program", NULL};
    const char *ok[] = {"true", NULL};
    struct {
        const char *name;
        struct child_opts o;
        int want;
        const char *msg;
    } cases[] = {
        {"exec",
         {.argv = missing},
         -ENOENT,
         "/nonexistent/program: exec: No such file or directory"},
        {"path", {.argv = bare}, -ENOENT, "spinifex-no-such-program: not found in PATH"},
        {"cwd",
         {.argv = ok, .path = "/bin/true", .cwd = "/nonexistent"},
         -ENOENT,
         "/bin/true: change folder: No such file or directory"},
        {"not executable",
         {.argv = ok, .path = "/etc/passwd"},
         -EACCES,
         "/etc/passwd: exec: Permission denied"},
        {"netns", {.argv = ok, .path = "/bin/true", .netns_fd = 2}, -EINVAL, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = ERR_INIT;
        pid_t pid = 0;
        int r = child_spawn(&cases[i].o, &pid, &err);
        if (cases[i].msg) {
            assert_int_equal(r, cases[i].want);
            assert_string_equal(err.msg, cases[i].msg);
        } else {
            assert_true(r < 0);
            assert_non_null(strstr(err.msg, "enter network namespace"));
        }
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
        assert_int_equal(errno, ECHILD);
    }
    pid_t pid = 0;
    struct child_opts o = {.argv = ok};
    assert_int_equal(child_spawn(&o, &pid, NULL), 0);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void the_time_limit_kills(void **state)
{
    const char *argv[] = {"sleep", "60", NULL};
    struct child_opts o = {.argv = argv};
    struct err err = ERR_INIT;
    uint64_t t0 = time_mono_ns();
    assert_int_equal(child_run(&o, 50 * NS_PER_MS, NULL, &err), -ETIMEDOUT);
    assert_true(time_mono_ns() - t0 < 10 * NS_PER_S);
    assert_string_equal(err.name, "Timeout");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void too_much_output_is_an_error(void **state)
{
    const char *argv[] = {"/bin/sh", "-c", "exec cat /dev/zero", NULL};
    struct child_opts o = {.argv = argv};
    struct err err = ERR_INIT;
    AUTO_BUF out;
    buf_init(&out, 10000);
    assert_int_equal(child_run(&o, 10 * NS_PER_S, &out, &err), -EFBIG);
    assert_string_equal(err.name, "TooMuchOutput");
    assert_int_equal(child_run(&o, 50 * NS_PER_MS, NULL, NULL),
                     -ETIMEDOUT); /* nowhere: no limit either */
}

static void a_grandchild_that_keeps_the_pipe_does_not_hold_us_up(void **state)
{
    struct child_opts o = {0};
    AUTO_BUF out;
    buf_init(&out, 1000);
    int r = 0;
    uint64_t t0 = time_mono_ns();
    const char *text = sh("sleep 5 & echo $!", &o, &out, NULL, &r);
    assert_int_equal(r, 0);
    assert_true(time_mono_ns() - t0 < 4 * NS_PER_S);
    uint64_t pid = 0;
    assert_int_equal(sscanf(text, "%lu", &pid), 1);
    kill((pid_t)pid, SIGKILL);
}

static void the_user_is_dropped(void **state)
{
    if (geteuid() != 0) { /* then it must be refused, not ignored */
        const char *argv[] = {"true", NULL};
        struct child_opts o = {.argv = argv, .is_user_set = true, .uid = 4711, .gid = 4712};
        pid_t pid = 0;
        assert_int_equal(child_spawn(&o, &pid, NULL), -EPERM);
        return;
    }
    gid_t groups[] = {4713, 4714};
    struct child_opts o = {.is_user_set = true,
                           .uid = 4711,
                           .gid = 4712,
                           .groups = groups,
                           .n_groups = 2,
                           .has_no_new_privs = true,
                           .has_no_core = true,
                           .max_files = 99,
                           .has_new_session = true};
    AUTO_BUF out;
    buf_init(&out, 65536);
    int r = 0;
    const char *text = sh("grep -e ^Uid -e ^Gid -e ^Groups -e ^NoNewPrivs -e ^CapEff -e "
                          "^CapPrm /proc/self/status | tr '\\t' ' ';"
                          "ulimit -c; ulimit -n; ulimit -Hn; test $(cut -d' ' -f6 "
                          "/proc/$$/stat) = $$ && echo leader",
                          &o, &out, NULL, &r);
    assert_int_equal(r, 0);
    assert_string_equal(
        text, "Uid: 4711 4711 4711 4711\nGid: 4712 4712 4712 4712\nGroups: 4713 4714 \n"
              "CapPrm: 0000000000000000\nCapEff: 0000000000000000\nNoNewPrivs: "
              "1\n0\n99\n99\nleader\n");
    o.n_groups = 0;
    buf_clear(&out);
    text = sh("id -G", &o, &out, NULL, &r);
    assert_string_equal(text, "4712\n");
}

static void input_environment_and_folder_can_be_given(void **state)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(write(fds[1], "secret", 6),
                     6); /* how secrets reach a program: not in argv, not in the environment */
    close(fds[1]);
    const char *env[] = {"A=1", NULL};
    struct child_opts o = {.in_fd = fds[0], .env = env, .cwd = "/usr"};
    AUTO_BUF out;
    buf_init(&out, 1000);
    int r = 0;
    const char *text = sh("cat; echo; echo $A; pwd", &o, &out, NULL, &r);
    assert_int_equal(r, 0);
    assert_string_equal(text, "secret\n1\n/usr\n");
    close(fds[0]);
    setenv("SPX_CHILD_TEST", "inherited", 1);
    o = (struct child_opts){.is_env_inherited = true};
    buf_clear(&out);
    text = sh("echo $SPX_CHILD_TEST", &o, &out, NULL, &r);
    assert_string_equal(text, "inherited\n");
    unsetenv("SPX_CHILD_TEST");
}

static void a_control_group_is_entered_before_the_user_is_dropped(void **state)
{
    char path[] = "/tmp/child-test-XXXXXX"; /* stands for cgroup.procs: "0" means the writer */
    AUTO_FD fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    bool is_root = geteuid() == 0;
    struct child_opts o = {
        .cgroup_procs_fd = fd, .is_user_set = is_root, .uid = 4711, .gid = 4711};
    AUTO_BUF out;
    buf_init(&out, 1000);
    int r = 0;
    sh("true", &o, &out, NULL, &r);
    assert_int_equal(r, 0);
    char text[8] = {0};
    assert_int_equal(pread(fd, text, sizeof(text), 0), 1);
    assert_string_equal(text, "0");
    AUTO_FD closed = open(
        path,
        O_RDONLY | O_CLOEXEC); /* not writable: the child must not start outside of its group */
    o.cgroup_procs_fd = closed;
    struct err err = ERR_INIT;
    sh("true", &o, &out, &err, &r);
    assert_int_equal(r, -EBADF);
    assert_non_null(strstr(err.msg, "enter cgroup"));
    unlink(path);
}

/* The child is in another network namespace than we; we stay where we are. */
static void a_network_namespace_is_entered(void **state)
{
    if (geteuid() != 0) {
        return; /* a_failure_in_the_child_comes_back() has the refusal */
    }
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t holder = fork();
    if (holder == 0) {
        int r = unshare(CLONE_NEWNET);
        ssize_t n = write(fds[1], &r, sizeof(r));
        (void)n;
        pause();
        _exit(0);
    }
    int r = -1;
    assert_int_equal(read(fds[0], &r, sizeof(r)), sizeof(r));
    assert_int_equal(r, 0);
    char path[64], want[64], ours[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)holder);
    ssize_t n = readlink(path, want, sizeof(want) - 2);
    assert_true(n > 0);
    want[n] = '\n';
    want[n + 1] = '\0';
    n = readlink("/proc/self/ns/net", ours, sizeof(ours) - 1);
    assert_true(n > 0);
    ours[n] = '\0';
    AUTO_FD ns = open(path, O_RDONLY | O_CLOEXEC);
    struct child_opts o = {.netns_fd = ns, .is_user_set = true, .uid = 4711, .gid = 4711};
    AUTO_BUF out;
    buf_init(&out, 1000);
    const char *text = sh("readlink /proc/$$/ns/net", &o, &out, NULL, &r);
    assert_int_equal(r, 0);
    assert_string_equal(text, want);
    assert_int_not_equal(strncmp(text, ours, strlen(ours)), 0);
    kill(holder, SIGKILL);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    close(fds[0]);
    close(fds[1]);
}

/* Many threads start programs at once: no descriptor of one start leaks into the program of
 * another. */
static void *spawn_many(void *arg)
{
    long n_bad = 0;
    for (int i = 0; i < 10; i++) {
        int p[2];
        if (pipe(p) < 0) { /* on purpose not close-on-exec */
            return (void *)1L;
        }
        struct child_fd fds[] = {{p[0], 7}};
        const char *argv[] = {self, "--descriptors", NULL};
        struct child_opts o = {.argv = argv, .fds = fds, .n_fds = 1};
        AUTO_BUF out;
        buf_init(&out, 1000);
        int r = child_run(&o, 20 * NS_PER_S, &out, NULL);
        n_bad += r != 0 || strcmp(buf_cstr(&out), "0 /dev/null\n7 pipe\n") != 0;
        close(p[0]);
        close(p[1]);
    }
    return (void *)n_bad;
}

static void starts_of_many_threads_do_not_mix(void **state)
{
    pthread_t th[8];
    for (size_t i = 0; i < ARRAY_LEN(th); i++) {
        assert_int_equal(pthread_create(&th[i], NULL, spawn_many, NULL), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(th); i++) {
        void *n_bad = NULL;
        pthread_join(th[i], &n_bad);
        assert_null(n_bad);
    }
}

/* A middle process starts a child with a death signal (and a change of user, when it may) and
 * dies. */
static void the_child_dies_with_its_parent(void **state)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
                     0); /* so that we may wait for it */
    pid_t middle = fork();
    if (middle == 0) {
        const char *argv[] = {"sleep", "60", NULL};
        struct child_opts o = {
            .argv = argv, .death_signal = SIGKILL, .is_user_set = geteuid() == 0, .uid = 4711};
        pid_t pid = 0;
        int r = child_spawn(&o, &pid, NULL);
        ssize_t n = write(fds[1], &pid, sizeof(pid));
        _exit(r == 0 && n > 0 ? 0 : 1);
    }
    pid_t pid = 0;
    assert_int_equal(read(fds[0], &pid, sizeof(pid)), sizeof(pid));
    assert_true(pid > 0);
    assert_int_equal(waitpid(middle, NULL, 0), middle);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid); /* hangs for a minute when it lives on */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    close(fds[0]);
    close(fds[1]);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return print_descriptors();
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(n > 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_and_status),
        cmocka_unit_test(only_the_named_descriptors_are_there),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(a_failure_in_the_child_comes_back),
        cmocka_unit_test(the_time_limit_kills),
        cmocka_unit_test(too_much_output_is_an_error),
        cmocka_unit_test(a_grandchild_that_keeps_the_pipe_does_not_hold_us_up),
        cmocka_unit_test(the_user_is_dropped),
        cmocka_unit_test(input_environment_and_folder_can_be_given),
        cmocka_unit_test(a_control_group_is_entered_before_the_user_is_dropped),
        cmocka_unit_test(a_network_namespace_is_entered),
        cmocka_unit_test(starts_of_many_threads_do_not_mix),
        cmocka_unit_test(the_child_dies_with_its_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
