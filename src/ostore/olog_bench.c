/* Appends with and without syncs, what one costs the processor, and how fast a log is read again.
 *   olog_bench [folder] [copies]      folder: on the drive to be measured; default /tmp */
#include "base/num.h"
#include "base/time.h"
#include "ostore/olog.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void die(const char *what, const struct err *err)
{
    (void)fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(1);
}

static double cpu_s(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double now_s(void)
{
    return (double)time_mono_ns() / 1e9;
}

struct place {
    char base[128], paths[3][160];
    unsigned copies;
    struct drives *d;
    struct olog *l;
};

static int count(void *ctx, const struct olog_rec *r, struct err *err)
{
    ++*(uint64_t *)ctx;
    return 0;
}

static uint64_t open_all(struct place *p, bool is_sync_off)
{
    const char *list[3] = {p->paths[0], p->paths[1], p->paths[2]};
    struct err err = ERR_INIT;
    uint64_t n = 0;
    const struct drives_opts d = {.paths = list, .n = p->copies};
    if (drives_open(&d, &p->d, &err) < 0) {
        die("drives", &err);
    }
    const struct olog_opts o = {
        .drives = p->d, .n_copies = p->copies, .is_sync_off = is_sync_off};
    if (olog_open(&o, 0, count, &n, &p->l, &err) < 0 || olog_is_readonly(p->l)) {
        die("log", &err);
    }
    return n;
}

static void close_all(struct place *p)
{
    olog_close(p->l);
    drives_close(p->d);
}

static void appends(struct place *p, unsigned batch, size_t head, size_t body, unsigned n,
                    bool is_sync_off)
{
    static char bytes[65536];
    static struct olog_new v[64];
    const struct iovec iov = {bytes, body};
    struct err err = ERR_INIT;
    (void)open_all(p, is_sync_off);
    double from = now_s(), cpu = cpu_s();
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < batch; k++) {
            v[k] = (struct olog_new){.kind = OREC_PUT,
                                     .time_ns = 1,
                                     .head = str_n(bytes, head),
                                     .body = &iov,
                                     .n_body = body > 0};
        }
        if (olog_commit(p->l, v, batch, &err) < 0) {
            die("append", &err);
        }
    }
    double s = now_s() - from, all = (double)n * batch;
    (void)printf("append%s %2u a batch, %5zu + %5zu bytes: %9.0f records/s, %7.2f us CPU each, "
                 "%6.0f batches/s\n",
                 is_sync_off ? ", no sync," : " and sync,", batch, head, body, all / s,
                 (cpu_s() - cpu) / all * 1e6, n / s);
    close_all(p);
}

static void replay(struct place *p, const char *what)
{
    struct olog_segment *v = NULL;
    size_t n_segments = 0;
    double from = now_s(), cpu = cpu_s(), bytes = 0;
    uint64_t n = open_all(p, true);
    double s = now_s() - from, used = cpu_s() - cpu;
    if (olog_segments(p->l, &v, &n_segments) == 0) {
        for (size_t i = 0; i < n_segments; i++) {
            bytes += (double)v[i].size;
        }
    }
    free(v);
    (void)printf("replay of %s: %llu records, %9.0f records/s, %6.0f MiB/s, %.2f us CPU each\n",
                 what, (unsigned long long)n, (double)n / s, bytes / s / 1048576,
                 used / (double)n * 1e6);
    close_all(p);
}

static void clear(struct place *p)
{
    for (unsigned i = 0; i < 3; i++) {
        (void)nftw(p->paths[i], remove_one, 16, FTW_DEPTH | FTW_PHYS);
        (void)mkdir(p->paths[i], 0700);
    }
}

int main(int argc, char **argv)
{
    struct place p = {.copies = 1};
    uint64_t copies = 1;
    if (argc > 2 && num_u64(str_c(argv[2]), 3, &copies) < 0) {
        return 2;
    }
    p.copies = copies < 1 ? 1 : (unsigned)copies;
    (void)snprintf(p.base, sizeof(p.base), "%.100s/olog-bench-XXXXXX",
                   argc > 1 ? argv[1] : "/tmp");
    if (!mkdtemp(p.base)) {
        return 2;
    }
    for (unsigned i = 0; i < 3; i++) {
        (void)snprintf(p.paths[i], sizeof(p.paths[i]), "%s/d%u", p.base, i);
        (void)mkdir(p.paths[i], 0700);
    }
    appends(&p, 1, 200, 0, 2000, false);
    appends(&p, 64, 200, 0, 1000, false);
    appends(&p, 1, 200, 4096, 2000, false);
    appends(&p, 64, 200, 4096, 500, false);
    clear(&p);
    appends(&p, 64, 200, 4096, 2000, true);
    replay(&p, "4 KiB bodies");
    clear(&p);
    appends(&p, 64, 200, 0, 20000, true);
    replay(&p, "small records");
    (void)nftw(p.base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
