#include "base/file.h"
#include "base/time.h"
#include "net/service.h"
#include "testkit/daemon.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static const char *self;

/* This program is its own daemon: "--socket PATH [--mode dies|deaf]". */
struct toy {
    struct service s;
};

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct toy *t = ctx;
    if (!service_admin_handle(&t->s, method, payload, req)) {
        rpc_reply(req, str_c(getenv("TOY")), NULL, 0);
    }
}

static int toy_main(int argc, char **argv)
{
    const char *path = NULL;
    const char *mode = "";
    const struct service_arg args[] = {{"--socket", "PATH", &path}, {"--mode", "M", &mode}};
    struct toy t;
    int exit_status = 0;
    if (service_start(&t.s, "toy", argc, argv, args, 2, &exit_status) < 0) {
        return exit_status;
    }
    static const struct rpc_server_ops ops = {.on_request = on_request};
    struct rpc_server *rpc = NULL;
    struct err err = ERR_INIT;
    if (strcmp(mode, "dies") == 0) {
        fprintf(stderr, "cannot find my hat\n");
        exit_status = 3;
    } else if (strcmp(mode, "deaf") != 0 &&
               rpc_server_new(t.s.loop, path, 0600, &ops, &t, &rpc, &err) < 0) {
        exit_status = service_failed(&t.s, &err);
    } else {
        exit_status = service_run(&t.s);
    }
    rpc_server_free(rpc);
    service_done(&t.s);
    return exit_status;
}

static void folders_come_and_go(void **state)
{
    struct tmpdir t;
    tmpdir_init(&t, "testkit");
    char path[PATH_MAX], sub[PATH_MAX];
    assert_int_equal(file_mkdirs(tmpdir_path(&t, "a/b/c", path), 0700, NULL), 0);
    tmpdir_write(&t, "a/b/c/file", "text", path);
    assert_int_equal(symlink("/etc", tmpdir_path(&t, "a/link", sub)), 0);
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(file_read(path, 100, &text, &n, NULL), 0);
    assert_string_equal(text, "text");
    free(text);
    snprintf(sub, sizeof(sub), "%s", t.path);
    tmpdir_done(&t);
    assert_int_equal(access(sub, F_OK), -1);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    tmpdir_done(&t); /* twice is fine */
}

static void a_daemon_is_started_killed_and_started_again(void **state)
{
    struct tmpdir t;
    tmpdir_init(&t, "testkit");
    char sock[PATH_MAX], log[PATH_MAX];
    const char *argv[] = {self, "--socket", tmpdir_path(&t, "s.sock", sock), NULL};
    const char *env[] = {"TOY=bear", NULL};
    struct daemon_opts o = {.argv = argv,
                            .env = env,
                            .log_path = tmpdir_path(&t, "log", log),
                            .health_socket = sock};
    struct daemon *d = NULL;
    struct err err = ERR_INIT;
    if (daemon_start(&o, &d, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    pid_t first = daemon_pid(d);
    struct rpc_client *c = rpc_client_new(sock, NULL, NULL);
    struct rpc_reply r = {0};
    assert_int_equal(rpc_call(c, STR("who"), STR(""), NULL, 0, 5 * NS_PER_S, &r, NULL), 0);
    assert_string_equal(r.payload, "bear");
    rpc_reply_done(&r);
    daemon_signal(d, SIGSTOP);
    assert_int_equal(rpc_call(c, STR("who"), STR(""), NULL, 0, 50 * NS_PER_MS, NULL, NULL),
                     -ETIMEDOUT);
    daemon_signal(d, SIGCONT);
    daemon_kill(d);
    assert_int_equal(daemon_pid(d), 0);
    assert_false(daemon_is_alive(d));
    assert_int_equal(kill(first, 0), -1);
    daemon_kill(d); /* twice is fine */
    assert_int_equal(daemon_stop(d, NS_PER_S), -ESRCH);
    assert_int_equal(daemon_restart(d, NULL), 0);
    assert_int_not_equal(daemon_pid(d), first);
    assert_int_equal(daemon_restart(d, NULL), 0); /* of a running one */
    assert_int_equal(daemon_stop(d, 10 * NS_PER_S), 0);
    assert_true(daemon_log_has(d, "service.ready"));
    assert_true(daemon_log_has(d, "service.stopping"));
    assert_false(daemon_log_has(d, "no such line"));
    rpc_client_free(c);
    daemon_free(d);
    tmpdir_done(&t);
}

static void a_daemon_that_fails_is_reported_with_its_log(void **state)
{
    struct tmpdir t;
    tmpdir_init(&t, "testkit");
    char sock[PATH_MAX], log[PATH_MAX];
    struct {
        const char *mode;
        int want;
        const char *name, *has;
    } cases[] = {{"dies", -ECHILD, "DaemonDied", "cannot find my hat"},
                 {"deaf", -ETIMEDOUT, "DaemonNotReady", "service.ready"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *argv[] = {self,     "--socket",    tmpdir_path(&t, "s.sock", sock),
                              "--mode", cases[i].mode, NULL};
        struct daemon_opts o = {.argv = argv,
                                .log_path = tmpdir_path(&t, "log", log),
                                .health_socket = sock,
                                .start_timeout_ns = 500 * NS_PER_MS};
        struct daemon *d = NULL;
        struct err err = ERR_INIT;
        assert_int_equal(daemon_start(&o, &d, &err), cases[i].want);
        assert_null(d);
        assert_string_equal(err.name, cases[i].name);
        assert_non_null(strstr(err.msg, cases[i].has));
    }
    tmpdir_done(&t);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return toy_main(argc, argv);
    }
    self = "/proc/self/exe";
    char exe[PATH_MAX];
    ssize_t n = readlink(self, exe, sizeof(exe) - 1);
    assert_true(n > 0);
    exe[n] = '\0';
    self = exe;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_come_and_go),
        cmocka_unit_test(a_daemon_is_started_killed_and_started_again),
        cmocka_unit_test(a_daemon_that_fails_is_reported_with_its_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
