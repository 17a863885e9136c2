/* spx-bench: "spx bench block" as one static file, for guests and hosts without Spinifex. */
#include "base/num.h"
#include "base/time.h"
#include "spx/bench_block.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

static volatile bool is_stopped;

static void on_signal(int sig)
{
    is_stopped = true;
}

static void on_progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    if (isatty(2)) {
        (void)fprintf(stderr, "\r%s: %llu%%  ", what,
                      (unsigned long long)(total ? done * 100 / total : 0));
    }
}

static int usage(FILE *f)
{
    (void)fprintf(
        f, "Usage: spx-bench [DIR] [--tag TEXT] [--size MIB] [--runs N] [--seconds N]\n"
           "                 [--pattern NAME] [--require-mount] [--json]\n"
           "Measures the disk under DIR (default: $BENCHDIR, else the current folder) with a "
           "file\n"
           "of --size MiB (default 4096) that is written first and gone afterwards.\n"
           "--require-mount refuses the disk of the system. Compare results on a host with\n"
           "'spx bench compare A.json B.json'.\n");
    return f == stdout ? 0 : 2;
}

static bool number(const char *text, uint64_t max, uint64_t *ret)
{
    return text && num_u64(str_c(text), max, ret) == 0 && *ret > 0;
}

int main(int argc, char **argv)
{
    const char *dir = getenv("BENCHDIR");
    struct bench_block_opts o = {.dir = dir && dir[0] ? dir : ".",
                                 .tag = "",
                                 .on_progress = on_progress,
                                 .is_stopped = &is_stopped};
    uint64_t mib = 4096, runs = 3, seconds = 10;
    bool is_json = false;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        bool is_ok = true, has_value = true;
        if (strcmp(a, "--help") == 0) {
            return usage(stdout);
        } else if (strcmp(a, "--tag") == 0 && v) {
            o.tag = v;
        } else if (strcmp(a, "--pattern") == 0 && v) {
            o.pattern = v;
        } else if (strcmp(a, "--size") == 0) {
            is_ok = number(v, 1u << 20, &mib);
        } else if (strcmp(a, "--runs") == 0) {
            is_ok = number(v, BENCH_BLOCK_RUNS, &runs);
        } else if (strcmp(a, "--seconds") == 0) {
            is_ok = number(v, 3600, &seconds);
        } else {
            has_value = false;
            o.is_mount_required = o.is_mount_required || strcmp(a, "--require-mount") == 0;
            is_json = is_json || strcmp(a, "--json") == 0;
            is_ok =
                a[0] != '-' || strcmp(a, "--require-mount") == 0 || strcmp(a, "--json") == 0;
            o.dir = a[0] != '-' ? a : o.dir;
        }
        if (!is_ok) {
            (void)fprintf(stderr, "spx-bench: '%s' is not understood\n", a);
            return usage(stderr);
        }
        i += has_value ? 1 : 0;
    }
    o.size = mib * MIB;
    o.n_runs = (unsigned)runs;
    o.run_ns = seconds * NS_PER_S;
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    struct bench_block *b = NULL;
    struct err err = ERR_INIT;
    int r = bench_block_new(&o, &b, &err);
    r = r < 0 ? r : bench_block_run(b, &err);
    if (isatty(2)) {
        (void)fprintf(stderr, "\r%40s\r", "");
    }
    if (r < 0) {
        (void)fprintf(stderr, "spx-bench: %s%s%s\n", err.msg, err.hint ? "; " : "",
                      err.hint ? err.hint : "");
    } else {
        AUTO_BUF out;
        buf_init(&out, MIB);
        (is_json ? bench_block_json : bench_block_text)(b, &out);
        (void)fwrite(out.p, 1, out.n, stdout);
    }
    bench_block_free(b);
    return r < 0 ? 1 : 0;
}
