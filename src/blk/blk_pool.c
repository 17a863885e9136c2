#include "blk/blk_pool.h"

#include "base/macro.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int stack_init(struct blk_stack *s, unsigned n)
{
    s->v = calloc(n, sizeof(*s->v));
    return s->v ? 0 : -ENOMEM;
}

static void *stack_pop(struct blk_stack *s, enum blk_tier tier)
{
    return s->n > s->keep[tier] ? s->v[--s->n] : NULL;
}

int blk_pool_init(struct blk_pool *p, struct blk_queue *q, unsigned n_reqs, unsigned n_buffers)
{
    n_buffers = MAX(n_buffers, 8u);
    /* Layers need at most one request of their own per request of a front end to get on. */
    unsigned n_all = n_reqs + n_reqs / 2 + n_reqs / 4 + 8;
    p->mem_size = (size_t)BLK_N_SMALL * BLK_SMALL + (size_t)n_buffers * BLK_BUFFER;
    p->all_reqs = calloc(n_all, sizeof(*p->all_reqs));
    p->mem = mmap(NULL, p->mem_size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p->mem == MAP_FAILED) {
        p->mem = NULL;
    }
    p->n_reqs = n_reqs;
    p->is_touched = calloc(n_buffers, sizeof(*p->is_touched));
    if (!p->all_reqs || !p->mem || !p->is_touched || stack_init(&p->reqs, n_reqs) ||
        stack_init(&p->inner, n_all - n_reqs) || stack_init(&p->small, BLK_N_SMALL) ||
        stack_init(&p->big, n_buffers)) {
        blk_pool_done(p);
        return -ENOMEM;
    }
    for (unsigned i = n_all; i-- > 0;) {
        struct blk_stack *s = i < n_reqs ? &p->reqs : &p->inner;
        p->all_reqs[i].q = q;
        s->v[s->n++] = &p->all_reqs[i];
    }
    for (unsigned i = BLK_N_SMALL; i-- > 0;) {
        p->small.v[p->small.n++] = p->mem + (size_t)i * BLK_SMALL;
    }
    char *big = p->mem + (size_t)BLK_N_SMALL * BLK_SMALL;
    for (unsigned i = n_buffers; i-- > 0;) {
        p->big.v[p->big.n++] = big + (size_t)i * BLK_BUFFER;
    }
    p->inner.keep[BLK_COW] = n_reqs / 4 + 4;
    p->small.keep[BLK_FRONT] = BLK_N_SMALL / 2;
    p->small.keep[BLK_COW] = BLK_N_SMALL / 4;
    p->small.keep[BLK_CRYPT] = 2;
    p->big.keep[BLK_FRONT] = n_buffers / 2;
    p->big.keep[BLK_COW] = n_buffers / 4;
    p->big.keep[BLK_CRYPT] = 1;
    return 0;
}

void blk_pool_done(struct blk_pool *p)
{
    if (p->mem) {
        munmap(p->mem, p->mem_size);
    }
    free(p->all_reqs);
    free(p->is_touched);
    free(p->reqs.v);
    free(p->inner.v);
    free(p->small.v);
    free(p->big.v);
    for (size_t i = 0; i < BLK_TIER_N; i++) {
        free(p->waiting[i].v);
    }
    memset(p, 0, sizeof(*p));
}

struct blk_req *blk_pool_req(struct blk_pool *p, enum blk_tier tier)
{
    struct blk_req *r = stack_pop(tier == BLK_FRONT ? &p->reqs : &p->inner, tier);
    if (r) {
        r->flags = 0;
        r->buf = NULL;
    }
    return r;
}

void blk_pool_put_req(struct blk_pool *p, struct blk_req *r)
{
    struct blk_stack *s = r < p->all_reqs + p->n_reqs ? &p->reqs : &p->inner;
    s->v[s->n++] = r;
    p->n_put++;
}

static size_t big_number(const struct blk_pool *p, const void *buf)
{
    size_t at = (size_t)((const char *)buf - p->mem) - (size_t)BLK_N_SMALL * BLK_SMALL;
    return at / BLK_BUFFER;
}

void *blk_pool_buffer(struct blk_pool *p, enum blk_tier tier, size_t size)
{
    assert(size <= BLK_BUFFER);
    void *buf = size <= BLK_SMALL ? stack_pop(&p->small, tier) : NULL;
    if (buf) {
        return buf;
    }
    buf = stack_pop(&p->big, tier);
    if (buf) {
        bool *is_touched = &p->is_touched[big_number(p, buf)];
        p->n_touched += !*is_touched;
        *is_touched = true;
        p->low = MIN(p->low, p->big.n);
    }
    return buf;
}

uint64_t blk_pool_trim(struct blk_pool *p, uint64_t now_ns)
{
    if (p->n_touched == 0) {
        return UINT64_MAX;
    }
    if (now_ns < p->trim_ns) {
        return p->trim_ns - now_ns;
    }
    /* The free ones lie in the order of use: those below the lowest mark were not used. */
    for (unsigned i = 0; i < p->low; i++) {
        bool *is_touched = &p->is_touched[big_number(p, p->big.v[i])];
        if (*is_touched && madvise(p->big.v[i], BLK_BUFFER, MADV_DONTNEED) == 0) {
            *is_touched = false;
            p->n_touched--;
        }
    }
    p->low = p->big.n;
    p->trim_ns = now_ns + BLK_TRIM_NS;
    return p->n_touched > 0 ? BLK_TRIM_NS : UINT64_MAX;
}

void blk_pool_put_buffer(struct blk_pool *p, void *buf)
{
    size_t at = (size_t)((char *)buf - p->mem);
    assert(at < p->mem_size);
    struct blk_stack *s = at < (size_t)BLK_N_SMALL * BLK_SMALL ? &p->small : &p->big;
    s->v[s->n++] = buf;
    p->n_put++;
}

void blk_pool_wait(struct blk_pool *p, enum blk_tier tier, blk_watch_fn fn, void *ctx)
{
    struct blk_wait_list *w = &p->waiting[tier];
    if (w->n == w->max) {
        size_t max = w->max ? 2 * w->max : 64; /* bounded by the requests */
        struct blk_waiter *v = calloc(max, sizeof(*v));
        if (!v) {
            abort();
        }
        for (size_t i = 0; i < w->n; i++) {
            v[i] = w->v[(w->head + i) % w->max];
        }
        free(w->v);
        *w = (struct blk_wait_list){.v = v, .n = w->n, .max = max};
    }
    w->v[(w->head + w->n++) % w->max] = (struct blk_waiter){fn, ctx};
    p->n_waiting++;
}

bool blk_pool_has_due(const struct blk_pool *p)
{
    return p->n_waiting > 0 && p->n_put != p->n_put_seen;
}

int blk_pool_run(struct blk_pool *p)
{
    int n_run = 0;
    if (!blk_pool_has_due(p)) {
        return 0;
    }
    /* What comes back during this round is for the next one. All are asked, in order: only they
     * know what they need. */
    p->n_put_seen = p->n_put;
    for (size_t tier = BLK_TIER_N; tier-- > 0;) {
        struct blk_wait_list *w = &p->waiting[tier];
        for (size_t n = w->n; n > 0; n--) {
            struct blk_waiter one = w->v[w->head];
            w->head = (w->head + 1) % w->max;
            w->n--;
            p->n_waiting--;
            one.fn(one.ctx);
            n_run++;
        }
    }
    return n_run;
}
