/* nbd_world.h — a disk of a temporary file, served by NBD; for *_test.c only.
 * Not here: its client (nbd_test_client.h), anything a service links.
 * Threads:  the server's loop has a thread of its own; the rest is the test's.
 * Memory:   structs of the test; nbd_world_done() ends all.
 * Errors:   whatever is not expected ends the test. */
#pragma once
#include "base/test.h"
#include "base/time.h"
#include "blk/nbd_int.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

struct nbd_world {
    struct tmpdir dir;
    char path[PATH_MAX], image[PATH_MAX];
    struct loop *loop;
    pthread_t thread;
    struct disk *disk;
    struct nbd *nbd;
    int listen_fd;
};

static inline void *nbd_world_loop(void *ctx)
{
    loop_run(ctx);
    return NULL;
}

struct nbd_world_opts {
    uint64_t size, stall_ns;
    bool is_read_only;
    uid_t peer_uid;   /* 0 = ours */
    const void *data; /* of the beginning of the file */
    size_t n_data;
};

static inline int nbd_world_listen(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof(a.sun_path));
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 64), 0);
    return fd;
}

static inline void nbd_world_init(struct nbd_world *w, const struct nbd_world_opts *o)
{
    struct err err = ERR_INIT;
    memset(w, 0, sizeof(*w));
    tmpdir_init(&w->dir, "nbd");
    tmpdir_path(&w->dir, "nbd.sock", w->path);
    tmpdir_path(&w->dir, "data", w->image);
    int fd = open(w->image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    if (o->n_data > 0) {
        assert_int_equal(pwrite(fd, o->data, o->n_data, 0), o->n_data);
    }
    assert_int_equal(ftruncate(fd, (off_t)o->size), 0);
    struct disk_opts d = {.id = "vol-1",
                          .size = o->size,
                          .data_fd = fd,
                          .map_fd = -1,
                          .run_fd = -1,
                          .aside_fd = -1,
                          .base_fd = -1,
                          .base_map_fd = -1,
                          .n_queues = 16};
    if (disk_open(&d, 0, &w->disk, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    w->loop = loop_new();
    w->listen_fd = nbd_world_listen(w->path);
    struct nbd_opts n = {.loop = w->loop,
                         .disk = w->disk,
                         .name = "vol-1",
                         .listen_fd = w->listen_fd,
                         .is_read_only = o->is_read_only,
                         .peer_uid = o->peer_uid ? o->peer_uid : geteuid(),
                         .stall_ns = o->stall_ns};
    if (nbd_new(&n, &w->nbd, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(pthread_create(&w->thread, NULL, nbd_world_loop, w->loop), 0);
}

static inline void nbd_world_done(struct nbd_world *w)
{
    struct err err = ERR_INIT;
    loop_stop(w->loop);
    pthread_join(w->thread, NULL);
    nbd_free(w->nbd);
    loop_free(w->loop);
    close(w->listen_fd);
    if (disk_close(w->disk, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    tmpdir_done(&w->dir);
}
