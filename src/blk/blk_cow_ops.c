#include "blk/blk_cow_int.h"

struct cow_op *cow_op_find(struct cow *l, enum cow_op_kind k, uint64_t block)
{
    for (struct cow_op *op = l->ops; op; op = op->next) {
        if (op->kind == k && op->block == block) {
            return op;
        }
    }
    return NULL;
}

struct cow_op *cow_op_new(struct cow *l, enum cow_op_kind k, uint64_t block)
{
    struct cow_op *op = calloc(1, sizeof(*op));
    if (!op) {
        abort(); /* as xnew(); there are never more than requests */
    }
    op->kind = k;
    op->l = l;
    op->block = block;
    cow_list_init(&op->waiters);
    op->next = l->ops;
    l->ops = op;
    return op;
}

static void run_step(struct cow_op *op)
{
    op->step(op);
}

static void on_locked(struct blk_msg *m)
{
    struct cow_op *op = CONTAINER_OF(m, struct cow_op, lw.msg);
    op->is_locked = true;
    run_step(op);
}

void cow_op_lock(struct cow_op *op, uint64_t off, uint64_t len, void (*step)(struct cow_op *))
{
    op->step = step;
    if (blk_lock_take(&op->l->lock, &op->lw, op->l->o.inner, off, len, true, on_locked)) {
        on_locked(&op->lw.msg);
    }
}

void cow_op_unlock(struct cow_op *op, uint64_t off, uint64_t len)
{
    op->is_locked = false;
    blk_lock_give(&op->l->lock, off, len, true);
}

void cow_op_stall(struct cow_op *op, void (*step)(struct cow_op *))
{
    op->step = step;
    op->next_stalled = op->l->stalled;
    op->l->stalled = op;
}

static void on_committed(struct blk_msg *m)
{
    struct cow_op *op = CONTAINER_OF(m, struct cow_op, committed);
    if (atomic_load(&op->l->fault)) {
        op->rc = -ESTALE;
    }
    run_step(op);
}

void cow_op_commit(struct cow_op *op, void (*step)(struct cow_op *))
{
    op->step = step;
    op->committed.fn = on_committed;
    cow_commit(op->l, &op->committed);
}

static void on_io(struct cow_io *io, int rc)
{
    struct cow_op *op = io->ctx;
    cow_io_put(io);
    op->rc = op->rc ? op->rc : rc;
    if (--op->n_io == 0) {
        run_step(op);
    }
}

void cow_op_io(struct cow_op *op, struct blk_layer *to, enum blk_op what, uint64_t off, void *p,
               uint64_t len, void (*step)(struct cow_op *))
{
    op->step = step;
    op->n_io++;
    cow_io_start(op->l, &op->l->qs[0], to, what, off, p, len, on_io, op);
}

void cow_op_end(struct cow_op *op)
{
    struct cow *l = op->l;
    assert(!op->is_locked && op->n_io == 0);
    for (struct cow_op **p = &l->ops; *p; p = &(*p)->next) {
        if (*p == op) {
            *p = op->next;
            break;
        }
    }
    if (op->rc) { /* who waits must not begin the same again for ever */
        for (struct blk_msg *m = op->waiters.head; m; m = m->next) {
            ((struct cow_park *)(void *)m)->rc = op->rc;
        }
    }
    cow_list_wake(l, &op->waiters);
    if (op->owns_buf && op->buf) {
        cow_buffer_put(l, op->buf);
    }
    free(op);
}

void *cow_buffer_get(struct cow *l)
{
    if (l->n_buffers > 0) {
        return l->buffers[--l->n_buffers];
    }
    if (l->n_buffers_made == COW_BUFFERS) {
        return NULL;
    }
    void *p = aligned_alloc(BLK_PAGE, BLK_BLOCK);
    l->n_buffers_made += p ? 1 : 0;
    return p;
}

void cow_buffer_put(struct cow *l, void *buf)
{
    l->buffers[l->n_buffers++] = buf;
    cow_kick(l);
}

/* ---- COMPLETE: a page of which only part will be written becomes a whole one of the file ---- */

static void complete_end(struct cow_op *op)
{
    struct cow *l = op->l;
    if (op->rc == 0) {
        cow_enter(&l->qs[0]);
        map_mark(l->m, op->page, 1, MAP_DATA);
        cow_leave(&l->qs[0]);
    }
    cow_op_unlock(op, op->page * BLK_PAGE, BLK_PAGE);
    cow_op_end(op);
}

static void complete_write(struct cow_op *op)
{
    if (op->rc) {
        complete_end(op);
        return;
    }
    cow_op_io(op, op->l->base.below, BLK_WRITE, op->page * BLK_PAGE, op->buf, BLK_PAGE,
              complete_end);
}

static void complete_locked(struct cow_op *op)
{
    struct cow *l = op->l;
    uint64_t off = op->page * BLK_PAGE;
    bool is_absent = cow_is_absent(l, op->page);
    if (map_state(l->m, op->page) == MAP_DATA ||
        (is_absent && !cow_base_has(l, op->block))) { /* who waits looks again */
        cow_op_unlock(op, off, BLK_PAGE);
        cow_op_end(op);
        return;
    }
    memset(op->buf, 0, BLK_PAGE);
    if (is_absent && off < l->o.base->size) {
        cow_op_io(op, l->o.base, BLK_READ, off, op->buf, BLK_PAGE, complete_write);
    } else {
        complete_write(op);
    }
}

static void complete_start(struct cow_op *op)
{
    op->buf = cow_buffer_get(op->l);
    if (!op->buf) {
        cow_op_stall(op, complete_start);
        return;
    }
    op->owns_buf = true;
    cow_op_lock(op, op->page * BLK_PAGE, BLK_PAGE, complete_locked);
}

void cow_complete(struct cow *l, uint64_t page)
{
    uint64_t block = page / MAP_BLOCK_PAGES;
    if (cow_op_find(l, COW_COMPLETE, block)) {
        return; /* one page of a block after the other */
    }
    struct cow_op *op = cow_op_new(l, COW_COMPLETE, block);
    op->page = page;
    /* Never from inside: the caller still wants to wait for it. */
    cow_op_stall(op, complete_start);
    cow_kick(l);
}
