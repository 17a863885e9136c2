/* Rates of encoding, restoring and verifying, in GB of data per CPU second, beside memcpy of as
 * many bytes. One thread; medians of five runs; one stripe again and again, in the cache. */
#include "base/time.h"
#include "erasure/rs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define RUN_NS (60 * NS_PER_MS)
#define N_RUNS 5

/* Of this thread's own time, so that a busy machine does not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

enum work { ENCODE, RESTORE, VERIFY, COPY };

struct bench {
    struct rs *rs;
    struct rs_plan plan;
    size_t size;
    uint8_t *units[RS_UNITS_MAX];
};

static void work(struct bench *b, enum work w)
{
    switch (w) {
    case ENCODE: rs_encode(b->rs, b->size, b->units); break;
    case RESTORE: rs_plan_run(&b->plan, b->size, b->units); break;
    case VERIFY: {
        const uint8_t *units[RS_UNITS_MAX];
        for (unsigned i = 0; i < rs_k(b->rs) + rs_m(b->rs); i++) {
            units[i] = b->units[i];
        }
        if (rs_verify(b->rs, b->size, units, NULL) < 0) {
            abort();
        }
        break;
    }
    case COPY:
        for (unsigned i = 0; i + 1 < rs_k(b->rs) + rs_m(b->rs); i++) {
            memcpy(b->units[i], b->units[i + 1], b->size);
        }
        break;
    }
}

static double median_rate(struct bench *b, enum work w)
{
    double rates[N_RUNS];
    for (int run = 0; run < N_RUNS; run++) {
        uint64_t n = 0, from = cpu_ns(), now = from;
        while (now - from < RUN_NS) {
            work(b, w);
            n++;
            now = cpu_ns();
        }
        double rate = (double)(n * b->size * rs_k(b->rs)) / (double)(now - from);
        int at = run;
        for (; at > 0 && rates[at - 1] > rate; at--) {
            rates[at] = rates[at - 1];
        }
        rates[at] = rate;
    }
    return rates[N_RUNS / 2];
}

int main(void)
{
    static const struct {
        unsigned k, m;
    } shapes[] = {{2, 1}, {4, 2}, {8, 3}, {10, 4}, {16, 8}};
    static const size_t sizes[] = {64 << 10, 128 << 10, 256 << 10};
    (void)printf("%-10s %8s %12s %12s %12s %12s   GB of data per CPU second\n", "code", "unit",
                 "encode", "restore m", "verify", "memcpy");
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        for (size_t z = 0; z < ARRAY_LEN(sizes); z++) {
            struct bench b = {.size = sizes[z]};
            unsigned k = shapes[s].k, m = shapes[s].m;
            uint32_t lost = (UINT32_C(1) << MIN(k, m)) - 1; /* data, the dearer loss */
            if (rs_new(k, m, &b.rs, NULL) < 0 ||
                rs_plan_init(&b.plan, b.rs, rs_all(b.rs) & ~lost, lost, NULL) < 0) {
                return 1;
            }
            for (unsigned i = 0; i < k + m; i++) {
                b.units[i] = aligned_alloc(64, b.size);
                if (!b.units[i]) {
                    return 1;
                }
                memset(b.units[i], (int)(i * 37 + 1), b.size);
            }
            double encode = median_rate(&b, ENCODE), restore = median_rate(&b, RESTORE);
            double verify = median_rate(&b, VERIFY), copy = median_rate(&b, COPY);
            (void)printf("RS(%2u,%2u)  %4zu KiB %12.2f %12.2f %12.2f %12.2f\n", k, m,
                         b.size >> 10, encode, restore, verify, copy);
            for (unsigned i = 0; i < k + m; i++) {
                free(b.units[i]);
            }
            rs_free(b.rs);
        }
    }
    return 0;
}
