#include "spx/table.h"
#include "base/time.h"
#include "base/vec.h"
#include "codec/json.h"
#include <inttypes.h>
#include <stdio.h>

#define MAX_OUTPUT (256u << 20)

struct cell {
    enum { CELL_STR, CELL_NUM, CELL_LIST } type;
    struct str text; /* as shown */
    uint64_t num;
    const struct str *items;
    size_t n_items;
};

struct table {
    struct arena *a;
    const struct table_col *cols;
    size_t n_cols;
    VEC(struct cell) cells;
};

static void free_cells(void *p)
{
    struct table *t = p;
    vec_free(&t->cells);
}

struct table *table_new(struct arena *a, const struct table_col *cols, size_t n_cols)
{
    struct table *t = arena_new_of(a, struct table);
    *t = (struct table){.a = a, .cols = cols, .n_cols = n_cols};
    if (arena_defer(a, free_cells, t) < 0) {
        abort();
    }
    return t;
}

/* What a terminal may see of it. */
static struct str clean(struct arena *a, struct str v)
{
    struct str copy = arena_str_dup(a, v);
    if (!str_is_set(copy)) {
        return STR("?");
    }
    char *p = (char *)(uintptr_t)copy.p; /* the copy is ours */
    for (size_t i = 0; i < copy.n; i++) {
        if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f) {
            p[i] = '?';
        }
    }
    return copy;
}

void table_str(struct table *t, struct str v)
{
    vec_push(&t->cells, (struct cell){.type = CELL_STR,
                                      .text = str_is_set(v) ? arena_str_dup(t->a, v) : v});
}

void table_cstr(struct table *t, const char *v)
{
    table_str(t, str_c(v));
}

void table_num(struct table *t, uint64_t v, struct str shown)
{
    vec_push(&t->cells, (struct cell){.type = CELL_NUM, .text = shown, .num = v});
}

void table_u64(struct table *t, uint64_t v)
{
    table_num(t, v, arena_fmt(t->a, "%" PRIu64, v));
}

void table_list(struct table *t, const struct str *v, size_t n)
{
    AUTO_BUF text;
    buf_init(&text, 1 << 16);
    struct str *copy = arena_array(t->a, n ? n : 1, sizeof(*copy));
    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = arena_str_dup(t->a, v[i]);
        buf_addc(&text, i ? "," : "");
        buf_add(&text, v[i]);
    }
    vec_push(&t->cells, (struct cell){.type = CELL_LIST,
                                      .text = arena_str_dup(t->a, buf_str(&text)),
                                      .items = copy,
                                      .n_items = copy ? n : 0});
}

size_t table_rows(const struct table *t)
{
    return t->cells.n / t->n_cols;
}

static size_t width(struct str s)
{
    size_t n = str_utf8_len(s);
    return n == SIZE_MAX ? s.n : n;
}

static struct str shown(const struct table *t, size_t i)
{
    struct str s = t->cells.v[i].text;
    return s.n == 0 ? STR("-") : clean(t->a, s);
}

static void add_cell(struct buf *out, struct str s, size_t to, bool is_last)
{
    buf_add(out, s);
    if (is_last) {
        buf_add_char(out, '\n');
    } else {
        buf_fmt(out, "%*s | ", (int)(to - MIN(to, width(s))), "");
    }
}

void table_text(const struct table *t, struct buf *out)
{
    size_t *widths = arena_array(t->a, t->n_cols, sizeof(*widths));
    if (!widths) {
        abort();
    }
    for (size_t c = 0; c < t->n_cols; c++) {
        widths[c] = strlen(t->cols[c].title);
        for (size_t i = c; i < t->cells.n; i += t->n_cols) {
            widths[c] = MAX(widths[c], width(shown(t, i)));
        }
    }
    for (size_t c = 0; c < t->n_cols; c++) {
        add_cell(out, str_c(t->cols[c].title), widths[c], c + 1 == t->n_cols);
    }
    for (size_t i = 0; i + t->n_cols <= t->cells.n; i += t->n_cols) {
        for (size_t c = 0; c < t->n_cols; c++) {
            add_cell(out, shown(t, i + c), widths[c], c + 1 == t->n_cols);
        }
    }
}

static void json_cell(struct jw *w, const char *key, const struct cell *c)
{
    switch (c->type) {
    case CELL_STR: jw_str(w, key, c->text); break;
    case CELL_NUM: jw_u64(w, key, c->num); break;
    case CELL_LIST:
        jw_arr(w, key);
        for (size_t i = 0; i < c->n_items; i++) {
            jw_str(w, NULL, c->items[i]);
        }
        jw_arr_end(w);
        break;
    }
}

void table_json(const struct table *t, struct buf *out)
{
    struct jw w;
    jw_init(&w, out);
    jw_arr(&w, NULL);
    for (size_t i = 0; i + t->n_cols <= t->cells.n; i += t->n_cols) {
        jw_obj(&w, NULL);
        for (size_t c = 0; c < t->n_cols; c++) {
            json_cell(&w, t->cols[c].key, &t->cells.v[i + c]);
        }
        jw_obj_end(&w);
    }
    jw_arr_end(&w);
    buf_add_char(out, '\n');
}

void table_print(const struct table *t, bool is_json)
{
    AUTO_BUF out;
    buf_init(&out, MAX_OUTPUT);
    if (is_json) {
        table_json(t, &out);
    } else {
        table_text(t, &out);
    }
    fwrite(out.p, 1, out.n, stdout);
}

struct str table_age(struct arena *a, uint64_t from_ns, uint64_t now_ns)
{
    uint64_t s = from_ns && now_ns > from_ns ? (now_ns - from_ns) / NS_PER_S : 0;
    if (s < 120) {
        return arena_fmt(a, "%" PRIu64 "s", s);
    }
    if (s < 2 * 3600) {
        return arena_fmt(a, "%" PRIu64 "m", s / 60);
    }
    if (s < 48 * 3600) {
        return arena_fmt(a, "%" PRIu64 "h%" PRIu64 "m", s / 3600, s / 60 % 60);
    }
    return arena_fmt(a, "%" PRIu64 "d%" PRIu64 "h", s / 86400, s / 3600 % 24);
}

struct str table_size(struct arena *a, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t u = 0;
    uint64_t whole = bytes, tenths = 0;
    while (whole >= 1024 && u + 1 < ARRAY_LEN(units)) {
        tenths = whole % 1024 * 10 / 1024;
        whole /= 1024;
        u++;
    }
    return tenths && whole < 100
               ? arena_fmt(a, "%" PRIu64 ".%" PRIu64 " %s", whole, tenths, units[u])
               : arena_fmt(a, "%" PRIu64 " %s", whole, units[u]);
}
