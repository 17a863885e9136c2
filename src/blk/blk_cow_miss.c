#include "blk/blk_cow_int.h"

/* Blocks that only the source has: asked of the supplier once, however many wait, and written into
 * the file where nothing has been written meanwhile. */

bool cow_base_has(const struct cow *l, uint64_t block)
{
    return l->base_map && base_map_has(l->base_map, block);
}

/* ---- FILL: pages that are still absent (C4) ---- */

static bool is_zero_page(const char *p)
{
    const uint64_t *w = (const uint64_t *)(const void *)p;
    for (size_t i = 0; i < BLK_PAGE / 8; i++) {
        if (w[i]) {
            return false;
        }
    }
    return true;
}

static bool in(const uint64_t mask[2], unsigned i)
{
    return mask[i / 64] >> (i % 64) & 1;
}

static void fill_end(struct cow_op *op)
{
    struct cow *l = op->l;
    uint64_t first = op->block * MAP_BLOCK_PAGES;
    cow_enter(&l->qs[0]);
    for (unsigned i = 0; i < MAP_BLOCK_PAGES; i++) {
        /* op->punch: [0, 2) pages of data, [2, 4) pages of zeros, which are not written at all. */
        if (in(op->punch + 2, i)) {
            map_mark(l->m, first + i, 1, MAP_ZERO);
        } else if (op->rc == 0 && in(op->punch, i)) {
            map_mark(l->m, first + i, 1, MAP_DATA);
        }
    }
    cow_leave(&l->qs[0]);
    cow_op_unlock(op, op->block * BLK_BLOCK, BLK_BLOCK);
    uint64_t block = op->block;
    int rc = op->rc;
    op->rc = 0;
    cow_op_end(op);
    cow_miss_filled(l, block, rc);
}

static void fill_locked(struct cow_op *op)
{
    struct cow *l = op->l;
    const char *buf = op->buf;
    uint64_t first = op->block * MAP_BLOCK_PAGES;
    for (unsigned i = 0; i < MAP_BLOCK_PAGES; i++) {
        if (cow_is_absent(l, first + i)) {
            bool is_zero = !buf || is_zero_page(buf + (size_t)i * BLK_PAGE);
            op->punch[(is_zero ? 2 : 0) + i / 64] |= UINT64_C(1) << (i % 64);
        }
    }
    op->n_io = 1;
    op->step = fill_end;
    for (unsigned i = 0; i < MAP_BLOCK_PAGES;) {
        unsigned k = i;
        while (k < MAP_BLOCK_PAGES && in(op->punch, k)) {
            k++;
        }
        if (k > i) {
            cow_op_io(op, l->base.below, BLK_WRITE, (first + i) * BLK_PAGE,
                      (char *)op->buf + (size_t)i * BLK_PAGE, (uint64_t)(k - i) * BLK_PAGE,
                      fill_end);
        }
        i = k + 1;
    }
    if (--op->n_io == 0) {
        fill_end(op);
    }
}

struct cow_op *cow_fill_start(struct cow *l, uint64_t block, void *buf, bool is_zero)
{
    struct cow_op *op = cow_op_new(l, COW_FILL, block);
    op->buf = is_zero ? NULL : buf;
    cow_op_lock(op, block * BLK_BLOCK, BLK_BLOCK, fill_locked);
    return op;
}

/* ---- questions to the supplier ---- */

static void end_miss(struct cow *l, struct cow_miss *miss, int rc)
{
    for (struct cow_miss **p = &l->misses; *p; p = &(*p)->next) {
        if (*p == miss) {
            *p = miss->next;
            break;
        }
    }
    for (struct blk_msg *m = miss->waiters.head; rc && m; m = m->next) {
        const struct blk_req *r = cow_parked(m);
        if (r->op != BLK_READ || !cow_is_given(r, miss->block)) {
            ((struct cow_park *)(void *)m)->rc = rc;
        }
    }
    for (struct blk_msg *m = miss->readers.head; rc && m; m = m->next) {
        CONTAINER_OF(m, struct cow_up_slot, sub)->rc = rc;
    }
    cow_list_wake(l, &miss->waiters);
    cow_list_wake(l, &miss->readers);
    free(miss);
}

static struct cow_miss *next_to_ask(struct cow *l)
{
    struct cow_miss *best = NULL;
    for (struct cow_miss *m = l->misses; m; m = m->next) {
        if (m->state == MISS_QUEUED && (!best || !m->is_background || best->is_background)) {
            best = m; /* the oldest that somebody waits for: the list is newest first */
        }
    }
    return best;
}

static void pump(struct cow *l)
{
    while (!l->is_closing) {
        struct cow_miss *miss = next_to_ask(l);
        struct cow_want *w = NULL;
        for (unsigned i = 0; miss && i < BLK_MAX_WANTED && !w; i++) {
            w = l->wants[i].miss ? NULL : &l->wants[i];
        }
        if (!w) {
            return;
        }
        if (!w->buf) {
            w->buf = aligned_alloc(BLK_PAGE, BLK_BLOCK);
        }
        if (!w->buf) {
            miss->state = MISS_RETRY;
            cow_tick(l);
            continue;
        }
        w->miss = miss;
        miss->want = w;
        miss->state = MISS_WANTED;
        atomic_fetch_add(&l->n_misses, 1);
        atomic_store(&w->asked, miss->block + 1);
        l->o.supplier.want(l->o.supplier.ctx, miss->block, miss->is_background);
    }
}

/* The file has no place for the block, but its bytes are here: who reads gets them. */
static void give_readers(struct cow *l, const struct cow_miss *miss)
{
    for (struct blk_msg *m = miss->waiters.head; m; m = m->next) {
        struct blk_req *r = cow_parked(m);
        if (r->op == BLK_READ) {
            cow_read_give(l, r, miss->block, miss->want->buf);
        }
    }
}

static void give_want_back(struct cow_miss *miss)
{
    if (miss->want) {
        miss->want->miss = NULL;
        miss->want = NULL;
    }
}

void cow_miss_filled(struct cow *l, uint64_t block, int rc)
{
    if (l->n_fills > 0 && cow_fill_was(l, block)) {
        return;
    }
    for (struct cow_miss *m = l->misses; m; m = m->next) {
        if (m->block == block && m->state == MISS_FILLING) {
            if (rc && rc != -ESTALE) { /* of a volume that is faulted nothing is read */
                give_readers(l, m);
            }
            give_want_back(m);
            end_miss(l, m, rc);
            break;
        }
    }
    pump(l);
}

static void on_supplied(struct blk_msg *msg)
{
    struct cow_want *w = CONTAINER_OF(msg, struct cow_want, m);
    struct cow *l = w->l;
    struct cow_miss *miss = w->miss;
    atomic_store(&w->asked, 0);
    if (w->rc == 0 && !w->is_in_base) {
        for (struct blk_msg *m = miss->readers.head; m; m = m->next) {
            cow_up_source(CONTAINER_OF(m, struct cow_up_slot, sub), w->is_zero ? NULL : w->buf);
        }
        miss->state = MISS_FILLING;
        (void)cow_fill_start(l, miss->block, w->buf, w->is_zero);
        return;
    }
    give_want_back(miss);
    if (w->is_in_base && !cow_base_has(l, miss->block)) {
        w->rc = -EAGAIN; /* a promise that is not kept must not keep us busy */
    }
    if (w->rc == -EAGAIN) {
        miss->state = MISS_RETRY;
        miss->ticks = COW_RETRY_TICKS;
        cow_tick(l);
    } else {
        end_miss(l, miss, w->rc ? -EIO : 0);
    }
    pump(l);
}

void blk_cow_supplied(struct blk_layer *base, uint64_t block, int rc, const void *data)
{
    struct cow *l = cow_of(base);
    for (unsigned i = 0; i < BLK_MAX_WANTED; i++) {
        struct cow_want *w = &l->wants[i];
        uint64_t asked = block + 1;
        if (!atomic_compare_exchange_strong(&w->asked, &asked, UINT64_MAX)) {
            continue;
        }
        w->l = l;
        w->rc = rc;
        w->is_in_base = rc == 0 && data == BLK_IN_BASE;
        w->is_zero = rc == 0 && !data;
        if (rc == 0 && data && data != BLK_IN_BASE) {
            memcpy(w->buf, data, BLK_BLOCK);
        }
        w->m.fn = on_supplied;
        blk_queue_post(l->o.inner, &w->m);
        return;
    }
    /* Nobody asked, or it was answered already: nothing to do. */
}

struct cow_miss *cow_miss_start(struct cow *l, uint64_t block, bool is_background)
{
    for (struct cow_miss *m = l->misses; m; m = m->next) {
        if (m->block == block) {
            m->is_background &= is_background;
            return m;
        }
    }
    struct cow_miss *m = calloc(1, sizeof(*m));
    if (!m) {
        abort(); /* as xnew(); there are never more than requests */
    }
    m->block = block;
    m->state = MISS_QUEUED;
    m->is_background = is_background;
    cow_list_init(&m->waiters);
    cow_list_init(&m->readers);
    m->next = l->misses;
    l->misses = m;
    if (l->o.supplier.want) {
        cow_pump_later(l);
    } else {
        m->state = MISS_RETRY; /* nobody to ask: the clock says so */
        cow_tick(l);
    }
    return m;
}

/* The caller of cow_miss_start() still wants to wait for it: nothing ends inside. */
static void on_pump(struct blk_msg *m)
{
    struct cow *l = CONTAINER_OF(m, struct cow, pump);
    l->is_pump_sent = false;
    pump(l);
}

void cow_pump_later(struct cow *l)
{
    if (!l->is_pump_sent) {
        l->is_pump_sent = true;
        l->pump.fn = on_pump;
        blk_queue_post(l->o.inner, &l->pump);
    }
}

void cow_miss_tick(struct cow *l)
{
    struct cow_miss *next;
    bool is_more = false;
    for (struct cow_miss *m = l->misses; m; m = next) {
        next = m->next;
        if (m->state != MISS_RETRY) {
            continue;
        }
        if (!l->o.supplier.want) {
            end_miss(l, m, -EIO);
        } else if (m->ticks > 0) {
            m->ticks--;
            is_more = true;
        } else {
            m->state = MISS_QUEUED;
        }
    }
    if (is_more) {
        cow_tick(l);
    }
    if (l->o.supplier.want) {
        pump(l);
    }
}
