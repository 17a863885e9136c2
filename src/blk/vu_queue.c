#include "blk/vu_queue.h"
#include "base/log.h"
#include "base/time.h"
#include "blk/disk.h"
#include "blk/vu_mutant.h"
#include "blk/vu_request.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <pthread.h>
#include <sys/eventfd.h>

LOG_MODULE("blk.vu");

#define MAX_PASSES  4u /* of looking at the ring, before the engine has its turn */
#define MIN_SPIN_NS 2000u
/* With so many requests still under way, a guest is interrupted at most so often: on a disk whose
 * completions come one by one each would wake the guest for one new request, and that wake us. */
#define CALM_OPS    8u
#define CALM_NS     50000u

struct vu_op { /* one head under way */
    struct vu_queue *q;
    struct vu_op *next; /* of those that wait for a blk_req */
    uint16_t head;
    uint64_t start_ns, bytes;
    unsigned i_iov, n_iov; /* pieces not done; those of the request under way */
    unsigned i_range;
    uint64_t done;     /* bytes done, of the request or the range */
    uint64_t len;      /* of the request under way */
    struct iovec rest; /* what was cut off its last piece */
    struct vu_request rq;
    struct vu_chain chain;
};

struct vu_queue {
    struct vu_queue_opts o;
    int fds[VU_QUEUE_FD_N];
    struct blk_queue *bq;
    pthread_t thread;
    bool has_thread;
    /* Messages to the thread; one of a kind is on its way at most. */
    struct blk_msg start_msg, stop_msg, quit_msg;
    struct vu_queue_start start;
    int state; /* enum vu_queue_state: RUNNING and STOPPING set by the loop, STOPPED by the
                  thread */
    pthread_mutex_t lock;
    pthread_cond_t stopped;

    /* The thread's own. */
    bool is_quitting, is_running, is_stopping, is_faulted, is_call_due;
    struct vu_ring ring;
    struct vu_inflight inflight;
    struct vu_device device;
    unsigned watch, n_ops;
    struct vu_op *ops; /* one per head */
    struct vu_op *waiting, **waiting_tail;
    bool is_waiting; /* for blk_queue_wait() to call back */
    uint16_t batch[VU_QUEUE_SIZE];
    uint32_t batch_written[VU_QUEUE_SIZE];
    unsigned n_batch;
    uint64_t called_ns; /* the last interrupt */
    uint64_t spin_ns;   /* how long polling seems to pay off now */
};

/* ---- tests: the process dies here ---- */

static void maybe_crash(struct vu_queue *q, enum vu_crash at)
{
    struct vu_shared *s = q->o.shared;
    if (__atomic_load_n(&s->crash_at, __ATOMIC_RELAXED) == (uint64_t)at &&
        __atomic_sub_fetch(&s->crash_left, 1, __ATOMIC_RELAXED) == 0) {
        _exit(137);
    }
}

static void count(uint64_t *n, uint64_t by)
{
    (void)__atomic_fetch_add(n, by, __ATOMIC_RELAXED);
}

/* ---- giving back ---- */

static void signal_fd(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof(one)); /* full: somebody is told already */
    (void)n;
}

static void fault(struct vu_queue *q, const char *why)
{
    if (!q->is_faulted) {
        q->is_faulted = true;
        count(&q->o.shared->n_ring_faults, 1);
        log_debug("vu.ring_fault", KV_U64("ring", q->o.idx), KV_CSTR("why", why));
        signal_fd(q->fds[VU_QUEUE_ERR]);
    }
}

static void finish(struct vu_op *op, uint8_t status)
{
    struct vu_queue *q = op->q;
    __atomic_store_n(op->rq.ret_status, status, __ATOMIC_RELEASE);
    q->batch_written[q->n_batch] = op->rq.written;
    q->batch[q->n_batch++] = op->head;
    q->n_ops--;
}

static void call(struct vu_queue *q)
{
    uint64_t now_ns = blk_queue_now(q->bq);
    if (q->n_ops >= CALM_OPS && now_ns - q->called_ns < CALM_NS && !q->is_stopping &&
        !q->is_faulted) {
        return; /* stays due: sleep_until_due() sees to it */
    }
    q->is_call_due = false;
    q->called_ns = now_ns;
    signal_fd(q->fds[VU_QUEUE_CALL]);
}

/* The order is that of vu_inflight.h. */
static void publish(struct vu_queue *q)
{
    unsigned n = q->n_batch;
    if (n > 0) {
        for (unsigned i = 0; i < n; i++) {
            maybe_crash(q, VU_CRASH_DONE);
            vu_inflight_batch(&q->inflight, q->batch[i]);
            vu_ring_push(&q->ring, q->batch[i], q->batch_written[i]);
        }
        vu_ring_publish(&q->ring);
        for (unsigned i = 0; i < n; i++) {
            maybe_crash(q, i == 0 ? VU_CRASH_PUBLISHED : VU_CRASH_HALF);
            vu_inflight_clear(&q->inflight, q->batch[i]);
        }
        vu_inflight_published(&q->inflight, q->ring.used_idx);
        maybe_crash(q, VU_CRASH_CLEARED);
        q->n_batch = 0;
        q->is_call_due |= vu_ring_wants_call(&q->ring);
    }
    if (q->is_call_due) {
        call(q);
    }
}

/* ---- doing ---- */

static void step(struct vu_op *op);

static void end(struct vu_op *op, int rc)
{
    struct vu_queue *q = op->q;
    disk_count(q->o.disk, q->o.idx, op->rq.op, op->bytes, blk_queue_now(q->bq) - op->start_ns,
               rc);
    finish(op, vu_request_status(rc));
}

static void req_done(struct blk_req *r, int rc)
{
    struct vu_op *op = r->ctx;
    blk_req_put(r);
    if (op->rest.iov_base) {
        op->chain.iov[op->i_iov + op->n_iov - 1] = op->rest;
        op->i_iov += op->n_iov - 1;
        op->rest.iov_base = NULL;
    } else {
        op->i_iov += op->n_iov;
    }
    op->done += op->len;
    op->bytes += op->len;
    bool is_over = op->done == op->rq.len;
    if (op->rq.what == VU_DO_RANGES) {
        if (op->done == op->rq.ranges[op->i_range].len) {
            op->i_range++;
            op->done = 0;
        }
        is_over = op->i_range == op->rq.n_ranges;
    }
    if (rc < 0 || is_over) {
        end(op, rc);
    } else {
        step(op);
    }
}

static bool fill(struct vu_op *op, struct blk_req *r)
{
    r->op = op->rq.op;
    r->flags = 0;
    r->iov = NULL;
    r->n_iov = 0;
    op->n_iov = 0;
    op->len = 0;
    if (op->rq.what == VU_DO_RANGES) {
        const struct vu_range *range = &op->rq.ranges[op->i_range];
        op->len = MIN(range->len - op->done, (uint64_t)BLK_MAX_LEN);
        r->off = range->off + op->done;
        r->flags = range->flags;
    } else if (op->rq.op != BLK_FLUSH) {
        r->off = op->rq.off + op->done;
        r->iov = &op->chain.iov[op->i_iov];
        if (!vu_request_part(&op->chain.iov[op->i_iov], op->rq.first + op->rq.n - op->i_iov,
                             &op->n_iov, &op->len, &op->rest)) {
            return false;
        }
        r->n_iov = (int)op->n_iov;
    } else {
        r->off = 0;
    }
    r->len = op->len;
    r->done = req_done;
    r->ctx = op;
    return true;
}

static void on_req_free(void *ctx)
{
    struct vu_queue *q = ctx;
    struct vu_op *op = q->waiting;
    q->is_waiting = false;
    q->waiting = NULL;
    q->waiting_tail = &q->waiting;
    while (op) {
        struct vu_op *next = op->next;
        step(op); /* waits again, at the end and in the same order, when there is none */
        op = next;
    }
}

static void step(struct vu_op *op)
{
    struct vu_queue *q = op->q;
    struct blk_req *r = q->waiting ? NULL : blk_req_get(q->bq);
    if (!r) {
        op->next = NULL;
        *q->waiting_tail = op;
        q->waiting_tail = &op->next;
        if (!q->is_waiting) {
            q->is_waiting = true;
            blk_queue_wait(q->bq, on_req_free, q);
        }
        return;
    }
    if (!fill(op, r)) {
        blk_req_put(r);
        count(&q->o.shared->n_bad_requests, 1);
        end(op, -EIO);
        return;
    }
    blk_submit(disk_top(q->o.disk), r);
}

static void begin(struct vu_queue *q, uint16_t head)
{
    struct vu_op *op = &q->ops[head];
    op->q = q;
    op->head = head;
    op->bytes = op->done = op->len = 0;
    op->i_range = 0;
    op->rest.iov_base = NULL;
    if (q->o.disk) {
        q->device.size = disk_size(q->o.disk);
    }
    if (vu_ring_chain(&q->ring, head, &op->chain) < 0) {
        fault(q, "a chain of descriptors is not allowed");
        return;
    }
    if (vu_request_read(&op->chain, &q->device, &op->rq) < 0) {
        fault(q, "a request has no room for header or status");
        return;
    }
    q->n_ops++;
    op->i_iov = op->rq.first;
    if (!q->o.disk && op->rq.what != VU_DO_ANSWER) {
        op->rq.what = VU_DO_ANSWER;
        op->rq.status = VIRTIO_BLK_S_IOERR;
    }
    if (op->rq.what == VU_DO_ANSWER) {
        if (op->rq.status != VIRTIO_BLK_S_OK) {
            count(&q->o.shared->n_bad_requests, 1);
        }
        finish(op, op->rq.status);
        return;
    }
    op->start_ns = blk_queue_now(q->bq);
    disk_count_start(q->o.disk, q->o.idx);
    step(op);
}

static unsigned take(struct vu_queue *q)
{
    unsigned n = 0;
    uint16_t head = 0;
    while (n < q->ring.num && !q->is_faulted) {
        int rc = vu_ring_next(&q->ring, &head);
        if (rc < 0) {
            fault(q, "the available ring breaks the rules");
        }
        if (rc <= 0) {
            break;
        }
        n++;
        vu_inflight_fetched(&q->inflight, head);
        maybe_crash(q, VU_CRASH_LOGGED);
        begin(q, head);
    }
    return n;
}

/* ---- the thread ---- */

static void on_kick(void *ctx)
{
    (void)ctx; /* to be awake is enough: every turn looks at the ring */
}

static void set_stopped(struct vu_queue *q)
{
    pthread_mutex_lock(&q->lock);
    __atomic_store_n(&q->state, VU_QUEUE_STOPPED, __ATOMIC_RELEASE);
    pthread_cond_signal(&q->stopped);
    signal_fd(q->o.wake_fd); /* under the lock: who waits for it frees the descriptor after */
    pthread_mutex_unlock(&q->lock);
}

static void recover(struct vu_queue *q)
{
    unsigned n_torn = 0;
    uint16_t *heads = q->batch; /* nothing is in it yet */
    int n = vu_inflight_recover(&q->inflight, q->ring.num, q->ring.used_idx, heads, &n_torn);
    if (n < 0) {
        fault(q, "the log of requests under way contradicts the ring");
        return;
    }
    count(&q->o.shared->n_torn_batches, n_torn > 0 ? 1 : 0);
    count(&q->o.shared->n_resubmitted, (unsigned)n);
    q->ring.last_avail = (uint16_t)(q->ring.used_idx + n);
    uint16_t copy[VU_QUEUE_SIZE];
    memcpy(copy, heads, sizeof(*heads) * (size_t)n);
    for (int i = 0; i < n && !q->is_faulted; i++) {
        if (vu_ring_again(&q->ring, copy[i]) < 0) {
            fault(q, "the log of requests under way contradicts the ring");
            return;
        }
        begin(q, copy[i]);
    }
}

static void on_start(struct blk_msg *m)
{
    struct vu_queue *q = CONTAINER_OF(m, struct vu_queue, start_msg);
    q->is_running = true;
    q->is_stopping = q->is_faulted = false;
    q->n_ops = q->n_batch = 0;
    q->inflight = q->start.inflight;
    if (VU_MUTANT(NO_INFLIGHT)) {
        q->inflight.r = NULL;
    }
    q->is_call_due = !VU_MUTANT(NO_CALL);
    if (blk_queue_watch(q->bq, q->start.kick_fd, on_kick, q, &q->watch) < 0) {
        abort(); /* one watch per queue: there is room */
    }
    if (vu_ring_init(&q->ring, &q->start.ring) < 0) {
        q->ring.last_avail = q->start.base;
        fault(q, "the ring is outside of memory");
    } else if (q->inflight.r) {
        recover(q);
    } else {
        q->ring.last_avail = q->start.base;
    }
}

static void on_stop(struct blk_msg *m)
{
    CONTAINER_OF(m, struct vu_queue, stop_msg)->is_stopping = true;
}

static void on_quit(struct blk_msg *m)
{
    CONTAINER_OF(m, struct vu_queue, quit_msg)->is_quitting = true;
}

/* Looks at the ring and gives back what is done; false: there is more to do at once. */
static bool turn(struct vu_queue *q)
{
    unsigned n = 0;
    publish(q);
    if (q->is_stopping) {
        if (q->n_ops == 0) {
            blk_queue_unwatch(q->bq, q->watch);
            q->is_running = q->is_stopping = false;
            set_stopped(q);
        }
        return true;
    }
    if (q->is_faulted) {
        return true;
    }
    vu_ring_ask_kick(&q->ring, false);
    do {
        if (take(q) == 0) {
            break;
        }
        publish(q); /* what was answered without the disk */
    } while (++n < MAX_PASSES);
    if (q->is_faulted) {
        publish(q);
        return true;
    }
    vu_ring_ask_kick(&q->ring, true);
    return !vu_ring_has_next(&q->ring);
}

/* Polls for as long as it paid off lately; true when something came. */
static bool spin(struct vu_queue *q)
{
    uint64_t end_ns = time_mono_ns() + q->spin_ns;
    do {
        if (blk_queue_run(q->bq, 0) > 0 || vu_ring_has_next(&q->ring)) {
            return true;
        }
    } while (time_mono_ns() < end_ns);
    return false;
}

static uint64_t call_in_ns(const struct vu_queue *q)
{
    uint64_t at_ns = q->called_ns + CALM_NS, now_ns = blk_queue_now(q->bq);
    return !q->is_call_due ? UINT64_MAX : at_ns > now_ns ? at_ns - now_ns : 0;
}

static void sleep_until_due(struct vu_queue *q)
{
    bool may_spin = q->o.poll_ns > 0 && q->is_running && !q->is_faulted && !q->is_stopping;
    if (may_spin && q->spin_ns > 0 && spin(q)) {
        return;
    }
    uint64_t from_ns = may_spin ? time_mono_ns() : 0;
    if (blk_queue_run(q->bq, call_in_ns(q)) < 0) {
        abort(); /* an io_uring that does not work any more: the log restores what is lost */
    }
    if (may_spin) {
        uint64_t slept_ns = time_mono_ns() - from_ns;
        q->spin_ns = slept_ns > q->o.poll_ns
                         ? q->spin_ns / 2 / MIN_SPIN_NS * MIN_SPIN_NS
                         : MIN(MAX(q->spin_ns * 2, MIN_SPIN_NS), q->o.poll_ns);
    }
}

static void *thread_main(void *ctx)
{
    struct vu_queue *q = ctx;
    while (!q->is_quitting) {
        if (!q->is_running || turn(q)) {
            sleep_until_due(q);
        } else if (blk_queue_run(q->bq, 0) < 0) {
            abort();
        }
    }
    return NULL;
}

/* ---- the loop's side ---- */

static int make_thread(struct vu_queue *q, struct err *err)
{
    struct blk_queue_opts o = {.n_reqs = VU_QUEUE_SIZE};
    int rc = blk_queue_new(&o, &q->bq, err);
    if (rc < 0) {
        return rc;
    }
    rc = pthread_create(&q->thread, NULL, thread_main, q);
    if (rc != 0) {
        blk_queue_free(q->bq);
        q->bq = NULL;
        return fail(err, -rc, "ThreadFailed", "no thread for a ring");
    }
    q->has_thread = true;
    return 0;
}

int vu_queue_new(const struct vu_queue_opts *o, struct vu_queue **ret, struct err *err)
{
    struct vu_queue *q = calloc(1, sizeof(*q));
    struct vu_op *ops = calloc(VU_QUEUE_SIZE, sizeof(*ops)); /* touched only when used */
    int call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!q || !ops || call < 0 || error < 0) {
        int rc = q && ops ? -errno : -ENOMEM;
        free(q);
        free(ops);
        auto_closep(&call);
        auto_closep(&error);
        return fail(err, rc, "QueueFailed", "a ring cannot be made");
    }
    q->o = *o;
    q->ops = ops;
    q->fds[VU_QUEUE_CALL] = call;
    q->fds[VU_QUEUE_ERR] = error;
    q->waiting_tail = &q->waiting;
    q->start_msg.fn = on_start;
    q->stop_msg.fn = on_stop;
    q->quit_msg.fn = on_quit;
    q->device =
        (struct vu_device){.is_read_only = disk_is_read_only(o->disk), .serial = o->serial};
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->stopped, NULL);
    *ret = q;
    return 0;
}

void vu_queue_free(struct vu_queue *q)
{
    if (!q) {
        return;
    }
    if (vu_queue_state(q) == VU_QUEUE_RUNNING) {
        vu_queue_stop(q);
    }
    pthread_mutex_lock(&q->lock);
    while (vu_queue_state(q) != VU_QUEUE_STOPPED) {
        pthread_cond_wait(&q->stopped, &q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    if (q->has_thread) {
        blk_queue_post(q->bq, &q->quit_msg);
        pthread_join(q->thread, NULL);
        blk_queue_free(q->bq);
    }
    close(q->fds[VU_QUEUE_CALL]);
    close(q->fds[VU_QUEUE_ERR]);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->stopped);
    free(q->ops);
    free(q);
}

int vu_queue_start(struct vu_queue *q, const struct vu_queue_start *s, struct err *err)
{
    assert(vu_queue_state(q) == VU_QUEUE_STOPPED);
    int rc = q->has_thread ? 0 : make_thread(q, err);
    if (rc < 0) {
        return rc;
    }
    q->start = *s;
    __atomic_store_n(&q->state, VU_QUEUE_RUNNING, __ATOMIC_RELEASE);
    blk_queue_post(q->bq, &q->start_msg);
    return 0;
}

void vu_queue_stop(struct vu_queue *q)
{
    assert(vu_queue_state(q) == VU_QUEUE_RUNNING);
    __atomic_store_n(&q->state, VU_QUEUE_STOPPING, __ATOMIC_RELEASE);
    blk_queue_post(q->bq, &q->stop_msg);
}

enum vu_queue_state vu_queue_state(const struct vu_queue *q)
{
    return (enum vu_queue_state)__atomic_load_n(&q->state, __ATOMIC_ACQUIRE);
}

uint16_t vu_queue_base(const struct vu_queue *q)
{
    return q->ring.last_avail;
}

void vu_queue_cut(struct vu_queue *q)
{
    assert(vu_queue_state(q) == VU_QUEUE_STOPPED);
    q->device.size = disk_size(q->o.disk);
    q->o.disk = NULL;
}

int vu_queue_set_fd(struct vu_queue *q, enum vu_queue_fd which, int fd)
{
    AUTO_FD none = fd < 0 ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    int from = fd < 0 ? none : fd;
    if (from < 0 || dup3(from, q->fds[which], O_CLOEXEC) < 0) {
        return -errno;
    }
    /* An interrupt on the way to the old one may have gone nowhere. */
    if (which == VU_QUEUE_CALL && vu_queue_state(q) == VU_QUEUE_RUNNING) {
        signal_fd(q->fds[which]);
    }
    return 0;
}
