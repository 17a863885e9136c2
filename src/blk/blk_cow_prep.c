#include "blk/blk_cow_int.h"

/* A request that its queue could not start is parked and looked at here, on the owner's thread:
 * everything that it lacks is begun at once, and it comes back when one of these things is
 * there, to be looked at anew. When nothing is missing it goes back to its queue and starts
 * from the top. */

void cow_list_init(struct cow_list *l)
{
    l->head = NULL;
    l->tail = &l->head;
}

void cow_list_add(struct cow_list *l, struct blk_msg *m)
{
    m->next = NULL;
    *l->tail = m;
    l->tail = &m->next;
}

void cow_list_wake(struct cow *l, struct cow_list *w)
{
    struct blk_msg *m = w->head;
    cow_list_init(w);
    while (m) {
        struct blk_msg *next = m->next;
        blk_queue_post(l->o.inner, m);
        m = next;
    }
}

void cow_to_inner(struct cow *l, struct blk_req *r, void (*fn)(struct blk_msg *m))
{
    struct cow_park *p = cow_park(r);
    p->l = l;
    p->rc = 0;
    p->m.fn = fn;
    atomic_fetch_add(&l->n_waiting, 1);
    blk_queue_post(l->o.inner, &p->m);
}

static void on_again(struct blk_msg *m)
{
    struct blk_req *r = cow_parked(m);
    struct cow_park *p = cow_park(r);
    if (p->rc) {
        blk_done(r, p->rc < 0 ? p->rc : 0);
    } else if (r->op == BLK_READ) {
        cow_read(p->l, cow_q_of(p->l, r->q), r); /* keeps what it was given */
    } else {
        cow_submit(&p->l->base, r);
    }
}

static void back(struct cow *l, struct blk_req *r, int rc)
{
    struct cow_park *p = cow_park(r);
    p->rc = rc;
    p->m.fn = on_again;
    atomic_fetch_sub(&l->n_waiting, 1);
    blk_queue_post(r->q, &p->m);
}

void cow_again(struct cow *l, struct blk_req *r)
{
    back(l, r, 0);
}

void cow_fail(struct cow *l, struct blk_req *r, int rc)
{
    back(l, r, rc ? rc : 1); /* 1: it is over, well */
}

/* A region is marked before its first write. A stream that has just marked the region before
 * this one will soon want the next ones: they go with the same write of the map. */
static bool touch(struct cow *l, uint64_t region)
{
    uint64_t n_regions = (l->base.size + BLK_REGION - 1) / BLK_REGION;
    if (map_bit(l->m->safe, map_region_bit(region))) {
        return true;
    }
    (void)map_bit_set(l->wanted, map_region_bit(region));
    bool is_stream = region > 0 && map_bit(l->m->touch, map_region_bit(region - 1));
    uint64_t end = MIN(n_regions, region + (is_stream ? 4 : 1));
    for (uint64_t i = region; i < end; i++) {
        uint64_t bit = map_region_bit(i);
        if (!map_bit(l->m->touch, bit) || i == region) {
            map_flag(l->m, map_no(MAP_K_TOUCH, 0, i * MAP_REGION_BLOCKS));
            (void)map_bit_set(l->m->touch, bit);
        }
    }
    return false;
}

/* The page at the ragged end of a write gets its other bytes first. True: it has them. */
static bool edge(struct cow *l, struct blk_req *r, uint64_t at)
{
    if (at % BLK_PAGE == 0 || !l->m->has_states || map_state(l->m, at / BLK_PAGE) == MAP_DATA) {
        return true;
    }
    uint64_t page = at / BLK_PAGE, block = at / BLK_BLOCK;
    struct blk_msg *m = &cow_park(r)->m;
    if (cow_is_absent(l, page) && !cow_base_has(l, block)) {
        struct cow_miss *miss = cow_miss_start(l, block, false);
        cow_list_add(&miss->waiters, m);
    } else {
        cow_complete(l, page);
        cow_list_add(&cow_op_find(l, COW_COMPLETE, block)->waiters, m);
    }
    return false;
}

bool cow_ready_to_write(struct cow *l, struct blk_req *r, void (*fn)(struct blk_msg *m))
{
    struct blk_msg *m = &cow_park(r)->m;
    m->fn = fn;
    uint64_t end = r->off + r->len;
    bool is_safe = true;
    for (uint64_t i = r->off / BLK_REGION; i <= (end - 1) / BLK_REGION; i++) {
        is_safe &= touch(l, i);
    }
    struct cow_op *copy = NULL;
    const _Atomic uint64_t *dirty = atomic_load(&l->dirty);
    for (uint64_t b = r->off / BLK_BLOCK; b <= (end - 1) / BLK_BLOCK; b++) {
        bool wait = false;
        if (map_bit(dirty, b)) {
            continue;
        }
        if (cow_needs_copy(l, b, &wait)) {
            cow_copy(l, b);
            copy = cow_op_find(l, COW_COPY, b);
        }
        is_safe &= !wait;
    }
    if (copy) {
        if (!is_safe) {
            cow_commit(l, NULL);
        }
        cow_list_add(&copy->waiters, m);
        return false;
    }
    if (!is_safe) {
        cow_commit(l, m);
        return false;
    }
    if (r->op == BLK_DISCARD) {
        return true; /* whole pages only */
    }
    return edge(l, r, r->off) && edge(l, r, end);
}

/* Blocks of a read that have to come from the source: all are asked for, the first is waited
 * for. */
static bool ready_to_read(struct cow *l, struct blk_req *r)
{
    uint64_t page = r->off / BLK_PAGE, end = (r->off + r->len + BLK_PAGE - 1) / BLK_PAGE;
    struct cow_miss *first = NULL;
    while (page < end) {
        uint64_t block = page / MAP_BLOCK_PAGES;
        if (cow_is_absent(l, page) && !cow_base_has(l, block) && !cow_is_given(r, block)) {
            struct cow_miss *miss = cow_miss_start(l, block, false);
            first = first ? first : miss;
            page = (block + 1) * MAP_BLOCK_PAGES;
        } else {
            page++;
        }
    }
    if (first) {
        struct blk_msg *m = &cow_park(r)->m;
        m->fn = cow_prep;
        cow_list_add(&first->waiters, m);
    }
    return !first;
}

void cow_prep(struct blk_msg *m)
{
    struct blk_req *r = cow_parked(m);
    struct cow_park *p = cow_park(r);
    struct cow *l = p->l;
    if (p->rc || (r->op != BLK_READ && atomic_load(&l->fault))) {
        cow_fail(l, r, p->rc ? p->rc : -ESTALE);
        return;
    }
    if (r->op == BLK_READ ? ready_to_read(l, r) : cow_ready_to_write(l, r, cow_prep)) {
        cow_again(l, r);
    }
}
