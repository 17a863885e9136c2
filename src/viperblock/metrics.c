#include "viperblock/metrics.h"
#include "codec/metric.h"
#include "viperblock/vols.h"
#include <stdio.h>

#define PAGE      4096u
#define US        UINT64_C(1000)
#define LE_SIZE   24u
#define NS_PER_US UINT64_C(1000)

static const char *const op_names[BLK_OP_N] = {
    [BLK_READ] = "read",       [BLK_WRITE] = "write",   [BLK_FLUSH] = "flush",
    [BLK_DISCARD] = "discard", [BLK_ZEROES] = "zeroes",
};

struct vols_seen {
    struct vol *v;
    size_t n;
};

/* One sample for each volume that is open and each kind of request. */
static void per_op(struct buf *out, const struct vols_seen *s, const char *name,
                   const char *help, const uint64_t *(*of)(const struct disk_counters *c))
{
    metric_family(out, name, "counter", help);
    for (size_t i = 0; i < s->n; i++) {
        for (size_t op = 0; s->v[i].state_ns != 0 && op < BLK_OP_N; op++) {
            const struct metric_label l[] = {{"volume", str_c(s->v[i].id)},
                                             {"op", str_c(op_names[op])}};
            metric_u64(out, name, l, ARRAY_LEN(l), of(&s->v[i].state.counters)[op]);
        }
    }
}

static const uint64_t *ops_of(const struct disk_counters *c)
{
    return c->n_ops;
}

static const uint64_t *bytes_of(const struct disk_counters *c)
{
    return c->bytes;
}

static const uint64_t *errors_of(const struct disk_counters *c)
{
    return c->errors;
}

static void gauge(struct buf *out, const struct vols_seen *s, const char *name,
                  const char *help, uint64_t (*of)(const struct vol *v))
{
    metric_family(out, name, "gauge", help);
    for (size_t i = 0; i < s->n; i++) {
        const struct metric_label l = {"volume", str_c(s->v[i].id)};
        metric_u64(out, name, &l, 1, of(&s->v[i]));
    }
}

static uint64_t in_flight(const struct vol *v)
{
    return v->state.counters.in_flight;
}

static uint64_t absent_bytes(const struct vol *v)
{
    return v->state.cow.n_absent_pages * PAGE;
}

static uint64_t blocks_left(const struct vol *v)
{
    uint64_t n = 0;
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        n += v->state.frozen[i].snap[0] != '\0' ? v->state.frozen[i].n_left : 0;
    }
    return n;
}

static uint64_t is_faulted(const struct vol *v)
{
    return v->is_crashed || v->state.is_faulted != 0;
}

/* Buckets are powers of two of microseconds: 0 is below one, the last has no end. */
static void one_histogram(struct buf *out, const struct vol *v, enum blk_op op)
{
    const char *const name = "spinifex_volume_latency_seconds";
    const uint64_t *b = v->state.counters.latency[op];
    uint64_t n = 0, sum_ns = 0;
    char le[LE_SIZE], bucket[64];
    (void)snprintf(bucket, sizeof(bucket), "%s_bucket", name);
    struct metric_label l[] = {
        {"volume", str_c(v->id)}, {"op", str_c(op_names[op])}, {"le", STR("+Inf")}};
    for (size_t i = 0; i < DISK_N_LATENCY; i++) {
        uint64_t us = UINT64_C(1) << i;
        n += b[i];
        sum_ns += b[i] * us * NS_PER_US * 3 / 4; /* the middle of its bucket */
        if (i + 1 < DISK_N_LATENCY) {
            (void)snprintf(le, sizeof(le), "%llu.%06llu", (unsigned long long)(us / (US * US)),
                           (unsigned long long)(us % (US * US)));
            l[2].value = str_c(le);
        } else {
            l[2].value = STR("+Inf");
        }
        metric_u64(out, bucket, l, ARRAY_LEN(l), n);
    }
    (void)snprintf(bucket, sizeof(bucket), "%s_sum", name);
    metric_seconds(out, bucket, l, 2, sum_ns);
    (void)snprintf(bucket, sizeof(bucket), "%s_count", name);
    metric_u64(out, bucket, l, 2, n);
}

static void histograms(struct buf *out, const struct vols_seen *s)
{
    static const enum blk_op shown[] = {BLK_READ, BLK_WRITE, BLK_FLUSH};
    metric_family(out, "spinifex_volume_latency_seconds", "histogram",
                  "Time from request to answer; the sum is estimated from the buckets.");
    for (size_t i = 0; i < s->n; i++) {
        for (size_t k = 0; s->v[i].state_ns != 0 && k < ARRAY_LEN(shown); k++) {
            one_histogram(out, &s->v[i], shown[k]);
        }
    }
}

void metrics_write(void *ctx, struct buf *out)
{
    struct vb *vb = ctx;
    struct vols_seen s;
    s.n = vols_list(vb->vols, &s.v);
    per_op(out, &s, "spinifex_volume_ops_total", "Requests of guests that were answered.",
           ops_of);
    per_op(out, &s, "spinifex_volume_bytes_total", "Bytes of these requests.", bytes_of);
    per_op(out, &s, "spinifex_volume_errors_total", "Requests that failed.", errors_of);
    histograms(out, &s);
    gauge(out, &s, "spinifex_volume_in_flight", "Requests under way.", in_flight);
    gauge(out, &s, "spinifex_volume_absent_bytes",
          "Bytes that are still read from a base or a snapshot.", absent_bytes);
    gauge(out, &s, "spinifex_volume_snapshot_blocks_left",
          "Blocks that snapshots under way still have to store.", blocks_left);
    gauge(out, &s, "spinifex_volume_faulted", "1: its bytes are not to be relied on.",
          is_faulted);
    free(s.v);
}
