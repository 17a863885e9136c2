/* table.h — rows for people (columns by '|') and for programs (JSON), from one description.
 * Not here: what is in the rows.
 * Threads:  belongs to one thread.
 * Memory:   everything lives in the arena given to table_new().
 * Errors:   none. Control characters in values are shown as '?', so that nothing in a name or
 *           tag can steer the terminal. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include <stdint.h>

struct table_col {
    const char *title; /* "NAME" */
    const char *key;   /* "name": the member in JSON */
};

struct table;
struct table *table_new(struct arena *a, const struct table_col *cols, size_t n_cols);
/* Cells of the next row, left to right; a new row begins by itself after the last column. */
void table_str(struct table *t, struct str v); /* absent: "-" for people, null in JSON */
void table_cstr(struct table *t, const char *v);
void table_u64(struct table *t, uint64_t v);
/* A number with text of its own for people ("512 MiB"). */
void table_num(struct table *t, uint64_t v, struct str shown);
/* A list: "a,b" for people, an array in JSON. */
void table_list(struct table *t, const struct str *v, size_t n);
size_t table_rows(const struct table *t);
/* Appends the whole. */
void table_text(const struct table *t, struct buf *out);
void table_json(const struct table *t, struct buf *out);
/* Prints the one or the other. */
void table_print(const struct table *t, bool is_json);

/* "3d4h", "12m", "8s" for an age. */
struct str table_age(struct arena *a, uint64_t from_ns, uint64_t now_ns);
/* "512 MiB", "1.5 GiB" */
struct str table_size(struct arena *a, uint64_t bytes);
