/* The supervisor over real children: this program is its own services, told apart by the name it is
 * started under; the file NAME.mode in the folder of the configuration says how one behaves. */
#include "base/file.h"
#include "base/test.h"
#include "base/time.h"
#include "codec/json.h"
#include "net/rpc.h"
#include "net/service.h"
#include "spx/logfile.h"
#include "spx/supervise.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

#define N 3

static struct tmpdir dir;
static char exe[N][PATH_MAX], sock[N][PATH_MAX];
static const char *const names[N] = {"a", "b", "c"};

/* The service's side ------------------------------------------------------------------------ */

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    if (!service_admin_handle(ctx, method, payload, req)) {
        struct err e = ERR_INIT;
        fail(&e, -ENOSYS, "UnknownMethod", "no");
        rpc_reply_err(req, &e);
    }
}

static void append(const char *folder, const char *file, const char *line)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%.200s/%.60s", folder, file);
    AUTO_FD fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file_write_all(fd, line, strlen(line)) < 0) {
        abort();
    }
}

static int be_service(int argc, char **argv)
{
    static const struct rpc_server_ops ops = {.on_request = on_request};
    struct service s;
    struct rpc_server *server = NULL;
    char folder[PATH_MAX], path[PATH_MAX], line[16];
    AUTO_FREE char *mode = NULL;
    size_t n = 0;
    int rc = 0;
    const char *name = strrchr(argv[0], '/') + 1;
    if (service_start(&s, name, argc, argv, NULL, 0, &rc) != 0) {
        return rc;
    }
    snprintf(folder, sizeof(folder), "%.200s", s.config_path);
    *strrchr(folder, '/') = 0;
    snprintf(path, sizeof(path), "%.200s/%.20s.mode", folder, name);
    if (file_read(path, 100, &mode, &n, NULL) < 0 || strcmp(mode, "die") == 0) {
        fprintf(stderr, "the cupboard is bare\n");
        _exit(3); /* no leak report behind the last words */
    }
    snprintf(path, sizeof(path), "%.200s/%.20s.sock", folder, name);
    if (strcmp(mode, "silent") != 0 &&
        rpc_server_new(s.loop, path, 0600, &ops, &s, &server, NULL) < 0) {
        return 4;
    }
    snprintf(line, sizeof(line), "+%.12s", name);
    append(folder, "order", line);
    rc = service_run(&s);
    snprintf(line, sizeof(line), "-%.12s", name);
    append(folder, "order", line);
    if (server) {
        rpc_server_free(server);
    }
    service_done(&s);
    return rc;
}

/* The test's side --------------------------------------------------------------------------- */

static void set_mode(const char *name, const char *mode)
{
    char path[PATH_MAX], file[64];
    snprintf(file, sizeof(file), "%s.mode", name);
    tmpdir_write(&dir, file, mode, path);
}

static int setup(void **state)
{
    char self[PATH_MAX] = "";
    tmpdir_init(&dir, "sup");
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) {
        return -1;
    }
    for (size_t i = 0; i < N; i++) {
        char file[64];
        tmpdir_path(&dir, names[i], exe[i]);
        snprintf(file, sizeof(file), "%s.sock", names[i]);
        tmpdir_path(&dir, file, sock[i]);
        if (symlink(self, exe[i]) < 0) {
            return -1;
        }
        set_mode(names[i], "ok");
    }
    return 0;
}

static int teardown(void **state)
{
    tmpdir_done(&dir);
    return 0;
}

static void say(void *ctx, const char *line, bool is_last)
{
    append(dir.path, "said", is_last ? "*" : ".");
}

/* Runs the supervisor in a process of its own; its failure is in the file "err". */
static pid_t start_supervisor(uint64_t start_timeout_ns)
{
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    char conf[PATH_MAX];
    struct config c = {.path = tmpdir_path(&dir, "conf", conf)};
    struct supervise_service services[N];
    const struct supervise_opts o = {.cfg = &c,
                                     .services = services,
                                     .n_services = N,
                                     .log_dir = dir.path,
                                     .start_timeout_ns = start_timeout_ns,
                                     .n_first_deaths = 3,
                                     .say = say};
    struct err err = ERR_INIT;
    for (size_t i = 0; i < N; i++) {
        services[i] =
            (struct supervise_service){.name = names[i], .exe = exe[i], .socket = sock[i]};
    }
    loop_block_signals();
    int r = supervise_run(&o, &err);
    append(dir.path, "err", err.msg);
    _exit(r < 0 ? 1 : 0);
}

static void nap(void)
{
    const struct timespec t = {.tv_nsec = 10000000};
    nanosleep(&t, NULL);
}

static bool file_has(const char *file, const char *text)
{
    char path[PATH_MAX];
    AUTO_FREE char *have = NULL;
    size_t n = 0;
    return file_read(tmpdir_path(&dir, file, path), 1u << 20, &have, &n, NULL) == 0 &&
           strstr(have, text);
}

static void wait_for(const char *file, const char *text)
{
    uint64_t end = time_mono_ns() + 20 * NS_PER_S;
    while (!file_has(file, text)) {
        if (time_mono_ns() > end) {
            fail_msg("%s never had '%s'", file, text);
        }
        nap();
    }
}

static pid_t pid_of(size_t i)
{
    struct rpc_client *c = rpc_client_new(sock[i], NULL, NULL);
    struct rpc_reply reply = {0};
    AUTO(json_freep) struct json *j = NULL;
    pid_t pid = 0;
    if (rpc_call(c, STR("health"), STR("{}"), NULL, 0, 100 * NS_PER_MS, &reply, NULL) == 0 &&
        json_parse(str_n(reply.payload, reply.n), &j, NULL) == 0) {
        pid = (pid_t)json_get_u64(j, "pid", 0);
    }
    rpc_reply_done(&reply);
    rpc_client_free(c);
    return pid;
}

static int wait_end(pid_t pid)
{
    int status = 0;
    uint64_t end = time_mono_ns() + 20 * NS_PER_S;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (time_mono_ns() > end) {
            kill(pid, SIGKILL);
            fail_msg("the supervisor did not end");
        }
        nap();
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_starts_in_order_and_stops_in_the_other(void **state)
{
    pid_t sup = start_supervisor(0);
    wait_for("said", "...*");
    kill(sup, SIGTERM);
    assert_int_equal(wait_end(sup), 0);
    assert_true(file_has("order", "+a+b+c-c-b-a"));
    assert_true(file_has("spx-a.log", "service.ready"));
}

static void test_what_dies_comes_back(void **state)
{
    pid_t sup = start_supervisor(0);
    wait_for("said", "...*");
    pid_t old = pid_of(1), other = pid_of(2), now = 0;
    assert_true(old > 0);
    assert_int_equal(kill(old, SIGKILL), 0);
    uint64_t end = time_mono_ns() + 20 * NS_PER_S;
    while ((now = pid_of(1)) == 0 || now == old) {
        assert_true(time_mono_ns() < end);
        nap();
    }
    assert_int_equal(pid_of(2), other); /* the others are left alone */
    kill(sup, SIGTERM);
    assert_int_equal(wait_end(sup), 0);
    assert_true(file_has("order", "-c-b-a"));
}

static void test_one_that_cannot_start_ends_it_all(void **state)
{
    set_mode("b", "die");
    pid_t sup = start_supervisor(0);
    assert_int_equal(wait_end(sup), 1);
    assert_true(file_has("err", "b dies at its start"));
    assert_true(file_has("err", "the cupboard is bare"));
    assert_true(file_has("order", "+a-a"));
    assert_false(file_has("order", "+c"));
    assert_int_equal(pid_of(0), 0);
}

static void test_one_that_never_answers_ends_it_all(void **state)
{
    set_mode("b", "silent");
    pid_t sup = start_supervisor(700 * NS_PER_MS);
    assert_int_equal(wait_end(sup), 1);
    assert_true(file_has("err", "b does not answer"));
    assert_true(file_has("order", "-b-a"));
}

static void test_a_missing_program_is_said(void **state)
{
    assert_int_equal(unlink(exe[0]), 0);
    pid_t sup = start_supervisor(0);
    assert_int_equal(wait_end(sup), 1);
    assert_true(file_has("err", "a cannot be started"));
}

static void test_children_die_with_a_killed_supervisor(void **state)
{
    pid_t sup = start_supervisor(0);
    wait_for("said", "...*");
    kill(sup, SIGKILL);
    assert_int_equal(wait_end(sup), -1);
    uint64_t end = time_mono_ns() + 20 * NS_PER_S;
    for (size_t i = 0; i < N; i++) {
        while (pid_of(i) != 0) {
            assert_true(time_mono_ns() < end);
            nap();
        }
    }
}

static void test_log_files_rotate(void **state)
{
    char path[PATH_MAX], old[PATH_MAX];
    struct logfile *l = NULL;
    tmpdir_path(&dir, "x.log", path);
    assert_int_equal(logfile_new(path, 10, 2, &l, NULL), 0);
    for (char c = 'a'; c <= 'e'; c++) {
        char line[13];
        memset(line, c, sizeof(line));
        line[12] = '\n';
        logfile_add(l, str_n(line, sizeof(line)));
    }
    assert_true(file_has("x.log", "eeee"));
    assert_true(file_has("x.log.1", "dddd"));
    assert_true(file_has("x.log.2", "cccc"));
    assert_int_equal(access(tmpdir_path(&dir, "x.log.3", old), F_OK), -1);
    assert_int_equal(logfile_n_dropped(l), 0);
    logfile_free(l);
    assert_int_equal(logfile_new(path, 1000, 2, &l, NULL), 0); /* goes on where it was */
    logfile_add(l, STR("f\n"));
    assert_true(file_has("x.log", "eeee"));
    assert_true(file_has("x.log", "f\n"));
    logfile_free(l);
    assert_int_equal(logfile_new("/nonexistent/x.log", 10, 1, &l, NULL), -ENOENT);
}

#define CASE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--config") == 0) {
        return be_service(argc, argv);
    }
    const struct CMUnitTest tests[] = {
        CASE(test_starts_in_order_and_stops_in_the_other),
        CASE(test_what_dies_comes_back),
        CASE(test_one_that_cannot_start_ends_it_all),
        CASE(test_one_that_never_answers_ends_it_all),
        CASE(test_a_missing_program_is_said),
        CASE(test_children_die_with_a_killed_supervisor),
        CASE(test_log_files_rotate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
