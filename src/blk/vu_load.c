#include "blk/vu_load.h"
#include "base/time.h"
#include <errno.h>
#include <linux/virtio_blk.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define BATCH   64u
#define HANG_NS (30 * NS_PER_S)

struct slot {
    uint64_t start_ns, off;
    bool is_read, is_sync; /* is_sync: the write is done, its sync is under way */
};
struct job {
    const struct load_pattern *p;
    struct vu_client *c;
    unsigned idx, n_busy;
    uint64_t from, n_blocks; /* its part of the disk */
    uint64_t end_ns, seed, next;
    const volatile bool *is_cancelled;
    struct slot *slots;
    char *buffers; /* in the client's memory */
    struct load_result ret;
    struct err err;
    pthread_t thread;
};

static uint64_t now_cpu_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void put(struct job *j, unsigned i, unsigned type)
{
    struct vu_io io = {.type = type,
                       .off = j->slots[i].off,
                       .len = j->p->block,
                       .p = j->buffers + (size_t)i * j->p->block,
                       .tag = i};
    int rc = vu_client_put(j->c, j->idx, &io);
    if (rc < 0) {
        (void)fail(&j->err, rc, "LoadFailed", "a request does not fit in the ring");
        return;
    }
    j->n_busy++;
}

static void submit(struct job *j, unsigned i, uint64_t now_ns)
{
    const struct load_pattern *p = j->p;
    struct slot *s = &j->slots[i];
    uint64_t block =
        p->is_sequential ? j->next++ % j->n_blocks : load_rand(&j->seed, j->n_blocks);
    *s = (struct slot){.off = j->from + block * p->block,
                       .is_read = load_rand(&j->seed, 100) < p->read_percent,
                       .start_ns = now_ns};
    if (!s->is_read) { /* not what is there already */
        memcpy(j->buffers + (size_t)i * p->block, &now_ns, sizeof(now_ns));
    }
    put(j, i, s->is_read ? VIRTIO_BLK_T_IN : VIRTIO_BLK_T_OUT);
}

static void complete(struct job *j, const struct vu_end *e, uint64_t now_ns)
{
    unsigned i = (unsigned)e->tag;
    struct slot *s = &j->slots[i];
    j->n_busy--;
    if (e->status != VIRTIO_BLK_S_OK) {
        (void)fail(&j->err, -EIO, "LoadFailed", "%s at %llu: status %u",
                   s->is_sync ? "a sync" : (s->is_read ? "a read" : "a write"),
                   (unsigned long long)s->off, e->status);
        return;
    }
    if (j->p->is_flushed && !s->is_read && !s->is_sync) {
        s->is_sync = true;
        put(j, i, VIRTIO_BLK_T_FLUSH);
        return;
    }
    *(s->is_read ? &j->ret.n_reads : &j->ret.n_writes) += 1;
    load_hist_add(s->is_read ? &j->ret.read : &j->ret.write, now_ns - s->start_ns);
    j->ret.bytes += j->p->block;
    if (now_ns < j->end_ns && !(j->is_cancelled && *j->is_cancelled) && j->err.code == 0) {
        submit(j, i, now_ns);
    }
}

static void run_job(struct job *j)
{
    struct vu_end ends[BATCH];
    uint64_t now_ns = time_mono_ns();
    for (unsigned i = 0; i < j->p->depth; i++) {
        submit(j, i, now_ns);
    }
    while (j->n_busy > 0) {
        int n = vu_client_kick(j->c, j->idx);
        n = n < 0 ? n : vu_client_wait(j->c, j->idx, HANG_NS, ends, BATCH);
        if (n <= 0) {
            int rc = n < 0 ? n : -ETIMEDOUT;
            (void)fail(&j->err, rc, "LoadFailed", "the server does not answer: %s",
                       strerror(-rc));
            return;
        }
        now_ns = time_mono_ns();
        for (int i = 0; i < n; i++) {
            complete(j, &ends[i], now_ns);
        }
    }
}

static void *job_main(void *ctx)
{
    struct job *j = ctx;
    size_t size = (size_t)j->p->depth * j->p->block;
    for (size_t i = 0; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
        uint64_t v = load_rand(&j->seed, UINT64_MAX);
        memcpy(j->buffers + i, &v, sizeof(v));
    }
    uint64_t cpu_ns = now_cpu_ns();
    run_job(j);
    j->ret.cpu_ns = now_cpu_ns() - cpu_ns;
    return NULL;
}

uint64_t vu_load_mem(const struct load_pattern *p)
{
    return (uint64_t)p->n_jobs * p->depth * p->block;
}

static int make_job(struct job *j, unsigned idx, struct vu_client *c,
                    const struct load_pattern *p, uint64_t size, struct err *err)
{
    j->p = p;
    j->c = c;
    j->idx = idx;
    j->n_blocks = size / p->n_jobs / p->block;
    j->from = j->n_blocks * p->block * idx;
    j->buffers = (char *)vu_client_mem(c) + (size_t)idx * p->depth * p->block;
    j->slots = calloc(p->depth, sizeof(*j->slots));
    if (!j->slots || j->n_blocks < p->depth) {
        return fail(err, -EINVAL, "BadPattern", "%s: the disk is too small for %u jobs",
                    p->name, p->n_jobs);
    }
    return 0;
}

static void add_result(struct load_result *to, const struct load_result *r)
{
    to->n_reads += r->n_reads;
    to->n_writes += r->n_writes;
    to->bytes += r->bytes;
    to->cpu_ns += r->cpu_ns;
    load_hist_merge(&to->read, &r->read);
    load_hist_merge(&to->write, &r->write);
}

int vu_load(struct vu_client *c, const struct load_pattern *p, uint64_t size, uint64_t ns,
            uint64_t seed, const volatile bool *is_cancelled, struct load_result *ret,
            struct err *err)
{
    if (p->block < 512 || p->block % 512 != 0 || p->depth == 0 ||
        p->depth > vu_client_depth(c) || p->n_jobs == 0 || p->n_jobs > LOAD_MAX_JOBS ||
        p->read_percent > 100) {
        return fail(err, -EINVAL, "BadPattern", "%s is no pattern for this ring", p->name);
    }
    AUTO_FREE struct job *jobs = calloc(p->n_jobs, sizeof(*jobs));
    if (!jobs) {
        return fail(err, -ENOMEM, "LoadFailed", "no memory for %u jobs", p->n_jobs);
    }
    int rc = 0;
    unsigned n_started = 0;
    uint64_t start_ns = time_mono_ns();
    for (; n_started < p->n_jobs && rc == 0; n_started++) {
        struct job *j = &jobs[n_started];
        j->seed = (seed + n_started + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        j->end_ns = start_ns + ns;
        j->is_cancelled = is_cancelled;
        rc = make_job(j, n_started, c, p, size, err);
        if (rc == 0 && pthread_create(&j->thread, NULL, job_main, j) != 0) {
            rc = fail(err, -EAGAIN, "LoadFailed", "a thread cannot be started");
        }
        if (rc < 0) {
            free(j->slots);
            break;
        }
    }
    *ret = (struct load_result){0};
    for (unsigned i = 0; i < n_started; i++) {
        (void)pthread_join(jobs[i].thread, NULL);
        if (jobs[i].err.code != 0 && rc == 0) {
            rc = fail(err, jobs[i].err.code, jobs[i].err.name, "%s: %s", p->name,
                      jobs[i].err.msg);
        }
        add_result(ret, &jobs[i].ret);
        free(jobs[i].slots);
    }
    ret->ns = time_mono_ns() - start_ns;
    return rc;
}
