#include "blk/vu_ring.h"
#include <errno.h>
#include <linux/virtio_ring.h>
#include <string.h>

#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define LOAD(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)

/* Guests are little-endian by VERSION_1; so are the machines this is built for. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "virtio 1 is little-endian");

int vu_ring_init(struct vu_ring *r, const struct vu_ring_opts *o)
{
    *r = (struct vu_ring){.mem = o->mem,
                          .num = o->num,
                          .has_event_idx = o->has_event_idx,
                          .has_indirect = o->has_indirect};
    uint64_t n = o->num;
    /* The two words behind the rings (used_event, avail_event) are there even when not agreed
     * on. */
    if (o->num == 0 || o->num > VU_QUEUE_SIZE || (o->desc & 15) != 0 || (o->avail & 1) != 0 ||
        (o->used & 3) != 0) {
        return -EPROTO;
    }
    r->desc = vu_mem_user(o->mem, o->desc, n * sizeof(struct vring_desc));
    r->avail = vu_mem_user(o->mem, o->avail, 4 + (n + 1) * sizeof(uint16_t));
    r->used = vu_mem_user(o->mem, o->used, 4 + n * sizeof(struct vring_used_elem) + 2);
    /* The frontend chooses where its regions lie: pointers must be aligned for atomics too. */
    if (!r->desc || !r->avail || !r->used || ((uintptr_t)r->desc & 7) != 0 ||
        ((uintptr_t)r->avail & 1) != 0 || ((uintptr_t)r->used & 3) != 0) {
        return -EPROTO;
    }
    r->used_idx = r->last_avail = r->signalled = LOAD(&r->used->idx);
    return 0;
}

static bool is_in_flight(const struct vu_ring *r, uint16_t head)
{
    return (r->in_flight[head / 64] >> (head % 64) & 1) != 0;
}

int vu_ring_again(struct vu_ring *r, uint16_t head)
{
    if (head >= r->num || is_in_flight(r, head)) {
        return -EPROTO;
    }
    r->in_flight[head / 64] |= UINT64_C(1) << (head % 64);
    r->n_in_flight++;
    return 0;
}

bool vu_ring_has_next(const struct vu_ring *r)
{
    return LOAD(&r->avail->idx) != r->last_avail;
}

int vu_ring_next(struct vu_ring *r, uint16_t *ret_head)
{
    uint16_t n = (uint16_t)(LOAD(&r->avail->idx) - r->last_avail);
    if (n == 0) {
        return 0;
    }
    if (n > r->num) { /* the guest's index ran away */
        return -EPROTO;
    }
    uint16_t head = LOAD(&r->avail->ring[r->last_avail & (r->num - 1u)]);
    int rc = vu_ring_again(r, head);
    if (rc < 0) {
        return rc;
    }
    r->last_avail++;
    *ret_head = head;
    return 1;
}

/* One descriptor's bytes become pieces of the chain; a buffer may go on in the next region. */
static int add_pieces(const struct vu_ring *r, const struct vring_desc *d, struct vu_chain *c)
{
    uint64_t at = d->addr, left = d->len;
    bool is_in = (d->flags & VRING_DESC_F_WRITE) != 0;
    if (left == 0 || (!is_in && c->n_in > 0)) { /* what the device reads comes first */
        return -EPROTO;
    }
    while (left > 0) {
        uint64_t n = 0;
        void *p = vu_mem_at(r->mem, at, left, &n);
        unsigned i = c->n_out + c->n_in;
        if (!p || i == VU_MAX_IOV) {
            return -EPROTO;
        }
        c->iov[i] = (struct iovec){p, n};
        *(is_in ? &c->n_in : &c->n_out) += 1;
        *(is_in ? &c->in_len : &c->out_len) += n;
        left -= n;
        if (left > 0 && __builtin_add_overflow(at, n, &at)) {
            return -EPROTO;
        }
    }
    return 0;
}

static void copy_desc(struct vring_desc *to, const struct vring_desc *from)
{
    /* The guest may write while we read: a torn copy is checked like any other. */
    const volatile struct vring_desc *v = from;
    to->addr = v->addr;
    to->len = v->len;
    to->flags = v->flags;
    to->next = v->next;
}

static int walk(const struct vu_ring *r, const struct vring_desc *table, unsigned n,
                unsigned first, bool is_indirect, struct vu_chain *c);

static int walk_indirect(const struct vu_ring *r, const struct vring_desc *d,
                         struct vu_chain *c)
{
    uint64_t n = 0;
    if (!r->has_indirect || (d->flags & VRING_DESC_F_NEXT) != 0 || d->len == 0 ||
        d->len % sizeof(*d) != 0 || d->len / sizeof(*d) > VU_QUEUE_SIZE) {
        return -EPROTO;
    }
    void *table = vu_mem_at(r->mem, d->addr, d->len, &n);
    if (!table || n != d->len || ((uintptr_t)table & 7) != 0) {
        /* A table need not be aligned by the standard, but every driver aligns it. */
        return -EPROTO;
    }
    return walk(r, table, d->len / (unsigned)sizeof(*d), 0, true, c);
}

static int walk(const struct vu_ring *r, const struct vring_desc *table, unsigned n,
                unsigned first, bool is_indirect, struct vu_chain *c)
{
    unsigned i = first;
    for (unsigned steps = 0; steps < n; steps++) { /* more steps than descriptors: a loop */
        struct vring_desc d;
        if (i >= n) {
            return -EPROTO;
        }
        copy_desc(&d, &table[i]);
        if ((d.flags & VRING_DESC_F_INDIRECT) != 0) {
            /* Never inside an indirect table, and it ends the chain. */
            return is_indirect ? -EPROTO : walk_indirect(r, &d, c);
        }
        int rc = add_pieces(r, &d, c);
        if (rc < 0) {
            return rc;
        }
        if ((d.flags & VRING_DESC_F_NEXT) == 0) {
            return 0;
        }
        i = d.next;
    }
    return -EPROTO;
}

int vu_ring_chain(const struct vu_ring *r, uint16_t head, struct vu_chain *ret)
{
    ret->n_out = ret->n_in = 0;
    ret->out_len = ret->in_len = 0;
    return walk(r, r->desc, r->num, head, false, ret);
}

void vu_ring_push(struct vu_ring *r, uint16_t head, uint32_t written)
{
    struct vring_used_elem *e = &r->used->ring[r->used_idx & (r->num - 1u)];
    STORE(&e->id, (uint32_t)head);
    STORE(&e->len, written);
    r->used_idx++;
    r->in_flight[head / 64] &= ~(UINT64_C(1) << (head % 64));
    r->n_in_flight--;
}

void vu_ring_publish(struct vu_ring *r)
{
    STORE(&r->used->idx, r->used_idx);
}

bool vu_ring_wants_call(struct vu_ring *r)
{
    /* The used index before the guest's wish: else both sides could miss each other. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint16_t old = r->signalled;
    r->signalled = r->used_idx;
    if (!r->has_event_idx) {
        return (LOAD(&r->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT) == 0;
    }
    return vring_need_event(LOAD(&r->avail->ring[r->num]), r->used_idx, old) != 0;
}

void vu_ring_ask_kick(struct vu_ring *r, bool is_on)
{
    if (r->has_event_idx) {
        if (is_on) {
            uint16_t *event = (uint16_t *)(void *)&r->used->ring[r->num];
            STORE(event, r->last_avail);
        }
    } else {
        STORE(&r->used->flags, (uint16_t)(is_on ? 0 : VRING_USED_F_NO_NOTIFY));
    }
    if (is_on) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
}
