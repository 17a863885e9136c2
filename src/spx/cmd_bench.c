/* "spx bench": figures for people, on a host or in a guest. */
#include "base/num.h"
#include "base/time.h"
#include "codec/json.h"
#include "spx/admin.h"
#include "spx/bench_s3.h"
#include "spx/cmds.h"
#include "spx/dirs.h"
#include "spx/progress.h"
#include "spx/table.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#define MIB            ((uint64_t)1 << 20)
#define DISK_SIZE_MAX  (256 * MIB)
#define WIDE_RANGE_PCT 30u /* of the median: then runs differ too much to compare with others */
#define BUSY_PCT       80u

static volatile bool is_stopped;

static void on_signal(int sig)
{
    is_stopped = true;
}

struct row {
    const char *name, *unit;
    double median, low, high;
};

static int cmp_double(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static struct row summarize(const char *name, const char *unit, double *v, size_t n)
{
    qsort(v, n, sizeof(*v), cmp_double);
    double median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
    return (struct row){name, unit, median, v[0], v[n - 1]};
}

enum what { RATE, CLIENT_CPU, SERVER_CPU };

/* MiB a second, or milliseconds of CPU per GiB. */
static struct row row_of(const char *name, enum what what, const struct bench_s3 *b,
                         const struct bench_cost *c, size_t n)
{
    double v[BENCH_MAX_RUNS] = {0};
    double size = (double)b->size;
    for (size_t i = 0; i < n; i++) {
        double cpu = (double)(what == CLIENT_CPU ? c[i].client_ns : c[i].server_ns);
        v[i] = what == RATE
                   ? size / (double)MIB / ((double)MAX(c[i].wall_ns, (uint64_t)1) / 1e9)
                   : cpu / 1e6 * 1024 * (double)MIB / size;
    }
    return summarize(name, what == RATE ? "MiB/s" : "ms/GiB", v, n);
}

static uint64_t percent(const struct bench_cost *c, size_t n, bool is_server)
{
    uint64_t cpu = 0, wall = 1;
    for (size_t i = 0; i < n; i++) {
        cpu += is_server ? c[i].server_ns : c[i].client_ns;
        wall += c[i].wall_ns;
    }
    return cpu * 100 / wall;
}

/* One connection keeps about one CPU of each side busy at most. */
static const char *bound_of(const struct bench_s3 *b, const struct bench_cost *c, size_t n,
                            double rate, double disk)
{
    uint64_t client = percent(c, n, false), server = percent(c, n, true);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (b->n_pids && client + server >= BUSY_PCT * (uint64_t)MAX(cpus, 1L)) {
        return "the CPUs of this machine, which client and server share";
    }
    if (client >= BUSY_PCT && client >= server) {
        return "the CPU of this client";
    }
    if (b->n_pids && server >= BUSY_PCT) {
        return "the server's CPU: one object is one stream";
    }
    if (disk > 0 && rate >= disk * BUSY_PCT / 100) {
        return "the disk";
    }
    return b->n_pids ? "waiting: the disk, or others on this machine"
                     : "waiting: the network, or the server";
}

/* Processes of the server, when it is this host's. */
static void find_server(struct spx *s, struct bench_s3 *b)
{
    static const char *const sockets[] = {"predastore.sock", "awsgw.sock"};
    bool is_relayed = strcmp(b->endpoint, admin_endpoint(s)) == 0;
    if (!is_relayed && strcmp(b->endpoint, admin_s3_endpoint(s)) != 0) {
        return;
    }
    for (size_t i = 0; i < (is_relayed ? 2u : 1u); i++) {
        AUTO(json_freep) struct json *j = NULL;
        struct err e = ERR_INIT;
        if (spx_call(s, sockets[i], "health", STR("{}"), -1, 5 * NS_PER_S, &j, &e) < 0) {
            b->n_pids = 0; /* half of them would mislead */
            return;
        }
        b->pids[b->n_pids++] = (pid_t)json_get_u64(j, "pid", 0);
    }
}

static int prepare(struct spx *s, struct bench_s3 *b, struct err *err)
{
    struct profile_user user;
    struct err e = ERR_INIT;
    const char *name = getenv("AWS_PROFILE"), *endpoint = spx_value(s, "--endpoint");
    uint64_t runs = 0, mib = 0;
    int r = spx_number(s, "--runs", 1, BENCH_MAX_RUNS, 3, &runs);
    if (r) {
        return r;
    }
    if (num_u64(str_c(s->pos[0]), 5120, &mib) < 0 || mib == 0) {
        return spx_usage_error(s, "'%s' is no size in MiB: 1 to 5120", s->pos[0]);
    }
    r = profile_find_user(&user, err);
    r = r < 0
            ? r
            : profile_read(s->arena, &user, name && name[0] ? name : "spinifex", &b->keys, err);
    if (r < 0) {
        return r;
    }
    bool has_config = spx_config(s, &e) == 0; /* in a guest there is none */
    b->endpoint = endpoint ? endpoint : has_config ? admin_s3_endpoint(s) : b->keys.endpoint;
    if (!b->endpoint[0]) {
        return spx_usage_error(s, "which endpoint? --endpoint https://HOST:8443");
    }
    if (!b->keys.ca_path[0] && has_config) {
        b->keys.ca_path = certs_ca_path(s->arena, s->cfg);
    }
    if (!b->keys.region[0]) {
        b->keys.region = has_config ? s->cfg->region : "us-east-1";
    }
    if (has_config) {
        find_server(s, b);
    }
    b->size = mib * MIB;
    b->n_runs = (unsigned)runs;
    b->is_stopped = &is_stopped;
    return 0;
}

static void on_progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    progress_set(ctx, what, done, total, true);
}

static void print_json(struct spx *s, const struct bench_s3 *b, const struct row *rows,
                       size_t n, const char *put_bound, const char *get_bound)
{
    AUTO_BUF out;
    struct jw w;
    buf_init(&out, 65536);
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "bench", "s3");
    jw_str(&w, "tag", spx_value(s, "--tag") ? str_c(spx_value(s, "--tag")) : STR_NONE);
    jw_cstr(&w, "endpoint", b->endpoint);
    jw_u64(&w, "size_mib", b->size / MIB);
    jw_u64(&w, "runs", b->n_runs);
    jw_bool(&w, "verified", true);
    jw_cstr(&w, "put_bound", put_bound);
    jw_cstr(&w, "get_bound", get_bound);
    jw_arr(&w, "rows");
    for (size_t i = 0; i < n; i++) {
        char number[200];
        jw_obj(&w, NULL);
        jw_cstr(&w, "name", rows[i].name);
        snprintf(number, sizeof(number), "%.1f", rows[i].median);
        jw_raw(&w, "value", str_c(number));
        jw_cstr(&w, "unit", rows[i].unit);
        jw_null(&w, "target");
        jw_null(&w, "ok");
        snprintf(number, sizeof(number), "[%.1f,%.1f]", rows[i].low, rows[i].high);
        jw_raw(&w, "range", str_c(number));
        jw_obj_end(&w);
    }
    jw_arr_end(&w);
    jw_obj_end(&w);
    printf("%s\n", buf_cstr(&out));
}

static void print_text(struct spx *s, const struct bench_s3 *b, const struct row *rows,
                       size_t n, const char *put_bound, const char *get_bound)
{
    static const struct table_col cols[] = {
        {"WHAT", NULL}, {"MEDIAN", NULL}, {"UNIT", NULL}, {"RANGE", NULL}, {"", NULL}};
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    for (size_t i = 0; i < n; i++) {
        bool is_wide =
            b->n_runs > 1 && rows[i].high - rows[i].low > rows[i].median * WIDE_RANGE_PCT / 100;
        table_cstr(t, rows[i].name);
        table_str(t, arena_fmt(s->arena, "%.1f", rows[i].median));
        table_cstr(t, rows[i].unit);
        table_str(t, arena_fmt(s->arena, "%.1f - %.1f", rows[i].low, rows[i].high));
        table_cstr(t, is_wide ? "runs differ much: not to be compared" : "");
    }
    if (spx_value(s, "--tag")) {
        printf("%s\n", spx_value(s, "--tag"));
    }
    printf("%" PRIu64 " MiB, %u runs, %s; every byte read back was compared\n\n", b->size / MIB,
           b->n_runs, b->endpoint);
    table_print(t, false);
    printf("\nwriting was bounded by: %s\nreading was bounded by: %s\n", put_bound, get_bound);
}

static void show(struct spx *s, const struct bench_s3 *b, const struct bench_result *res,
                 uint64_t disk)
{
    struct row rows[8];
    size_t n = 0, k = res->n_runs;
    rows[n++] = row_of("write", RATE, b, res->put, k);
    rows[n++] = row_of("read", RATE, b, res->get, k);
    rows[n++] = row_of("write: CPU of this client", CLIENT_CPU, b, res->put, k);
    rows[n++] = row_of("read: CPU of this client", CLIENT_CPU, b, res->get, k);
    if (b->n_pids) {
        rows[n++] = row_of("write: CPU of the server", SERVER_CPU, b, res->put, k);
        rows[n++] = row_of("read: CPU of the server", SERVER_CPU, b, res->get, k);
    }
    double disk_rate = (double)disk / (double)MIB;
    if (disk) {
        rows[n++] = (struct row){"first drive, written and synced", "MiB/s", disk_rate,
                                 disk_rate, disk_rate};
    }
    const char *put = bound_of(b, res->put, k, rows[0].median, disk_rate);
    const char *get = bound_of(b, res->get, k, rows[1].median, 0);
    if (s->is_json) {
        print_json(s, b, rows, n, put, get);
    } else {
        print_text(s, b, rows, n, put, get);
    }
}

int cmd_bench_s3(struct spx *s, struct err *err)
{
    struct bench_s3 b = {0};
    struct bench_result *res = arena_new_of(s->arena, struct bench_result);
    struct progress p;
    uint64_t disk = 0;
    struct err e = ERR_INIT;
    int r = prepare(s, &b, err);
    if (r) {
        return r;
    }
    const struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    progress_start(&p);
    if (b.n_pids && geteuid() == 0 &&
        bench_disk(s->cfg->predastore.drives[0], MIN(b.size, DISK_SIZE_MAX), &disk, &e) < 0) {
        disk = 0; /* a figure less, no more */
    }
    b.on_progress = on_progress;
    b.ctx = &p;
    r = bench_s3_run(s->arena, &b, res, err);
    progress_end(&p);
    if (r == 0) {
        show(s, &b, res, disk);
    }
    return r;
}
