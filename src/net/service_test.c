#include "base/time.h"
#include "net/service.h"
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#define CALL_NS (20 * NS_PER_S)

static void arguments(void **state)
{
    const char *extra = NULL;
    const struct service_arg args[] = {{"--extra", "X  something", &extra}};
    struct {
        const char *name;
        const char *argv[8];
        int want; /* -1: starts; else the exit status */
        const char *config, *extra;
        bool is_debug;
    } cases[] = {
        {"none", {"spx-test"}, -1, NULL, NULL, false},
        {"all",
         {"spx-test", "--config", "/x", "--log-level", "debug", "--extra", "7"},
         -1,
         "/x",
         "7",
         true},
        {"help", {"spx-test", "--help"}, 0, NULL, NULL, false},
        {"version", {"spx-test", "--version"}, 0, NULL, NULL, false},
        {"unknown", {"spx-test", "--nope"}, 2, NULL, NULL, false},
        {"no value", {"spx-test", "--config"}, 2, NULL, NULL, false},
        {"bad level", {"spx-test", "--log-level", "loud"}, 2, NULL, NULL, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *argv[8] = {0};
        int argc = 0;
        while (cases[i].argv[argc]) {
            argv[argc] = strdup(cases[i].argv[argc]);
            argc++;
        }
        extra = NULL;
        struct service s;
        int exit_status = -1;
        int r = service_start(&s, "spx-test", argc, argv, args, 1, &exit_status);
        if (cases[i].want < 0) {
            assert_int_equal(r, 0);
            assert_int_equal(log_is_on(LOG_LEVEL_DEBUG), cases[i].is_debug);
            assert_true(str_eq(str_c(s.config_path), str_c(cases[i].config)));
            assert_true(str_eq(str_c(extra), str_c(cases[i].extra)));
            service_done(&s);
        } else {
            assert_true(r < 0);
            assert_int_equal(exit_status, cases[i].want);
        }
        for (int k = 0; k < argc; k++) {
            free(argv[k]);
        }
    }
}

/* A whole service in a process of its own, as its main() would be. */
struct mini {
    struct service s;
    struct rpc_server *rpc;
    int wait_status;
};

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct mini *m = ctx;
    if (str_eqc(method, "degrade")) {
        service_set_status(&m->s, "degraded", "a \"test\"");
        rpc_reply(req, STR("{}"), NULL, 0);
    } else if (!service_admin_handle(&m->s, method, payload, req)) {
        struct err err = ERR_INIT;
        (fail)(&err, -ENOSYS, "UnknownMethod", "%.*s", STR_ARG(method));
        rpc_reply_err(req, &err);
    }
}

static void on_reload(void *ctx)
{
    struct mini *m = ctx;
    service_set_status(&m->s, "reloaded", NULL);
}

static int mini_main(const char *path)
{
    char name[] = "spx-mini";
    char *argv[] = {name, NULL};
    struct mini m;
    int exit_status = 0;
    if (service_start(&m.s, name, 1, argv, NULL, 0, &exit_status) < 0) {
        return exit_status;
    }
    static const struct rpc_server_ops ops = {.on_request = on_request};
    struct err err = ERR_INIT;
    if (rpc_server_new(m.s.loop, path, 0600, &ops, &m, &m.rpc, &err) < 0) {
        exit_status = service_failed(&m.s, &err);
    } else {
        m.s.on_reload = on_reload;
        m.s.reload_ctx = &m;
        exit_status = service_run(&m.s);
        rpc_server_free(m.rpc);
    }
    service_done(&m.s);
    return exit_status;
}

static void recv_state(int fd, const char *want)
{
    char text[64] = {0};
    ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
    assert_true(n > 0);
    assert_string_equal(text, want);
}

/* The signs of life come all the time: drops them. */
static void skip_to_state(int fd, const char *want)
{
    char text[64] = {0};
    do {
        memset(text, 0, sizeof(text));
        ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
        assert_true(n > 0);
    } while (strcmp(text, "WATCHDOG=1") == 0 || strcmp(text, "STATUS=reloaded") == 0);
    assert_string_equal(text, want);
}

static void call(struct rpc_client *c, const char *method, const char *payload, int want,
                 const char *has)
{
    struct rpc_reply r = {0};
    struct err err = ERR_INIT;
    int got = rpc_call(c, str_c(method), str_c(payload), NULL, 0, CALL_NS, &r, &err);
    if (got != want) {
        fail_msg("%s %s: %d %s", method, payload, got, err.msg);
    }
    const char *text = got == 0 ? r.payload : err.name;
    if (!strstr(text, has)) {
        fail_msg("%s %s: %s", method, payload, text);
    }
    rpc_reply_done(&r);
}

static void a_service_lives_and_ends(void **state)
{
    char dir[] = "/tmp/service-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char path[64], notify[64];
    snprintf(path, sizeof(path), "%s/s.sock", dir);
    snprintf(notify, sizeof(notify), "%s/notify", dir);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", notify);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("NOTIFY_SOCKET", notify, 1);
        char self[16];
        snprintf(self, sizeof(self), "%d", (int)getpid());
        setenv("WATCHDOG_USEC", "40000", 1);
        setenv("WATCHDOG_PID", self, 1);
        _exit(mini_main(path));
    }
    recv_state(fd, "STATUS=starting");
    recv_state(fd, "READY=1");
    recv_state(fd, "WATCHDOG=1");
    recv_state(fd, "WATCHDOG=1");
    struct rpc_client *c = rpc_client_new(path, NULL, NULL);
    call(c, "health", "{}", 0, "\"service\":\"spx-mini\"");
    call(c, "health", "", 0, "\"status\":\"ok\"");
    call(c, "health", "", 0, "\"version\":\"");
    call(c, "metrics", "", 0, "\"resident\":");
    call(c, "degrade", "", 0, "{}");
    skip_to_state(fd, "STATUS=degraded: a \"test\"");
    call(c, "health", "", 0, "\"status\":\"degraded\",\"detail\":\"a \\\"test\\\"\"");
    call(c, "log.level", "{\"level\":\"error\"}", 0, "\"error\"");
    call(c, "log.level", "{\"level\":\"loud\"}", -EINVAL, "BadRequest");
    call(c, "log.level", "{\"level\":7}", -EINVAL, "BadRequest");
    call(c, "log.level", "garbage", -EINVAL, "BadJson");
    call(c, "nonsense", "", -ENOSYS, "UnknownMethod");
    kill(pid, SIGHUP);
    bool is_reloaded = false;
    for (int i = 0; i < 1000 && !is_reloaded; i++) {
        struct rpc_reply r = {0};
        assert_int_equal(rpc_call(c, STR("health"), STR(""), NULL, 0, CALL_NS, &r, NULL), 0);
        is_reloaded = strstr(r.payload, "reloaded") != NULL;
        rpc_reply_done(&r);
    }
    assert_true(is_reloaded);
    kill(pid, SIGTERM);
    skip_to_state(fd, "STOPPING=1");
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(access(path, F_OK), -1);
    rpc_client_free(c);
    close(fd);
    unlink(notify);
    assert_int_equal(rmdir(dir), 0);
}

static void on_other_user_done(void *ctx, pid_t pid, int wait_status)
{
    struct mini *m = ctx;
    m->wait_status = wait_status;
    service_stop(&m->s);
}

/* A user who may connect may ask for the health, but not turn logging up. */
static void the_log_level_is_not_for_everyone(void **state)
{
    if (geteuid() != 0) {
        return; /* needs two users */
    }
    char dir[] = "/tmp/service-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0711), 0);
    char path[64];
    snprintf(path, sizeof(path), "%s/s.sock", dir);
    char name[] = "spx-mini";
    char *argv[] = {name, NULL};
    struct mini m;
    int exit_status = 0;
    assert_int_equal(service_start(&m.s, name, 1, argv, NULL, 0, &exit_status), 0);
    static const struct rpc_server_ops ops = {.on_request = on_request};
    assert_int_equal(rpc_server_new(m.s.loop, path, 0666, &ops, &m, &m.rpc, NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct err err = ERR_INIT;
        if (service_drop_user(4711, 4711, NULL, 0, 0, NULL) < 0) {
            _exit(1);
        }
        struct rpc_client *c = rpc_client_new(path, NULL, NULL);
        bool is_ok = rpc_call(c, STR("health"), STR(""), NULL, 0, CALL_NS, NULL, NULL) == 0 &&
                     rpc_call(c, STR("log.level"), STR("{\"level\":\"debug\"}"), NULL, 0,
                              CALL_NS, NULL, &err) == -EPERM;
        _exit(is_ok ? 0 : 2);
    }
    struct loop_child *child = NULL;
    m.wait_status = -1;
    assert_int_equal(loop_child_watch(m.s.loop, pid, on_other_user_done, &m, &child, NULL), 0);
    assert_int_equal(service_run(&m.s), 0);
    assert_int_equal(m.wait_status, 0);
    assert_false(log_is_on(LOG_LEVEL_DEBUG));
    rpc_server_free(m.rpc);
    service_done(&m.s);
    assert_int_equal(rmdir(dir), 0);
}

static uint64_t effective_caps(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    uint64_t caps = UINT64_MAX;
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "CapEff: %lx", &caps) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return caps;
}

static void root_is_given_up_for_ever(void **state)
{
    if (geteuid() != 0) {
        struct err err = ERR_INIT;
        assert_int_equal(service_drop_user(4711, 4711, NULL, 0, 0, &err), -EPERM);
        assert_string_equal(err.name, "DropUser");
        return;
    }
    const uint64_t keeps[] = {0, UINT64_C(1) << CAP_NET_ADMIN};
    for (size_t i = 0; i < ARRAY_LEN(keeps); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            gid_t groups[] = {4713};
            gid_t got[8];
            bool is_ok = service_drop_user(4711, 4712, groups, 1, keeps[i], NULL) == 0 &&
                         getuid() == 4711 && geteuid() == 4711 && getgid() == 4712 &&
                         getgroups(8, got) == 1 && got[0] == 4713 &&
                         effective_caps() == keeps[i] && setuid(0) < 0;
            _exit(is_ok ? 0 : 1);
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    assert_int_equal(service_drop_user(0, 0, NULL, 0, 0, NULL),
                     0); /* uid_base = 0: nobody changes users */
    assert_int_equal(geteuid(), 0);
}

static void no_systemd_is_fine(void **state)
{
    const char *paths[] = {NULL, "", "relative", "/nonexistent/notify"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        if (paths[i]) {
            setenv("NOTIFY_SOCKET", paths[i], 1);
        } else {
            unsetenv("NOTIFY_SOCKET");
        }
        service_notify("READY=1");
    }
    unsetenv("NOTIFY_SOCKET");
    /* An abstract socket, as systemd in containers uses them. */
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char name[64];
    snprintf(name, sizeof(name), "@spx-service-test-%d", (int)getpid());
    memcpy(addr.sun_path, name, strlen(name));
    addr.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, n), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    for (int i = 0; i < 2000;
         i++) { /* more than the socket holds, and nobody reads: must not block */
        service_notify("STATUS=x");
    }
    recv_state(fd, "STATUS=x");
    unsetenv("NOTIFY_SOCKET");
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments),
        cmocka_unit_test(no_systemd_is_fine),
        cmocka_unit_test(root_is_given_up_for_ever),
        cmocka_unit_test(the_log_level_is_not_for_everyone),
        cmocka_unit_test(a_service_lives_and_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
