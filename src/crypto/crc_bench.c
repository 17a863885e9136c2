/* Rates of the CRCs per CPU second over 256 KiB that stay in the cache; the time of combining. */
#include "base/time.h"
#include "crypto/crc.h"
#include "crypto/crc_int.h"

#include <stdio.h>
#include <time.h>

#define SIZE   ((size_t)256 << 10)
#define N_RUNS 5
#define RUN_NS (60 * NS_PER_MS)

/* Of this thread's own time, so that a busy machine does not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t one(int what, struct str s, uint64_t v)
{
    const uint8_t *p = (const uint8_t *)s.p;
    return what < CRC_ALG_N    ? crc_add((enum crc_alg)what, v, s)
           : what == CRC_ALG_N ? crc64nvme_plain(v, p, s.n)
                               : crc64nvme_clmul(v, p, s.n);
}

int main(void)
{
    static const char *const names[] = {"CRC32", "CRC32C", "CRC64NVME", "CRC64NVME, plain",
                                        "CRC64NVME, 128 bit"};
    char *mem = malloc(SIZE);
    uint64_t sink = 0;
    if (!mem) {
        return 1;
    }
    memset(mem, 0x5a, SIZE);
    for (int what = 0; what < CRC_ALG_N + (crc64nvme_has_clmul() ? 2 : 1); what++) {
        double best = 0;
        for (int run = 0; run < N_RUNS; run++) {
            uint64_t n = 0, from = cpu_ns(), now = from;
            for (; now - from < RUN_NS; now = cpu_ns(), n++) {
                sink = one(what, str_n(mem, SIZE), sink);
            }
            double rate = (double)(n * SIZE) / (double)(now - from);
            best = MAX(best, rate);
        }
        (void)printf("%-18s %8.2f GB/s\n", names[what], best);
    }
    for (int alg = 0; alg < CRC_ALG_N; alg++) {
        uint64_t from = cpu_ns();
        for (int i = 0; i < 10000; i++) {
            sink = crc_combine((enum crc_alg)alg, sink, 77, 5 << 20);
        }
        (void)printf("%-18s %8.2f us to combine a part of 5 MiB\n", names[alg],
                     (double)(cpu_ns() - from) / 1e7);
    }
    free(mem);
    return sink == 1; /* it is used, so that it is computed */
}
