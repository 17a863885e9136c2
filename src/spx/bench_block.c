#include "spx/bench_block.h"
#include "base/file.h"
#include "base/rand.h"
#include "base/time.h"
#include "blk/load.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MAX_PATTERNS  16u
#define MAX_WAYS      2u /* the file, and the engine */
#define MIB           ((uint64_t)1 << 20)
#define WIDE_PCT      30.0 /* of the median: runs that differ more say little */
#define ROOT_FREE_PCT 50u  /* of what is free on the system's disk may be filled, no more */
#define FREE_MIN      (256 * MIB)

enum measure { M_IOPS, M_MIB, M_READ_P50, M_READ_P99, M_WRITE_P50, M_WRITE_P99, M_N };
static const struct {
    const char *name, *unit;
} measures[M_N] = {
    [M_IOPS] = {"iops", "1/s"},          [M_MIB] = {"throughput", "MiB/s"},
    [M_READ_P50] = {"read-p50", "us"},   [M_READ_P99] = {"read-p99", "us"},
    [M_WRITE_P50] = {"write-p50", "us"}, [M_WRITE_P99] = {"write-p99", "us"},
};

struct bench_block {
    struct bench_block_opts o;
    struct load_pattern p[MAX_PATTERNS];
    unsigned n_patterns, n_ways;
    struct load_target target;
    double v[MAX_PATTERNS][MAX_WAYS][M_N][BENCH_BLOCK_RUNS];
    unsigned n_runs;
    char machine[160];
    double load_before, load_after;
    bool is_on_root;
};

/* The memory of guests is small: requests of 1 MiB at full depth would fill it. */
static unsigned depth_for(const struct load_pattern *p)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t memory = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
    unsigned depth = p->depth;
    while (depth > 1 && (uint64_t)depth * p->n_jobs * p->block > memory / 4) {
        depth /= 2;
    }
    return depth;
}

static double load_average(void)
{
    double v[1] = {0};
    return getloadavg(v, 1) == 1 ? v[0] : 0;
}

static int choose_patterns(struct bench_block *b, struct err *err)
{
    for (unsigned i = 0; i < load_n_patterns && b->n_patterns < MAX_PATTERNS; i++) {
        if (!b->o.pattern || strcmp(b->o.pattern, load_patterns[i].name) == 0) {
            b->p[b->n_patterns] = load_patterns[i];
            b->p[b->n_patterns].depth = depth_for(&load_patterns[i]);
            b->n_patterns++;
        }
    }
    if (b->n_patterns == 0) {
        char names[256] = "";
        size_t n = 0;
        for (unsigned i = 0; i < load_n_patterns; i++) {
            n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "",
                                  load_patterns[i].name);
        }
        return fail(err, -EINVAL, "NoSuchPattern", "there is no pattern '%s': %s", b->o.pattern,
                    names);
    }
    return 0;
}

/* A benchmark that fills the disk of the system takes the machine down with it. */
static int check_room(struct bench_block *b, int dir_fd, struct err *err)
{
    struct stat st, root;
    struct statvfs fs;
    if (fstat(dir_fd, &st) < 0 || stat("/", &root) < 0 || fstatvfs(dir_fd, &fs) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", b->o.dir);
    }
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    b->is_on_root = st.st_dev == root.st_dev;
    if (b->is_on_root && b->o.is_mount_required) {
        fail(err, -EPERM, "RootDisk", "%s lies on the disk of the system", b->o.dir);
        return err_hint(err, "mount the volume, and name a folder on it");
    }
    if (room < b->o.size + FREE_MIN ||
        (b->is_on_root && b->o.size > room / 100 * ROOT_FREE_PCT)) {
        fail(err, -ENOSPC, "NoRoom", "%s has %llu MiB left, and the file needs %llu MiB",
             b->o.dir, (unsigned long long)(room / MIB), (unsigned long long)(b->o.size / MIB));
        return err_hint(err, b->is_on_root
                                 ? "on the disk of the system at most half of what is "
                                   "free is used: --size, or another disk"
                                 : "--size");
    }
    return 0;
}

/* A file without a name: it goes when this process does. */
static int open_target(struct bench_block *b, struct err *err)
{
    int fd = open(b->o.dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        char path[4096];
        (void)snprintf(path, sizeof(path), "%s/spx-bench-%d", b->o.dir, (int)getpid());
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
        (void)unlink(path);
    }
    if (fd < 0) {
        int e = errno;
        fail(err, -e, "OpenFailed", "a file in %s, past the page cache: %m", b->o.dir);
        return e == EINVAL
                   ? err_hint(err, "this file system has no O_DIRECT (tmpfs, some "
                                   "network file systems): nothing can be said of a disk")
                   : err->code;
    }
    b->target = (struct load_target){.fd = fd, .size = b->o.size / MIB * MIB};
    return 0;
}

static void describe_machine(struct bench_block *b)
{
    struct utsname u;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (uname(&u) < 0) {
        memset(&u, 0, sizeof(u));
    }
    (void)snprintf(b->machine, sizeof(b->machine), "%ld CPUs, %llu MiB, Linux %.60s %.30s",
                   cpus, (unsigned long long)(memory / MIB), u.release, u.machine);
}

int bench_block_new(const struct bench_block_opts *o, struct bench_block **ret, struct err *err)
{
    struct bench_block *b = calloc(1, sizeof(*b));
    if (!b) {
        return fail(err, -ENOMEM, "NoMemory", "no memory");
    }
    b->o = *o;
    b->target.fd = -1;
    b->n_ways = o->engine ? 2 : 1;
    AUTO_FD dir = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = dir < 0 ? fail(err, -errno, "OpenFailed", "%s: %m", o->dir) : 0;
    r = r < 0 ? r : choose_patterns(b, err);
    r = r < 0 ? r : check_room(b, dir, err);
    r = r < 0 ? r : open_target(b, err);
    if (r < 0) {
        bench_block_free(b);
        return r;
    }
    describe_machine(b);
    *ret = b;
    return 0;
}

void bench_block_free(struct bench_block *b)
{
    if (!b) {
        return;
    }
    if (b->target.fd >= 0) {
        close(b->target.fd);
    }
    free(b);
}

static void say(const struct bench_block *b, const char *what, uint64_t done, uint64_t total)
{
    if (b->o.on_progress) {
        b->o.on_progress(b->o.ctx, what, done, total);
    }
}

static void on_filled(void *ctx, uint64_t done)
{
    const struct bench_block *b = ctx;
    say(b, "writing the file", done, b->o.size);
}

static void keep(struct bench_block *b, unsigned pattern, unsigned way,
                 const struct load_result *r)
{
    double seconds = (double)r->ns / 1e9;
    double v[M_N] = {
        [M_IOPS] = (double)(r->n_reads + r->n_writes) / seconds,
        [M_MIB] = (double)r->bytes / (double)MIB / seconds,
        [M_READ_P50] = (double)load_hist_at(&r->read, 500000) / 1e3,
        [M_READ_P99] = (double)load_hist_at(&r->read, 990000) / 1e3,
        [M_WRITE_P50] = (double)load_hist_at(&r->write, 500000) / 1e3,
        [M_WRITE_P99] = (double)load_hist_at(&r->write, 990000) / 1e3,
    };
    for (unsigned m = 0; m < M_N; m++) {
        b->v[pattern][way][m][b->n_runs] = v[m];
    }
}

static bool is_stopped(const struct bench_block *b)
{
    return b->o.is_stopped && *b->o.is_stopped;
}

static int one_run(struct bench_block *b, uint64_t *seed, struct load_result *r,
                   struct err *err)
{
    unsigned order[MAX_PATTERNS * MAX_WAYS];
    unsigned n = b->n_patterns * b->n_ways;
    for (unsigned i = 0; i < n; i++) {
        unsigned k = (unsigned)load_rand(seed, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (unsigned i = 0; i < n; i++) {
        const struct load_pattern *p = &b->p[order[i] / b->n_ways];
        unsigned way = order[i] % b->n_ways;
        say(b, "measuring", b->n_runs * n + i, b->o.n_runs * n);
        int rc = way == 0
                     ? load_raw(&b->target, 1, p, b->o.run_ns, *seed, b->o.is_stopped, r, err)
                     : b->o.engine->run(b->o.engine->ctx, p, b->o.run_ns, *seed,
                                        b->o.is_stopped, r, err);
        if (rc == 0 && is_stopped(b)) {
            rc = fail(err, -EINTR, "Interrupted", "interrupted");
        }
        if (rc < 0) {
            return rc;
        }
        keep(b, order[i] / b->n_ways, way, r);
    }
    b->n_runs++;
    return 0;
}

int bench_block_run(struct bench_block *b, struct err *err)
{
    uint64_t seed = 0;
    rand_bytes(&seed, sizeof(seed));
    seed |= 1;
    b->load_before = load_average();
    int rc = load_fill(&b->target, seed, on_filled, b, err);
    if (rc == 0 && is_stopped(b)) {
        rc = fail(err, -EINTR, "Interrupted", "interrupted");
    }
    if (rc == 0 && b->o.engine) {
        rc = b->o.engine->open(b->o.engine->ctx, b->target.fd, b->target.size, err);
    }
    if (rc < 0) {
        return rc;
    }
    AUTO_FREE struct load_result *result = calloc(1, sizeof(*result));
    if (!result) {
        return fail(err, -ENOMEM, "NoMemory", "no memory");
    }
    while (b->n_runs < b->o.n_runs) {
        int r = one_run(b, &seed, result, err);
        if (r < 0) {
            return r;
        }
    }
    b->load_after = load_average();
    return 0;
}

/* ---- what came of it ---- */

static struct load_stat stat_of(const struct bench_block *b, unsigned p, unsigned way,
                                unsigned m)
{
    double v[BENCH_BLOCK_RUNS];
    memcpy(v, b->v[p][way][m], sizeof(v));
    return load_stat_of(v, b->n_runs);
}

/* The engine beside the file, run by run. */
static struct load_stat ratio_of(const struct bench_block *b, unsigned p)
{
    double v[BENCH_BLOCK_RUNS];
    for (unsigned i = 0; i < b->n_runs; i++) {
        v[i] = b->v[p][1][M_IOPS][i] / MAX(b->v[p][0][M_IOPS][i], 1.0);
    }
    return load_stat_of(v, b->n_runs);
}

static const char *const ways[MAX_WAYS] = {"", "volume/"};

static bool has_measure(const struct load_pattern *p, unsigned m)
{
    bool is_read = m == M_READ_P50 || m == M_READ_P99;
    bool is_write = m == M_WRITE_P50 || m == M_WRITE_P99;
    return (!is_read || p->read_percent > 0) && (!is_write || p->read_percent < 100);
}

static bool text_row(const struct bench_block *b, unsigned p, unsigned way, struct buf *out)
{
    struct load_stat s = stat_of(b, p, way, M_IOPS);
    char range[48], name[48];
    bool is_wide = s.max - s.min > s.median * WIDE_PCT / 100;
    (void)snprintf(range, sizeof(range), "%.0f - %.0f", s.min, s.max);
    (void)snprintf(name, sizeof(name), "%s%s", ways[way], b->p[p].name);
    buf_fmt(out, "%-26s %9.0f %9.1f  %-18s%c", name, s.median, stat_of(b, p, way, M_MIB).median,
            range, is_wide ? '*' : ' ');
    for (unsigned m = M_READ_P50; m <= M_WRITE_P99; m++) {
        if (has_measure(&b->p[p], m)) {
            buf_fmt(out, " %6.0f us", stat_of(b, p, way, m).median);
        } else {
            buf_fmt(out, " %9s", "-");
        }
    }
    if (way == 1) {
        struct load_stat r = ratio_of(b, p);
        buf_fmt(out, "  %.2f of it (%.2f - %.2f)", r.median, r.min, r.max);
    }
    buf_addc(out, "\n");
    return is_wide;
}

void bench_block_text(const struct bench_block *b, struct buf *out)
{
    buf_fmt(out,
            "%s%s%s\nfolder %s, %u runs of %.0f s a pattern, load %.1f before, %.1f after\n\n",
            b->o.tag, b->o.tag[0] ? ": " : "", b->machine, b->o.dir, b->n_runs,
            (double)b->o.run_ns / 1e9, b->load_before, b->load_after);
    buf_fmt(out, "%-26s %9s %9s  %-19s %9s %9s %9s %9s\n", "PATTERN", "IOPS", "MiB/s",
            "IOPS, RANGE", "READ 50%", "READ 99%", "WRITE 50%", "WRITE 99%");
    bool is_wide = false;
    for (unsigned p = 0; p < b->n_patterns; p++) {
        for (unsigned way = 0; way < b->n_ways; way++) {
            is_wide = text_row(b, p, way, out) || is_wide;
        }
    }
    if (is_wide) {
        buf_addc(out,
                 "* runs differ by more than 30 % of the median: small differences to other "
                 "results mean nothing\n");
    }
    if (b->is_on_root) {
        buf_addc(out, "the folder lies on the disk of the system, which others use, too\n");
    }
}

static void json_row(struct buf *out, bool *io_is_first, const char *way, const char *pattern,
                     const char *measure, const char *unit, struct load_stat s)
{
    buf_fmt(out,
            "%s\n{\"name\":\"%s%s.%s\",\"value\":%.3f,\"unit\":\"%s\",\"target\":null,"
            "\"ok\":null,\"range\":[%.3f,%.3f]}",
            *io_is_first ? "" : ",", way, pattern, measure, s.median, unit, s.min, s.max);
    *io_is_first = false;
}

void bench_block_json(const struct bench_block *b, struct buf *out)
{
    /* Texts come from our own options and from uname(): what would end a string is left out. */
    buf_fmt(out, "{\"tool\":\"block\",\"tag\":\"");
    for (const char *c = b->o.tag; *c; c++) {
        buf_add_char(out, *c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? '?' : *c);
    }
    buf_fmt(
        out,
        "\",\"machine\":\"%s\",\"load\":[%.2f,%.2f],\"runs\":%u,\"seconds\":%.3f,\"rows\":[",
        b->machine, b->load_before, b->load_after, b->n_runs, (double)b->o.run_ns / 1e9);
    bool is_first = true;
    for (unsigned p = 0; p < b->n_patterns; p++) {
        for (unsigned way = 0; way < b->n_ways; way++) {
            for (unsigned m = 0; m < M_N; m++) {
                if (has_measure(&b->p[p], m)) {
                    json_row(out, &is_first, ways[way], b->p[p].name, measures[m].name,
                             measures[m].unit, stat_of(b, p, way, m));
                }
            }
        }
        if (b->n_ways > 1) {
            json_row(out, &is_first, ways[1], b->p[p].name, "ratio", "x", ratio_of(b, p));
        }
    }
    buf_addc(out, "\n]}\n");
}
