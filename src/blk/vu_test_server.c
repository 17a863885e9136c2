/* A server of one disk, to be killed: the device of vu.h over a file, on the listening socket
 * that its parent passed as descriptor 3 (or N). With VU_MUTANTS it can be told to be wrong
 *   (vu_mutant.h). vu_test_server FILE [size=N] [queues=N] [crash=POINT:N] [mutant=N] [ro=1]
 *                  [poll=NS] [lock=MS] [grow=N] [mem=1] [fd=N]
 * Prints "ready" when it serves; SIGHUP grows the disk to grow=N. */
#include "base/log.h"
#include "base/num.h"
#include "base/time.h"
#include "blk/vu.h"
#include "blk/vu_mutant.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifdef VU_MUTANTS
enum vu_mutant vu_mutant;
#endif

struct options {
    uint64_t size, queues, crash, crash_n, mutant, is_read_only, poll_ns, lock_ms, grow, is_mem,
        fd;
};
struct world {
    struct options o;
    struct loop *loop;
    struct disk *disk;
    struct vu *vu;
};

static void die(const struct err *err)
{
    fprintf(stderr, "vu_test_server: %s: %s\n", err->name ? err->name : "failed", err->msg);
    exit(2);
}

static void set_option(struct options *o, struct str arg)
{
    const struct {
        const char *name;
        uint64_t *to;
    } all[] = {{"size", &o->size},       {"queues", &o->queues}, {"crash", &o->crash},
               {"crash-n", &o->crash_n}, {"mutant", &o->mutant}, {"ro", &o->is_read_only},
               {"poll", &o->poll_ns},    {"lock", &o->lock_ms},  {"grow", &o->grow},
               {"mem", &o->is_mem},      {"fd", &o->fd}};
    struct str name = str_cut(arg, '=');
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (str_eqc(name, all[i].name) && name.n < arg.n &&
            num_u64(str_skip(arg, name.n + 1), UINT64_MAX, all[i].to) == 0) {
            return;
        }
    }
    fprintf(stderr, "vu_test_server: %.*s?\n", STR_ARG(arg));
    exit(2);
}

static void on_stopped(void *ctx)
{
    loop_stop(ctx);
}

static void on_signal(void *ctx)
{
    struct world *w = ctx;
    vu_stop(w->vu, on_stopped, w->loop);
}

static void on_grow(void *ctx)
{
    struct world *w = ctx;
    struct err err = ERR_INIT;
    if (disk_grow(w->disk, w->o.grow, &err) < 0) {
        die(&err);
    }
    vu_resized(w->vu);
}

static int open_file(const struct world *w, const char *path)
{
    if (w->o.is_mem) {
        return memfd_create("vu-test-disk", MFD_CLOEXEC);
    }
    return open(path, (w->o.is_read_only ? O_RDONLY : O_RDWR | O_CREAT) | O_CLOEXEC, 0600);
}

int main(int argc, char **argv)
{
    struct world w = {.o = {.size = 16u << 20, .queues = 1, .lock_ms = 5000, .fd = 3}};
    struct err err = ERR_INIT;
    for (int i = 2; i < argc; i++) {
        set_option(&w.o, str_c(argv[i]));
    }
#ifdef VU_MUTANTS
    vu_mutant = (enum vu_mutant)w.o.mutant;
#endif
    log_init("vu-test-server", LOG_LEVEL_INFO);
    loop_block_signals();
    w.loop = loop_new();
    int fd = argc < 2 ? -1 : open_file(&w, argv[1]);
    if (fd < 0 || (!w.o.is_read_only && ftruncate(fd, (off_t)w.o.size) != 0)) {
        (void)fail(&err, -1, "OpenFailed", "%s: %m", argc < 2 ? "no file" : argv[1]);
        die(&err);
    }
    struct disk_opts d = {.id = "vol-test",
                          .size = w.o.size,
                          .data_fd = fd,
                          .map_fd = -1,
                          .run_fd = -1,
                          .aside_fd = -1,
                          .base_fd = -1,
                          .base_map_fd = -1,
                          .is_read_only = w.o.is_read_only != 0,
                          .n_queues = (unsigned)w.o.queues};
    if (disk_open(&d, w.o.lock_ms * NS_PER_MS, &w.disk, &err) < 0) {
        die(&err);
    }
    struct vu_opts o = {.loop = w.loop,
                        .disk = w.disk,
                        .listen_fd = (int)w.o.fd,
                        .peer_uid = (uid_t)-1,
                        .n_queues = (unsigned)w.o.queues,
                        .serial = "vol0123456789abcdef0",
                        .poll_ns = w.o.poll_ns};
    if (vu_new(&o, &w.vu, &err) < 0 || loop_signals(w.loop, on_signal, on_grow, &w, &err) < 0) {
        die(&err);
    }
    if (w.o.crash > 0) {
        vu_crash_at(w.vu, (enum vu_crash)w.o.crash, w.o.crash_n);
    }
    printf("ready\n");
    fflush(stdout);
    loop_run(w.loop);
    struct vu_stats s;
    vu_stats(w.vu, &s);
    printf("connects %llu faults %llu bad %llu resubmitted %llu torn %llu\n",
           (unsigned long long)s.n_connects, (unsigned long long)s.n_ring_faults,
           (unsigned long long)s.n_bad_requests, (unsigned long long)s.n_resubmitted,
           (unsigned long long)s.n_torn_batches);
    vu_free(w.vu);
    if (disk_close(w.disk, &err) < 0) {
        die(&err);
    }
    loop_free(w.loop);
    return 0;
}
