#include "blk/blk.h"

#include "base/macro.h"
#include "base/time.h"
#include "blk/blk_int.h"
#include "blk/blk_pool.h"
#include "blk/blk_ring.h"
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

/* Turns of done() in one turn of the loop: an answer goes up this many layers without another
 * system call, and a done() that makes its next request at once does not hold up everything. */
#define DONE_PASSES 6

struct watch {
    struct blk_io io; /* first: what the ring gives back */
    struct blk_queue *q;
    blk_watch_fn fn; /* NULL: not called any more */
    void *ctx;
    int fd;
    bool is_used, is_armed;
};

struct timer {
    uint64_t at_ns, seq; /* those of one time in order */
    blk_watch_fn fn;
    void *ctx;
};

struct req_list {
    struct blk_req *head, **tail;
};

struct starved {
    struct blk_req *head, **tail;
    void (*again)(struct blk_req *r);
};

struct blk_queue {
    struct blk_ring r;
    unsigned depth, n_io;
    unsigned cqe_flags;
    uint64_t now_ns;
    struct req_list done;
    struct starved starved;
    struct blk_pool pool;
    struct timer *timers; /* a heap, smallest first */
    size_t n_timers, max_timers;
    uint64_t timer_seq;
    struct watch watches[BLK_MAX_WATCHES];
    struct watch wake;
    int n_unarmed; /* watches that wait for an sqe */
    bool is_short; /* this turn sleeps less than it was asked to */
    struct blk_queue_stats stats;
    /* Other threads write here. */
    struct blk_msg *posted __attribute__((aligned(64)));
    unsigned n_posting;
    bool is_asleep;
};

/* ---- making ---- */

static void watch_fired(struct blk_io *io, int res);
static void disarm_all(struct blk_queue *q);
static int reap(struct blk_queue *q);

int blk_queue_new(const struct blk_queue_opts *o, struct blk_queue **ret, struct err *err)
{
    struct blk_queue *q = aligned_alloc(64, (sizeof(*q) + 63) / 64 * 64);
    if (!q) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a queue");
    }
    memset(q, 0, sizeof(*q));
    q->depth = o->depth ? o->depth : 256;
    q->done.tail = &q->done.head;
    q->starved.tail = &q->starved.head;
    q->now_ns = time_mono_ns();
    int rc = blk_pool_init(&q->pool, q, o->n_reqs ? o->n_reqs : 1024,
                           o->n_buffers ? o->n_buffers : 32);
    if (rc) {
        free(q);
        return fail(err, rc, "OutOfMemory", "no memory for the pools of a queue");
    }
    rc = blk_ring_open(q->depth, &q->r, err);
    if (rc) {
        blk_pool_done(&q->pool);
        free(q);
        return rc;
    }
    q->wake = (struct watch){.io = {watch_fired}, .q = q, .fd = q->r.wake_fd, .is_used = true};
    q->n_unarmed = 1;
    *ret = q;
    return 0;
}

void blk_queue_free(struct blk_queue *q)
{
    if (!q) {
        return;
    }
    assert(q->n_io == 0 && !q->done.head && !q->starved.head);
    while (__atomic_load_n(&q->n_posting, __ATOMIC_ACQUIRE) > 0) {
        sched_yield();
    }
    if (q->r.is_reserved) {
        disarm_all(q);
    }
    blk_ring_close(&q->r);
    blk_pool_done(&q->pool);
    free(q->timers);
    free(q);
}

/* ---- requests that are over ---- */

void blk_done(struct blk_req *r, int rc)
{
    struct blk_queue *q = r->q;
    r->rc = rc;
    r->next = NULL;
    *q->done.tail = r;
    q->done.tail = &r->next;
}

static int run_done(struct blk_queue *q)
{
    int n = 0;
    for (int pass = 0; pass < DONE_PASSES && q->done.head; pass++) {
        struct blk_req *r = q->done.head;
        q->done.head = NULL;
        q->done.tail = &q->done.head;
        while (r) {
            struct blk_req *next = r->next;
            r->done(r, r->rc); /* r may be gone now */
            r = next;
            n++;
        }
    }
    return n;
}

/* ---- the pools ---- */

struct blk_req *blk_req_get(struct blk_queue *q)
{
    return blk_pool_req(&q->pool, BLK_FRONT);
}

struct blk_req *blk_req_get_tier(struct blk_queue *q, enum blk_tier tier)
{
    return blk_pool_req(&q->pool, tier);
}

void blk_req_put(struct blk_req *r)
{
    blk_pool_put_req(&r->q->pool, r);
}

void *blk_buffer_get(struct blk_queue *q)
{
    return blk_pool_buffer(&q->pool, BLK_FRONT, BLK_BUFFER);
}

void *blk_buffer_get_tier(struct blk_queue *q, enum blk_tier tier)
{
    return blk_pool_buffer(&q->pool, tier, BLK_BUFFER);
}

void *blk_buffer_get_size(struct blk_queue *q, enum blk_tier tier, size_t size)
{
    return blk_pool_buffer(&q->pool, tier, size);
}

void blk_buffer_put(struct blk_queue *q, void *buf)
{
    blk_pool_put_buffer(&q->pool, buf);
}

void blk_queue_wait(struct blk_queue *q, blk_watch_fn fn, void *ctx)
{
    blk_queue_wait_tier(q, BLK_FRONT, fn, ctx);
}

void blk_queue_wait_tier(struct blk_queue *q, enum blk_tier tier, blk_watch_fn fn, void *ctx)
{
    q->stats.n_waits++;
    blk_pool_wait(&q->pool, tier, fn, ctx);
}

/* ---- the ring ---- */

static struct io_uring_sqe *get_sqe(struct blk_queue *q)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&q->r.ring);
    if (!sqe) {
        q->stats.n_enter++;
        (void)io_uring_submit(&q->r.ring); /* what fails shows again at the turn's end */
        sqe = io_uring_get_sqe(&q->r.ring);
    }
    return sqe;
}

struct io_uring_sqe *blk_queue_sqe(struct blk_queue *q)
{
    if (q->n_io >= q->depth) {
        return NULL;
    }
    struct io_uring_sqe *sqe = get_sqe(q);
    if (!sqe) {
        return NULL;
    }
    q->n_io++;
    q->stats.n_sqe++;
    return sqe;
}

void blk_queue_starve(struct blk_queue *q, struct blk_req *r, void (*again)(struct blk_req *r))
{
    assert(!q->starved.again || q->starved.again == again);
    q->starved.again = again;
    r->next = NULL;
    *q->starved.tail = r;
    q->starved.tail = &r->next;
}

unsigned blk_queue_n_io(const struct blk_queue *q)
{
    return q->n_io;
}

void blk_queue_count_bounce(struct blk_queue *q)
{
    q->stats.n_bounced++;
}

static void run_starved(struct blk_queue *q)
{
    while (q->starved.head && q->n_io < q->depth) {
        struct blk_req *r = q->starved.head;
        q->starved.head = r->next;
        if (!q->starved.head) {
            q->starved.tail = &q->starved.head;
        }
        unsigned before = q->n_io;
        q->starved.again(r);
        if (q->n_io == before) {
            break; /* it is on the list again, or went another way: next turn */
        }
    }
}

/* ---- eventfds ---- */

/* A poll that stays: one entry of the ring per watch, and no read(2) per signal. Whoever writes to
 * an eventfd wakes the poll, whatever its count was. */
static void watch_arm(struct watch *w)
{
    struct io_uring_sqe *sqe = get_sqe(w->q);
    if (!sqe) {
        return; /* stays unarmed: next turn */
    }
    io_uring_prep_poll_multishot(sqe, w->fd, POLLIN);
    io_uring_sqe_set_data(sqe, &w->io);
    w->is_armed = true;
    w->q->n_unarmed--;
}

static void arm_all(struct blk_queue *q)
{
    if (q->wake.is_used && !q->wake.is_armed) {
        watch_arm(&q->wake);
    }
    for (size_t i = 0; i < BLK_MAX_WATCHES; i++) {
        if (q->watches[i].is_used && !q->watches[i].is_armed && q->watches[i].fn) {
            watch_arm(&q->watches[i]);
        }
    }
}

static void watch_fired(struct blk_io *io, int res)
{
    struct watch *w = CONTAINER_OF(io, struct watch, io);
    struct blk_queue *q = w->q;
    if (!(q->cqe_flags & IORING_CQE_F_MORE)) {
        w->is_armed = false;
        if (w->fn || w == &q->wake) {
            q->n_unarmed++;
        } else {
            w->is_used = false;
        }
    }
    if (res >= 0 && w->fn) {
        w->fn(w->ctx);
    }
}

int blk_queue_watch(struct blk_queue *q, int event_fd, blk_watch_fn fn, void *ctx,
                    unsigned *ret_id)
{
    for (unsigned i = 0; i < BLK_MAX_WATCHES; i++) {
        struct watch *w = &q->watches[i];
        if (!w->is_used) {
            *w = (struct watch){.io = {watch_fired},
                                .q = q,
                                .fn = fn,
                                .ctx = ctx,
                                .fd = event_fd,
                                .is_used = true};
            q->n_unarmed++;
            watch_arm(w);
            *ret_id = i;
            return 0;
        }
    }
    return -EMFILE;
}

void blk_queue_unwatch(struct blk_queue *q, unsigned id)
{
    assert(id < BLK_MAX_WATCHES && q->watches[id].is_used);
    struct watch *w = &q->watches[id];
    w->fn = NULL;
    if (!w->is_armed) {
        w->is_used = false;
        q->n_unarmed--;
        return;
    }
    /* The descriptor may be closed after this: the poll in the ring has the file itself. */
    struct io_uring_sqe *sqe = get_sqe(q);
    if (sqe) {
        io_uring_prep_poll_remove(sqe, (uint64_t)(uintptr_t)&w->io);
        io_uring_sqe_set_data(sqe, NULL);
    }
}

/* A ring of the reserve goes back without anything in it. */
static void disarm_all(struct blk_queue *q)
{
    q->wake.fn = NULL;
    for (size_t i = 0; i <= BLK_MAX_WATCHES; i++) {
        struct watch *w = i < BLK_MAX_WATCHES ? &q->watches[i] : &q->wake;
        struct io_uring_sqe *sqe = w->is_armed ? get_sqe(q) : NULL;
        w->fn = NULL;
        if (sqe) {
            io_uring_prep_poll_remove(sqe, (uint64_t)(uintptr_t)&w->io);
            io_uring_sqe_set_data(sqe, NULL);
        }
    }
    for (size_t i = 0; i <= BLK_MAX_WATCHES; i++) {
        const struct watch *w = i < BLK_MAX_WATCHES ? &q->watches[i] : &q->wake;
        while (w->is_armed) {
            int rc = io_uring_submit_and_wait(&q->r.ring, 1);
            assert(rc >= 0 || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
            (void)reap(q);
        }
    }
}

/* ---- timers ---- */

static bool timer_before(const struct timer *a, const struct timer *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

void blk_queue_at(struct blk_queue *q, uint64_t mono_ns, blk_watch_fn fn, void *ctx)
{
    if (q->n_timers == q->max_timers) {
        size_t max = q->max_timers ? 2 * q->max_timers : 64; /* bounded by the requests */
        struct timer *t = realloc(q->timers, max * sizeof(*t));
        if (!t) {
            abort();
        }
        q->timers = t;
        q->max_timers = max;
    }
    struct timer t = {.at_ns = mono_ns, .seq = q->timer_seq++, .fn = fn, .ctx = ctx};
    size_t i = q->n_timers++;
    while (i > 0 && timer_before(&t, &q->timers[(i - 1) / 2])) {
        q->timers[i] = q->timers[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->timers[i] = t;
}

static void timer_pop(struct blk_queue *q)
{
    struct timer t = q->timers[--q->n_timers];
    size_t i = 0;
    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= q->n_timers) {
            break;
        }
        if (k + 1 < q->n_timers && timer_before(&q->timers[k + 1], &q->timers[k])) {
            k++;
        }
        if (!timer_before(&q->timers[k], &t)) {
            break;
        }
        q->timers[i] = q->timers[k];
        i = k;
    }
    q->timers[i] = t;
}

static int run_timers(struct blk_queue *q)
{
    int n = 0;
    uint64_t last_seq = q->timer_seq; /* those set meanwhile have their turn later */
    while (q->n_timers > 0 && q->timers[0].at_ns <= q->now_ns && q->timers[0].seq < last_seq) {
        struct timer t = q->timers[0];
        timer_pop(q);
        t.fn(t.ctx);
        n++;
    }
    return n;
}

/* ---- messages of other threads ---- */

void blk_queue_post(struct blk_queue *q, struct blk_msg *m)
{
    /* As soon as the message is seen, the queue may come to its end: it waits for this count. */
    __atomic_fetch_add(&q->n_posting, 1, __ATOMIC_RELAXED);
    struct blk_msg *head = __atomic_load_n(&q->posted, __ATOMIC_RELAXED);
    do {
        m->next = head;
    } while (!__atomic_compare_exchange_n(&q->posted, &head, m, true, __ATOMIC_SEQ_CST,
                                          __ATOMIC_RELAXED));
    if (__atomic_load_n(&q->is_asleep, __ATOMIC_SEQ_CST)) {
        uint64_t one = 1;
        ssize_t n = write(q->wake.fd, &one, sizeof(one));
        (void)n; /* EAGAIN after 2^64 posts */
    }
    __atomic_fetch_sub(&q->n_posting, 1, __ATOMIC_RELEASE);
}

static int run_posted(struct blk_queue *q)
{
    if (!__atomic_load_n(&q->posted, __ATOMIC_RELAXED)) {
        return 0;
    }
    struct blk_msg *m = __atomic_exchange_n(&q->posted, NULL, __ATOMIC_ACQUIRE), *first = NULL;
    while (m) { /* the newest is first: turn it round */
        struct blk_msg *next = m->next;
        m->next = first;
        first = m;
        m = next;
    }
    int n = 0;
    while (first) {
        struct blk_msg *next = first->next;
        first->fn(first);
        first = next;
        n++;
    }
    return n;
}

/* ---- a turn ---- */

static int reap(struct blk_queue *q)
{
    unsigned head = 0, n = 0;
    struct io_uring_cqe *cqe = NULL;
    io_uring_for_each_cqe(&q->r.ring, head, cqe)
    {
        struct blk_io *io = io_uring_cqe_get_data(cqe);
        n++;
        if (!io) {
            continue;
        }
        q->cqe_flags = cqe->flags;
        if (io->fn != watch_fired) {
            q->n_io--;
        }
        io->fn(io, cqe->res);
    }
    io_uring_cq_advance(&q->r.ring, n);
    return (int)n;
}

static int run_due(struct blk_queue *q)
{
    int n = run_posted(q);
    n += run_timers(q);
    n += run_done(q);
    n += blk_pool_run(&q->pool);
    if (q->starved.head) {
        run_starved(q);
    }
    return n;
}

static bool is_work_left(struct blk_queue *q)
{
    return q->done.head || __atomic_load_n(&q->posted, __ATOMIC_SEQ_CST) ||
           blk_pool_has_due(&q->pool);
}

/* Enters the kernel when there is a reason to. */
static int enter(struct blk_queue *q, uint64_t timeout_ns)
{
    unsigned n_ready = io_uring_sq_ready(&q->r.ring);
    if (io_uring_cq_ready(&q->r.ring) > 0) {
        timeout_ns = 0;
    }
    if (timeout_ns == 0) {
        unsigned flags = IO_URING_READ_ONCE(*q->r.ring.sq.kflags);
        if (n_ready == 0 && !(flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW))) {
            return 0;
        }
        q->stats.n_enter++;
        return io_uring_submit_and_get_events(&q->r.ring);
    }
    q->stats.n_enter++;
    if (timeout_ns == UINT64_MAX) {
        return io_uring_submit_and_wait(&q->r.ring, 1);
    }
    struct __kernel_timespec ts = {.tv_sec = (int64_t)(timeout_ns / NS_PER_S),
                                   .tv_nsec = (int64_t)(timeout_ns % NS_PER_S)};
    struct io_uring_cqe *cqe = NULL;
    return io_uring_submit_and_wait_timeout(&q->r.ring, &cqe, 1, &ts, NULL);
}

static uint64_t wait_ns(struct blk_queue *q, uint64_t timeout_ns)
{
    if (timeout_ns == 0 || is_work_left(q)) {
        return 0;
    }
    if (q->n_timers > 0) {
        uint64_t now = time_mono_ns(), at = q->timers[0].at_ns;
        timeout_ns = MIN(timeout_ns, at > now ? at - now : 0);
    }
    uint64_t trim_ns = blk_pool_trim(&q->pool, q->now_ns);
    q->is_short = trim_ns < timeout_ns;
    return MIN(timeout_ns, trim_ns);
}

static int turn(struct blk_queue *q, uint64_t timeout_ns)
{
    q->is_short = false;
    if (q->n_unarmed > 0) {
        arm_all(q);
    }
    int n = run_due(q);
    uint64_t ns = n > 0 ? 0 : wait_ns(q, timeout_ns);
    if (ns > 0) {
        /* Who posts after this sees that it has to wake; what was posted before is seen here. */
        __atomic_store_n(&q->is_asleep, true, __ATOMIC_SEQ_CST);
        if (is_work_left(q)) {
            ns = 0;
        }
    }
    int rc = enter(q, ns);
    __atomic_store_n(&q->is_asleep, false, __ATOMIC_RELAXED);
    if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
        return rc;
    }
    q->now_ns = time_mono_ns();
    n += reap(q);
    n += run_due(q);
    return n;
}

int blk_queue_run(struct blk_queue *q, uint64_t timeout_ns)
{
    for (;;) {
        uint64_t begin = q->now_ns;
        int n = turn(q, timeout_ns);
        if (n != 0 || !q->is_short) {
            return n;
        }
        /* It only woke up to give memory back: the caller's time is not up. */
        uint64_t slept = q->now_ns - begin;
        if (timeout_ns != UINT64_MAX) {
            timeout_ns = timeout_ns > slept ? timeout_ns - slept : 0;
        }
    }
}

uint64_t blk_queue_now(const struct blk_queue *q)
{
    return q->now_ns;
}

void blk_queue_stats(const struct blk_queue *q, struct blk_queue_stats *ret)
{
    *ret = q->stats;
}
