#include "blk/blk_cow_int.h"

/* One writer of the durable map. Who needs something durable joins the next sweep; a sweep is
 *   copy of the changed pages -> FLUSH of the data -> FLUSH of what was copied aside ->
 *   journal -> sync of the map: durable, answers -> the pages in their places,
 * in rounds of MAP_ROUND pages. The copy comes first (C1): a mark that is set after it waits
 * for the next sweep, whose FLUSH covers its data. */

static void round_start(struct cow *l);
static void sweep_start(struct cow *l);

void cow_commit_init(struct cow *l)
{
    cow_list_init(&l->commit.now);
    cow_list_init(&l->commit.next);
}

static void finish(struct cow *l)
{
    struct cow_commit *c = &l->commit;
    c->is_running = false;
    if (c->is_wanted) {
        sweep_start(l);
    }
}

static void broken(struct cow *l, int rc)
{
    cow_fault(l, rc);
    cow_list_wake(l, &l->commit.now);
    finish(l);
}

static void on_place(struct cow_io *io, int rc);

/* The pages of the journal entry to their places, a few at a time. Not synced: the entry stays
 * until the next but one, and by then a sync has been made. */
static void place(struct cow *l)
{
    struct cow_commit *c = &l->commit;
    const struct map_journal *j = c->buf;
    while (c->n_io < 16 && c->n_done < c->n) {
        unsigned i = c->n_done++;
        c->n_io++;
        cow_io_start(l, &l->qs[0], l->map_layer, BLK_WRITE, map_page_off(j->no[i]),
                     (char *)c->buf + (i + 1) * MAP_PAGE, MAP_PAGE, on_place, l);
    }
}

static void round_over(struct cow *l)
{
    if (l->commit.is_last) {
        finish(l);
    } else {
        round_start(l);
    }
}

static void on_place(struct cow_io *io, int rc)
{
    struct cow *l = io->ctx;
    cow_io_put(io);
    if (rc) {
        cow_fault(l, rc);
    }
    if (l->commit.n_done < l->commit.n) {
        l->commit.n_io--;
        place(l);
    } else if (--l->commit.n_io == 0) {
        round_over(l);
    }
}

static void durable(struct cow *l)
{
    struct cow_commit *c = &l->commit;
    if (c->n > 0) {
        const struct map_journal *j = c->buf;
        map_round_done(l->m, c->buf);
        if (j->no[c->n - 1] == 0) { /* the head is the last of the last round */
            const struct map_page *p = (const struct map_page *)c->buf + c->n;
            cow_snap_durable(l, (const void *)p->payload);
        }
    }
    if (c->is_last) {
        for (size_t i = 0; i < ARRAY_LEN(l->wanted); i++) {
            l->wanted[i] = l->wanted[i] ? l->wanted[i] & ~atomic_load(&l->m->safe[i]) : 0;
        }
        cow_list_wake(l, &c->now);
    }
    c->n_done = 0;
    if (c->n > 0) {
        place(l);
    } else {
        round_over(l);
    }
}

static void on_map_sync(struct cow_io *io, int rc)
{
    struct cow *l = io->ctx;
    cow_io_put(io);
    if (rc) {
        broken(l, rc);
    } else {
        durable(l);
    }
}

static void on_journal(struct cow_io *io, int rc)
{
    struct cow *l = io->ctx;
    cow_io_put(io);
    if (rc) {
        broken(l, rc);
        return;
    }
    cow_io_start(l, &l->qs[0], l->map_layer, BLK_FLUSH, 0, NULL, 0, on_map_sync, l);
}

static void journal(struct cow *l)
{
    struct cow_commit *c = &l->commit;
    if (c->n == 0) {
        durable(l);
        return;
    }
    cow_io_start(l, &l->qs[0], l->map_layer, BLK_WRITE, map_journal_off(l->m->seq), c->buf,
                 (c->n + 1) * MAP_PAGE, on_journal, l);
}

static void on_aside_sync(struct cow_io *io, int rc)
{
    struct cow *l = io->ctx;
    cow_io_put(io);
    if (rc) {
        broken(l, rc);
    } else {
        journal(l);
    }
}

static void aside(struct cow *l)
{
    if (!l->is_aside_dirty) {
        journal(l);
        return;
    }
    l->is_aside_dirty = false;
    cow_io_start(l, &l->qs[0], l->o.aside, BLK_FLUSH, 0, NULL, 0, on_aside_sync, l);
}

static void on_data_sync(struct cow_io *io, int rc)
{
    struct cow *l = io->ctx;
    cow_io_put(io);
    if (rc) {
        broken(l, rc);
    } else {
        aside(l);
    }
}

static bool has_marks(const struct cow_commit *c)
{
    const struct map_page *p = (const struct map_page *)c->buf + 1;
    for (unsigned i = 0; i < c->n; i++) {
        unsigned idx;
        enum map_kind k = map_kind_of(p[i].no, &idx);
        if (k == MAP_K_STATE || k == MAP_K_HEAD) {
            return true;
        }
    }
    return false;
}

static void round_start(struct cow *l)
{
    struct cow_commit *c = &l->commit;
    c->n = map_round(l->m, c->buf, cow_head_may_go(l), &c->is_last);
    bool is_first = c->is_first;
    c->is_first = false;
    if ((is_first && c->has_flush) || has_marks(c)) {
        cow_io_start(l, &l->qs[0], l->base.below, BLK_FLUSH, 0, NULL, 0, on_data_sync, l);
    } else {
        aside(l);
    }
}

static void sweep_start(struct cow *l)
{
    struct cow_commit *c = &l->commit;
    c->is_running = c->is_first = true;
    c->is_wanted = false;
    c->now = c->next;
    if (!c->now.head) {
        c->now.tail = &c->now.head;
    }
    cow_list_init(&c->next);
    c->has_flush = c->is_flush_next;
    c->is_flush_next = false;
    if (atomic_load(&l->fault)) {
        cow_list_wake(l, &c->now);
        finish(l);
        return;
    }
    cow_snap_reduce(l);
    l->n_unstored = 0;
    map_sweep(l->m);
    cow_snap_swept(l);
    cow_quiesce(l); /* who flagged a page before the sweep has changed it by now */
    round_start(l);
}

void cow_commit(struct cow *l, struct blk_msg *m)
{
    struct cow_commit *c = &l->commit;
    if (m) {
        cow_list_add(&c->next, m);
    }
    c->is_wanted = true;
    if (!c->is_running) {
        sweep_start(l);
    }
}

static void flushed(struct blk_msg *m)
{
    struct blk_req *r = cow_parked(m);
    struct cow *l = cow_park(r)->l;
    cow_fail(l, r, atomic_load(&l->fault) ? -ESTALE : 0);
}

void cow_flush(struct blk_msg *m)
{
    struct blk_req *r = cow_parked(m);
    struct cow *l = cow_park(r)->l;
    m->fn = flushed;
    l->commit.is_flush_next = true;
    cow_commit(l, m);
}
