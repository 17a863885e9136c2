#include "blk/blk_throttle.h"

#include "base/macro.h"
#include "base/time.h"
#include <errno.h>

#define FRACTION 20
#define MOMENT_NS \
    (20 * NS_PER_MS) /* saved up by a bucket without credits: batches stay whole */
#define DEFAULT_IO_SIZE (256u << 10)
#define LOOK_NS         (100 * NS_PER_MS) /* who waits looks that often whether it still has to */

struct throttle {
    struct blk_layer layer; /* first */
    uint64_t io_size;       /* atomic: bytes that count as one I/O */
    bool is_given_up;       /* atomic: nobody waits any more */
    /* Shared by all queues and written by each request: lines of their own. */
    struct blk_bucket iops __attribute__((aligned(64))); /* baseline, with credits */
    struct blk_bucket burst_iops;                        /* the most at any time */
    struct blk_bucket bytes __attribute__((aligned(64)));
    struct blk_bucket burst_bytes;
};

/* ---- buckets ---- */

static uint64_t load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static uint64_t cost_ns(uint64_t n, uint64_t ns_per_unit)
{
    unsigned __int128 ns = ((unsigned __int128)n * ns_per_unit) >> FRACTION;
    return ns > 3600 * NS_PER_S ? 3600 * NS_PER_S : (uint64_t)ns;
}

void blk_bucket_set(struct blk_bucket *b, uint64_t rate, uint64_t saved, uint64_t now_ns)
{
    uint64_t old = load(&b->ns_per_unit), per = 0, tau = 0;
    if (rate > 0) {
        per = (uint64_t)(((unsigned __int128)NS_PER_S << FRACTION) / rate);
        per = MAX(per, UINT64_C(1));
        /* As much as can be told apart: 2^62 ns are 146 years. */
        unsigned __int128 t = ((unsigned __int128)saved * per) >> FRACTION;
        tau = t > (UINT64_C(1) << 62) ? UINT64_C(1) << 62 : (uint64_t)t;
        tau = MAX(tau, MOMENT_NS);
    }
    uint64_t tat = load(&b->tat_ns);
    for (uint64_t next = 0;;) {
        /* Units that are owed stay the same, at the new rate. */
        next = now_ns;
        if (old > 0 && per > 0 && tat > now_ns) {
            next += (uint64_t)((unsigned __int128)(tat - now_ns) * per / old);
        }
        if (__atomic_compare_exchange_n(&b->tat_ns, &tat, next, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            break;
        }
    }
    __atomic_store_n(&b->tau_ns, tau, __ATOMIC_RELAXED);
    __atomic_store_n(&b->ns_per_unit, per, __ATOMIC_RELAXED);
}

uint64_t blk_bucket_take(struct blk_bucket *b, uint64_t n, uint64_t now_ns)
{
    uint64_t per = load(&b->ns_per_unit);
    if (per == 0 || n == 0) {
        return now_ns;
    }
    uint64_t cost = cost_ns(n, per), tat = load(&b->tat_ns), at = 0;
    do {
        at = MAX(tat, now_ns);
    } while (!__atomic_compare_exchange_n(&b->tat_ns, &tat, at + cost, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    uint64_t tau = load(&b->tau_ns);
    return at > now_ns + tau ? at - tau : now_ns;
}

/* ---- the layer ---- */

/* Functions: MAX() and MIN() would take twice. */
static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void go_on(void *ctx);

/* In its state[]: the layer, and when it may go. Those who wait long all look in the same turn. */
static void wait_on(struct blk_req *r, uint64_t now)
{
    uint64_t look = (now / LOOK_NS + 1) * LOOK_NS;
    blk_queue_at(r->q, sooner(r->state[1], look), go_on, r);
}

static void go_on(void *ctx)
{
    struct blk_req *r = ctx;
    struct throttle *t = (struct throttle *)(uintptr_t)r->state[0];
    uint64_t now = blk_queue_now(r->q);
    if (now < r->state[1] && !__atomic_load_n(&t->is_given_up, __ATOMIC_RELAXED)) {
        wait_on(r, now);
    } else {
        blk_submit(t->layer.below, r);
    }
}

static void submit(struct blk_layer *l, struct blk_req *r)
{
    struct throttle *t = (struct throttle *)(void *)l;
    if ((r->flags & BLK_INNER) || r->op == BLK_FLUSH) {
        l->below->ops->submit(l->below, r);
        return;
    }
    bool is_data = r->op == BLK_READ || r->op == BLK_WRITE;
    uint64_t now = blk_queue_now(r->q), size = load(&t->io_size);
    uint64_t n = is_data && r->len > size ? (r->len + size - 1) / size : 1;
    uint64_t at = later(blk_bucket_take(&t->iops, n, now), now);
    at = later(blk_bucket_take(&t->burst_iops, n, now), at);
    if (is_data) {
        at = later(blk_bucket_take(&t->bytes, r->len, now), at);
        at = later(blk_bucket_take(&t->burst_bytes, r->len, now), at);
    }
    if (at <= now || __atomic_load_n(&t->is_given_up, __ATOMIC_RELAXED)) {
        /* Checked already, and the range below is the same. */
        l->below->ops->submit(l->below, r);
        return;
    }
    r->state[0] = (uint64_t)(uintptr_t)t;
    r->state[1] = at;
    wait_on(r, now);
}

void blk_throttle_give_up(struct blk_layer *l)
{
    struct throttle *t = (struct throttle *)(void *)l;
    __atomic_store_n(&t->is_given_up, true, __ATOMIC_RELAXED);
}

void blk_throttle_set(struct blk_layer *l, const struct blk_limits *lim)
{
    struct throttle *t = (struct throttle *)(void *)l;
    uint64_t now = time_mono_ns();
    __atomic_store_n(&t->io_size, lim->io_size ? lim->io_size : DEFAULT_IO_SIZE,
                     __ATOMIC_RELAXED);
    blk_bucket_set(&t->iops, lim->iops, lim->credits, now);
    blk_bucket_set(&t->burst_iops, lim->credits ? lim->burst_iops : 0, 0, now);
    blk_bucket_set(&t->bytes, lim->bytes_per_s, lim->byte_credits, now);
    blk_bucket_set(&t->burst_bytes, lim->byte_credits ? lim->burst_bytes_per_s : 0, 0, now);
}

static void throttle_free(struct blk_layer *l)
{
    free(l);
}

static const struct blk_ops ops = {.name = "throttle", .submit = submit, .free = throttle_free};

int blk_throttle_new(struct blk_layer *below, const struct blk_limits *lim,
                     struct blk_layer **ret, struct err *err)
{
    struct throttle *t = aligned_alloc(64, sizeof(*t));
    if (!t) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for the limits of a volume");
    }
    *t = (struct throttle){.layer = {.ops = &ops, .below = below, .size = below->size}};
    blk_throttle_set(&t->layer, lim);
    *ret = &t->layer;
    return 0;
}
