#include "blk/load.h"
#include "base/macro.h"
#include "base/time.h"
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define FILL_BLOCK (1u << 20)
#define PAGE       4096u
#define SUB_BITS   4u /* 16 buckets per power of two */

const struct load_pattern load_patterns[] = {
    {"randread-4k", 100, 4096, 32, 4, false, false},
    {"randwrite-4k", 0, 4096, 32, 4, false, false},
    {"randrw-4k", 70, 4096, 32, 4, false, false},
    {"seqread-1m", 100, 1u << 20, 32, 4, true, false},
    {"seqwrite-1m", 0, 1u << 20, 32, 4, true, false},
    {"read-4k-qd1", 100, 4096, 1, 1, false, false},
    {"write-flush-4k-qd1", 0, 4096, 1, 1, false, true},
};
const unsigned load_n_patterns = ARRAY_LEN(load_patterns);

/* --- numbers --- */

uint64_t load_rand(uint64_t *state, uint64_t n)
{
    uint64_t x = *state; /* xorshift64* */
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return n ? (x * UINT64_C(0x2545f4914f6cdd1d)) % n : 0;
}

static unsigned bucket_of(uint64_t ns)
{
    if (ns < 1u << SUB_BITS) {
        return (unsigned)ns;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    unsigned sub = (unsigned)(ns >> (top - SUB_BITS)) & ((1u << SUB_BITS) - 1u);
    return MIN(((top - SUB_BITS + 1u) << SUB_BITS) + sub, LOAD_HIST_N - 1u);
}

static uint64_t bucket_end(unsigned b)
{
    if (b < 1u << SUB_BITS) {
        return b;
    }
    unsigned top = (b >> SUB_BITS) + SUB_BITS - 1u;
    uint64_t sub = (b & ((1u << SUB_BITS) - 1u)) + 1u;
    return (UINT64_C(1) << top) + (sub << (top - SUB_BITS)) - 1u;
}

void load_hist_add(struct load_hist *h, uint64_t ns)
{
    h->n++;
    h->sum_ns += ns;
    h->max_ns = MAX(h->max_ns, ns);
    h->v[bucket_of(ns)]++;
}

void load_hist_merge(struct load_hist *to, const struct load_hist *from)
{
    to->n += from->n;
    to->sum_ns += from->sum_ns;
    to->max_ns = MAX(to->max_ns, from->max_ns);
    for (unsigned i = 0; i < LOAD_HIST_N; i++) {
        to->v[i] += from->v[i];
    }
}

uint64_t load_hist_at(const struct load_hist *h, unsigned ppm)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < LOAD_HIST_N && h->n > 0; i++) {
        seen += h->v[i];
        if (seen > 0 && (double)seen * 1e6 >= (double)h->n * (double)ppm) {
            return MIN(bucket_end(i), h->max_ns);
        }
    }
    return h->max_ns;
}

static int cmp_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct load_stat load_stat_of(double *v, unsigned n)
{
    if (n == 0) {
        return (struct load_stat){0};
    }
    qsort(v, n, sizeof(*v), cmp_double);
    double median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
    return (struct load_stat){.median = median, .min = v[0], .max = v[n - 1]};
}

/* --- one job --- */

struct slot {
    uint64_t start_ns, off;
    bool is_read, is_sync; /* is_sync: the write is done, its sync is under way */
};

struct job {
    const struct load_pattern *p;
    int fd;
    uint64_t from, n_blocks; /* its part of the target */
    uint64_t end_ns, seed, next;
    const volatile bool *is_cancelled;
    struct load_result ret;
    struct err err;
    pthread_t thread;
    bool is_started;

    struct io_uring ring;
    struct slot *slots;
    char *buffers;
    unsigned n_busy;
};

static uint64_t now_cpu_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The ring has twice the depth: there is always one. */
static struct io_uring_sqe *next_sqe(struct job *j)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&j->ring);
    if (!sqe) {
        abort();
    }
    return sqe;
}

static void submit(struct job *j, unsigned i)
{
    const struct load_pattern *p = j->p;
    struct slot *s = &j->slots[i];
    char *buf = j->buffers + (size_t)i * p->block;
    struct io_uring_sqe *sqe = next_sqe(j);
    uint64_t block =
        p->is_sequential ? j->next++ % j->n_blocks : load_rand(&j->seed, j->n_blocks);
    *s = (struct slot){.off = j->from + block * p->block,
                       .is_read = load_rand(&j->seed, 100) < p->read_percent,
                       .start_ns = time_mono_ns()};
    if (s->is_read) {
        io_uring_prep_read(sqe, j->fd, buf, p->block, s->off);
    } else {
        memcpy(buf, &s->start_ns, sizeof(s->start_ns)); /* not what is there already */
        io_uring_prep_write(sqe, j->fd, buf, p->block, s->off);
    }
    io_uring_sqe_set_data64(sqe, i);
    j->n_busy++;
}

static void sync_slot(struct job *j, unsigned i)
{
    struct io_uring_sqe *sqe = next_sqe(j);
    j->slots[i].is_sync = true;
    io_uring_prep_fsync(sqe, j->fd, IORING_FSYNC_DATASYNC);
    io_uring_sqe_set_data64(sqe, i);
    j->n_busy++;
}

static bool is_over(const struct job *j, uint64_t now_ns)
{
    return now_ns >= j->end_ns || (j->is_cancelled && *j->is_cancelled) || j->err.code != 0;
}

static void complete(struct job *j, const struct io_uring_cqe *cqe)
{
    unsigned i = (unsigned)io_uring_cqe_get_data64(cqe);
    struct slot *s = &j->slots[i];
    uint64_t now_ns = time_mono_ns();
    j->n_busy--;
    int want = s->is_sync ? 0 : (int)j->p->block;
    if (cqe->res != want) {
        (void)fail(&j->err, cqe->res < 0 ? cqe->res : -EIO, "LoadFailed",
                   "%s at %llu answered %d instead of %d",
                   s->is_sync ? "a sync" : (s->is_read ? "a read" : "a write"),
                   (unsigned long long)s->off, cqe->res, want);
        return;
    }
    if (j->p->is_flushed && !s->is_read && !s->is_sync) {
        sync_slot(j, i);
        return;
    }
    if (s->is_read) {
        j->ret.n_reads++;
        load_hist_add(&j->ret.read, now_ns - s->start_ns);
    } else {
        j->ret.n_writes++;
        load_hist_add(&j->ret.write, now_ns - s->start_ns);
    }
    j->ret.bytes += j->p->block;
    if (!is_over(j, now_ns)) {
        submit(j, i);
    }
}

static int open_ring(struct job *j)
{
    struct io_uring_params params = {.flags = IORING_SETUP_COOP_TASKRUN |
                                              IORING_SETUP_SINGLE_ISSUER};
    unsigned n = MAX(j->p->depth * 2, 8u);
    int r = io_uring_queue_init_params(n, &j->ring, &params);
    if (r == -EINVAL) { /* an older kernel */
        params = (struct io_uring_params){0};
        r = io_uring_queue_init_params(n, &j->ring, &params);
    }
    return r;
}

static void run_ring(struct job *j)
{
    for (unsigned i = 0; i < j->p->depth; i++) {
        submit(j, i);
    }
    while (j->n_busy > 0) {
        int r = io_uring_submit_and_wait(&j->ring, 1);
        if (r < 0 && r != -EINTR && r != -EAGAIN) {
            (void)fail(&j->err, r, "LoadFailed", "io_uring_enter: %s", strerror(-r));
            return;
        }
        struct io_uring_cqe *cqe = NULL;
        while (io_uring_peek_cqe(&j->ring, &cqe) == 0) {
            struct io_uring_cqe copy = *cqe;
            io_uring_cqe_seen(&j->ring, cqe);
            complete(j, &copy);
        }
    }
}

static void *job_main(void *ctx)
{
    struct job *j = ctx;
    size_t size = (size_t)j->p->depth * j->p->block;
    j->slots = calloc(j->p->depth, sizeof(*j->slots));
    j->buffers = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    int r = !j->slots || j->buffers == MAP_FAILED ? -ENOMEM : open_ring(j);
    if (r < 0) {
        (void)fail(&j->err, r, "LoadFailed", "a job cannot start: %s", strerror(-r));
    } else {
        uint64_t cpu_ns = now_cpu_ns();
        for (size_t i = 0; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
            uint64_t v = load_rand(&j->seed, UINT64_MAX);
            memcpy(j->buffers + i, &v, sizeof(v));
        }
        run_ring(j);
        j->ret.cpu_ns = now_cpu_ns() - cpu_ns;
        io_uring_queue_exit(&j->ring);
    }
    if (j->buffers != MAP_FAILED) {
        (void)munmap(j->buffers, size);
    }
    free(j->slots);
    return NULL;
}

/* --- runs --- */

static int check_pattern(const struct load_pattern *p, unsigned n_targets, struct err *err)
{
    if (p->block < PAGE || p->block % PAGE != 0 || p->depth == 0 || p->depth > 1024 ||
        p->n_jobs == 0 || p->n_jobs > LOAD_MAX_JOBS || p->read_percent > 100 ||
        n_targets == 0) {
        return fail(err, -EINVAL, "BadPattern", "%s is no pattern for a disk", p->name);
    }
    return 0;
}

static int place_job(struct job *j, unsigned idx, const struct load_target *t,
                     unsigned n_targets, const struct load_pattern *p, struct err *err)
{
    const struct load_target *mine = &t[idx % n_targets];
    /* Jobs that share a target have a part each. */
    unsigned n_sharing = (p->n_jobs - idx % n_targets + n_targets - 1) / n_targets;
    uint64_t part = mine->size / n_sharing / p->block;
    j->fd = mine->fd;
    j->from = part * p->block * (idx / n_targets);
    j->n_blocks = part;
    return part >= p->depth
               ? 0
               : fail(err, -EINVAL, "BadPattern", "%s: the target is too small for %u jobs",
                      p->name, p->n_jobs);
}

int load_raw(const struct load_target *t, unsigned n_targets, const struct load_pattern *p,
             uint64_t ns, uint64_t seed, const volatile bool *is_cancelled,
             struct load_result *ret, struct err *err)
{
    int r = check_pattern(p, n_targets, err);
    if (r < 0) {
        return r;
    }
    AUTO_FREE struct job *jobs = calloc(p->n_jobs, sizeof(*jobs));
    if (!jobs) {
        return fail(err, -ENOMEM, "LoadFailed", "no memory for %u jobs", p->n_jobs);
    }
    uint64_t start_ns = time_mono_ns();
    for (unsigned i = 0; i < p->n_jobs && r == 0; i++) {
        jobs[i].p = p;
        jobs[i].seed = (seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        jobs[i].end_ns = start_ns + ns;
        jobs[i].is_cancelled = is_cancelled;
        r = place_job(&jobs[i], i, t, n_targets, p, err);
        if (r == 0 && pthread_create(&jobs[i].thread, NULL, job_main, &jobs[i]) != 0) {
            r = fail(err, -EAGAIN, "LoadFailed", "a thread cannot be started");
        }
        jobs[i].is_started = r == 0;
    }
    *ret = (struct load_result){0};
    for (unsigned i = 0; i < p->n_jobs; i++) {
        if (!jobs[i].is_started) {
            continue;
        }
        (void)pthread_join(jobs[i].thread, NULL);
        if (jobs[i].err.code != 0 && r == 0) {
            r = fail(err, jobs[i].err.code, jobs[i].err.name, "%s: %s", p->name,
                     jobs[i].err.msg);
        }
        ret->n_reads += jobs[i].ret.n_reads;
        ret->n_writes += jobs[i].ret.n_writes;
        ret->bytes += jobs[i].ret.bytes;
        ret->cpu_ns += jobs[i].ret.cpu_ns;
        load_hist_merge(&ret->read, &jobs[i].ret.read);
        load_hist_merge(&ret->write, &jobs[i].ret.write);
    }
    ret->ns = time_mono_ns() - start_ns;
    return r;
}

int load_fill(const struct load_target *t, uint64_t seed,
              void (*on_progress)(void *ctx, uint64_t done), void *ctx, struct err *err)
{
    void *p = NULL;
    if (posix_memalign(&p, PAGE, FILL_BLOCK) != 0) {
        return fail(err, -ENOMEM, "LoadFailed", "no memory");
    }
    AUTO_FREE char *buf = p;
    uint64_t state = seed | 1;
    for (uint64_t off = 0; off < t->size; off += FILL_BLOCK) {
        size_t n = (size_t)MIN(t->size - off, (uint64_t)FILL_BLOCK);
        for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
            uint64_t v = load_rand(&state, UINT64_MAX);
            memcpy(buf + i, &v, sizeof(v));
        }
        ssize_t w = pwrite(t->fd, buf, n, (off_t)off);
        if (w != (ssize_t)n) {
            return fail(err, w < 0 ? -errno : -EIO, "LoadFailed", "writing at %llu: %s",
                        (unsigned long long)off, w < 0 ? strerror(errno) : "cut short");
        }
        if (on_progress) {
            on_progress(ctx, off + n);
        }
    }
    return fdatasync(t->fd) == 0
               ? 0
               : fail(err, -errno, "LoadFailed", "fdatasync: %s", strerror(errno));
}
