#include "blk/blk_cow_int.h"

#include "base/time.h"

/* The filler: absent blocks one after the other, at the rate that was set, through the same misses
 * as everybody. What the base has is copied from it: the base will go. */

#define AT_ONCE 2u

static void fill_next(struct cow *l);

bool cow_fill_was(struct cow *l, uint64_t block)
{
    for (struct cow_fill *f = l->fills; f < l->fills + AT_ONCE; f++) {
        if (f->is_busy && f->block == block) {
            f->is_busy = false;
            cow_buffer_put(l, f->buf);
            l->n_fills--;
            fill_next(l);
            return true;
        }
    }
    return false;
}

static void on_read(struct cow_io *io, int rc)
{
    struct cow_fill *f = io->ctx;
    struct cow *l = io->l;
    cow_io_put(io);
    if (rc == 0) {
        (void)cow_fill_start(l, f->block, f->buf, false);
        return;
    }
    f->is_busy = false;
    l->n_fills--;
    cow_buffer_put(l, f->buf);
    l->fill_tokens = 0; /* again with the next tick */
}

static bool is_wanted(const struct cow *l, uint64_t block)
{
    for (const struct cow_miss *m = l->misses; m; m = m->next) {
        if (m->block == block) {
            return true;
        }
    }
    return false;
}

static void copy_base(struct cow *l, uint64_t block)
{
    struct cow_fill *f = l->fills[0].is_busy ? &l->fills[1] : &l->fills[0];
    void *buf = cow_buffer_get(l);
    if (!buf) {
        return;
    }
    *f = (struct cow_fill){.block = block, .buf = buf, .is_busy = true};
    l->n_fills++;
    uint64_t off = block * BLK_BLOCK, size = l->o.base->size;
    uint64_t len = MIN(size - off, BLK_BLOCK);
    memset((char *)buf + len, 0, BLK_BLOCK - len);
    cow_io_start(l, &l->qs[0], l->o.base, BLK_READ, off, buf, len, on_read, f);
}

static bool has_absent(struct cow *l, uint64_t block)
{
    for (uint64_t p = block * MAP_BLOCK_PAGES; p < (block + 1) * MAP_BLOCK_PAGES; p++) {
        if (cow_is_absent(l, p)) {
            return true;
        }
    }
    return false;
}

static unsigned n_background(const struct cow *l)
{
    unsigned n = 0;
    for (const struct cow_miss *m = l->misses; m; m = m->next) {
        n += m->is_background ? 1 : 0;
    }
    return n;
}

static void fill_next(struct cow *l)
{
    uint64_t n_blocks = (l->m->source_pages + MAP_BLOCK_PAGES - 1) / MAP_BLOCK_PAGES;
    for (uint64_t n = 0; n < 4096 && l->fill_tokens >= BLK_BLOCK && !l->is_closing &&
                         atomic_load(&l->m->n_absent) > 0;
         n++) {
        if (l->n_fills > 0 || n_background(l) >= AT_ONCE) { /* one read of a base at a time */
            return;
        }
        uint64_t b = l->fill_cursor % n_blocks;
        l->fill_cursor = b + 1;
        bool is_busy = is_wanted(l, b) || cow_op_find(l, COW_FILL, b) ||
                       (l->fills[0].is_busy && l->fills[0].block == b) ||
                       (l->fills[1].is_busy && l->fills[1].block == b);
        if (is_busy || !has_absent(l, b)) {
            continue;
        }
        l->fill_tokens -= BLK_BLOCK;
        if (cow_base_has(l, b) && b * BLK_BLOCK < l->o.base->size) {
            copy_base(l, b);
        } else {
            (void)cow_miss_start(l, b, true);
        }
    }
}

void cow_fill_tick(struct cow *l)
{
    if (!l->fill_rate || atomic_load(&l->m->n_absent) == 0) {
        return;
    }
    uint64_t now = time_mono_ns(), dt = MIN(now - l->fill_ns, NS_PER_S);
    l->fill_ns = now;
    /* A burst of at most a quarter of a second, and never less than a block. */
    uint64_t max = MAX(l->fill_rate / 4, (uint64_t)BLK_BLOCK);
    l->fill_tokens =
        MIN(l->fill_tokens + (uint64_t)((double)l->fill_rate * (double)dt / 1e9), max);
    fill_next(l);
    cow_tick(l);
}

void blk_cow_fill(struct blk_layer *base, uint64_t bytes_per_s)
{
    struct cow *l = cow_of(base);
    l->fill_rate = bytes_per_s;
    l->fill_ns = time_mono_ns();
    if (bytes_per_s) {
        cow_tick(l);
    }
}
