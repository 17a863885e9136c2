#include "blk/blk_cow_int.h"

#include "base/time.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- queues and their requests ---- */

struct cow_q *cow_q_of(struct cow *l, struct blk_queue *q)
{
    for (unsigned i = 0; i < COW_QUEUES; i++) {
        struct blk_queue *there = atomic_load_explicit(&l->qs[i].q, memory_order_acquire);
        if (there == q) {
            return &l->qs[i];
        }
        if (!there && atomic_compare_exchange_strong(&l->qs[i].q, &there, q)) {
            return &l->qs[i];
        }
        if (there == q) {
            return &l->qs[i];
        }
    }
    assert(false); /* more queues than the layer was made for */
    return NULL;
}

/* Our own, not the pool's: there are never more than the guest's requests and a few of the owner's,
 * so that none of them ever waits for one. Kept for the next. */
struct cow_io *cow_io_get(struct cow *l, struct cow_q *cq)
{
    struct cow_io *io = cq->free_ios;
    if (io) {
        cq->free_ios = io->next;
    } else {
        io = calloc(1, sizeof(*io));
        if (!io) {
            abort(); /* as xnew(): a few hundred bytes */
        }
    }
    memset(&io->r, 0, sizeof(io->r));
    io->l = l;
    io->cq = cq;
    io->parent = NULL;
    io->is_locked = io->is_flushed = false;
    io->r.q = atomic_load_explicit(&cq->q, memory_order_relaxed);
    return io;
}

void cow_io_put(struct cow_io *io)
{
    io->next = io->cq->free_ios;
    io->cq->free_ios = io;
}

static void io_done(struct blk_req *r, int rc)
{
    struct cow_io *io = (struct cow_io *)r;
    io->end(io, rc);
}

void cow_io_send(struct cow_io *io, struct blk_layer *to)
{
    io->r.done = io_done;
    blk_submit(to, &io->r);
}

void cow_io_start(struct cow *l, struct cow_q *cq, struct blk_layer *to, enum blk_op op,
                  uint64_t off, void *p, uint64_t len, void (*end)(struct cow_io *, int),
                  void *ctx)
{
    struct cow_io *io = cow_io_get(l, cq);
    io->end = end;
    io->ctx = ctx;
    io->iov = (struct iovec){p, len};
    io->r.op = op;
    io->r.flags = BLK_INNER;
    io->r.off = off;
    io->r.len = len;
    io->r.iov = &io->iov;
    io->r.n_iov = p ? 1 : 0;
    cow_io_send(io, to);
}

void cow_quiesce(struct cow *l)
{
    for (unsigned i = 0; i < COW_QUEUES; i++) {
        while (atomic_load(&l->qs[i].busy)) {
            sched_yield(); /* a few dozen instructions, unless it was preempted in them */
        }
    }
}

/* ---- epochs ---- */

void cow_write_begins(struct cow *l, struct cow_q *cq, uint64_t *ret_epoch)
{
    uint64_t e = atomic_load_explicit(&l->epoch, memory_order_relaxed);
    atomic_fetch_add_explicit(&cq->in_flight[e % COW_EPOCHS], 1, memory_order_relaxed);
    *ret_epoch = e;
}

void cow_write_ended(struct cow *l, struct cow_q *cq, uint64_t epoch)
{
    uint64_t was = atomic_fetch_sub(&cq->in_flight[epoch % COW_EPOCHS], 1);
    if (was == 1 && epoch != atomic_load(&l->epoch)) {
        cow_kick(l);
    }
}

bool cow_is_drained(struct cow *l, uint64_t epoch)
{
    uint64_t cur = atomic_load(&l->epoch);
    for (uint64_t e = cur >= COW_EPOCHS ? cur - COW_EPOCHS + 1 : 0; e <= epoch; e++) {
        for (unsigned i = 0; i < COW_QUEUES; i++) {
            if (atomic_load(&l->qs[i].in_flight[e % COW_EPOCHS])) {
                return false;
            }
        }
    }
    return true;
}

void cow_kick(struct cow *l)
{
    if (!atomic_exchange(&l->kick_sent, 1)) {
        blk_queue_post(l->o.inner, &l->kick);
    }
}

static void on_kick(struct blk_msg *m)
{
    struct cow *l = CONTAINER_OF(m, struct cow, kick);
    atomic_store(&l->kick_sent, 0);
    struct cow_op *op = l->stalled;
    l->stalled = NULL;
    while (op) {
        struct cow_op *next = op->next_stalled;
        op->step(op);
        op = next;
    }
    cow_snap_kick(l);
}

void cow_fault(struct cow *l, int rc)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&l->fault, &none, -ESTALE) && l->o.on_fault) {
        l->o.on_fault(l->o.fault_ctx, -rc);
    }
}

static void on_tick(void *ctx)
{
    struct cow *l = ctx;
    l->is_tick_armed = false;
    if (l->is_closing) {
        return;
    }
    cow_miss_tick(l);
    cow_up_tick(l);
    cow_fill_tick(l);
    cow_kick(l);
}

void cow_tick(struct cow *l)
{
    if (!l->is_tick_armed && !l->is_closing) {
        l->is_tick_armed = true;
        blk_queue_at(l->o.inner, time_mono_ns() + COW_TICK_NS, on_tick, l);
    }
}

/* ---- writes ---- */

uint32_t cow_needs_copy(struct cow *l, uint64_t block, bool *ret_wait)
{
    uint32_t need = 0;
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        struct cow_set *s = &l->sets[k];
        if (!atomic_load_explicit(&s->gen, memory_order_acquire) || block >= s->n_blocks ||
            !(s->is_full || map_bit(s->set, block)) || map_bit(l->m->open[k], block)) {
            continue;
        }
        if (map_bit(l->m->stored[k], block)) {
            *ret_wait = true;
        } else {
            need |= 1u << k;
        }
    }
    return need;
}

/* A clean block becomes dirty: allowed only if its region is durably touched and nothing is frozen
 * that needs it. */
static bool may_dirty(struct cow *l, uint64_t block)
{
    bool wait = false;
    if (!map_bit(l->m->safe, map_region_bit(block / MAP_REGION_BLOCKS))) {
        return false;
    }
    return !atomic_load_explicit(&l->n_frozen, memory_order_acquire) ||
           (cow_needs_copy(l, block, &wait) == 0 && !wait);
}

static bool dirty_all(struct cow *l, const struct blk_req *r)
{
    _Atomic uint64_t *dirty = atomic_load_explicit(&l->dirty, memory_order_acquire);
    uint64_t last = (r->off + r->len - 1) / BLK_BLOCK;
    for (uint64_t b = r->off / BLK_BLOCK; b <= last; b++) {
        if (!map_bit(dirty, b)) {
            if (!may_dirty(l, b)) {
                return false;
            }
            (void)map_bit_set(dirty, b);
        }
    }
    return true;
}

static bool is_part_missing(const struct cow *l, const struct blk_req *r)
{
    uint64_t end = r->off + r->len;
    return (r->off % BLK_PAGE != 0 && map_state(l->m, r->off / BLK_PAGE) != MAP_DATA) ||
           (end % BLK_PAGE != 0 && map_state(l->m, end / BLK_PAGE) != MAP_DATA);
}

static void fua_done(struct blk_msg *m)
{
    cow_flush(m);
}

static void write_end(struct cow_io *io, int rc)
{
    struct cow *l = io->l;
    struct blk_req *r = io->parent;
    struct cow_q *cq = io->cq;
    if (io->is_locked && rc == 0) {
        cow_enter(cq);
        uint64_t first = (r->off + BLK_PAGE - 1) / BLK_PAGE, end = (r->off + r->len) / BLK_PAGE;
        if (first < end) {
            map_mark(l->m, first, end - first, MAP_DATA);
        }
        cow_leave(cq);
    }
    if (io->is_locked) {
        blk_lock_give(&l->lock, r->off, r->len, false);
    }
    cow_write_ended(l, cq, io->epoch);
    bool is_flushed = io->is_flushed;
    cow_io_put(io);
    if (rc == 0 && is_flushed) {
        cow_to_inner(l, r, fua_done);
        return;
    }
    blk_done(r, rc);
}

static void start_write(struct cow *l, struct cow_q *cq, struct blk_req *r, uint64_t epoch,
                        bool is_locked)
{
    struct cow_io *io = cow_io_get(l, cq);
    io->parent = r;
    io->end = write_end;
    io->epoch = epoch;
    io->is_locked = is_locked;
    io->r.op = r->op;
    io->r.flags = r->flags;
    io->r.off = r->off;
    io->r.len = r->len;
    io->r.iov = r->iov;
    io->r.n_iov = r->n_iov;
    if ((r->flags & BLK_FUA) && (is_locked || atomic_load(&l->m->n_marks))) {
        /* Durable only with the marks that make it reachable. */
        io->r.flags &= ~(unsigned)BLK_FUA;
        io->is_flushed = true;
    }
    cow_io_send(io, l->base.below);
}

static void write_locked(struct blk_msg *m);

static void hold(struct cow_q *cq, struct blk_req *r)
{
    r->next = NULL;
    *cq->held_tail = r;
    cq->held_tail = &r->next;
    atomic_store(&cq->has_held, 1);
}

static void cow_write(struct cow *l, struct cow_q *cq, struct blk_req *r, bool is_locked)
{
    enum { GO, HOLD, PREP, LOCK, FAIL } what = GO;
    uint64_t epoch = 0;
    cow_enter(cq);
    if (atomic_load(&l->hold)) {
        what = HOLD;
        hold(cq, r);
    } else if (atomic_load_explicit(&l->fault, memory_order_relaxed)) {
        what = FAIL;
    } else if (!dirty_all(l, r)) {
        what = PREP;
    } else if (l->m->has_states && !is_locked) {
        uint64_t first = r->off / BLK_PAGE, end = (r->off + r->len + BLK_PAGE - 1) / BLK_PAGE;
        if (!map_all_data(l->m, first, end - first)) {
            what = is_part_missing(l, r) ? PREP : LOCK;
        }
    } else if (is_locked && is_part_missing(l, r)) {
        what = PREP;
    }
    if (what == GO) {
        cow_write_begins(l, cq, &epoch);
    }
    cow_leave(cq);
    if (is_locked && what != GO) {
        blk_lock_give(&l->lock, r->off, r->len, false);
    }
    if (what == GO) {
        start_write(l, cq, r, epoch, is_locked);
    } else if (what == PREP) {
        cow_to_inner(l, r, cow_prep);
    } else if (what == FAIL) {
        blk_done(r, -ESTALE);
    } else if (what == LOCK) {
        struct cow_park *p = cow_park(r);
        p->l = l;
        if (blk_lock_take(&l->lock, &p->lw, r->q, r->off, r->len, false, write_locked)) {
            cow_write(l, cq, r, true);
        }
    }
}

static void write_locked(struct blk_msg *m)
{
    struct blk_req *r = cow_parked(m);
    struct cow *l = cow_park(r)->l;
    cow_write(l, cow_q_of(l, r->q), r, true);
}

static void released(struct blk_msg *m)
{
    struct cow_q *cq = CONTAINER_OF(m, struct cow_q, release);
    atomic_store(&cq->release_sent, 0);
    atomic_store(&cq->has_held, 0);
    struct blk_req *r = cq->held;
    cq->held = NULL;
    cq->held_tail = &cq->held;
    while (r) {
        struct blk_req *next = r->next;
        cow_submit(&cq->l->base, r);
        r = next;
    }
}

void cow_submit(struct blk_layer *base, struct blk_req *r)
{
    struct cow *l = cow_of(base);
    struct cow_q *cq = cow_q_of(l, r->q);
    atomic_store_explicit(&cq->n_seen,
                          atomic_load_explicit(&cq->n_seen, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    switch (r->op) {
    case BLK_READ:
        if (l->m->has_states) {
            cow_park(r)->given = 0;
            cow_read(l, cq, r);
        } else {
            blk_submit(base->below, r);
        }
        return;
    case BLK_FLUSH:
        if (atomic_load(&l->fault)) {
            blk_done(r, -ESTALE);
        } else if (atomic_load(&l->m->n_marks)) {
            cow_to_inner(l, r, cow_flush);
        } else {
            blk_submit(base->below, r);
        }
        return;
    case BLK_WRITE: cow_write(l, cq, r, false); return;
    default: break;
    }
    if (l->m->has_states) {
        cow_to_inner(l, r, cow_zero);
    } else {
        cow_write(l, cq, r, false);
    }
}

/* ---- making and closing ---- */

static void cow_free(struct blk_layer *base)
{
    struct cow *l = cow_of(base);
    cow_snap_free(l);
    for (unsigned i = 0; i < COW_QUEUES; i++) {
        struct cow_q *cq = &l->qs[i];
        cow_splits_free(cq);
        while (cq->free_ios) {
            struct cow_io *io = cq->free_ios;
            cq->free_ios = io->next;
            free(io);
        }
    }
    for (unsigned i = 0; i < BLK_MAX_WANTED; i++) {
        free(l->wants[i].buf);
    }
    while (l->misses) {
        struct cow_miss *m = l->misses;
        l->misses = m->next;
        free(m);
    }
    while (l->n_buffers > 0) {
        free(l->buffers[--l->n_buffers]);
    }
    if (l->map_layer) {
        blk_stack_free(l->map_layer);
    }
    blk_stack_free(l->o.aside);
    blk_stack_free(l->o.base);
    base_map_close(l->base_map);
    map_close(l->m);
    blk_lock_done(&l->lock);
    free(l->commit.buf);
    free(l->slot_next);
    free(l->slot_head);
    free(l->slot_used);
    free(l);
}

static const struct blk_ops ops = {.name = "cow", .submit = cow_submit, .free = cow_free};

/* Writes of a process that was killed go on for a moment: the lock says when they ended. */
static int lock_fd(int fd, struct err *err)
{
    for (unsigned i = 0; i < 2000; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return 0;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return fail(err, -errno, "LockFailed", "the map of a volume: %m");
        }
        usleep(1000);
    }
    return fail(err, -EBUSY, "VolumeInUse",
                "the map of the volume is locked by another process");
}

static void started(struct blk_msg *m)
{
    struct cow *l = CONTAINER_OF(m, struct cow, start);
    cow_commit(l, NULL); /* what a killed process had not written */
}

static int boot_id(const struct blk_cow_opts *o, char ret[48], struct err *err)
{
    memset(ret, 0, 48);
    if (o->boot_id) {
        memcpy(ret, o->boot_id, strnlen(o->boot_id, 47));
        return 0;
    }
    AUTO_FD fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, ret, 36) != 36) {
        return fail(err, -EIO, "NoBootId", "the id of this boot cannot be read");
    }
    return 0;
}

static void init_queues(struct cow *l)
{
    for (unsigned i = 0; i < COW_QUEUES; i++) {
        l->qs[i].l = l;
        l->qs[i].held_tail = &l->qs[i].held;
        l->qs[i].release.fn = released;
    }
    atomic_store(&l->qs[0].q, l->o.inner);
    l->kick.fn = on_kick;
    l->start.fn = started;
}

int blk_cow_new(struct blk_layer *below, const struct blk_cow_opts *o, struct blk_layer **ret,
                struct err *err)
{
    assert(o->inner && o->n_queues <= BLK_COW_MAX_QUEUES);
    char boot[48];
    int rc = boot_id(o, boot, err);
    rc = rc ? rc : lock_fd(o->map_fd, err);
    if (rc) {
        return rc;
    }
    struct cow *l = aligned_alloc(64, (sizeof(*l) + 63) / 64 * 64);
    if (!l) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a volume");
    }
    memset(l, 0, sizeof(*l));
    l->base = (struct blk_layer){.ops = &ops, .below = below, .size = below->size};
    l->o = *o;
    l->o.boot_id = NULL;
    l->o.aside = l->o.base = NULL; /* taken when nothing can fail any more */
    blk_lock_init(&l->lock);
    init_queues(l);
    rc = map_open(o->map_fd, o->run_fd, boot, o->fs, below->size, &l->m, err);
    if (rc == 0 && o->base) {
        rc = base_map_open(o->base_map_fd, false, &l->base_map, err);
    }
    struct blk_file_opts fo = {.fd = o->map_fd,
                               .size = map_file_size(BLK_MAP_MAX_SIZE),
                               .may_be_short = true,
                               .fs = o->fs};
    rc = rc ? rc : blk_file_new(&fo, &l->map_layer, err);
    l->commit.buf = aligned_alloc(MAP_PAGE, MAP_JOURNAL_SIZE);
    if (rc == 0 && !l->commit.buf) {
        rc = fail(err, -ENOMEM, "OutOfMemory", "no memory for a volume");
    }
    l->n_slots = o->aside ? (uint32_t)MIN(o->aside->size / BLK_BLOCK, BLK_ASIDE_SLOTS) : 0;
    rc = rc ? rc : cow_aside_init(l, err);
    if (rc) {
        cow_free(&l->base);
        return rc;
    }
    l->o.aside = o->aside;
    l->o.base = o->base;
    cow_commit_init(l);
    cow_snap_attach(l);
    blk_queue_post(o->inner, &l->start);
    *ret = &l->base;
    return 0;
}

static bool is_idle(struct cow *l)
{
    bool is_idle = !l->commit.is_running && !l->commit.is_wanted && !l->ops &&
                   !l->is_tick_armed && !l->is_rest_armed && !l->is_pump_sent &&
                   l->n_fills == 0 && l->n_dropping == 0 && !atomic_load(&l->kick_sent) &&
                   cow_snap_is_idle(l);
    return is_idle;
}

int blk_cow_close(struct blk_layer *base, struct err *err)
{
    struct cow *l = cow_of(base);
    l->is_closing = true;
    l->fill_rate = 0;
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        cow_up_stop(l, k);
    }
    uint64_t end = time_mono_ns() + 20 * NS_PER_S;
    for (unsigned idle = 0; idle < 2;) {
        int n = blk_queue_run(l->o.inner, is_idle(l) ? 0 : 10 * NS_PER_MS);
        idle = is_idle(l) && n <= 0 ? idle + 1 : 0;
        if (time_mono_ns() > end) {
            return fail(err, -EBUSY, "VolumeBusy", "work on the volume does not end");
        }
    }
    if (atomic_load(&l->fault)) {
        return fail(err, -ESTALE, "VolumeFaulted",
                    "the map of the volume could not be written");
    }
    if (atomic_load(&l->m->n_marks)) {
        return fail(err, -EBUSY, "NotFlushed", "the volume was closed before it was flushed");
    }
    return map_stop(l->m, err);
}

int blk_map_grow(struct blk_layer *base, uint64_t size, struct err *err)
{
    struct cow *l = cow_of(base);
    if (size < base->size || size > BLK_MAP_MAX_SIZE || size % BLK_PAGE != 0 ||
        base->below->size < size) {
        return fail(err, -EINVAL, "InvalidSize", "a volume cannot become %llu bytes long",
                    (unsigned long long)size);
    }
    /* Nothing depends on this being durable: a map that is opened over a larger volume grows. */
    struct map_head *h = map_head_begin(l->m);
    h->size = size;
    map_head_flip(l->m);
    __atomic_store_n(&base->size, size, __ATOMIC_RELEASE);
    cow_commit(l, NULL);
    return 0;
}

void blk_cow_stats(struct blk_layer *base, struct blk_cow_stats *ret)
{
    struct cow *l = cow_of(base);
    uint64_t n = 0, words = (map_n_blocks(base->size) + 63) / 64;
    const _Atomic uint64_t *dirty = atomic_load(&l->dirty);
    for (uint64_t i = 0; i < words; i++) {
        n += (unsigned)__builtin_popcountll(
            atomic_load_explicit(&dirty[i], memory_order_relaxed));
    }
    *ret = (struct blk_cow_stats){.n_absent_pages = atomic_load(&l->m->n_absent),
                                  .n_dirty_blocks = n,
                                  .n_aside_writes = atomic_load(&l->n_aside_writes),
                                  .n_misses = atomic_load(&l->n_misses),
                                  .n_waiting = atomic_load(&l->n_waiting)};
}

void blk_cow_extent(struct blk_layer *base, uint64_t off, uint64_t len, uint64_t *ret_len,
                    bool *ret_is_zero, bool *ret_is_dirty)
{
    struct cow *l = cow_of(base);
    const _Atomic uint64_t *dirty = atomic_load(&l->dirty);
    uint64_t b = off / BLK_BLOCK, end = MIN(off + len, (b + 1) * BLK_BLOCK);
    *ret_is_dirty =
        map_bit(dirty, b) || map_bit(l->m->suspect, map_region_bit(b / MAP_REGION_BLOCKS));
    *ret_is_zero = false;
    if (l->m->has_states) {
        uint64_t page = off / BLK_PAGE, last = (end + BLK_PAGE - 1) / BLK_PAGE;
        for (uint64_t p = page; p < last; p++) {
            bool is_zero = map_state(l->m, p) != MAP_DATA && !cow_is_absent(l, p);
            if (p == page) {
                *ret_is_zero = is_zero;
            } else if (is_zero != *ret_is_zero) {
                end = MIN(end, p * BLK_PAGE);
                break;
            }
        }
    }
    *ret_len = end - off;
}
