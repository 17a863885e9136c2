#include "spx/bench_engine.h"
#include "base/macro.h"
#include "base/time.h"
#include "blk/vu.h"
#include "blk/vu_load.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define QUEUE_SIZE 128u
#define LOCK_NS    (UINT64_C(2) * NS_PER_S)

struct bench_engine {
    char dir[32], path[48];
    int listen_fd;
    struct loop *loop;
    struct disk *disk;
    struct vu *vu;
    pthread_t thread;
    bool has_thread;
    struct vu_client *client;
    uint64_t size;
};

struct bench_engine *bench_engine_new(void)
{
    struct bench_engine *e = calloc(1, sizeof(*e));
    if (!e) {
        abort();
    }
    e->listen_fd = -1;
    return e;
}

static int listen_on(struct bench_engine *e, struct err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(e->dir, sizeof(e->dir), "/tmp/spx-bench-XXXXXX");
    if (!mkdtemp(e->dir)) { /* mode 0700: nobody else connects */
        e->dir[0] = '\0';
        return fail(err, -errno, "OpenFailed", "/tmp: %m");
    }
    (void)snprintf(e->path, sizeof(e->path), "%s/s", e->dir);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", e->path);
    e->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (e->listen_fd < 0 || bind(e->listen_fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        listen(e->listen_fd, 2) < 0) {
        return fail(err, -errno, "SocketFailed", "%s: %m", e->path);
    }
    return 0;
}

static void *loop_main(void *loop)
{
    loop_run(loop);
    return NULL;
}

/* Memory for the largest pattern at its full depth. */
static uint64_t memory(void)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < load_n_patterns; i++) {
        most = MAX(most, vu_load_mem(&load_patterns[i]));
    }
    return most;
}

static int open_engine(void *ctx, int fd, uint64_t size, struct err *err)
{
    struct bench_engine *e = ctx;
    struct disk_opts o = {.id = "vol-bench",
                          .size = size,
                          .map_fd = -1,
                          .run_fd = -1,
                          .aside_fd = -1,
                          .base_fd = -1,
                          .base_map_fd = -1,
                          .n_queues = VU_MAX_QUEUES};
    const struct vu_client_opts c = {.path = e->path,
                                     .n_queues = VU_MAX_QUEUES,
                                     .queue_size = QUEUE_SIZE,
                                     .mem_size = memory(),
                                     .has_inflight = true,
                                     .has_event_idx = true,
                                     .has_indirect = true};
    char path[32];
    /* A description of its own, as a volume has it: the lock belongs to it. */
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    o.data_fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (o.data_fd < 0) {
        return fail(err, -errno, "OpenFailed", "the file of the benchmark, again: %m");
    }
    e->size = size;
    e->loop = loop_new();
    int r = disk_open(&o, LOCK_NS, &e->disk, err);
    r = r < 0 ? r : listen_on(e, err);
    if (r < 0) {
        return r;
    }
    struct vu_opts v = {.loop = e->loop,
                        .disk = e->disk,
                        .listen_fd = e->listen_fd,
                        .peer_uid = geteuid(),
                        .n_queues = VU_MAX_QUEUES,
                        .serial = "bench"};
    r = vu_new(&v, &e->vu, err);
    if (r == 0 && pthread_create(&e->thread, NULL, loop_main, e->loop) != 0) {
        r = fail(err, -EAGAIN, "LoadFailed", "a thread cannot be started");
    }
    e->has_thread = r == 0;
    return r < 0 ? r : vu_client_new(&c, &e->client, err);
}

static int run(void *ctx, const struct load_pattern *p, uint64_t ns, uint64_t seed,
               const volatile bool *is_stopped, struct load_result *ret, struct err *err)
{
    struct bench_engine *e = ctx;
    return vu_load(e->client, p, e->size, ns, seed, is_stopped, ret, err);
}

struct bench_block_engine bench_engine_ops(struct bench_engine *e)
{
    return (struct bench_block_engine){.open = open_engine, .run = run, .ctx = e};
}

void bench_engine_free(struct bench_engine *e)
{
    if (!e) {
        return;
    }
    if (e->client) {
        vu_client_free(e->client);
    }
    if (e->has_thread) {
        loop_stop(e->loop);
        (void)pthread_join(e->thread, NULL);
    }
    if (e->vu) {
        vu_free(e->vu);
    }
    if (e->disk && disk_close(e->disk, NULL) < 0) {
        /* nothing is lost: the file goes */
    }
    if (e->loop) {
        loop_free(e->loop);
    }
    if (e->listen_fd >= 0) {
        close(e->listen_fd);
    }
    if (e->dir[0]) {
        (void)unlink(e->path);
        (void)rmdir(e->dir);
    }
    free(e);
}
