#include "blk/blk_cow_int.h"

/* DISCARD and ZEROES on a volume whose pages have states: whole pages become MAP_ZERO. What
 * the file held of them is punched afterwards, in an encrypted volume only when that is
 * durable: a hole there reads as garbage, and a durable map that still says "written" would
 * show it after a power cut. */

static uint64_t first_page(const struct blk_req *r)
{
    return (r->off + BLK_PAGE - 1) / BLK_PAGE;
}
static uint64_t end_page(const struct blk_req *r)
{
    return (r->off + r->len) / BLK_PAGE;
}

static void finish(struct cow_op *op)
{
    struct cow *l = op->l;
    struct blk_req *r = op->req;
    int rc = op->rc;
    cow_op_unlock(op, r->off, r->len);
    cow_write_ended(l, &l->qs[0], op->epoch);
    op->rc = 0;
    cow_op_end(op);
    if (rc == 0 && (r->flags & BLK_FUA)) {
        cow_flush(&cow_park(r)->m);
    } else {
        cow_fail(l, r, rc);
    }
}

/* The ragged ends of ZEROES; their pages are in the file (cow_ready_to_write() saw to it), or
 * were zeros all along. */
static void edges(struct cow_op *op)
{
    struct cow *l = op->l;
    struct blk_req *r = op->req;
    uint64_t lo = first_page(r) * BLK_PAGE, hi = end_page(r) * BLK_PAGE, end = r->off + r->len;
    op->n_io = 1;
    if (op->rc == 0 && r->op == BLK_ZEROES) {
        if (r->off < MIN(lo, end)) {
            cow_op_io(op, l->base.below, BLK_ZEROES, r->off, NULL, MIN(lo, end) - r->off,
                      finish);
        }
        if (hi >= lo && hi < end) {
            cow_op_io(op, l->base.below, BLK_ZEROES, hi, NULL, end - hi, finish);
        }
    }
    op->step = finish;
    if (--op->n_io == 0) {
        finish(op);
    }
}

static void punch(struct cow_op *op)
{
    struct cow *l = op->l;
    uint64_t first = first_page(op->req), n = end_page(op->req) - first;
    op->n_io = 1;
    op->step = edges;
    for (uint64_t i = 0; op->rc == 0 && i < n;) {
        uint64_t k = i;
        while (k < n && (op->punch[k / 64] >> (k % 64) & 1)) {
            k++;
        }
        if (k > i) {
            cow_op_io(op, l->base.below, BLK_DISCARD, (first + i) * BLK_PAGE, NULL,
                      (k - i) * BLK_PAGE, edges);
        }
        i = k + 1;
    }
    if (--op->n_io == 0) {
        edges(op);
    }
}

static void locked(struct cow_op *op)
{
    struct cow *l = op->l;
    struct blk_req *r = op->req;
    uint64_t first = first_page(r), end = end_page(r);
    cow_enter(&l->qs[0]);
    bool is_ok = !atomic_load(&l->hold);
    for (uint64_t b = r->off / BLK_BLOCK; is_ok && b <= (r->off + r->len - 1) / BLK_BLOCK;
         b++) {
        bool wait = false;
        _Atomic uint64_t *dirty = atomic_load(&l->dirty);
        is_ok = map_bit(l->m->safe, map_region_bit(b / MAP_REGION_BLOCKS)) &&
                (map_bit(dirty, b) || (cow_needs_copy(l, b, &wait) == 0 && !wait));
        if (is_ok) {
            (void)map_bit_set(dirty, b);
        }
    }
    if (!is_ok) { /* a snapshot began */
        cow_leave(&l->qs[0]);
        cow_op_unlock(op, r->off, r->len);
        cow_op_end(op);
        cow_park(r)->m.fn = cow_zero;
        blk_queue_post(l->o.inner, &cow_park(r)->m);
        return;
    }
    cow_write_begins(l, &l->qs[0], &op->epoch);
    bool is_any = false;
    for (uint64_t p = first; p < end; p++) {
        if (map_state(l->m, p) == MAP_DATA) {
            op->punch[(p - first) / 64] |= UINT64_C(1) << ((p - first) % 64);
            is_any = true;
        }
    }
    if (first < end) {
        map_mark(l->m, first, end - first, MAP_ZERO);
    }
    cow_leave(&l->qs[0]);
    if (!is_any || (r->op == BLK_ZEROES && (r->flags & BLK_NO_UNMAP))) {
        memset(op->punch, 0, sizeof(op->punch));
        edges(op);
    } else if (l->m->is_encrypted) {
        cow_op_commit(op, punch);
    } else {
        punch(op);
    }
}

void cow_zero(struct blk_msg *m)
{
    struct blk_req *r = cow_parked(m);
    struct cow *l = cow_park(r)->l;
    if (cow_park(r)->rc || atomic_load(&l->fault)) {
        cow_fail(l, r, cow_park(r)->rc ? cow_park(r)->rc : -ESTALE);
        return;
    }
    if (r->op == BLK_DISCARD && first_page(r) >= end_page(r)) {
        cow_fail(l, r, 0); /* less than a page: nothing that could be given back */
        return;
    }
    if (!cow_ready_to_write(l, r, cow_zero)) {
        return;
    }
    struct cow_op *op = cow_op_new(l, COW_ZERO, r->off / BLK_BLOCK);
    op->req = r;
    cow_op_lock(op, r->off, r->len, locked);
}
