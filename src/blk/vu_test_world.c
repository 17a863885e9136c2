#include "blk/vu_test_world.h"
#include "loop/child.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

void vu_world_init(struct vu_world *w, const char *exe, const char *name)
{
    memset(w, 0, sizeof(*w));
    w->exe = exe;
    w->out_fd = -1;
    tmpdir_init(&w->dir, name);
    tmpdir_path(&w->dir, "vu.sock", w->sock);
    tmpdir_path(&w->dir, "data", w->file);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_true(strlen(w->sock) < sizeof(a.sun_path));
    memcpy(a.sun_path, w->sock, strlen(w->sock));
    w->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(w->listen_fd >= 0);
    assert_int_equal(bind(w->listen_fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(w->listen_fd, 16), 0);
}

void vu_world_done(struct vu_world *w)
{
    if (w->pid > 0) {
        vu_world_kill(w);
    }
    close(w->listen_fd);
    tmpdir_done(&w->dir);
}

static bool spawn(struct vu_world *w, const char *const *options)
{
    const char *argv[VU_WORLD_MAX_ARGS + 3] = {w->exe, w->file};
    for (size_t i = 0; options && options[i]; i++) {
        assert_true(i < VU_WORLD_MAX_ARGS);
        argv[i + 2] = options[i];
    }
    int out[2];
    assert_int_equal(pipe(out), 0);
    struct child_fd fds[] = {{w->listen_fd, 3}};
    struct child_opts o = {.argv = argv,
                           .is_env_inherited = true,
                           .out_fd = out[1],
                           .err_fd = 2,
                           .fds = fds,
                           .n_fds = 1,
                           .death_signal = SIGKILL};
    struct err err = ERR_INIT;
    if (child_spawn(&o, &w->pid, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    close(out[1]);
    w->out_fd = out[0];
    struct pollfd p = {out[0], POLLIN, 0};
    char text[6] = "";
    return poll(&p, 1, 30000) == 1 && read(out[0], text, 6) == 6 &&
           memcmp(text, "ready\n", 6) == 0;
}

void vu_world_start(struct vu_world *w, const char *const *options)
{
    if (!spawn(w, options)) {
        fail_msg("the server did not start");
    }
}

int vu_world_try_start(struct vu_world *w, const char *const *options)
{
    assert_false(spawn(w, options));
    return vu_world_reap(w);
}

int vu_world_reap(struct vu_world *w)
{
    int status = 0;
    assert_true(w->pid > 0);
    while (waitpid(w->pid, &status, 0) < 0) {
        assert_int_equal(errno, EINTR);
    }
    w->pid = 0;
    close(steal_fd(&w->out_fd));
    return status;
}

void vu_world_kill(struct vu_world *w)
{
    kill(w->pid, SIGKILL);
    (void)vu_world_reap(w);
}

bool vu_world_is_dead(struct vu_world *w, int *ret_status)
{
    if (waitpid(w->pid, ret_status, WNOHANG) != w->pid) {
        return false;
    }
    w->pid = 0;
    close(steal_fd(&w->out_fd));
    return true;
}

int vu_world_stop(struct vu_world *w)
{
    kill(w->pid, SIGTERM);
    return vu_world_reap(w);
}
