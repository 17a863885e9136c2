#include "blk/blk_cow_int.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

/* Blocks copied aside before their first write after a snapshot. One copy serves all frozen sets
 * that need the block as it is now. Slot i of the aside file is described by entry i of the map:
 * block, generations of the sets, and in which state each page was (pages that were absent then are
 * got from the source when the block is uploaded: no write ever waits for the store). */

#define HASH    4096u
#define NO_SLOT UINT32_MAX

static uint32_t bucket(uint64_t block)
{
    return (uint32_t)((block * UINT64_C(0x9e3779b97f4a7c15)) >> 52) % HASH;
}

static void slot_take(struct cow *l, uint32_t slot, uint64_t block, bool is_noted)
{
    if (!is_noted) { /* of a set that is long gone: an entry without sets is one to come */
        struct map_aside none = {.block = block};
        map_aside_put(l->m, slot, &none);
    }
    l->slot_used[slot / 64] |= UINT64_C(1) << (slot % 64);
    l->slot_next[slot] = l->slot_head[bucket(block)];
    l->slot_head[bucket(block)] = slot;
}

static void slot_free(struct cow *l, uint32_t slot)
{
    l->slot_used[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

static void slot_unhash(struct cow *l, uint32_t slot, uint64_t block)
{
    for (uint32_t *p = &l->slot_head[bucket(block)]; *p != NO_SLOT; p = &l->slot_next[*p]) {
        if (*p == slot) {
            *p = l->slot_next[slot];
            return;
        }
    }
}

static uint32_t slot_find_free(struct cow *l)
{
    uint32_t words = (l->n_slots + 63) / 64;
    for (uint32_t n = 0; n < words; n++) {
        uint32_t i = (l->slot_hint + n) % words;
        uint64_t free_bits = ~l->slot_used[i];
        while (free_bits) {
            uint32_t slot = i * 64 + (uint32_t)__builtin_ctzll(free_bits);
            if (slot < l->n_slots) {
                l->slot_hint = i;
                return slot;
            }
            free_bits &= free_bits - 1;
        }
    }
    return NO_SLOT;
}

int cow_aside_init(struct cow *l, struct err *err)
{
    if (l->n_slots == 0) {
        return 0;
    }
    l->slot_next = calloc(l->n_slots, sizeof(*l->slot_next));
    l->slot_head = malloc(HASH * sizeof(*l->slot_head));
    l->slot_used = calloc((l->n_slots + 63) / 64, 8);
    if (!l->slot_next || !l->slot_head || !l->slot_used) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for the blocks aside");
    }
    memset(l->slot_head, 0xff, HASH * sizeof(*l->slot_head));
    const struct map_head *h = map_head(l->m);
    bool is_any = false;
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        is_any |= h->frozen[k].gen != 0;
    }
    for (uint32_t s = 0; is_any && s < BLK_ASIDE_SLOTS; s++) {
        struct map_aside a = map_aside_get(l->m, s);
        bool is_live = false;
        for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
            if (a.gen[k] && a.gen[k] == h->frozen[k].gen) {
                is_live = true;
                l->sets[k].n_aside++;
            }
        }
        if (is_live && s >= l->n_slots) {
            return fail(err, -EINVAL, "BadMap", "the aside file is smaller than it was");
        }
        if (is_live) {
            slot_take(l, s, a.block, true);
        }
    }
    return 0;
}

bool cow_aside_find(struct cow *l, unsigned k, uint64_t block, uint32_t *ret_slot)
{
    uint32_t gen = atomic_load(&l->sets[k].gen);
    for (uint32_t s = l->n_slots ? l->slot_head[bucket(block)] : NO_SLOT; s != NO_SLOT;
         s = l->slot_next[s]) {
        struct map_aside a = map_aside_get(l->m, s);
        if (a.block == block && a.gen[k] == gen) {
            *ret_slot = s;
            return true;
        }
    }
    return false;
}

/* Only now is the slot free: a hole that came late would be in the next block's bytes. */
static void dropped(struct cow_io *io, int rc)
{
    struct cow *l = io->l;
    slot_free(l, (uint32_t)(io->r.off / BLK_BLOCK));
    l->n_dropping--;
    cow_io_put(io);
    cow_kick(l); /* who waited for a slot */
}

void cow_aside_drop(struct cow *l, unsigned k)
{
    const struct map_head *h = map_head(l->m);
    for (uint32_t s = 0; s < l->n_slots; s++) {
        if (!(l->slot_used[s / 64] >> (s % 64) & 1)) {
            continue;
        }
        struct map_aside a = map_aside_get(l->m, s);
        bool is_live = false;
        if (!(a.gen[0] | a.gen[1] | a.gen[2] | a.gen[3])) {
            continue; /* a copy is being made there */
        }
        for (unsigned i = 0; i < BLK_MAX_FROZEN; i++) {
            a.gen[i] = i != k && a.gen[i] == h->frozen[i].gen ? a.gen[i] : 0;
            is_live |= a.gen[i] != 0;
        }
        if (!is_live) {
            uint64_t block = a.block;
            slot_unhash(l, s, block);
            a = (struct map_aside){0};
            l->n_dropping++;
            cow_io_start(l, &l->qs[0], l->o.aside, BLK_DISCARD, (uint64_t)s * BLK_BLOCK, NULL,
                         BLK_BLOCK, dropped, NULL);
        }
        map_aside_put(l->m, s, &a);
    }
}

/* ---- COPY ---- */

static void copy_give_up(struct cow_op *op)
{
    if (op->is_locked) {
        cow_op_unlock(op, op->block * BLK_BLOCK, BLK_BLOCK);
    }
    if (op->slot != NO_SLOT) {
        slot_unhash(op->l, op->slot, op->block);
        slot_free(op->l, op->slot);
    }
    cow_op_end(op);
}

static void copy_durable(struct cow_op *op)
{
    struct cow *l = op->l;
    if (op->rc) {
        cow_op_end(op);
        return;
    }
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        /* The set may have ended meanwhile: then its entry is gone as well. */
        if ((op->need & (1u << k)) && atomic_load(&l->sets[k].gen) == op->gen[k]) {
            (void)map_bit_set(l->m->open[k], op->block);
            l->sets[k].n_aside++;
        }
    }
    cow_op_end(op);
}

static void copy_noted(struct cow_op *op)
{
    struct cow *l = op->l;
    if (op->rc) {
        copy_give_up(op);
        return;
    }
    struct map_aside a = {.block = op->block};
    bool is_any = false;
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        bool is_live = (op->need & (1u << k)) && atomic_load(&l->sets[k].gen) == op->gen[k];
        a.gen[k] = is_live ? op->gen[k] : 0;
        is_any |= is_live;
    }
    if (!is_any) {
        copy_give_up(op);
        return;
    }
    memcpy(a.state, op->state, sizeof(a.state));
    map_aside_put(l->m, op->slot, &a);
    l->is_aside_dirty = true;
    atomic_fetch_add(&l->n_aside_writes, 1);
    cow_op_unlock(op, op->block * BLK_BLOCK, BLK_BLOCK);
    cow_op_commit(op, copy_durable);
}

/* Pages of zeros need no place aside. */
static bool note_zeros(struct cow_op *op)
{
    bool is_any = false;
    for (unsigned i = 0; i < MAP_BLOCK_PAGES; i++) {
        unsigned sh = i % 32 * 2;
        if ((op->state[i / 32] >> sh & 3) != MAP_DATA) {
            continue;
        }
        const uint64_t *w = (const uint64_t *)(const void *)((char *)op->buf + i * BLK_PAGE);
        bool is_zero = true;
        for (size_t k = 0; is_zero && k < BLK_PAGE / 8; k++) {
            is_zero = w[k] == 0;
        }
        if (is_zero) {
            op->state[i / 32] &= ~(UINT64_C(2) << sh);
        } else {
            is_any = true;
        }
    }
    return is_any;
}

static void copy_read(struct cow_op *op)
{
    struct cow *l = op->l;
    if (op->rc == 0 && note_zeros(op)) {
        cow_op_io(op, l->o.aside, BLK_WRITE, (uint64_t)op->slot * BLK_BLOCK, op->buf, BLK_BLOCK,
                  copy_noted);
    } else {
        copy_noted(op);
    }
}

/* On a file system that shares extents nothing is copied at all. */
static bool clone_block(struct cow_op *op)
{
    struct cow *l = op->l;
    if (l->o.data_fd < 0 || l->o.aside_fd < 0 || l->is_clone_refused || l->m->is_encrypted ||
        cow_block_len(l, op->block) != BLK_BLOCK) {
        return false;
    }
    struct file_clone_range r = {.src_fd = l->o.data_fd,
                                 .src_offset = op->block * BLK_BLOCK,
                                 .src_length = BLK_BLOCK,
                                 .dest_offset = (uint64_t)op->slot * BLK_BLOCK};
    if (ioctl(l->o.aside_fd, FICLONERANGE, &r) == 0) {
        atomic_fetch_add(&l->n_clones, 1);
        return true;
    }
    l->is_clone_refused =
        true; /* ext4, another file system, an older kernel: copy from now on */
    return false;
}

static void copy_locked(struct cow_op *op)
{
    struct cow *l = op->l;
    /* What was written before the snapshot and is still on its way belongs to it. */
    if (!cow_is_drained(l, atomic_load(&l->epoch) - 1)) {
        cow_op_stall(op, copy_locked);
        return;
    }
    bool wait = false;
    op->need = cow_needs_copy(l, op->block, &wait);
    if (!op->need) {
        copy_give_up(op);
        return;
    }
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        op->gen[k] = atomic_load(&l->sets[k].gen);
    }
    memset(op->state, 0xff, sizeof(op->state));
    if (l->m->has_states) {
        map_block_states(l->m, op->block, op->state);
    }
    if (clone_block(op)) {
        copy_noted(op);
        return;
    }
    uint64_t len = cow_block_len(l, op->block);
    memset((char *)op->buf + len, 0, BLK_BLOCK - len);
    cow_op_io(op, l->base.below, BLK_READ, op->block * BLK_BLOCK, op->buf, len, copy_read);
}

static void copy_start(struct cow_op *op)
{
    struct cow *l = op->l;
    bool wait = false;
    if (!cow_needs_copy(l, op->block, &wait)) { /* it was uploaded meanwhile */
        cow_op_end(op);
        return;
    }
    op->slot = slot_find_free(l);
    op->buf = op->slot == NO_SLOT ? NULL : cow_buffer_get(l);
    if (!op->buf) {
        op->slot = NO_SLOT;
        cow_op_stall(op, copy_start);
        return;
    }
    op->owns_buf = true;
    slot_take(l, op->slot, op->block, false);
    cow_op_lock(op, op->block * BLK_BLOCK, BLK_BLOCK, copy_locked);
}

void cow_copy(struct cow *l, uint64_t block)
{
    if (cow_op_find(l, COW_COPY, block)) {
        return;
    }
    struct cow_op *op = cow_op_new(l, COW_COPY, block);
    op->slot = NO_SLOT;
    /* Never from inside: the caller still wants to wait for it. */
    cow_op_stall(op, copy_start);
    cow_kick(l);
}
