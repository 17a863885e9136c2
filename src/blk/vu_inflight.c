#include "blk/vu_inflight.h"
#include "blk/vu_mutant.h"
#include <errno.h>
#include <stdlib.h>

#define VERSION     1u
#define ALIGN       64u

/* Plain stores in program order are what survives a killed process; the atomics keep the
 * compiler (and another reader) to that order. */
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define LOAD(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)

uint64_t vu_inflight_part(uint16_t queue_size)
{
    uint64_t n = sizeof(struct vu_inflight_region) +
                 (uint64_t)queue_size * sizeof(struct vu_inflight_desc);
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t vu_inflight_size(unsigned n_queues, uint16_t queue_size)
{
    return vu_inflight_part(queue_size) * n_queues;
}

struct entry {
    uint64_t counter;
    uint16_t head;
};

static int by_counter(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->counter != y->counter) {
        return x->counter < y->counter ? -1 : 1;
    }
    return (int)x->head - (int)y->head;
}

/* The used idx was published and its flags were not all cleared: what the guest has seen done
 * must not be done again. */
static int repair(struct vu_inflight *f, uint16_t used_idx, unsigned *ret_n_torn)
{
    uint16_t n = (uint16_t)(used_idx - LOAD(&f->r->used_idx)), head = 0;
    if (n > f->num) {
        return -EPROTO;
    }
    head = LOAD(&f->r->last_batch_head);
    for (uint16_t i = 0; i < n && !VU_MUTANT(NO_REPAIR); i++) {
        if (head >= f->num) {
            return -EPROTO;
        }
        STORE(&f->r->desc[head].inflight, (uint8_t)0);
        head = LOAD(&f->r->desc[head].next);
    }
    STORE(&f->r->used_idx, used_idx);
    *ret_n_torn = n;
    return 0;
}

int vu_inflight_recover(struct vu_inflight *f, uint16_t ring_num, uint16_t used_idx,
                        uint16_t *heads, unsigned *ret_n_torn)
{
    *ret_n_torn = 0;
    if (!f->r) {
        return 0;
    }
    if (ring_num > f->num) {
        return -EPROTO;
    }
    f->counter = 0;
    if (LOAD(&f->r->version) == 0) { /* a new region: zeros */
        STORE(&f->r->desc_num, f->num);
        STORE(&f->r->used_idx, used_idx);
        STORE(&f->r->version, (uint16_t)VERSION);
        return 0;
    }
    if (LOAD(&f->r->version) != VERSION || LOAD(&f->r->desc_num) != f->num) {
        return -EPROTO;
    }
    int rc = repair(f, used_idx, ret_n_torn);
    if (rc < 0) {
        return rc;
    }
    struct entry *v = calloc(f->num, sizeof(*v));
    unsigned n = 0;
    if (!v) {
        return -ENOMEM;
    }
    for (uint16_t i = 0; i < f->num && !VU_MUTANT(NO_RESUBMIT); i++) {
        if (LOAD(&f->r->desc[i].inflight) != 0) {
            if (i >= ring_num) {
                rc = -EPROTO;
                break;
            }
            v[n++] = (struct entry){LOAD(&f->r->desc[i].counter), i};
        }
    }
    qsort(v, n, sizeof(*v), by_counter);
    for (unsigned i = 0; i < n; i++) {
        heads[i] = v[i].head;
        STORE(&f->r->desc[v[i].head].counter, (uint64_t)i);
    }
    f->counter = n;
    free(v);
    return rc < 0 ? rc : (int)n;
}

void vu_inflight_fetched(struct vu_inflight *f, uint16_t head)
{
    if (f->r) {
        STORE(&f->r->desc[head].counter, f->counter++);
        STORE(&f->r->desc[head].inflight, (uint8_t)1);
    }
}

void vu_inflight_batch(struct vu_inflight *f, uint16_t head)
{
    if (f->r) {
        STORE(&f->r->desc[head].next, LOAD(&f->r->last_batch_head));
        STORE(&f->r->last_batch_head, head);
    }
}

void vu_inflight_clear(struct vu_inflight *f, uint16_t head)
{
    if (f->r) {
        STORE(&f->r->desc[head].inflight, (uint8_t)0);
    }
}

void vu_inflight_published(struct vu_inflight *f, uint16_t used_idx)
{
    if (f->r) {
        STORE(&f->r->used_idx, used_idx);
    }
}
