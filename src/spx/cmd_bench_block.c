/* "spx bench block", and "spx bench compare": two results side by side. */
#include "base/file.h"
#include "base/time.h"
#include "codec/json.h"
#include "spx/bench_block.h"
#include "spx/bench_engine.h"
#include "spx/cmds.h"
#include "spx/progress.h"
#include "spx/table.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#define MIB        ((uint64_t)1 << 20)
#define RESULT_MAX (4u << 20)

static volatile bool is_stopped;

static void on_signal(int sig)
{
    is_stopped = true;
}

static void on_progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    progress_set(ctx, what, done, total, strcmp(what, "measuring") != 0);
}

/* ---- block ---- */

/* spx-bench-<tag>.json in the current folder: what 'spx bench compare' reads. */
static int save(struct spx *s, struct str json, struct err *err)
{
    const char *tag = spx_value(s, "--tag");
    if (!tag) {
        return 0;
    }
    for (const char *c = tag; *c; c++) {
        if (*c == '/' || (unsigned char)*c < ' ') {
            return spx_usage_error(s, "--tag is part of a file's name: no '/' in it");
        }
    }
    const char *path = arena_cstr(s->arena, arena_fmt(s->arena, "spx-bench-%s.json", tag));
    int r = file_write_atomic(path, json, 0644, err);
    if (r == 0 && !s->is_json) {
        printf("\nkept in %s (spx bench compare A B)\n", path);
    }
    return r;
}

int cmd_bench_block(struct spx *s, struct err *err)
{
    struct progress p;
    struct bench_block *b = NULL;
    struct bench_block_opts o = {.dir = s->n_pos > 0         ? s->pos[0]
                                        : getenv("BENCHDIR") ? getenv("BENCHDIR")
                                                             : ".",
                                 .tag = spx_value(s, "--tag") ? spx_value(s, "--tag") : "",
                                 .pattern = spx_value(s, "--pattern"),
                                 .is_mount_required = spx_is_set(s, "--require-mount"),
                                 .on_progress = on_progress,
                                 .ctx = &p,
                                 .is_stopped = &is_stopped};
    uint64_t mib = 0, runs = 0, seconds = 0;
    int r = spx_number(s, "--size", 256, 1u << 20, 4096, &mib);
    r = r ? r : spx_number(s, "--runs", 1, BENCH_BLOCK_RUNS, 3, &runs);
    r = r ? r : spx_number(s, "--seconds", 1, 3600, 10, &seconds);
    if (r) {
        return r;
    }
    o.size = mib * MIB;
    o.n_runs = (unsigned)runs;
    o.run_ns = seconds * NS_PER_S;
    const struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    struct bench_engine *e = bench_engine_new();
    const struct bench_block_engine engine = bench_engine_ops(e);
    o.engine = spx_is_set(s, "--volume") ? &engine : NULL;
    r = bench_block_new(&o, &b, err);
    if (r < 0) {
        bench_engine_free(e);
        return r;
    }
    progress_start(&p);
    r = bench_block_run(b, err);
    progress_end(&p);
    if (r == 0) {
        AUTO_BUF json;
        AUTO_BUF text;
        buf_init(&json, RESULT_MAX);
        buf_init(&text, RESULT_MAX);
        bench_block_json(b, &json);
        bench_block_text(b, &text);
        printf("%s", s->is_json ? buf_cstr(&json) : buf_cstr(&text));
        r = save(s, buf_str(&json), err);
    }
    bench_engine_free(e);
    bench_block_free(b);
    return r;
}

/* ---- compare ---- */

static int read_result(const char *path, struct json **ret, struct err *err)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    int r = file_read(path, RESULT_MAX, &text, &n, err);
    r = r < 0 ? r : json_parse(str_n(text, n), ret, err);
    if (r < 0) {
        return err_context(err, r, "%s", path);
    }
    if (!json_get(*ret, "rows")) {
        json_free(*ret);
        *ret = NULL;
        return fail(err, -EINVAL, "BadResult", "%s is no result of spx bench", path);
    }
    return 0;
}

static const struct json *find_row(const struct json *result, struct str name)
{
    const struct json *rows = json_get(result, "rows");
    for (size_t i = 0; i < json_len(rows); i++) {
        if (str_eq(json_get_str(json_at(rows, i), "name"), name)) {
            return json_at(rows, i);
        }
    }
    return NULL;
}

struct span {
    double value, low, high;
};

static struct span span_of(const struct json *row)
{
    const struct json *range = json_get(row, "range");
    double v = json_f64(json_get(row, "value"), 0);
    return (struct span){.value = v,
                         .low = json_len(range) == 2 ? json_f64(json_at(range, 0), v) : v,
                         .high = json_len(range) == 2 ? json_f64(json_at(range, 1), v) : v};
}

static struct str shown(struct arena *a, struct span s)
{
    return arena_fmt(a, "%.1f (%.1f - %.1f)", s.value, s.low, s.high);
}

/* Ranges that overlap say nothing, whatever the medians are. */
static struct str verdict(struct arena *a, struct span x, struct span y)
{
    if (x.value <= 0) {
        return STR_NONE;
    }
    bool is_resolved = x.high < y.low || y.high < x.low;
    return is_resolved ? arena_fmt(a, "%.2fx", y.value / x.value) : STR("not resolved");
}

int cmd_bench_compare(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {{"WHAT", "name"},
                                            {"UNIT", "unit"},
                                            {"FIRST", "first"},
                                            {"SECOND", "second"},
                                            {"SECOND / FIRST", "ratio"}};
    AUTO(json_freep) struct json *a = NULL;
    AUTO(json_freep) struct json *b = NULL;
    int r = read_result(s->pos[0], &a, err);
    r = r < 0 ? r : read_result(s->pos[1], &b, err);
    if (r < 0) {
        return r;
    }
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    const struct json *rows = json_get(a, "rows");
    for (size_t i = 0; i < json_len(rows); i++) {
        const struct json *x = json_at(rows, i);
        const struct json *y = find_row(b, json_get_str(x, "name"));
        if (!y) {
            continue;
        }
        table_str(t, arena_str_dup(s->arena, json_get_str(x, "name")));
        table_str(t, arena_str_dup(s->arena, json_get_str(x, "unit")));
        table_str(t, shown(s->arena, span_of(x)));
        table_str(t, shown(s->arena, span_of(y)));
        table_str(t, verdict(s->arena, span_of(x), span_of(y)));
    }
    if (table_rows(t) == 0) {
        return fail(err, -EINVAL, "BadResult", "%s and %s have no row in common", s->pos[0],
                    s->pos[1]);
    }
    if (!s->is_json) {
        printf("first:  %s  %.*s\nsecond: %s  %.*s\n\n", s->pos[0],
               STR_ARG(json_get_str(a, "machine")), s->pos[1],
               STR_ARG(json_get_str(b, "machine")));
    }
    table_print(t, s->is_json);
    return 0;
}
