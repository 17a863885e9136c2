#include "blk/vu_verify.h"
#include "base/time.h"
#include <errno.h>
#include <linux/virtio_blk.h>
#include <pthread.h>
#include <string.h>

#define BATCH   64u
#define HANG_NS (30 * NS_PER_S)

enum kind { READ, WRITE, FLUSH, ZEROES, DISCARD };

struct slot { /* a request under way */
    enum kind kind;
    bool is_busy;
    uint64_t off, start_ns;
    void *buf;
};
struct engine;
struct lane {
    struct engine *e;
    unsigned idx;
    pthread_t thread;
    uint64_t rng, next_seq, n_started, end_seq;
    struct slot *slots;
    unsigned *free_slots, n_free;
    struct vu_verify_result r;
    int rc;
    struct err err;
};
struct engine {
    const struct vu_verify_opts *o;
    uint64_t end_ns, hang_ns;
    bool is_scan; /* every block once, reads */
    uint64_t n_left;
    int is_failed;
    /* Those who found the server gone wait for each other, one connects. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned n_active, n_parked;
    uint64_t generation, n_resets;
};

static uint64_t rnd(struct lane *l)
{
    l->rng ^= l->rng << 13;
    l->rng ^= l->rng >> 7;
    l->rng ^= l->rng << 17;
    return l->rng;
}

/* ---- requests ---- */

static const unsigned types[] = {[READ] = VIRTIO_BLK_T_IN,
                                 [WRITE] = VIRTIO_BLK_T_OUT,
                                 [FLUSH] = VIRTIO_BLK_T_FLUSH,
                                 [ZEROES] = VIRTIO_BLK_T_WRITE_ZEROES,
                                 [DISCARD] = VIRTIO_BLK_T_DISCARD};

static int put(struct lane *l, unsigned slot)
{
    const struct vu_verify_opts *o = l->e->o;
    struct slot *s = &l->slots[slot];
    uint64_t len = s->kind == FLUSH ? 0 : o->block;
    struct vu_io io = {.type = types[s->kind],
                       .flags = s->kind == ZEROES ? (unsigned)(rnd(l) & 1) : 0,
                       .off = s->off,
                       .len = len,
                       .p = s->buf,
                       .tag = slot};
    return vu_client_put(o->client, l->idx, &io);
}

/* ---- a server that went away ---- */

static int fail_all(struct lane *l, int rc)
{
    __atomic_store_n(&l->e->is_failed, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&l->e->lock);
    pthread_cond_broadcast(&l->e->changed);
    pthread_mutex_unlock(&l->e->lock);
    return rc;
}

static bool is_failed(const struct lane *l)
{
    return __atomic_load_n(&l->e->is_failed, __ATOMIC_ACQUIRE) != 0;
}

static int reset(struct lane *l)
{
    struct engine *e = l->e;
    int rc = 0;
    if (!e->o->has_resets) {
        return fail(&l->err, -ECONNRESET, "ServerGone", "the server went away");
    }
    pthread_mutex_lock(&e->lock);
    uint64_t generation = e->generation;
    e->n_parked++;
    while (generation == e->generation && e->n_parked < e->n_active && !is_failed(l)) {
        pthread_cond_wait(&e->changed, &e->lock);
    }
    if (generation == e->generation && !is_failed(l)) { /* all are here: this one connects */
        rc = vu_client_reconnect(e->o->client, e->hang_ns, &l->err);
        e->n_resets++;
        e->n_parked = 0;
        e->generation++;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

static void leave(struct lane *l)
{
    pthread_mutex_lock(&l->e->lock);
    l->e->n_active--;
    pthread_cond_broadcast(&l->e->changed);
    pthread_mutex_unlock(&l->e->lock);
}

/* ---- what to do next ---- */

static enum kind choose(struct lane *l)
{
    const struct vu_verify_opts *o = l->e->o;
    if (l->e->is_scan) {
        return READ;
    }
    unsigned p = (unsigned)(rnd(l) % 100);
    if (p < o->flush_pct) {
        return FLUSH;
    }
    if (p < o->flush_pct + o->zeroes_pct) {
        return ZEROES;
    }
    if (p < o->flush_pct + o->zeroes_pct + o->discard_pct) {
        return DISCARD;
    }
    return rnd(l) % 100 < o->read_pct ? READ : WRITE;
}

static uint64_t place(struct lane *l)
{
    const struct vu_verify_opts *o = l->e->o;
    /* Queues have blocks of their own, so that what a read must see is known. */
    uint64_t n = o->size / o->block / o->n_queues;
    uint64_t i = l->e->is_scan ? l->next_seq++ : rnd(l) % n;
    return (i * o->n_queues + l->idx) * o->block;
}

static const enum vu_oracle_op oracle_ops[] = {[READ] = VU_ORACLE_READ,
                                               [WRITE] = VU_ORACLE_WRITE,
                                               [ZEROES] = VU_ORACLE_ZEROES,
                                               [DISCARD] = VU_ORACLE_DISCARD};

static bool take_ticket(struct lane *l)
{
    struct engine *e = l->e;
    if (e->is_scan) {
        return l->next_seq < l->end_seq;
    }
    if (is_failed(l) || (e->o->is_stopped && __atomic_load_n(e->o->is_stopped, 0))) {
        return false;
    }
    if (e->o->n_max == 0) {
        return true;
    }
    return (int64_t)__atomic_sub_fetch(&e->n_left, 1, __ATOMIC_RELAXED) >= 0;
}

/* Starts requests up to the depth; how many are under way is n slots less n free. */
static int start(struct lane *l, uint64_t now_ns)
{
    const struct vu_verify_opts *o = l->e->o;
    while (l->n_free > 0) {
        if ((now_ns >= l->e->end_ns && !l->e->is_scan) || !take_ticket(l)) {
            return 0;
        }
        unsigned slot = l->free_slots[l->n_free - 1];
        struct slot *s = &l->slots[slot];
        s->kind = choose(l);
        s->off = s->kind == FLUSH ? 0 : place(l);
        if (s->kind != FLUSH &&
            !vu_oracle_begin(o->oracle, oracle_ops[s->kind], s->off / VU_ORACLE_BLOCK,
                             o->block / VU_ORACLE_BLOCK, s->buf)) {
            return 0; /* that block is in use: later */
        }
        int rc = put(l, slot);
        if (rc < 0) {
            return fail(&l->err, rc, "RingFull", "a request does not fit in the ring");
        }
        l->n_free--;
        s->is_busy = true;
        s->start_ns = now_ns;
    }
    return 0;
}

static int end(struct lane *l, const struct vu_end *x, uint64_t now_ns)
{
    const struct vu_verify_opts *o = l->e->o;
    struct slot *s = &l->slots[x->tag];
    if (x->tag >= o->depth || !s->is_busy) {
        return fail(&l->err, -EBADMSG, "Wrong", "a request ended twice");
    }
    if (x->status != VIRTIO_BLK_S_OK) {
        return fail(&l->err, -EIO, "BadStatus", "request of type %u at %llu: status %u",
                    types[s->kind], (unsigned long long)s->off, x->status);
    }
    uint64_t ns = now_ns - s->start_ns;
    l->r.longest_ns = MAX(l->r.longest_ns, ns);
    *(s->kind == READ    ? &l->r.n_reads
      : s->kind == WRITE ? &l->r.n_writes
                         : &l->r.n_others) += 1;
    s->is_busy = false;
    l->free_slots[l->n_free++] = (unsigned)x->tag;
    if (s->kind != FLUSH &&
        vu_oracle_end(o->oracle, oracle_ops[s->kind], s->off / VU_ORACLE_BLOCK,
                      o->block / VU_ORACLE_BLOCK, s->buf) < 0) {
        return fail(&l->err, -EBADMSG, "Wrong", "%s", vu_oracle_why(o->oracle));
    }
    return 0;
}

static int wait_some(struct lane *l, struct vu_end *ends)
{
    struct engine *e = l->e;
    int rc = vu_client_kick(e->o->client, l->idx);
    rc = rc < 0 ? rc : vu_client_wait(e->o->client, l->idx, e->hang_ns, ends, BATCH);
    if (rc == -ECONNRESET) {
        rc = reset(l);
        return rc < 0 ? rc : 0;
    }
    if (rc == 0) {
        return fail(&l->err, -ETIMEDOUT, "Hung", "no request of queue %u ended for %llu ms",
                    l->idx, (unsigned long long)(e->hang_ns / NS_PER_MS));
    }
    return rc < 0 ? fail(&l->err, rc, "Wrong", "the used ring is wrong: %s", strerror(-rc))
                  : rc;
}

static int run_lane(struct lane *l)
{
    const struct vu_verify_opts *o = l->e->o;
    uint64_t now = time_mono_ns();
    for (;;) {
        int rc = start(l, now);
        if (rc < 0) {
            return rc;
        }
        if (l->n_free == o->depth) {
            return 0;
        }
        struct vu_end ends[BATCH];
        int n = wait_some(l, ends);
        now = time_mono_ns();
        for (int i = 0; i < n; i++) {
            rc = end(l, &ends[i], now);
            if (rc < 0) {
                return rc;
            }
        }
        if (n < 0 || is_failed(l)) {
            return n < 0 ? n : -ECANCELED;
        }
    }
}

static void *lane_main(void *ctx)
{
    struct lane *l = ctx;
    l->rc = run_lane(l);
    if (l->rc < 0) {
        (void)fail_all(l, l->rc);
    }
    leave(l);
    return NULL;
}

static int make_lane(struct engine *e, unsigned idx, struct lane *l, struct err *err)
{
    const struct vu_verify_opts *o = e->o;
    l->e = e;
    l->idx = idx;
    l->rng = (o->seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (idx + 1) * 0x1234567u;
    l->end_seq = o->size / o->block / o->n_queues;
    l->slots = calloc(o->depth, sizeof(*l->slots));
    l->free_slots = calloc(o->depth, sizeof(*l->free_slots));
    if (!l->slots || !l->free_slots) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a queue");
    }
    uint8_t *mem = vu_client_mem(o->client);
    for (unsigned i = 0; i < o->depth; i++) {
        l->slots[i].buf = mem + ((uint64_t)idx * o->depth + i) * o->block;
        l->free_slots[l->n_free++] = o->depth - 1 - i;
    }
    return 0;
}

static void add_result(struct vu_verify_result *to, const struct vu_verify_result *r)
{
    to->n_reads += r->n_reads;
    to->n_writes += r->n_writes;
    to->n_others += r->n_others;
    to->longest_ns = MAX(to->longest_ns, r->longest_ns);
}

static int run(struct engine *e, struct lane *lanes, struct vu_verify_result *ret,
               struct err *err)
{
    const struct vu_verify_opts *o = e->o;
    unsigned n = 0;
    int rc = 0;
    uint64_t from = time_mono_ns();
    e->end_ns = o->duration_ns > UINT64_MAX - from ? UINT64_MAX : from + o->duration_ns;
    e->n_active = o->n_queues;
    for (; n < o->n_queues; n++) {
        if (pthread_create(&lanes[n].thread, NULL, lane_main, &lanes[n]) != 0) {
            abort();
        }
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(lanes[i].thread, NULL);
        add_result(ret, &lanes[i].r);
        if (lanes[i].rc < 0 && (rc == 0 || rc == -ECANCELED)) {
            rc = lanes[i].rc;
            if (lanes[i].err.code < 0) {
                (void)fail(err, rc, lanes[i].err.name, "%s", lanes[i].err.msg);
            }
        }
    }
    ret->n_resets = e->n_resets;
    return rc;
}

static int run_engine(const struct vu_verify_opts *o, bool is_scan,
                      struct vu_verify_result *ret, struct err *err)
{
    struct engine e = {.o = o,
                       .is_scan = is_scan,
                       .n_left = o->n_max,
                       .hang_ns = o->hang_ns ? o->hang_ns : HANG_NS,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .changed = PTHREAD_COND_INITIALIZER};
    memset(ret, 0, sizeof(*ret));
    struct lane *lanes = calloc(o->n_queues, sizeof(*lanes));
    if (!lanes) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for queues");
    }
    int rc = o->size / o->block < o->n_queues || o->depth == 0 ||
                     o->depth > vu_client_depth(o->client)
                 ? fail(err, -EINVAL, "BadOptions", "size or depth is out of range")
                 : 0;
    unsigned n = 0;
    while (rc == 0 && n < o->n_queues) {
        rc = make_lane(&e, n, &lanes[n], err);
        n++;
    }
    if (rc == 0) {
        rc = run(&e, lanes, ret, err);
    }
    for (unsigned i = 0; i < n; i++) {
        free(lanes[i].slots);
        free(lanes[i].free_slots);
    }
    free(lanes);
    return rc;
}

int vu_verify_run(const struct vu_verify_opts *o, struct vu_verify_result *ret, struct err *err)
{
    return run_engine(o, false, ret, err);
}

int vu_verify_all(const struct vu_verify_opts *o, struct err *err)
{
    struct vu_verify_result r;
    return run_engine(o, true, &r, err);
}
