#include "blk/blk.h"

#include "base/macro.h"
#include "base/num.h"
#include "base/rand.h"
#include "base/time.h"
#include "blk/blk_crypt.h"
#include "blk/blk_file.h"
#include "blk/blk_throttle.h"
#include "blk/disk.h"
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* blk_bench FILE [MILLISECONDS [ROUNDS]]: stacks of layers against the bare ring, in one thread, on
 * a file that is fully written first. Rounds go through all rows in turn; medians are printed. CPU
 * is that of the thread, the kernel's share too. */

#define FILE_SIZE  (UINT64_C(1) << 30)
#define MAX_DEPTH  64u
#define MAX_ROUNDS 15u

enum way { RAW, FILE_ONLY, THROTTLED, CRYPT, MEM, N_WAYS };
static const char *const way_names[N_WAYS] = {"raw ring", "file", "throttle+file", "crypt+file",
                                              "mem"};

struct pattern {
    const char *name;
    enum blk_op op;
    uint32_t len;
    unsigned depth;
    bool is_seq, is_flushed;
};
static const struct pattern patterns[] = {
    {"read 4K QD32", BLK_READ, 4096, 32, false, false},
    {"write 4K QD32", BLK_WRITE, 4096, 32, false, false},
    {"read 1M QD8", BLK_READ, 1u << 20, 8, true, false},
    {"write 1M QD8", BLK_WRITE, 1u << 20, 8, true, false},
    {"read 4K QD1", BLK_READ, 4096, 1, false, false},
    {"write+flush 4K QD1", BLK_WRITE, 4096, 1, false, true},
};

struct figures {
    double iops, cpu_us, enters, p50_us;
};

struct slot {
    struct run *run;
    struct blk_req *r;
    struct iovec iov;
    uint64_t start_ns;
    bool is_flush; /* the write is done, its flush is under way */
};

struct run {
    const struct pattern *p;
    int fd;
    struct blk_queue *q;
    struct blk_layer *top;
    char *mem;
    uint64_t seq, n_done, end_ns, seed;
    unsigned n_under;
    struct slot slots[MAX_DEPTH];
    uint32_t latency[20000]; /* in us */
};

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static uint64_t next_off(struct run *run)
{
    uint64_t n = FILE_SIZE / run->p->len;
    if (run->p->is_seq) {
        return run->seq++ % n * run->p->len;
    }
    run->seed = run->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (run->seed >> 33) % n * run->p->len;
}

static void count(struct run *run, uint64_t ns)
{
    run->n_done++;
    run->latency[MIN(ns / 1000, ARRAY_LEN(run->latency) - 1)]++;
}

/* ---- through the engine ---- */

static void done(struct blk_req *r, int rc);

static void start(struct slot *s)
{
    struct run *run = s->run;
    struct blk_req *r = s->r;
    r->op = s->is_flush ? BLK_FLUSH : run->p->op;
    r->flags = 0;
    if (!s->is_flush) {
        r->off = next_off(run);
        r->len = run->p->len;
        r->iov = &s->iov;
        r->n_iov = 1;
        s->start_ns = blk_queue_now(run->q);
    }
    r->done = done;
    r->ctx = s;
    run->n_under++;
    blk_submit(run->top, r);
}

static void done(struct blk_req *r, int rc)
{
    struct slot *s = r->ctx;
    struct run *run = s->run;
    run->n_under--;
    if (rc) {
        fprintf(stderr, "request failed: %d\n", rc);
        exit(1);
    }
    uint64_t now = blk_queue_now(run->q);
    if (run->p->is_flushed && !s->is_flush) {
        s->is_flush = true;
        start(s);
        return;
    }
    s->is_flush = false;
    count(run, now - s->start_ns);
    if (now < run->end_ns) {
        start(s);
    }
}

static void engine(struct run *run, uint64_t ns, struct figures *ret)
{
    struct blk_queue_stats before, after;
    (void)blk_queue_run(run->q, 0);
    blk_queue_stats(run->q, &before);
    uint64_t begin = time_mono_ns();
    double cpu = cpu_s();
    run->end_ns = begin + ns;
    for (unsigned i = 0; i < run->p->depth; i++) {
        run->slots[i].r = blk_req_get(run->q);
        start(&run->slots[i]);
    }
    while (run->n_under > 0) {
        (void)blk_queue_run(run->q, UINT64_MAX);
    }
    double s = (double)(time_mono_ns() - begin) / 1e9;
    blk_queue_stats(run->q, &after);
    ret->iops = (double)run->n_done / s;
    ret->cpu_us = (cpu_s() - cpu) * 1e6 / (double)run->n_done;
    ret->enters = (double)(after.n_enter - before.n_enter) / (double)run->n_done;
    for (unsigned i = 0; i < run->p->depth; i++) {
        blk_req_put(run->slots[i].r);
    }
}

/* ---- the bare ring, as good as one can write it ---- */

static void raw_start(struct run *run, struct io_uring *ring, struct slot *s, uint64_t now)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (s->is_flush) {
        io_uring_prep_fsync(sqe, run->fd, IORING_FSYNC_DATASYNC);
    } else if (run->p->op == BLK_READ) {
        io_uring_prep_read(sqe, run->fd, s->iov.iov_base, run->p->len, next_off(run));
        s->start_ns = now;
    } else {
        io_uring_prep_write(sqe, run->fd, s->iov.iov_base, run->p->len, next_off(run));
        s->start_ns = now;
    }
    io_uring_sqe_set_data(sqe, s);
    run->n_under++;
}

static void raw_done(struct run *run, struct io_uring *ring, struct slot *s, uint64_t now)
{
    run->n_under--;
    if (run->p->is_flushed && !s->is_flush) {
        s->is_flush = true;
        raw_start(run, ring, s, now);
        return;
    }
    s->is_flush = false;
    count(run, now - s->start_ns);
    if (now < run->end_ns) {
        raw_start(run, ring, s, now);
    }
}

static void raw(struct run *run, uint64_t ns, struct figures *ret)
{
    struct io_uring ring;
    struct io_uring_params p = {.flags = IORING_SETUP_COOP_TASKRUN};
    if (io_uring_queue_init_params(256, &ring, &p)) {
        exit(1);
    }
    uint64_t begin = time_mono_ns(), now = begin, n_enter = 0;
    double cpu = cpu_s();
    run->end_ns = begin + ns;
    for (unsigned i = 0; i < run->p->depth; i++) {
        raw_start(run, &ring, &run->slots[i], now);
    }
    while (run->n_under > 0) {
        unsigned head = 0, n = 0;
        struct io_uring_cqe *cqe = NULL;
        n_enter++;
        (void)io_uring_submit_and_wait(&ring, 1);
        now = time_mono_ns();
        io_uring_for_each_cqe(&ring, head, cqe)
        {
            if (cqe->res < 0) {
                exit(1);
            }
            raw_done(run, &ring, io_uring_cqe_get_data(cqe), now);
            n++;
        }
        io_uring_cq_advance(&ring, n);
    }
    double s = (double)(time_mono_ns() - begin) / 1e9;
    ret->iops = (double)run->n_done / s;
    ret->cpu_us = (cpu_s() - cpu) * 1e6 / (double)run->n_done;
    ret->enters = (double)n_enter / (double)run->n_done;
    io_uring_queue_exit(&ring);
}

/* ---- rows ---- */

static struct blk_layer *stack(enum way way, int fd)
{
    struct err err = ERR_INIT;
    struct blk_layer *l = NULL, *top = NULL;
    struct blk_file_opts fo = {.fd = fd, .size = FILE_SIZE};
    struct blk_limits lim = {.iops = 10000000, .bytes_per_s = UINT64_C(1) << 40};
    uint8_t key[BLK_KEY_SIZE];
    rand_bytes(key, sizeof(key));
    int rc = way == MEM ? blk_mem_new(FILE_SIZE, &l, &err) : blk_file_new(&fo, &l, &err);
    top = l;
    if (rc == 0 && way == THROTTLED) {
        rc = blk_throttle_new(l, &lim, &top, &err);
    } else if (rc == 0 && way == CRYPT) {
        rc = blk_crypt_new(l, key, &top, &err);
    }
    if (rc) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    return top;
}

static void one(enum way way, const struct pattern *p, int fd, char *mem, uint64_t ns,
                struct figures *ret)
{
    static struct run run;
    memset(&run, 0, sizeof(run));
    run.p = p;
    run.fd = fd;
    run.mem = mem;
    run.seed = rand_u64();
    for (unsigned i = 0; i < p->depth; i++) {
        run.slots[i].run = &run;
        run.slots[i].iov = (struct iovec){mem + (size_t)i * p->len, p->len};
    }
    if (way == RAW) {
        raw(&run, ns, ret);
    } else {
        struct err err = ERR_INIT;
        static const struct blk_queue_opts none;
        if (blk_queue_new(&none, &run.q, &err)) {
            fprintf(stderr, "%s\n", err.msg);
            exit(1);
        }
        run.top = stack(way, fd);
        engine(&run, ns, ret);
        blk_stack_free(run.top);
        blk_queue_free(run.q);
    }
    uint64_t sum = 0;
    for (size_t us = 0; us < ARRAY_LEN(run.latency); us++) {
        sum += run.latency[us];
        if (sum * 2 >= run.n_done) {
            ret->p50_us = (double)us;
            break;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const struct figures *f, size_t n, size_t field)
{
    double v[MAX_ROUNDS];
    for (size_t i = 0; i < n; i++) {
        v[i] = ((const double *)(const void *)&f[i])[field];
    }
    qsort(v, n, sizeof(v[0]), by_value);
    return v[n / 2];
}

static void table(const struct pattern *p, int fd, char *mem, uint64_t ns, size_t n_rounds)
{
    static struct figures f[N_WAYS][MAX_ROUNDS];
    for (size_t i = 0; i < n_rounds; i++) {
        for (enum way k = 0; k < N_WAYS; k++) {
            one((enum way)((k + i) % N_WAYS), p, fd, mem, ns, &f[(k + i) % N_WAYS][i]);
        }
    }
    for (enum way w = 0; w < N_WAYS; w++) {
        double ratios[MAX_ROUNDS];
        for (size_t i = 0; i < n_rounds; i++) {
            ratios[i] = f[w][i].iops / f[RAW][i].iops;
        }
        qsort(ratios, n_rounds, sizeof(ratios[0]), by_value);
        printf("%-19s %-14s %9.0f IOPS  x%.2f [%.2f-%.2f]  %7.2f us CPU  %5.3f enters  p50 "
               "%5.0f us\n",
               p->name, way_names[w], median(f[w], n_rounds, 0), ratios[n_rounds / 2],
               ratios[0], ratios[n_rounds - 1], median(f[w], n_rounds, 1),
               median(f[w], n_rounds, 2), median(f[w], n_rounds, 3));
    }
}

int main(int argc, char **argv)
{
    uint64_t ms = 500, n_rounds = 5;
    if (argc < 2 || (argc > 2 && num_u64(str_c(argv[2]), 60000, &ms)) ||
        (argc > 3 && num_u64(str_c(argv[3]), MAX_ROUNDS, &n_rounds))) {
        fprintf(stderr, "usage: blk_bench FILE [MILLISECONDS [ROUNDS]]\n");
        return 2;
    }
    AUTO_FD fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
    char *mem = mmap(NULL, 64u << 20, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (fd < 0 || mem == MAP_FAILED || ftruncate(fd, (off_t)FILE_SIZE) < 0) {
        perror(argv[1]);
        return 1;
    }
    rand_bytes(mem, 1u << 20);
    for (uint64_t at = 0; at < FILE_SIZE; at += 1u << 20) {
        if (pwrite(fd, mem, 1u << 20, (off_t)at) != 1 << 20) {
            perror(argv[1]);
            return 1;
        }
    }
    (void)fsync(fd);
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        table(&patterns[i], fd, mem, ms * NS_PER_MS, n_rounds);
    }
    return 0;
}
