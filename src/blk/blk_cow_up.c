#include "blk/blk_cow_int.h"

#include "base/time.h"
#include <unistd.h>

#define UP_REST_MAX_NS (20 * NS_PER_MS)

/* Reading a frozen set for uploads: a block comes from its copy aside, or from below as long as it
 * has not been overwritten; pages that were absent come from the source. */

static void up_read(struct cow_up_slot *s);
static void up_compose(struct cow_up_slot *s);

static struct cow_set *set_of(struct cow_up_slot *s)
{
    return &s->l->sets[s->k];
}

static bool is_stopped(struct cow_up_slot *s)
{
    return !set_of(s)->is_reading || s->l->is_closing;
}

static void up_free(struct cow_up_slot *s)
{
    s->state = UP_FREE;
    cow_kick(s->l);
}

bool cow_up_is_idle(struct cow *l, unsigned k)
{
    const struct cow_set *s = &l->sets[k];
    for (unsigned i = 0; s->slots && i < COW_WINDOW; i++) {
        if (s->slots[i].state == UP_READING) {
            return false;
        }
    }
    return true;
}

bool cow_up_is_free(struct cow *l, unsigned k)
{
    const struct cow_set *s = &l->sets[k];
    for (unsigned i = 0; s->slots && i < COW_WINDOW; i++) {
        if (s->slots[i].state != UP_FREE) {
            return false;
        }
    }
    return true;
}

void cow_up_stop(struct cow *l, unsigned k)
{
    struct cow_set *s = &l->sets[k];
    s->is_reading = false;
    for (unsigned i = 0; s->slots && i < COW_WINDOW; i++) {
        struct cow_up_slot *u = &s->slots[i];
        if (u->state == UP_RETRY || (u->state == UP_READING && u->is_stalled)) {
            u->is_stalled = false;
            u->state = UP_FREE;
        }
    }
}

static void stored(struct cow_up_slot *s)
{
    struct cow *l = s->l;
    struct cow_set *set = set_of(s);
    map_flag(l->m, map_no(MAP_K_STORED, s->k, s->block));
    if (map_bit_set(l->m->stored[s->k], s->block)) {
        set->n_stored++;
    }
    up_free(s);
    cow_kick(l); /* a copy that waited for a place is not needed any more */
    if (++l->n_unstored >= COW_WINDOW) {
        l->n_unstored = 0;
        cow_commit(l, NULL);
    }
}

static void on_uploaded(struct blk_msg *m)
{
    struct cow_up_slot *s = CONTAINER_OF(m, struct cow_up_slot, m);
    struct cow *l = s->l;
    if (is_stopped(s)) {
        up_free(s);
    } else if (s->rc == 0) {
        stored(s);
        cow_up_pump(l, s->k);
    } else {
        s->state = UP_RETRY;
        s->ticks = COW_RETRY_TICKS;
        cow_tick(l);
    }
}

void blk_cow_uploaded(struct blk_layer *base, unsigned idx, uint64_t block, int rc)
{
    struct cow *l = cow_of(base);
    struct cow_up_slot *v =
        idx < BLK_MAX_FROZEN ? __atomic_load_n(&l->sets[idx].slots, __ATOMIC_ACQUIRE) : NULL;
    for (unsigned i = 0; v && i < COW_WINDOW; i++) {
        uint64_t sent = block + 1;
        if (atomic_compare_exchange_strong(&v[i].sent, &sent, 0)) {
            v[i].rc = rc;
            v[i].m.fn = on_uploaded;
            blk_queue_post(l->o.inner, &v[i].m);
            return;
        }
    }
}

static bool is_all_zero(const char *buf)
{
    return buf[0] == 0 && memcmp(buf, buf + 1, BLK_BLOCK - 1) == 0;
}

static void up_send(struct cow_up_slot *s)
{
    struct cow *l = s->l;
    if (is_stopped(s)) {
        up_free(s);
        return;
    }
    if (set_of(s)->is_full && is_all_zero(s->buf)) {
        stored(s); /* what a full one does not name is zeros */
        cow_up_pump(l, s->k);
        return;
    }
    s->state = UP_SENT;
    cow_kick(l); /* the next may be read */
    atomic_store(&s->sent, s->block + 1);
    l->o.supplier.upload(l->o.supplier.ctx, s->k, s->block, s->buf);
}

static unsigned state_in(const struct cow_up_slot *s, unsigned i)
{
    return (unsigned)(s->pages[i / 32] >> (i % 32 * 2)) & 3;
}

static bool is_of_source(const struct cow_up_slot *s, unsigned i)
{
    return state_in(s, i) == MAP_ABSENT &&
           s->block * MAP_BLOCK_PAGES + i < s->l->m->source_pages;
}

void cow_up_source(struct cow_up_slot *s, const void *buf)
{
    for (unsigned i = 0; i < MAP_BLOCK_PAGES; i++) {
        char *to = s->buf + (size_t)i * BLK_PAGE;
        if (is_of_source(s, i) && buf) {
            memcpy(to, (const char *)buf + (size_t)i * BLK_PAGE, BLK_PAGE);
        } else if (is_of_source(s, i)) {
            memset(to, 0, BLK_PAGE);
        }
    }
    s->has_source = true;
}

static void on_source(struct blk_msg *m)
{
    struct cow_up_slot *s = CONTAINER_OF(m, struct cow_up_slot, sub);
    s->state = UP_READING;
    if (s->has_source) {
        up_send(s);
    } else if (
        s->rc) { /* the source is damaged: the snapshot cannot end; asked again in a while */
        s->rc = 0;
        s->is_reread = true;
        s->state = UP_RETRY;
        s->ticks = COW_RETRY_TICKS;
        cow_tick(s->l);
    } else {
        up_compose(s);
    }
}

static void on_base(struct cow_io *io, int rc)
{
    struct cow_up_slot *s = io->ctx;
    struct cow *l = io->l;
    cow_io_put(io);
    if (rc == 0) {
        cow_up_source(s, s->tmp);
    }
    cow_buffer_put(l, s->tmp);
    s->tmp = NULL;
    if (rc == 0) {
        up_send(s);
    } else {
        s->state = UP_RETRY;
        s->is_reread = true;
        s->ticks = COW_RETRY_TICKS;
        cow_kick(l);
        cow_tick(l);
    }
}

/* s->buf holds what was read; now the pages that were not there. */
static void up_compose(struct cow_up_slot *s)
{
    struct cow *l = s->l;
    bool is_source = false;
    for (unsigned i = 0; i < MAP_BLOCK_PAGES; i++) {
        if (is_of_source(s, i)) {
            is_source = true;
        } else if (state_in(s, i) != MAP_DATA) {
            memset(s->buf + (size_t)i * BLK_PAGE, 0, BLK_PAGE);
        }
    }
    s->has_source = false;
    uint64_t off = s->block * BLK_BLOCK;
    if (!is_source || is_stopped(s)) {
        up_send(s);
    } else if (cow_base_has(l, s->block) && off < l->o.base->size) {
        s->tmp = cow_buffer_get(l);
        if (!s->tmp) {
            s->is_stalled = true;
            return;
        }
        uint64_t len = MIN(l->o.base->size - off, BLK_BLOCK);
        memset((char *)s->tmp + len, 0, BLK_BLOCK - len);
        cow_io_start(l, &l->qs[0], l->o.base, BLK_READ, off, s->tmp, len, on_base, s);
    } else {
        s->state = UP_WAITING;
        cow_kick(l);
        s->sub.fn = on_source;
        cow_list_add(&cow_miss_start(l, s->block, true)->readers, &s->sub);
    }
}

/* Requests of the front ends so far; what the owner's queue does itself does not count. */
static uint64_t n_seen(const struct cow *l)
{
    uint64_t n = 0;
    for (unsigned i = 1; i < COW_QUEUES; i++) {
        n += atomic_load_explicit(&l->qs[i].n_seen, memory_order_relaxed);
    }
    return n;
}

static void on_rested(void *ctx)
{
    struct cow *l = ctx;
    l->is_rest_armed = false;
    cow_kick(l);
}

/* A block of 512 KiB keeps the disk from the guest's small requests for as long as it is read.
 * While there are such, the upload has a third of the time. */
static void rest(struct cow *l, const struct cow_up_slot *s)
{
    uint64_t now = time_mono_ns();
    if (n_seen(l) != s->n_seen) {
        l->rest_until_ns = now + MIN(2 * (now - s->start_ns), UP_REST_MAX_NS);
    }
}

static bool is_resting(struct cow *l)
{
    if (time_mono_ns() >= l->rest_until_ns) {
        return false;
    }
    if (!l->is_rest_armed) {
        l->is_rest_armed = true;
        blk_queue_at(l->o.inner, l->rest_until_ns, on_rested, l);
    }
    return true;
}

static void on_read(struct cow_io *io, int rc)
{
    struct cow_up_slot *s = io->ctx;
    struct cow *l = io->l;
    cow_io_put(io);
    if (s->is_locked) {
        rest(l, s);
        s->is_locked = false;
        blk_lock_give(&l->lock, s->block * BLK_BLOCK, BLK_BLOCK, true);
    }
    if (rc == 0) {
        up_compose(s);
        return;
    }
    s->is_reread = true;
    s->state = UP_RETRY;
    s->ticks = COW_RETRY_TICKS;
    cow_kick(l);
    cow_tick(l);
}

static void from_aside(struct cow_up_slot *s, uint32_t slot)
{
    struct cow *l = s->l;
    struct map_aside a = map_aside_get(l->m, slot);
    memcpy(s->pages, a.state, sizeof(s->pages));
    uint64_t any =
        (s->pages[0] | s->pages[1] | s->pages[2] | s->pages[3]) & UINT64_C(0xaaaaaaaaaaaaaaaa);
    if (any) {
        cow_io_start(l, &l->qs[0], l->o.aside, BLK_READ, (uint64_t)slot * BLK_BLOCK, s->buf,
                     BLK_BLOCK, on_read, s);
    } else {
        up_compose(s);
    }
}

static void up_locked(struct blk_msg *m)
{
    struct cow_up_slot *s = CONTAINER_OF(m, struct cow_up_slot, lw.msg);
    struct cow *l = s->l;
    uint32_t slot;
    bool is_aside = cow_aside_find(l, s->k, s->block, &slot);
    if (is_aside || is_stopped(s)) {
        blk_lock_give(&l->lock, s->block * BLK_BLOCK, BLK_BLOCK, true);
        if (is_stopped(s)) {
            up_free(s);
        } else {
            from_aside(s, slot);
        }
        return;
    }
    memset(s->pages, 0xff, sizeof(s->pages));
    if (l->m->has_states) {
        map_block_states(l->m, s->block, s->pages);
    }
    s->is_locked = true;
    s->start_ns = time_mono_ns();
    s->n_seen = n_seen(l);
    uint64_t len = cow_block_len(l, s->block);
    memset(s->buf + len, 0, BLK_BLOCK - len);
    cow_io_start(l, &l->qs[0], l->base.below, BLK_READ, s->block * BLK_BLOCK, s->buf, len,
                 on_read, s);
}

static void up_read(struct cow_up_slot *s)
{
    struct cow *l = s->l;
    uint32_t slot;
    s->state = UP_READING;
    s->is_reread = false;
    if (cow_aside_find(l, s->k, s->block, &slot)) {
        from_aside(s, slot);
        return;
    }
    if (blk_lock_take(&l->lock, &s->lw, l->o.inner, s->block * BLK_BLOCK, BLK_BLOCK, true,
                      up_locked)) {
        up_locked(&s->lw.msg);
    }
}

/* The next block to be read, or the end. */
static uint64_t next_block(struct cow *l, unsigned k)
{
    struct cow_set *s = &l->sets[k];
    uint64_t b = s->cursor, end = s->n_blocks;
    for (; b < end; b++) {
        if (!s->is_full) {
            b = map_next_bit(s->set, b, end);
        } else if (l->o.data_fd >= 0 && b * MAP_BLOCK_PAGES >= l->m->source_pages) {
            /* Never allocated, and not because it was discarded since: zeros. */
            off_t d = lseek(l->o.data_fd, (off_t)(b * BLK_BLOCK), SEEK_DATA);
            uint64_t next = d >= 0 ? (uint64_t)d / BLK_BLOCK : errno == ENXIO ? end : b;
            next = MIN(next, map_next_bit(l->m->open[k], b, end));
            s->n_stored += next > b ? next - b : 0;
            b = MAX(b, next);
        }
        if (b >= end || !map_bit(l->m->stored[k], b)) {
            break;
        }
    }
    s->cursor = b + 1;
    return b;
}

/* Blocks of 512 KiB that are read side by side are no faster than one after the other, and starve
 * the guest's small reads on most disks (measured: 0.77 of them are left beside one, 0.05 beside
 * four). The window is for what is on its way to the store. */
#define READ_AT_ONCE 1u

static unsigned n_reading(const struct cow *l)
{
    unsigned n = 0;
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        const struct cow_up_slot *v = l->sets[k].slots;
        for (unsigned i = 0; v && i < COW_WINDOW; i++) {
            n += v[i].state == UP_READING ? 1 : 0;
        }
    }
    return n;
}

void cow_up_pump(struct cow *l, unsigned k)
{
    struct cow_set *s = &l->sets[k];
    if (!s->is_reading || l->is_closing || s->is_end_told || !cow_is_drained(l, s->epoch)) {
        return;
    }
    unsigned n = 0;
    for (unsigned i = 0; i < COW_WINDOW; i++) {
        n += s->slots[i].state != UP_FREE ? 1 : 0;
    }
    for (unsigned i = 0; i < COW_WINDOW && n < s->window && s->cursor < s->n_blocks; i++) {
        struct cow_up_slot *u = &s->slots[i];
        if (u->state != UP_FREE) {
            continue;
        }
        if (n_reading(l) >= READ_AT_ONCE || is_resting(l)) {
            return; /* whoever ends a read, or a rest, kicks */
        }
        if (!u->buf) {
            u->buf = aligned_alloc(BLK_PAGE, BLK_BLOCK);
        }
        if (!u->buf) {
            cow_tick(l);
            return;
        }
        uint64_t b = next_block(l, k);
        if (b >= s->n_blocks) {
            break;
        }
        u->block = b;
        n++;
        up_read(u);
    }
    if (s->cursor >= s->n_blocks && cow_up_is_free(l, k) && !s->is_end_told) {
        s->is_end_told = true;
        cow_commit(l, NULL);
        l->o.supplier.upload_end(l->o.supplier.ctx, k);
    }
}

void cow_up_kick(struct cow *l)
{
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        struct cow_set *s = &l->sets[k];
        for (unsigned i = 0; s->slots && i < COW_WINDOW; i++) {
            struct cow_up_slot *u = &s->slots[i];
            if (u->state == UP_READING && u->is_stalled) {
                u->is_stalled = false;
                up_compose(u);
            }
        }
        cow_up_pump(l, k);
    }
}

void cow_up_tick(struct cow *l)
{
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        struct cow_set *s = &l->sets[k];
        for (unsigned i = 0; s->slots && i < COW_WINDOW; i++) {
            struct cow_up_slot *u = &s->slots[i];
            if (u->state != UP_RETRY) {
                continue;
            }
            if (u->ticks > 0) {
                u->ticks--;
                cow_tick(l);
            } else if (u->is_reread) {
                up_read(u);
            } else {
                u->state = UP_READING;
                up_send(u);
            }
        }
    }
}

int blk_cow_snap_read(struct blk_layer *base, unsigned idx, unsigned window, struct err *err)
{
    struct cow *l = cow_of(base);
    if (idx >= BLK_MAX_FROZEN || !atomic_load(&l->sets[idx].gen) || l->is_closing) {
        return fail(err, -ENOENT, "NoSuchSnapshot", "no snapshot is under way at place %u",
                    idx);
    }
    struct cow_set *s = &l->sets[idx];
    if (!s->slots) {
        struct cow_up_slot *v = calloc(COW_WINDOW, sizeof(*v));
        if (!v) {
            return fail(err, -ENOMEM, "OutOfMemory", "no memory for an upload");
        }
        for (unsigned i = 0; i < COW_WINDOW; i++) {
            v[i].l = l;
            v[i].k = idx;
        }
        __atomic_store_n(&s->slots, v, __ATOMIC_RELEASE);
    }
    s->window = MAX(1u, MIN(window, COW_WINDOW));
    if (!s->is_reading || s->is_end_told) {
        s->is_reading = true;
        if (cow_up_is_free(l, idx)) {
            s->is_end_told = false;
            s->cursor = 0;
        }
    }
    cow_kick(l);
    return 0;
}
