/* The block service as these tests need it: one file behind an NBD socket, and a vhost-user-blk
 * socket beside it. compute_disk_server <file> <socket> <volume id>
 * The sockets, <socket>.vu first, are there when the volume is locked and served; SIGTERM ends it
 * cleanly. */
#include "base/log.h"
#include "blk/nbd.h"
#include "blk/vu.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define LOCK_NS (UINT64_C(100) * 1000000)

static int listen_on(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || chmod(path, 0666) < 0 ||
        listen(fd, 4) < 0) {
        return -1;
    }
    return fd;
}

static void stop(void *loop)
{
    loop_stop(loop);
}

static int serve_disk(struct loop *l, struct disk *d, const char *path, const char *id,
                      struct err *err)
{
    char vu_path[128];
    struct vu *v = NULL;
    struct nbd *n = NULL;
    (void)snprintf(vu_path, sizeof(vu_path), "%s.vu", path);
    AUTO_FD vu_sock = listen_on(vu_path);
    struct vu_opts vo = {.loop = l,
                         .disk = d,
                         .listen_fd = vu_sock,
                         .peer_uid = (uid_t)-1,
                         .n_queues = 2,
                         .serial = "vol0"};
    int r = vu_sock < 0 ? fail(err, -errno, "SocketFailed", "%s: %m", vu_path)
                        : vu_new(&vo, &v, err);
    AUTO_FD sock = r < 0 ? -1 : listen_on(path);
    struct nbd_opts no = {
        .loop = l, .disk = d, .name = id, .listen_fd = sock, .peer_uid = (uid_t)-1};
    if (r == 0) {
        r = sock < 0 ? fail(err, -errno, "SocketFailed", "%s: %m", path)
                     : nbd_new(&no, &n, err);
    }
    if (r == 0) {
        loop_run(l);
    }
    (void)unlink(path);
    (void)unlink(vu_path);
    nbd_free(n);
    vu_free(v);
    return r;
}

static int serve(struct loop *l, char *const *args, struct err *err)
{
    struct stat st;
    struct disk *d = NULL;
    int fd = open(args[0], O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", args[0]);
    }
    struct disk_opts o = {.id = "vol-0",
                          .size = (uint64_t)st.st_size,
                          .data_fd = fd,
                          .map_fd = -1,
                          .run_fd = -1,
                          .aside_fd = -1,
                          .base_fd = -1,
                          .base_map_fd = -1,
                          .n_queues = VU_MAX_QUEUES + NBD_MAX_CONNS};
    int r = disk_open(&o, LOCK_NS, &d, err);
    if (r < 0) {
        return r;
    }
    r = serve_disk(l, d, args[1], args[2], err);
    int end = disk_close(d, r == 0 ? err : NULL);
    return r < 0 ? r : end;
}

int main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    log_init("disk_server", LOG_LEVEL_WARN);
    if (argc != 4) {
        return 2;
    }
    loop_block_signals();
    AUTO(loop_freep) struct loop *l = loop_new();
    int r = loop_signals(l, stop, NULL, l, &err);
    r = r < 0 ? r : serve(l, argv + 1, &err);
    if (r < 0) {
        (void)fprintf(stderr, "disk_server: %s\n", err.msg);
    }
    return r < 0 ? 1 : 0;
}
