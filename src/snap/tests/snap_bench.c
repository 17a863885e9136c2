/* How fast blocks come and go through the real object store: the rate of snap_put() by several
 * threads, the first touch of a block (snap_get()), a collection. argv as of the tests; --json
 * for machines. */
#include "snap/tests/snap_world.h"

#include "base/rand.h"
#include "base/time.h"

#include <stdio.h>
#include <string.h>

#define N_BLOCKS  512u
#define N_THREADS 4u

static struct world w;
static const struct snap_info info[2] = {
    {.id = "snap-plain", .account = "111111111111", .size = (uint64_t)N_BLOCKS * SNAP_BLOCK},
    {.id = "snap-sealed",
     .account = "111111111111",
     .size = (uint64_t)N_BLOCKS * SNAP_BLOCK,
     .is_encrypted = true}};

struct putter {
    pthread_t thread;
    const struct snap_info *info;
    unsigned first;
};

static void *put(void *ctx)
{
    const struct putter *p = ctx;
    void *buf = malloc(SNAP_BLOCK);
    for (unsigned i = p->first; i < N_BLOCKS; i += N_THREADS) {
        rand_bytes(buf, SNAP_BLOCK);
        if (snap_put(w.snap, str_c(p->info->id), i, buf, NULL, NULL) < 0) {
            abort();
        }
    }
    free(buf);
    return NULL;
}

static int cmp(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void row(bool is_json, const char *name, const char *kind, double value,
                const char *unit, double target)
{
    if (is_json) {
        printf("{\"name\":\"%s_%s\",\"value\":%.2f,\"unit\":\"%s\",\"target\":%.2f}\n", name,
               kind, value, unit, target);
    } else if (target > 0) {
        printf("%-16s %-8s %10.2f %-6s (target %.2f)\n", name, kind, value, unit, target);
    } else {
        printf("%-16s %-8s %10.2f %s\n", name, kind, value, unit);
    }
}

static void run(const struct snap_info *i, bool is_json)
{
    struct putter p[N_THREADS];
    static uint64_t took[N_BLOCKS];
    const char *kind = i->is_encrypted ? "sealed" : "plain";
    if (snap_begin(w.snap, i, NULL) < 0) {
        abort();
    }
    uint64_t t = time_mono_ns();
    for (unsigned k = 0; k < N_THREADS; k++) {
        p[k] = (struct putter){.info = i, .first = k};
        if (pthread_create(&p[k].thread, NULL, put, &p[k]) != 0) {
            abort();
        }
    }
    for (unsigned k = 0; k < N_THREADS; k++) {
        pthread_join(p[k].thread, NULL);
    }
    double s = (double)(time_mono_ns() - t) / 1e9;
    row(is_json, "put", kind, N_BLOCKS / 2.0 / s, "MiB/s", 0);
    if (snap_commit(w.snap, str_c(i->id), NULL, NULL) < 0) {
        abort();
    }
    for (unsigned k = 0; k < N_BLOCKS; k++) {
        t = time_mono_ns();
        if (snap_get(w.snap, str_c(i->account), str_c(i->id), (k * 37) % N_BLOCKS, w.buf,
                     NULL) != 0) {
            abort();
        }
        took[k] = time_mono_ns() - t;
    }
    qsort(took, N_BLOCKS, sizeof(*took), cmp);
    row(is_json, "first_touch_p50", kind, (double)took[N_BLOCKS / 2] / 1e6, "ms", 3);
    row(is_json, "first_touch_p99", kind, (double)took[N_BLOCKS * 99 / 100] / 1e6, "ms", 0);
}

int main(int argc, char **argv)
{
    bool is_json = argc > 4 && strcmp(argv[4], "--json") == 0;
    if (argc < 4) {
        return 2;
    }
    world_init(&w, argv);
    run(&info[0], is_json);
    run(&info[1], is_json);
    uint64_t t = time_mono_ns();
    if (snap_delete(w.snap, STR("111111111111"), STR("snap-plain"), NULL) < 0 ||
        snap_collect(w.snap, STR("111111111111"), NULL, NULL) < 0) {
        abort();
    }
    row(is_json, "collect", "512", (double)(time_mono_ns() - t) / 1e6, "ms", 0);
    world_done(&w);
    return 0;
}
