#include "blk/blk_lock.h"

#include "base/macro.h"
#include <assert.h>
#include <string.h>

#define ALONE 0x80000000u
#define SHIFT 16

void blk_lock_init(struct blk_lock *l)
{
    memset(l, 0, sizeof(*l));
    pthread_mutex_init(&l->lock, NULL);
    l->tail = &l->head;
}

void blk_lock_done(struct blk_lock *l)
{
    assert(!l->head);
    pthread_mutex_destroy(&l->lock);
}

static uint32_t *slot(struct blk_lock *l, uint32_t i)
{
    return &l->slots[i & (BLK_LOCK_SLOTS - 1)];
}

static void drop(struct blk_lock *l, uint32_t first, uint32_t n, bool is_alone)
{
    for (uint32_t i = 0; i < n; i++) {
        __atomic_fetch_sub(slot(l, first + i), is_alone ? ALONE : 1, __ATOMIC_SEQ_CST);
    }
}

/* All or nothing. While it fails, others may see what it took for a moment: they fail too and go
 * the slow way, where all is tried again. */
static bool try_take(struct blk_lock *l, uint32_t first, uint32_t n, bool is_alone)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *s = slot(l, first + i);
        bool is_got = false;
        if (is_alone) {
            uint32_t none = 0;
            is_got = __atomic_compare_exchange_n(s, &none, ALONE, false, __ATOMIC_SEQ_CST,
                                                 __ATOMIC_RELAXED);
        } else {
            is_got = !(__atomic_fetch_add(s, 1, __ATOMIC_SEQ_CST) & ALONE);
            if (!is_got) {
                __atomic_fetch_sub(s, 1, __ATOMIC_SEQ_CST);
            }
        }
        if (!is_got) {
            drop(l, first, i, is_alone);
            return false;
        }
    }
    return true;
}

struct marks {
    uint64_t bits[BLK_LOCK_SLOTS / 64];
};

static bool is_marked(const struct marks *m, const struct blk_lock_wait *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t k = (w->first + i) & (BLK_LOCK_SLOTS - 1);
        if (m->bits[k / 64] & (UINT64_C(1) << (k % 64))) {
            return true;
        }
    }
    return false;
}

static void mark(struct marks *m, const struct blk_lock_wait *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t k = (w->first + i) & (BLK_LOCK_SLOTS - 1);
        m->bits[k / 64] |= UINT64_C(1) << (k % 64);
    }
}

/* Gives to those who wait what they can have, in order: who overlaps somebody that still waits in
 * front of him waits too. */
static void grant(struct blk_lock *l)
{
    struct marks m = {{0}};
    struct blk_msg **at = &l->head;
    while (*at) {
        struct blk_lock_wait *w = CONTAINER_OF(*at, struct blk_lock_wait, msg);
        struct blk_msg *next = w->msg.next;
        if (!is_marked(&m, w) && try_take(l, w->first, w->n, w->is_alone)) {
            *at = next;
            __atomic_fetch_sub(&l->n_waiting, 1, __ATOMIC_SEQ_CST);
            blk_queue_post(w->q, &w->msg);
            continue;
        }
        mark(&m, w);
        at = &w->msg.next;
    }
    l->tail = at;
}

static void range(uint64_t off, uint64_t len, uint32_t *first, uint32_t *n)
{
    *first = (uint32_t)(off >> SHIFT) & (BLK_LOCK_SLOTS - 1);
    *n = (uint32_t)(((off + len - 1) >> SHIFT) - (off >> SHIFT) + 1);
    assert(*n <= BLK_LOCK_SLOTS / 2);
}

bool blk_lock_take(struct blk_lock *l, struct blk_lock_wait *w, struct blk_queue *q,
                   uint64_t off, uint64_t len, bool is_alone, void (*fn)(struct blk_msg *m))
{
    uint32_t first = 0, n = 0;
    range(off, len, &first, &n);
    if (__atomic_load_n(&l->n_waiting, __ATOMIC_SEQ_CST) == 0 &&
        try_take(l, first, n, is_alone)) {
        return true;
    }
    *w = (struct blk_lock_wait){
        .msg = {.fn = fn}, .q = q, .first = first, .n = (uint16_t)n, .is_alone = is_alone};
    pthread_mutex_lock(&l->lock);
    __atomic_fetch_add(&l->n_waiting, 1, __ATOMIC_SEQ_CST);
    *l->tail = &w->msg;
    l->tail = &w->msg.next;
    grant(l); /* it may be free by now, and who gave it back may not have seen the waiter */
    pthread_mutex_unlock(&l->lock);
    return false;
}

void blk_lock_give(struct blk_lock *l, uint64_t off, uint64_t len, bool is_alone)
{
    uint32_t first = 0, n = 0;
    range(off, len, &first, &n);
    drop(l, first, n, is_alone);
    if (__atomic_load_n(&l->n_waiting, __ATOMIC_SEQ_CST) > 0) {
        pthread_mutex_lock(&l->lock);
        grant(l);
        pthread_mutex_unlock(&l->lock);
    }
}
